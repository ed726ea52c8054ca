r"""Denoising diffusion (Ho, Jain and Abbeel 2020): a network learns to undo noise step by step.

Its evidence lower bound, term by term, in nats:

.. math:: -\log p(x_0) \le L_T + \sum_{t=2}^T L_{t-1} + L_0, \qquad
    L_T = \mathrm{KL}(q(x_T | x_0) \| N(0, I)), \quad
    L_{t-1} = \mathrm{KL}(q(x_{t-1} | x_t, x_0) \| p(x_{t-1} | x_t)), \quad L_0 = -\log p(x_0 | x_1)

in the mean over the noises, with :math:`p(x_{t-1} | x_t) = N(\mu(x_t, t), s_t^2 I)`. Every term is a
constant and a weight times the squared error of what the network predicts.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Float64, Int64
from torch import Generator, Tensor, nn

from margin.core.catalog import user_options
from margin.core.types import Batch, PerExample
from margin.generative.autoencoder.distributions import noise_path
from margin.generative.diffusion.process import (
    Beta,
    Levels,
    Parametrization,
    Schedule,
    Terminal,
    Variance,
    check_terminal,
    jump,
    schedule_of,
    strided,
    strided_by_ratio,
    target,
    to_eps,
    to_x0,
)
from margin.generative.diffusion.samplers import (
    classes_of,
    ddim,
    ddpm,
    dropped,
    euler,
    finite,
    guided_eps,
    heun,
    multistep,
    reverse_sde,
)
from margin.nn.preprocessed import core_of, features_of


def variances(schedule: Schedule, kind: Variance) -> Levels:
    r"""s_t^2 of t = 0 .. T: :math:`\tilde\beta_t` (small) or :math:`\beta_t` (large).

    They are the best ones for data in a single point and for N(0, I). The posterior's is 0 at t = 1, where
    p(x_0 | x_1) needs a density: there both take beta_1. (At t = 0 there is no step: 0.)

    Data with a density look like noise to the last steps, whose best variance is beta_t: with large ones the
    bound of an exact network tends to log p(x_0) as T grows; with small ones it stays below by a number of
    nats a dimension, Euler's gamma / 2 = .289 where beta_t is the same for all t.

    Args:
        schedule: Of T steps.
        kind: Which end.

    Reference: Ho, Jain and Abbeel 2020, Section 3.2.
    """
    beta = schedule.beta
    if kind == "large":
        return beta
    left = 1 - schedule.alpha_bar
    small = left[1:-1] / left[2:] * beta[2:]
    return torch.cat((beta[:2], small))


def weights(schedule: Schedule, of: Parametrization, variance: Variance) -> Levels:
    r"""What :math:`\|\hat y - y\|^2` is multiplied by in L_{t-1}, t = 1 .. T (0 at t = 0), y as predicted.

    .. math:: \frac{\|\tilde\mu - \mu\|^2}{2 s_t^2} =
        \frac{\beta_t^2}{2 s_t^2 \alpha_t (1 - \bar\alpha_t)} \|\epsilon - \hat\epsilon\|^2 =
        \frac{\bar\alpha_{t-1} \beta_t^2}{2 s_t^2 (1 - \bar\alpha_t)^2} \|x_0 - \hat x_0\|^2 =
        \frac{\bar\alpha_{t-1} \beta_t^2}{2 s_t^2 (1 - \bar\alpha_t)} \|v - \hat v\|^2

    Args:
        schedule: Of T steps.
        of: What is predicted.
        variance: Which s_t^2.

    Reference: Ho, Jain and Abbeel 2020, Equation 12.
    """
    beta, left = schedule.beta[1:], 1 - schedule.alpha_bar[1:]
    shared = beta.square() / (2 * variances(schedule, variance)[1:] * left)
    factor = {
        "eps": 1 / schedule.alpha[1:],
        "x0": schedule.alpha_bar[:-1] / left,
        "v": schedule.alpha_bar[:-1],
    }[of]
    return torch.cat((beta.new_zeros(1), shared * factor))


def constant(schedule: Schedule, variance: Variance, dim: int) -> Levels:
    r"""What L_{t-1} adds to the weighted error, t = 1 .. T (0 at t = 0).

    .. math:: \tfrac d2 \log(2 \pi s_1^2), \qquad
        \tfrac d2 \left(\tilde\beta_t / s_t^2 - 1 - \log(\tilde\beta_t / s_t^2)\right) \quad (t > 1)

    Args:
        schedule: Of T steps.
        variance: Which s_t^2; the second is 0 for small ones.
        dim: d, numbers of an example.
    """
    s2 = variances(schedule, variance)
    ratio = variances(schedule, "small")[2:] / s2[2:]
    first = 0.5 * dim * (2 * math.pi * s2[1:2]).log()
    return torch.cat((s2.new_zeros(1), first, 0.5 * dim * (ratio - 1 - ratio.log())))


def terminal(x0: Float[Tensor, " batch *shape"], schedule: Schedule) -> Float64[Tensor, " batch"]:
    r"""L_T of each example: what x_T still tells of it.

    .. math:: \tfrac12 \left(\bar\alpha_T \|x_0\|^2 - \bar\alpha_T d - d \log(1 - \bar\alpha_T)\right)

    Args:
        x0: Data.
        schedule: Its last step counts.

    Reference: Ho, Jain and Abbeel 2020, Equation 5.
    """
    square = x0.flatten(1).double().square()
    last = schedule.alpha_bar[-1].to(square)
    return 0.5 * (last * square.sum(1) - (last + torch.log1p(-last)) * square.shape[1])


def importance(schedule: Schedule, variance: Variance) -> Levels:
    r"""The mean of each term's weighted error were the data N(0, I) and the network right, by dimension.

    There :math:`E\|\epsilon - \hat\epsilon\|^2 = \bar\alpha_t d`. Times are drawn in this proportion; then
    the sum over the times is estimated with an error that comes from the data alone.

    Args:
        schedule: Of T steps.
        variance: Which s_t^2.
    """
    return weights(schedule, "x0", variance) * (1 - schedule.alpha_bar)


def drawn_times(share: Levels, count: int, generator: Generator) -> Tensor:
    """Times in proportion to ``share``, one in each of ``count`` strata of equal share, in random order.

    Each by itself has the law ``share``, whatever the others.

    Args:
        share: Not normalized, of t = 0 .. T; 0 at t = 0.
        count: How many.
        generator: Where they are drawn from.

    Returns:
        Integers from 1 to T.
    """
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    strata = torch.randperm(count, generator=generator)
    summed = share.cumsum(0)
    t = torch.searchsorted(summed, (strata + u) / count * summed[-1], right=True)
    return t.clamp_max(len(share) - 1)


Network = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Path = Literal["ddim", "euler", "heun", "dpm++"]
Sampler = Literal[Path, "ddpm", "sde"]
Weighting = Literal["simple", "bound"]
Labels = Int64[Tensor, " batch"]
Data = Float[Tensor, " batch *shape"]

SAMPLERS: dict[Sampler, Callable[..., Tensor]] = {
    "ddim": ddim,
    "euler": euler,
    "heun": heun,
    "dpm++": multistep,
    "ddpm": ddpm,
    "sde": reverse_sde,
}
"""How samples are drawn: ``(eps, schedule, x_T, *, times, ...) -> x_0``. Those that draw no noise of their
own are maps of x_T (DDIM's unless eta asks for noise)."""

STOPS = 50
"""Times at which a sampler stops by default; DDPM, whose law the bound is of, stops at all."""

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

        It is unbiased for t drawn in proportion to :func:`~margin.generative.diffusion.model.importance` r,
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
        return self.bound(x, generator=Generator().manual_seed(0), pairs=PAIRS)

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
        x_T = noise_path(first, last, count)
        label = 0 if self.num_classes and label is None else label
        return samples_from(self, x_T, sampler, steps, {"generator": generator}, guidance, label)

    def labels(self, count: int, guidance: float, label: int | None) -> Labels | None:
        """The classes of ``count`` samples, None without classes.

        Raises:
            ValueError: The model has no classes, or not this one.
        """
        return classes_of(torch.arange(count, device=self.place.device), self.num_classes, guidance, label)


# a constructor's parameters: they are the model's options
def diffusion_with(
    network: nn.Module,
    *,
    num_classes: int = 0,
    steps: int = 1000,
    beta: Beta = "linear",
    terminal: Terminal = "kept",
    parametrization: Parametrization = "v",
    variance: Variance = "large",
    weighting: Weighting = "simple",
    drop: float = 0.1,
) -> Diffusion:
    """The diffusion of a network that knows the shape of an example.

    Args:
        network: The network.
        num_classes: Number of classes.
        steps: T, steps of the chain.
        beta: Noise schedule: variances that rise evenly (linear), or with a squared cosine.
        terminal: Signal at T: the little that the schedule leaves is kept, or none (zero; not with eps).
        parametrization: What the network predicts: the noise, the data, or the velocity between them. An
            error of the noise counts 157-fold at T, where few noiseless steps then leave outliers.
        variance: Variance of a step back: that of the step forth, beta_t (large), or the posterior's (small).
        weighting: What training minimizes: the prediction's squared error, or the evidence bound.
        drop: Probability with which a class is dropped in training, for classifier-free guidance.
    """
    shape: Any = network.shape
    return Diffusion(
        network,
        schedule_of(steps, beta, terminal),
        shape,
        num_classes=num_classes,
        parametrization=parametrization,
        variance=variance,
        weighting=weighting,
        drop=drop,
    )


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
    run = SAMPLERS[sampler]
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


DRAWS = 4
"""Times and noises of an example where the loss is only read: of one alone, the noise would choose the best
weights. Where it is differentiated, by a training or by a question about its curvature, each has one."""


def denoising_loss(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
    """The loss of an unconditional diffusion for each example."""
    return _drawn(model, batch, None, generator)


def conditional_denoising_loss(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
    """The loss of a class-conditional diffusion for each example.

    Raises:
        ValueError: The examples have no classes.
    """
    if batch.targets is None:
        raise ValueError("a diffusion given the class needs labeled examples: got none with a label")
    return _drawn(model, batch, batch.targets, generator)


def _drawn(model: nn.Module, batch: Batch, label: Tensor | None, generator: Generator) -> PerExample:
    """At one time and noise of each example where it is differentiated, else the mean of :data:`DRAWS`."""
    core: Any = core_of(model)
    x = features_of(model, batch.inputs[0]).reshape(-1, *core.shape)
    draws = 1 if torch.is_grad_enabled() else DRAWS
    return torch.stack([core.loss(x, generator, label) for _ in range(draws)]).mean(0)
