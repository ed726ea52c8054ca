"""What a generator draws beside the data that it was trained on, in one scale.

Samples are drawn once for all questions of an audit, with a fixed seed.
"""

import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.math.seeds import mix
from margin.nn.preprocessed import core_of

MOST = 1000
"""Samples that are drawn, and held-out examples that they are compared with, at most."""

TRAINING = 20_000
"""Training rows among which neighbors are looked for, at most."""

AT_ONCE = 240
"""Samples that are drawn at a time: a multiple of most numbers of classes, which take turns."""

LEAST = 16
"""Held-out examples that a comparison needs."""


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Samples of a generator beside held-out and training rows, in the user's units, float64.

    Args:
        samples: What the generator drew, as many as held-out rows.
        test: Held-out rows, drawn at random where there are more than :data:`MOST`.
        train: Training rows, at most :data:`TRAINING`; none where they are not known.
        labels: Class of each training row; none where there is none.
        scale: What is 1 in a comparison: a feature's standard deviation, or that of all numbers of an image.
        failure: Why the samples cannot be compared; "" where they can.
    """

    samples: Float[Tensor, "count ..."]
    test: Float[Tensor, "count ..."]
    train: Float[Tensor, "rows ..."]
    labels: Int[Tensor, " labeled"]
    scale: Float[Tensor, "..."]
    failure: str

    def scaled(self, x: Tensor) -> Float[Tensor, "n dim"]:
        """Rows in the unit of comparisons."""
        return (x / self.scale).flatten(1)

    @property
    def unit(self) -> str:
        """The unit of comparisons, in words."""
        return "standard deviations of the data" if self.test.ndim == 2 else "the pixels' standard deviation"


def can_be_sampled(subject: Subject) -> bool:
    """Whether the model draws what it is given: one tensor of real numbers, a row for each example."""
    method = getattr(core_of(subject.model), "sample", None)
    if not callable(method) or not len(subject.test):
        return False
    parameters = inspect.signature(method).parameters
    needed = {name for name, p in parameters.items() if p.default is inspect.Parameter.empty}
    first = subject.test[0]
    one = len(first.inputs) == 1 and isinstance(first.inputs[0], Tensor)
    real = one and first.inputs[0].is_floating_point() and first.inputs[0].ndim > 1 and first.divisible
    return needed == {"count", "generator"} and real


def has_enough(subject: Subject) -> bool:
    """Whether there are :data:`LEAST` held-out examples."""
    seen = 0
    for batch in subject.test:
        seen += len(batch.inputs[0])
        if seen >= LEAST:
            return True
    return False


def draw(model: nn.Module, count: int, shape: Sequence[int], *, seed: int = 0) -> Float[Tensor, "count ..."]:
    """Samples of a model in the user's units, float64; it is left as it was.

    Args:
        model: Its core has ``sample``; samples of class-conditional models have the classes in turn.
        count: How many.
        shape: Of one example.
        seed: Of what is drawn.
    """
    parts = []
    with torch.no_grad(), eval_mode(model):
        generator = Generator().manual_seed(mix(seed, 17))
        for start in range(0, count, AT_ONCE):
            parts.append(core_of(model).sample(min(AT_ONCE, count - start), generator=generator))
        values = torch.cat(parts).reshape(count, *shape)
        undo = getattr(getattr(model, "preprocess", None), "inverse", None)
        values = values if undo is None else undo(values)
    return values.detach().cpu().double()


_DRAWN: WeakKeyDictionary[nn.Module, tuple[str, Sequence[Batch], Sequence[Batch], Compared]] = (
    WeakKeyDictionary()
)
"""By model: a digest of its weights, the batches, which are held lest others take their place, the answer."""


def compared(subject: Subject) -> Compared:
    """Samples of a subject's generator beside its data; drawn anew only where weights or data have changed.

    Args:
        subject: Its model can be sampled.
    """
    digest, known = _digest(subject.model), _DRAWN.get(subject.model)
    if known is not None:
        weights, test, train, found = known
        if weights == digest and test is subject.test and train is subject.train:
            return found
    found = _compare(subject)
    _DRAWN[subject.model] = (digest, subject.test, subject.train, found)
    return found


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _compare(subject: Subject) -> Compared:
    test, _ = _rows(subject.test, MOST, seed=1)
    train, labels = _rows(subject.train, TRAINING, seed=2) if len(subject.train) else (test[:0], None)
    samples, failure = torch.full_like(test, torch.nan), ""
    try:
        samples = draw(subject.model, len(test), test.shape[1:])
    except ValueError as error:
        failure = f"the model draws nothing: {error}"
    if not failure and (bad := int((~samples.flatten(1).isfinite()).any(1).sum())):
        failure = f"{bad} of {len(samples)} samples are not finite"
    real = train if len(train) > 1 else test
    spread = real.std(0) if real.ndim == 2 else real.std()
    return Compared(
        samples=samples,
        test=test,
        train=train,
        labels=torch.empty(0, dtype=torch.int64) if labels is None else labels,
        scale=torch.where(spread > 0, spread, 1.0),
        failure=failure,
    )


def _rows(batches: Sequence[Batch], most: int, *, seed: int) -> tuple[Tensor, Tensor | None]:
    """Rows that count and their class labels; at random where there are more than ``most``."""
    inputs: list[Tensor] = []
    labels: list[Any] = []
    for batch in batches:
        kept = (
            torch.ones(len(batch.inputs[0]), dtype=torch.bool) if batch.weight is None else batch.weight > 0
        )
        inputs.append(batch.inputs[0][kept].detach().cpu().double())
        labels.append(None if batch.targets is None else batch.targets[kept].detach().cpu())
    x = torch.cat(inputs)
    known = all(y is not None and not y.is_floating_point() and y.ndim == 1 for y in labels)
    y = torch.cat(labels).long() if known else None
    if len(x) > most:
        chosen = torch.randperm(len(x), generator=Generator().manual_seed(mix(0, 18, seed)))[:most]
        x, y = x[chosen], None if y is None else y[chosen]
    return x, y
