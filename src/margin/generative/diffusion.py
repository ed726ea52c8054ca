"""Denoising diffusion (Ho, Jain and Abbeel 2020): a network learns to undo noise step by step."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor, nn

from margin.catalog import chosen, resolve
from margin.generative.diffusion_loss import (
    constant,
    drawn_times,
    importance,
    terminal,
    weights,
)
from margin.generative.forward_process import jump
from margin.generative.guidance import guided_eps
from margin.generative.parametrizations import Parametrization, check_terminal, target, to_eps, to_x0
from margin.generative.schedules import Schedule, Variance, strided
from margin.types import PerExample

Network = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Sampler = Literal["ddpm"]
Weighting = Literal["simple", "bound"]
Labels = Int64[Tensor, " batch"]
Data = Float[Tensor, " batch *shape"]

SAMPLERS: dict[Sampler, str] = {"ddpm": "margin.generative.ddpm:ddpm"}
"""How samples are drawn: ``(eps, schedule, x_T, *, times, generator, ...) -> x_0``, by dotted path."""

PAIRS = 32
"""Times at which the bound of a fixed noise is estimated: twice as many passes of the network."""


class Diffusion(nn.Module):
    r"""The reverse chain :math:`p(x_{t-1} | x_t) = N(\mu(x_t, t), s_t^2 I)`, t = T .. 1, from x_T ~ N(0, I).

    .. math:: \mu(x_t, t) = \frac1{\sqrt{\alpha_t}}
        \left(x_t - \frac{\beta_t}{\sqrt{1 - \bar\alpha_t}}\, \hat\epsilon(x_t, t)\right)

    Args:
        network: ``(x_t, t, label | None) -> prediction`` of the shape of x_t, t in steps, in x_t's type.
        schedule: The chain's variances.
        shape: Of an example.
        num_classes: Classes; the label ``num_classes`` says none. 0: an unconditional model.
        parametrization: What the network predicts: the noise, the data, or v.
        variance: s_t^2: beta_t (large) or the posterior's variance (small).
        weighting: What training minimizes: the prediction's squared error at an even time (simple), or
            the evidence bound.
        drop: Probability with which a label is replaced by none in training, so that guidance is possible.

    Raises:
        ValueError: The noise is to be predicted where the schedule leaves nothing else, or drop is no
            probability.

    Reference: Ho, Jain and Abbeel 2020, Sections 2 and 3; Ho and Salimans 2021, Algorithm 1 (classes).
    """

    place: Tensor

    def __init__(
        self,
        network: nn.Module,
        schedule: Schedule,
        shape: tuple[int, ...],
        *,
        num_classes: int = 0,
        parametrization: Parametrization = "eps",
        variance: Variance = "large",
        weighting: Weighting = "simple",
        drop: float = 0.1,
    ) -> None:
        super().__init__()
        check_terminal(schedule, parametrization)
        if not 0 <= drop <= 1:
            raise ValueError(f"drop must be a probability: got {drop:g}")
        self.network, self.schedule, self.shape, self.num_classes = network, schedule, shape, num_classes
        self.parametrization, self.variance = parametrization, variance
        self.weighting, self.drop = weighting, drop
        self.register_buffer("place", torch.zeros(()), persistent=False)  # knows type and device

    def predict(self, x: Data, t: Labels, label: Labels | None = None) -> Data:
        """What the network predicts at x, of times t, in the type of x; without labels, of no class."""
        if label is None and self.num_classes:
            label = torch.full_like(t, self.num_classes)
        output: Tensor = self.network(x, t.to(x), label)
        return output.to(x)

    def eps(self, x: Data, t: Labels, label: Labels | None = None) -> Data:
        """The noise that the network sees in x."""
        level = self.levels(t)
        return to_eps(self.predict(x, t, label), x, level, self.parametrization)

    def denoised(self, x: Data, t: Labels, label: Labels | None = None) -> Data:
        """The data that the network sees in x."""
        level = self.levels(t)
        return to_x0(self.predict(x, t, label), x, level, self.parametrization)

    def levels(self, t: Labels) -> Float[Tensor, " batch"]:
        """alpha_bar_t, in float64."""
        return self.schedule.alpha_bar[t.cpu()].to(t.device)

    def score(self, x: Data, t: Labels, label: Labels | None = None) -> Data:
        r"""The gradient of the log-density of noisy data, :math:`-\hat\epsilon / \sqrt{1 - \bar\alpha_t}`."""
        scale = (1 - self.levels(t)).sqrt().to(x)
        return -self.eps(x, t, label) / scale.reshape(-1, *(1,) * (x.ndim - 1))

    def error(self, x0: Data, t: Labels, eps: Data, label: Labels | None = None) -> PerExample:
        """The squared error of what the network predicts, summed over an example."""
        level = self.levels(t)
        output = self.predict(jump(x0, eps, level), t, label)
        return (target(x0, eps, level, self.parametrization) - output).square().flatten(1).sum(1)

    def negative_bound(self, x0: Data, t: Labels, eps: Data, label: Labels | None = None) -> PerExample:
        r"""An estimate of the negative evidence bound in nats from one time and one noise of each example.

        .. math:: L_T + \sum_t c_t
            + Z \left(\frac{w_t}{r_t} \|y - \hat y\|^2 - \bar\alpha_t (\|\epsilon\|^2 - d)\right)

        It is unbiased for t drawn in proportion to :func:`~margin.generative.diffusion_loss.importance` r,
        of sum Z; the last term is 0 in the mean and takes away what the noise does to data N(0, I).
        """
        dim = x0[0].numel()
        share = importance(self.schedule, self.variance)
        factor = weights(self.schedule, self.parametrization, self.variance)[t.cpu()] / share[t.cpu()]
        drawn = self.levels(t).to(x0) * (eps.square().flatten(1).sum(1) - dim)
        moved = factor.to(x0) * self.error(x0, t, eps, label) - drawn
        fixed = float(constant(self.schedule, self.variance, dim).sum())
        return terminal(x0, self.schedule).to(x0) + fixed + float(share.sum()) * moved

    def loss(self, x0: Data, generator: Generator, label: Labels | None = None) -> PerExample:
        """The loss of each example at one time of its own; a label is dropped with probability ``drop``."""
        share = torch.ones(self.schedule.steps + 1, dtype=torch.float64)
        share[0] = 0
        if self.weighting == "bound":
            share = importance(self.schedule, self.variance)
        t = drawn_times(share, len(x0), generator).to(x0.device)
        eps = torch.randn(x0.shape, generator=generator).to(x0)
        if label is not None:
            kept = torch.rand(len(x0), generator=generator).to(x0.device) >= self.drop
            label = torch.where(kept, label, self.num_classes)
        return (self.error if self.weighting == "simple" else self.negative_bound)(x0, t, eps, label)

    def bound(self, x: Data, *, generator: Generator, pairs: int = PAIRS) -> PerExample:
        """The evidence lower bound of each example in nats: unbiased, with the same draws for all of them.

        Args:
            x: Data.
            generator: Where times and noises are drawn from.
            pairs: How many times; at each, a noise and its opposite, whose errors cancel in part.
        """
        x = x.reshape(-1, *self.shape)
        total = x.new_zeros(len(x))
        for t in drawn_times(importance(self.schedule, self.variance), pairs, generator):
            eps = torch.randn(self.shape, generator=generator).to(x).expand_as(x)
            for signed in (eps, -eps):
                total += self.negative_bound(x, t.to(x.device).expand(len(x)), signed)
        return -total / (2 * pairs)

    def forward(self, x: Float[Tensor, " batch *features"]) -> PerExample:
        """The evidence lower bound of each example in nats, estimated with noise that is always the same.

        The estimate's error is about the same for all examples: their order is known better than their level.
        """
        return self.bound(x, generator=Generator().manual_seed(0))

    def sample(
        self,
        count: int,
        *,
        generator: Generator,
        sampler: Sampler = "ddpm",
        steps: int | None = None,
        guidance: float = 0.0,
        label: int | None = None,
    ) -> Data:
        """Samples of the chain, in the model's units.

        Args:
            count: How many.
            generator: Where the noise is drawn from.
            sampler: How the chain is run backwards.
            steps: Times at which it stops; all of them if not given.
            guidance: w of classifier-free guidance; 0 follows the class, above 0 exaggerates it.
            label: The class; if not given, the classes in turn. Only of a conditional model.

        Raises:
            ValueError: An option does not fit the model, or the samples are not finite.
        """
        x = torch.randn(count, *self.shape, generator=generator).to(self.place)
        labels = self.labels(count, guidance, label)
        times = strided(self.schedule, self.schedule.steps if steps is None else steps)
        x, times = self._from_pure_noise(x, times, labels, guidance)
        if len(times):
            run, options = resolve(SAMPLERS[sampler]), {"variance": self.variance}
            known = {name: value for name, value in options.items() if name in chosen(run)}
            denoise = partial(self._guided, labels=labels, guidance=guidance)
            x = run(denoise, self.schedule, x, times=times, generator=generator, **known)
        if not bool(x.isfinite().all()):
            bad = int((~x.isfinite()).flatten(1).any(1).sum())
            raise ValueError(f"samples must be finite: got {bad} of {count} that are not")
        return x

    def labels(self, count: int, guidance: float, label: int | None) -> Labels | None:
        """The classes of ``count`` samples, None without classes.

        Raises:
            ValueError: The model has no classes, or not this one.
        """
        if not self.num_classes:
            if guidance or label is not None:
                asked = f"label={label}" if label is not None else f"guidance={guidance:g}"
                raise ValueError(f"guidance and label need a model trained on classes: got {asked}")
            return None
        if label is not None and not 0 <= label < self.num_classes:
            raise ValueError(f"label must be from 0 to {self.num_classes - 1}: got {label}")
        turn = torch.arange(count, device=self.place.device) % self.num_classes
        return turn if label is None else torch.full_like(turn, label)

    def _guided(self, x: Tensor, t: int, *, labels: Labels | None, guidance: float) -> Tensor:
        return self._leaning(self.eps, x, t, labels, guidance)

    def _leaning(
        self, answer: Callable[..., Tensor], x: Tensor, t: int, labels: Labels | None, guidance: float
    ) -> Tensor:
        """The noise, or the data, that is predicted at one time, guided where there are classes."""
        at = torch.full((len(x),), t, device=x.device)
        if labels is None:
            return answer(x, at)
        return guided_eps(lambda y, of: answer(y, at, of), x, labels, self.num_classes, guidance)

    def _from_pure_noise(
        self, x: Tensor, times: Tensor, labels: Labels | None, guidance: float
    ) -> tuple[Tensor, Tensor]:
        """Past a first time at which no data are left, where the noise says nothing of them.

        There x_T does not depend on x_0, and x_s is predicted data under noise, which x_T itself may be.
        """
        if float(self.schedule.alpha_bar[times[0]]) > 0:
            return x, times
        x0 = self._leaning(self.denoised, x, int(times[0]), labels, guidance)
        return jump(x0, x, self.schedule.alpha_bar[times[1] if len(times) > 1 else 0]), times[1:]
