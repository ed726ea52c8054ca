r"""The sliced Wasserstein distance (Bonneel, Rabin, Peyre & Pfister 2015): transport along random lines.

On a line the optimal transport between two samples is known: the quantiles go to the quantiles.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.math.two_samples.distances import pair

CHUNK = 2**22
"""Projections that are sorted at a time."""


class Sliced(NamedTuple):
    """A sliced Wasserstein distance between two samples, and the error of having drawn directions.

    Args:
        value: The distance, in the unit of the coordinates.
        stderr: Standard error over directions; 0 on the line. The error of having drawn samples is not in it.
    """

    value: float
    stderr: float


def wasserstein(
    x: Float[Tensor, "n slices"], y: Float[Tensor, "m slices"], *, order: float = 1.0
) -> Float[Tensor, " slices"]:
    r"""The Wasserstein distance of two samples on the line, exactly, column by column; sizes may differ.

    .. math:: W_p = \Big(\int_0^1 |F^{-1}(u) - G^{-1}(u)|^p\, du\Big)^{1/p}

    Both quantile functions are steps, at multiples of 1/n and 1/m; the integral is a sum over the common
    refinement, whose ends are whole multiples of 1/(n m).

    Args:
        x: Values, a column for each comparison.
        y: Values to compare with.
        order: p >= 1.

    Raises:
        ValueError: The order is below 1, or a sample is empty.

    Reference: Villani 2003, Topics in Optimal Transportation, Theorem 2.18.
    """
    return _powers(x, y, order) ** (1 / order)


def sliced_wasserstein(
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."],
    *,
    generator: Generator,
    directions: int = 200,
    order: float = 2.0,
) -> Sliced:
    r"""The sliced Wasserstein distance between two samples, of random directions.

    .. math:: SW_p = \Big(\mathbb E_{\theta} W_p(\theta^\top X, \theta^\top Y)^p\Big)^{1/p},
        \quad \theta \text{ uniform on the unit sphere}

    Between two finite samples of one law it is above 0: compare with what two samples of the data have.

    Args:
        x: Examples; more axes are flattened.
        y: Examples to compare with.
        generator: Where the directions are drawn from.
        directions: Number of directions, at least 2; on the line there is one and nothing is drawn.
        order: p >= 1.

    Raises:
        ValueError: A sample is empty or not finite, the widths differ, or an option is out of range.

    Reference: Kolouri, Nadjahi, Simsekli, Badeau and Rohde 2019, Section 2.
    """
    x, y = pair(x, y)
    if x.shape[1] == 1:
        return Sliced(float(wasserstein(x, y, order=order)), 0.0)
    if directions < 2:
        raise ValueError(f"directions must be at least 2, for an error: got {directions}")
    theta = torch.randn(x.shape[1], directions, generator=generator, dtype=torch.float64).to(x.device)
    theta = theta / theta.norm(dim=0)
    size = max(1, CHUNK // (len(x) + len(y)))
    powers = torch.cat([_powers(x @ some, y @ some, order) for some in theta.split(size, dim=1)])
    mean, error = float(powers.mean()), float(powers.std()) / directions**0.5
    # the derivative of the root carries the error over
    stderr = error * mean ** (1 / order - 1) / order if mean > 0 else 0.0
    return Sliced(mean ** (1 / order), stderr)


def _powers(
    x: Float[Tensor, "n slices"], y: Float[Tensor, "m slices"], order: float
) -> Float[Tensor, " slices"]:
    n, m = len(x), len(y)
    if not order >= 1:
        raise ValueError(f"order must be at least 1: got {order}")
    if n == 0 or m == 0:
        raise ValueError(f"a distance needs two samples: got {n} and {m} rows")
    left = torch.cat((torch.arange(n, device=x.device) * m, torch.arange(m, device=x.device) * n)).unique()
    width = torch.cat((left, left.new_tensor([n * m]))).diff().to(x.dtype) / (n * m)
    apart = x.sort(0).values[left // m] - y.sort(0).values[left // n]
    return width @ apart.abs() ** order
