"""The best denoiser where the data's law is a mixture of Gaussians: exact, so that samplers can be judged.

Noisy data are a mixture too, whose score is known (Tweedie's formula gives the mean of the data from it).
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor, nn

from margin.generative.diffusion.schedules import Schedule

Rows = Float[Tensor, "batch dim"]


class Mixture(nn.Module):
    r"""The law :math:`\sum_k \pi_k N(\mu_k, \Sigma_k)` and, at each level, the law of its noisy points.

    .. math:: q_t = \sum_k \pi_k N(\sqrt{\bar\alpha_t} \mu_k, \bar\alpha_t \Sigma_k + (1 - \bar\alpha_t) I)

    Every level is a function of alpha_bar; at 1 it is the law itself.

    Args:
        means: A row for each component.
        covariances: Symmetric, positive semidefinite, one of each component.
        weights: Of each component, positive; they are normalized. None: even.

    Raises:
        ValueError: Shapes do not fit, a weight is not positive, or a covariance is indefinite.

    Reference: Efron 2011, Section 1 (Tweedie); Vincent 2011, Section 4.2 (the score of noisy data).
    """

    means: Tensor
    axes: Tensor
    spectra: Tensor
    logits: Tensor

    def __init__(
        self,
        means: Float[Tensor, "components dim"],
        covariances: Float[Tensor, "matrices dim dim"],
        weights: Float[Tensor, " shares"] | None = None,
    ) -> None:
        super().__init__()
        weights = torch.ones(len(means), dtype=torch.float64) if weights is None else weights
        if len(covariances) != len(means) or len(weights) != len(means) or not bool((weights > 0).all()):
            raise ValueError(
                "a mixture needs a covariance and a positive weight of each component: got "
                f"{len(means)} means, {len(covariances)} covariances, weights {weights.tolist()}"
            )
        spectra, axes = torch.linalg.eigh(covariances.double())
        if float(spectra.min()) < -1e-12 * float(spectra.max().clamp_min(1)):
            raise ValueError(f"a covariance has no negative eigenvalue: got {float(spectra.min()):.3g}")
        self.register_buffer("means", means.double())
        self.register_buffer("axes", axes)
        self.register_buffer("spectra", spectra.clamp_min(0))
        self.register_buffer("logits", (weights.double() / weights.double().sum()).log())

    def log_components(self, x: Rows, alpha_bar: float | Tensor) -> Float[Tensor, "batch components"]:
        """The log of pi_k N(x; ...) of each component, in nats, in float64.

        Args:
            x: Noisy rows.
            alpha_bar: In [0, 1]; of each row, or one of all.
        """
        z, spread = self._whitened(x, alpha_bar)
        logs = z.square().sum(-1) + spread.log().sum(-1) + x.shape[1] * math.log(2 * math.pi)
        return self.logits - 0.5 * logs

    def log_prob(self, x: Rows, alpha_bar: float | Tensor = 1.0) -> Float[Tensor, " batch"]:
        """The log-density log q_t(x), in nats, in float64."""
        return self.log_components(x, alpha_bar).logsumexp(1)

    def score(self, x: Rows, alpha_bar: float | Tensor) -> Rows:
        r"""The gradient of :meth:`log_prob` by x, :math:`\sum_k P(k | x) S_k^{-1} (m_k - x)`."""
        share = self.log_components(x, alpha_bar).softmax(1)
        z, spread = self._whitened(x, alpha_bar)
        pull = -torch.einsum("kde,nke->nkd", self.axes, z / spread.sqrt())
        return (share[..., None] * pull).sum(1)

    def eps(self, x: Rows, alpha_bar: float | Tensor) -> Rows:
        r"""The best prediction: :math:`E[\epsilon | x_t] = -\sqrt{1 - \bar\alpha_t} \nabla \log q_t(x_t)`."""
        return -(1 - self._level(x, alpha_bar)).sqrt() * self.score(x, alpha_bar)

    def denoised(self, x: Rows, alpha_bar: float | Tensor) -> Rows:
        r"""Means :math:`E[x_0 | x_t] = (x_t + (1 - \bar\alpha_t) s) / \sqrt{\bar\alpha_t}`, s the score."""
        level = self._level(x, alpha_bar)
        return (x.double() + (1 - level) * self.score(x, alpha_bar)) / level.sqrt()

    def sample(self, count: int, generator: Generator) -> Rows:
        """Rows of the law, in float64."""
        share = self.logits.exp().cpu()
        which = torch.multinomial(share, count, replacement=True, generator=generator).to(self.means.device)
        z = torch.randn(count, self.means.shape[1], generator=generator, dtype=torch.float64).to(self.means)
        return self.means[which] + torch.einsum(
            "nde,ne->nd", self.axes[which], self.spectra[which].sqrt() * z
        )

    def _level(self, x: Rows, alpha_bar: float | Tensor) -> Tensor:
        return torch.as_tensor(alpha_bar, dtype=torch.float64, device=x.device).expand(len(x))[:, None]

    def _whitened(self, x: Rows, alpha_bar: float | Tensor) -> tuple[Tensor, Tensor]:
        """From each component's mean in units of its deviations, (batch, components, dim); its variances."""
        level = self._level(x, alpha_bar)[..., None]
        spread = level * self.spectra + 1 - level
        centered = x.double()[:, None] - level.sqrt() * self.means
        return torch.einsum("kde,nkd->nke", self.axes, centered) / spread.sqrt(), spread


def gaussian_eps(
    x: Float[Tensor, " *shape"], alpha_bar: float, mean: float, variance: float
) -> Float[Tensor, " *shape"]:
    r"""The best prediction for data N(mean, variance), number by number.

    .. math:: \epsilon^*(x, t) = \frac{\sqrt{1 - \bar\alpha_t}\, (x - \sqrt{\bar\alpha_t}\, \mu)}
        {\bar\alpha_t s^2 + 1 - \bar\alpha_t}

    Args:
        x: Noisy numbers.
        alpha_bar: In [0, 1].
        mean: mu.
        variance: s^2, at least 0.

    Reference: Efron 2011, Section 1, of a Gaussian law.
    """
    return (
        math.sqrt(1 - alpha_bar) * (x - math.sqrt(alpha_bar) * mean) / (alpha_bar * variance + 1 - alpha_bar)
    )


class ExactDenoiser(nn.Module):
    """The best prediction of the noise for a mixture, as a network: of x, t and a label.

    A label k is the class of component k alone; the label of none, and no label, are the whole mixture.

    Args:
        law: The data's law.
        schedule: Of T steps.
    """

    def __init__(self, law: Mixture, schedule: Schedule) -> None:
        super().__init__()
        self.law, self.schedule = law, schedule
        self.parts = [
            Mixture(law.means[k : k + 1], covariance_of(law, k)[None]) for k in range(len(law.means))
        ]

    def forward(
        self,
        x: Rows,
        t: Float[Tensor, " batch"],
        label: Int64[Tensor, " batch"] | None = None,
    ) -> Rows:
        """E[eps | x_t], and of its class, in the type of x."""
        level = self.schedule.alpha_bar.to(x.device)[t.long()]
        out = self.law.eps(x, level)
        if label is not None:
            for k, part in enumerate(self.parts):
                own = label == k
                out[own] = part.eps(x[own], level[own])
        return out.to(x)


def covariance_of(law: Mixture, component: int) -> Float[Tensor, "dim dim"]:
    """The covariance of one component."""
    axes = law.axes[component]
    return (axes * law.spectra[component]) @ axes.T
