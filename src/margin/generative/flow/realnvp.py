"""Flows of coupling layers (Dinh et al. 2017; Durkan et al. 2019): a density that is sampled at once."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.generative.autoencoder.interpolation import slerp
from margin.generative.flow.coupling import Affine, Couplings, Monotone, in_pieces, standard_normal
from margin.generative.flow.spline_coupling import Spline
from margin.nn.activations import Activation

Rows = Float[Tensor, "batch features"]
PerRow = Float[Tensor, " batch"]


class CouplingFlow(nn.Module):
    r"""The density of x = f^-1(z), z ~ N(0, I), where f is a chain of couplings.

    .. math:: \log p(x) = \log N(f(x); 0, I) + \log |\det f'(x)|

    Args:
        in_features: Numbers of a row, at least 2; an input of more axes is flattened.
        monotone: How a coupling moves a number.
        layers: Couplings, at least 2.
        hidden: Widths of the layers of each network.
        activation: Between the layers of a network.

    Raises:
        ValueError: There are fewer than two features or layers.

    Reference:
        Dinh, Sohl-Dickstein and Bengio 2017, Equations 2 to 8.
    """

    def __init__(
        self,
        in_features: int,
        monotone: Monotone,
        *,
        layers: int,
        hidden: tuple[int, ...],
        activation: Activation,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.couplings = Couplings(
            in_features, 0, monotone=monotone, layers=layers, hidden=hidden, activation=activation
        )

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
        return self.inverse(slerp(first, last, torch.linspace(0, 1, count).to(first)))

    def forward(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats: low for a row unlike those it was trained on."""
        return self.log_prob(x)


def realnvp(
    in_features: int,
    *,
    layers: int = 8,
    hidden: tuple[int, ...] = (64, 64),
    activation: Activation = "relu",
    max_log_scale: float = 2.0,
) -> CouplingFlow:
    """A flow of affine couplings.

    Args:
        in_features: Numbers of a row, at least 2.
        layers: Couplings, at least 2.
        hidden: Widths of the layers of each network.
        activation: Between the layers of a network.
        max_log_scale: Largest |s| of a coupling, which scales by exp(s).
    """
    return CouplingFlow(
        in_features, Affine(max_log_scale), layers=layers, hidden=hidden, activation=activation
    )


def neural_spline_flow(
    in_features: int,
    *,
    layers: int = 4,
    hidden: tuple[int, ...] = (64, 64),
    activation: Activation = "relu",
    bins: int = 8,
    box: float = 3.0,
) -> CouplingFlow:
    """A flow of couplings by monotone rational-quadratic splines.

    Args:
        in_features: Numbers of a row, at least 2.
        layers: Couplings, at least 2.
        hidden: Widths of the layers of each network.
        activation: Between the layers of a network.
        bins: Pieces of each spline.
        box: Half the side of the box outside of which nothing is moved, in the model's units: standard
            deviations where the inputs are standardized.
    """
    return CouplingFlow(in_features, Spline(bins, box), layers=layers, hidden=hidden, activation=activation)
