"""Flow matching (Lipman et al. 2023) along straight paths, the rectified flow (Liu, Gong and Liu 2023)."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor, nn

from margin.core.types import PerExample
from margin.generative.autoencoder.distributions import noise_path
from margin.generative.diffusion.samplers import classes_of, dropped, finite, guided_eps

Method = Literal["euler", "midpoint", "heun"]
Labels = Int64[Tensor, " batch"]
Data = Float[Tensor, " batch *shape"]
Level = Float[Tensor, " batch"]

CLOCK = 1000.0
"""The network's time at t = 1: its sinusoids are made for the steps of a chain."""

EXACT = 8
"""Numbers of an example up to which the divergence is a trace, column by column."""

PROBES = 1
"""Random directions, always the same, by which it is estimated above: each is a pass back a step."""

DENSITY_STEPS = 20
"""Steps of the midpoint rule for a density, of two passes each."""


class FlowMatching(nn.Module):
    r"""The law of x_1, where dx/dt = v(x, t) carries x_0 ~ N(0, I) from t = 0 to data at t = 1.

    .. math:: v = \arg\min E \|v(x_t, t) - (x_1 - x_0)\|^2, \qquad x_t = (1 - t)\, x_0 + t\, x_1

    with x_0, x_1 and t independent. The minimum is :math:`v(x, t) = E[x_1 - x_0 | x_t = x]`; its flow has at
    every t the law of x_t. That it exists as a density is because x_0 has one.

    Args:
        network: ``(x, t, label | None) -> velocity`` of the shape of x; its time is 1000 t, in x's type.
        shape: Of an example.
        num_classes: Classes; the label ``num_classes`` says none. 0: an unconditional model.
        drop: Probability with which a label is replaced by none in training, so that guidance is possible.

    Raises:
        ValueError: drop is no probability.

    Reference:
        Lipman, Chen, Ben-Hamu, Nickel and Le 2023, Equations 9 and 23 (with sigma_min = 0); Liu, Gong and Liu
        2023, Equation 1.
    """

    place: Tensor

    def __init__(
        self, network: nn.Module, shape: tuple[int, ...], *, num_classes: int = 0, drop: float = 0.1
    ) -> None:
        super().__init__()
        if not 0 <= drop <= 1:
            raise ValueError(f"drop must be a probability: got {drop:g}")
        self.network, self.shape, self.num_classes, self.drop = network, shape, num_classes, drop
        self.register_buffer("place", torch.zeros(()), persistent=False)  # knows type and device

    def velocity(self, x: Data, t: Level, label: Labels | None = None) -> Data:
        """The velocity at x of times t in [0, 1]; without labels, of no class."""
        if label is None and self.num_classes:
            label = torch.full((len(x),), self.num_classes, device=x.device)
        output: Tensor = self.network(x, CLOCK * t.to(x), label)
        return output.to(x)

    def loss(self, x1: Data, generator: Generator, label: Labels | None = None) -> PerExample:
        """The squared error of the velocity for each example, at a time of its own, summed over its numbers.

        Times are drawn one in each of as many strata as there are examples; each by itself is even on [0, 1].
        """
        n = len(x1)
        strata = torch.randperm(n, generator=generator)
        t = ((strata + torch.rand(n, generator=generator)) / n).to(x1)
        x0 = torch.randn(x1.shape, generator=generator).to(x1)
        if label is not None:
            label = dropped(label, self.num_classes, self.drop, generator)
        share = t.reshape(-1, *(1,) * (x1.ndim - 1))
        error = self.velocity((1 - share) * x0 + share * x1, t, label) - (x1 - x0)
        return error.square().flatten(1).sum(1)

    def sample(
        self,
        count: int,
        *,
        generator: Generator,
        sampler: Method = "midpoint",
        steps: int = 20,
        guidance: float = 0.0,
        label: int | None = None,
    ) -> Data:
        """Samples of the flow, in the model's units.

        Args:
            count: How many.
            generator: Where x_0 is drawn from.
            sampler: The method that follows the flow: Euler's, of order 1 and one pass of the network a step,
                or the midpoint rule or Heun's, of order 2 and two passes.
            steps: Even steps from t = 0 to 1, at least 1.
            guidance: w of classifier-free guidance; 0 follows the class, above 0 exaggerates it.
            label: The class; if not given, the classes in turn. Only of a conditional model.

        Raises:
            ValueError: An option does not fit the model, or the samples are not finite.
        """
        x0 = torch.randn(count, *self.shape, generator=generator).to(self.place)
        return self.carried(x0, sampler, steps, guidance, label)

    def interpolate(
        self,
        count: int,
        *,
        generator: Generator,
        sampler: Method = "midpoint",
        steps: int = 20,
        guidance: float = 0.0,
        label: int | None = None,
    ) -> Data:
        """Samples along the great circle between two draws of x_0.

        Args:
            count: How many, the two ends included.
            generator: Where the two are drawn from.
            sampler: As in :meth:`sample`.
            steps: Even steps from t = 0 to 1, at least 1.
            guidance: w of classifier-free guidance.
            label: The class of all; the first of a conditional model if not given.

        Raises:
            ValueError: An option does not fit the model, or the samples are not finite.
        """
        first, last = torch.randn(2, *self.shape, generator=generator).to(self.place)
        x0 = noise_path(first, last, count)
        label = 0 if self.num_classes and label is None else label
        return self.carried(x0, sampler, steps, guidance, label)

    def carried(self, x0: Data, sampler: Method, steps: int, guidance: float, label: int | None) -> Data:
        """Where the flow carries x_0; the options are those of :meth:`sample`.

        Raises:
            ValueError: An option does not fit the model, or the end is not finite.
        """
        if steps < 1:
            raise ValueError(f"steps must be at least 1: got {steps}")
        turn = torch.arange(len(x0), device=x0.device)
        labels = classes_of(turn, self.num_classes, guidance, label)

        def v(x: Tensor, t: float) -> Tensor:
            at = x.new_full((len(x),), t)
            if labels is None:
                return self.velocity(x, at)
            return guided_eps(lambda y, of: self.velocity(y, at, of), x, labels, self.num_classes, guidance)

        x, h = x0, 1 / steps
        for k in range(steps):
            t = k * h
            slope = v(x, t)
            if sampler == "midpoint":
                slope = v(x + h / 2 * slope, t + h / 2)
            elif sampler == "heun":
                slope = (slope + v(x + h * slope, t + h)) / 2
            x = x + h * slope
        return finite(x)

    def log_density(self, x: Data, *, steps: int = DENSITY_STEPS) -> PerExample:
        r"""The log-density of each example in nats, of no class, along the flow back to t = 0.

        .. math:: \log p_1(x_1) = \log N(x_0; 0, I) - \int_0^1 \nabla \cdot v(x_t, t)\, dt

        The equation is solved by the midpoint rule, so it is exact as the steps grow. The divergence is the
        trace of the Jacobian up to :data:`EXACT` numbers of an example; above, an estimate without bias by
        :data:`PROBES` directions of random signs, the same for all examples at all times.

        Args:
            x: Data.
            steps: Even steps from t = 1 to 0, at least 1.

        Raises:
            ValueError: There is no step.

        Reference: Chen et al. 2018 (Neural ODE), Theorem 1; Grathwohl et al. 2019, Section 3.1.
        """
        if steps < 1:
            raise ValueError(f"steps must be at least 1: got {steps}")
        x = x.reshape(-1, *self.shape)
        probes, volume, h = self.probes(x), x.new_zeros(len(x)), 1 / steps
        for k in range(steps):
            t = 1 - k * h
            middle = x - h / 2 * self.velocity(x, x.new_full((len(x),), t))
            slope, divergence = self.divergence(middle, t - h / 2, probes)
            x, volume = x - h * slope, volume + h * divergence
        z = x.flatten(1)
        return -0.5 * (z.square().sum(1) + z.shape[1] * math.log(2 * math.pi)) - volume

    def probes(self, x: Data) -> Float[Tensor, " directions *shape"]:
        """The directions of the divergence, such that it is the sum over them."""
        size = x[0].numel() if len(x) else 1
        if size <= EXACT:
            return torch.eye(size).to(x).reshape(size, *self.shape)
        signs = torch.randint(0, 2, (PROBES, *self.shape), generator=Generator().manual_seed(0))
        return (2.0 * signs - 1).to(x) / PROBES**0.5

    def divergence(
        self, x: Data, t: float, probes: Float[Tensor, " directions *shape"]
    ) -> tuple[Data, PerExample]:
        """The velocity, and the sum of e . (dv/dx) e over the probes e."""
        wanted = torch.is_grad_enabled()
        with torch.enable_grad():
            x = x if wanted and x.requires_grad else x.detach().requires_grad_()
            v = self.velocity(x, x.new_full((len(x),), t))
            total = x.new_zeros(len(x))
            for e in probes:
                (row,) = torch.autograd.grad((v * e).sum(), x, retain_graph=True, create_graph=wanted)
                total = total + (row * e).flatten(1).sum(1)
        return (v, total) if wanted else (v.detach(), total.detach())

    def forward(self, x: Float[Tensor, " batch *features"]) -> PerExample:
        """The log-density of each example in nats, of images an estimate with fixed noise."""
        return self.log_density(x, steps=DENSITY_STEPS)


def flow_matching_with(network: nn.Module, *, num_classes: int = 0, drop: float = 0.1) -> FlowMatching:
    """The flow of a network that knows the shape of an example.

    Args:
        network: The network.
        num_classes: Number of classes.
        drop: Probability with which a class is dropped in training, for classifier-free guidance.
    """
    shape: Any = network.shape
    return FlowMatching(network, shape, num_classes=num_classes, drop=drop)
