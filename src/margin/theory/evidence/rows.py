"""The rows of both parts of the data, looked at once: which are equal, and a drawn sample of them.

Rows are told apart by a digest of 128 bits of their values: that two of a million different rows share one
has a probability below 1e-26. Rows of weight 0, which count for nothing, are left out.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import avg_pool2d

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.engine.evaluation import (
    ExampleSample,
    counts,
    drawn_rows,
    eval_mode,
    rows_of,
    sample_examples,
    weight_of_terms,
)
from margin.math.seeds import mix

ELEMENTS = 2_500_000
"""Numbers of a drawn sample at most, and of its rows:"""
MOST = 5000
LEAST = 200

WIDEST = ELEMENTS // LEAST
"""Numbers of a row up to which all are looked at; wider images by means over cells, other rows by some."""

SUMS = 4096
"""Sums of a random projection."""

MOST_TRAINING = 10_000
"""Training examples that are answered at most: a share of them is then known to a percent."""

NAMED = 8
"""Rows, features or classes that a sentence names at most."""

T = TypeVar("T")


def kept_data(subject: Subject, name: str, compute: Callable[[], T]) -> T:
    """What ``compute`` gives of a subject's data alone, computed once for all claims."""
    if name not in subject.kept:
        subject.kept[name] = ((), compute(), 0)
    found: T = subject.kept[name][1]
    return found


def has_rows(subject: Subject) -> bool:
    """Whether each example has a row of its own in each input: predictions without inputs have none."""
    if isinstance(subject.model, nn.Identity):
        return False
    parts = [part[0] for part in (subject.test, subject.train) if len(part)]
    return bool(parts) and all(
        batch.divisible and all(x.layout == torch.strided for x in batch.inputs) for batch in parts
    )


@torch.no_grad()
def answer_to_one(subject: Subject) -> object:
    """What the model answers to its first held-out example, or batch where its examples read each other."""
    batch = subject.test[0]
    inputs = tuple(x[:1] for x in batch.inputs) if subject.independent and batch.divisible else batch.inputs
    with eval_mode(subject.model):
        return subject.model(*inputs)


def has_one_target(subject: Subject) -> bool:
    """Whether the target of each example is one number, which the model is to tell."""
    if subject.task.loss is None:  # of the inputs alone: labels may stand beside them
        return False
    targets = subject.test[0].targets if len(subject.test) else None
    return targets is not None and targets.shape[1:] in ((), (1,))


def rows_of_batches(batches: Sequence[Batch]) -> Iterator[tuple[int, Batch, Tensor]]:
    """Each batch with the number of examples before it, and which of its examples count."""
    first = 0
    for batch in batches:
        yield first, batch, counts(batch).nonzero().flatten()
        first += len(batch.inputs[0])


def flat(x: Tensor) -> Tensor:
    """The numbers of each row, on the CPU."""
    return x.detach().cpu().reshape(len(x), -1)


def digests(tensors: Sequence[Tensor]) -> list[bytes]:
    """A digest of the values of each row of several tensors together; -0 is 0."""
    columns = [flat(x) for x in tensors]
    arrays = [(x.float() if x.dtype == torch.bfloat16 else x).add(0).contiguous().numpy() for x in columns]
    found = []
    for rows in zip(*arrays, strict=True):
        digest = hashlib.blake2b(rows[0].data, digest_size=16)
        for row in rows[1:]:
            digest.update(row.data)
        found.append(digest.digest())
    return found


View = Callable[[Batch], Sequence[Tensor]]
"""What of a batch is compared, a row an example."""


def whole_inputs(batch: Batch) -> Sequence[Tensor]:
    """The view of all inputs."""
    return batch.inputs


def numbered(subject: Subject, *views: View) -> list[tuple[Tensor, Tensor]]:
    """For each view a number for each held-out row and for each training row: equal where the rows are equal.

    The numbers of one view are those of the others too: equal rows have one number in all of them.

    Args:
        subject: Its batches have rows (:func:`has_rows`).
        views: What is compared; one that gives no tensor numbers no row.
    """
    seen: dict[bytes, int] = {}
    found = [([list[int](), list[int]()]) for _ in views]
    for side, batches in enumerate((subject.test, subject.train)):
        for _, batch, rows in rows_of_batches(batches):
            for view, lists in zip(views, found, strict=True):
                taken = digests(view(batch))
                if taken:
                    lists[side] += [seen.setdefault(taken[i], len(seen)) for i in rows.tolist()]
    return [(torch.tensor(test).long(), torch.tensor(train).long()) for test, train in found]


def places(batches: Sequence[Batch]) -> Int[Tensor, " rows"]:
    """The place of each row that counts, from 0."""
    none = torch.zeros(0, dtype=torch.int64)
    return torch.cat([none, *(rows + first for first, _, rows in rows_of_batches(batches))])


class Drawn(NamedTuple):
    """Rows of one part, in the order of the file, flattened, in float64, with their targets.

    Args:
        inputs: The rows.
        targets: Theirs.
        words: How a statement calls them.
        shape: The shape of a row before it was flattened.
        names: What a message calls a column, counted from 0.
    """

    inputs: Float[Tensor, "rows features"]
    targets: Tensor | None
    words: str
    shape: torch.Size
    names: Callable[[int], str]


class Narrowed(NamedTuple):
    """What is looked at of wide rows: a function of them, in words, and what a message calls its columns."""

    view: Callable[[Tensor], Tensor]
    words: str
    names: Callable[[int], str]


def narrowed(subject: Subject, shape: torch.Size) -> Narrowed:
    """How rows of a shape are looked at: whole, where they hold no more than :data:`WIDEST` numbers.

    Wider images are averaged over square cells of pixels; of other rows some features are drawn, whichever
    part they are of.
    """
    width = shape.numel()
    if width <= WIDEST:
        return Narrowed(lambda x: x, "", partial(feature_name, subject))
    if len(shape) == 3 and shape[0] <= min(shape[1:]):
        size = math.ceil(math.sqrt(width / WIDEST))
        across = math.ceil(shape[2] / size)
        down = math.ceil(shape[1] / size)

        def place(j: int) -> str:
            plane, row, column = j // (down * across), j // across % down * size, j % across * size
            return f"pixels of plane {plane} from row {row}, column {column}"

        return Narrowed(
            lambda x: avg_pool2d(x.double(), size, ceil_mode=True),
            f", by means over {size} x {size} pixels",
            place,
        )
    unit = shape[1] if len(shape) == 2 and shape[1] <= WIDEST else 1  # of a sequence whole steps are drawn
    steps = torch.randperm(width // unit, generator=Generator().manual_seed(mix(0, 31)))[: WIDEST // unit]
    some = (steps.sort().values[:, None] * unit + torch.arange(unit)).flatten()
    return Narrowed(
        lambda x: x.flatten(1)[:, some],
        f", by {len(some):,} of their {width:,} features, drawn at random",
        lambda j: feature_name(subject, int(some[j])),
    )


class Sketch:
    """A random projection: each feature is added with a random sign to one of 4,096 sums.

    Args:
        width: Features.
        seed: Of the signs and of the sums.
    """

    def __init__(self, width: int, seed: int) -> None:
        generator = Generator().manual_seed(mix(seed, 20))
        self.sum_of = torch.randint(SUMS, (width,), generator=generator)
        self.sign = 2.0 * torch.randint(2, (width,), generator=generator) - 1

    def __call__(self, X: Float[Tensor, "n width"]) -> Float[Tensor, "n sums"]:
        """The sums of each row."""
        zeros = torch.zeros(len(X), SUMS, dtype=X.dtype)
        return zeros.index_add(1, self.sum_of, X * self.sign.to(X))


def drawn(subject: Subject) -> tuple[Drawn, Drawn]:
    """Held-out and training rows of one real input, all or some drawn at random; computed once.

    Wide rows are :func:`narrowed`, which the words for those of training say.
    """

    def compute() -> tuple[Drawn, Drawn]:
        shape = subject.test[0].inputs[0].shape[1:]
        whole = narrowed(subject, shape)
        limit = min(MOST, max(LEAST, ELEMENTS // max(1, shape.numel())))
        return (
            _drawn(subject.test, limit, "held-out", whole._replace(words="")),
            _drawn(subject.train, limit, "training", whole),
        )

    return kept_data(subject, "drawn rows", compute)


def _drawn(batches: Sequence[Batch], limit: int, kind: str, look: Narrowed) -> Drawn:
    """So many rows of a part at most, each narrowed before the next batch is read."""
    if not len(batches):
        nothing = torch.zeros(0, 0, dtype=torch.float64)
        return Drawn(nothing, None, "no training examples", torch.Size((0,)), look.names)
    numbers = [
        Batch((torch.arange(first, first + len(batch.inputs[0])),), None, batch.weight)
        for first, batch, _ in rows_of_batches(batches)
    ]
    sample = drawn_rows(numbers, limit)
    chosen = torch.cat([batch.inputs[0] for batch in sample.batches])
    rows, targets = [], []
    for first, batch, _ in rows_of_batches(batches):
        here = chosen[(chosen >= first) & (chosen < first + len(batch.inputs[0]))] - first
        if len(here):
            picked = rows_of(batch, here)
            rows.append(look.view(picked.inputs[0].detach().cpu()).double())
            targets += [] if picked.targets is None else [picked.targets.detach().cpu()]
    return Drawn(
        torch.cat([flat(x) for x in rows]),
        torch.cat(targets) if targets else None,
        sample.words(kind) + look.words,
        rows[0].shape[1:],
        look.names,
    )


def part_labels(batches: Sequence[Batch]) -> Int[Tensor, " rows"]:
    """The label of each example that counts, which need not be a row of the inputs: a graph has many."""
    found = [torch.zeros(0, dtype=torch.int64)]
    for batch in batches:
        if batch.targets is not None:
            labels = batch.targets.detach().cpu().long()
            found.append(labels[weight_of_terms(batch.targets, batch) > 0])
    return torch.cat(found)


def feature_name(subject: Subject, index: int) -> str:
    """What a message calls a feature, counted from 0."""
    return subject.feature_names[index] if index < len(subject.feature_names) else f"feature {index}"


def class_name(subject: Subject, label: int) -> str:
    """What a message calls a class."""
    return subject.class_names[label] if label < len(subject.class_names) else f"class {label}"


def listed(names: Sequence[str | int]) -> str:
    """The first of several names, and how many more there are."""
    words = ", ".join(str(name) for name in names[:NAMED])
    return words if len(names) <= NAMED else f"{words} and {len(names) - NAMED:,} more"


def in_groups(batches: object) -> bool:
    """Whether examples belong to groups, each of which is one draw."""
    return getattr(getattr(batches, "examples", None), "groups", None) is not None


def training_draw(subject: Subject) -> ExampleSample:
    """The training examples that the model answers: one draw, whichever claim asks, and whichever first.

    Of a part in groups all are taken.
    """

    def compute() -> ExampleSample:
        most = MOST_TRAINING if subject.most_answered is None else subject.most_answered
        limit = None if in_groups(subject.train) else most
        return sample_examples(subject.train, limit, whole_batches=not subject.independent)

    return kept_data(subject, "training draw", compute)


def answered_batches(subject: Subject, part: Literal["test", "train"]) -> Sequence[Batch]:
    """The held-out batches, or those training examples that the model answers."""
    return subject.test if part == "test" else training_draw(subject).batches
