"""Changes of point clouds (Qi et al., 2017): turned about the vertical, moved as a whole, thinned out."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.data.transforms.noise import uniform

Clouds = Float[Tensor, "batch points axes"]


@dataclass(frozen=True, slots=True)
class Turn:
    """Rotation by a uniform angle in the plane of the first two axes, the others (the vertical) kept.

    Args:
        degrees: Largest angle, to either side; 180 allows all.
    """

    degrees: float

    def __call__(self, x: Clouds, generator: Generator) -> Clouds:
        """Each cloud with a draw of its own."""
        turn = math.radians(self.degrees)
        angle = uniform(len(x), -turn, turn, x, generator)[:, None]
        cos, sin = angle.cos(), angle.sin()
        first, second = x[..., 0], x[..., 1]
        plane = torch.stack((cos * first - sin * second, sin * first + cos * second), -1)
        return torch.cat((plane, x[..., 2:]), -1)


@dataclass(frozen=True, slots=True)
class Move:
    """Translation of the whole cloud, uniform in [-reach, reach] along each axis.

    Args:
        reach: In the unit of the points.
    """

    reach: float

    def __call__(self, x: Clouds, generator: Generator) -> Clouds:
        """Each cloud with a draw of its own."""
        step = uniform(len(x) * x.shape[2], -self.reach, self.reach, x, generator)
        return x + step.reshape(len(x), 1, -1)


@dataclass(frozen=True, slots=True)
class Thin:
    """Each point left out with one probability, which is uniform in [0, share] for each cloud.

    In its place stands the cloud's first point, so that the number of points is kept: as a set, the cloud
    has lost the others.

    Args:
        share: In (0, 1).

    Reference: Qi, Yi, Su and Guibas 2017, "PointNet++", Section 3.3 (random input dropout).
    """

    share: float

    def __call__(self, x: Clouds, generator: Generator) -> Clouds:
        """Each cloud with a draw of its own."""
        share = uniform(len(x), 0.0, self.share, x, generator)[:, None]
        drawn = torch.rand(x.shape[:2], generator=generator, device=generator.device).to(x.device)
        return torch.where((drawn < share)[..., None], x[:, :1], x)
