"""The tent map composed with itself (Telgarsky 2015): 2^L teeth' sides by L layers of two ReLUs.

Depth against width on the sawtooth (Telgarsky 2015): its pieces, and what too few pieces miss.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.piecewise.linear_claims import agreement, chain, interval_of
from margin.feedforward.piecewise.pieces import Pieces, pieces_of, pieces_on, sup_distance
from margin.nn.preprocessed import core_of

DEEPEST = 50
"""Beyond, the slope 2^L of a tooth is more than what float64 tells apart in [0, 1]."""


class Sawtooth(nn.Module):
    r"""The L-fold composition of the tent map, as a network of one input with L hidden layers of two ReLUs.

    .. math:: t(x) = 2 (x)_+ - 4 (x - \tfrac12)_+, \qquad t_L = t \circ \dots \circ t

    On [0, 1] it goes up and down between 0 and 1 in 2^L pieces of slope 2^L and -2^L, turning at j / 2^L.
    Every weight is a power of 2, so up to rounding of the input nothing is rounded.

    Args:
        depth: L, from 1 to 50.

    Raises:
        ValueError: The depth is out of range.

    Reference:
        Telgarsky 2015; Montufar, Pascanu, Cho and Bengio 2014 (folding).
    """

    def __init__(self, *, depth: int = 6) -> None:
        super().__init__()
        if not 1 <= depth <= DEEPEST:
            raise ValueError(f"depth must be from 1 to {DEEPEST}: got {depth}")
        self.depth = depth
        first, last = nn.Linear(1, 2), nn.Linear(2, 1)
        middle = [nn.Linear(2, 2) for _ in range(depth - 1)]
        half = torch.tensor([0.0, -0.5])
        with torch.no_grad():
            for layer in (first, *middle):
                layer.bias.copy_(half)
            first.weight.fill_(1.0)
            for layer in middle:
                layer.weight.copy_(torch.tensor([[2.0, -4.0], [2.0, -4.0]]))
            last.weight.copy_(torch.tensor([[2.0, -4.0]]))
            last.bias.zero_()
        self.layers = nn.Sequential(
            *(part for layer in (first, *middle) for part in (layer, nn.ReLU())), last
        )

    def forward(self, x: Float[Tensor, "batch 1"]) -> Float[Tensor, " batch"]:
        """The height of the sawtooth at each x."""
        return self.layers(x).flatten()


def teeth(depth: int, low: float = 0.0, high: float = 1.0) -> Pieces:
    """The sawtooth of 2^L pieces between 0 and 1, moved to [low, high], by its formula, not by the network.

    Beyond the ends it goes on as at the ends.

    Args:
        depth: L, at least 0; 0 is the one piece from 0 at low to 1 at high.
        low: Where it begins, at height 0.
        high: Where it ends.

    Raises:
        ValueError: The depth is negative or above 20, or the interval is empty.
    """
    if not 0 <= depth <= 20 or not low < high:
        raise ValueError(f"a sawtooth needs depth in 0 .. 20 and low < high: got {depth}, {low:g}, {high:g}")
    count = 2**depth
    ends = torch.arange(count + 1, dtype=torch.float64) / count
    x = low + (high - low) * ends
    sign = 1.0 - 2.0 * (torch.arange(count) % 2).double()
    slopes = sign * count / (high - low)
    start = (torch.arange(count) % 2).double()
    return Pieces(x[1:-1], slopes[:, None], (start - slopes * x[:-1])[:, None])


def fewest_pieces(depth: int) -> int:
    r"""The fewest pieces of a function that is nearer than 1/2 to the sawtooth everywhere on [0, 1]: 2^L.

    At the 2^L + 1 points j / 2^L the sawtooth is 0 and 1 in turn. A function g nearer than 1/2 is below 1/2
    at the former and above at the latter, so g - 1/2 changes its sign 2^L times, and an affine piece changes
    it once at most. A hidden layer of m ReLUs has m + 1 pieces: it needs m >= 2^L - 1.

    Args:
        depth: L, at least 1.

    Raises:
        ValueError: The depth is below 1.

    Reference: Telgarsky 2015 and 2016, Theorem 1.1 (for the mean of the absolute error).
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1: got {depth}")
    return 2**depth


HALF = 0.5
"""How near to the sawtooth no function of fewer pieces gets, uniformly; the constant 1/2 gets there."""

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
