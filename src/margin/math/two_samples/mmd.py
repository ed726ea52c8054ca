"""The maximum mean discrepancy (Gretton et al. 2012): the distance of the kernel means of two samples."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.math.two_samples.distances import distances, pair


class MMD(NamedTuple):
    """An estimate of the squared maximum mean discrepancy.

    Args:
        value: The unbiased estimate; it may be below 0.
        stderr: Its standard error by the jackknife, which is not too small in expectation.
        bandwidth: Of the kernel, in the unit of the coordinates.
        p_value: Chance of a value as large, were both samples of one law; NaN without permutations.
    """

    value: float
    stderr: float
    bandwidth: float
    p_value: float


def median_distance(x: Float[Tensor, "n dim"], y: Float[Tensor, "m dim"]) -> float:
    """The median distance of the rows of both samples together (Gretton et al. 2012, Section 8)."""
    return float(torch.pdist(torch.cat((x, y))).median())


def gaussian_kernel(
    x: Float[Tensor, "n dim"], y: Float[Tensor, "m dim"], bandwidth: float
) -> Float[Tensor, "n m"]:
    r"""exp(-\|x - y\|^2 / (2 bandwidth^2)) of each pair of rows."""
    return (distances(x, y).square() / (-2 * bandwidth**2)).exp()


def squared_mmd(
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."],
    *,
    bandwidth: float | None = None,
    permutations: int = 0,
    generator: Generator | None = None,
) -> MMD:
    r"""The unbiased estimate of the squared maximum mean discrepancy with a Gaussian kernel.

    .. math:: \frac{\sum_{i \ne j} k(x_i, x_j)}{n (n - 1)} + \frac{\sum_{i \ne j} k(y_i, y_j)}{m (m - 1)}
        - \frac{2 \sum_{i, j} k(x_i, y_j)}{n m}

    The p-value is (1 + number of permutations with a value as large) / (1 + permutations): valid at any size.
    Memory grows with the square of the number of rows.

    Args:
        x: Examples, at least 3; more axes are flattened.
        y: Examples to compare with, at least 3.
        bandwidth: Of the kernel, positive; :func:`median_distance` if not given.
        permutations: How often the rows are dealt anew for the p-value.
        generator: Where the permutations are drawn from.

    Raises:
        ValueError: A sample is too small or not finite, the widths differ, the bandwidth is not positive, or
            permutations are asked for without a generator.

    Reference:
        Gretton, Borgwardt, Rasch, Schoelkopf and Smola 2012, Lemma 6; Efron and Stein 1981, Section 2 (the
        jackknife); Phipson and Smyth 2010 (the p-value).
    """
    x, y = pair(x, y, least=3)
    if bandwidth is None:
        bandwidth = median_distance(x, y)
        if bandwidth == 0:
            raise ValueError(
                "the median distance must be positive: half of the rows are equal; set a bandwidth"
            )
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive: got {bandwidth}")
    if permutations and generator is None:
        raise ValueError(f"permutations need a generator: got {permutations} without one")
    joint = torch.cat((x, y))
    kernel = gaussian_kernel(joint, joint, bandwidth).fill_diagonal_(0)  # no row is compared with itself
    value, stderr = _jackknife(kernel, len(x))
    p_value = float("nan")
    if permutations and generator is not None:
        p_value = _p_value(kernel, len(x), value, permutations, generator)
    return MMD(value, stderr, bandwidth, p_value)


def _estimate(xx: Tensor, yy: Tensor, xy: Tensor, n: int, m: int) -> Tensor:
    """The estimate from the sums of the kernel within both samples and between them."""
    return xx / (n * (n - 1)) + yy / (m * (m - 1)) - 2 * xy / (n * m)


def _jackknife(kernel: Float[Tensor, "total total"], n: int) -> tuple[float, float]:
    """The estimate, and its standard error from leaving out each row once."""
    m = len(kernel) - n
    within = torch.cat((kernel[:n, :n].sum(1), kernel[n:, n:].sum(1)))
    across = torch.cat((kernel[:n, n:].sum(1), kernel[n:, :n].sum(1)))
    xx, yy, xy = within[:n].sum(), within[n:].sum(), across[:n].sum()
    value = _estimate(xx, yy, xy, n, m)
    without_x = _estimate(xx - 2 * within[:n], yy, xy - across[:n], n - 1, m)
    without_y = _estimate(xx, yy - 2 * within[n:], xy - across[n:], n, m - 1)
    variance = sum(
        (len(part) - 1) / len(part) * float((part - part.mean()).square().sum())
        for part in (without_x, without_y)
    )
    return float(value), variance**0.5


def _p_value(
    kernel: Float[Tensor, "total total"], n: int, value: float, permutations: int, generator: Generator
) -> float:
    total = len(kernel)
    dealt = torch.zeros(total, permutations, dtype=kernel.dtype)
    for column in dealt.unbind(1):
        column[torch.randperm(total, generator=generator)[:n]] = 1
    dealt = dealt.to(kernel.device)
    ours, others = kernel @ dealt, kernel @ (1 - dealt)
    xx, yy, xy = (dealt * ours).sum(0), ((1 - dealt) * others).sum(0), (dealt * others).sum(0)
    rounding = 1e-12 * float(kernel.mean())
    exceeding = int((_estimate(xx, yy, xy, n, total - n) >= value - rounding).sum())
    return (1 + exceeding) / (1 + permutations)
