"""Mixtures of equal round Gaussians in the plane, on a ring and on a grid, whose modes are known.

The two sets on which mode collapse is counted (Metz, Poole, Pfau & Sohl-Dickstein 2017, section 3.1;
Srivastava, Valkov, Russell, Gutmann & Sutton 2017, section 5.1).
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.data.assembly import Raw, assemble
from margin.data.examples import Data
from margin.data.options import option_groups
from margin.data.sets.synthetic import raw_of
from margin.data.splits import Split
from margin.math.seeds import mix


@option_groups()
def ring(
    *,
    examples: int = 2000,
    modes: int = 8,
    radius: float = 2.0,
    std: float = 0.02,
    seed: int = 0,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Gaussians N(m_k, std^2 I) of equal weight, evenly spaced on a circle around the origin.

    m_k = radius (cos 2 pi k / K, sin 2 pi k / K), k = 0 .. K-1. The class is the component; the components
    take turns. The defaults are those of Metz et al.: K = 8, radius 2, standard deviation 0.02. Srivastava et
    al. use the same set at half the size: radius 1, standard deviation 0.01.

    Args:
        examples: Number of examples, shared evenly by the components.
        modes: Number K of components, at least 2.
        radius: Distance of the means from the origin, positive.
        std: Standard deviation of each coordinate, positive.
        seed: Seed of the examples.
        domain: Least and largest value that a coordinate may take.
        split: Test and validation part, seed.

    Reference: Metz, Poole, Pfau & Sohl-Dickstein 2017, Unrolled generative adversarial networks, section 3.1.
    """
    _check("ring", "modes", modes, "radius", radius)
    angle = 2 * math.pi * torch.arange(modes, dtype=torch.float64) / modes
    means = radius * torch.stack((angle.cos(), angle.sin()), 1)
    raw = _mixture("ring", means, std, examples, seed, domain)
    return assemble(raw, split)


@option_groups()
def grid(
    *,
    examples: int = 5000,
    side: int = 5,
    spacing: float = 2.0,
    std: float = 0.05,
    seed: int = 0,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Gaussians N(m_k, std^2 I) of equal weight, on a square grid around the origin.

    With the defaults the 25 means are all pairs from -4, -2, 0, 2, 4, and the standard deviation is 0.05. The
    class is the component, row by row from below; the components take turns.

    Args:
        examples: Number of examples, shared evenly by the components.
        side: Components on a side, at least 2.
        spacing: Distance of neighboring means, positive.
        std: Standard deviation of each coordinate, positive.
        seed: Seed of the examples.
        domain: Least and largest value that a coordinate may take.
        split: Test and validation part, seed.

    Reference: Srivastava, Valkov, Russell, Gutmann & Sutton 2017, VEEGAN, section 5.1.
    """
    _check("grid", "side", side, "spacing", spacing)
    along = spacing * (torch.arange(side, dtype=torch.float64) - (side - 1) / 2)
    y, x = torch.meshgrid(along, along, indexing="ij")
    means = torch.stack((x.flatten(), y.flatten()), 1)
    raw = _mixture("grid", means, std, examples, seed, domain)
    return assemble(raw, split)


def _check(name: str, count_name: str, count: int, length_name: str, length: float) -> None:
    if count < 2:
        raise ValueError(f"{name}: {count_name} must be at least 2: got {count}")
    if not 0 < length < math.inf:
        raise ValueError(f"{name}: {length_name} must be positive and finite: got {length}")


def _mixture(
    name: str,
    means: Float[Tensor, "modes 2"],
    std: float,
    examples: int,
    seed: int,
    domain: tuple[float, float] | None,
) -> Raw[Tensor]:
    if examples < len(means):
        raise ValueError(
            f"{name}: examples must be at least the number of components, {len(means)}: got {examples}"
        )
    if not 0 < std < math.inf:
        raise ValueError(f"{name}: std must be positive and finite: got {std}")
    generator = Generator().manual_seed(mix(seed, 11))
    labels = torch.arange(examples) % len(means)
    noise = torch.randn(examples, 2, generator=generator, dtype=torch.float64)
    truth = {"means": means.tolist(), "std": std, "weights": [1 / len(means)] * len(means)}
    return raw_of(name, means[labels] + std * noise, labels, truth, domain)
