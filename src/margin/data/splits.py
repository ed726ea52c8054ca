"""Cutting examples into training, validation and test parts, class by class, by largest remainders.

Each class is apportioned to the parts as seats are to parties (Hamilton's method, 1792): every part
gets the whole number below its exact share, and what is left goes to the largest remainders. The
remainders are carried from class to class, so the parts' sizes stay close to their fractions too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.math.seeds import mix

TaskName = Literal["classes", "values"]

TargetKind = Literal["classes", "values", "none"]
"""What the targets of examples are, of which a source may have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How examples are cut into parts: shares of all examples in [0, 1), of which 0 leaves a part out.

    Args:
        test: Share of the test part.
        val: Share of the validation part.
        seed: Seed of the random split.

    Raises:
        ValueError: A fraction is not in [0, 1), or nothing is left to train on.
    """

    test: float = 0.25
    val: float = 0.15
    seed: int = field(default=0, metadata={"option": "split_seed"})

    def __post_init__(self) -> None:
        for name, fraction in (("test", self.test), ("val", self.val)):
            if not 0 <= fraction < 1:
                raise ValueError(f"{name} must be in [0, 1): got {fraction}")
        if _exact(self.test) + _exact(self.val) >= 1:
            raise ValueError(f"test + val must be less than 1: got {self.test} + {self.val}")

    def shares(self) -> dict[str, Fraction]:
        """The exact share of each part that is kept; they add up to 1."""
        test, val = _exact(self.test), _exact(self.val)
        shares = {"train": 1 - test - val, "val": val, "test": test}
        return {name: share for name, share in shares.items() if share > 0}

    def as_json(self, *, official: bool) -> dict[str, Any]:
        """The split as JSON; ``official`` says that the source came with its own test part."""
        test = None if official else self.test
        return {"test": test, "val": self.val, "seed": self.seed, "official": official}


def split_indices(
    count: int, labels: Int[Tensor, " count"] | None, *, test: float, val: float, seed: int
) -> dict[str, Int[Tensor, " _part"]]:
    """A seeded partition of 0 .. count-1 into ``train``, ``val`` and ``test``, stratified by label.

    Each part's share of every class is its exact share rounded down or up, and is at least one
    example. Within a part the indices ascend.

    Args:
        count: Number of examples.
        labels: The class 0 .. K-1 of each example; None where the targets are no classes.
        test: Share of the test part, in [0, 1); 0 leaves it out (an official test part is kept apart).
        val: Share of the validation part, in [0, 1); 0 leaves it out.
        seed: Seed of the random split.

    Returns:
        The indices of each part that is kept.

    Raises:
        ValueError: A fraction is out of range, there is one class only, there are fewer examples than
            classes, or a class has too few members to be in every part.
    """
    return parts_of(count, labels, Split(test=test, val=val, seed=seed))


def parts_of(
    count: int, labels: Int[Tensor, " count"] | None, split: Split, classes: Sequence[str] = ()
) -> dict[str, Int[Tensor, " _part"]]:
    """:func:`split_indices` of a :class:`Split`; messages call the classes by their names.

    Args:
        count: Number of examples.
        labels: The class 0 .. K-1 of each example, or None.
        split: Fractions and seed.
        classes: Names of the classes; their numbers if not given.

    Returns:
        The indices of each part that is kept.

    Raises:
        ValueError: As :func:`split_indices`.
    """
    if labels is None:
        groups = {"": torch.arange(count)}
    else:
        check_classes(labels, len(classes))
        names = classes or [str(k) for k in range(int(labels.max()) + 1)]
        groups = {f"class {name!r} has": (labels == k).nonzero()[:, 0] for k, name in enumerate(names)}
    shares = split.shares()
    generator = Generator().manual_seed(mix(split.seed, 5))
    chosen: dict[str, list[Tensor]] = {name: [] for name in shares}
    carried = dict.fromkeys(shares, Fraction(0))
    for subject, members in groups.items():
        sizes = _apportion(len(members), shares, carried, subject or "there are")
        members = members[torch.randperm(len(members), generator=generator)]
        for name, piece in zip(shares, members.split(list(sizes.values())), strict=True):
            chosen[name].append(piece)
    return {name: torch.cat(pieces).sort().values for name, pieces in chosen.items()}


def check_classes(labels: Int[Tensor, " count"], num_classes: int = 0) -> None:
    """Refuse labels that cannot be learned: none, one class only, fewer examples than classes.

    Args:
        labels: The class 0 .. K-1 of each example.
        num_classes: K, where it is known from elsewhere; 0 takes the largest label + 1.

    Raises:
        ValueError: As said above.
    """
    if len(labels) == 0:
        raise ValueError("there must be at least one example: got none")
    num_classes = max(num_classes, int(labels.max()) + 1)
    if len(labels) < num_classes:
        raise ValueError(
            f"there must be at least as many examples as classes: got {len(labels)} examples, "
            f"{num_classes} classes"
        )
    if len(labels.unique()) < 2:
        raise ValueError(f"there must be at least two classes: all {len(labels)} examples are of one class")


def _exact(fraction: float) -> Fraction:
    """The decimal that the user wrote: 0.15 is 3/20, so that 20 examples give exactly 3."""
    return Fraction(repr(float(fraction)))


def _apportion(
    count: int, shares: Mapping[str, Fraction], carried: dict[str, Fraction], subject: str
) -> dict[str, int]:
    """Whole numbers next to ``count * share`` that add up to ``count``; none is 0.

    ``carried`` is what each part is still owed from the classes before, and is brought up to date.
    """
    exact = {name: count * share for name, share in shares.items()}
    sizes = {name: int(share) for name, share in exact.items()}
    rests = {name: share - sizes[name] for name, share in exact.items()}
    left = count - sum(sizes.values())
    empty = [name for name in sizes if sizes[name] == 0]
    if left < len(empty):
        raise ValueError(_too_few(count, shares, subject))
    order = sorted(
        (name for name in sizes if rests[name] > 0),
        key=lambda name: (sizes[name] == 0, carried[name] + rests[name]),
        reverse=True,
    )
    for name in order[:left]:
        sizes[name] += 1
    for name in sizes:
        carried[name] += exact[name] - sizes[name]
    return sizes


def _too_few(count: int, shares: Mapping[str, Fraction], subject: str) -> str:
    held_out = {name: share for name, share in shares.items() if name != "train"}
    smallest = min(held_out, key=lambda name: held_out[name], default="")
    fractions = ", ".join(f"{name}={float(share):g}" for name, share in held_out.items())
    remedy = f"set --data.{smallest} 0, or give more examples" if smallest else "give more examples"
    needed = "an example of every class" if subject.startswith("class") else "an example"
    noun = "example" if count == 1 else "examples"
    return (
        f"every part ({', '.join(shares)}) needs {needed}: {subject} {count} {noun}, "
        f"too few for {fractions or 'a training part'}; {remedy}"
    )


# by group: all rows of a patient, a user or a site lie in one part. The groups are dealt out greedily, the
# largest first, each to the part that it brings nearest to its share of every class, as scikit-learn's
# StratifiedGroupKFold deals them to folds.


def group_parts(
    groups: Int[Tensor, " count"],
    labels: Int[Tensor, " count"] | None,
    split: Split,
    classes: Sequence[str] = (),
) -> dict[str, Int[Tensor, " _part"]]:
    """A seeded partition of 0 .. count-1 into ``train``, ``val`` and ``test`` that cuts through no group.

    Args:
        groups: The group 0 .. G-1 of each example.
        labels: The class of each example, or None; shares are kept class by class as far as groups allow.
        split: Fractions and seed.
        classes: Names of the classes; their numbers if not given.

    Returns:
        The indices of each part that is kept, ascending; no part is empty.

    Raises:
        ValueError: There are fewer groups than parts, or a class has no example in the training part.
    """
    shares = {name: float(share) for name, share in split.shares().items()}
    if labels is not None:
        check_classes(labels, len(classes))
    kinds = torch.zeros_like(groups) if labels is None else labels
    count = int(groups.max()) + 1
    if count < len(shares):
        raise ValueError(
            f"every part ({', '.join(shares)}) needs a group of its own: there are {count} groups; "
            "give more groups, or set --data.val 0"
        )
    table = torch.zeros(count, int(kinds.max()) + 1, dtype=torch.float64)
    table.index_put_((groups, kinds), torch.ones(len(groups), dtype=torch.float64), accumulate=True)
    part = _dealt(table, list(shares.values()), split.seed)[groups]
    found = {name: (part == k).nonzero()[:, 0] for k, name in enumerate(shares)}
    if labels is not None:
        names = classes or [str(k) for k in range(table.shape[1])]
        absent = (labels[found["train"]].bincount(minlength=len(names)) == 0).nonzero()[:, 0].tolist()
        if absent:
            raise ValueError(
                f"the training part needs an example of every class: all groups of class "
                f"{names[absent[0]]!r} are held out; set another --data.split-seed, or hold less out"
            )
    return found


def grouped(name: str | None, groups: Tensor, parts: Mapping[str, Tensor]) -> dict[str, Any]:
    """What an encoding keeps of groups: the column and how many groups each part has."""
    return {"column": name, "counts": {part: len(groups[index].unique()) for part, index in parts.items()}}


def coded(groups: Tensor | None, index: Int[Tensor, " _part"]) -> Tensor | None:
    """The groups of a part, counted from 0; None where there are none."""
    return None if groups is None else groups[index].unique(return_inverse=True)[1]


def _dealt(table: Tensor, shares: Sequence[float], seed: int) -> Int[Tensor, " groups"]:
    """The part of each group, from its count of every class."""
    count = len(table)
    order = torch.randperm(count, generator=Generator().manual_seed(mix(seed, 5)))
    order = order[table[order].sum(1).sort(descending=True, stable=True).indices]
    total = table.sum(0).clamp_min(1)
    wanted = torch.tensor(shares, dtype=torch.float64)[:, None] * total
    held = torch.zeros_like(wanted)
    part = torch.empty(count, dtype=torch.int64)
    sizes = [0] * len(shares)
    for place, group in enumerate(order.tolist()):
        empty = [k for k, size in enumerate(sizes) if size == 0]
        # as many groups are left as parts are empty: each of these gets one
        open_to = empty if count - place <= len(empty) else range(len(shares))
        before = ((held - wanted) / total).square().sum(1)
        after = ((held + table[group] - wanted) / total).square().sum(1)
        chosen = min(open_to, key=(after - before).tolist().__getitem__)
        held[chosen] += table[group]
        sizes[chosen] += 1
        part[group] = chosen
    return part
