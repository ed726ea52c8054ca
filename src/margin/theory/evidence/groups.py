"""Groups and time: what lies across training and held-out part, so that the held-out examples are not new.

Rows of one patient, windows of one series, and neighbors in time are alike. Held out at random, they are
judged by a model that has seen their like, and will not have where it is used.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject, has_real_input
from margin.core.tasks import VALUES as REAL
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.evidence.rows import drawn, has_rows, kept_data, listed, numbered, places

SHORTEST = 4
"""Length from which on rows may be windows of a series."""

LARGEST = 50_000_000
"""Numbers of both parts up to which windows are compared."""

ACROSS = 0.1
"""Share of the held-out examples that lie across, from which on they are not new."""

VALUES = 20
"""Different values of a feature from which on an order is no accident."""


class Across(NamedTuple):
    """What lies across both parts.

    Args:
        held_out: The number of held-out rows.
        named: What the run's record says which groups were kept together by; "" where nothing does.
        groups: The groups that stand in both parts; None where groups are not known.
        of_groups: The held-out examples of those.
        windows: Held-out rows that a training row holds, shifted by one; None where rows are no series.
        ordered: The features by which the rows of both parts are in order, and of each the share of held-out
            rows that lie between training rows.
    """

    held_out: int
    named: str
    groups: int | None
    of_groups: int
    windows: Int[Tensor, " shifted"] | None
    ordered: dict[str, float]

    @property
    def refutes(self) -> str:
        """Why held-out examples are not new to the model, or ""."""
        if self.groups and self.of_groups >= ACROSS * self.held_out:
            return (
                f"{self.of_groups:,} of {self.held_out:,} held-out examples are of {self.groups:,} groups "
                "that stand in the training part"
            )
        if self.windows is not None and len(self.windows) >= max(2, ACROSS * self.held_out):
            return (
                f"{len(self.windows):,} of {self.held_out:,} held-out rows are training rows shifted by one "
                "step: windows of one series, split at random"
            )
        return ""


def _groups_of(batches: Sequence[Batch]) -> Tensor | None:
    return getattr(getattr(batches, "examples", None), "groups", None)


def _known_groups(subject: Subject) -> tuple[int | None, int]:
    """Groups in both parts, and the held-out examples of them."""
    if subject.groups:  # a run's: its split cuts through none, and numbers them part by part
        return 0, 0
    test, train = (_groups_of(part) for part in (subject.test, subject.train))
    if test is None or train is None:
        return None, 0
    both = torch.isin(test, train)
    return len(test[both].unique()), int(both.sum())


def _shifted(subject: Subject) -> Int[Tensor, " shifted"] | None:
    """The held-out rows that, less one end, are a training row less the other."""
    x = subject.test[0].inputs[0]
    size = x[:1].numel() * (len(subject.test) + len(subject.train)) * len(x)
    axis = 1 if x.ndim == 2 or (x.ndim == 3 and x.shape[1] >= x.shape[2]) else 2
    if x.ndim not in (2, 3) or len(subject.test[0].inputs) != 1 or x.shape[axis] < SHORTEST or size > LARGEST:
        return None
    early, late = (partial(_end, axis=axis, start=start) for start in (0, 1))
    (test_early, train_early), (test_late, train_late) = numbered(subject, early, late)
    moves = train_early != train_late  # a row that does not change is its own shift
    found = torch.isin(test_early, train_late[moves]) | torch.isin(test_late, train_early[moves])
    return places(subject.test)[found]


def _end(batch: Batch, axis: int, start: int) -> list[Tensor]:
    x = batch.inputs[0]
    return [x.narrow(axis, start, x.shape[axis] - 1)]


def _ordered(subject: Subject) -> dict[str, float]:
    """The features by which both parts are in order, with the share of held-out rows among training rows."""
    if not has_real_input(subject):
        return {}
    parts = drawn(subject)
    test, train = (part.inputs for part in parts)
    if min(len(test), len(train)) < VALUES:
        return {}
    rising = _monotone(test, 1) & _monotone(train, 1)
    falling = _monotone(test, -1) & _monotone(train, -1)
    found = {}
    for j in (rising | falling).nonzero().flatten().tolist():
        own, theirs = test[:, j], train[:, j]
        if min(len(own.unique()), len(theirs.unique())) >= VALUES:
            between = (own > theirs.min()) & (own < theirs.max())
            found[parts[0].names(j)] = float(between.double().mean())
    return found


def _monotone(x: Float[Tensor, "rows features"], sign: int) -> Bool[Tensor, " features"]:
    return (sign * x.diff(dim=0) >= 0).all(0)


def across(subject: Subject) -> Across:
    """What lies across both parts of a subject's data, computed once.

    Args:
        subject: Its batches have rows, and its training examples are known.
    """

    def compute() -> Across:
        groups, of_groups = _known_groups(subject)
        rows = len(places(subject.test))
        return Across(rows, subject.groups, groups, of_groups, _shifted(subject), _ordered(subject))

    return kept_data(subject, "across", compute)


def new_examples(subject: Subject) -> str:
    """Why held-out examples are not new to the model, or ""."""
    return across(subject).refutes if len(subject.train) and has_rows(subject) else ""


def groups(subject: Subject) -> Finding:
    """How many groups, windows and rows of an ordered column lie across training and held-out part.

    Args:
        subject: A model whose training examples are known.

    Raises:
        NotAsked: No groups are known, rows are no series, and no column is in order.
    """
    found = across(subject)
    labeled: dict[str, float] = {}
    remarks = []
    if found.groups is not None:
        labeled["held-out examples of groups that stand in the training part"] = found.of_groups
        if found.named:
            remarks.append(f"The split cut through no group of {found.named!r}.")
    if found.windows is not None:
        labeled["held-out rows that are training rows shifted by one step"] = len(found.windows)
        if len(found.windows):
            remarks.append(f"Shifted training rows, by their held-out row: {listed(found.windows.tolist())}.")
    for name, share in found.ordered.items():
        labeled[f"held-out rows between training rows by {name}"] = round(share * found.held_out)
        if share >= ACROSS:
            remarks.append(
                f"Both parts are in the order of {name}: if that is time, hold out the last rows, not rows "
                "drawn from all times."
            )
    if not labeled:
        raise NotAsked("no groups are known, rows are no series, and no feature is in order")
    if found.refutes:
        remarks.append(f"Every error over held-out examples is unfounded: {found.refutes}.")
    return Finding(
        statement=f"What lies across training and held-out part, of {found.held_out:,} held-out rows.",
        value=torch.tensor(list(labeled.values()), dtype=torch.float64),
        unit="rows",
        range=(0.0, float(found.held_out)),
        labels=tuple(labeled),
        remarks=tuple(remarks),
    )


def demo() -> Subject:
    """Windows of ten steps of one series, of which a random quarter is held out."""
    generator = torch.Generator().manual_seed(0)
    series = torch.randn(211, generator=generator, dtype=torch.float64).cumsum(0)
    windows = series.unfold(0, 10, 1)
    chosen = torch.randperm(len(windows), generator=generator).sort().indices < len(windows) // 4
    last = nn.Linear(10, 1, dtype=torch.float64)
    with torch.no_grad():
        last.weight.copy_(torch.eye(10)[-1:])
        last.bias.zero_()
    ahead = torch.cat((series[10:], series[-1:]))
    parts = [[Batch((windows[kept],), ahead[kept])] for kept in (chosen, ~chosen)]
    return Subject(
        model=nn.Sequential(last, nn.Flatten(0)),
        test=parts[0],
        train=parts[1],
        task=REAL,
        objective=risk(REAL),
    )
