r"""What happens where parameters meet examples: the risk of least squares at, below and beyond p = n.

With features of covariance I, signal of length r and noise of deviation s, p / n -> gamma, the excess risk of
ridge regression has a limit, and that of least squares of smallest norm a peak without bound at gamma = 1
(Hastie, Montanari, Rosset and Tibshirani 2022). Random features show the same on a fixed input (Belkin, Hsu,
Ma and Mandal 2019). Dobriban and Wager (2018) for ridge.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject

Curve = Float[Tensor, "*#points"]

SEED = 2019


class Risk(NamedTuple):
    """An excess risk in its two parts.

    Args:
        bias: The square of the bias.
        variance: The variance over draws of the data.
    """

    bias: Tensor
    variance: Tensor

    @property
    def total(self) -> Tensor:
        """The excess risk: what the noise of a new target does not explain."""
        return self.bias + self.variance


def ridgeless_risk(gamma: Curve | float, *, signal: float = 1.0, noise: float = 1.0) -> Risk:
    r"""The limit for least squares of smallest norm.

    .. math:: \gamma < 1:\ 0 + \frac{\sigma^2 \gamma}{1 - \gamma}, \qquad
        \gamma > 1:\ r^2 \Big(1 - \frac1\gamma\Big) + \frac{\sigma^2}{\gamma - 1}

    Args:
        gamma: p / n, above 0; at 1 the variance is infinite.
        signal: r, the length of the coefficients.
        noise: sigma, the standard deviation of a target about its mean.

    Raises:
        ValueError: A number is out of range.

    Reference: Hastie, Montanari, Rosset and Tibshirani 2022, Theorem 1.
    """
    gamma = _checked(gamma, signal, noise)
    beyond = gamma > 1
    bias = torch.where(beyond, signal**2 * (1 - 1 / gamma), 0.0)
    variance = noise**2 * torch.where(beyond, 1 / (gamma - 1), gamma / (1 - gamma))
    return Risk(bias, torch.where(gamma == 1, math.inf if noise else 0.0, variance))


def ridge_risk(gamma: Curve | float, penalty: float, *, signal: float = 1.0, noise: float = 1.0) -> Risk:
    r"""The limit for ridge regression, which minimizes \|y - X b\|^2 / n + penalty \|b\|^2.

    .. math:: r^2 \lambda^2 m'(-\lambda) + \sigma^2 \gamma\, (m(-\lambda) - \lambda m'(-\lambda))

    with m the Stieltjes transform of the law of Marchenko and Pastur of ratio gamma,

    .. math:: m(-\lambda) = \frac{-(1 - \gamma + \lambda) + \sqrt{(1-\gamma+\lambda)^2 + 4\gamma\lambda}}
        {2 \gamma \lambda}

    Args:
        gamma: p / n, above 0.
        penalty: lambda, above 0; sigma^2 gamma / r^2 is the best.
        signal: r, the length of the coefficients.
        noise: sigma, the standard deviation of a target about its mean.

    Raises:
        ValueError: A number is out of range.

    Reference: Hastie, Montanari, Rosset and Tibshirani 2022, Theorem 5; Dobriban and Wager 2018, Theorem 2.1.
    """
    if not penalty > 0:
        raise ValueError(f"penalty must be above 0: got {penalty}; without one see ridgeless_risk")
    gamma = _checked(gamma, signal, noise)
    b = 1 - gamma + penalty
    root = (b.square() + 4 * gamma * penalty).sqrt()
    m = torch.where(b > 0, 2 / (b + root), (root - b) / (2 * gamma * penalty))  # nothing cancels
    slope = m * (1 + m * gamma) / root  # -dm / d(penalty)
    return Risk(signal**2 * penalty**2 * slope, noise**2 * gamma * (m - penalty * slope))


def _checked(gamma: Curve | float, signal: float, noise: float) -> Tensor:
    gamma = torch.as_tensor(gamma, dtype=torch.float64)
    if not (bool((gamma > 0).all()) and signal >= 0 and noise >= 0):
        raise ValueError(
            "gamma must be above 0, signal and noise at least 0: "
            f"got gamma {float(gamma.min()):g}, signal {signal}, noise {noise}"
        )
    return gamma


def decomposed(
    predictions: Float[Tensor, "draws points"], mean: Float[Tensor, " points"], noise: float = 0.0
) -> Risk:
    r"""Bias and variance of a learner, from what it predicts after each of several draws of its data.

    .. math:: E_{D,\epsilon}(f_D(x) - y)^2 = (E_D f_D(x) - \mu(x))^2 + \mathrm{Var}_D f_D(x) + \sigma^2

    Both parts are without bias over the draws: the square of the mean has the variance of the mean taken off,
    so that it may be below 0.

    Args:
        predictions: f_D(x), a draw of the data a row.
        mean: mu(x), the mean of a target.
        noise: sigma, its standard deviation; the total excludes it.

    Raises:
        ValueError: There are fewer than two draws.

    Reference: Geman, Bienenstock and Doursat 1992, Equation 2.6.
    """
    if len(predictions) < 2:
        raise ValueError(f"a variance takes two draws of the data: got {len(predictions)}")
    variance = predictions.var(0)
    off = predictions.mean(0) - mean
    return Risk((off.square() - variance / len(predictions)).mean(), variance.mean())


# Six parameters: those of the problem.
def random_features_risk(
    x: Float[Tensor, "seeds n dim"],
    y: Float[Tensor, "seeds n"],
    new: Float[Tensor, "points dim"],
    mean: Float[Tensor, " points"],
    width: int,
    penalty: float,
    generator: Generator,
) -> Float[Tensor, " seeds"]:
    """The excess risk of regression on random ReLU features, of smallest norm or with a penalty.

    All seeds are solved at once.

    Args:
        x: Inputs of each data set.
        y: Targets of each.
        new: New inputs.
        mean: The mean target of each new input.
        width: Number of features.
        penalty: Of the squared coefficients, in units of the features' mean square times n; 0: smallest norm.
        generator: Draws the features, one set a seed.

    Reference: Belkin, Hsu, Ma and Mandal 2019, Section "Random Fourier features" (ReLU in their supplement).
    """
    seeds, n, dim = x.shape
    W = torch.randn(seeds, dim, width, generator=generator, dtype=x.dtype) / math.sqrt(dim)
    features, others = (x @ W).relu(), (new @ W).relu()
    if penalty:
        scale = penalty * n * features.square().mean((1, 2), keepdim=True)
        weights = _ridge(features, y, scale)[:, :, None]
    else:
        weights = torch.linalg.lstsq(features, y[:, :, None], driver="gelsd").solution
    return ((others @ weights)[:, :, 0] - mean).square().mean(1)


def double_descent(
    subject: Subject, *, n: int = 40, seeds: int = 20, widths: Sequence[int] = (4, 12, 36, 40, 44, 120, 400)
) -> Finding:
    """The risk over the number of random features beside n: its peak at n, its second descent, and a ridge's.

    Args:
        subject: Not read: the data are drawn, a linear teacher and noise of deviation 1/2.
        n: Examples.
        seeds: Data sets and sets of features.
        widths: Numbers of features; among them n and 10 n.

    Reference: Belkin, Hsu, Ma and Mandal 2019, Figure 2.
    """
    generator = Generator().manual_seed(SEED)
    dim = 10
    teacher = torch.randn(dim, generator=generator, dtype=torch.float64) / math.sqrt(dim)
    x = torch.randn(seeds, n, dim, generator=generator, dtype=torch.float64)
    y = x @ teacher + 0.5 * torch.randn(seeds, n, generator=generator, dtype=torch.float64)
    new = torch.randn(500, dim, generator=generator, dtype=torch.float64)
    plain, ridge = (
        torch.stack(
            [random_features_risk(x, y, new, new @ teacher, p, penalty, generator).median() for p in widths]
        )
        for penalty in (0.0, 0.01)
    )
    peak = float(plain.max())
    at = widths[int(plain.argmax())] / n
    value = torch.tensor([at, float(plain[-1]) / peak, float(ridge.max()) / peak], dtype=torch.float64)
    return Finding(
        statement=f"Random ReLU features, {n} examples, median of {seeds} draws: the number of features over "
        "that of examples at the peak of the risk; the risk at ten times n, and the largest with a ridge, "
        "in parts of the peak.",
        value=value,
        range=(0.0, math.inf),
        low=torch.tensor([0.9, 0.0, 0.0], dtype=torch.float64),
        high=torch.tensor([1.1, 0.2, 0.2], dtype=torch.float64),
        scope="limit",
        labels=("peak at p / n", "p = 10 n", "with a ridge"),
        curves={
            "p / n": torch.tensor(widths, dtype=torch.float64) / n,
            "smallest norm": plain,
            "ridge": ridge,
        },
    )


def exact_risk(subject: Subject, *, n: int = 120, draws: int = 60) -> Finding:
    """Bias and variance of least squares and ridge on isotropic features beside their limits.

    Args:
        subject: Not read: the data are drawn.
        n: Examples.
        draws: Draws of the data.
    """
    generator = Generator().manual_seed(SEED)
    values, errors, promised, labels = [], [], [], []
    for gamma, penalty in ((0.5, 0.0), (2.0, 0.0), (0.5, 0.5), (2.0, 0.5)):
        p = round(gamma * n)
        beta = torch.randn(p, generator=generator, dtype=torch.float64)
        beta = beta / beta.norm()
        X = torch.randn(draws, n, p, generator=generator, dtype=torch.float64)
        y = X @ beta + 0.5 * torch.randn(draws, n, generator=generator, dtype=torch.float64)
        found = _ridge(X, y, n * penalty)
        each = (found - beta).square().sum(1)  # isotropic: the excess risk is the distance
        limit = ridge_risk if penalty else ridgeless_risk
        given = (gamma, penalty) if penalty else (gamma,)
        values.append(each.mean())
        errors.append(each.std() / math.sqrt(draws))
        promised.append(limit(*given, noise=0.5).total)
        labels.append(f"p / n = {gamma:g}, {f'penalty {penalty:g}' if penalty else 'smallest norm'}")
    return Finding(
        statement=f"The mean excess risk of least squares of smallest norm and of ridge regression, n = {n}, "
        f"signal 1, noise 1/2, {draws} draws, beside the limit for n to infinity.",
        value=torch.stack(values),
        range=(0.0, math.inf),
        kind="estimate",
        stderr=torch.stack(errors),
        low=torch.stack(promised),
        high=torch.stack(promised),
        tolerance=0.05,
        scope="limit",
        labels=tuple(labels),
    )


def _ridge(X: Tensor, y: Tensor, penalty: Tensor | float) -> Tensor:
    """Ridge regression of many data sets at once, by the smaller of two systems; 0: of smallest norm."""
    n, p = X.shape[1:]
    if p <= n:
        return torch.linalg.solve(
            X.mT @ X + penalty * torch.eye(p, dtype=X.dtype), (X.mT @ y[:, :, None])[..., 0]
        )
    dual = torch.linalg.solve(X @ X.mT + penalty * torch.eye(n, dtype=X.dtype), y)
    return (X.mT @ dual[:, :, None])[..., 0]


def bias_variance(subject: Subject, *, n: int = 30, draws: int = 4000) -> Finding:
    """Ridge regression over draws of the noise: bias and variance by draws, less those in closed form.

    Args:
        subject: Not read: one design is drawn.
        n: Examples.
        draws: Draws of the targets.

    Reference: Geman, Bienenstock and Doursat 1992, Equation 2.6; Hastie, Tibshirani and Friedman 2009,
        Equation 7.12.
    """
    generator = Generator().manual_seed(SEED)
    X = torch.randn(n, 8, generator=generator, dtype=torch.float64)
    beta = torch.randn(8, generator=generator, dtype=torch.float64)
    y = X @ beta + torch.randn(draws, n, generator=generator, dtype=torch.float64)
    values, errors, labels = [], [], []
    for penalty in (0.1, 10.0):
        H = X @ torch.linalg.solve(X.mT @ X + penalty * torch.eye(8, dtype=X.dtype), X.mT)
        predicted = y @ H.mT
        found = decomposed(predicted, X @ beta, 1.0)
        exact_bias, exact_variance = ((H - torch.eye(n)) @ X @ beta).square().mean(), H.square().sum() / n
        off = predicted - (H @ X @ beta)
        spread = off.square().mean(1).std() / math.sqrt(draws)
        lean = 2 * (off @ ((H - torch.eye(n)) @ X @ beta) / n).std() / math.sqrt(draws)
        values += [found.bias - exact_bias, found.variance - exact_variance]
        errors += [lean.hypot(spread / math.sqrt(draws)), spread]
        labels += [f"bias, penalty {penalty:g}", f"variance, penalty {penalty:g}"]
    return Finding(
        statement=f"Squared bias and variance of ridge regression from {draws:,} draws of the targets, less "
        "|(H - I) X beta|^2 / n and tr(H H^T) / n.",
        value=torch.stack(values),
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=torch.stack(errors),
        equals=0.0,
        tolerance=0.1,
        labels=tuple(labels),
    )
