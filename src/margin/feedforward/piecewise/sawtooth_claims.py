"""Depth against width on the sawtooth (Telgarsky 2015): its pieces, and what too few pieces miss."""

import math

import torch
from torch import Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.piecewise.linear_claims import agreement, chain, interval_of
from margin.feedforward.piecewise.pieces import Pieces, pieces_of, pieces_on, sup_distance
from margin.feedforward.piecewise.sawtooth import HALF, Sawtooth, fewest_pieces, teeth
from margin.nn.preprocessed import core_of

DRAWN = 1024
"""Corners that are drawn: of more, the first."""


def count(subject: Subject) -> Finding:
    """Whether the L-fold tent map has exactly 2^L pieces on [0, 1], with two units a layer.

    A network of one hidden layer needs 2^L - 1 units for as many.

    Args:
        subject: The catalog's sawtooth.
    """
    core = core_of(subject.model)
    if not isinstance(core, Sawtooth):
        raise ValueError(f"this is asked of a sawtooth: got {type(core).__name__}")
    layers, depth = chain(subject), core.depth
    value, failure, found = torch.tensor(math.nan), "", None
    try:
        found = pieces_of(layers)
        value = torch.tensor(pieces_on(found, 0.0, 1.0))
    except ArithmeticError as error:
        failure = str(error)
    return Finding(
        statement=f"The tent map composed {depth} times, {2 * depth} units, has 2^{depth} pieces on [0, 1]; "
        f"a single hidden layer needs {2**depth - 1:,} units.",
        value=value,
        unit="pieces",
        range=(0.0, math.inf),
        low=torch.tensor(2**depth),
        high=torch.tensor(2**depth),
        premises=() if found is None else (agreement(subject, found),),
        reference="Telgarsky 2016, Theorem 1.1",
        failure=failure,
        curves={} if found is None else _drawn(found, teeth(depth), 0.0, 1.0),
    )


def separation(subject: Subject) -> Finding:
    """How far the network is from a sawtooth of more pieces than its own: 1/2 at least, however trained.

    The sawtooth is the shallowest that has more pieces, on the interval of the held-out inputs, between 0 and
    1. The distance is exact: both are affine between their knots.

    Args:
        subject: A ReLU network of one input and one output.
    """
    layers, (low, high) = chain(subject), interval_of(subject)
    own, depth, where = 0, 1, math.nan
    value, failure, found = torch.tensor(math.nan, dtype=torch.float64), "", None
    try:
        found = pieces_of(layers)
        own = pieces_on(found, low, high)
        depth = max(1, own.bit_length())  # the least L with 2^L > own
        if found.slopes.shape[1] != 1:
            raise ArithmeticError(f"the distance is that of one output: got {found.slopes.shape[1]}")
        distance, where = sup_distance(found, teeth(depth, low, high), low, high)
        value = torch.tensor(distance, dtype=torch.float64)
    except ArithmeticError as error:
        failure, found = str(error), None
    return Finding(
        statement=f"With {own} piece{'s' * (own > 1)} on [{low:g}, {high:g}] the network cannot be nearer "
        f"than 1/2 to the tent map composed {depth} times, of {fewest_pieces(depth)} pieces; it is this far "
        f"at {where:.4g}.",
        value=value,
        unit="output units",
        range=(0.0, math.inf),
        low=torch.tensor(HALF, dtype=torch.float64),
        tolerance=1e-9,
        premises=() if found is None else (agreement(subject, found),),
        reference="Telgarsky 2016, Theorem 1.1",
        failure=failure,
        curves={} if found is None else _drawn(found, teeth(depth, low, high), low, high),
    )


def _drawn(found: Pieces, sawtooth: Pieces, low: float, high: float) -> dict[str, Tensor]:
    knots = torch.cat((found.knots, sawtooth.knots)).unique()
    inside = knots[(knots > low) & (knots < high)]
    x = torch.cat((inside.new_tensor([low]), inside, inside.new_tensor([high])))[:DRAWN]
    return {"x": x, "network": found(x)[:, 0], "sawtooth": sawtooth(x)[:, 0]}


def demo() -> Subject:
    """The tent map composed six times: twelve units, 64 pieces."""
    x = torch.linspace(0, 1, 33)[:, None]
    model = Sawtooth(depth=6)
    with torch.no_grad():
        batch = Batch((x,), model(x))
    return Subject(model=model, test=[batch], task=VALUES, objective=risk(VALUES))
