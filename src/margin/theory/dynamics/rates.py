r"""How fast first-order methods must converge: the bounds for smooth, convex and strongly convex functions.

h is L-smooth; the gap is h(theta_0) - h*, the distance \|theta_0 - theta*\|; k = L / mu. A bound is what
theory promises at step t; none of them is computed from the run that it judges. (Nesterov 1983, 2018; Polyak
1963, 1964.)
"""

import math
from typing import NamedTuple


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
