"""What a subject answers on its held-out examples, term by term, and means over it with their errors.

A term is one comparison of an output with a target; an example may have several (the tokens of a text, the
components of a vector). Terms of one example are not independent draws, examples are: errors are computed
over examples. Cochran (1977), Section 2.11 (the ratio of two totals).
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.findings import Premise, Subject
from margin.core.tasks import CLASSES, Task
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, expand_weight
from margin.engine.loop import risk


class Terms(NamedTuple):
    """Values of single terms, in order, with what each weighs and the example it belongs to."""

    values: Float[Tensor, " terms"]
    weight: Float[Tensor, " terms"]
    example: Int[Tensor, " terms"]


class Answered(NamedTuple):
    """Outputs and targets of single terms, in order, with what each weighs and its example."""

    outputs: Tensor
    targets: Tensor
    weight: Float[Tensor, " terms"]
    example: Int[Tensor, " terms"]

    def terms(self, values: Tensor) -> Terms:
        """The same terms with ``values`` computed from their outputs and targets."""
        return Terms(values.double(), self.weight, self.example)


class Estimate(NamedTuple):
    """An estimated mean, its standard error, and the number of equally weighted examples it is worth."""

    mean: Tensor
    stderr: Tensor
    examples: float


def _kept(shape_of: Tensor, batch: Batch, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which terms count, their weight and their example, for terms shaped as ``shape_of``."""
    counted = expand_weight(torch.ones_like(shape_of, dtype=torch.float64), batch.weight).cpu()
    example = torch.arange(first, first + len(counted)).reshape(-1, *[1] * (counted.ndim - 1))
    keep = counted > 0
    return keep, counted[keep], example.expand_as(counted)[keep]


def _draws(batches: Iterable[Batch], example: Tensor) -> Tensor:
    """The independent draw that each term belongs to: its example, or the group that its example is of."""
    groups = getattr(getattr(batches, "examples", None), "groups", None)
    return example if groups is None else groups[example]


@torch.no_grad()
def held_out_terms(
    model: nn.Module, batches: Iterable[Batch], measure: Callable[[nn.Module, Batch, Generator], Tensor]
) -> Terms:
    """A value for every term of weight > 0, in float64 on the CPU; leaves no trace.

    Args:
        model: The module that is asked, in evaluation mode.
        batches: The examples.
        measure: ``(model, batch, generator) -> one value per term``, an objective for instance.
    """
    rows, first = [], 0
    with eval_mode(model) as generator:
        for batch in batches:
            values = measure(model, batch, generator).double().cpu()
            keep, weight, example = _kept(values, batch, first)
            rows.append((values[keep], weight, example))
            first += len(values)
    found = Terms(*(torch.cat(column) for column in zip(*rows, strict=True)))
    return found._replace(example=_draws(batches, found.example))


T = TypeVar("T")

KEPT = 2**28
"""Bytes of what one pass gave that are kept for other claims: a quarter of a gibibyte."""


def kept(subject: Subject, name: str, compute: Callable[[], T], size: Callable[[T], int]) -> T:
    """What ``compute`` gives, computed once for all claims of a subject while its model stays as it is.

    It is kept in the subject itself, so it goes with it, and only where it takes at most :data:`KEPT` bytes.

    Args:
        subject: Whose model is asked.
        name: What is computed.
        compute: A function of the subject alone.
        size: The bytes that a result takes.
    """
    # The tensors' version counters tell every change in place.
    tensors = (*subject.model.parameters(), *subject.model.buffers())
    state = tuple((x.data_ptr(), x._version) for x in tensors if not x.is_inference())
    if name in subject.kept and subject.kept[name][0] == state:
        found: T = subject.kept[name][1]
        return found
    found = compute()
    if size(found) <= KEPT:
        subject.kept[name] = (state, found)
    return found


def _bytes(found: Terms | Answered) -> int:
    return sum(x.numel() * x.element_size() for x in found)


def held_out_losses(subject: Subject) -> Terms:
    """The objective's loss of every held-out term of weight > 0, in float64 on the CPU; leaves no trace.

    It is computed once for all claims of the subject.
    """

    def compute() -> Terms:
        return held_out_terms(subject.model, subject.test, subject.objective)

    return kept(subject, "losses", compute, _bytes)


def held_out_answers(subject: Subject) -> Answered:
    """The outputs and targets of every held-out term of weight > 0, on the CPU; leaves no trace.

    They are computed once for all claims of the subject: nobody writes into them.

    Raises:
        ValueError: A batch has no targets, or the outputs are no tensor with a row per target.
    """
    return kept(subject, "answers", lambda: _held_out_answers(subject), _bytes)


@torch.no_grad()
def _held_out_answers(subject: Subject) -> Answered:
    rows, first = [], 0
    with eval_mode(subject.model):
        for batch in subject.test:
            if batch.targets is None:
                raise ValueError("the held-out examples have no targets")
            outputs = subject.model(*batch.inputs)
            shape = batch.targets.shape
            if not isinstance(outputs, Tensor) or outputs.shape[: len(shape)] != shape:
                raise ValueError(
                    f"the model must return one tensor with a row per target: got "
                    f"{tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__} "
                    f"for targets {tuple(shape)}"
                )
            keep, weight, example = _kept(batch.targets, batch, first)
            rows.append((outputs.cpu()[keep], batch.targets.cpu()[keep], weight, example))
            first += len(outputs)
    found = Answered(*(torch.cat(column) for column in zip(*rows, strict=True)))
    return found._replace(example=_draws(subject.test, found.example))


def per_example(terms: Terms) -> tuple[Float[Tensor, " examples"], Float[Tensor, " examples"]]:
    """The sum of weight times value, and of weight, over the terms of each example."""
    ids, position = terms.example.unique(return_inverse=True)
    zeros = torch.zeros(len(ids), dtype=torch.float64)
    return (
        zeros.index_add(0, position, terms.weight * terms.values),
        zeros.index_add(0, position, terms.weight),
    )


def weighted_mean(terms: Terms) -> Estimate:
    r"""The weighted mean of terms, as an estimate of the mean over the population of examples.

    .. math:: m = \frac{\sum_i a_i}{\sum_i b_i}, \quad
        s^2 = \frac{n}{n-1} \frac{\sum_i (a_i - m b_i)^2}{(\sum_i b_i)^2}, \quad
        n_{\mathrm{eff}} = \frac{(\sum_i b_i)^2}{\sum_i b_i^2}

    with a_i = sum of w v and b_i = sum of w over the terms of example i. Equal weights and one term an
    example give the sample mean, s / sqrt(n) and n. Terms of one example count as one draw however
    dependent they are.

    Returns:
        The estimate; a standard error of NaN where there is a single example.

    Reference: Cochran 1977, Section 2.11 (ratio estimate); Kish 1965, Section 11.7 (effective size).
    """
    if len(terms.values) == 0:
        nothing = torch.tensor(math.nan, dtype=torch.float64)
        return Estimate(nothing, nothing, 0.0)
    a, b = per_example(terms)
    mean = a.sum() / b.sum()
    n = len(a)
    scale = n / (n - 1) if n > 1 else math.nan
    variance = scale * (a - mean * b).square().sum() / b.sum().square()
    return Estimate(mean, variance.sqrt(), float(b.sum().square() / b.square().sum()))


@torch.no_grad()
def output_of_one(subject: Subject) -> object:
    """What the model answers to its first held-out example, or batch where its examples read each other.

    That tells whether a claim applies, at the cost of one example; of what is kept already, at none.
    """
    if "answers" in subject.kept:
        return held_out_answers(subject).outputs[:1]
    batch = subject.test[0]
    inputs = tuple(x[:1] for x in batch.inputs) if subject.independent and batch.divisible else batch.inputs

    def compute() -> object:
        with eval_mode(subject.model):
            return subject.model(*inputs)

    return kept(subject, "output", compute, lambda _: 0)


def independent_draws(subject: Subject) -> Premise:
    """The hypothesis of every error over examples: they are independent draws from one distribution."""
    text = "the held-out examples are independent draws from one distribution"
    if subject.groups and subject.independent:
        text = f"the held-out groups of {subject.groups!r} are independent draws from one distribution"
        return Premise(
            text, "assumed", "errors are over groups: each counts as one example, its rows as terms"
        )
    if subject.independent:
        return Premise(text, "assumed", "a sample cannot show how it was drawn")
    return Premise(text, "refuted", "the outputs of a batch depend on the other examples of the batch")


def described(found: Terms | Answered, estimate: Estimate) -> str:
    """How a statement calls the sample: its examples, and its terms and weights where they differ."""
    examples, terms = len(found.example.unique()), len(found.example)
    words = f"{examples:,} held-out examples"
    if terms == examples and abs(estimate.examples - examples) < 1e-6 * examples:
        return words
    return f"{words} ({terms:,} terms, worth {estimate.examples:,.0f} examples of equal weight)"


def unanswered(values: Tensor, what: str) -> str:
    """Why a finding has no number: how many rows of ``values`` are not finite, or ""."""
    bad = ~values.isfinite()
    bad = bad.flatten(1).any(1) if bad.ndim > 1 else bad
    if len(values) == 0:
        return "no held-out example has a weight above 0"
    if not bool(bad.any()):
        return ""
    first = int(bad.nonzero()[0, 0])
    return f"{what} is not finite for {int(bad.sum())} of {len(values)} terms, the first of index {first}"


def stated(
    outputs: Tensor, targets: Tensor, weight: Tensor | None = None, *, task: Task = CLASSES
) -> Subject:
    """A subject that answers its own inputs: its outputs are known, and so is every finding on it.

    Args:
        outputs: What the model answers, a row per example.
        targets: The targets.
        weight: Weight of each example; None: 1.
        task: How the outputs are read; it must have a loss.
    """
    weighted = Batch((outputs,), targets, weight)
    return Subject(model=nn.Identity(), test=[weighted], task=task, objective=risk(task))
