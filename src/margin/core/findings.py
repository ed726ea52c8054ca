"""What a claim is asked of (a subject), what it answers (a finding), and how the verdict follows.

The verdict is computed, never stated: it compares where the measured value may lie with what theory
promises. See :class:`Finding`.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from margin.core.catalog import Claim, resolve
from margin.core.tasks import SPANS, Task
from margin.core.types import Batch, Domain, Objective

Kind = Literal["exact", "estimate", "lower", "upper"]
Scope = Literal["always", "probability", "exists", "limit"]
Status = Literal["proved", "sampled", "assumed", "refuted"]

STANDARD_ERRORS = 4.0
"""Half-width of the interval of an estimate, in standard errors: 1 normal error in 16,000 is larger."""

PRINTED = 1.959964
"""Half-width of the interval that is printed, in standard errors: 1 normal error in 20 is larger."""


NO_MODEL = "needs a model: predictions alone are given"
"""What predictions lack that come without their model."""


class NotAsked(Exception):
    """Why a claim cannot be put to a subject, in one line, which is no failure of either.

    A claim raises it where a cap is hit, or where an answer would not fit: "more than 200,000 regions".
    """


class Verdict(StrEnum):
    """What follows from a finding, the gravest first."""

    UNFOUNDED = "unfounded"
    FAILED = "failed"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"
    VACUOUS = "vacuous"
    MEASURED = "measured"
    HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class Premise:
    """A hypothesis of a theorem, on this subject.

    Args:
        text: The hypothesis, as the theorem states it.
        status: proved, sampled (no counter-example found), assumed (nothing checked) or refuted.
        evidence: What was looked at; for a refuted premise, the layer or the example.
    """

    text: str
    status: Status
    evidence: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """A statement, what was measured, what theory promises, and the verdict that follows.

    The value's reach, on which the verdict rests, is ``value -+ 4 stderr``, or the stated interval, plus
    rounding, and holds the printed one; a ``lower`` (``upper``) estimate reaches to the end of its range.
    What is printed is the 95 % interval: :attr:`shown`. Both end where the range ends. With several elements
    each has its own verdict and the gravest is the finding's.

    Args:
        statement: What is claimed, in one sentence.
        value: What was measured: a scalar, or one element per example or per label.
        range: The least and largest value possible at all.
        unit: Unit of the value; "1" where it has none.
        premises: The theorem's hypotheses on this subject; () declares that it needs none.
        equals: What the value is by an identity: it is the promise's both ends, ``low`` and ``high``.
        kind: exact, estimate, or a one-sided estimate of the truth (lower, upper).
        stderr: Standard error of an estimate.
        interval: A confidence interval of the truth, where a standard error would mislead.
        printed: The 95 % interval, where it is neither ``interval`` nor ``value -+ 1.96 stderr``.
        sample: Of which examples the value is, where not of all that its question names: "1,024 drawn".
        failure: Why the method gave no number; "" where it did.
        low: Promised lower bound.
        high: Promised upper bound.
        scope: always, with probability, for some member of a class (exists), asymptotically (limit).
        tolerance: Width by which rounding may widen the promise, in the value's unit.
        labels: Names of the value's elements.
        sandwich: Where the quantity lies that the value bounds from one side only, element by element: the
            accuracy in a ball, between what is certified and what survived the attack. None: in the reach.
        curves: Named tensors that the report draws.
        remarks: What a reader must know besides the verdict, a sentence each: why there is no certificate.
        reference: Author, year and theorem, equation or section, where it is not that of the claim's row.
    """

    statement: str
    value: Tensor
    range: tuple[float, float]
    unit: str = "1"
    premises: tuple[Premise, ...] = ()
    equals: InitVar[Tensor | float | None] = None
    kind: Kind = "exact"
    stderr: Tensor | None = None
    interval: tuple[Tensor, Tensor] | None = None
    printed: tuple[Tensor, Tensor] | None = None
    sample: str = ""
    failure: str = ""
    low: Tensor | None = None
    high: Tensor | None = None
    scope: Scope = "always"
    tolerance: float = 0.0
    labels: tuple[str, ...] = ()
    sandwich: tuple[Tensor, Tensor] | None = None
    curves: Mapping[str, Tensor] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    reference: str = ""

    def __post_init__(self, equals: Tensor | float | None) -> None:
        if equals is not None:
            if self.low is not None or self.high is not None:
                raise ValueError("an identity promises one value: got equals with low or high")
            promised = torch.as_tensor(equals, dtype=torch.float64)
            object.__setattr__(self, "low", promised)
            object.__setattr__(self, "high", promised)
        if self.stderr is not None and self.interval is not None:
            raise ValueError("a finding has a stderr or an interval, not both")
        if self.kind == "exact" and (self.stderr is not None or self.interval is not None):
            raise ValueError("an exact value has neither stderr nor interval: use kind='estimate'")
        if self.printed is not None and self.stderr is None and self.interval is None:
            raise ValueError("a printed interval goes with a stderr or an interval: got neither")
        if self.labels and len(self.labels) != self.value.numel():
            raise ValueError(f"one label per element: got {len(self.labels)} for {self.value.numel()}")

    @cached_property
    def verdict_interval(self) -> tuple[Tensor, Tensor]:
        """The least and largest value that the truth may have, element by element: the verdict's interval.

        It holds the printed interval, which of few skewed terms may reach further than standard errors do.
        """
        below, above = self._ended(self.interval, STANDARD_ERRORS)
        if self.printed is None:
            return below, above
        least, most = self.shown
        return below.fmin(least), above.fmax(most)

    @cached_property
    def shown(self) -> tuple[Tensor, Tensor]:
        """The ends of the interval that is printed, of 95 %, element by element."""
        return self._ended(self.printed or self.interval, PRINTED)

    @cached_property
    def leaves_open(self) -> bool:
        """Whether each element may lie anywhere in its range, and nothing is promised of it."""
        if self.kind == "exact" or self.sandwich is not None or self.verdict is not Verdict.MEASURED:
            return False
        below, above = self.shown
        least, most = self.range
        below = self.value if self.kind == "lower" else below  # its own error is another matter
        above = self.value if self.kind == "upper" else above
        return bool(((below <= least) & (above >= most)).all())

    def _ended(self, ends: tuple[Tensor, Tensor] | None, errors: float) -> tuple[Tensor, Tensor]:
        """An interval, stated or of so many standard errors, with its rounding, cut at the range."""
        value = self.value.double()
        if ends is not None:
            below, above = (end.double() for end in ends)
        else:
            stderr = torch.zeros_like(value) if self.stderr is None else self.stderr.double()
            below, above = value - errors * stderr, value + errors * stderr
        if self.value.is_floating_point():
            rounding = torch.finfo(self.value.dtype).eps * value.abs()
            below, above = below - rounding, above + rounding
        least, most = self.range
        # An estimate may lie outside of the range, as one without bias; its interval holds it all the same.
        below, above = below.maximum(value.clamp(max=least)), above.minimum(value.clamp(min=most))
        if self.kind == "lower":
            above = torch.full_like(above, self.range[1])
        if self.kind == "upper":
            below = torch.full_like(below, self.range[0])
        return below, above

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict of each element of the value."""
        count = self.value.numel()
        if any(premise.status == "refuted" for premise in self.premises):
            return [Verdict.UNFOUNDED] * count
        if self.failure:
            return [Verdict.FAILED] * count
        below, above = (end.expand_as(self.value).flatten().tolist() for end in self.verdict_interval)
        low = _bound(self.low, self.value, -math.inf)
        high = _bound(self.high, self.value, math.inf)
        value = self.value.double().flatten().tolist()
        return [self._verdict(*case) for case in zip(value, below, above, low, high, strict=True)]

    def _verdict(self, value: float, below: float, above: float, low: float, high: float) -> Verdict:
        if not math.isfinite(value) or any(math.isnan(x) for x in (below, above, low, high)):
            return Verdict.FAILED
        if math.isinf(low) and math.isinf(high):
            return Verdict.MEASURED
        if low <= self.range[0] and high >= self.range[1]:
            return Verdict.VACUOUS
        low, high = low - self.tolerance, high + self.tolerance
        if low <= below and above <= high:
            return Verdict.HOLDS
        if self.scope in ("exists", "limit"):
            return Verdict.MEASURED
        return Verdict.VIOLATED if above < low or below > high else Verdict.INCONCLUSIVE

    @cached_property
    def verdict(self) -> Verdict:
        """The gravest verdict of the elements; a finding without elements failed."""
        order = list(Verdict)
        return min(self.verdicts, key=order.index, default=Verdict.FAILED)

    @cached_property
    def counts(self) -> dict[Verdict, int]:
        """How many elements have each verdict, the gravest first."""
        verdicts = self.verdicts
        return {verdict: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}

    @property
    def assuming(self) -> tuple[str, ...]:
        """The premises that nothing checked: a verdict of *holds* reads "holds, assuming ..."."""
        return tuple(premise.text for premise in self.premises if premise.status == "assumed")

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON values, the verdict included; non-finite numbers become strings."""
        record: dict[str, Any] = resolve("margin.core.records:record_of")(self)
        return record

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Finding":
        """The finding that :meth:`as_json` wrote, to the bit, on the CPU.

        Raises:
            ValueError: The record is damaged, or what follows from it is another than it says.
        """
        found: Finding = resolve("margin.core.records:finding_of_record")(record)
        return found


def finding_of(claim: Claim, subject: "Subject") -> Finding:
    """What a claim answers of a subject, with the row's reference where it has none, and its remark.

    Raises:
        NotAsked: The claim raised it, or its answer is no more than the range of the quantity; or it raised
            anything else where a parameter or a held-out input is not finite, or no example counts.
    """
    try:
        found: Finding = resolve(claim.ask)(subject)
    except NotAsked:
        raise
    except Exception as error:
        if odd := odd_parameter(subject.model) or _odd_example(subject.test):
            raise NotAsked(odd) from error
        raise
    if found.leaves_open:
        least, most = found.range
        raise NotAsked(f"the answer tells nothing: all of [{least:g}, {most:g}] is possible")
    remarks = (*found.remarks, *([subject.remark] if subject.remark else []))
    return replace(found, reference=found.reference or claim.reference, remarks=remarks)


def odd_parameter(model: nn.Module) -> str:
    """Which parameter or buffer of a model is the first that is not finite, in words; "" where all are."""
    for name, x in (*model.named_parameters(), *model.named_buffers()):
        if len(_not_finite(x)):
            return f"{name} of the model is not finite"
    return ""


def _not_finite(x: Tensor) -> Tensor:
    """The places of a tensor whose numbers are not finite; none of one that is sparse or of whole numbers."""
    real = x.layout is torch.strided and (x.is_floating_point() or x.is_complex())
    return (~x.isfinite()).nonzero() if real else torch.empty(0, 1, dtype=torch.int64)


def _odd_example(batches: Sequence[Batch]) -> str:
    """Which example has the first input that is not finite, or that none counts, in words; else ""."""
    before, counted = 0, False
    for batch in batches:
        for x in batch.inputs:
            if len(odd := _not_finite(x)):
                return f"an input of held-out example {before + int(odd[0, 0]):,} is not finite"
        before += len(batch.inputs[0])
        counted |= batch.weight is None or bool((batch.weight > 0).any())
    return "" if counted else "no held-out example has a weight above 0"


def demonstrated(claim: Claim) -> tuple[Finding, float]:
    """The finding of a claim's demonstration, and how long the question took."""
    subject = resolve(claim.demo)()
    start = time.perf_counter()
    finding = finding_of(claim, subject)
    return finding, time.perf_counter() - start


def _bound(bound: Tensor | None, value: Tensor, missing: float) -> list[float]:
    if bound is None:
        return [missing] * value.numel()
    return [float(x) for x in bound.double().expand_as(value).flatten()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """A model under audit, in the user's units: preprocessing is its first layer.

    Args:
        model: The module; a claim leaves no trace in it.
        test: Batches held out from training, on the model's device, in its dtype.
        train: Batches it was trained on; () where they are not known.
        task: How its outputs are read.
        objective: The loss of each term; :func:`without_loss` where the model has none.
        domain: Where one input may lie; None: inputs are not points that can be moved.
        independent: Whether an example's output is independent of the others of its batch.
        assumed: What was inferred rather than stated; printed first.
        class_names: Names of the classes, in the order of the labels.
        feature_names: Names of the features of an example that is a row of them, where they are known.
        encoding: The record of how a table was read: what each feature may be; {} of other data.
        label_names: Names of several labels that an example may have at once, in their order.
        vocabulary: What each token stands for, in order, where inputs are tokens and that is known.
        history: The rows of the training's history, each with ``step``; () where it is not known.
        initial: The model with the weights that the training began with, where they are known.
        lacks: What no claim may ask for, as a line says it: "has no gradient"; "" of a whole model.
        remark: What every finding must say, as that the model draws at random; "" of one that is a function.
        as_given: The module as it came, where the subject's handles it with care; None: the subject's own.
        groups: Of a held-out part in groups, what says which: there each group is one independent draw.
        reference_model: The reference model: a second one of the same kind, for claims that compare two.
        ood: Batches of another source (out of distribution), whose targets are not read; () of none.
        most: Examples at most that a question of many passes draws; None: as many as it says itself.
        most_answered: Training examples at most that the model answers, one draw for all questions; None: as
            many as :func:`~margin.theory.evidence.rows.training_draw` takes itself.
        certified: A law over the model's weights and what the training recorded of its risk certificate, by
            name; None where it was trained for none.
        selection: Whether the training chose nothing by the held-out examples, where its record tells.
        compared: How many models the held-out examples compared, this one the best of them perhaps, by the
            user's word; None where nothing was said.
        kept: What one claim computed of the model's answers and others need too, by its name; a subject that
            is made from this one begins with none.
    """

    model: nn.Module
    test: Sequence[Batch]
    task: Task
    objective: Objective
    train: Sequence[Batch] = ()
    domain: Domain | None = None
    independent: bool = True
    assumed: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    encoding: Mapping[str, Any] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()
    history: Sequence[Mapping[str, Any]] = ()
    initial: nn.Module | None = None
    reference_model: nn.Module | None = None
    lacks: str = ""
    remark: str = ""
    as_given: nn.Module | None = None
    groups: str = ""
    ood: Sequence[Batch] = ()
    most: int | None = None
    most_answered: int | None = None
    certified: tuple[nn.Module, Mapping[str, float]] | None = None
    selection: Premise | None = None
    compared: int | None = None
    kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.compared is not None and self.compared < 1:
            raise ValueError(f"selected_on_test must count this model, at least 1: got {self.compared}")

    def drawing(self, most: int | None) -> "Subject":
        """The same subject, of which a question of many passes draws at most so many examples.

        What was kept of the one is kept of the other.
        """
        made = replace(self, most=most)
        object.__setattr__(made, "kept", self.kept)
        return made

    def at_most(self, examples: int | None) -> int | None:
        """How many examples a question draws that would draw so many; None: all."""
        return min((n for n in (self.most, examples) if n is not None), default=None)


def without_loss(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    """The objective of a model that has none, as one that learns from an adversary.

    Raises:
        ValueError: Always.
    """
    raise ValueError("this model has no loss")


def has_loss(subject: Subject) -> bool:
    """Whether a loss judges the model."""
    return subject.objective is not without_loss


def has_labels(subject: Subject) -> bool:
    """Whether the targets are classes."""
    return subject.task.classes is not None and has_targets(subject)


def has_one_label(subject: Subject) -> bool:
    """Whether the targets are classes, one an example."""
    first = subject.test[0].targets if has_labels(subject) else None
    return first is not None and first.ndim == 1


def has_probabilities(subject: Subject) -> bool:
    """Whether the model states a probability for each class."""
    return subject.task.probabilities is not None and has_targets(subject)


def has_targets(subject: Subject) -> bool:
    """Whether the held-out examples come with targets."""
    return len(subject.test) > 0 and subject.test[0].targets is not None


def answers_each_target(subject: Subject) -> bool:
    """Whether there are targets, and the outputs have a row for each: not where two name a span of tokens."""
    return has_targets(subject) and subject.task.name != SPANS.name


def has_real_input(subject: Subject) -> bool:
    """Whether there is one input, of real numbers and of one size: a point that can be moved."""
    inputs = subject.test[0].inputs if subject.test else ()
    return len(inputs) == 1 and inputs[0].is_floating_point() and not has_several_sizes(subject)


def has_several_sizes(subject: Subject) -> bool:
    """Whether batches that are handed over hold examples of several sizes, as padded each by itself."""
    given = [part for part in (subject.test, subject.train) if isinstance(part, list | tuple)]
    return len({batch.inputs[0].shape[1:] for part in given for batch in part}) > 1


def why_not_movable(subject: Subject) -> str:
    """Why no input is a point that can be moved, in a line; "" where nothing more can be said."""
    if subject.lacks:
        return subject.lacks
    inputs = subject.test[0].inputs if subject.test else ()
    if len(inputs) > 1:
        return f"has {len(inputs)} inputs: it needs one input of real numbers"
    if inputs and not inputs[0].is_floating_point():
        return "inputs are tokens"
    return "examples are of several sizes: it needs one" if has_several_sizes(subject) else ""


def why_no_model(subject: Subject) -> str:
    """Why there is no model that could be asked, in a line; "" where there is one."""
    return NO_MODEL if subject.lacks == NO_MODEL else ""


def what_lacks(subject: Subject) -> str:
    """What no claim may ask of the subject, in a line; ""."""
    return subject.lacks


def has_domain(subject: Subject) -> bool:
    """Whether the box is known in which an input may be moved."""
    return subject.domain is not None


def has_training_batches(subject: Subject) -> bool:
    """Whether the training examples are known."""
    return len(subject.train) > 0


def has_two_examples(subject: Subject) -> bool:
    """Whether two held-out examples count, so that a standard error or an interval can be told."""
    count = 0
    for batch in subject.test:
        weight = batch.weight
        rows = len(batch.inputs[0]) if batch.targets is None else len(batch.targets)
        count += rows if weight is None else int((weight.reshape(len(weight), -1) > 0).any(1).sum())
        if count > 1:
            return True
    return False


def has_two_labels(subject: Subject) -> bool:
    """Whether the held-out examples that count are of two classes or more."""
    seen: set[float] = set()
    for batch in subject.test:
        if batch.targets is not None:
            weight = batch.weight
            kept = batch.targets if weight is None else batch.targets[weight.expand_as(batch.targets) > 0]
            seen.update(kept.unique().tolist())
        if len(seen) > 1:
            return True
    return False


def has_parameters(subject: Subject) -> bool:
    """Whether parameters require a gradient, all real: by complex ones a derivative is another thing."""
    trained = [p for p in subject.model.parameters() if p.requires_grad]
    return len(trained) > 0 and not any(p.is_complex() for p in trained)


def has_history(subject: Subject) -> bool:
    """Whether the training left a history."""
    return len(subject.history) > 0


def has_certificate(subject: Subject) -> bool:
    """Whether a law over the weights was trained, with a certificate of its risk."""
    return subject.certified is not None


def has_initial(subject: Subject) -> bool:
    """Whether the weights are known that the training began with."""
    return subject.initial is not None


def has_reference_model(subject: Subject) -> bool:
    """Whether a reference model is given."""
    return subject.reference_model is not None


def is_independent(subject: Subject) -> bool:
    """Whether examples do not read each other."""
    return subject.independent
