"""Denoising diffusion (Ho, Jain and Abbeel 2020): a network learns to undo noise step by step."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor, nn

from margin.core.catalog import resolve, user_options
from margin.core.types import PerExample
from margin.generative.autoencoder.interpolation import slerp
from margin.generative.diffusion.forward_process import jump
from margin.generative.diffusion.guidance import classes_of, dropped, guided_eps
from margin.generative.diffusion.loss import constant, drawn_times, importance, terminal, weights
from margin.generative.diffusion.parametrizations import (
    Parametrization,
    check_terminal,
    target,
    to_eps,
    to_x0,
)
from margin.generative.diffusion.schedules import Schedule, Variance, strided, strided_by_ratio

Network = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Path = Literal["ddim", "euler", "heun", "dpm++"]
Sampler = Literal[Path, "ddpm", "sde"]
Weighting = Literal["simple", "bound"]
Labels = Int64[Tensor, " batch"]
Data = Float[Tensor, " batch *shape"]

SAMPLERS: dict[Sampler, str] = {
    "ddim": "margin.generative.diffusion.ddim:ddim",
    "euler": "margin.generative.diffusion.probability_flow:euler",
    "heun": "margin.generative.diffusion.probability_flow:heun",
    "dpm++": "margin.generative.diffusion.probability_flow:multistep",
    "ddpm": "margin.generative.diffusion.ddpm:ddpm",
    "sde": "margin.generative.diffusion.reverse_sde:reverse_sde",
}
"""How samples are drawn: ``(eps, schedule, x_T, *, times, ...) -> x_0``, by dotted path. Those that draw no
noise of their own are maps of x_T (DDIM's unless eta asks for noise)."""

STOPS = 50
"""Times at which a sampler stops if none are asked for; DDPM, whose law the bound is of, stops at all."""

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

        It is unbiased for t drawn in proportion to :func:`~margin.generative.diffusion.loss.importance` r,
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
            label = dropped(label, self.num_classes, self.drop, generator)
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
        sampler: Sampler = "ddim",
        steps: int | None = None,
        eta: float = 0.0,
        guidance: float = 0.0,
        label: int | None = None,
    ) -> Data:
        """Samples of the chain, in the model's units.

        Args:
            count: How many.
            generator: Where the noise is drawn from.
            sampler: How the chain is run backwards: without noise by DDIM's steps, Euler's, Heun's or
                DPM-Solver++'s; with noise by the learned chain (ddpm) or the stochastic equation (sde).
            steps: Times at which it stops, from 1 to T. If not given 50, or T where that is less; all T of
                ddpm. Heun's method asks the network twice a step.
            eta: Noise of a step of ddim, from 0 to 1, where it is DDPM's of small variance.
            guidance: w of classifier-free guidance; 0 follows the class, above 0 exaggerates it.
            label: The class; if not given, the classes in turn. Only of a conditional model.

        Raises:
            ValueError: An option does not fit the model, or the samples are not finite.
        """
        if sampler != "ddim" and eta:
            raise ValueError(f"eta is the noise of sampler ddim: got eta={eta:g} with sampler={sampler}")
        x_T = torch.randn(count, *self.shape, generator=generator).to(self.place)
        options = {"generator": generator, "variance": self.variance, "eta": eta}
        return samples_from(self, x_T, sampler, steps, options, guidance, label)

    def interpolate(
        self,
        count: int,
        *,
        generator: Generator,
        sampler: Sampler = "ddim",
        steps: int | None = None,
        guidance: float = 0.0,
        label: int | None = None,
    ) -> Data:
        """Samples along the great circle between two draws of the noise that samples begin with.

        Args:
            count: How many, the two ends included.
            generator: Where the two are drawn from.
            sampler: As in :meth:`sample`, but ddpm and sde: the samples must be a function of x_T.
            steps: Times at which it stops; if not given 50, or T where that is less.
            guidance: w of classifier-free guidance.
            label: The class of all; the first of a conditional model if not given.

        Raises:
            ValueError: An option does not fit the model, or the samples are not finite.
        """
        if sampler not in get_args(Path):
            known = ", ".join(get_args(Path))
            raise ValueError(f"a path needs a sampler without noise ({known}): got sampler={sampler}")
        first, last = torch.randn(2, *self.shape, generator=generator).to(self.place)
        t = torch.linspace(0, 1, count).to(first)
        x_T = slerp(first, last, t) if first.numel() > 1 else torch.lerp(first, last, t[:, None])
        label = 0 if self.num_classes and label is None else label
        return samples_from(self, x_T, sampler, steps, {"generator": generator}, guidance, label)

    def labels(self, count: int, guidance: float, label: int | None) -> Labels | None:
        """The classes of ``count`` samples, None without classes.

        Raises:
            ValueError: The model has no classes, or not this one.
        """
        return classes_of(torch.arange(count, device=self.place.device), self.num_classes, guidance, label)


def samples_from(
    model: Diffusion,
    x_T: Data,
    sampler: Sampler,
    steps: int | None,
    options: dict[str, Any],
    guidance: float,
    label: int | None,
) -> Data:
    """The samples that come from noise.

    Args:
        model: The diffusion.
        x_T: Noise.
        sampler: How the chain is run backwards.
        steps: As in :meth:`Diffusion.sample`.
        options: What samplers may have as an option: each is given those that it has.
        guidance: w of classifier-free guidance.
        label: The class of all; None: in turn.

    Raises:
        ValueError: An option does not fit the model, or the samples are not finite.
    """
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}: got {sampler}")
    T, labels = model.schedule.steps, model.labels(len(x_T), guidance, label)
    stops = steps if steps is not None else T if sampler == "ddpm" else min(T, STOPS)
    times = (strided_by_ratio if sampler == "dpm++" else strided)(model.schedule, stops)
    x, times = past_pure_noise(model, x_T, times, labels, guidance)
    run = resolve(SAMPLERS[sampler])
    known = {name: value for name, value in options.items() if name in user_options(run)}

    def denoise(x: Tensor, t: int) -> Tensor:
        return leaning(model, model.eps, x, t, labels, guidance)

    return finite(run(denoise, model.schedule, x, times=times, **known))


def leaning(
    model: Diffusion,
    answer: Callable[..., Tensor],
    x: Data,
    t: int,
    labels: Labels | None,
    guidance: float,
) -> Data:
    """The noise, or the data, that a model predicts at one time, guided where there are classes."""
    at = torch.full((len(x),), t, device=x.device)
    if labels is None:
        return answer(x, at)
    return guided_eps(lambda y, of: answer(y, at, of), x, labels, model.num_classes, guidance)


def past_pure_noise(
    model: Diffusion, x: Data, times: Int64[Tensor, " stops"], labels: Labels | None, guidance: float
) -> tuple[Data, Int64[Tensor, " left"]]:
    """Past a first time at which no data are left, where the noise says nothing of them.

    There x_T does not depend on x_0, and x_s is predicted data under noise, which x_T itself may be.
    """
    level = model.schedule.alpha_bar
    if float(level[times[0]]) > 0:
        return x, times
    x0 = leaning(model, model.denoised, x, int(times[0]), labels, guidance)
    return jump(x0, x, level[times[1] if len(times) > 1 else 0]), times[1:]


def finite(samples: Data) -> Data:
    """The samples themselves.

    Raises:
        ValueError: Some are not finite.
    """
    bad = int((~samples.isfinite()).flatten(1).any(1).sum())
    if bad:
        raise ValueError(f"samples must be finite: got {bad} of {len(samples)} that are not")
    return samples
