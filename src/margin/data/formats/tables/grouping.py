"""Cutting examples by group: all rows of a patient, a user or a site lie in one part.

The groups are dealt out greedily, the largest first, each to the part that it brings nearest to its share of
every class, as scikit-learn's StratifiedGroupKFold deals them to folds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.data.splits import Split, check_classes
from margin.math.seeds import mix


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
