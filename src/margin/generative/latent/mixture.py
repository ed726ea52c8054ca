"""Mixtures of Gaussians (Dempster, Laird and Rubin 1977): a density by parts, and whose part a row is."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

Rows = Float[Tensor, "batch dim"]
PerRow = Float[Tensor, " batch"]
Means = Float[Tensor, "components dim"]
Factors = Float[Tensor, "components dim ..."]
LogWeights = Float[Tensor, " components"]
Covariance = Literal["full", "diagonal", "spherical"]


def log_components(
    x: Rows, log_weights: LogWeights, means: Means, factors: Factors
) -> Float[Tensor, "batch components"]:
    r"""The log of :math:`\pi_k N(x; \mu_k, L_k L_k^\top)` of each row and component, in nats.

    Args:
        x: Rows.
        log_weights: log pi_k.
        means: mu_k.
        factors: L_k, lower triangular, with no 0 on the diagonal; or its diagonal alone, (components, dim).

    Reference: Bishop 2006, Equation 9.7.
    """
    logs = []
    for mean, L in zip(means, factors, strict=True):
        apart = (x - mean).T
        diagonal = L.diagonal() if L.ndim == 2 else L
        z = torch.linalg.solve_triangular(L, apart, upper=False) if L.ndim == 2 else apart / L[:, None]
        logs.append(-0.5 * z.square().sum(0) - diagonal.abs().log().sum())
    return log_weights + torch.stack(logs, 1) - 0.5 * x.shape[1] * math.log(2 * math.pi)


class GaussianMixture(nn.Module):
    r"""The density :math:`p(x) = \sum_k \pi_k N(x; \mu_k, \Sigma_k)`.

    Without a floor the likelihood has no bound: a component on one row alone is as likely as one wishes.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        components: Number of Gaussians K, at least 1.
        covariance: Any (full), of features that are independent within a component (diagonal), or those of
            one variance too (spherical).
        floor: Least variance of a component in any direction, in the model's units; 0 is none.

    Raises:
        ValueError: There is no component, or the floor is negative or not finite.

    Reference:
        Bishop 2006, Section 9.2; Hathaway 1985, Section 1 (why variances are bounded).
    """

    fitted: Tensor

    def __init__(
        self,
        in_features: int,
        *,
        components: int = 8,
        covariance: Covariance = "full",
        floor: float = 1e-6,
    ) -> None:
        super().__init__()
        if components < 1:
            raise ValueError(f"components must be at least 1: got {components}")
        if not 0 <= floor < math.inf:
            raise ValueError(f"floor must be at least 0 and finite: got {floor}")
        self.covariance: Covariance = covariance
        self.floor = floor
        ones = torch.ones(components, in_features)
        self.log_weights = nn.Parameter(torch.full((components,), -math.log(components)))
        self.means = nn.Parameter(torch.randn(components, in_features))
        self.factors = nn.Parameter(ones.diag_embed() if covariance == "full" else ones)
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    def log_components(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, "batch components"]:
        """The log of each component's part of the density, in nats."""
        # rounded weights need not sum to 1
        return log_components(x.flatten(1), self.log_weights.log_softmax(0), self.means, self.factors)

    def log_prob(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats, in the model's own units."""
        return self.log_components(x).logsumexp(1)

    def responsibilities(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, "batch components"]:
        """The probability of each component given the row."""
        return self.log_components(x).softmax(1)

    @torch.no_grad()
    def sample(self, count: int, *, generator: Generator) -> Rows:
        """Rows drawn from the mixture."""
        share = self.log_weights.softmax(0).cpu()
        which = torch.multinomial(share, count, replacement=True, generator=generator).to(self.means.device)
        z = torch.randn(count, self.means.shape[1], generator=generator).to(self.means)
        noise = torch.empty_like(z)
        for k, L in enumerate(self.factors):  # one factor of each row at once would take count d^2 numbers
            own = which == k
            noise[own] = z[own] @ L.T if L.ndim == 2 else z[own] * L
        return self.means[which] + noise

    def forward(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row."""
        return self.log_prob(x)
