"""Flows of coupling layers (Dinh et al. 2017; Durkan et al. 2019): a density that is sampled at once.

With classes, every network is conditioned on the class: a density for each class, and their mean.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.composition import headed
from margin.generative.autoencoder.distributions import noise_path
from margin.generative.flow.coupling import Affine, Couplings, Monotone, Spline, in_pieces, standard_normal
from margin.nn.activations import Activation

Rows = Float[Tensor, "batch features"]
PerRow = Float[Tensor, " batch"]
Labels = Int[Tensor, " batch"]


class CouplingFlow(nn.Module):
    r"""The density of x = f^-1(z), z ~ N(0, I), where f is a chain of couplings.

    .. math:: \log p(x) = \log N(f(x); 0, I) + \log |\det f'(x)|

    Args:
        couplings: f.

    Reference:
        Dinh, Sohl-Dickstein and Bengio 2017, Equations 2 to 8.
    """

    def __init__(self, couplings: Couplings) -> None:
        super().__init__()
        self.in_features = sum(couplings.sizes)
        self.couplings = couplings

    def transform(self, x: Float[Tensor, " batch *shape"]) -> tuple[Rows, PerRow]:
        """The noise z = f(x) of each row, and log |det f'(x)|."""
        z, log_det = self.couplings(x.flatten(1))
        return z, log_det

    def inverse(self, z: Rows) -> Rows:
        """The row f^-1(z) of each noise."""
        return in_pieces(self.couplings.inverse, z)

    def log_prob(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats, in the model's own units."""
        return in_pieces(self._log_prob, x.flatten(1))

    def _log_prob(self, x: Tensor) -> Tensor:
        z, log_det = self.transform(x)
        return standard_normal(z) + log_det

    def noise(self, count: int, generator: Generator) -> Rows:
        """Standard normal rows, in the type and on the device of the weights."""
        weight = next(self.parameters())
        return torch.randn(count, self.in_features, generator=generator).to(weight)

    def sample(self, count: int, *, generator: Generator, temperature: float = 1.0) -> Rows:
        """Rows drawn from the model.

        Args:
            count: How many.
            generator: Where the noise is drawn from.
            temperature: Standard deviation of the noise, positive: below 1 the rows are the more likely ones,
                and no longer drawn from the density.

        Raises:
            ValueError: The temperature is not positive.
        """
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be positive and finite: got {temperature:g}")
        return self.inverse(temperature * self.noise(count, generator))

    def interpolate(self, count: int, *, generator: Generator) -> Rows:
        """Rows on the path between two that are drawn, along the great circle of their noise."""
        first, last = self.noise(2, generator)
        return self.inverse(noise_path(first, last, count))

    def forward(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats: low for a row unlike those it was trained on."""
        return self.log_prob(x)


class ConditionalRealNVP(nn.Module):
    r"""The density of x = f_c^-1(z), z ~ N(0, I), given the class c, which every coupling's network sees.

    .. math:: \log p(x \mid c) = \log N(f_c(x); 0, I) + \log |\det f_c'(x)|, \qquad
        p(x) = \frac1K \sum_c p(x \mid c)

    Args:
        couplings: Whose networks see K indicators of the class besides.
        num_classes: K.

    Reference:
        Dinh, Sohl-Dickstein and Bengio 2017, Equations 2 to 8, all given c.
    """

    def __init__(self, couplings: Couplings, num_classes: int) -> None:
        super().__init__()
        self.in_features, self.num_classes = sum(couplings.sizes), num_classes
        self.couplings = couplings

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
        z = noise_path(first, last, count)
        return self.inverse_given(z, self._labels(count, label, z))

    def forward(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats, all classes alike."""
        return self.log_prob(x)


Chain = Callable[[Monotone, int], Couplings]
"""``(monotone, context) -> couplings``, each of which moves a number so and sees so many numbers besides."""


def chain(
    in_features: int,
    *,
    layers: int = 8,
    hidden: tuple[int, ...] = (64, 64),
    activation: Activation = "relu",
) -> Chain:
    """A chain of couplings, whatever their maps are.

    Args:
        in_features: Numbers of a row, at least 2; an input of more axes is flattened.
        layers: Couplings, at least 2.
        hidden: Widths of the layers of each network.
        activation: Between the layers of a network.
    """
    return lambda monotone, context: Couplings(
        in_features, context, monotone=monotone, layers=layers, hidden=hidden, activation=activation
    )


def affine_flow(chain: Chain, *, max_log_scale: float = 2.0) -> CouplingFlow:
    """The flow of affine couplings.

    Args:
        chain: The couplings.
        max_log_scale: Largest |s| of a coupling, which scales by exp(s).
    """
    return CouplingFlow(chain(Affine(max_log_scale), 0))


def conditional_affine_flow(
    chain: Chain, num_classes: int, *, max_log_scale: float = 2.0
) -> ConditionalRealNVP:
    """The flow of affine couplings that see the class.

    Args:
        chain: The couplings.
        num_classes: Number of classes.
        max_log_scale: Largest |s| of a coupling, which scales by exp(s).
    """
    return ConditionalRealNVP(chain(Affine(max_log_scale), num_classes), num_classes)


def spline_flow(chain: Chain, *, bins: int = 8, box: float = 3.0) -> CouplingFlow:
    """The flow of couplings by splines.

    Args:
        chain: The couplings.
        bins: Pieces of each spline.
        box: Half the side of the box outside of which nothing is moved, in the model's units: standard
            deviations where the inputs are standardized.
    """
    return CouplingFlow(chain(Spline(bins, box), 0))


realnvp = headed(chain, affine_flow, "A flow of affine couplings.")
conditional_realnvp = headed(
    chain, conditional_affine_flow, "A flow of affine couplings, conditioned on the class."
)
neural_spline_flow = headed(
    chain, spline_flow, "A flow of couplings by monotone rational-quadratic splines.", defaults={"layers": 4}
)
