"""The uniform error of a piecewise-linear interpolant against the modulus of continuity and the curvature."""

import math

import torch

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.piecewise.error import (
    ROUNDING,
    Error,
    FunctionInterpolant,
    equal_at_knots,
    error_on_grid,
    largest_move,
    second_difference,
)
from margin.feedforward.piecewise.linear import linear
from margin.nn.preprocessed import core_of

DE_BOOR = "de Boor 2001, Chapter III, Section Broken line interpolation"


def has_modulus(subject: Subject) -> bool:
    """Whether the model is an interpolant of a function whose modulus of continuity is known."""
    core = core_of(subject.model)
    return isinstance(core, FunctionInterpolant) and core.modulus is not None


def has_curvature(subject: Subject) -> bool:
    """Whether the model is an interpolant of a function with a known bound of the second derivative."""
    core = core_of(subject.model)
    return isinstance(core, FunctionInterpolant) and core.curvature is not None


def by_modulus(subject: Subject) -> Finding:
    r"""Whether \|f - I_h f\| <= omega_f(h): the interpolant misses by no more than f moves over one piece.

    Between the points of the grid f moves by omega_f of half its step at most, and the network by its slope.

    Args:
        subject: The interpolant of a function with a known modulus of continuity.
    """
    model = _interpolant(subject)
    if model.modulus is None:
        raise ValueError("this needs the modulus of continuity: got modulus=None")
    h, error = (model.high - model.low) / model.pieces, error_on_grid(model)
    steepest = float(error.network.diff().abs().max()) / error.step
    off_grid = model.modulus(error.step / 2) + steepest * error.step / 2
    return _finding(
        "is nowhere farther from the function than the function moves over the length of a piece",
        model,
        error,
        off_grid=off_grid,
        high=model.modulus(h),
        premises=(_interpolates(model, error), _modulus_premise(model, error, h)),
    )


def by_curvature(subject: Subject) -> Finding:
    r"""Whether \|f - I_h f\| <= h^2 M / 8 where \|f''\| <= M, with equality for a parabola.

    Between two points of the grid, d apart, the error exceeds the larger of the two by d^2 M / 8 at most.

    Args:
        subject: The interpolant of a function with a known bound of its second derivative.
    """
    model = _interpolant(subject)
    if model.curvature is None:
        raise ValueError("this needs a bound of the second derivative: got curvature=None")
    h, error = (model.high - model.low) / model.pieces, error_on_grid(model)
    found = second_difference(error)
    slack = 1e-6 * model.curvature + 1e-9 * float(error.function.abs().max())
    smooth = Premise(
        f"f is twice continuously differentiable with |f''| <= {model.curvature:g}",
        "sampled" if found <= model.curvature + slack else "refuted",
        f"the largest second difference on the grid is {found:.6g}",
    )
    return _finding(
        "is nowhere farther from the function than h^2 M / 8",
        model,
        error,
        off_grid=error.step**2 * model.curvature / 8,
        high=h**2 * model.curvature / 8,
        premises=(_interpolates(model, error), smooth),
    )


def _finding(  # 6 parameters: what the two bounds have of their own
    what: str,
    model: FunctionInterpolant,
    error: Error,
    *,
    off_grid: float,
    high: float,
    premises: tuple[Premise, ...],
) -> Finding:
    value, scale = error.largest, float(error.function.abs().max())
    keep = torch.linspace(0, len(error.x) - 1, min(len(error.x), 2001)).round().long()
    tensors = [torch.tensor(number, dtype=torch.float64) for number in (value, value + off_grid, high)]
    return Finding(
        statement=f"The interpolant of {model.pieces} pieces on [{model.low:g}, {model.high:g}] {what}.",
        value=tensors[0],
        unit="units of f",
        range=(0.0, math.inf),
        kind="estimate",
        interval=(tensors[0], tensors[1]),
        high=tensors[2],
        tolerance=off_grid + ROUNDING * scale,
        premises=premises,
        reference=DE_BOOR,
        curves={
            "x": error.x[keep],
            "function": error.function[keep],
            "interpolant": error.network[keep],
            "knots": model.knots(),
            "error": (error.function - error.network)[keep],
        },
        failure="" if math.isfinite(value) else "the function or the network is not finite on the interval",
    )


def _interpolates(model: FunctionInterpolant, error: Error) -> Premise:
    gap, nowhere_else = equal_at_knots(model)
    scale = max(float(error.function.abs().max()), float(linear(model.layers[2]).weight.detach().abs().max()))
    right = nowhere_else and gap <= 1e-9 * scale
    elsewhere = "" if nowhere_else else "; the network bends between the knots"
    return Premise(
        "the network is the interpolant of f at equally spaced knots",
        "proved" if right else "refuted",
        f"largest gap at the {model.pieces + 1} knots: {gap:.2g}{elsewhere}",
    )


def _modulus_premise(model: FunctionInterpolant, error: Error, h: float) -> Premise:
    per_piece, worst = round(h / error.step), 0.0
    modulus, evidence = model.modulus, ""
    for steps in {1, *(2**k for k in range(per_piece.bit_length())), per_piece}:
        moved = largest_move(error, steps)
        allowed = modulus(steps * error.step) if modulus is not None else math.nan
        excess = moved - allowed
        if not evidence or not excess <= worst:
            worst, evidence = excess, f"over {steps * error.step:.3g} f moves by {moved:.6g} <= {allowed:.6g}"
    slack = 1e-9 * float(error.function.abs().max())
    if not worst <= slack:
        return Premise("omega_f is at most the modulus given", "refuted", evidence.replace("<=", ">"))
    return Premise("omega_f is at most the modulus given", "sampled", evidence)


def _interpolant(subject: Subject) -> FunctionInterpolant:
    core = core_of(subject.model)
    if not isinstance(core, FunctionInterpolant):
        raise ValueError(f"this is asked of the interpolant of a known function: got {type(core).__name__}")
    return core


def demo() -> Subject:
    """Eight pieces for the sine on [0, pi]: omega(h) = sin h, and 1 bounds the second derivative."""
    model = FunctionInterpolant(
        torch.sin,
        0.0,
        math.pi,
        pieces=8,
        modulus=lambda h: math.sin(min(h, math.pi / 2)),
        curvature=1.0,
    )
    return subject_of(model)


def subject_of(model: FunctionInterpolant) -> Subject:
    """The interpolant as a subject, its function's values at eleven points as held-out examples."""
    x = torch.linspace(model.low, model.high, 11, dtype=torch.float64)
    batch = Batch((x[:, None],), model.function(x))
    return Subject(model=model, test=[batch], task=VALUES, objective=risk(VALUES))
