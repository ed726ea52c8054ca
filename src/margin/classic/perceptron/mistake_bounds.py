"""Mistake bounds (Novikoff 1962) of the multiclass perceptron, by Kesler's points, and of kernels."""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.perceptron.claims import signed_examples, training_rows
from margin.classic.perceptron.kernel_perceptron import KernelPerceptron, dual_mistakes_of_pass
from margin.classic.perceptron.multiclass_perceptron import (
    MulticlassPerceptron,
    kesler_points,
    multiclass_mistakes_of_pass,
)
from margin.classic.perceptron.separation import MOST_ENTRIES, Separation, separate
from margin.core.findings import Finding, Subject
from margin.core.tasks import HALFSPACE, SCORES
from margin.core.types import Batch
from margin.data.sets.synthetic import blobs
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of

T = TypeVar("T", bound=nn.Module)

MOST_KERNEL = 1000
"""Examples whose kernel matrix is decomposed."""


def multiclass(subject: Subject, *, passes: int = 1000) -> Finding:
    """Whether the multiclass rule, from 0, makes at most 2 (R / gamma)^2 mistakes on its training examples.

    gamma is the largest margin of Kesler's points over (W, b) of Frobenius norm 1, R = max |(x, 1)|. Each
    mistake adds a vector of length sqrt(2) R at most, whose product with the best (W, b) is gamma at least.

    Args:
        subject: A multiclass perceptron with its training examples.
        passes: Passes after which a run that still errs is given up.
    """
    x, labels = training_rows(subject)
    classes = _core(subject, MulticlassPerceptron).bias.shape[0]
    w, b, one = x.new_zeros(classes, x.shape[1]), x.new_zeros(classes), x.new_ones(len(x))
    return _bounded(
        "The multiclass rule, from 0, makes at most 2 (R / gamma)^2 mistakes on its training examples.",
        separate(kesler_points(x, labels, classes)),
        lambda: len(multiclass_mistakes_of_pass(w, b, x, labels, one)),
        passes,
    )


def kernel(subject: Subject, *, passes: int = 1000) -> Finding:
    """Whether the kernel perceptron, from 0, makes at most (R / gamma)^2 mistakes, both in its space.

    The examples are embedded isometrically in as many dimensions by the square root of their kernel matrix;
    there the run is Rosenblatt's, and gamma the largest margin.

    Args:
        subject: A kernel perceptron with its training examples.
        passes: Passes after which a run that still errs is given up.
    """
    x, sign = signed_examples(subject)
    core = _core(subject, KernelPerceptron)
    options = {name: getattr(core, name) for name in ("kernel", "degree", "offset", "width")}
    model = KernelPerceptron(x.shape[1], 2, len(x), **options).double()
    model.examples.copy_(x)
    return _bounded(
        "The kernel perceptron, from 0, makes at most (R / gamma)^2 mistakes on its training examples.",
        separate(sign[:, None] * embedded(model.gram(x, x))),
        lambda: len(dual_mistakes_of_pass(model, sign)),
        passes,
    )


def embedded(K: Float[Tensor, "rows rows"]) -> Float[Tensor, "rows rows"]:
    """Points whose inner products are K: its eigenvectors times the roots of its eigenvalues."""
    values, vectors = torch.linalg.eigh(K)
    return vectors * values.clamp(min=0).sqrt()


def _bounded(statement: str, found: Separation, run: Callable[[], int], passes: int) -> Finding:
    """At most the squared ratio of the longest point to the margin; ``run`` counts the mistakes of a pass."""
    value, high, failure = torch.tensor(math.nan), None, "" if found.inseparable else found.evidence()
    if found.separable:
        counts: list[int] = []
        while len(counts) < passes and 0 not in counts[-1:]:
            counts.append(run())
        value = torch.tensor(sum(counts))
        high = torch.tensor(math.floor((found.radius / found.margin) ** 2 * (1 + 1e-9)))
        failure = f"the rule still errs after {passes} passes" if counts[-1] else ""
    return Finding(
        statement=statement,
        value=value,
        unit="mistakes",
        range=(0.0, math.inf),
        high=high,
        premises=(found.premise,),
        reference="Novikoff 1962; Freund and Schapire 1999, Theorem 1",
        failure=failure,
    )


def _core(subject: Subject, kind: type[T]) -> T:
    core = core_of(subject.model)
    if not isinstance(core, kind):
        raise ValueError(f"the bound needs a {kind.__name__}: got a {type(core).__name__}")
    return core


def is_multiclass(subject: Subject) -> bool:
    """Whether the model is the catalog's multiclass perceptron, and Kesler's points are few enough."""
    core = core_of(subject.model)
    if not isinstance(core, MulticlassPerceptron):
        return False
    classes, features = core.weight.shape
    return _most_rows(subject) * (classes - 1) * classes * (features + 1) <= MOST_ENTRIES


def is_kernel(subject: Subject) -> bool:
    """Whether the model is the catalog's kernel perceptron, and its examples few enough."""
    return isinstance(core_of(subject.model), KernelPerceptron) and _most_rows(subject) <= MOST_KERNEL


def _most_rows(subject: Subject) -> int:
    """An upper bound of the number of training examples, from the first batch alone."""
    return len(subject.train) * len(subject.train[0].inputs[0]) if len(subject.train) else 0


def multiclass_demo() -> Subject:
    """Sixty points in three balls far apart."""
    part = blobs(examples=60, classes=3, radius=8.0).splits["train"]
    batches = [Batch((part.inputs[0].float(),), part.targets)]
    model = MulticlassPerceptron(2, 3)
    return Subject(model=model, test=batches, train=batches, task=SCORES, objective=risk(SCORES))


def kernel_demo() -> Subject:
    """XOR, which the polynomial kernel of degree 2 separates."""
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    batches = [Batch((x,), torch.tensor([1, 1, 0, 0]))]
    model = KernelPerceptron(2, 2, 4)
    return Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))
