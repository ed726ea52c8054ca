"""What a subject answers on its held-out examples, term by term, and means over it with their errors.

A term is one comparison of an output with a target; an example may have several (the tokens of a text, the
components of a vector). Terms of one example are not independent draws, examples are: errors are computed
over examples. Cochran (1977), Section 2.11 (the ratio of two totals).

Confidence limits of a share and of a mean of several estimates: Wilson (1927) inverts the score test of a
proportion: even where all went right, the limits leave room. Zou and Donner (2008) recover from the limits of
several estimates the spread that each has near its own limit, and from these the limits of their sum; of
shares, Price and Bonett (2004) add successes and failures instead. Of 3,000 simulated samples the intervals
of balanced accuracy, macro F1 and AUROC at 95 % hold the truth in 93 to 97 %, up to 99 % where a mistake or
two decide.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.findings import Premise, Subject
from margin.core.tasks import CLASSES, Task
from margin.core.types import Batch
from margin.data.formats.series.windows import Windows
from margin.engine.evaluation import eval_mode, weight_of_terms
from margin.engine.loop import Risk, risk
from margin.theory.evidence.duplicates import unseen_draws
from margin.theory.evidence.groups import new_examples
from margin.theory.evidence.rows import answer_to_one, answered_batches


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


def _counted(terms: Tensor, batch: Batch, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which terms of a batch count, their weight, and their example, counted from ``first``."""
    counted = weight_of_terms(terms, batch)
    example = torch.arange(first, first + len(counted)).reshape(-1, *[1] * (counted.ndim - 1))
    keep = counted > 0
    return keep, counted[keep], example.expand_as(counted)[keep]


MOST_BLOCKS, FEWEST_BLOCKS = 20, 4
"""Blocks of neighboring windows of a series; with fewer their spread tells next to nothing of the mean's."""


def window_blocks(batches: object) -> int:
    """The blocks that the windows of a series are taken in, each as long as a forecast at least; 0 of others.

    Windows of neighboring origins forecast the same rows, so their errors are nearly one.
    """
    windows = getattr(batches, "examples", None)
    if not isinstance(windows, Windows):
        return 0
    count = min(MOST_BLOCKS, len(windows) // windows.horizon)
    return count if count >= FEWEST_BLOCKS else 0


def _draws(batches: Iterable[Batch], example: Tensor) -> Tensor:
    """The independent draw that each term belongs to: its example, or the group or block that it is of."""
    examples: Any = getattr(batches, "examples", None)
    groups = getattr(examples, "groups", None)
    if groups is None and (blocks := window_blocks(batches)):
        return example * blocks // len(examples)  # in order of time
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
            keep, weight, example = _counted(values, batch, first)
            rows.append((values[keep], weight, example))
            first += len(values)
    found = Terms(*(torch.cat(column) for column in zip(*rows, strict=True)))
    return found._replace(example=_draws(batches, found.example))


T = TypeVar("T")
Part = Literal["test", "train"]

KEPT = 3 * 2**27
"""Bytes of all that passes gave and is kept for other claims: outputs and losses of ten million pixels."""


def kept(subject: Subject, name: str, compute: Callable[[], T], size: Callable[[T], int]) -> T:
    """What ``compute`` gives, computed once for all claims of a subject while its model stays as it is.

    It is kept in the subject itself, so it goes with it, and only where all that is kept takes at most
    :data:`KEPT` bytes.

    Args:
        subject: Whose model is asked.
        name: What is computed.
        compute: A function of the subject alone.
        size: The bytes that a result takes, beside what else is kept.
    """
    tensors = (*subject.model.parameters(), *subject.model.buffers())  # a version counts changes in place
    state = tuple((x.data_ptr(), x._version) for x in tensors if not x.is_inference())
    if name in subject.kept and subject.kept[name][0] == state:
        found: T = subject.kept[name][1]
        return found
    found = compute()
    taken = size(found)
    if taken + sum(others for key, (_, _, others) in subject.kept.items() if key != name) <= KEPT:
        subject.kept[name] = (state, found, taken)
    return found


class Outputs(NamedTuple):
    """Outputs and targets of every term, or why there are none."""

    answers: Answered | None
    odd: str = ""


def outputs_of(subject: Subject, part: Part) -> Outputs:
    """The outputs and targets of every term of weight > 0, on the CPU; leaves no trace.

    They are computed once for all claims of the subject: nobody writes into them. Where the time of the claim
    that asked first is over, the next one goes on from the batch where it was stopped.

    Args:
        subject: Whose model is asked.
        part: Of which examples: of training ones those of :func:`training_draw`.
    """
    rows: list[tuple[Answered, int]] = kept(subject, f"rows on {part}", list, lambda _: 0)
    found = kept(
        subject,
        f"outputs on {part}",
        lambda: _outputs(subject.model, answered_batches(subject, part), rows),
        lambda found: sum(x.untyped_storage().nbytes() for x in found.answers or ()),
    )
    rows.clear()
    return found


@torch.no_grad()
def _outputs(model: nn.Module, batches: Sequence[Batch], rows: list[tuple[Answered, int]]) -> Outputs:
    """The outputs on batches, of which the first have given ``rows``, which grow.

    Beside each stands the number of examples up to its end: of outputs, as a graph is one of many nodes.
    """
    with eval_mode(model):
        for i, batch in enumerate(batches):
            if i < len(rows):
                continue
            first = rows[-1][1] if rows else 0
            if batch.targets is None:
                return Outputs(None, "the held-out examples have no targets")
            outputs = model(*batch.inputs)
            shape = batch.targets.shape
            if not isinstance(outputs, Tensor) or outputs.shape[: len(shape)] != shape:
                kind = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
                rule = "the model must return one tensor with a row per target"
                return Outputs(None, f"{rule}: got {kind} for targets {tuple(shape)}")
            keep, weight, example = _counted(batch.targets, batch, first)
            answered = Answered(outputs.cpu()[keep], batch.targets.cpu()[keep], weight, example)
            rows.append((answered, first + len(outputs)))
    found = Answered(*(torch.cat(column) for column in zip(*(answered for answered, _ in rows), strict=True)))
    if bool((found.weight == 1).all()):  # as of the pixels of most images: one number stands for all
        found = found._replace(weight=found.weight.new_ones(()).expand(len(found.weight)))
    return Outputs(found._replace(example=_draws(batches, found.example)))


def losses_of(subject: Subject, part: Part) -> Terms:
    """The objective's loss of every term of weight > 0, in float64 on the CPU; leaves no trace.

    It is computed once for all claims of the subject, from the outputs where it is a loss of these.
    """
    batches = answered_batches(subject, part)

    def compute() -> Terms:
        answers = outputs_of(subject, part).answers if _is_of_outputs(subject, batches) else None
        if answers is None:
            return held_out_terms(subject.model, batches, subject.objective)
        values = subject.objective(nn.Identity(), Batch((answers.outputs,), answers.targets), Generator())
        return answers.terms(values)

    # weights and examples are those of the outputs
    return kept(subject, f"losses on {part}", compute, lambda found: found.values.untyped_storage().nbytes())


def _is_of_outputs(subject: Subject, batches: Sequence[Batch]) -> bool:
    """Whether the objective is a loss of the outputs, one for each example or of each term by its own."""
    targets = batches[0].targets if len(batches) else None
    if targets is None or not isinstance(subject.objective, Risk):
        return False
    return targets.ndim == 1 or subject.objective.task.by_term


def held_out_losses(subject: Subject) -> Terms:
    """The objective's loss of every held-out term of weight > 0: see :func:`losses_of`."""
    return losses_of(subject, "test")


def held_out_answers(subject: Subject) -> Answered:
    """The outputs and targets of every held-out term of weight > 0, on the CPU; leaves no trace.

    They are computed once for all claims of the subject: nobody writes into them.

    Raises:
        ValueError: A batch has no targets, or the outputs are no tensor with a row per target.
    """
    found = outputs_of(subject, "test")
    if found.answers is None:
        raise ValueError(found.odd)
    return found.answers


def per_example(terms: Terms) -> tuple[Float[Tensor, " examples"], Float[Tensor, " examples"]]:
    """The sum of weight times value, and of weight, over the terms of each example."""
    position = position_of(terms.example)
    zeros = torch.zeros(int(position.max()) + 1 if len(position) else 0, dtype=torch.float64)
    return (
        zeros.index_add(0, position, terms.weight * terms.values),
        zeros.index_add(0, position, terms.weight),
    )


def position_of(example: Int[Tensor, " terms"]) -> Int[Tensor, " terms"]:
    """The place of each term's example among those that occur, in their order."""
    ordered = bool((example.diff() >= 0).all())  # as they are but for groups: no sorting is needed
    found: Tensor = (torch.unique_consecutive if ordered else torch.unique)(example, return_inverse=True)[1]
    return found


def are_whole(total: Float[Tensor, " examples"], weight: Float[Tensor, " examples"]) -> bool:
    """Whether each example is right or wrong as a whole, as where it has one term.

    Args:
        total: The weight of the terms of each example that are right; of a difference, less that of others.
        weight: The weight of all its terms.
    """
    return bool(((total / weight) % 1 == 0).all())


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
    if "outputs on test" in subject.kept and (answers := outputs_of(subject, "test").answers) is not None:
        return answers.outputs[:1]
    return kept(subject, "output", lambda: answer_to_one(subject), lambda _: 0)


def independent_draws(subject: Subject) -> Premise:
    """The hypothesis of every error over examples: they are independent draws from one distribution.

    The data refute it where held-out rows are copies of training rows, or of each other, or windows of one
    series with them, or of their groups: see :mod:`margin.theory.evidence`.
    """
    text = "the held-out examples are independent draws from one distribution"
    seen = unseen_draws(subject) or new_examples(subject)
    if subject.independent and seen:
        return Premise(text, "refuted", seen)
    if subject.groups and subject.independent:
        text = f"the held-out groups of {subject.groups!r} are independent draws from one distribution"
        return Premise(
            text, "assumed", "errors are over groups: each counts as one example, its rows as terms"
        )
    windows = getattr(subject.test, "examples", None)
    if isinstance(windows, Windows) and subject.independent:
        if blocks := window_blocks(subject.test):
            text = f"{blocks} blocks of neighboring held-out windows are independent draws"
            return Premise(text, "assumed", "errors are over blocks: each counts as one example")
        few = f"{len(windows)} windows of one series overlap, each {windows.horizon} rows ahead"
        return Premise(text, "refuted", few)
    if subject.independent:
        return Premise(text, "assumed", "a sample cannot show how it was drawn")
    return Premise(text, "refuted", "the outputs of a batch depend on the other examples of the batch")


def described(found: Terms | Answered, estimate: Estimate, called: str = "held-out examples") -> str:
    """How a statement calls the sample: its examples, and its terms and weights where they differ."""
    examples, terms = len(found.example.unique()), len(found.example)
    words = f"{examples:,} {called}"
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


class Limited(NamedTuple):
    """An estimate with its confidence limits.

    Args:
        value: The estimate.
        low: Its lower limit.
        high: Its upper limit.
        direction: How the estimate moves when an example is weighed more, up to a factor: two estimates
            are correlated as their directions are. Where no example moves it, what each weighs in it.
        trials: Of a share, the number of examples of equal weight that it is worth.
    """

    value: float
    low: float
    high: float
    direction: Float[Tensor, " examples"]
    trials: float = math.nan


def normal_quantile(level: float) -> float:
    """The half-width, in standard errors, of a central normal interval of probability ``level``.

    Raises:
        ValueError: ``level`` is not in (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1): got {level}")
    return NormalDist().inv_cdf((1 + level) / 2)


def student_quantile(level: float, examples: int) -> float:
    """The half-width, in standard errors, of Student's interval for a mean of so many examples."""
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1): got {level}")
    return float(stdtrit(examples - 1, (1 + level) / 2)) if examples > 1 else math.inf


def trials_of(right: Tensor, terms: Terms, *, level: float = 0.95) -> float:
    r"""The number of independent trials that a share of terms is worth, for the limits of a proportion.

    .. math:: n^* = \min\Big(m, \frac{p (1 - p)}{s^2}\Big) \Big(\frac{z}{t}\Big)^2

    with s the standard error of the share over examples (:func:`weighted_mean`), m the number of equally
    weighted terms, z the normal quantile and t that of :func:`student`. Where each example is right or wrong
    as a whole, as where it has one term, and where there is a single one, it is Kish's number of equally
    weighted examples.

    Args:
        right: Which terms count.
        terms: Weight and example of the same terms, at least one; their values are not read.
        level: That of the limits, in (0, 1).

    Reference: Korn and Graubard 1998, Section 2 (the effective sample size); Kish 1965, Section 11.7.
    """
    terms = terms._replace(values=right.double())
    estimate = weighted_mean(terms)
    total, weight = per_example(terms)
    if len(total) < 2 or are_whole(total, weight):
        return estimate.examples
    p, variance = float(estimate.mean), float(estimate.stderr) ** 2
    most = float(terms.weight.sum().square() / terms.weight.square().sum())
    worth = min(most, p * (1 - p) / variance) if variance > 0 else most
    t = student(total - p * weight, 1 - level) if variance > 0 else student_quantile(level, len(total))
    return worth * (normal_quantile(level) / t) ** 2


def wilson(share: float, trials: float, *, level: float = 0.95) -> tuple[float, float]:
    r"""The score interval of a proportion: all p with :math:`|\hat p - p| \le z \sqrt{p (1 - p) / n}`.

    It covers the truth with probability ``level`` on average over p, not at least for every p.

    Args:
        share: The observed share, in [0, 1].
        trials: n > 0; a real number where it is an effective count.
        level: Intended probability of covering the truth, in (0, 1).

    Raises:
        ValueError: An argument is out of range.

    Reference: Wilson 1927; Brown, Cai and DasGupta 2001, Section 3.1.1.
    """
    if not 0 <= share <= 1 or not trials > 0:
        raise ValueError(f"a share lies in [0, 1], trials > 0: got {share} of {trials}")
    z2 = normal_quantile(level) ** 2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = math.sqrt(z2 / trials * (share * (1 - share) + z2 / (4 * trials))) / (1 + z2 / trials)
    return (max(middle - half, 0.0) if share > 0 else 0.0), (min(middle + half, 1.0) if share < 1 else 1.0)


def share_of(right: Tensor, terms: Terms, examples: int, *, level: float = 0.95) -> Limited:
    """A weighted share with Wilson's limits for the number of trials that the terms are worth.

    Args:
        right: Which terms count.
        terms: Weight and example of the same terms, at least one; their values are not read.
        examples: The number of examples, of which ``terms.example`` are indices.
        level: Intended probability of covering the truth, in (0, 1).
    """
    estimate = weighted_mean(terms._replace(values=right.double()))
    share = min(max(estimate.mean.item(), 0.0), 1.0)
    zeros = torch.zeros(examples, dtype=torch.float64)
    moved = zeros.index_add(0, terms.example, terms.weight * (right.double() - share))
    weighs = zeros.index_add(0, terms.example, terms.weight)
    moves = 0 < share < 1 and float(moved.norm()) > 1e-12 * float(weighs.norm())  # more than rounding
    trials = trials_of(right, terms, level=level)
    low, high = wilson(share, trials, level=level)
    return Limited(share, low, high, moved if moves else weighs, trials)


class Adjusted(NamedTuple):
    """A share pulled towards 1/2, as part of a mean of several.

    Args:
        value: The share itself, or a function of it.
        center: The same of the share with successes and failures added.
        error: The standard error of that.
        direction: As in :class:`Limited`.
    """

    value: float
    center: float
    error: float
    direction: Float[Tensor, " examples"]


def adjusted_share(part: Limited, parts: int, *, level: float = 0.95) -> Adjusted:
    r"""A share x / n as one of K whose mean is sought: (x + z^2 / 2 K) / (n + z^2 / K).

    Args:
        part: The share, of :func:`share_of`; it knows n.
        parts: K.
        level: Intended probability with which the mean's limits cover the truth.

    Reference: Price and Bonett 2004, Section 2 (2 / K successes of 4 / K trials, for z = 2).
    """
    more = normal_quantile(level) ** 2 / parts
    share = (part.value * part.trials + more / 2) / (part.trials + more)
    error = math.sqrt(share * (1 - share) / (part.trials + more))
    return Adjusted(part.value, share, error, part.direction)


def adjusted_mean(parts: Sequence[Adjusted], *, level: float = 0.95) -> Limited:
    r"""The mean of shares, or of functions of them, with the limits of adjusted ones; inside of [0, 1].

    .. math:: \frac1K \sum_k \tilde\theta_k \mp z \Big\| \tfrac1K \sum_k s_k u_k \Big\|

    with u_k the direction of part k at length 1, whose inner products are the parts' correlations. Shares
    themselves, of which a few are 1, would leave no room above: the limits of 3 classes of 6 examples and
    more hold the truth in 94 to 96 % of 4,000 simulated samples, those recovered from Wilson's in 91 to 93 %.

    Args:
        parts: At least one.
        level: Intended probability of covering the truth, in (0, 1).

    Reference: Price and Bonett 2004 (a linear function of proportions); with correlations, Zou 2008.
    """
    count = len(parts)
    value, center = (math.fsum(column) / count for column in zip(*(part[:2] for part in parts), strict=True))
    moved = (
        torch.stack([part.error * part.direction / part.direction.norm() for part in parts]).sum(0) / count
    )
    half = normal_quantile(level) * float(moved.norm())
    return Limited(value, max(0.0, min(center - half, value)), min(1.0, max(center + half, value)), moved)


def mean_of(parts: Iterable[Limited]) -> Limited:
    r"""The mean of estimates with limits recovered from theirs.

    .. math:: \bar\theta - \Big\| \tfrac1K \sum_k (\hat\theta_k - l_k)\, u_k \Big\|, \quad
        \bar\theta + \Big\| \tfrac1K \sum_k (h_k - \hat\theta_k)\, u_k \Big\|

    with u_k the direction of estimate k at length 1. The inner product of two of them is their estimated
    correlation; estimates of different examples have none.

    Args:
        parts: At least one estimate.

    Reference: Zou and Donner 2008 (limits of a sum); with correlations, Zou 2008.
    """
    values: list[float] = []
    below = above = torch.zeros(())
    for part in parts:
        unit = part.direction / part.direction.norm()
        values.append(part.value)
        below = below + (part.value - part.low) * unit
        above = above + (part.high - part.value) * unit
    value = math.fsum(values) / len(values)
    low, high = (float(side.norm()) / len(values) for side in (below, above))
    return Limited(value, value - low, value + high, below + above)


def student(off: Float[Tensor, " n"], miss: float) -> float:
    r"""Student's quantile for a mean of terms whose variance is known no better than they tell it.

    It is of as many degrees of freedom as a variance has that is estimated from terms of this kurtosis,
    :math:`2 n / (\kappa - 1)`, at most n - 1.

    Args:
        off: The terms less their mean, not all 0.
        miss: How often a normal mean may lie beyond, on either side.
    """
    from scipy.special import stdtrit

    n = len(off)
    kurtosis = float(off.pow(4).mean() / off.square().mean().square())
    return -float(stdtrit(max(1.0, min(n - 1.0, 2 * n / max(kurtosis - 1, 1e-12))), miss / 2))


def mean_limits(terms: Terms, *, level: float = 0.95) -> tuple[float, float]:
    r"""Limits of a population's mean from a skewed sample, inside what non-negative terms leave possible.

    .. math:: m - s\,T^{-1}(q),\quad m - s\,T^{-1}(-q), \quad
        T^{-1}(z) = \tfrac{3 \sqrt n}{\gamma} \left[
        \left(1 + \tfrac{\gamma}{\sqrt n} z - \tfrac{\gamma^2}{6 n}\right)^{1/3} - 1 \right]

    with s the standard error, gamma the skewness and q the quantile of :func:`student`. They are
    widened to the symmetric limits, of the logarithm where no term is negative, so that the lower one is not
    either. At 95 % they hold the mean of lognormal losses of spread 1 in 94 % of samples of 30 and
    95 % or more of 100; below 95 % for longer tails (spread 1.5: 92 % of 30).

    Args:
        terms: Values with their weights; the terms of one example are one draw.
        level: Intended probability of covering the truth, in (0, 1).

    Returns:
        Both limits; NaN where there are fewer than two examples, the mean twice where all are equal.

    Reference: Hall 1992, Section 3.9.2 (the transformation); Johnson 1978 (a t interval for skewed samples).
    """
    a, b = per_example(terms)
    n = len(a)
    if n < 2:
        return math.nan, math.nan
    mean, stderr, _ = (float(x) for x in weighted_mean(terms))
    off = (a - mean * b) / b.mean()
    variance = float(off.square().mean())
    if not variance > 0:
        return (mean, mean) if variance == 0 else (math.nan, math.nan)
    skew = float(off.pow(3).mean()) / variance**1.5 * (math.sqrt(n * (n - 1)) / (n - 2) if n > 2 else 0.0)
    q = student(off, 1 - level)
    low, high = (mean - stderr * _unskewed(z, skew / math.sqrt(n)) for z in (q, -q))
    if float(terms.values.min()) < 0 or not mean > 0:
        return min(low, mean - q * stderr), max(high, mean + q * stderr)
    factor = math.exp(min(q * stderr / mean, 700.0))
    return max(0.0, min(low, mean / factor)), max(high, mean * factor)


def limits_of(terms: Terms) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The 95 % :func:`mean_limits`, as a finding prints them."""
    low, high = torch.tensor(mean_limits(terms), dtype=torch.float64)
    return low, high


def _unskewed(z: float, g: float) -> float:
    """The inverse of Hall's transformation of a studentized mean, ``g`` its skewness over the root of n."""
    if abs(g) < 1e-6:
        return z
    inner = 1 + g * (z - g / 6)
    return 3 / g * (math.copysign(abs(inner) ** (1 / 3), inner) - 1)
