"""What is asked of a ReLU network of one input: how many pieces it has, whether it meets its data."""

import math

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import State, risk
from margin.engine.weighted_rows import training_rows
from margin.feedforward.piecewise.linear import (
    PiecewiseLinearInterpolant,
    Points,
    interpolation,
    pwl_basis,
    wanted_points,
)
from margin.feedforward.piecewise.pieces import KINKED, Pieces, chain_of, most_pieces, pieces_of, pieces_on
from margin.nn.preprocessed import core_of

DRAWN = 2048
"""Corners that are drawn: of more, the first."""

TRIED = 64
"""Inputs on which it is tried whether a model is a chain of layers."""


def is_one_input_relu(subject: Subject) -> bool:
    """Whether the model applies affine maps and ReLUs, at least one, one after another, to one number."""
    x = _inputs(subject)
    if x is None or x.shape[1:] != (1,) or not bool(x.isfinite().all()):
        return False
    layers = chain_of(subject.model, x)
    return not isinstance(layers, str) and any(isinstance(layer, KINKED) for layer in layers)


def is_one_output_relu(subject: Subject) -> bool:
    """Whether the model is such a network with one output."""
    if not is_one_input_relu(subject):
        return False
    affine = [layer for layer in chain(subject) if isinstance(layer, nn.Linear)]
    return bool(affine) and affine[-1].out_features == 1


def pieces(subject: Subject) -> Finding:
    """How many affine pieces the network has on the whole line: at most the product of m + 1 over its layers.

    The count is exact: every breakpoint is solved for. Neighbors of one slope are one piece. One hidden layer
    can reach the bound m + 1; a trained network is mostly far below that of several.

    Args:
        subject: A ReLU network of one input.
    """
    layers = chain(subject)
    found, failure, value = None, "", torch.tensor(math.nan)
    try:
        found = pieces_of(layers)
        value = torch.tensor(len(found.slopes))
    except ArithmeticError as error:
        failure = str(error)
    low, high = interval_of(subject)
    seen = "" if found is None else f" {pieces_on(found, low, high)} of them on [{low:g}, {high:g}],"
    widths = [layer.out_features for layer in layers if isinstance(layer, nn.Linear)]
    return Finding(
        statement=f"The network of widths 1, {', '.join(map(str, widths))} is affine on this many pieces of "
        f"the line,{seen} where the held-out inputs lie.",
        value=value,
        unit="pieces",
        range=(0.0, math.inf),
        low=torch.tensor(1),
        high=torch.tensor(float(most_pieces(layers)), dtype=torch.float64),
        premises=() if found is None else (agreement(subject, found),),
        failure=failure,
        curves={} if found is None or found.slopes.shape[1] > 1 else _drawn(found, low, high),
    )


def interpolates(subject: Subject) -> Finding:
    """Whether the interpolant passes through the mean training target at each of its knots.

    A knot that is no training input has the value of the straight line between its neighbors.

    Args:
        subject: The catalog's interpolant with its training examples.
    """
    core = core_of(subject.model)
    if not isinstance(core, PiecewiseLinearInterpolant):
        raise ValueError(f"this is asked of a piecewise-linear interpolant: got {type(core).__name__}")
    wanted = _training_points(subject, core)
    with torch.no_grad(), eval_mode(core):
        x = wanted.x[:, None].to(core.hidden.weight.device)
        reached = core.double_values(x).cpu()
    return Finding(
        statement=f"The network passes through the mean training target at its {len(wanted.x):,} knots.",
        value=(reached - wanted.y).abs().max(),
        unit="target units",
        range=(0.0, math.inf),
        high=torch.zeros(()),
        tolerance=_rounding(wanted, core),
    )


def interval_of(subject: Subject) -> tuple[float, float]:
    """The least and the largest held-out input, a unit apart where they are one."""
    x = torch.cat([batch.inputs[0].flatten().double().cpu() for batch in subject.test])
    low, high = float(x.min()), float(x.max())
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def agreement(subject: Subject, found: Pieces) -> Premise:
    """That the model is the chain that was followed: its own outputs in the middle of every piece."""
    text = "the model is a chain of affine maps and ReLUs"
    x = found.middles()
    like = subject.test[0].inputs[0]
    inputs = x[:, None].to(like)
    with torch.no_grad(), eval_mode(subject.model):
        answers = [subject.model(part).double().cpu() for part in inputs.split(4096)]
        outputs = torch.cat(answers).reshape(len(x), -1)
    exact = found(inputs[:, 0].double().cpu())
    piece = torch.arange(len(x))
    size = (found.slopes[piece] * x[:, None]).abs() + found.intercepts[piece].abs()
    gap = (outputs - exact).abs()
    allowed = 1e-5 * exact.abs().max() + 64 * torch.finfo(like.dtype).eps * size
    right = bool((gap <= allowed).all())
    return Premise(
        text,
        "sampled" if right else "refuted",
        f"run on {TRIED} inputs, layer by layer; in the middle of {len(x):,} pieces its outputs are within "
        f"{float(gap.max()):.2g} of the chain's",
    )


def chain(subject: Subject) -> list[nn.Module]:
    """The layers of a ReLU network of one input, in order.

    Raises:
        ValueError: It is none.
    """
    x = _inputs(subject)
    if x is None or x.shape[1:] != (1,):
        shape = "no real input" if x is None else f"inputs of shape {tuple(x.shape[1:])}"
        raise ValueError(f"pieces of a line need a network of one input: got {shape}")
    layers = chain_of(subject.model, x)
    if isinstance(layers, str):
        raise ValueError(f"pieces need a chain of affine maps and ReLUs: {layers}")
    return layers


def _inputs(subject: Subject) -> Tensor | None:
    """Held-out inputs, some of them moved away, on which a model is tried; None if there is not just one."""
    inputs = subject.test[0].inputs if len(subject.test) else ()
    if len(inputs) != 1 or not inputs[0].is_floating_point() or not len(inputs[0]):
        return None
    x = inputs[0].flatten(1) if inputs[0].ndim > 1 else inputs[0][:, None]
    if x.shape[1] != 1 or inputs[0].ndim != 2:
        return x
    spread = torch.linspace(-8, 8, TRIED // 2).to(x) * x.std(correction=0).clamp_min(1.0) + x.mean()
    return torch.cat((x[: TRIED - len(spread)], spread[:, None]))


def _training_points(subject: Subject, core: PiecewiseLinearInterpolant) -> Points:
    rows = training_rows(subject)
    return wanted_points(core, rows.x, rows.targets, rows.weight)


def _rounding(wanted: Points, core: PiecewiseLinearInterpolant) -> float:
    """How far rounding moves the function at a knot: of the weights in their type, of the sum in float64."""
    g = pwl_basis(*wanted, outside=core.outside, dtype=core.hidden.weight.dtype)
    span, steps = float(wanted.x[-1] - wanted.x[0]), wanted.x.diff()
    single, double = (torch.finfo(t).eps for t in (core.hidden.weight.dtype, torch.float64))
    # the last ramp of a function that stays constant rises beyond all points
    bends = g.changes[:-1].abs() * steps if core.outside == "constant" else g.changes.abs() * steps[1:]
    affine = float(g.slope.abs()) * float(wanted.x.abs().max())
    size, bend = (float(t.abs().max()) if len(t) else 0.0 for t in (wanted.y, bends))
    return 8 * double * float(g.changes.abs().sum()) * span + 4 * single * (size + affine + bend)


def _drawn(found: Pieces, low: float, high: float) -> dict[str, Tensor]:
    """The function where the data lie, by its corners, and where it bends."""
    inside = found.knots[(found.knots > low) & (found.knots < high)]
    x = torch.cat((inside.new_tensor([low]), inside, inside.new_tensor([high])))[:DRAWN]
    return {"x": x, "network": found(x)[:, 0], "knots": inside[:DRAWN]}


def demo() -> Subject:
    """The interpolant of eleven uneven values of a cubic, each given twice, half a unit to either side."""
    x = torch.linspace(-1, 1, 11, dtype=torch.float64)
    x, side = (x + 0.3 * x**2).repeat(2), torch.tensor([-0.5, 0.5], dtype=torch.float64).repeat_interleave(11)
    batch = Batch((x[:, None],), x**3 - x + side)
    model = PiecewiseLinearInterpolant(1, 22).double()
    interpolation()(State({"model": model}), batch)
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))
