"""Sets of elements of R^k as examples and as Data: of one size (N, M, k), or of several, with a mask.

A set without elements is legal: its mask is False throughout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Domain
from margin.data.arrays import Array, renamed_in, targets_of
from margin.data.assembly import Schema, cut, domain_of
from margin.data.examples import Arrays, Data, offsets_of, ranges
from margin.data.formats.sequences.rows import fingerprint_of
from margin.data.preprocess import fit_standardize
from margin.data.splits import Split
from margin.math.seeds import mix

SetTask = Literal["classes", "values", "point_classes"]
Scale = Literal["none", "sphere"]


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """Sets of several sizes, held one behind another; a batch is padded to the largest set in it.

    Args:
        elements: The elements of all sets, one set behind another.
        sizes: The number of elements of each set.
        targets: The target of each set, or None.
    """

    elements: Float[Tensor, "elements width"]
    sizes: Int[Tensor, " sets"]
    targets: Int[Tensor, " sets"] | Float[Tensor, " sets"] | None = None

    def __post_init__(self) -> None:
        if bool((self.sizes < 0).any()) or int(self.sizes.sum()) != len(self.elements):
            raise ValueError(
                "sizes must be at least 0 and add up to the number of elements: "
                f"got {int(self.sizes.sum())}, {len(self.elements)} elements"
            )

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The sets at ``index``: elements, 0 behind the last, and a mask, True where an element is."""
        sizes = self.sizes[index]
        most = int(sizes.max()) if len(sizes) else 0
        mask = torch.arange(most) < sizes[:, None]
        x = self.elements.new_zeros((len(sizes), most, self.elements.shape[1]))
        x[mask] = self.elements[ranges(offsets_of(self.sizes)[index], sizes)]
        return Batch((x, mask), None if self.targets is None else self.targets[index])

    def chosen(self, index: Int[Tensor, " chosen"]) -> "Sets":
        """Some of the sets, with their targets."""
        places = ranges(offsets_of(self.sizes)[index], self.sizes[index])
        targets = None if self.targets is None else self.targets[index]
        return Sets(self.elements[places], self.sizes[index], targets)

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [self.elements, self.sizes, *([] if self.targets is None else [self.targets])]


def sets_of(sets: Sequence[Tensor], targets: Tensor | None = None) -> Sets:
    """Sets (M_i, k), one by one, as examples."""
    return Sets(torch.cat([*sets]), torch.tensor([len(one) for one in sets]), targets)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawSets:
    """Sets before they are cut into parts.

    Args:
        name: The source's name or the file's.
        sets: The elements of all, in the user's units; their targets are not looked at.
        targets: A target for each set, or for each element of each (point_classes, sets of one size).
        task: What the targets are; None: as their type says.
        classes: Names of the classes, where they are known.
        scale: How each set was scaled.
        points: Elements drawn of each set; None keeps all.
        official: The source's own parts, by name: the sets of each.
        domain: Where every coordinate may lie, in the user's units; only for sets of one size.
        encoding: What the source adds to the encoding.
        notes: What was assumed.
    """

    name: str
    sets: Sets
    targets: Array
    task: SetTask | None = None
    classes: tuple[str, ...] = ()
    scale: Scale = "none"
    points: int | None = None
    official: Mapping[str, Tensor] = field(default_factory=dict)
    domain: tuple[float, float] | None = None
    encoding: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def set_data(raw: RawSets, split: Split) -> Data:
    """The Data of sets: of one size as (N, M, k), else padded with a mask when they are taken.

    Raises:
        ValueError: A target is wrong, the labels cannot be cut, or a set is too small to draw from.
    """
    if raw.task == "point_classes" and raw.points is not None:
        raise ValueError(f"{raw.name}: elements with a class each cannot be drawn anew: leave out points")
    if not len(raw.sets.elements):
        raise ValueError(f"{raw.name}: a set must hold an element: all {len(raw.sets)} are empty")
    sets = prepared(raw.sets, raw.scale, raw.points, split.seed, raw.name)
    targets, task, classes = _targets(raw, sets)
    parts, record = cut(raw.name, targets, task, split, classes, own=raw.official)
    sizes = sets.sizes.unique().tolist()
    splits: dict[str, Any] = {
        part: as_examples(sets.chosen(index), targets[index], equal=len(sizes) == 1)
        for part, index in parts.items()
    }
    width = sets.elements.shape[1]
    spec: dict[str, Any] = {"element_size": width, "num_examples": len(splits["train"])}
    spec |= {"points": sizes[0]} if len(sizes) == 1 else {"most_points": sizes[-1]}
    if task != "values":
        spec["num_classes"] = len(classes)
    return Data(
        name=raw.name,
        splits=splits,
        spec=spec,
        encoding=_schema(raw, sets, task, classes, record).as_json(),
        preprocess=_preprocess(sets.chosen(parts["train"]).elements, raw.scale),
        domain=_domain(raw, sets),
        fingerprint=fingerprint_of(splits),
        notes=(*raw.notes, *renamed_in(raw.targets)),
    )


def _schema(
    raw: RawSets, sets: Sets, task: SetTask, classes: tuple[str, ...], split: Mapping[str, Any]
) -> Schema:
    sizes = sets.sizes.unique().tolist()
    return Schema(
        format="points",
        kind="sets",
        task=task,
        shape=(sizes[0] if len(sizes) == 1 else 0, sets.elements.shape[1]),
        dtype=sets.elements.dtype,
        classes=classes,
        split=split,
        own={"scale": raw.scale, "points": raw.points, "about": _about(sets, raw), "split": dict(split)}
        | dict(raw.encoding),
    )


def _domain(raw: RawSets, sets: Sets) -> Domain | None:
    if raw.domain is None:
        return None
    sizes = sets.sizes.unique().tolist()
    if len(sizes) != 1:
        raise ValueError(
            f"{raw.name}: a domain needs sets of one size: got {sizes[0]} to {sizes[-1]} elements"
        )
    low, high = (end.item() for end in sets.elements.aminmax())
    return domain_of(raw.name, raw.domain, sets.elements.dtype, {"they lie": (low, high)})


def new_sets(sets: Sets, targets: Array | None, encoding: Mapping[str, Any], name: str) -> Arrays | Sets:
    """New sets by the record of a run: scaled and drawn as its own; without targets where there are none.

    Raises:
        ValueError: The width or, of sets of one size, the size differs from the run's, or a target is
            unknown.
    """
    schema = Schema.from_json(encoding)
    size, width = schema.shape
    if sets.elements.shape[1] != width:
        raise ValueError(f"{name}: the run's elements have {width} numbers: got {sets.elements.shape[1]}")
    sets = prepared(sets, encoding["scale"], encoding["points"], encoding["split"]["seed"], name)
    other = (sets.sizes != size).nonzero()[:, 0]
    if size and len(other):
        found = int(sets.sizes[other[0]])
        raise ValueError(f"{name}: the run's sets have {size} elements: set {int(other[0])} has {found}")
    sets = Sets(sets.elements.to(schema.dtype), sets.sizes)
    if targets is not None and schema.task == "point_classes":
        known: Tensor | None = _labels_of_elements(targets, sets, name, len(schema.classes))
    else:
        known = schema.targets_if(targets, len(sets), name)
    return as_examples(sets, known, equal=bool(size))


def as_examples(sets: Sets, targets: Tensor | None, *, equal: bool) -> Arrays | Sets:
    """Sets as examples: a plain array where all have one size, else padded when taken."""
    if not equal:
        return Sets(sets.elements, sets.sizes, targets)
    size = int(sets.sizes[0]) if len(sets) else 0
    return Arrays((sets.elements.reshape(len(sets), size, sets.elements.shape[1]),), targets)


def prepared(sets: Sets, scale: Scale, points: int | None, seed: int, name: str) -> Sets:
    """Sets with so many elements drawn of each, then scaled.

    Elements are drawn without replacement; of a set with fewer, all are kept and the rest is drawn with it.
    What a set draws depends on the seed and its place.

    Raises:
        ValueError: ``points`` is below 1, or a set to be drawn from is empty.
    """
    if points is not None:
        if points < 1:
            raise ValueError(f"points must be at least 1: got {points}")
        empty = (sets.sizes == 0).nonzero()[:, 0]
        if len(empty):
            raise ValueError(f"{name}: a set without elements has none to draw: set {int(empty[0])}")
        places = torch.cat(
            [
                start + _drawn(size, points, Generator().manual_seed(mix(seed, 7, k)))
                for k, (start, size) in enumerate(
                    zip(offsets_of(sets.sizes).tolist(), sets.sizes.tolist(), strict=False)
                )
            ]
        )
        sets = Sets(sets.elements[places], torch.full_like(sets.sizes, points))
    return sets if scale == "none" else in_ball(sets)


def _drawn(size: int, points: int, generator: Generator) -> Tensor:
    whole = torch.randperm(size, generator=generator)[:points]
    rest = torch.randint(size, (points - len(whole),), generator=generator)
    return torch.cat((whole, rest))


def in_ball(sets: Sets) -> Sets:
    """Each set moved to mean 0 and divided by its largest distance from 0, so that it fits the unit ball.

    Only the first three numbers of an element are coordinates; a set whose elements are all equal becomes 0.
    """
    owner = torch.repeat_interleave(sets.sizes)
    place = sets.elements[:, :3].double()
    count = sets.sizes.clamp(min=1)[:, None]
    mean = place.new_zeros((len(sets), place.shape[1])).index_add_(0, owner, place) / count
    place = place - mean[owner]
    radius = place.new_zeros(len(sets)).scatter_reduce_(0, owner, place.norm(dim=1), "amax")
    place = place / torch.where(radius > 0, radius, 1.0)[owner, None]
    elements = torch.cat((place.to(sets.elements), sets.elements[:, 3:]), 1)
    return Sets(elements, sets.sizes, sets.targets)


def _targets(raw: RawSets, sets: Sets) -> tuple[Tensor, SetTask, tuple[str, ...]]:
    if raw.task == "point_classes":
        labels = _labels_of_elements(raw.targets, sets, raw.name, len(raw.classes))
        return labels, raw.task, raw.classes or tuple(str(k) for k in range(int(labels.max()) + 1))
    found, task, classes = targets_of(raw.targets, len(sets), raw.name, raw.task, raw.classes)
    return found if task == "classes" else found.to(sets.elements.dtype), task, tuple(classes)


def _labels_of_elements(targets: Array, sets: Sets, name: str, classes: int) -> Tensor:
    """The class of each element (N, M), of sets of one size."""
    labels = torch.as_tensor(targets)
    sizes = sets.sizes.unique()
    if len(sizes) != 1 or labels.shape != (len(sets), int(sizes[0])) or labels.is_floating_point():
        raise ValueError(
            f"{name}: classes of elements must be whole numbers (sets, elements) of sets of one size: "
            f"got {tuple(labels.shape)}"
        )
    wrong = ((labels < 0) | (labels >= (classes or labels.max() + 1))).nonzero()
    if len(wrong):
        at, element = wrong[0].tolist()
        raise ValueError(
            f"{name}: a class must be at least 0 and known: element {element} of set {at} is not"
        )
    return labels.long()


def _preprocess(elements: Tensor, scale: Scale) -> nn.Module:
    """Standardizes each number of an element over the training sets; a cloud in its ball keeps its shape."""
    if scale == "sphere" or len(elements) == 0:
        return nn.Identity()
    return fit_standardize(elements, per="feature")


def _about(sets: Sets, raw: RawSets) -> list[list[str]]:
    low, high = int(sets.sizes.min()), int(sets.sizes.max())
    size = f"{low}" if low == high else f"{low} to {high}"
    lines = [["sets", f"{len(sets):,} of {size} elements of {sets.elements.shape[1]} numbers"]]
    if sets.elements.numel():
        ends = [f"{end.item():.6g}" for end in sets.elements.aminmax()]
        lines.append(["range", f"[{', '.join(ends)}]"])
    if raw.scale == "sphere":
        lines.append(
            ["scale", "each is centered and divided by its largest radius: it lies in the unit ball"]
        )
    if raw.points is not None:
        lines.append(["drawn", f"{raw.points} elements of each, by the split's seed"])
    if empty := int((sets.sizes == 0).sum()):
        lines.append(["empty", f"{empty} sets have no elements"])
    return lines
