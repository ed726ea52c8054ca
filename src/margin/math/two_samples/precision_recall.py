"""Precision and recall of a generator (Kynkaanniemi et al. 2019), density and coverage (Naeem et al. 2020).

The support of a law is estimated by balls around its examples, each reaching to the k-th nearest other.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from margin.math.two_samples.distances import blocks, pair


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """How the supports of a real and a generated sample overlap, row by row.

    Args:
        precise: Whether each generated row lies in a ball of a real one.
        recalled: Whether each real row lies in a ball of a generated one.
        dense: In how many balls of real rows each generated row lies, divided by k.
        covered: Whether each real row's ball holds a generated row.
    """

    precise: Bool[Tensor, " generated"]
    recalled: Bool[Tensor, " real"]
    dense: Float[Tensor, " generated"]
    covered: Bool[Tensor, " real"]

    @property
    def precision(self) -> float:
        """Share of generated rows within the estimated support of the data: how good they are."""
        return float(self.precise.double().mean())

    @property
    def recall(self) -> float:
        """Share of real rows within the estimated support of the generator: how much it reaches."""
        return float(self.recalled.double().mean())

    @property
    def density(self) -> float:
        """Mean of ``dense``; 1 in expectation where both laws are one, unbounded above."""
        return float(self.dense.mean())

    @property
    def coverage(self) -> float:
        """Share of real rows near which the generator puts something."""
        return float(self.covered.double().mean())

    @property
    def values(self) -> Float[Tensor, "4"]:
        """Precision, recall, density, coverage."""
        return torch.tensor([self.precision, self.recall, self.density, self.coverage], dtype=torch.float64)


def radii(x: Float[Tensor, "n dim"], neighbors: int) -> Float[Tensor, " n"]:
    """The distance of each row to its k-th nearest other."""
    found = []
    for part, apart in blocks(x, x):
        own = torch.arange(part.start, part.stop, device=x.device)
        apart[own - part.start, own] = torch.inf
        found.append(apart.kthvalue(neighbors, dim=1).values)
    return torch.cat(found)


def overlap(
    real: Float[Tensor, "n ..."], generated: Float[Tensor, "m ..."], *, neighbors: int = 5
) -> Overlap:
    r"""Precision, recall, density and coverage of a generated sample beside a real one.

    With B(x) the closed ball around x that reaches to its k-th nearest other row of the same sample:

    .. math:: \mathrm{precision} = \tfrac1m \textstyle\sum_j 1[y_j \in \bigcup_i B(x_i)], \quad
        \mathrm{recall} = \tfrac1n \sum_i 1[x_i \in \bigcup_j B(y_j)],

    .. math:: \mathrm{density} = \tfrac1{km} \textstyle\sum_j \sum_i 1[y_j \in B(x_i)], \quad
        \mathrm{coverage} = \tfrac1n \sum_i 1[\exists j: y_j \in B(x_i)].

    Args:
        real: Examples of the data, or features of them.
        generated: Examples of the generator, in the same features.
        neighbors: k, from 1 to one less than the size of either sample.

    Raises:
        ValueError: A sample has no k other rows or is not finite, or the widths differ.

    Reference: Kynkaanniemi et al. 2019, Equations 1 and 2; Naeem et al. 2020, Section 3.
    """
    if neighbors < 1:
        raise ValueError(f"neighbors must be at least 1: got {neighbors}")
    real, generated = pair(
        real, generated, least=neighbors + 1, names=("the real sample", "the generated sample")
    )
    own, other = radii(real, neighbors), radii(generated, neighbors)
    balls = torch.zeros(len(generated), dtype=torch.int64, device=real.device)
    recalled, covered = [], []
    for part, apart in blocks(real, generated):
        inside = apart <= own[part, None]
        balls += inside.sum(0)
        covered.append(inside.any(1))
        recalled.append((apart <= other).any(1))
    return Overlap(balls > 0, torch.cat(recalled), balls.double() / neighbors, torch.cat(covered))


def expected_coverage(real: int, generated: int, *, neighbors: int = 5) -> float:
    r"""The expectation of coverage where both samples are of one continuous law.

    .. math:: 1 - \frac{(n - 1) \cdots (n - k)}{(m + n - 1) \cdots (m + n - k)}

    The ball of a real row holds no generated one if and only if the nearest k of the m + n - 1 others are
    real.

    Args:
        real: n.
        generated: m.
        neighbors: k < n.

    Reference: Naeem, Oh, Uh, Choi and Yoo 2020, Section 3.
    """
    missed = 1.0
    for i in range(1, neighbors + 1):
        missed *= (real - i) / (real + generated - i)
    return 1 - missed


def overlap_stderr(
    real: Float[Tensor, "n ..."],
    generated: Float[Tensor, "m ..."],
    *,
    generator: Generator,
    neighbors: int = 5,
    groups: int = 8,
) -> Float[Tensor, "4"]:
    r"""Standard errors of precision, recall, density and coverage, from leaving out groups of rows in turn.

    The jackknife of two samples: the variances from leaving out real groups and generated groups add. Not the
    bootstrap: a row drawn twice is its own nearest neighbor.

    Args:
        real: Examples of the data.
        generated: Examples of the generator.
        generator: Where the groups are drawn from.
        neighbors: k.
        groups: Into how many either sample is cut, at least 2, each with more than k rows left.

    Reference: Efron and Stein 1981, Section 2; Shao and Tu 1995, Section 2.3 (groups).
    """
    if not 2 <= groups <= min(len(real), len(generated)):
        raise ValueError(
            f"groups must be in 2 .. the size of a sample: got {groups} of {len(real)}, {len(generated)}"
        )
    variance = torch.zeros(4, dtype=torch.float64)
    for side, sample in enumerate((real, generated)):
        order = torch.randperm(len(sample), generator=generator).tensor_split(groups)
        left = []
        for k in range(groups):
            rest = sample[torch.cat(order[:k] + order[k + 1 :]).to(sample.device)]
            pair_left = (rest, generated) if side == 0 else (real, rest)
            left.append(overlap(*pair_left, neighbors=neighbors).values)
        values = torch.stack(left)
        variance += (groups - 1) / groups * (values - values.mean(0)).square().sum(0)
    return variance.sqrt()
