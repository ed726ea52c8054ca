"""A flow of affine couplings whose networks are told the class: a density for each class, and their mean."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.generative.autoencoder.interpolation import slerp
from margin.generative.flow.coupling import Affine, Couplings, in_pieces, standard_normal
from margin.nn.activations import Activation

Rows = Float[Tensor, "batch features"]
PerRow = Float[Tensor, " batch"]
Labels = Int[Tensor, " batch"]


class ConditionalRealNVP(nn.Module):
    r"""The density of x = f_c^-1(z), z ~ N(0, I), given the class c, which every coupling's network sees.

    .. math:: \log p(x \mid c) = \log N(f_c(x); 0, I) + \log |\det f_c'(x)|, \qquad
        p(x) = \frac1K \sum_c p(x \mid c)

    Args:
        in_features: Numbers of a row, at least 2; an input of more axes is flattened.
        num_classes: K.
        layers: Couplings, at least 2.
        hidden: Widths of the layers of each network.
        activation: Between the layers of a network.
        max_log_scale: Largest |s| of a coupling, which scales by exp(s).

    Raises:
        ValueError: An option is out of range.

    Reference:
        Dinh, Sohl-Dickstein and Bengio 2017, Equations 2 to 8, all given c.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        layers: int = 8,
        hidden: tuple[int, ...] = (64, 64),
        activation: Activation = "relu",
        max_log_scale: float = 2.0,
    ) -> None:
        super().__init__()
        self.in_features, self.num_classes = in_features, num_classes
        self.couplings = Couplings(
            in_features,
            num_classes,
            monotone=Affine(max_log_scale),
            layers=layers,
            hidden=hidden,
            activation=activation,
        )

    def _told(self, labels: Labels, like: Tensor) -> Tensor:
        return F.one_hot(labels.long(), self.num_classes).to(like)

    def log_prob_given(self, x: Float[Tensor, " batch *shape"], labels: Labels) -> PerRow:
        """The log-density of each row given its class, in nats, in the model's own units."""
        x = x.flatten(1)
        z, log_det = self.couplings(x, self._told(labels, x))
        return standard_normal(z) + log_det

    def log_prob(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats, all classes alike: the mean over the classes."""
        return in_pieces(self._mean, x.flatten(1))

    def _mean(self, x: Tensor) -> Tensor:
        every = torch.arange(self.num_classes, device=x.device)
        labels = every[:, None].expand(-1, x.shape[0]).flatten()  # len(x) would fix the size of a program
        each = self.log_prob_given(x.repeat(self.num_classes, 1), labels)
        return each.reshape(self.num_classes, -1).logsumexp(0) - math.log(self.num_classes)

    def _labels(self, count: int, label: int | None, like: Tensor) -> Labels:
        if label is not None and not 0 <= label < self.num_classes:
            raise ValueError(f"label must be from 0 to {self.num_classes - 1}: got {label}")
        drawn = torch.arange(count, device=like.device) % self.num_classes
        return drawn if label is None else torch.full_like(drawn, label)

    def noise(self, count: int, generator: Generator) -> Rows:
        """Standard normal rows, in the type and on the device of the weights."""
        weight = next(self.parameters())
        return torch.randn(count, self.in_features, generator=generator).to(weight)

    def inverse_given(self, z: Rows, labels: Labels) -> Rows:
        """The row f_c^-1(z) of each noise and class."""
        return in_pieces(self.couplings.inverse, z, self._told(labels, z))

    def sample(self, count: int, *, generator: Generator, label: int | None = None) -> Rows:
        """Rows drawn from the model.

        Args:
            count: How many.
            generator: Where the noise is drawn from.
            label: The class; None takes the classes 0, 1, 2, ... in turn.

        Raises:
            ValueError: There is no such class.
        """
        z = self.noise(count, generator)
        return self.inverse_given(z, self._labels(count, label, z))

    def interpolate(self, count: int, *, generator: Generator, label: int = 0) -> Rows:
        """Rows of one class on the path between two that are drawn, along the great circle of their noise."""
        first, last = self.noise(2, generator)
        z = slerp(first, last, torch.linspace(0, 1, count).to(first))
        return self.inverse_given(z, self._labels(count, label, z))

    def forward(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats, all classes alike."""
        return self.log_prob(x)
