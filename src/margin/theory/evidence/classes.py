"""Classes: how many examples of each there are, and of which there are none, or too few to judge by.

Of a class with n held-out examples the 95 % interval of its recall is at least 1 / (1 + n / 3.84) wide, the
width that Wilson's has where all were right: .28 for 10 examples.
"""

import torch

from margin.core.findings import Finding, Subject
from margin.theory.evidence.duplicates import leak
from margin.theory.evidence.rows import class_name, listed, part_labels

FEW = 10
"""Examples of a class below which little can be said of it."""

SHOWN = 4
"""Classes that are shown of each part, the fewest examples first."""


def classes(subject: Subject) -> Finding:
    """The counts of the classes with the fewest examples, in each part.

    Args:
        subject: A model with one class label an example.
    """
    parts = {"held-out": part_labels(subject.test)}
    if len(subject.train):
        parts["training"] = part_labels(subject.train)
    total = max([len(subject.class_names), *(int(part.max()) + 1 for part in parts.values() if len(part))])
    counts = {kind: part.bincount(minlength=total) for kind, part in parts.items()}
    labeled: dict[str, float] = {}
    remarks = []
    for kind, count in counts.items():
        for k in count.argsort(stable=True)[:SHOWN].tolist():
            labeled[f"{class_name(subject, k)}, {kind}"] = float(count[k])
        named = [class_name(subject, k) for k in (count == 0).nonzero().flatten().tolist()]
        if named:
            remarks.append(f"Classes without a {kind} example: {listed(named)}.")
        few = ((count > 0) & (count < FEW)).nonzero().flatten().tolist()
        if few:
            named = [f"{class_name(subject, k)} ({int(count[k])})" for k in few]
            remarks.append(f"Classes with fewer than {FEW} {kind} examples: {listed(named)}.")
    return Finding(
        statement=f"The examples of the classes that have the fewest, of {total}.",
        value=torch.tensor(list(labeled.values()), dtype=torch.float64),
        unit="examples",
        range=(0.0, float(max(len(part) for part in parts.values()))),
        labels=tuple(labeled),
        curves={f"{kind} examples of each class": count for kind, count in counts.items() if total > SHOWN},
        remarks=tuple(remarks),
    )


def demo() -> Subject:
    """Two classes, about a hundred held-out examples of each."""
    return leak(0)
