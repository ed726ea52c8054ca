"""How far a function is from its interpolant on pieces of length h: omega_f(h), and h^2 |f''| / 8.

The uniform error of a piecewise-linear interpolant against the modulus of continuity and the curvature.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.piecewise.linear import basis_of_network, linear, pieces_for, pwl_basis, relu_network
from margin.math.evenly import evenly
from margin.nn.preprocessed import core_of

Function = Callable[[Tensor], Tensor]

MOST_POINTS = 200_000
"""Points at which an error is looked at."""

ROUNDING = 1e-12


class FunctionInterpolant(nn.Module):
    """The ReLU network that interpolates a known function on equal pieces of an interval, in float64.

    Args:
        function: f, of a tensor, elementwise, defined on the interval.
        low: Left end.
        high: Right end.
        pieces: Number of pieces, at least 1; each is h = (high - low) / pieces long.
        modulus: A bound of omega_f: h -> the most that f moves over a distance h; None: not known.
        curvature: A bound M of the second derivative of f in absolute value; None: not known.

    Raises:
        ValueError: The interval is empty, pieces is below 1, a bound is negative, or f is not finite.

    Reference:
        de Boor 2001, Chapter III (broken-line interpolation).
    """

    def __init__(
        self,
        function: Function,
        low: float,
        high: float,
        *,
        pieces: int = 16,
        modulus: Callable[[float], float] | None = None,
        curvature: float | None = None,
    ) -> None:
        super().__init__()
        if not (low < high and math.isfinite(low) and math.isfinite(high)) or pieces < 1:
            raise ValueError(
                f"an interpolant needs low < high, finite, and pieces >= 1: got {low}, {high}, {pieces}"
            )
        if curvature is not None and not 0 <= curvature < math.inf:
            raise ValueError(f"curvature must be finite and at least 0: got {curvature}")
        self.function, self.modulus, self.curvature = function, modulus, curvature
        self.low, self.high, self.pieces = low, high, pieces
        self.layers = relu_network(pwl_basis(self.knots(), self.function(self.knots())))

    def knots(self) -> Float[Tensor, " knots"]:
        """The ends of the pieces, in float64."""
        return torch.linspace(self.low, self.high, self.pieces + 1, dtype=torch.float64)

    def forward(self, x: Float[Tensor, "batch 1"]) -> Float[Tensor, " batch"]:
        """The interpolant's value at each x."""
        return self.layers(x).flatten()


def interpolant_within(
    function: Function, low: float, high: float, *, tolerance: float, curvature: float
) -> FunctionInterpolant:
    """A ReLU network that is nowhere on an interval farther from a function than a tolerance.

    Args:
        function: f, twice continuously differentiable.
        low: Left end.
        high: Right end.
        tolerance: The uniform error allowed, positive.
        curvature: A bound of the second derivative of f in absolute value.

    Raises:
        ValueError: A number is out of range.

    Reference: de Boor 2001, Chapter III (broken-line interpolation); Leshno et al. 1993, Theorem 1.
    """
    pieces = pieces_for(high - low, curvature, tolerance)
    return FunctionInterpolant(function, low, high, pieces=pieces, curvature=curvature)


class Error(NamedTuple):
    """The error of an interpolant on a grid that holds its knots and the middles of its pieces.

    Args:
        x: The grid.
        function: f there.
        network: The network's answers there.
        step: Distance of neighbors.
    """

    x: Float[Tensor, " points"]
    function: Float[Tensor, " points"]
    network: Float[Tensor, " points"]
    step: float

    @property
    def largest(self) -> float:
        """The largest error on the grid: a lower bound of the uniform distance."""
        return float((self.function - self.network).abs().max())


def error_on_grid(model: FunctionInterpolant) -> Error:
    """The error at up to 1,024 points of every piece, an even number, and MOST_POINTS in all."""
    fine = 2 * max(4, min(512, MOST_POINTS // (2 * model.pieces)))
    count = fine * model.pieces
    x = torch.linspace(model.low, model.high, count + 1, dtype=torch.float64)
    with torch.no_grad():
        network = torch.cat([model(part[:, None]) for part in x.split(max(1, 2**22 // (model.pieces + 2)))])
        return Error(x, model.function(x).double(), network.double(), (model.high - model.low) / count)


def equal_at_knots(model: FunctionInterpolant) -> tuple[float, bool]:
    """The largest gap of network and function at the knots, and whether the network bends only there."""
    knots = model.knots()
    with torch.no_grad():
        gap = float((model(knots[:, None]) - model.function(knots)).abs().max())
    bends = basis_of_network(linear(model.layers[0]), linear(model.layers[2])).knots
    inside = bends[(bends > model.low) & (bends < model.high)]
    away = (inside[:, None] - knots).abs().amin(1) if len(inside) else inside
    return gap, bool((away <= 1e-9 * (model.high - model.low) / model.pieces).all())


def second_difference(error: Error) -> float:
    r"""The largest :math:`|f(x + d) - 2 f(x) + f(x - d)| / d^2` on the grid: at most M if \|f''\| <= M.

    It is taken over about a thousand steps, so that rounding, some 1e-16 / d^2 of f, stays small.
    """
    stride = max(1, (len(error.x) - 1) // 2000)
    f = error.function[::stride]
    if len(f) < 3:
        return 0.0
    return float(f.diff(n=2).abs().max()) / (stride * error.step) ** 2


def largest_move(error: Error, steps: int) -> float:
    r"""The largest \|f(x + steps d) - f(x)\| on the grid: at most omega_f(steps d)."""
    f = error.function
    return float((f[steps:] - f[:-steps]).abs().max()) if 0 < steps < len(f) else 0.0


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
    keep = evenly(len(error.x), 2001)
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
