"""Bayesian linear regression: the conjugate posterior of a Gaussian prior, its evidence and their maximum.

Bishop (2006), Sections 3.3 and 3.5; MacKay (1992), the fixed point of both variances. With the
singular values of the centered features a posterior at other variances costs next to nothing.
"""

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step
from margin.engine.weighted_rows import batch_rows
from margin.math.probability.mixtures import Mixture

Vector = Float[Tensor, " rows"]
ROUNDS, PRECISE = 1000, 1e-10
"""Rounds of the fixed point at most, and the relative change at which they end."""

LEAST = 1e-12
"""The least variance, a share of that of the values: of values on a plane, and of features that tell nothing,
the evidence has its maximum at 0."""


class Posterior(NamedTuple):
    """The posterior N(mean, covariance) of the coefficients, and of the value at the center of the features.

    Args:
        mean: Of the coefficients.
        covariance: Of the coefficients.
        center: The weighted mean of the features.
        level: The mean value there, whose variance is noise / total weight, independent of the coefficients.
        evidence: log p(y), in nats, with a flat prior of density 1 on the intercept.
        determined: How many coefficients the values decide, trace of covariance X^T X / noise.
    """

    mean: Float[Tensor, " features"]
    covariance: Float[Tensor, "features features"]
    center: Float[Tensor, " features"]
    level: Float[Tensor, ""]
    evidence: Float[Tensor, ""]
    determined: Float[Tensor, ""]


class Reduced(NamedTuple):
    """The singular value decomposition of centered, weighted rows, and the values in its basis."""

    S: Float[Tensor, " rank"]
    Vh: Float[Tensor, "rank features"]
    z: Float[Tensor, " rank"]
    rest: Float[Tensor, ""]
    weight: Vector
    center: Float[Tensor, " features"]
    level: Float[Tensor, ""]


def reduced(x: Float[Tensor, "rows features"], y: Vector, weight: Vector) -> Reduced:
    """What the posterior at any variances needs of the rows."""
    center, level = weight @ x / weight.sum(), weight @ y / weight.sum()
    root = weight.sqrt()
    U, S, Vh = torch.linalg.svd(root[:, None] * (x - center), full_matrices=False)
    yc = root * (y - level)
    z = U.T @ yc
    return Reduced(S, Vh, z, (yc - U @ z).square().sum(), weight, center, level)


def posterior(rows: Reduced, noise: Tensor, prior: Tensor) -> Posterior:
    r"""The posterior of y = w . x + b + e, w ~ N(0, prior I), e_i ~ N(0, noise / a_i), b flat.

    .. math:: V^{-1} = X_c^\top A X_c / s^2 + I / s_w^2, \quad m = V X_c^\top A y_c / s^2

    Args:
        rows: Of :func:`reduced`.
        noise: s^2 > 0.
        prior: s_w^2 > 0, the variance of a coefficient.

    Raises:
        ValueError: A variance is not positive and finite.

    Reference: Bishop 2006, Equations 3.53, 3.54 and 3.86.
    """
    given = [float(noise.detach()), float(prior.detach())]
    if not all(0 < value < math.inf for value in given):
        raise ValueError("variances must be positive and finite: got noise {:g}, prior {:g}".format(*given))
    n, d = len(rows.weight), rows.Vh.shape[1]
    shrunk = rows.S.square() / noise + 1 / prior
    m = rows.S * rows.z / noise / shrunk
    # along directions that no row has the prior stays
    V = prior * torch.eye(d, dtype=m.dtype) + (rows.Vh.T * (1 / shrunk - prior)) @ rows.Vh
    squares = rows.rest + (rows.z - rows.S * m).square().sum()
    evidence = (
        -(n - 1) / 2 * (2 * math.pi * noise).log()
        - (rows.weight.sum().log() - rows.weight.log().sum()) / 2
        - (shrunk * prior).log().sum() / 2
        - (squares / noise + m.square().sum() / prior) / 2
    )
    determined = (rows.S.square() / noise / shrunk).sum()
    return Posterior(rows.Vh.T @ m, V, rows.center, rows.level, evidence, determined)


def most_evident(rows: Reduced, noise: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    r"""The variances of largest evidence, by the fixed point of its derivatives.

    .. math:: \gamma = \sum_j \frac{\lambda_j}{\lambda_j + 1/s_w^2}, \quad s_w^2 = \|m\|^2 / \gamma, \quad
        s^2 = \frac{\sum_i a_i r_i^2}{n - 1 - \gamma}

    Args:
        rows: Of :func:`reduced`.
        noise: Where it begins.
        prior: Where it begins.

    Reference: MacKay 1992, Equations 4.5 to 4.9; Bishop 2006, Equations 3.91, 3.92 and 3.95.
    """
    total = rows.rest + rows.z.square().sum()
    if not float(total) > 0:
        return LEAST * noise, prior
    floor = LEAST * total / len(rows.weight)
    for _ in range(ROUNDS):
        found = posterior(rows, noise, prior)
        m = rows.Vh @ found.mean
        squares = rows.rest + (rows.z - rows.S * m).square().sum()
        left = (len(rows.weight) - 1 - found.determined).clamp_min(1e-9)
        new = torch.maximum(squares / left, floor)
        spread = torch.maximum(m.square().sum() / found.determined, floor)
        done = (new / noise).log().abs() + (spread / prior).log().abs() < PRECISE
        noise, prior = new, spread
        if bool(done):
            break
    return noise, prior


class BayesianLinearRegression(nn.Module):
    """The posterior mean of an affine map, and the law of a new value by the covariance of its coefficients.

    Coefficients have one Gaussian prior, so features are standardized first unless ``--scale none`` leaves
    them; the intercept has a flat one.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        noise: Variance of the noise to begin with, a share of the variance of the values.
        prior: Variance of a coefficient to begin with, in the same unit.
        learn: Whether both maximize the evidence, or stay as given.

    Raises:
        ValueError: A variance is not positive.

    Reference:
        Bishop 2006, Equations 3.53, 3.54, 3.58 and 3.59.
    """

    covariance: Tensor
    center: Tensor
    noise: Tensor
    prior: Tensor
    count: Tensor

    def __init__(
        self,
        in_features: int,
        *,
        noise: float = 0.5,
        prior: float = 1.0,
        learn: Literal["evidence", "none"] = "evidence",
    ) -> None:
        super().__init__()
        if not (0 < noise < math.inf and 0 < prior < math.inf):
            raise ValueError(f"noise and prior must be positive and finite: got {noise} and {prior}")
        self.learn = learn
        self.weight = nn.Parameter(torch.zeros(in_features))
        self.bias = nn.Parameter(torch.zeros(()))
        for name, value in {
            "covariance": torch.zeros(in_features, in_features),
            "center": torch.zeros(in_features),
            "noise": torch.tensor(noise, dtype=torch.float64),
            "prior": torch.tensor(prior, dtype=torch.float64),
            "count": torch.zeros(()),
        }.items():
            self.register_buffer(name, value)

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The posterior mean of the value of each row."""
        return x.flatten(1) @ self.weight + self.bias

    @torch.no_grad()
    def predictive(self, x: Float[Tensor, " batch *features"]) -> Mixture:
        """The law of a new value at each row, in float64.

        Raises:
            ValueError: The model has not been trained.
        """
        if not float(self.count):
            raise ValueError("a Bayesian regression predicts once it is trained: it has no posterior yet")
        rows = x.flatten(1).double()
        off = rows - self.center.double()
        spread = ((off @ self.covariance.double()) * off).sum(1)
        variance = spread + self.noise.double() * (1 + 1 / self.count.double())
        mean = rows @ self.weight.double() + self.bias.double()
        return Mixture(mean[None], variance[None])


def conjugate() -> Step:
    """The exact posterior given all training examples, at the variances of largest evidence."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, y, weight, _ = batch_rows(state, batch, learner="a Bayesian linear regression").double()
        model: Any = state.core
        rows = reduced(x, y, weight)
        spread = (rows.rest + rows.z.square().sum()) / weight.sum()
        unit = spread if float(spread) > 0 else torch.ones_like(spread)
        noise, prior = unit * model.noise.double(), unit * model.prior.double()
        if model.learn == "evidence":
            noise, prior = most_evident(rows, noise, prior)
        found = posterior(rows, noise, prior)
        model.weight.copy_(found.mean)
        model.bias.copy_(found.level - found.center @ found.mean)
        model.covariance.copy_(found.covariance)
        model.center.copy_(found.center)
        model.noise.copy_(noise)
        model.prior.copy_(prior)
        model.count.copy_(weight.sum())
        residual = x @ found.mean + model.bias.double() - y
        return {
            "loss": (weight * residual.square()).sum() / weight.sum(),
            "evidence": float(found.evidence),
            "noise": float(noise.sqrt()),
            "determined": float(found.determined),
        }

    return step
