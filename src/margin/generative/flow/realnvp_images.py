"""RealNVP of images (Dinh et al. 2017): numbers of 2^b levels, spread over their cells, mapped to noise."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.generative.autoencoder.interpolation import slerp
from margin.generative.autoencoder.unit_interval import unit_inputs
from margin.generative.flow.coupling import Affine, standard_normal
from margin.generative.flow.image_couplings import MultiScale

Images = Float[Tensor, "batch channels height width"]
PerImage = Float[Tensor, " batch"]
Rows = Float[Tensor, "batch features"]

ALPHA = 0.05
"""Share of [0, 1] that is kept free at either end, so that no logit is infinite."""


def logits_of(y: Images) -> tuple[Images, PerImage]:
    r"""The map of [0, 1] to the line, and its log-determinant.

    .. math:: v = \mathrm{logit}(\alpha + (1 - 2 \alpha) y), \quad
        \log v' = \log(1 - 2 \alpha) + \mathrm{softplus}(v) + \mathrm{softplus}(-v)

    Reference: Dinh, Sohl-Dickstein and Bengio 2017, Section 4.1, alpha = .05; as printed, alpha + (1 - alpha)
        y, it is infinite at 1, and what they ran keeps both ends free.
    """
    v = torch.logit(ALPHA + (1 - 2 * ALPHA) * y)
    logs = math.log(1 - 2 * ALPHA) + F.softplus(v) + F.softplus(-v)
    return v, logs.flatten(1).sum(1)


def from_logits(v: Images) -> Images:
    """The y of which v is the logit: in [0, 1], and beyond by alpha / (1 - 2 alpha) at most."""
    return (v.sigmoid() - ALPHA) / (1 - 2 * ALPHA)


class RealNVPImages(nn.Module):
    r"""A distribution of images of L levels, bounded below by a flow's density of their cells.

    A level k of a number is spread evenly over the cell [k, k + 1) / L; with p the flow's density on [0, 1]^D

    .. math:: \log P(k) = \log \int_{[0, 1]^D} p\big(\tfrac{k + u}{L}\big) \frac{du}{L^D}
        \ge E_u \log p\big(\tfrac{k + u}{L}\big) - D \log L

    Args:
        channels: Channels of an image.
        image_size: Its height and width, divisible by 2^(scales - 1).
        scales: Scales; with 1 nothing is squeezed, and any size will do.
        width: Channels of each network.
        blocks: Residual blocks of each network.
        levels: L, the values that a number can have, evenly from 0 to 1; an input is taken to the nearest.
        max_log_scale: Largest |s| of a coupling, which scales by exp(s).

    Raises:
        ValueError: The size cannot be halved so often, or an option is out of range.

    Reference:
        Dinh, Sohl-Dickstein and Bengio 2017, Sections 3.6 and 4.1; Theis, van den Oord and Bethge 2016,
        Section 3.1 (the bound).
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        *,
        scales: int = 2,
        width: int = 32,
        blocks: int = 1,
        levels: int = 256,
        max_log_scale: float = 2.0,
    ) -> None:
        super().__init__()
        if levels < 2:
            raise ValueError(f"levels must be at least 2: got {levels}")
        self.shape, self.levels = (channels, *image_size), levels
        self.couplings = MultiScale(
            channels, image_size, scales=scales, width=width, blocks=blocks, affine=Affine(max_log_scale)
        )

    def transform(self, y: Images) -> tuple[Rows, PerImage]:
        """The noise z = f(y) of images of real numbers in [0, 1], and log |det f'(y)|."""
        v, outer = logits_of(y)
        z, inner = self.couplings(v)
        return z, outer + inner

    def inverse(self, z: Rows) -> Images:
        """The images f^-1(z) of real numbers."""
        return from_logits(self.couplings.inverse(z))

    def log_density(self, y: Images) -> PerImage:
        """The flow's log-density of images of real numbers in [0, 1], in nats: exact."""
        z, log_det = self.transform(y)
        return standard_normal(z) + log_det

    def cell(self, x: Images, u: Float[Tensor, "*batch channels height width"]) -> Images:
        """The points (k + u) / L of the cells of the levels k nearest to the images."""
        k = (unit_inputs(x, "a flow of images") * (self.levels - 1)).round()
        return (k + u) / self.levels

    def _bounded(self, x: Images, u: Tensor) -> PerImage:
        return self.log_density(self.cell(x, u)) - math.prod(self.shape) * math.log(self.levels)

    def bound(self, x: Images, *, generator: Generator) -> PerImage:
        """A lower bound of each log-probability in the mean over the draw, in nats.

        Args:
            x: Images in [0, 1].
            generator: Where the points of the cells are drawn from.

        Raises:
            ValueError: A number is outside of [0, 1].
        """
        return self._bounded(x, torch.rand(x.shape, generator=generator).to(x))

    def noise(self, count: int, generator: Generator) -> Rows:
        """Standard normal rows, in the type and on the device of the weights."""
        weight = next(self.parameters())
        return torch.randn(count, math.prod(self.shape), generator=generator).to(weight)

    def _levels(self, z: Rows) -> Images:
        """The images of noise, at the levels in whose cells they lie, the outer ones with what is beyond."""
        k = (self.inverse(z) * self.levels).floor()
        return k.clamp(0, self.levels - 1) / (self.levels - 1)

    def sample(self, count: int, *, generator: Generator, temperature: float = 1.0) -> Images:
        """Images drawn from the model.

        Args:
            count: How many.
            generator: Where the noise is drawn from.
            temperature: Standard deviation of the noise, positive: below 1 the images are the more likely
                ones, and no longer drawn from the distribution.

        Raises:
            ValueError: The temperature is not positive.
        """
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be positive and finite: got {temperature:g}")
        return self._levels(temperature * self.noise(count, generator))

    def interpolate(self, count: int, *, generator: Generator) -> Images:
        """Images on the path between two that are drawn, along the great circle of their noise."""
        first, last = self.noise(2, generator)
        return self._levels(slerp(first, last, torch.linspace(0, 1, count).to(first)))

    def forward(self, x: Images) -> PerImage:
        """The bound of each image's log-probability in nats, at one draw that is the same for all."""
        u = torch.rand(self.shape, generator=Generator().manual_seed(0))
        return self._bounded(x, u.to(x))
