"""Probabilistic PCA (Tipping and Bishop 1999): Gaussian rows, a few directions, even noise in all others."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.classic.factors.factor_analysis import (
    check_components,
    draw,
    log_density,
    posterior_mean,
    precision,
)

Loadings = Float[Tensor, "features components"]
Covariance = Float[Tensor, "features features"]


class PPCA(nn.Module):
    r"""The Gaussian x = W z + mean + noise, z ~ N(0, I), noise ~ N(0, s^2 I): x ~ N(mean, W W^T + s^2 I).

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        components: Number of latent dimensions m, from 1 to d - 1.

    Raises:
        ValueError: The number of components is out of range.

    Reference:
        Tipping and Bishop 1999, Section 3.1.
    """

    def __init__(self, in_features: int, *, components: int = 2) -> None:
        super().__init__()
        check_components(components, in_features)
        self.mean = nn.Parameter(torch.zeros(in_features))
        self.loadings = nn.Parameter(torch.randn(in_features, components))
        self.noise_variance = nn.Parameter(torch.ones(()))

    def posterior(
        self, x: Float[Tensor, " batch *features"]
    ) -> tuple[Float[Tensor, "batch components"], Float[Tensor, "components components"]]:
        r"""Means and covariance of z given each row: N(M^-1 W^T (x - mean), s^2 M^-1), M = W^T W + s^2 I."""
        psi = self.noise_variance.expand(len(self.mean))
        mean = posterior_mean(x.flatten(1) - self.mean, self.loadings, psi)
        return mean, torch.linalg.inv(precision(self.loadings, psi))

    def encode(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch components"]:
        """The posterior mean of z for each row."""
        return self.posterior(x)[0]

    def decode(self, codes: Float[Tensor, "batch components"]) -> Float[Tensor, "batch dim"]:
        """The mean of x for given z."""
        return codes @ self.loadings.T + self.mean

    def log_prob(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The log-density of each row, in nats, in the model's own units."""
        psi = self.noise_variance.expand(len(self.mean))
        return log_density(x.flatten(1) - self.mean, self.loadings, psi)

    def sample(self, count: int, generator: Generator) -> Float[Tensor, "batch dim"]:
        """Rows drawn from the model."""
        psi = self.noise_variance.expand(len(self.mean))
        return draw(count, self.mean, self.loadings, psi, generator)

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch components"]:
        """The code of each row: the posterior mean of z."""
        return self.encode(x)


def closed_form(
    axes: Float[Tensor, "components features"], spectrum: Float[Tensor, " features"]
) -> tuple[Loadings, Float[Tensor, ""]]:
    r"""The loadings and the noise variance of largest likelihood.

    .. math:: s^2 = \frac1{d - m} \sum_{i > m} \lambda_i, \quad W = U_m (\Lambda_m - s^2 I)^{1/2}

    W is determined up to a rotation of z.

    Args:
        axes: The top m eigenvectors of the covariance, one a row.
        spectrum: All d eigenvalues, falling.

    Raises:
        ValueError: The variance outside of the axes is 0: the likelihood then has no bound.

    Reference: Tipping and Bishop 1999, Equations 7 and 8.
    """
    m, d = axes.shape
    noise = spectrum[m:].sum() / (d - m)
    if not bool(noise > 8 * torch.finfo(spectrum.dtype).eps * spectrum[0]):
        raise ValueError(
            "probabilistic PCA needs variance outside of its components, else its likelihood has no bound: "
            f"got none beyond {m}; take fewer"
        )
    return axes.T * (spectrum[:m] - noise).clamp(min=0).sqrt(), noise


def most_likely(spectrum: Float[Tensor, " features"], components: int) -> Float[Tensor, ""]:
    r"""The mean log-likelihood of the closed form, in nats an example.

    .. math:: -\tfrac12 \Big(d \log 2\pi + \sum_{i \le m} \log \lambda_i + (d - m) \log s^2 + d\Big)

    Args:
        spectrum: All d eigenvalues of the covariance, falling.
        components: m.

    Reference: Tipping and Bishop 1999, Appendix A.
    """
    d = len(spectrum)
    noise = spectrum[components:].sum() / (d - components)
    logs = spectrum[:components].log().sum() + (d - components) * noise.log()
    return -0.5 * (d * math.log(2 * math.pi) + logs + d)


def em_iteration(S: Covariance, W: Loadings, noise: Float[Tensor, ""]) -> tuple[Loadings, Float[Tensor, ""]]:
    r"""One iteration of EM on the covariance S: the likelihood never falls.

    .. math:: W' = S W (s^2 I + M^{-1} W^\top S W)^{-1}, \quad
        s'^2 = \tfrac1d \mathrm{tr}(S - S W M^{-1} W'^\top), \quad M = W^\top W + s^2 I

    Args:
        S: The covariance of the rows.
        W: Loadings.
        noise: s^2 > 0.

    Reference: Tipping and Bishop 1999, Equations 29 and 30.
    """
    eye = torch.eye(W.shape[1], dtype=W.dtype, device=W.device)
    inverse = torch.linalg.inv(W.T @ W + noise * eye)
    SW = S @ W
    new = torch.linalg.solve((noise * eye + inverse @ (W.T @ SW)).T, SW.T).T
    return new, (S.trace() - ((SW @ inverse) * new).sum()) / len(S)


def mean_log_likelihood(S: Covariance, W: Loadings, noise: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The mean log-density, in nats, of centered rows with covariance S."""
    psi = noise.expand(len(S))
    inner = precision(W, psi)
    log_det = psi.log().sum() + torch.linalg.slogdet(inner).logabsdet
    explained = torch.linalg.solve(inner, W.T @ S @ W / noise).trace()
    return -0.5 * (len(S) * math.log(2 * math.pi) + log_det + (S.trace() - explained) / noise)
