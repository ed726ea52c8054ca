r"""Exact diffusion of Gaussian laws: the best denoiser in closed form, and the law of each sampler's samples.

Noisy data of a mixture of Gaussians are a mixture too, whose score is known; Tweedie's formula gives the mean
of the data from it (Efron 2011).

For data N(mu, s^2), axis by axis, the best prediction of the data is affine in x_t,

.. math:: E[x_0 | x_t] = \mu + \frac{\sqrt{\bar\alpha_t}\, s^2}{p_t} (x_t - \sqrt{\bar\alpha_t}\, \mu), \qquad
    p_t = \bar\alpha_t s^2 + 1 - \bar\alpha_t,

so each step of a sampler is affine, and :math:`x_k = A_k x_T + B_k + N(0, V_k)`. The steps are derived here
from the conditional means, the score and the noise of Gaussian laws, not from the samplers' formulas. A
covariance is met axis by axis: the samplers treat all directions alike.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Generator, Tensor, nn

from margin.generative.diffusion.process import Schedule, Variance

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


Axes = Float64[Tensor, " dim"]
Method = Literal["ddpm", "ddim", "euler", "heun", "dpm++", "sde"]


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A random affine map of numbers, x -> slope x + shift + N(0, noise), one of each axis.

    Args:
        slope: A.
        shift: B.
        noise: Variance V of what is added.
    """

    slope: Axes
    shift: Axes
    noise: Axes

    def then(self, other: "Affine") -> "Affine":
        """The map that is followed by another, whose noise is independent."""
        return Affine(
            other.slope * self.slope,
            other.slope * self.shift + other.shift,
            other.slope.square() * self.noise + other.noise,
        )

    def law(self, mean: Axes | float = 0.0, variance: Axes | float = 1.0) -> tuple[Axes, Axes]:
        """Mean and variance of the map of N(mean, variance)."""
        return self.slope * mean + self.shift, self.slope.square() * variance + self.noise


@dataclass(frozen=True, slots=True, eq=False)
class GaussianData:
    """Data N(mean, variance), axis by axis, and what is known of them at a level of noise.

    Args:
        mean: mu.
        variance: s^2, at least 0.
    """

    mean: Axes
    variance: Axes

    def marginal(self, level: Tensor) -> tuple[Axes, Axes]:
        """Mean and variance of noisy data at alpha_bar = level."""
        return level.sqrt() * self.mean, level * self.variance + 1 - level

    def denoised(self, level: Tensor) -> Affine:
        """E[x_0 | x_t] as a map of x_t."""
        m, p = self.marginal(level)
        gain = level.sqrt() * self.variance / p
        return Affine(gain, self.mean - gain * m, torch.zeros_like(p))

    def score(self, level: Tensor) -> Affine:
        """The gradient of log q_t as a map of x_t."""
        m, p = self.marginal(level)
        return Affine(-1 / p, m / p, torch.zeros_like(p))


def law_of(
    method: Method,
    schedule: Schedule,
    stops: Sequence[int],
    data: GaussianData,
    *,
    eta: float = 0.0,
    variance: Variance = "large",
) -> Affine:
    """What a sampler makes of x at the first stop, with the exact denoiser: the map to the last.

    Args:
        method: The sampler.
        schedule: Of T steps.
        stops: Times, falling; the last may be 0, whose law is the samples'.
        data: Their law.
        eta: Of DDIM.
        variance: Of DDPM's steps.

    Reference:
        Ho, Jain and Abbeel 2020, Equation 7; Song, Meng and Ermon 2021, Equation 7; Karras, Aittala, Aila and
        Laine 2022, Equation 4; the recursion itself is elementary.
    """
    if method == "dpm++":
        return _two_steps(schedule, stops, data)
    steps: dict[str, Callable[[int, int], Affine]] = {
        "ddpm": lambda t, s: _posterior(schedule, t, s, data, variance),
        "ddim": lambda t, s: _implicit(schedule, t, s, data, eta),
        "euler": lambda t, s: _drift(schedule, t, s, data, 0.5),
        "sde": lambda t, s: _drift(schedule, t, s, data, 1.0),
        "heun": lambda t, s: _trapezoid(schedule, t, s, data),
    }
    one, zero = torch.ones_like(data.mean), torch.zeros_like(data.mean)
    whole = Affine(one, zero, zero)
    for t, s in pairwise(stops):
        whole = whole.then(steps[method](t, s))
    return whole


def _posterior(schedule: Schedule, t: int, s: int, data: GaussianData, kind: Variance) -> Affine:
    """x_s as the law of a Gaussian between x_t and E[x_0 | x_t], by the precisions of the two."""
    a_t, a_s = schedule.alpha_bar[t], schedule.alpha_bar[s]
    x0 = data.denoised(a_t)
    zero = torch.zeros_like(x0.slope)
    if s == 0:
        return x0
    alpha = a_t / a_s
    prior, evidence = 1 / (1 - a_s), alpha / (1 - alpha)
    small = 1 / (prior + evidence)
    of_x0, of_x_t = small * prior * a_s.sqrt(), small * evidence / alpha.sqrt()
    noise = small if kind == "small" else 1 - alpha
    return Affine(of_x0 * x0.slope + of_x_t, of_x0 * x0.shift, zero + noise)


def _implicit(schedule: Schedule, t: int, s: int, data: GaussianData, eta: float) -> Affine:
    """x_s of the mean that q(x_s | x_t, x_0) has in DDIM's process, x_0 as predicted.

    Its part along x_t - sqrt(alpha_bar_t) x_0 is such that, given x_0, x_s has the variance 1 - alpha_bar_s.
    """
    a_t, a_s = schedule.alpha_bar[t], schedule.alpha_bar[s]
    x0 = data.denoised(a_t)
    noise = torch.zeros_like(x0.slope)
    if s > 0:
        noise = noise + eta**2 / (1 / (1 - a_s) + a_t / (a_s - a_t))
    along = ((1 - a_s - noise).clamp_min(0) / (1 - a_t)).sqrt()
    of_x0 = a_s.sqrt() - along * a_t.sqrt()
    return Affine(of_x0 * x0.slope + along, of_x0 * x0.shift, noise)


def _drift(schedule: Schedule, t: int, s: int, data: GaussianData, weight: float) -> Affine:
    """The step x + B (x / 2 + weight * score); but for the last, with noise of variance (2 weight - 1) B."""
    B = schedule.alpha_bar[s].log() - schedule.alpha_bar[t].log()
    score = data.score(schedule.alpha_bar[t])
    noise = torch.zeros_like(score.slope)
    if s > 0:
        noise = noise + (2 * weight - 1) * B
    return Affine(1 + B * (0.5 + weight * score.slope), B * weight * score.shift, noise)


def _trapezoid(schedule: Schedule, t: int, s: int, data: GaussianData) -> Affine:
    """Heun's step for y = x / sqrt(alpha_bar), whose law at the ratio r is N(mu, s^2 + r^2).

    There dy/dr = r (y - mu) / (s^2 + r^2): with e = y - mu, a step multiplies e.
    """
    (a_t, a_s), v = (schedule.alpha_bar[t], schedule.alpha_bar[s]), data.variance
    r_t, r_s = (1 / a_t - 1).sqrt(), (1 / a_s - 1).sqrt()
    h = r_s - r_t
    first = r_t / (v + r_t**2)
    factor = 1 + h * first
    if s > 0:
        factor = 1 + h / 2 * (first + r_s / (v + r_s**2) * factor)
    slope = a_s.sqrt() / a_t.sqrt() * factor
    return Affine(slope, a_s.sqrt() * data.mean * (1 - factor), torch.zeros_like(slope))


def _two_steps(schedule: Schedule, stops: Sequence[int], data: GaussianData) -> Affine:
    """DPM-Solver++ (2M): the rule of Adams and Bashforth for the data that are predicted.

    With y = x / noise and l = log(signal / noise), dy = exp(l) x_0 dl. Over a step x_0 is taken constant, at
    what the line through its last two values has in the middle of the step.
    """
    one, zero = torch.ones_like(data.mean), torch.zeros_like(data.mean)
    A, B = one, zero
    last: tuple[Tensor, Tensor, Tensor] | None = None
    for t, s in pairwise(stops):
        a_t, a_s = schedule.alpha_bar[t], schedule.alpha_bar[s]
        x0 = data.denoised(a_t)
        C, D = x0.slope * A, x0.slope * B + x0.shift
        if s == 0:
            return Affine(C, D, zero)
        place, place_s = (0.5 * (a / (1 - a)).log() for a in (a_t, a_s))
        middle_C, middle_D = C, D
        if last is not None:
            share = (place_s - place) / 2 / (place - last[2])
            middle_C, middle_D = C + share * (C - last[0]), D + share * (D - last[1])
        n_t, n_s = (1 - a_t).sqrt(), (1 - a_s).sqrt()
        grown = place_s.exp() - place.exp()
        A, B = n_s * (A / n_t + grown * middle_C), n_s * (B / n_t + grown * middle_D)
        last = (C, D, place)
    return Affine(A, B, zero)
