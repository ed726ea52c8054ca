"""Factor analysis (Spearman 1904; Lawley 1940): Gaussian rows, their covariance low-rank plus diagonal."""

import math
import warnings
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.classic.linear.rows import Matrix, even, rows_of
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step

Loadings = Float[Tensor, "dim components"]
Features = Float[Tensor, " dim"]

MOST_ITERATIONS = 10_000
"""Iterations of EM that the solver is given."""

FLOOR = 1e-12
"""The noise variance below which the solver goes for no feature, of variance 1 or less."""


class FactorAnalysis(nn.Module):
    r"""The Gaussian x = W z + mean + noise with z ~ N(0, I) and noise ~ N(0, diag(psi)).

    So x ~ N(mean, W W^T + diag(psi)).

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        components: Number of factors m, from 1 to d - 1.

    Raises:
        ValueError: The number of factors is out of range.

    Reference:
        Lawley 1940, Equation 1; Bishop 2006, Equations 12.64 and 12.65.
    """

    def __init__(self, in_features: int, *, components: int = 2) -> None:
        super().__init__()
        check_components(components, in_features)
        self.mean = nn.Parameter(torch.zeros(in_features))
        self.loadings = nn.Parameter(torch.zeros(in_features, components))
        self.noise_variance = nn.Parameter(torch.ones(in_features))

    def encode(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch components"]:
        """The posterior mean of z for each row."""
        return posterior_mean(x.flatten(1) - self.mean, self.loadings, self.noise_variance)

    def decode(self, codes: Float[Tensor, "batch components"]) -> Float[Tensor, "batch dim"]:
        """The mean of x for given z."""
        return codes @ self.loadings.T + self.mean

    def log_prob(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The log-density of each row, in nats, in the model's own units."""
        return log_density(x.flatten(1) - self.mean, self.loadings, self.noise_variance)

    def sample(self, count: int, generator: Generator) -> Float[Tensor, "batch dim"]:
        """Rows drawn from the model."""
        return draw(count, self.mean, self.loadings, self.noise_variance, generator)

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch components"]:
        """The code of each row: the posterior mean of its factors."""
        return self.encode(x)


def check_components(components: int, in_features: int) -> None:
    """Refuse a number of factors that leaves no direction to the noise alone.

    Raises:
        ValueError: It is not from 1 to one less than the number of features.
    """
    if not 1 <= components < in_features:
        raise ValueError(
            f"components must be from 1 to one less than the {in_features} features: got {components}"
        )


def precision(W: Loadings, psi: Features) -> Float[Tensor, "components components"]:
    """I + W^T Psi^-1 W, the inverse of the posterior covariance of z."""
    return torch.eye(W.shape[1], dtype=W.dtype, device=W.device) + (W / psi[:, None]).T @ W


def posterior_mean(
    x: Float[Tensor, "batch dim"], W: Loadings, psi: Features
) -> Float[Tensor, "batch components"]:
    r"""The mean (I + W^T Psi^-1 W)^-1 W^T Psi^-1 x of z given a centered x.

    Args:
        x: Rows less the mean.
        W: Loadings.
        psi: Variance of the noise of each feature, positive.

    Reference: Bishop 2006, Equation 12.66.
    """
    return torch.linalg.solve(precision(W, psi), (W / psi[:, None]).T @ x.T).T


def log_density(x: Float[Tensor, "batch dim"], W: Loadings, psi: Features) -> Float[Tensor, " batch"]:
    r"""The log-density of N(0, W W^T + Psi) at centered rows, at the cost of a solve of the rank's size.

    .. math:: x^\top C^{-1} x = \min_z \|\Psi^{-1/2}(x - W z)\|^2 + \|z\|^2, \quad
        \log\det C = \log\det\Psi + \log\det(I + W^\top \Psi^{-1} W)

    As a sum of squares it does not cancel; the usual Woodbury difference does where the noise is small.

    Args:
        x: Rows less the mean.
        W: Loadings.
        psi: Variance of the noise of each feature, positive.

    Reference: Bishop 2006, Equation 12.44 with C of Equation 12.65.
    """
    z = posterior_mean(x, W, psi)
    squares = ((x - z @ W.T).square() / psi).sum(1) + z.square().sum(1)
    log_det = psi.log().sum() + torch.linalg.slogdet(precision(W, psi)).logabsdet
    return -0.5 * (squares + log_det + x.shape[1] * math.log(2 * math.pi))


def draw(
    count: int, mean: Features, W: Loadings, psi: Features, generator: Generator
) -> Float[Tensor, "batch dim"]:
    """Rows W z + mean + noise, drawn on the CPU's generator.

    Raises:
        ValueError: The number of rows is below 1.
    """
    if count < 1:
        raise ValueError(f"a sample needs a row: got count={count}")
    z = torch.randn(count, W.shape[1], generator=generator, dtype=W.dtype).to(W.device)
    noise = torch.randn(count, len(mean), generator=generator, dtype=W.dtype).to(W.device)
    return z @ W.T + mean + noise * psi.sqrt()


def fit_factors(X: Matrix, components: int) -> tuple[Features, Loadings, Features]:
    """Mean, loadings and noise variances of largest likelihood, by scikit-learn's EM; in float64.

    The likelihood has no bound where a feature is constant or factors give more features exactly than there
    are factors, as two equal ones; nor has it, in general, a single maximum.

    Args:
        X: Features, one example a row.
        components: Number of factors.

    Raises:
        ValueError: The likelihood has no bound, or EM did not converge.

    Reference: Barber 2012, Section 21.2.2 (the algorithm that scikit-learn runs).
    """
    from sklearn.decomposition import FactorAnalysis as Wrapped
    from sklearn.exceptions import ConvergenceWarning

    constant = X.amax(0) == X.amin(0)
    if bool(constant.any()):
        raise ValueError(
            "factor analysis needs features that vary, else its likelihood has no bound: "
            f"feature {int(constant.nonzero()[0])} is constant, leave it out"
        )
    solver = Wrapped(components, tol=1e-8 * len(X), max_iter=MOST_ITERATIONS, svd_method="lapack")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            found = solver.fit(X.double().cpu().numpy())
        except ConvergenceWarning:
            raise ValueError(
                f"factor analysis must converge in {MOST_ITERATIONS} iterations: it did not with "
                f"components={components}; take fewer"
            ) from None
    arrays = (found.mean_, found.components_.T.copy(), found.noise_variance_)
    mean, W, psi = (torch.from_numpy(array).to(X.device) for array in arrays)
    exact = psi <= FLOOR * X.double().var(0, correction=0).clamp(min=1)
    directions = torch.nn.functional.normalize(W[exact])
    if int(torch.linalg.matrix_rank(directions, rtol=1e-6)) < int(exact.sum()):  # W W^T + Psi is singular
        raise ValueError(
            "factor analysis needs features that do not determine each other, else its likelihood has no "
            f"bound: got no noise in features {exact.nonzero()[:, 0].tolist()}; leave some out or take fewer"
            " components"
        )
    return mean, W, psi


def factors() -> Step:
    """One fit on the batch: the Gaussian of largest likelihood. Examples have equal weights, or 0."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, _, weight = rows_of(state, batch, learner="factor analysis", targets=False)
        if even(weight) is not None:
            ends = f"from {float(weight.min()):g} to {float(weight.max()):g}"
            raise ValueError(f"factor analysis knows no weights of examples but equal ones: got {ends}")
        model: Any = state.core
        mean, W, psi = fit_factors(x, model.loadings.shape[1])
        for place, value in ((model.mean, mean), (model.loadings, W), (model.noise_variance, psi)):
            place.copy_(value)
        return {"loss": -log_density(x - mean, W, psi).mean()}

    return step
