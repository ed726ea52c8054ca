r"""What a penalty on squared length does to a quadratic loss: shrinkage, effective parameters, a radius.

The loss is :math:`\frac12 (\theta - \theta^*)^\top H (\theta - \theta^*)`, a least-squares problem with
H = X^T X in particular; the penalty :math:`\frac\mu2 \|\theta\|^2` (Hoerl and Kennard 1970).

Asked of a model's last affine map: the features that enter it are the model's own; the least-squares problem
on them is solved anew.

Early stopping amounts to such a penalty: from 0, gradient flow for a time t on a quadratic loss keeps of each
direction of the minimizer the factor :math:`1 - e^{-\lambda t}`, a penalty mu the factor :math:`\lambda /
(\lambda + \mu)`. At mu = 1/t the first exceeds the second by at most 29.85 % (Ali, Kolter and Tibshirani
2019).
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.signal.chain import Design, in_row_space, last_design

STEPS = 100
"""Newton steps after which a radius is given up; a few are usual."""


class Constrained(NamedTuple):
    """The minimizer in a ball, and the multiplier of its constraint."""

    theta: Float[Tensor, " n"]
    multiplier: float


def shrinkage(eigenvalues: Float[Tensor, " n"], mu: float) -> Float[Tensor, " n"]:
    r"""The factor :math:`\lambda / (\lambda + \mu)` by which each direction of the minimizer shrinks.

    Args:
        eigenvalues: Of H, not negative.
        mu: The penalty, positive.

    Raises:
        ValueError: The penalty is not positive and finite, or an eigenvalue is negative.

    Reference: Goodfellow, Bengio and Courville 2016, Section 7.1.1; Hoerl and Kennard 1970, Section 2.
    """
    _check_penalty(mu)
    if bool((eigenvalues < 0).any()):
        raise ValueError(f"eigenvalues must not be negative: got {float(eigenvalues.min()):g}")
    return eigenvalues / (eigenvalues + mu)


def effective_parameters(eigenvalues: Float[Tensor, " n"], mu: float) -> Float[Tensor, ""]:
    r"""The effective degrees of freedom :math:`\sum_i \lambda_i / (\lambda_i + \mu)`: the smoother's trace.

    Args:
        eigenvalues: Of H, not negative.
        mu: The penalty, positive.

    Reference: Hastie, Tibshirani and Friedman 2009, Equation 3.50.
    """
    return shrinkage(eigenvalues, mu).sum()


def penalized_minimizer(
    H: Float[Tensor, "n n"], theta: Float[Tensor, " n"], mu: float
) -> Float[Tensor, " n"]:
    r"""The minimizer :math:`(H + \mu I)^{-1} H \theta^*` of the penalized quadratic loss.

    Args:
        H: Symmetric, positive semidefinite.
        theta: theta*, a minimizer of the loss alone.
        mu: The penalty, positive.

    Raises:
        ValueError: The penalty is not positive and finite.

    Reference: Goodfellow, Bengio and Courville 2016, Section 7.1.1.
    """
    _check_penalty(mu)
    solved: Tensor = torch.linalg.solve(H + mu * torch.eye(len(H), dtype=H.dtype, device=H.device), H @ theta)
    return solved


def _check_penalty(mu: float) -> None:
    if not 0 < mu < math.inf:
        raise ValueError(f"the penalty must be positive and finite: got {mu}")


def constrained_minimizer(H: Float[Tensor, "n n"], theta: Float[Tensor, " n"], radius: float) -> Constrained:
    r"""The minimizer of the quadratic loss in the ball :math:`\|\theta\| \le r`, with its multiplier.

    .. math:: H (\theta - \theta^*) + \mu \theta = 0, \quad \mu \ge 0, \quad \mu (\|\theta\| - r) = 0

    Outside of the ball mu solves the secular equation 1 / |theta(mu)| = 1 / r, whose left side is concave and
    increases: Newton's method from 0 comes nearer from one side.

    Args:
        H: Symmetric, positive semidefinite.
        theta: theta*, the minimizer of the loss alone; of several, the shortest.
        radius: r > 0.

    Returns:
        The minimizer and mu in float64; mu is 0 where theta* lies in the ball.

    Raises:
        ValueError: The radius is not positive and finite, or Newton's method did not converge.

    Reference:
        Boyd and Vandenberghe 2004, Section 5.5.3 (KKT conditions); Moré and Sorensen 1983, Section 3 (the
        secular equation).
    """
    if not 0 < radius < math.inf:
        raise ValueError(f"the radius must be positive and finite: got {radius}")
    eigenvalues, basis = torch.linalg.eigh(H.double())
    eigenvalues = eigenvalues.clamp(min=0)
    b = eigenvalues * (basis.T @ theta.double())  # H theta* in the eigenbasis
    null = eigenvalues <= len(H) * torch.finfo(torch.float64).eps * eigenvalues.max()
    b = torch.where(null, 0, b)
    free = torch.where(null, 0, b / eigenvalues.where(~null, 1))
    if float(free.norm()) <= radius:
        return Constrained(basis @ free, 0.0)
    mu = 0.0
    for _ in range(STEPS):
        shifted = (eigenvalues + mu).where(~null, 1)
        point = b / shifted
        length = float(point.norm())
        slope = float((point.square() / shifted).sum()) / length**3  # of 1 / |theta(mu)|
        step = (1 / radius - 1 / length) / slope
        mu += step
        if step <= 1e-14 * mu:
            return Constrained(basis @ (b / (eigenvalues + mu).where(~null, 1)), mu)
    raise ValueError(f"the secular equation did not converge in {STEPS} steps for radius {radius:g}")


def optimal_decay(noise_variance: float, prior_variance: float) -> float:
    r"""The penalty :math:`\mu = s^2 / u^2` of least expected squared error, and of the Gaussian MAP.

    Of a least-squares problem with summed loss :math:`\frac12 \|y - X \theta\|^2`, noise of variance s^2 and
    coefficients of variance u^2 and mean 0. In every eigendirection of X^T X it minimizes
    :func:`shrinkage_risk`; where noise and coefficients are Gaussian it makes the penalized minimizer the
    mean, and the mode, of the posterior.

    Args:
        noise_variance: s^2 > 0.
        prior_variance: u^2 > 0.

    Raises:
        ValueError: A variance is not positive and finite.

    Reference: Hoerl and Kennard 1970, Section 5; Bishop 2006, Equations 3.52 to 3.55.
    """
    for name, variance in (("noise_variance", noise_variance), ("prior_variance", prior_variance)):
        if not 0 < variance < math.inf:
            raise ValueError(f"{name} must be positive and finite: got {variance}")
    return noise_variance / prior_variance


def shrinkage_risk(
    eigenvalues: Float[Tensor, " n"], mu: float, noise_variance: float, prior_variance: float
) -> Float[Tensor, " n"]:
    r"""The expected squared error of each coefficient of the penalized least-squares estimate.

    .. math:: \frac{\lambda s^2 + \mu^2 u^2}{(\lambda + \mu)^2}

    the variance of the estimate and the square of its bias, in the eigenbasis of X^T X.

    Args:
        eigenvalues: Of X^T X, positive.
        mu: The penalty, not negative.
        noise_variance: s^2, of a target.
        prior_variance: u^2, the mean square of a coefficient.

    Reference: Hoerl and Kennard 1970, Section 4.
    """
    return (eigenvalues * noise_variance + mu**2 * prior_variance) / (eigenvalues + mu).square()


SHARES = (1.0, 1e-1, 1e-2, 1e-3)
"""The penalties that are looked at, as shares of the largest eigenvalue."""

ROUNDING = 1e-8

SQUARED = Premise("the loss is quadratic", "proved", "the squared error of an affine map of fixed features")


def parameters(subject: Subject) -> Finding:
    """How many effective parameters a penalty leaves of the last map's: the trace of its smoother.

    Measured by a solve, it lies between half the number of eigenvalues that are at least the penalty, and
    that number plus the sum of the others over the penalty.

    Args:
        subject: A model with a last affine map and its training examples.
    """
    whole = last_design(subject)
    design = in_row_space(whole)
    value, low, high = torch.full((3, len(SHARES)), math.nan, dtype=torch.float64)
    failure, shown, curves = _reasons(design), "", {}
    if not failure:
        X = design.X
        eigenvalues = torch.linalg.svdvals(X).square()
        largest = eigenvalues.max()
        for i, share in enumerate(SHARES):
            mu = float(share * largest)
            value[i] = _smoother_trace(X, mu)
            above = eigenvalues >= mu * (1 - ROUNDING)
            low[i] = above.sum() / 2
            high[i] = above.sum() + eigenvalues[~above].sum() / mu
        shown = f" of {whole.X.shape[1]:,} features ({len(X):,} examples)"
        grid = torch.logspace(-6, 1, 50, dtype=torch.float64)
        counts = [effective_parameters(eigenvalues, float(g * largest)) for g in grid]
        curves = {
            "log10 of penalty / largest eigenvalue": grid.log10(),
            "effective parameters": torch.stack(counts),
        }
    return Finding(
        statement=f"The effective parameters that a penalty mu leaves the last map{shown}: lambda / (lambda "
        "+ mu), summed over the eigenvalues of the features' Gram matrix.",
        value=value,
        unit="parameters",
        range=(0.0, math.inf),
        low=low,
        high=high,
        tolerance=ROUNDING * design.X.shape[1],
        labels=tuple(f"mu = {share:g} of the largest eigenvalue" for share in SHARES),
        failure=failure,
        premises=(SQUARED,),
        curves=curves,
    )


def _smoother_trace(X: Tensor, mu: float) -> Tensor:
    """The trace of X (X^T X + mu I)^-1 X^T, by a solve on the smaller side."""
    gram = X.T @ X if X.shape[1] <= len(X) else X @ X.T
    shifted = gram + mu * torch.eye(len(gram), dtype=X.dtype)
    return torch.cholesky_solve(gram, torch.linalg.cholesky(shifted)).trace()


def multiplier(subject: Subject) -> Finding:
    """Whether the ball that a penalized solution lies on gives back its penalty as the multiplier.

    For each penalty the ridge solution's length is the radius; the problem under that constraint is solved on
    its own, and the multiplier stands relative to the penalty.

    Args:
        subject: A model with a last affine map and its training examples.
    """
    design = in_row_space(last_design(subject))
    value = torch.full((len(SHARES),), math.nan, dtype=torch.float64)
    failure, radii = _reasons(design), value.clone()
    if not failure:
        X, y = design.X, _leading(design)
        H = X.T @ X
        largest = float(torch.linalg.eigvalsh(H).max())
        free: Tensor = torch.linalg.lstsq(X, y[:, None], driver="gelsd").solution[:, 0]
        for i, share in enumerate(SHARES):
            mu = share * largest
            factor = torch.linalg.cholesky(H + mu * torch.eye(len(H), dtype=H.dtype))
            ridge = torch.cholesky_solve((X.T @ y)[:, None], factor)[:, 0]
            radii[i] = ridge.norm()
            value[i] = constrained_minimizer(H, free, float(radii[i])).multiplier / mu
    lengths = " < ".join(f"{float(r):.3g}" for r in radii)
    return Finding(
        statement="The multiplier of the constraint |w| <= r over the penalty whose solution has the length "
        f"r: the radii r, from the largest penalty to the least, are {lengths}.",
        value=value,
        range=(0.0, math.inf),
        equals=torch.ones_like(value),
        tolerance=1e-6,
        labels=tuple(f"mu = {share:g} of the largest eigenvalue" for share in SHARES),
        failure=failure
        or ("" if bool((radii.diff() > 0).all()) else "the radius does not grow as the penalty falls"),
        premises=(SQUARED,),
    )


def _leading(design: Design) -> Tensor:
    """The column of the targets that the features explain most."""
    return design.Y[:, int((design.X.T @ design.Y).norm(dim=0).argmax())]


def _reasons(design: Design) -> str:
    if not len(design.X):
        return "no training example has a weight above 0"
    if not bool(design.X.isfinite().all() and design.Y.isfinite().all()):
        return "the features or the targets are not finite"
    if not bool((design.X.T @ design.Y).abs().max() > 0):
        return "the features do not vary with the targets"
    return ""


def demo() -> Subject:
    """An affine map of six features of different size, and noisy values of another."""
    g = Generator().manual_seed(0)
    x = torch.randn(60, 6, generator=g, dtype=torch.float64) * torch.logspace(0, -2, 6, dtype=torch.float64)
    y = x.sum(1) + 0.1 * torch.randn(60, generator=g, dtype=torch.float64)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)).double()
    batches = [Batch((x,), y)]
    return Subject(model=model, test=batches, train=batches, task=VALUES, objective=risk(VALUES))


MOST_STEPS = (1, 10, 100)
"""Steps of gradient descent after which the claim stops."""

LEAST = 1e-6
"""Directions whose coefficient is a smaller share of the largest one drown in rounding and are left out."""

TOLERANCE = 1e-6


def flow_factor(eigenvalues: Float[Tensor, " n"], time: float) -> Float[Tensor, " n"]:
    r"""The factor :math:`1 - e^{-\lambda t}` of each direction after gradient flow from 0.

    Args:
        eigenvalues: Of H, not negative.
        time: t >= 0.
    """
    return -torch.expm1(-eigenvalues * time)


def descent_factor(eigenvalues: Float[Tensor, " n"], lr: float, steps: int) -> Float[Tensor, " n"]:
    r"""The factor :math:`1 - (1 - \eta \lambda)^T` of each direction after gradient descent from 0.

    Args:
        eigenvalues: Of H, not negative.
        lr: eta > 0.
        steps: T >= 0.

    Reference: Goodfellow, Bengio and Courville 2016, Equation 7.40.
    """
    return 1 - (1 - lr * eigenvalues) ** steps


def ridge_ratio(x: Float[Tensor, " n"], steps: float = math.inf) -> Float[Tensor, " n"]:
    r"""The factor that early stopping keeps over the one that the penalty mu = 1/(T eta) keeps.

    .. math:: \frac{(1 - e^{-x})(1 + x)}x, \quad
        \text{after T steps} \quad \frac{(1 - (1 - x/T)^T)(1 + x)}x, \quad x = \lambda / \mu

    Args:
        x: Eigenvalue over penalty, positive; at most T for T steps of a rate eta <= 1 / lambda.
        steps: T >= 1; infinity is gradient flow.
    """
    kept = -torch.expm1(-x) if math.isinf(steps) else 1 - (1 - x / steps) ** steps
    return kept * (1 + x) / x


def ridge_ratio_bound(steps: float = math.inf) -> float:
    """The largest ratio over all x, for gradient flow 1.2985 at x = 1.793; for T steps over x <= T.

    The least is 1, approached as x goes to 0. After one step the ratio is 1 + x, at most 2.

    Args:
        steps: T >= 1; infinity is gradient flow.

    Raises:
        ValueError: T is less than 1.

    Reference: Ali, Kolter and Tibshirani 2019, Theorem 1 (whose 1.6862 is the square of 1.2985).
    """
    if not steps >= 1:
        raise ValueError(f"steps must be at least 1: got {steps}")

    def negative(x: float) -> float:
        return -float(ridge_ratio(torch.tensor([x], dtype=torch.float64), steps)[0])

    end = min(steps, 4.0)
    found: Any = minimize_scalar(negative, bounds=(1e-3, end), method="bounded", options={"xatol": 1e-10})
    return max(-float(found.fun), -negative(end))


def descend(design: Design, lr: float, steps: int) -> Float[Tensor, "features targets"]:
    """The weights after gradient descent from 0 on half the squared error, step by step.

    Args:
        design: Features and targets.
        lr: The rate.
        steps: Their number.
    """
    H, b = design.X.T @ design.X, design.X.T @ design.Y
    W = torch.zeros_like(b)
    for _ in range(steps):
        W = W - lr * (H @ W - b)
    return W


def against_ridge(subject: Subject) -> Finding:
    """Whether the last map, trained by gradient descent and stopped early, is within the bound of ridge.

    Descent runs from 0 on the squared error of the model's last features, at the rate of one over the largest
    eigenvalue; ridge has the penalty 1 / (rate x steps). Both are compared in every eigendirection.

    Args:
        subject: A model with a last affine map and its training examples.
    """
    design = in_row_space(last_design(subject))
    reasons = _stopping_reasons(design)
    high = torch.tensor([ridge_ratio_bound(T) for T in MOST_STEPS for _ in range(2)], dtype=torch.float64)
    nothing: tuple[Tensor, str, dict[str, Tensor]] = (torch.full_like(high, math.nan), "", {})
    value, words, curves = nothing if reasons else _measured(design)
    return Finding(
        statement="Gradient descent on the squared error of the last map, stopped after T steps, over ridge "
        f"with the penalty 1 / (rate T): least and largest ratio over eigendirections.{words}",
        value=value,
        range=(0.0, math.inf),
        low=torch.ones_like(value),
        high=high,
        tolerance=TOLERANCE,
        labels=tuple(f"T = {T:,}: {end}" for T in MOST_STEPS for end in ("least", "largest")),
        failure=reasons,
        premises=(
            Premise(
                "the loss is quadratic", "proved", "the squared error of an affine map of fixed features"
            ),
            Premise(
                "the rate is at most one over the largest eigenvalue", "proved", "it is set to exactly that"
            ),
        ),
        curves=curves,
    )


def _measured(design: Design) -> tuple[Tensor, str, dict[str, Tensor]]:
    """Both ends of the ratio after each number of steps, how many parameters are left, the last ratios."""
    singular, basis = torch.linalg.svd(design.X, full_matrices=False)[1:]
    lr, steps = float(1 / singular[0] ** 2), MOST_STEPS[-1]
    ratios = [_compared(design, basis, lr, T) for T in MOST_STEPS]
    value = torch.stack([end for _, ratio in ratios for end in (ratio.min(), ratio.max())])
    eigenvalues = singular.square()
    kept = float(descent_factor(eigenvalues, lr, steps).sum())
    ridge = float(effective_parameters(eigenvalues, 1 / (lr * steps)))
    words = f" After {steps:,} steps descent has {kept:.1f} effective parameters, ridge {ridge:.1f}."
    x, ratio = ratios[-1]
    order = x.argsort()
    curves = {
        "log10 of eigenvalue / penalty": x[order].log10(),
        "descent over ridge": ratio[order],
        "gradient flow over ridge": ridge_ratio(x[order]),
    }
    return value, words, curves


def _stopping_reasons(design: Design) -> str:
    if not len(design.X):
        return "no training example has a weight above 0"
    if not bool(design.X.isfinite().all() and design.Y.isfinite().all()):
        return "the features or the targets are not finite"
    moved = design.X.T @ design.Y
    if len(design.X) < 2 or not bool(moved.abs().max() > 0):
        return "the features do not vary with the targets: descent stays at 0"
    return ""


def _compared(
    design: Design, basis: Float[Tensor, "directions features"], lr: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Eigenvalue over penalty, and the ratio of both solutions, in the directions that are not rounding."""
    mu = 1 / (lr * steps)
    X, Y = design
    stopped = basis @ descend(design, lr, steps)
    matrix = X.T @ X + mu * torch.eye(X.shape[1], dtype=X.dtype)
    ridge = basis @ torch.cholesky_solve(X.T @ Y, torch.linalg.cholesky(matrix))
    # Of several targets the one that the direction serves most tells best.
    column = ridge.abs().argmax(1, keepdim=True)
    ours, theirs = (w.gather(1, column)[:, 0] for w in (stopped, ridge))
    kept = theirs.abs() >= LEAST * theirs.abs().max()
    eigenvalues = (X @ basis.T).square().sum(0)
    return eigenvalues[kept] / mu, (ours / theirs)[kept]
