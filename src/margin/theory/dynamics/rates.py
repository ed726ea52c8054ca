r"""How fast first-order methods must converge: the bounds for smooth, convex and strongly convex functions.

h is L-smooth; the gap is h(theta_0) - h*, the distance \|theta_0 - theta*\|; k = L / mu. A bound is what
theory promises at step t; none of them is computed from the run that it judges. (Nesterov 1983, 2018; Polyak
1963, 1964.)

Stochastic gradient descent: its rates, its floor at a constant step, and when it arrives at all.

.. math:: \theta_{t+1} = \theta_t - \alpha_t g_t, \qquad E[g_t \mid \theta_t] = \nabla h(\theta_t)

For convex Lipschitz h and alpha ~ 1/sqrt t the averaged iterate is O(1/sqrt t) from the minimum; for strongly
convex h and alpha = 1/(mu t) O(1/t) where it is smooth or the later iterates are averaged, else O(log t / t).
(Robbins and Monro 1951; Nemirovski, Juditsky, Lan and Shapiro 2009; Shamir and Zhang 2013.)

The rate of a sequence is fitted: geometric convergence, values of the order of r^t, is a straight line on a
logarithmic axis; a power t^-p is one where both axes are logarithmic. (Ortega and Rheinboldt 1970, Chapter 9:
root convergence factors.)
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from margin.math.convexity.functions import Function
from margin.optim.momentum import Nesterov


class Options(NamedTuple):
    """The learning rate and the momentum of a method."""

    lr: float
    momentum: float = 0.0


def sufficient_decrease(gradient_norm: float, eta: float, L: float) -> float:
    r"""The least decrease of an L-smooth h by one gradient step: what the descent lemma promises.

    .. math:: h(\theta) - h(\theta - \eta g) \ge \eta \left(1 - \tfrac{L \eta}2\right) |g|^2

    At eta = 1/L it is \|g\|^2 / (2 L); from eta = 2/L on it promises nothing.

    Args:
        gradient_norm: \|g\|, >= 0.
        eta: The step length, > 0.
        L: The constant of smoothness, > 0.

    Raises:
        ValueError: An argument is out of range.

    Reference: Nesterov 2018, Section 1.2.3 (from Lemma 1.2.3).
    """
    _check(eta=eta, L=L)
    return eta * (1 - L * eta / 2) * gradient_norm**2


def stationary_bound(gap: float, L: float, steps: int) -> float:
    r"""The bound on the least squared gradient among the first T iterates of descent at eta = 1/L.

    .. math:: \min_{t < T} |\nabla h(\theta_t)|^2 \le 2 L (h_0 - h^*) / T

    It is about the best iterate, not the last; h need not be convex.

    Args:
        gap: h_0 - h*, or more, >= 0.
        L: The constant of smoothness, > 0.
        steps: T >= 1.

    Raises:
        ValueError: An argument is out of range.

    Reference: Nesterov 2018, Section 1.2.3.
    """
    _check(L=L, steps=steps)
    return 2 * L * _gap(gap) / steps


def stationary_steps(gap: float, L: float, epsilon: float) -> int:
    r"""The steps among which some iterate has \|grad h\| <= epsilon: ceil(2 L (h_0 - h*) / epsilon^2).

    Args:
        gap: h_0 - h*, or more, >= 0.
        L: The constant of smoothness, > 0.
        epsilon: The norm wanted, > 0.

    Raises:
        ValueError: An argument is out of range.

    Reference: Nesterov 2018, Section 1.2.3.
    """
    _check(L=L, epsilon=epsilon)
    return math.ceil(2 * L * _gap(gap) / epsilon**2)


def convex_bound(distance: float, eta: float, steps: int) -> float:
    r"""The bound on h_t - h(z) for gradient descent on a convex, L-smooth h at eta <= 1/L.

    .. math:: h(\theta_t) - h(z) \le \frac{|\theta_0 - z|^2}{2 \eta t} \quad \text{for every } z

    At eta = 1/L and z = theta* it is L \|theta_0 - theta*\|^2 / (2 t): sublinear.

    Args:
        distance: \|theta_0 - z\|, >= 0.
        eta: The step length, > 0, at most 1/L.
        steps: t >= 1.

    Raises:
        ValueError: An argument is out of range.

    Reference: Beck and Teboulle 2009, Theorem 3.1 (without the second term; z as in Lemma 2.3).
    """
    _check(eta=eta, steps=steps)
    return distance**2 / (2 * eta * steps)


def nesterov_bound(distance: float, L: float, steps: int) -> float:
    r"""The bound 2 L \|theta_0 - theta*\|^2 / (t + 1)^2 on h_t - h* for Nesterov's method, h convex.

    The step is 1/L and the momentum (t - 1) / (t + 2). Without convexity there is no such rate.

    Args:
        distance: \|theta_0 - theta*\|, >= 0.
        L: The constant of smoothness, > 0.
        steps: t >= 1.

    Raises:
        ValueError: An argument is out of range.

    Reference: Su, Boyd and Candes 2016, Equation 2; Beck and Teboulle 2009, Theorem 4.4.
    """
    _check(L=L, steps=steps)
    return 2 * L * distance**2 / (steps + 1) ** 2


def linear_factor(mu: float, L: float) -> float:
    r"""The factor 1 - mu/L of the gap a step, for descent at 1/L under the Polyak-Lojasiewicz condition.

    .. math:: \tfrac12 |\nabla h|^2 \ge \mu (h - h^*) \implies h_T - h^* \le (1 - \mu/L)^T (h_0 - h^*)

    A mu-strongly convex h satisfies the condition, and then \|theta_t - theta*\|^2 shrinks by it as well.

    Args:
        mu: > 0, at most L.
        L: The constant of smoothness.

    Raises:
        ValueError: mu is not in (0, L].

    Reference: Polyak 1963; Karimi, Nutini and Schmidt 2016, Theorem 1.
    """
    _order(mu, L)
    return 1 - mu / L


def best_step(mu: float, L: float) -> float:
    """The fixed step 2 / (L + mu) that is best for the worst mu-strongly convex, L-smooth function.

    Args:
        mu: > 0, at most L.
        L: The constant of smoothness.

    Raises:
        ValueError: mu is not in (0, L].

    Reference: Nesterov 2018, Theorem 2.1.15.
    """
    _order(mu, L)
    return 2 / (L + mu)


def best_step_factor(mu: float, L: float) -> float:
    r"""The factor (k - 1) / (k + 1) of \|theta_t - theta*\| a step of descent at eta = 2 / (L + mu).

    Args:
        mu: > 0, at most L.
        L: The constant of smoothness.

    Raises:
        ValueError: mu is not in (0, L].

    Reference: Nesterov 2018, Theorem 2.1.15.
    """
    _order(mu, L)
    return (L - mu) / (L + mu)


def heavy_ball_options(mu: float, L: float) -> Options:
    """The step 4 / (sqrt L + sqrt mu)^2 and momentum ((sqrt k - 1) / (sqrt k + 1))^2, best on quadratics.

    Args:
        mu: Least curvature, > 0, at most L.
        L: Largest curvature.

    Raises:
        ValueError: mu is not in (0, L].

    Reference: Polyak 1964; Lessard, Recht and Packard 2016, Section 2 (Table 1).
    """
    return Options(4 / (math.sqrt(L) + math.sqrt(mu)) ** 2, heavy_ball_factor(mu, L) ** 2)


def heavy_ball_factor(mu: float, L: float) -> float:
    r"""The asymptotic factor (sqrt k - 1) / (sqrt k + 1) of \|theta_t - theta*\| for the best heavy ball.

    It is the spectral radius of the iteration on a quadratic; since the matrix has a double eigenvalue,
    \|theta_t - theta*\| is of the order of t times its power. For other functions it is no bound.

    Args:
        mu: Least curvature, > 0, at most L.
        L: Largest curvature.

    Raises:
        ValueError: mu is not in (0, L].

    Reference: Polyak 1964; Lessard, Recht and Packard 2016, Section 2 (Table 1).
    """
    _order(mu, L)
    return (math.sqrt(L) - math.sqrt(mu)) / (math.sqrt(L) + math.sqrt(mu))


def heavy_ball_bound(distance: float, mu: float, L: float, steps: int) -> float:
    r"""The bound on \|theta_t - theta*\| for the best heavy ball from rest, on a quadratic, at every t.

    .. math:: |\theta_t - \theta^*| \le (1 + (1 + \rho) t)\, \rho^t\, |\theta_0 - \theta^*|, \qquad
        \rho = \frac{\sqrt k - 1}{\sqrt k + 1}

    Each eigendirection is multiplied by rho^t (U_t(c) - rho U_{t-1}(c)) with Chebyshev's polynomials of the
    second kind, \|U_t\| <= t + 1 on [-1, 1]. The steepest direction, c = -1, attains the bound.

    Args:
        distance: \|theta_0 - theta*\|, >= 0.
        mu: Least curvature, > 0, at most L.
        L: Largest curvature.
        steps: t >= 0.

    Raises:
        ValueError: mu is not in (0, L].

    Reference: Polyak 1964 (the rate); the constant follows from Abramowitz and Stegun 1964, Section 22.14.
    """
    rho = heavy_ball_factor(mu, L)
    return (1 + (1 + rho) * steps) * rho**steps * distance


def nesterov_options(mu: float, L: float) -> Options:
    """The step 1/L and the momentum (sqrt k - 1) / (sqrt k + 1) for a mu-strongly convex function.

    Args:
        mu: > 0, at most L.
        L: The constant of smoothness.

    Raises:
        ValueError: mu is not in (0, L].

    Reference: Nesterov 2018, Section 2.2.1.
    """
    return Options(1 / L, heavy_ball_factor(mu, L))


def nesterov_factor(mu: float, L: float) -> float:
    r"""The factor 1 - 1/sqrt k a step of Nesterov's method with constant momentum.

    Of the gap of every mu-strongly convex function, up to a constant; of \|theta_t - theta*\| itself,
    asymptotically, on a quadratic.

    Args:
        mu: > 0, at most L.
        L: The constant of smoothness.

    Raises:
        ValueError: mu is not in (0, L].

    Reference: Nesterov 2018, Section 2.2.1; Lessard, Recht and Packard 2016, Section 2 (Table 1).
    """
    _order(mu, L)
    return 1 - math.sqrt(mu / L)


def nesterov_linear_bound(gap: float, distance: float, mu: float, L: float, steps: int) -> float:
    r"""The bound on h_t - h* for Nesterov's method with constant momentum, h mu-strongly convex.

    .. math:: h_t - h^* \le (1 - 1/\sqrt k)^t \left(h_0 - h^* + \tfrac\mu2 |\theta_0 - \theta^*|^2\right)

    Args:
        gap: h_0 - h*, >= 0.
        distance: \|theta_0 - theta*\|, >= 0.
        mu: > 0, at most L.
        L: The constant of smoothness.
        steps: t >= 0.

    Raises:
        ValueError: An argument is out of range.

    Reference: d'Aspremont, Scieur and Taylor 2021, Chapter 4 (constant momentum).
    """
    return nesterov_factor(mu, L) ** steps * (_gap(gap) + mu / 2 * distance**2)


def diverges(eta: float, L: float) -> bool:
    r"""Whether gradient descent on a quadratic of largest curvature L diverges: exactly for eta > 2/L.

    At eta = 2/L it stays at \|x_0\| along the steepest axis: it neither converges nor diverges.

    Args:
        eta: The step length, > 0.
        L: The largest curvature, > 0.

    Raises:
        ValueError: An argument is out of range.

    Reference: Goodfellow, Bengio and Courville 2016, Section 4.3; Polyak 1964.
    """
    _check(eta=eta, L=L)
    return eta > 2 / L


def _gap(gap: float) -> float:
    if not gap >= 0:
        raise ValueError(f"the gap h_0 - h* must be >= 0: got {gap:g}")
    return gap


def _check(**positive: float) -> None:
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite: got {value:g}")


def _order(mu: float, L: float) -> None:
    if not 0 < mu <= L < math.inf:
        raise ValueError(f"mu must lie in (0, L]: got mu={mu:g}, L={L:g}")


Noisy = Callable[[Tensor], Tensor]
"""``theta of shape (runs, dim) -> an unbiased gradient of each run``, from a generator of its own."""

Rate = Callable[[int], float]
"""Step t = 1, 2, ... to its rate alpha_t."""


class Trace(NamedTuple):
    """What was seen of independent runs after given numbers of steps.

    Args:
        last: The iterates theta_t.
        mean: The mean of theta_0 .. theta_{t-1}, each weighed by its rate.
        late: The mean of the later half, theta_{t/2} .. theta_{t-1}, all alike.
        value: The mean of h(theta_0) .. h(theta_{t-1}), weighed by the rates; NaN where h was not given.
    """

    last: Float[Tensor, "times runs dim"]
    mean: Float[Tensor, "times runs dim"]
    late: Float[Tensor, "times runs dim"]
    value: Float[Tensor, "times runs"]


def stochastic_descent(
    gradient: Noisy,
    start: Float[Tensor, "runs dim"],
    rate: Rate,
    at: Sequence[int],
    *,
    value: Callable[[Tensor], Tensor] | None = None,
) -> Trace:
    """Runs of stochastic gradient descent side by side.

    Args:
        gradient: An unbiased gradient at each run's weights.
        start: theta_0 of each run.
        rate: alpha_t.
        at: Numbers of steps after which the runs are looked at, increasing, the first at least 1.
        value: h of each run's weights.

    Raises:
        ValueError: ``at`` does not increase from 1 on.
    """
    if not at or at[0] < 1 or any(b <= a for a, b in pairwise(at)):
        raise ValueError(f"at must increase from 1 or more: got {list(at)}")
    theta, weight = start.clone(), 0.0
    mean, total = torch.zeros_like(start), torch.zeros(len(start), dtype=start.dtype)
    sums, halves = torch.zeros_like(start), {t // 2: start.new_zeros(start.shape) for t in at}
    seen: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for t in range(1, at[-1] + 1):
        if t - 1 in halves:
            halves[t - 1] = sums.clone()
        alpha = rate(t)
        mean += alpha * theta
        total += alpha * value(theta) if value is not None else math.nan
        sums += theta
        weight += alpha
        theta = theta - alpha * gradient(theta)
        if t == at[len(seen)]:
            late = (sums - halves[t // 2]) / (t - t // 2)
            seen.append((theta, mean / weight, late, total / weight))
    last, means, lates, values = (torch.stack(column) for column in zip(*seen, strict=True))
    return Trace(last, means, lates, values)


def lipschitz_bound(distance: float, G: float, rates: Sequence[float]) -> float:
    r"""The bound on E h - h* at the mean of the iterates, weighed by the rates, for a convex h.

    .. math:: E\, h(\bar\theta) - h^* \le
        \frac{|\theta_0 - \theta^*|^2 + G^2 \sum_t \alpha_t^2}{2 \sum_t \alpha_t}

    With alpha = c / sqrt t it is of the order of log t / sqrt t, with a constant c / sqrt T of 1 / sqrt T.

    Args:
        distance: \|theta_0 - theta*\|, >= 0.
        G: sqrt(E \|g\|^2), or more.
        rates: alpha_1 .. alpha_T, positive.

    Raises:
        ValueError: A rate is not positive, or there is none.

    Reference: Nemirovski, Juditsky, Lan and Shapiro 2009, Section 2.2 (robust stochastic approximation).
    """
    if not rates or not all(0 < alpha < math.inf for alpha in rates):
        raise ValueError(f"rates must be positive and finite, one at least: got {list(rates)[:5]}")
    return (distance**2 + G**2 * math.fsum(a * a for a in rates)) / (2 * math.fsum(rates))


def noise_floor(eta: float, curvature: float, variance: float) -> float:
    r"""The expected gap at which a constant step stalls on lambda x^2 / 2 with noisy gradients.

    .. math:: \lim_t E\, h(\theta_t) = \frac{\eta \sigma^2}{2 (2 - \eta \lambda)} \approx \eta \sigma^2 / 4

    Args:
        eta: The constant step, in (0, 2 / lambda).
        curvature: lambda > 0.
        variance: sigma^2 of the gradient's noise, >= 0.

    Raises:
        ValueError: An argument is out of range: from eta = 2 / lambda on the iterates diverge.

    Reference: Bottou, Curtis and Nocedal 2018, Theorem 4.6 (of which this is the exact scalar case).
    """
    if not (curvature > 0 and 0 < eta < 2 / curvature and variance >= 0):
        raise ValueError(
            f"eta must lie in (0, 2 / curvature), variance be >= 0: got eta={eta:g}, "
            f"curvature={curvature:g}, variance={variance:g}"
        )
    return eta * variance / (2 * (2 - eta * curvature))


class Moments(NamedTuple):
    """Mean and variance of an iterate: E x^2 is mean^2 + variance."""

    mean: float
    variance: float


def moments(
    rate: Rate, steps: int, *, start: float, curvature: float = 1.0, variance: float = 1.0
) -> Moments:
    r"""The exact mean and variance of x_T on lambda x^2 / 2, each gradient with noise of variance sigma^2.

    .. math:: m_{t+1} = (1 - \alpha_t \lambda) m_t, \qquad
        v_{t+1} = (1 - \alpha_t \lambda)^2 v_t + \alpha_t^2 \sigma^2

    Both go to 0 under the conditions of Robbins and Monro. Where sum alpha converges the mean stops short,
    where sum alpha^2 does not the variance may stay.

    Args:
        rate: alpha_t for t = 1, 2, ...
        steps: T >= 0.
        start: x_0.
        curvature: lambda.
        variance: sigma^2.

    Reference: Robbins and Monro 1951, Theorem 1.
    """
    mean, spread = start, 0.0
    for t in range(1, steps + 1):
        alpha = rate(t)
        mean, spread = (
            (1 - alpha * curvature) * mean,
            (1 - alpha * curvature) ** 2 * spread + alpha**2 * variance,
        )
    return Moments(mean, spread)


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
