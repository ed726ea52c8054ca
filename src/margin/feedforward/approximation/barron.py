"""Barron's theorem (1993): m sigmoids for a function of spectral norm C_f, with an error of order C_f^2 / m.

With the greedy construction of its proof (Jones 1992): a unit at a time, each the best of many for what is
left, averaged with the net before it.

Barron's bound (1993) held against the greedy net, unit by unit, on the measure of points of a ball.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Status, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of

Function = Callable[[Tensor], Tensor]

STEPS, CLIMBING = 20, 4
"""Gradient steps by which candidates are improved, and how many of the best are."""


class Spectral(NamedTuple):
    """A function on R^d with the first moment of its Fourier transform.

    Args:
        function: f, a number for each row.
        norm: C_f, the integral of |w| |f~(w)| over R^d, where f(x) is that of e^(i w.x) f~(w).
        dimension: d.
        name: What a statement calls it.
        known: Why C_f is this; "" where it is only said to be.
    """

    function: Function
    norm: float
    dimension: int
    name: str
    known: str = ""


def cosine(frequency: Float[Tensor, " dimension"]) -> Spectral:
    r"""cos(w0 . x): half a unit mass at w0 and -w0, so C_f = \|w0\|, w0 in radians per unit.

    Args:
        frequency: w0.

    Reference: Barron 1993, Section IX (examples).
    """
    w0 = frequency.double()
    norm = float(torch.linalg.vector_norm(w0))
    return Spectral(
        lambda x: (x.double() @ w0).cos(),
        norm,
        len(w0),
        f"cos(w.x), |w| = {norm:.4g}",
        "half a unit mass at w and half at -w",
    )


def gaussian(dimension: int) -> Spectral:
    r"""exp(-\|x\|^2 / 2) on R^d: its transform is the normal density, so C_f is the mean of a chi variable.

    .. math:: C_f = E\|w\| = \sqrt2\, \Gamma\big(\tfrac{d+1}2\big) / \Gamma\big(\tfrac d2\big)

    Args:
        dimension: d, at least 1.

    Raises:
        ValueError: The dimension is below 1.

    Reference: Barron 1993, Section IX (examples).
    """
    if dimension < 1:
        raise ValueError(f"dimension must be at least 1: got {dimension}")
    norm = math.sqrt(2) * math.exp(math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2))
    return Spectral(
        lambda x: (-x.double().square().sum(-1) / 2).exp(),
        norm,
        dimension,
        f"exp(-|x|^2 / 2), d = {dimension}",
        "the mean of a chi variable",
    )


def barron_bound(radius: float, norm: float, units: int) -> float:
    """The mean squared error (2 r C_f)^2 / m that some net of m sigmoids and a constant keeps on a ball.

    For every probability measure on the ball of radius r around 0; it says nothing of the largest error.

    Args:
        radius: r, positive.
        norm: C_f, at least 0, for frequencies in radians: those in cycles need a factor 2 pi.
        units: m, at least 1.

    Raises:
        ValueError: An argument is out of range.

    Reference: Barron 1993, Theorem 1.
    """
    if not (0 < radius < math.inf and 0 <= norm < math.inf and units >= 1):
        raise ValueError(
            f"the bound needs radius > 0, norm >= 0 and units >= 1: got {radius}, {norm}, {units}"
        )
    return (2 * radius * norm) ** 2 / units


def steepest(function: Function, x: Float[Tensor, "points dimension"]) -> float:
    r"""The largest gradient norm of f at the points: at most C_f, for \|grad f\| <= int \|w\| \|f~(w)\| dw.

    Args:
        function: f.
        x: Points.
    """
    x = x.detach().double().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(function(x).sum(), x)
    return float(torch.linalg.vector_norm(gradient, dim=1).max())


class GreedyNet(nn.Module):
    """All nets of 1 .. M sigmoids that a greedy construction passes through, for a known function on a ball.

    Args:
        target: f with C_f.
        radius: r of the ball.
        units: M, the number of units, at least 1.

    Raises:
        ValueError: Radius or units are out of range.

    Reference:
        Jones 1992; Barron 1993, Theorem 1.
    """

    directions: Tensor
    offsets: Tensor
    coefficients: Tensor
    constants: Tensor

    def __init__(self, target: Spectral, radius: float, *, units: int = 64) -> None:
        super().__init__()
        barron_bound(radius, target.norm, units)
        self.target, self.radius, self.units = target, radius, units
        shapes = {
            "directions": (units, target.dimension),
            "offsets": (units,),
            "coefficients": (units, units),
            "constants": (units,),
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def forward(self, x: Float[Tensor, "batch dimension"]) -> Float[Tensor, " batch"]:
        """The answer of the last net, of all its units."""
        return self.stages(x)[:, -1].to(x.dtype)

    def stages(self, x: Float[Tensor, "batch dimension"]) -> Float[Tensor, "batch units"]:
        """The answers of the nets of 1, 2, ..., M units, in float64."""
        hidden = (x.double() @ self.directions.T + self.offsets).sigmoid()
        return hidden @ self.coefficients.T + self.constants


class Unit(NamedTuple):
    """A sigmoid of a ridge: its direction times its steepness, its offset, its values at the points."""

    direction: Float[Tensor, " dimension"]
    offset: Float[Tensor, ""]
    values: Float[Tensor, " points"]


# what is held against the bound is the error of the net, on the points, not what is minimized here
def greedy(
    target: Spectral,
    x: Float[Tensor, "points dimension"],
    radius: float,
    *,
    units: int = 64,
    candidates: int = 1000,
    steepness: float = 40.0,
    generator: Generator,
) -> GreedyNet:
    r"""Build a net by the greedy algorithm in the convex hull of the sigmoids of height at most 2 r C_f.

    .. math:: f_m = (1 - \alpha) f_{m-1} + \alpha\, s_m 2 r C_f\, \sigma(a_m \cdot x + b_m) + c_m

    Unit and sign s_m are those of largest correlation with the residual among ``candidates`` random ones, the
    best improved by gradient steps; alpha in [0, 1] has the least squared error, and c_m makes its mean 0.
    No net leaves the hull, so a C_f that is too small is noticed: what is out of reach stays.

    Args:
        target: f with C_f.
        x: Points of the ball, whose empirical measure is the measure of the theorem.
        radius: r.
        units: M.
        candidates: Random units among which each is chosen.
        steepness: The slope of the sigmoids' arguments, in units of 1 / r, is drawn up to this.
        generator: What is drawn from.

    Raises:
        ValueError: A point lies outside of the ball, or has another dimension.

    Reference: Jones 1992 (greedy approximation in a convex hull); Barron 1993, Theorem 1.
    """
    x = x.double()
    if x.shape[1] != target.dimension or float(torch.linalg.vector_norm(x, dim=1).max()) > radius * (
        1 + 1e-9
    ):
        raise ValueError(
            f"points must lie in the ball of radius {radius:g} of R^{target.dimension}: "
            f"got {tuple(x.shape)}, the farthest at {float(torch.linalg.vector_norm(x, dim=1).max()):g}"
        )
    net, f = GreedyNet(target, radius, units=units), target.function(x)
    height, coefficients, fitted = 2 * radius * target.norm, x.new_zeros(units), torch.zeros_like(f)
    for m in range(units):
        residual = f - f.mean() - (fitted - fitted.mean())
        unit = _best_unit(x, residual, radius, candidates, steepness, generator)
        values = unit.values - unit.values.mean()
        sign = 1.0 if float(values @ residual) >= 0 else -1.0
        toward = sign * height * values - (fitted - fitted.mean())
        alpha = float((toward @ residual / toward.square().sum().clamp_min(1e-300)).clamp(0, 1))
        coefficients = (1 - alpha) * coefficients
        coefficients[m] = alpha * sign * height
        fitted = (1 - alpha) * fitted + alpha * sign * height * unit.values
        net.directions[m], net.offsets[m] = unit.direction, unit.offset
        net.coefficients[m], net.constants[m] = coefficients, (f - fitted).mean()
    return net


def _best_unit(  # 6 parameters: the points, what is left, and how candidates are drawn
    x: Float[Tensor, "points dimension"],
    residual: Float[Tensor, " points"],
    radius: float,
    candidates: int,
    steepness: float,
    generator: Generator,
) -> Unit:
    u = torch.randn(candidates, x.shape[1], generator=generator, dtype=x.dtype)
    u = u / torch.linalg.vector_norm(u, dim=1, keepdim=True)
    draws = torch.rand(2, candidates, generator=generator, dtype=x.dtype)
    slope = steepness ** draws[0] / radius
    a, b = slope[:, None] * u, -slope * radius * (2 * draws[1] - 1)
    gain = ((x @ a.T + b).sigmoid().T @ residual).abs()
    best = gain.topk(min(CLIMBING, candidates)).indices
    a, b = _climbed(x, residual, a[best], b[best])
    values = (x @ a.T + b).sigmoid()
    i = int((values.T @ residual).abs().argmax())
    return Unit(a[i], b[i], values[:, i])


def _climbed(
    x: Float[Tensor, "points dimension"],
    residual: Float[Tensor, " points"],
    a: Float[Tensor, "some dimension"],
    b: Float[Tensor, " some"],
) -> tuple[Tensor, Tensor]:
    """The same units after some steps up the gradient of their absolute correlation with the residual."""
    rate = torch.full_like(b, 0.3)
    values = (x @ a.T + b).sigmoid()
    gain = values.T @ residual
    for _ in range(STEPS):
        rise = values * (1 - values) * residual[:, None] * gain.sign()
        da, db = rise.T @ x, rise.sum(0)
        length = torch.linalg.vector_norm(torch.cat((da, db[:, None]), 1), dim=1).clamp_min(1e-300)
        stride = rate * torch.linalg.vector_norm(a, dim=1) / length
        further, over = a + stride[:, None] * da, b + stride * db
        tried = (x @ further.T + over).sigmoid()
        better = (tried.T @ residual).abs() > gain.abs()
        a, b = torch.where(better[:, None], further, a), torch.where(better, over, b)
        values = torch.where(better, tried, values)
        gain, rate = values.T @ residual, torch.where(better, rate, rate / 2)
    return a, b


def ball(
    points: int, dimension: int, radius: float, generator: Generator
) -> Float[Tensor, "points dimension"]:
    """Points drawn uniformly from the ball of radius r around 0, in float64.

    Args:
        points: How many.
        dimension: d.
        radius: r.
        generator: What is drawn from.
    """
    u = torch.randn(points, dimension, generator=generator, dtype=torch.float64)
    u = u / torch.linalg.vector_norm(u, dim=1, keepdim=True)
    r = torch.rand(points, 1, generator=generator, dtype=torch.float64) ** (1 / dimension)
    return radius * r * u


def is_greedy(subject: Subject) -> bool:
    """Whether the model is the catalog's greedy net of a function whose C_f is known."""
    return isinstance(core_of(subject.model), GreedyNet)


def greedy_bound(subject: Subject) -> Finding:
    """The mean squared error of the greedy nets of 1, 2, 4, ... sigmoids beside (2 r C_f)^2 / m.

    The theorem says that some net of m sigmoids and a constant is as good, for every probability measure on
    the ball, so for the held-out points themselves, each weighed alike or as told: there the error is exact.
    That the greedy net is such a net is measured. Of the largest error nothing is said.

    Args:
        subject: The catalog's greedy net.
    """
    net = core_of(subject.model)
    if not isinstance(net, GreedyNet):
        raise ValueError(f"this is asked of a greedy net of a known function: got {type(net).__name__}")
    x = torch.cat([batch.inputs[0] for batch in subject.test]).double()
    weight = torch.cat(
        [
            torch.ones(len(batch.inputs[0])) if batch.weight is None else batch.weight.cpu()
            for batch in subject.test
        ]
    ).double()
    with torch.no_grad(), eval_mode(subject.model):
        squares = (net.stages(x) - net.target.function(x)[:, None]).square().cpu()
    error = weight @ squares / weight.sum()
    sizes = torch.tensor([m for m in (2**k for k in range(20)) if m <= net.units])
    bound = torch.tensor(
        [barron_bound(net.radius, net.target.norm, m) for m in range(1, net.units + 1)], dtype=torch.float64
    )
    kept = weight > 0
    return Finding(
        statement=f"The mean squared error of m sigmoids for {net.target.name} on {int(kept.sum()):,} points "
        f"of the ball of radius {net.radius:g} is at most (2 r C_f)^2 / m, C_f = {net.target.norm:.4g}.",
        value=error[sizes - 1],
        unit="f^2",
        range=(0.0, math.inf),
        high=bound[sizes - 1],
        scope="exists",
        labels=tuple(f"m = {int(m)}" for m in sizes),
        premises=(_norm_premise(net, x[kept.to(x.device)]), _ball_premise(net, x[kept.to(x.device)])),
        curves={
            "units": torch.arange(1, net.units + 1),
            "mean squared error": error,
            "Barron's bound": bound,
        },
    )


def _norm_premise(net: GreedyNet, x: torch.Tensor) -> Premise:
    """That C_f may be right: the gradient of f is nowhere longer."""
    slope, target = steepest(net.target.function, x), net.target
    right: Status = "proved" if target.known else "assumed"
    return Premise(
        f"the integral of |w| |f~(w)| is at most {target.norm:.4g}, w in radians",
        right if slope <= target.norm * (1 + 1e-9) else "refuted",
        f"{target.known or 'as given'}; it cannot be below the steepest slope at the points, {slope:.4g}",
    )


def _ball_premise(net: GreedyNet, x: torch.Tensor) -> Premise:
    farthest = float(torch.linalg.vector_norm(x, dim=1).max()) if len(x) else math.nan
    return Premise(
        f"the points lie in the ball of radius {net.radius:g} around 0",
        "proved" if farthest <= net.radius * (1 + 1e-9) else "refuted",
        f"the farthest is at {farthest:.4g}",
    )


def demo() -> Subject:
    """Sixty-four sigmoids for a Gaussian bump of the plane, on 300 points of a disk."""
    generator = torch.Generator().manual_seed(0)
    x = ball(300, 2, 2.0, generator)
    net = greedy(gaussian(2), x, 2.0, candidates=200, generator=generator)
    batch = Batch((x,), net.target.function(x))
    return Subject(model=net, test=[batch], task=VALUES, objective=risk(VALUES))
