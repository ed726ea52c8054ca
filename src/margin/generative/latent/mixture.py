"""Mixtures of Gaussians (Dempster, Laird and Rubin 1977): a density by parts, learned by EM.

EM begins from spread or random rows and takes all of them at once; an example of weight 2 counts as two, and
one of weight 0 as none, as in Seber and Lee (2003), Section 3.10.
"""

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step
from margin.engine.weighted_rows import batch_rows

Rows = Float[Tensor, "rows dim"]
PerRow = Float[Tensor, " rows"]
Means = Float[Tensor, "components dim"]
Factors = Float[Tensor, "components dim ..."]
LogWeights = Float[Tensor, " components"]
Covariance = Literal["full", "diagonal", "spherical"]


def log_components(
    x: Rows, log_weights: LogWeights, means: Means, factors: Factors
) -> Float[Tensor, "rows components"]:
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

    def log_components(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, "rows components"]:
        """The log of each component's part of the density, in nats."""
        # rounded weights need not sum to 1
        return log_components(x.flatten(1), self.log_weights.log_softmax(0), self.means, self.factors)

    def log_prob(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats, in the model's own units."""
        return self.log_components(x).logsumexp(1)

    def responsibilities(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, "rows components"]:
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


Weights = Float[Tensor, " rows"]
Start = Literal["k-means++", "rows"]


class Parts(NamedTuple):
    """A mixture: log weights, means, and factors of the covariances or deviations, in float64."""

    log_weights: LogWeights
    means: Means
    factors: Factors


def maximization(
    x: Rows,
    weight: Weights,
    log_shares: Float[Tensor, "rows components"],
    *,
    covariance: Covariance,
    floor: float,
) -> Parts:
    r"""The likeliest mixture where rows are shared out between components.

    .. math:: N_k = \sum_n a_n r_{nk}, \quad \mu_k = \frac1{N_k} \sum_n a_n r_{nk} x_n, \quad
        S_k = \frac1{N_k} \sum_n a_n r_{nk} (x_n - \mu_k)(x_n - \mu_k)^\top

    and eigenvalues of S_k below the floor are raised to it, which is the maximum among covariances that are
    nowhere below it: so the likelihood never falls, as it may where a floor is added. Shares are logs, so a
    component that no row is near to keeps the nearest.

    Args:
        x: Rows.
        weight: a_n, positive.
        log_shares: log r_nk; -inf is none.
        covariance: Its kind; independent features have the diagonal of S_k, or its mean.
        floor: Least variance in any direction.

    Raises:
        ValueError: A component has no variance in some direction, and there is no floor.

    Reference: Bishop 2006, Equations 9.24 to 9.27.
    """
    logs = log_shares + weight.log()[:, None]
    means, factors = [], []
    for share in logs.softmax(0).unbind(1):
        means.append(share @ x)
        # a mean is known up to rounding, and so is the variance of rows that are all one
        known = (16 * torch.finfo(x.dtype).eps * means[-1].abs().max()).square()
        apart = (x - means[-1]) * share.sqrt()[:, None]
        factors.append(_factor(apart, covariance, floor, float(known)))
    return Parts(logs.logsumexp(0) - weight.sum().log(), torch.stack(means), torch.stack(factors))


def _factor(apart: Tensor, covariance: Covariance, floor: float, known: float) -> Tensor:
    """The factor, or the deviations, of the sum of squares of rows, where no variance is below the floor."""
    if covariance == "full":
        spectrum, axes = torch.linalg.eigh(apart.T @ apart)
    else:
        spectrum = apart.square().sum(0)
        if covariance == "spherical":
            spectrum = spectrum.mean().expand_as(spectrum)
    raised = spectrum.clamp_min(floor)
    if covariance == "full":  # eigenvalues are known relative to the largest
        known = max(known, 8 * torch.finfo(apart.dtype).eps * float(raised.max()))
    if not float(raised.min()) > known:
        raise ValueError(
            "a mixture needs variance in every direction of each component, else its likelihood has no "
            f"bound: got from {float(spectrum.min()):.3g} to {float(spectrum.max()):.3g} in one; raise "
            "--model.floor, or take fewer components"
        )
    if covariance != "full":
        return raised.sqrt()
    return torch.linalg.cholesky((axes * raised) @ axes.T)


def mean_log_likelihood(x: Rows, weight: Weights, parts: Parts) -> Float[Tensor, ""]:
    """The weighted mean log-density of rows, in nats."""
    return weight @ log_components(x, *parts).logsumexp(1) / weight.sum()


def em_iteration(x: Rows, weight: Weights, parts: Parts, *, covariance: Covariance, floor: float) -> Parts:
    """The mixture after one iteration: no less likely, where its variances are at least the floor.

    Args:
        x: Rows.
        weight: Positive.
        parts: The mixture.
        covariance: Its kind.
        floor: Least variance in any direction.

    Raises:
        ValueError: A component has no variance in some direction, and there is no floor.

    Reference: Bishop 2006, Section 9.2.2.
    """
    log_shares = log_components(x, *parts).log_softmax(1)
    return maximization(x, weight, log_shares, covariance=covariance, floor=floor)


def centers(
    x: Rows, weight: Weights, count: int, start: Start, generator: Generator
) -> Float[Tensor, "components dim"]:
    """Rows to begin from: drawn with a chance of their squared distance from those before, or evenly.

    Args:
        x: Rows.
        weight: Positive; a chance grows with it.
        count: How many rows, each another point.
        start: How they are drawn.
        generator: What is drawn from.

    Raises:
        ValueError: There are fewer distinct rows.

    Reference: Arthur and Vassilvitskii 2007, Section 2.2.
    """
    chance, apart = weight.clone(), torch.full_like(weight, torch.inf)
    chosen: list[Tensor] = []
    while len(chosen) < count:
        if not bool((chance > 0).any()):
            raise ValueError(f"components must be at most the distinct rows, {len(chosen)}: got {count}")
        pick = torch.multinomial((chance / chance.max()).cpu(), 1, generator=generator).item()
        chosen.append(x[int(pick)])
        apart = torch.minimum(apart, (x - chosen[-1]).square().sum(1))
        chance = weight * (apart if start == "k-means++" else (apart > 0).to(weight))
    return torch.stack(chosen)


def beginning(
    x: Rows,
    weight: Weights,
    middles: Float[Tensor, "components dim"],
    *,
    covariance: Covariance,
    floor: float,
) -> Parts:
    """The mixture to begin from: means are the given rows, the covariance of each is that of all rows.

    Args:
        x: Rows.
        weight: Positive.
        middles: The means.
        covariance: Its kind.
        floor: Least variance in any direction.

    Raises:
        ValueError: The rows have no variance in some direction, and there is no floor.
    """
    whole = maximization(x, weight, torch.zeros_like(x[:, :1]), covariance=covariance, floor=floor)
    count = len(middles)
    even = torch.full((count,), 1 / count).to(x).log()
    return Parts(even, middles, whole.factors.expand(count, *whole.factors.shape[1:]))


def expectation_maximization(*, start: Start = "k-means++", starts: int = 5, iterations: int = 10) -> Step:
    """Iterations of EM on all rows; the first step begins anew, from the best of several starts.

    Args:
        start: How the first means are drawn: rows far from each other, or any.
        starts: How often the first step begins; it goes on with the likeliest.
        iterations: Iterations a step; ``gain`` is what they add to the mean log-likelihood.

    Raises:
        ValueError: There is no start or no iteration.
    """
    for name, value in (("starts", starts), ("iterations", iterations)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1: got {value}")

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, _, weight, _ = batch_rows(state, batch, learner="a mixture", targets=False).double()
        model: Any = state.core
        now = [Parts(model.log_weights.double(), model.means.double(), model.factors.double())]
        kind: dict[str, Any] = {"covariance": model.covariance, "floor": model.floor}
        if not model.fitted:
            count = len(model.means)
            first = (centers(x, weight, count, start, state.generator) for _ in range(starts))
            now = [beginning(x, weight, middles, **kind) for middles in first]
        tried = [_run(x, weight, parts, iterations, kind) for parts in now]
        best, before, after = max(tried, key=lambda run: float(run[2]))
        for place, value in zip((model.log_weights, model.means, model.factors), best, strict=True):
            place.copy_(value)
        model.fitted.fill_(True)
        return {"loss": -after, "gain": after - before}

    return step


def _run(
    x: Tensor, weight: Tensor, parts: Parts, iterations: int, kind: dict[str, Any]
) -> tuple[Parts, Tensor, Tensor]:
    before = mean_log_likelihood(x, weight, parts)
    for _ in range(iterations):
        parts = em_iteration(x, weight, parts, **kind)
    return parts, before, mean_log_likelihood(x, weight, parts)
