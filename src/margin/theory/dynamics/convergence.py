"""Iterations of optimizers on a function of one vector, and the rate at which what they leave converges.

Geometric convergence, values of the order of r^t, is a straight line on a logarithmic axis; a power t^-p is
one where both axes are logarithmic. (Ortega and Rheinboldt 1970, Chapter 9: root convergence factors.)
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from margin.math.convexity.functions import Function
from margin.optim.momentum import Nesterov

Make = Callable[[list[Tensor]], Optimizer]
"""``parameters -> optimizer``."""

FEWEST = 8
"""Points below which no rate is stated."""

PARTS = 4
"""Stretches of a trajectory on each of which the rate is fitted; their spread is the error."""


class Path(NamedTuple):
    """Iterates theta_0 .. theta_T of a method, with the function and its gradient's norm at each."""

    points: Float[Tensor, "iterates dim"]
    values: Float[Tensor, " iterates"]
    gradient_norms: Float[Tensor, " iterates"]


def follow(f: Function, start: Float[Tensor, " dim"], make: Make, steps: int) -> Path:
    """The iterates of an optimizer on a function; of Nesterov's, theta_t and not the points chi_t.

    A path that leaves the finite numbers ends there.

    Args:
        f: The function, differentiable.
        start: theta_0.
        make: Makes the optimizer of the parameters, as ``lambda ps: torch.optim.SGD(ps, lr=0.1)``.
        steps: T >= 0.

    Raises:
        ValueError: ``steps`` is negative.
    """
    if steps < 0:
        raise ValueError(f"steps must be at least 0: got {steps}")
    theta = start.detach().clone().requires_grad_()
    optimizer = make([theta])
    points, values, norms = [], [], []
    for step in range(steps + 1):
        at = _iterate(theta, optimizer)
        value = f(at)
        (slope,) = torch.autograd.grad(value, at)
        points.append(at.detach().clone())
        values.append(value.detach())
        norms.append(torch.linalg.vector_norm(slope))
        if step == steps or not bool(value.isfinite() and slope.isfinite().all()):
            break
        if at is not theta:
            (slope,) = torch.autograd.grad(f(theta), theta)
        theta.grad = slope
        optimizer.step()
    return Path(torch.stack(points), torch.stack(values), torch.stack(norms))


def _iterate(theta: Tensor, optimizer: Optimizer) -> Tensor:
    if not isinstance(optimizer, Nesterov):
        return theta
    with optimizer.at_iterates():
        return theta.detach().clone().requires_grad_()


class Fit(NamedTuple):
    """A fitted number with its error over stretches of the trajectory.

    Args:
        value: The number.
        stderr: Standard error from its spread over four stretches: large where there is no one rate.
        points: Of the trajectory.
    """

    value: float
    stderr: float
    points: int


def fitted_rate(values: Sequence[float] | Float[Tensor, " t"], *, every: float = 1.0) -> Fit:
    """The factor r a step of values of the order of r^t, by least squares on log values.

    The error is that of the slopes of four stretches, so that a rate which still changes shows.

    Args:
        values: Positive, evenly spaced.
        every: Steps from one to the next, > 0.

    Raises:
        ValueError: There are fewer than 8 values, or one is not positive and finite.
    """
    y = _logs(values)
    fit = _slopes(torch.arange(len(y), dtype=torch.float64) * every, y)
    rate = math.exp(fit.value)
    return Fit(rate, rate * fit.stderr, fit.points)


def fitted_exponent(
    steps: Sequence[float] | Float[Tensor, " t"], values: Sequence[float] | Float[Tensor, " t"]
) -> Fit:
    """The exponent p of values of the order of t^p, by least squares on both logarithms.

    Args:
        steps: t, positive and increasing; evenly spaced logarithms weigh all decades alike.
        values: Positive, one for each.

    Raises:
        ValueError: There are fewer than 8 values, they are not as many as the steps, one is not positive
            and finite, or the steps do not increase.
    """
    x, y = _logs(steps), _logs(values)
    if len(x) != len(y) or not bool((x.diff() > 0).all()):
        raise ValueError(f"steps must increase, one for each value: got {len(x)} steps, {len(y)} values")
    return _slopes(x, y)


def _logs(values: Sequence[float] | Tensor) -> Tensor:
    found = torch.as_tensor(values, dtype=torch.float64)
    if len(found) < FEWEST:
        raise ValueError(f"a rate needs at least {FEWEST} values: got {len(found)}")
    if not bool((found.isfinite() & (found > 0)).all()):
        bad = found[~(found.isfinite() & (found > 0))][0]
        raise ValueError(f"a rate needs values that are positive and finite: got {float(bad):g}")
    return found.log()


def _slopes(x: Tensor, y: Tensor) -> Fit:
    stretches = [_slope(a, b) for a, b in zip(x.tensor_split(PARTS), y.tensor_split(PARTS), strict=True)]
    spread = float(torch.tensor(stretches, dtype=torch.float64).std()) / math.sqrt(PARTS)
    return Fit(_slope(x, y), spread, len(x))


def _slope(x: Tensor, y: Tensor) -> float:
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / (x @ x))
