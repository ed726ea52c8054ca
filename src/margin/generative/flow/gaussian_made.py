"""A masked network of a density (Papamakarios et al. 2017): a Gaussian of each number given those before."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.generative.autoencoder.interpolation import slerp
from margin.generative.flow.coupling import standard_normal
from margin.generative.flow.made import Autoregressive
from margin.nn.activations import Activation

Rows = Float[Tensor, "batch features"]
PerRow = Float[Tensor, " batch"]


class GaussianMADE(nn.Module):
    r"""A density of rows by a Gaussian of each number given those before it.

    .. math:: x_d = \mu_d(x_{<d}) + e^{s_d(x_{<d})} z_d, \qquad z \sim N(0, I)

    so that it is a flow too, whose Jacobian is triangular: z = f(x) at once, f^-1 one number after the other.

    Args:
        in_features: D; an input of more axes is flattened.
        hidden: Widths of the layers between.
        activation: Between the layers.
        max_log_scale: Largest |s|, positive.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Uria, Murray and Larochelle 2013, Section 3 (a Gaussian of each); Papamakarios, Pavlakou and Murray
        2017, Equations 2 to 5. s is limited by a tanh, so that no density is
        unbounded.
    """

    def __init__(
        self,
        in_features: int,
        *,
        hidden: tuple[int, ...] = (64, 64),
        activation: Activation = "relu",
        max_log_scale: float = 5.0,
    ) -> None:
        super().__init__()
        if not 0 < max_log_scale < math.inf:
            raise ValueError(f"max_log_scale must be positive: got {max_log_scale:g}")
        self.in_features, self.limit = in_features, max_log_scale
        self.network = Autoregressive(in_features, 2, hidden=hidden, activation=activation)

    def _shape(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, s = self.network(x).chunk(2, 1)
        return mean, self.limit * torch.tanh(s)

    def transform(self, x: Float[Tensor, " batch *shape"]) -> tuple[Rows, PerRow]:
        """The noise z = f(x) of each row, and log |det f'(x)|."""
        x = x.flatten(1)
        mean, s = self._shape(x)
        return (x - mean) * torch.exp(-s), -s.sum(1)

    def inverse(self, z: Rows) -> Rows:
        """The row f^-1(z) of each noise."""
        columns: list[Tensor] = []
        for d in range(self.in_features):
            x = F.pad(torch.stack(columns, 1), (0, self.in_features - d)) if d else torch.zeros_like(z)
            mean, s = self._shape(x)
            columns.append(mean[:, d] + s[:, d].exp() * z[:, d])
        return torch.stack(columns, 1)

    def log_prob(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats, in the model's own units."""
        z, log_det = self.transform(x)
        return standard_normal(z) + log_det

    def noise(self, count: int, generator: Generator) -> Rows:
        """Standard normal rows, in the type and on the device of the weights."""
        weight = next(self.parameters())
        return torch.randn(count, self.in_features, generator=generator).to(weight)

    def sample(self, count: int, *, generator: Generator) -> Rows:
        """Rows drawn from the model, one number after the other."""
        return self.inverse(self.noise(count, generator))

    def interpolate(self, count: int, *, generator: Generator) -> Rows:
        """Rows on the path between two that are drawn, along the great circle of their noise."""
        first, last = self.noise(2, generator)
        return self.inverse(slerp(first, last, torch.linspace(0, 1, count).to(first)))

    def forward(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats."""
        return self.log_prob(x)
