"""Linear separation (Gordan 1873; Minsky and Papert 1969): a separating hyperplane, or a proof of none.

Points are signed and homogeneous, z = y (x, 1): w separates them where w . z > 0 for each. The w that do
form the version space, an open convex cone.
"""

import math
from itertools import combinations, islice
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.classic.perceptron.model import mistakes_of_pass
from margin.core.deadline import check_deadline, seconds_left
from margin.core.findings import Premise, Status

RESOLUTION = 1e-9
"""What counts as 0 in units of the largest value: solvers work to about as much."""

MOST_ROWS, MOST_ENTRIES = 5000, 2_000_000
"""Rows and numbers up to which the largest margin is sought; above, the mistake rule's separator serves."""

PASSES = 100
"""Passes that the mistake rule is given to find it."""

MOST_SUBSETS = 200_000
CHUNK = 4096


class Separation(NamedTuple):
    r"""What is proved about points z: gamma(w) <= the largest margin <= \|sum_i a_i z_i\|.

    For every unit w, min_i w . z_i <= sum_i a_i w . z_i <= \|sum_i a_i z_i\|, whatever the weights a >= 0 of
    sum 1. So neither half of the answer rests on a solver: both are evaluated from what it returned.

    Args:
        weight: A unit w.
        combination: The a: a convex combination of the points.
        margin: min_i w . z_i, at most the largest margin.
        bound: The length of the combination, at least the largest margin.
        radius: The length of the longest point.
        separable: Whether every w . z_i is positive by more than its rounding.
        residual: The largest coordinate of the combination, each in units of that coordinate's largest value.
    """

    weight: Float[Tensor, " features"]
    combination: Float[Tensor, " rows"]
    margin: float
    bound: float
    radius: float
    separable: bool
    residual: float

    @property
    def inseparable(self) -> bool:
        """Whether the combination is 0 to RESOLUTION, so that no hyperplane separates by more."""
        return not self.separable and self.residual <= RESOLUTION

    @property
    def premise(self) -> Premise:
        """The hypothesis of every theorem on separable examples, proved or refuted here."""
        status: Status = "proved" if self.separable else "refuted" if self.inseparable else "assumed"
        return Premise("some hyperplane separates the examples", status, self.evidence())

    def evidence(self) -> str:
        """What was proved, in words."""
        if self.separable:
            exact = self.bound <= self.margin * (1 + 1e-6)
            what = "largest margin" if exact else "margin of a separator, a lower bound of the largest"
            return f"{what}: gamma = {self.margin:.4g}, R = {self.radius:.4g}"
        none = f"a convex combination of the y (x, 1) has length {self.bound:.2g}, and no margin exceeds it"
        return f"the linear program is infeasible: {none}" if self.inseparable else f"undecided: {none}"


def homogeneous(
    x: Float[Tensor, "rows features"], sign: Float[Tensor, " rows"]
) -> Float[Tensor, "rows augmented"]:
    """The signed points y (x, 1), whose separators (w, b) go through the origin."""
    return sign[:, None] * torch.cat((x, torch.ones_like(x[:, :1])), 1)


def separate(z: Float[Tensor, "rows features"]) -> Separation:
    """A separator of the largest margin, or a proof that there is none.

    The point of the convex hull nearest to the origin is normal to the widest separator; it is found by
    nonnegative least squares. Where its rounding leaves the question open, a linear program decides. More
    than MOST_ROWS rows are given to the mistake rule, whose separator has not the largest margin; where it
    finds none, the rows of most mistakes are looked at: if these cannot be separated, all cannot.

    Args:
        z: Signed homogeneous points, one a row; computed in float64.

    Raises:
        ValueError: There is no point, or a coordinate is not finite.

    Reference:
        Gordan 1873 (the alternative); Lawson and Hanson 1974, Chapter 23, Section 4 (least distance).
    """
    if len(z) == 0:
        raise ValueError("separation needs a point: got none")
    z = z.detach().double().cpu()
    if bad := (~z.isfinite()).nonzero().tolist():
        row, column = bad[0]
        raise ValueError(f"points must be finite: got {float(z[row, column])} in row {row}, column {column}")
    if not bool(z.any(1).all()):  # a point at 0 has w . z = 0 for every w
        return certified(z[0], (~z.any(1)).double(), z)
    small = len(z) <= MOST_ROWS and z.numel() <= MOST_ENTRIES
    found = nearest_point(z) if small else by_mistakes(z)
    if found.separable or found.inseparable:
        return found
    return by_linear_program(z) if z.numel() <= MOST_ENTRIES else among_hardest(z, found)


def certified(
    weight: Float[Tensor, " features"],
    combination: Float[Tensor, " rows"],
    z: Float[Tensor, "rows features"],
) -> Separation:
    """Both bounds, evaluated for any w, of any length, and any weights a >= 0, of any sum."""
    length, total = float(weight.norm()), float(combination.sum())
    unit = weight / length if length > 0 else weight
    a = combination / total if total > 0 else torch.full_like(combination, 1 / len(z))
    score, point = z @ unit, a @ z
    rounding = (z.shape[1] + 2) * torch.finfo(z.dtype).eps * (z.abs() @ unit.abs())
    largest = z.abs().amax(0)
    residual = (point.abs() / largest.where(largest > 0, 1)).max()
    return Separation(
        weight=unit,
        combination=a,
        margin=float(score.min()),
        bound=float(point.norm()),
        radius=float(z.norm(dim=1).max()),
        separable=bool((score > rounding).all()),
        residual=float(residual),
    )


def nearest_point(z: Float[Tensor, "rows features"]) -> Separation:
    r"""The point of the convex hull nearest to the origin: min \|(Z^T; 1^T) u - (0, 1)\|^2 over u >= 0.

    Reference: Lawson and Hanson 1974, Chapter 23, Algorithm LDP (23.27).
    """
    from scipy.optimize import nnls

    scaled = z / z.norm(dim=1).max()
    system = torch.cat((scaled.T, scaled.new_ones(1, len(z))))
    target = system.new_zeros(len(system))
    target[-1] = 1
    u = torch.from_numpy(nnls(system.numpy(), target.numpy(), maxiter=10 * sum(system.shape))[0])
    return certified(u @ z, u, z)


def by_linear_program(z: Float[Tensor, "rows features"]) -> Separation:
    """The largest t such that w . z_i >= t and each |w_j| <= 1: t > 0 where the points can be separated.

    Each coordinate is first divided by its largest value. The multipliers of the rows are the weights of
    the convex combination.
    """
    from scipy.optimize import linprog

    rows, features = z.shape
    largest = z.abs().amax(0)
    unit = largest.where(largest > 0, 1)
    program = linprog(
        c=[0.0] * features + [-1.0],
        A_ub=torch.cat((-z / unit, z.new_ones(rows, 1)), 1).numpy(),
        b_ub=[0.0] * rows,
        bounds=[(-1, 1)] * features + [(None, None)],
        method="highs",
        options={
            "primal_feasibility_tolerance": 1e-10,
            "dual_feasibility_tolerance": 1e-10,
            "time_limit": seconds_left(),
        },
    )
    if program.status == 1:
        check_deadline()
    if not program.success:
        raise ArithmeticError(f"the linear program did not end: {program.message}")
    multipliers = torch.tensor(-program.ineqlin.marginals, dtype=z.dtype).clamp(min=0)
    return certified(torch.tensor(program.x[:-1], dtype=z.dtype) / unit, multipliers, z)


def by_mistakes(z: Float[Tensor, "rows features"]) -> Separation:
    """What PASSES of the mistake rule find: after t mistakes w / t is a convex combination of the points."""
    w, counts = torch.zeros_like(z[0]), torch.zeros_like(z[:, 0])
    for _ in range(PASSES):
        check_deadline()
        made = mistakes_of_pass(w, None, z, torch.ones_like(counts))
        counts[made] += 1
        if len(made) == 0:
            break
    return certified(w, counts, z)


def among_hardest(z: Float[Tensor, "rows features"], found: Separation) -> Separation:
    """The rows of greatest weight in a combination, as many as can be, searched for one of length 0."""
    most = min(MOST_ROWS, max(1, MOST_ENTRIES // z.shape[1]))
    rows = found.combination.argsort(descending=True)[:most]
    part = nearest_point(z[rows])
    combination = torch.zeros_like(found.combination).index_copy(0, rows, part.combination)
    return certified(found.weight, combination, z) if part.bound < found.bound else found


def dependent_subset(x: Float[Tensor, "points features"]) -> tuple[int, ...]:
    """The first subset of at most n points of R^n that is linearly dependent; () in general position.

    Every subset of min(n, s) of the s points is tried. For hyperplanes with an offset, append a 1 to each.

    Args:
        x: Points, one a row; at most 200,000 subsets.

    Raises:
        ValueError: There are too many subsets.

    Reference:
        Cover 1965, Section II.
    """
    size = min(x.shape)
    if (count := math.comb(len(x), size)) > MOST_SUBSETS:
        raise ValueError(f"general position is tried on {MOST_SUBSETS:,} subsets at most: got {count:,}")
    subsets = combinations(range(len(x)), size)
    while chunk := list(islice(subsets, CHUNK)):
        ranks = torch.linalg.matrix_rank(x.double()[torch.tensor(chunk)])
        if len(low := (ranks < size).nonzero()):
            return chunk[int(low[0])]
    return ()


def version_space_counts(
    z: Float[Tensor, "rows features"], directions: Float[Tensor, "directions features"]
) -> Int[Tensor, " rows"]:
    """How many of the directions separate the first m points, for m = 1 .. rows: it never grows with m."""
    counts = []
    for row in z:
        directions = directions[directions @ row > 0]
        counts.append(len(directions))
    return torch.tensor(counts)


def sphere(features: int, count: int, generator: Generator) -> Float[Tensor, "count features"]:
    """Independent directions, uniform on the unit sphere; float64."""
    points = torch.randn(count, features, generator=generator, dtype=torch.float64)
    return points / points.norm(dim=1, keepdim=True)


def xor() -> tuple[Float[Tensor, "4 2"], Float[Tensor, " 4"]]:
    """The four corners of the unit square and their signs, equal corners positive: no unit separates them.

    w . (1, 1) + b > 0 and b > 0 sum to w1 + w2 + 2b > 0, the two others to the opposite.

    Reference: Minsky and Papert 1969, Section 1.
    """
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    return x, torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)


def equality_network(x: Float[Tensor, "rows 2"]) -> Float[Tensor, " rows"]:
    """The sign of XOR's classes by two threshold units and a third on top: 2-2-1, weights set by hand.

    h1 = [x1 + x2 > 1/2], h2 = [x1 + x2 > 3/2]; positive where h2 - h1 + 1/2 > 0.

    Reference: Rumelhart, Hinton and Williams 1986, Section "The XOR problem".
    """
    total = x.sum(1)
    first, second = (total > 0.5).to(x.dtype), (total > 1.5).to(x.dtype)
    return torch.sign(second - first + 0.5)
