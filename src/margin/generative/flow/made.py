"""The masked autoencoder of a distribution (Germain et al. 2015): each number given those before it."""

import itertools
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.generative.autoencoder.unit_interval import unit_inputs
from margin.nn.activations import Activation, activation_of
from margin.nn.preprocessed import core_of, features_of

Rows = Float[Tensor, "batch features"]
PerRow = Float[Tensor, " batch"]


def masks(in_features: int, hidden: tuple[int, ...], outputs: int) -> list[Bool[Tensor, "fan_out fan_in"]]:
    r"""Which weights of a chain of affine maps may be other than 0, so that output i sees x_1 .. x_(i-1).

    A unit has a degree m: it may see x_1 .. x_m. Feature d has degree d, those of a hidden layer
    are spread evenly over 1, ..., D - 1, and

    .. math:: M_{k', k} = [m(k') \ge m(k)], \qquad M^{out}_{d, k} = [d > m(k)]

    Args:
        in_features: D.
        hidden: Widths of the layers between.
        outputs: Numbers given out of each feature, one after the other: d = 1, ..., D, 1, ..., D, ...

    Reference: Germain, Gregor, Murray and Larochelle 2015, Equations 12 to 14; there the degrees of hidden
        units are drawn.
    """
    inputs = torch.arange(1, in_features + 1)
    top = max(in_features - 1, 1)
    degrees = [inputs, *(1 + torch.arange(width) * top // width for width in hidden)]
    between = [after[:, None] >= before for before, after in itertools.pairwise(degrees)]
    return [*between, inputs.repeat(outputs)[:, None] > degrees[-1]]


class MaskedLinear(nn.Linear):
    """An affine map some of whose weights are 0 for good.

    Args:
        mask: Where a weight counts.
    """

    mask: Tensor

    def __init__(self, mask: Bool[Tensor, "fan_out fan_in"]) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Float[Tensor, "*batch fan_in"]) -> Float[Tensor, "*batch fan_out"]:
        """(mask * weight) x + bias."""
        return F.linear(x, self.weight * self.mask, self.bias)


class Autoregressive(nn.Sequential):
    """A chain of masked affine maps from D numbers to some for each, that see the numbers before it only.

    Args:
        in_features: D.
        outputs: Numbers given out for each.
        hidden: Widths of the layers between, at least one.
        activation: Between the layers.

    Raises:
        ValueError: There is no layer between, or one without a unit.
    """

    def __init__(
        self, in_features: int, outputs: int, *, hidden: tuple[int, ...], activation: Activation
    ) -> None:
        if not hidden or min(hidden) < 1:
            raise ValueError(f"hidden must be one width or more, of at least 1: got {hidden}")
        *between, last = (MaskedLinear(mask) for mask in masks(in_features, hidden, outputs))
        layers = [part for layer in between for part in (layer, activation_of(activation))]
        super().__init__(*layers, last)


class MADE(nn.Module):
    r"""The distribution of D bits by the probability of each given those before it.

    .. math:: P(x) = \prod_d P(x_d \mid x_1 \dots x_{d-1})

    Args:
        in_features: D; an input of more axes is flattened.
        hidden: Widths of the layers between.
        activation: Between the layers.
        pixels: How a number in [0, 1] becomes a bit in training: 1 with that probability, drawn anew each
            time, or 1 from 1/2 on. What is told of an example afterwards is told of its bits from 1/2 on.

    Reference:
        Germain, Gregor, Murray and Larochelle 2015, Section 3; drawn bits as of Salakhutdinov and Murray
        2008, Section 5.
    """

    def __init__(
        self,
        in_features: int,
        *,
        hidden: tuple[int, ...] = (512,),
        activation: Activation = "relu",
        pixels: Literal["drawn", "threshold"] = "drawn",
    ) -> None:
        super().__init__()
        self.in_features, self.pixels = in_features, pixels
        self.network = Autoregressive(in_features, 1, hidden=hidden, activation=activation)

    def log_prob(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-probability of the bits x >= 1/2 of each row, in nats.

        Raises:
            ValueError: A number is outside of [0, 1].
        """
        return self.of_bits((unit_inputs(x.flatten(1), "a distribution of bits") >= 0.5).to(x.dtype))

    def of_bits(self, bits: Rows) -> PerRow:
        """The log-probability of rows of 0 and 1, in nats."""
        return -F.binary_cross_entropy_with_logits(self.network(bits), bits, reduction="none").sum(1)

    @torch.no_grad()
    def sample(self, count: int, *, generator: Generator) -> Rows:
        """Rows of bits drawn from the model, one number after the other."""
        weight = next(self.parameters())
        u = torch.rand(count, self.in_features, generator=generator).to(weight)
        x = torch.zeros_like(u)
        for d in range(self.in_features):
            x[:, d] = (u[:, d] < self.network(x)[:, d].sigmoid()).to(x.dtype)
        return x

    def forward(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-probability of each row's bits, in nats."""
        return self.log_prob(x)


def negative_log_probability(model: nn.Module, batch: Batch, generator: Generator) -> PerRow:
    """-log P of each example's bits, in nats, the bits drawn or thresholded as the model says."""
    core = core_of(model)
    x = features_of(model, batch.inputs[0]).flatten(1)
    if core.pixels == "threshold":
        return -core.log_prob(x)
    x = unit_inputs(x, "a distribution of bits")
    # u < 1, so a pixel of 1 is always 1, and one of 0 never
    return -core.of_bits((torch.rand(x.shape, generator=generator).to(x.device) < x).to(x.dtype))
