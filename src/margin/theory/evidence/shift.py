"""Shift: whether training and held-out inputs, and targets, are draws from one distribution.

Three tests share the family-wise level equally: of all features together (the maximum mean discrepancy, with
a p-value by permutation), of each feature (Kolmogorov and Smirnov, or chi-square where it has few values, by
Holm's procedure), and of the targets. What is given are p-values adjusted for all of this: one below the
level says that the parts differ, and no data of one law give one more often than the level.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.deadline import check_deadline
from margin.core.findings import Finding, NotAsked, Premise, Subject, has_labels, has_real_input
from margin.data.formats.series.windows import Windows
from margin.math.seeds import mix
from margin.math.two_samples.distances import pair
from margin.math.two_samples.mmd import median_distance, squared_mmd
from margin.theory.evidence.duplicates import leak
from margin.theory.evidence.rows import (
    Drawn,
    drawn,
    has_one_target,
    has_rows,
    kept_data,
    listed,
    part_labels,
)

LEVEL = 0.01
"""The chance that data of one law are called shifted."""

TESTS = 3
"""All features together, each for itself, the targets."""

FEW_VALUES = 10
"""Values of a feature up to which they are counted."""

TOGETHER = 500
"""Rows of each part that are compared as a whole, and deals of them for the p-value."""
DEALS = 999

APART = 0.5
"""Share of held-out rows outside the training part's range from which a feature's two ranges are named."""

RANGES = 2
"""Features whose ranges a sentence names at most."""

SHOWN = 5
"""Features that are shown, the least p-value first."""

LEAST_EXPECTED = 5.0
"""Expected counts below which values are counted together (Cochran's rule)."""


def kolmogorov_smirnov(
    x: Float[Tensor, "n features"], y: Float[Tensor, "m features"]
) -> tuple[Float[Tensor, " features"], Float[Tensor, " features"]]:
    r"""The largest distance of the two distribution functions of each feature, and its p-value.

    The p-value is Kolmogorov's limit law of :math:`\sqrt{n m / (n + m)}\, D`, which is not too small where
    values are tied or few.

    Reference: Smirnov 1939; Conover 1999, Section 6.3.
    """
    from scipy.special import kolmogorov

    n, m = len(x), len(y)
    both = torch.cat((x, y))
    order = both.argsort(0)
    ranked = both.gather(0, order)
    first = (order < n).double()
    gap = (first.cumsum(0) / n - (1 - first).cumsum(0) / m).abs()
    last = torch.ones_like(gap, dtype=torch.bool)  # of equal values the functions are compared after the last
    last[:-1] = ranked[1:] != ranked[:-1]
    distance = torch.where(last, gap, 0).max(0).values
    return distance, torch.from_numpy(kolmogorov((math.sqrt(n * m / (n + m)) * distance).numpy()))


def chi_square(x: Int[Tensor, " n"], y: Int[Tensor, " m"]) -> float:
    """The p-value of Pearson's test that two samples have their values in the same shares.

    Values are pooled, the rarest first, until each is expected five times in the smaller sample.

    Reference: Pearson 1900; Cochran 1954, Section 2 (the rule).
    """
    from scipy.special import chdtrc

    kinds, codes = torch.cat((x, y)).unique(return_inverse=True)
    table = torch.stack([part.bincount(minlength=len(kinds)) for part in (codes[: len(x)], codes[len(x) :])])
    table = table[:, table.sum(0).argsort()].double()
    share = min(len(x), len(y)) / (len(x) + len(y))
    cells: list[Tensor] = []
    open_cell = torch.zeros(2, dtype=torch.float64)
    for column in table.unbind(1):
        open_cell = open_cell + column
        if float(open_cell.sum()) * share >= LEAST_EXPECTED:
            cells.append(open_cell)
            open_cell = torch.zeros(2, dtype=torch.float64)
    if cells:
        cells[-1] = cells[-1] + open_cell
    if len(cells) < 2:
        return 1.0
    seen = torch.stack(cells, 1)
    expected = seen.sum(1, keepdim=True) * seen.sum(0) / seen.sum()
    return float(chdtrc(len(cells) - 1, float(((seen - expected).square() / expected).sum())))


def holm(p: Float[Tensor, " tests"]) -> Float[Tensor, " tests"]:
    """P-values adjusted for their number: those below a level are few enough, whatever the dependence.

    Reference: Holm 1979, Section 3.
    """
    order = p.argsort()
    count = len(p)
    raised = (p[order] * torch.arange(count, 0, -1, dtype=p.dtype)).cummax(0).values.clamp(max=1)
    return torch.empty_like(p).index_copy_(0, order, raised)


def _features(test: Tensor, train: Tensor) -> Tensor:
    """The p-value of each feature."""
    _, p = kolmogorov_smirnov(test, train)
    ranked = torch.cat((test, train)).sort(0).values
    few = 1 + (ranked[1:] != ranked[:-1]).sum(0) <= FEW_VALUES
    for j in few.nonzero().flatten().tolist():
        check_deadline()
        codes = torch.cat((test[:, j], train[:, j])).unique(return_inverse=True)[1]
        p[j] = chi_square(codes[: len(test)], codes[len(test) :])
    return p


def _together(test: Tensor, train: Tensor) -> float:
    """The p-value of all features in one, each in its standard deviations."""
    generator = Generator().manual_seed(mix(0, 19))
    picked = [part[torch.randperm(len(part), generator=generator)[:TOGETHER]] for part in (test, train)]
    x, y = pair(*picked)
    scale = torch.cat((x, y)).std(0, correction=0)
    x, y = (part[:, scale > 0] / scale[scale > 0] for part in (x, y))
    if not x.shape[1]:
        return 1.0
    # where half of the rows are equal, a unit is a standard deviation of all features
    width = median_distance(x, y) or math.sqrt(x.shape[1])
    return squared_mmd(x, y, bandwidth=width, permutations=DEALS, generator=generator).p_value


def _targets(subject: Subject, parts: tuple[Drawn, Drawn]) -> float | None:
    if not has_one_target(subject):
        return None
    if has_labels(subject):
        return chi_square(part_labels(subject.test), part_labels(subject.train))
    test, train = (part.targets for part in parts)
    if test is None or train is None:
        return None
    return float(kolmogorov_smirnov(test.double().reshape(-1, 1), train.double().reshape(-1, 1))[1])


FEWEST = 3
"""Rows of a part, at least."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shift:
    """Adjusted p-values: of all features together, of the targets where they are numbers, of each feature.

    Of features that mostly lie outside the training part's range both ranges are named. What a message calls
    a feature is what was looked at: of a large image the mean over some pixels.
    """

    together: float
    targets: float | None
    features: Float[Tensor, " features"]
    ranges: dict[int, str]
    words: str
    names: Callable[[int], str]

    @property
    def refutes(self) -> bool:
        """Whether any is below the level."""
        least = [self.together, 1.0 if self.targets is None else self.targets, float(self.features.min())]
        return min(least) < LEVEL


def shifted(subject: Subject) -> Shift | None:
    """The tests of a subject with one real input whose training rows are known, computed once; else None.

    None too of the windows of a series: neighbors are no independent draws, and slow series differ in time.
    """

    def compute() -> Shift | None:
        parts = drawn(subject)
        if _windows(subject):
            return None
        test, train = (part.inputs for part in parts)
        finite = bool(test.isfinite().all() and train.isfinite().all())
        if min(len(test), len(train)) < FEWEST or not finite or not test.shape[1]:
            return None
        told = _targets(subject, parts)
        return Shift(
            min(1.0, TESTS * _together(test, train)),
            None if told is None else min(1.0, TESTS * told),
            (TESTS * holm(_features(test, train))).clamp(max=1.0),
            _ranges(test, train),
            f"{parts[0].words} and {parts[1].words}",
            parts[0].names,
        )

    return kept_data(subject, "shift", compute)


def _ranges(test: Float[Tensor, "n features"], train: Float[Tensor, "m features"]) -> dict[int, str]:
    """Where the features lie of which most held-out rows are outside the training part's range."""
    low, high = train.aminmax(dim=0)
    apart = ((test < low) | (test > high)).double().mean(0) > APART
    words = "held out in [{:.4g}, {:.4g}], in training in [{:.4g}, {:.4g}]"
    return {
        j: words.format(*(float(end[j]) for end in (*test.aminmax(dim=0), low, high)))
        for j in apart.nonzero().flatten().tolist()
    }


def _windows(subject: Subject) -> Windows | None:
    examples = getattr(subject.test, "examples", None)
    return examples if isinstance(examples, Windows) else None


class Outside(NamedTuple):
    """Of a series, where columns lie that training had not seen, and the finding that says so."""

    said: str
    finding: Finding


def _outside(subject: Subject) -> Outside:
    """Which columns of the held-out windows lie mostly outside the training part's range."""
    test, train = (part.inputs for part in drawn(subject))
    windows, columns = _windows(subject), subject.test[0].inputs[0].shape[-1]
    called = {} if windows is None else dict(zip(windows.columns, windows.names, strict=False))
    names = [called.get(k, f"column {k + 1}") for k in range(columns)]
    test, train = test.reshape(-1, columns), train.reshape(-1, columns)
    low, high = train.aminmax(dim=0)
    apart = _ranges(test, train)
    named = listed([f"{names[k]} ({words})" for k, words in apart.items()])
    said = f"training and held-out part differ in {named}" if apart else ""
    return Outside(
        said,
        Finding(
            statement="The share of the held-out values of each column that lie outside the training part's "
            "range. Windows of a series are no independent draws, so no distributions are tested.",
            value=((test < low) | (test > high)).double().mean(0),
            range=(0.0, 1.0),
            labels=tuple(names),
            failure=""
            if bool(train.isfinite().all() and test.isfinite().all())
            else "an input is not finite",
            remarks=(
                f"{said[:1].upper()}{said[1:]}: most held-out values are outside."
                if said
                else "No shift was found: no column is mostly outside the training part's range.",
            ),
        ),
    )


def same_distribution(subject: Subject) -> Premise:
    """The hypothesis that training and held-out examples are of one distribution, as a gap of them needs."""
    text = "training and held-out examples are of one distribution"
    if has_rows(subject) and has_real_input(subject) and _windows(subject):
        if apart := _outside(subject).said:
            return Premise(text, "refuted", apart)
        return Premise(text, "assumed", "windows of a series are no independent draws, which tests ask for")
    found = shifted(subject) if has_rows(subject) and has_real_input(subject) else None
    if found is None:
        return Premise(text, "assumed", "nothing was tested: there is no row of real numbers an example")
    if found.refutes:
        return Premise(text, "refuted", _said(found))
    return Premise(text, "sampled", f"no test at the level of {LEVEL:.0%} tells {found.words} apart")


def _said(found: Shift) -> str:
    below = (found.features < LEVEL).nonzero().flatten()
    below = below[found.features[below].argsort(stable=True)]
    apart_first = sorted(below.tolist(), key=lambda j: j not in found.ranges)
    what = [
        found.names(j) + (f" ({found.ranges[j]})" if j in found.ranges and k < RANGES else "")
        for k, j in enumerate(apart_first)
    ]
    if found.targets is not None and found.targets < LEVEL:
        what = ["the targets", *what]
    if not what:
        return "the features differ together, none alone"
    return f"training and held-out part differ in {listed(what)}"


def shift(subject: Subject) -> Finding:
    """Adjusted p-values of the hypothesis that both parts are of one distribution: small ones speak against.

    Args:
        subject: A model with one real input, whose training examples are known.

    Raises:
        NotAsked: A part has fewer than three rows.
    """
    if _windows(subject):
        return _outside(subject).finding
    found = shifted(subject)
    if found is None and min(len(part.inputs) for part in drawn(subject)) < FEWEST:
        raise NotAsked(f"a comparison of both parts needs {FEWEST} rows of each")
    if found is None:
        return Finding(
            statement="The chance of parts that differ as much, were they of one distribution.",
            value=torch.tensor(math.nan, dtype=torch.float64),
            range=(0.0, 1.0),
            failure="an input is not finite",
        )
    rows = {"all features together": found.together}
    if found.targets is not None:
        rows["targets"] = found.targets
    for j in found.features.argsort(stable=True)[:SHOWN].tolist():
        rows[found.names(j)] = float(found.features[j])
    verdict = _said(found) if found.refutes else "no shift was found"
    at = f"by tests at a family-wise level of {LEVEL:.0%}"
    return Finding(
        statement="The chance of parts that differ as much, were they of one distribution: p-values adjusted "
        f"for all {TESTS - 1 + len(found.features)} tests, of {found.words}.",
        value=torch.tensor(list(rows.values()), dtype=torch.float64),
        range=(0.0, 1.0),
        labels=tuple(rows),
        remarks=(f"{verdict[:1].upper()}{verdict[1:]}, {at}.",),
    )


def demo() -> Subject:
    """Feature 2 of the held-out rows is half a standard deviation higher."""
    subject = leak(0)
    x = subject.test[0].inputs[0] + torch.tensor([0, 0, 0.5, 0, 0], dtype=torch.float64)
    return dataclasses.replace(subject, test=[subject.test[0]._replace(inputs=(x,))])
