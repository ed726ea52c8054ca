r"""What one step of gradient descent still gains, on the examples that gave the gradient and on others.

A line search along the gradient g of all examples (Nocedal and Wright 2006, Section 3.1) says by how much one
step lowers the loss of the same examples. Something is always to be had where examples are few: whether it
carries over is told by cross-validation, :math:`\tfrac1n \sum_i \ell_i(\theta) - \ell_i(\theta - \eta
g_{-k(i)})` with the gradient of the parts that example i is not of. Where that is 0, the gradient is the
noise of single examples (Mahsereci, Balles, Lassner and Hennig 2017).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Premise, Subject, has_labels
from margin.core.tasks import MULTILABEL, VALUES, squared_error
from margin.core.types import Batch, Objective
from margin.engine.evaluation import copied, eval_mode, pieces_of, rows_of, weighted_sum
from margin.engine.loop import Risk, risk
from margin.theory.curvature.hessian import MEMORY, differentiating, real_terms
from margin.theory.curvature.trained_weights import DRAWN, NO_LOSS, differentiated
from margin.theory.prediction.baselines import label_counts, mean_target
from margin.theory.prediction.differences import at_both_levels, scalar
from margin.theory.prediction.held_out import Terms, held_out_terms, mean_limits, weighted_mean
from margin.theory.prediction.residuals import Interval, has_values

MOST = 24
"""Steps that a line search tries, at most."""

FOLDS, SEED = 4, 2017
"""Parts of a cross-validation, and of the draw that makes them."""

FEWEST = 2 * FOLDS
"""Examples, at least."""

SHORTER = (2.0, 1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 64, 1 / 256)
"""Rates that are judged by other examples, in units of the best for the same: those want shorter steps."""

ALONE = Premise(
    "the training minimized this loss alone",
    "assumed",
    "weight decay, dropout or augmentation leave a gradient that no training takes away",
)


class Step(NamedTuple):
    """What one step of gradient descent gains.

    Args:
        height: The mean loss before it.
        best: By how much the best step along the whole gradient lowers it.
        gained: By how much a step lowers the loss of terms whose examples gave no part of its gradient, at
            the rate that is best for the other parts, or for all if that is smaller.
        tried: The rates of the line search, increasing from 0, and the mean loss after a step of each.
        judged: The rates of the cross-validation, increasing, and the mean loss of the left-out examples.
        failure: Why there are no numbers; "".
    """

    height: float
    best: float
    gained: Terms
    tried: Float[Tensor, "2 rates"]
    judged: Float[Tensor, "2 rates"]
    failure: str = ""


def line_search(
    loss: Callable[[float], float], height: float, slope: float, start: float
) -> dict[float, float]:
    r"""The losses at the rates that a search for the lowest tries, by rate; 0 is among them.

    It shortens the first step until the loss falls, by the minimizer :math:`\eta^2 s / 2 (h(\eta) - h(0) +
    \eta s)` of the parabola through both losses and the slope -s, doubles it while the loss falls further,
    and tries the parabola's minimizer last, which is that of a quadratic loss.

    Args:
        loss: Of a rate; what is not finite counts as no fall.
        height: The loss at 0.
        slope: s > 0, the fall per rate at 0.
        start: The first rate, above 0.

    Reference: Nocedal and Wright 2006, Section 3.5 (interpolation).
    """
    eta, tried = start, {0.0: height, start: loss(start)}

    def vertex() -> float:
        bend = 2 * (tried[eta] - height + eta * slope)
        return eta * eta * slope / bend if bend > 0 else math.inf

    while not tried[eta] < height and len(tried) < MOST:
        eta = min(max(vertex(), eta / 100), eta / 2)
        tried[eta] = loss(eta)
    while tried[eta] < height and len(tried) < MOST:
        tried[2 * eta] = loss(2 * eta)
        if not tried[2 * eta] < tried[eta]:
            break
        eta *= 2
    if tried[eta] < height and 0 < (last := vertex()) < math.inf and last not in tried:
        tried[last] = loss(last)
    return tried


class _Moved:
    """A model whose weights are moved along a direction, asked for its losses and for gradients at rest."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        self._model, self._objective = model, objective
        self._weights = [p for p in model.parameters() if p.requires_grad]
        self._rest = [p.detach().clone() for p in self._weights]

    def losses(self, batches: Sequence[Batch], rate: float = 0.0, along: Sequence[Tensor] = ()) -> Terms:
        with torch.no_grad():
            for p, begun, slope in zip(self._weights, self._rest, along or self._rest, strict=True):
                p.copy_(begun - rate * slope if rate else begun)
        return held_out_terms(self._model, batches, self._objective)

    def summed_gradient(self, batches: Sequence[Batch]) -> tuple[list[Tensor], float]:
        """The gradient of the sum of w loss, and the sum of w."""
        with torch.no_grad():
            for p, begun in zip(self._weights, self._rest, strict=True):
                p.copy_(begun)
        total, weight = [torch.zeros_like(p) for p in self._weights], 0.0
        with eval_mode(self._model) as generator, torch.enable_grad():
            for batch in batches:
                loss, counted = weighted_sum(
                    real_terms(self._objective(self._model, batch, generator)), batch.weight
                )
                weight += float(counted)
                if loss.requires_grad:
                    parts = torch.autograd.grad(
                        loss, self._weights, allow_unused=True, materialize_grads=True
                    )
                    torch._foreach_add_(total, list(parts))  # in place: a large model's vectors are few
                    del parts
        return total, weight


def step_of(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    independent: bool = True,
    memory: int = MEMORY,
) -> Step:
    """What one step along the gradient gains, by a line search and by cross-validation in four parts.

    A copy of the model is moved, in evaluation mode.

    Args:
        model: Its parameters that require a gradient are moved.
        batches: The examples.
        objective: The loss of each term; what it draws is drawn alike at every rate.
        independent: Whether batches may be cut; where not, a part's terms are left out of the gradient, and
            their examples still read by the others.
        memory: Bytes that the graphs of a chunk of examples may hold, about.

    Raises:
        NotAsked: There are fewer than eight examples.
    """
    with differentiating(copied(model), batches, objective, independent=independent, memory=memory) as asked:
        cut = independent and all(batch.divisible for batch in asked.batches)
        folds = _folds(asked.batches, cut)
        everything = [batch for part in folds for batch in part] if cut else asked.batches
        moved = _Moved(asked.model, objective)
        before = moved.losses(everything)
        height = float(weighted_mean(before).mean)
        whole, weight = moved.summed_gradient(list(pieces_of(everything, asked.chunk)))
        torch._foreach_div_(whole, weight)
        slope = math.fsum(float(g.double().square().sum()) for g in whole)
        nothing = before._replace(values=torch.zeros_like(before.values))
        still = torch.tensor([[0.0], [height]], dtype=torch.float64)
        if not (bool(before.values.isfinite().all()) and math.isfinite(slope)):
            return Step(height, math.nan, nothing, still, still, NO_LOSS)
        if slope == 0:
            return Step(height, 0.0, nothing, still, still)

        def after(rate: float) -> float:
            return float(weighted_mean(moved.losses(everything, rate, whole)).mean)

        tried = line_search(after, height, slope, (abs(height) or 1.0) / slope)
        low = min((eta for eta in tried if math.isfinite(tried[eta])), key=tried.__getitem__)
        rates = [(low or min(filter(None, tried))) * part for part in reversed(SHORTER)]
        gained, means = _validated(moved, folds, rates, (whole, weight), asked.chunk)
    rows = [sorted(tried), [tried[eta] for eta in sorted(tried)]]
    return Step(
        height,
        height - tried[low],
        gained,
        torch.tensor(rows, dtype=torch.float64),
        torch.stack((torch.tensor(rates, dtype=torch.float64), means)),
    )


def _folds(batches: Sequence[Batch], cut: bool) -> list[list[Batch]]:
    """The examples that count in parts drawn at random: the batches cut, or with weight 0 on the others."""
    rows = [_rows(batch) for batch in batches]
    count = sum(map(len, rows))
    if count < FEWEST:
        raise NotAsked(f"a step that other examples judge needs {FEWEST} of them: got {count}")
    place = (torch.randperm(count, generator=Generator().manual_seed(SEED)) % FOLDS).split([*map(len, rows)])
    return [
        [
            rows_of(batch, index[part == k]) if cut else _masked(batch, index[part != k])
            for batch, index, part in zip(batches, rows, place, strict=True)
            if bool((part == k).any())
        ]
        for k in range(FOLDS)
    ]


def _rows(batch: Batch) -> Tensor:
    """The rows of terms that count."""
    if batch.weight is None:
        return torch.arange(len(batch.inputs[0] if batch.targets is None else batch.targets))
    return (batch.weight > 0).reshape(len(batch.weight), -1).any(1).nonzero().flatten().cpu()


def _masked(batch: Batch, others: Tensor) -> Batch:
    shown = batch.inputs[0] if batch.targets is None else batch.targets
    weight = torch.ones(len(shown), device=shown.device) if batch.weight is None else batch.weight.clone()
    weight[others.to(weight.device)] = 0
    return batch._replace(weight=weight)


def _validated(
    moved: _Moved,
    folds: Sequence[Sequence[Batch]],
    rates: Sequence[float],
    gradient: tuple[list[Tensor], float],
    chunk: int | None,
) -> tuple[Terms, Tensor]:
    """What steps gain on the part that gave none of the gradient, and the mean loss there at every rate."""
    whole, weight = gradient
    found, before = [], []
    for part in folds:
        rest, counted = moved.summed_gradient(list(pieces_of(part, chunk)))
        for own, mean in zip(rest, whole, strict=True):
            own.neg_().add_(mean, alpha=weight).div_(weight - counted)
        before.append(moved.losses(part))
        found.append([moved.losses(part, rate, rest) for rate in rates])
    sums = torch.stack([torch.stack([terms.values @ terms.weight for terms in fold]) for fold in found])
    gained, first = [], 0
    for k, (was, fold) in enumerate(zip(before, found, strict=True)):
        # chosen by the other parts: what judges a rate has no say in it, but for longer steps than are best
        # for all, which the others prefer just where this part is what speaks against them
        chosen = min(
            int(losses.nan_to_num(math.inf).argmin()) for losses in (sums.sum(0) - sums[k], sums.sum(0))
        )
        gained.append(Terms(was.values - fold[chosen].values, was.weight, was.example + first))
        first += int(was.example.max()) + 1
    joined = Terms(*(torch.cat(column) for column in zip(*gained, strict=True)))
    return joined, sums.sum(0) / joined.weight.sum()


def loss_of_a_constant(subject: Subject, batches: Sequence[Batch]) -> float | None:
    """The mean loss of the best constant answer, where it has a closed form; None elsewhere.

    The entropy of the labels for a cross-entropy, the variance of the targets for a squared error.

    Args:
        subject: Whose objective it is.
        batches: The examples.
    """
    if not isinstance(subject.objective, Risk):
        return None
    if has_labels(subject) and subject.task.probabilities is not None and subject.task is not MULTILABEL:
        share = label_counts(batches)
        return float(torch.special.entr(share / share.sum()).sum())
    if has_values(subject) and subject.task.loss is squared_error:
        mean = mean_target(batches)

        def off(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
            targets = mean if batch.targets is None else batch.targets.double().cpu()
            return (targets - mean).square()

        return float(weighted_mean(held_out_terms(subject.model, batches, off)).mean)
    return None


def gradient(subject: Subject, *, examples: int | None = DRAWN, memory: int = MEMORY) -> Finding:
    """By how much a gradient step lowers the training loss of examples that gave no part of its gradient.

    By cross-validation in four parts, at the rate that is best for the others, or for all if that is
    smaller. About 0: what is left of the
    gradient is the noise of single examples, or the loss cannot fall along it. A long flat valley looks so
    too: a step is only as good as the gradient's direction. The interval is Hall's of a mean of skewed
    differences, paired over the examples.

    Args:
        subject: A model with parameters that require a gradient, training examples and an objective.
        examples: Examples drawn where there are more than twice as many; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.

    Raises:
        NotAsked: There are fewer than eight examples.

    Reference: Mahsereci, Balles, Lassner and Hennig 2017; Bayle, Bayle, Janson and Mackey 2020 (intervals of
    cross-validation); Hall 1992, Section 3.9.2 (the interval of a mean).
    """
    sample = differentiated(subject, examples)
    found = step_of(
        subject.model, sample.batches, subject.objective, independent=subject.independent, memory=memory
    )

    def measure(level: float) -> list[Interval]:
        if found.failure:
            return [Interval(*(math.nan,) * 3)]
        return [Interval(float(weighted_mean(found.gained).mean), *mean_limits(found.gained, level=level))]

    constant = loss_of_a_constant(subject, sample.batches)
    told = "" if constant is None else f" (that of the best constant: {constant:.3g})"
    curves = {
        "rate: the same examples": found.tried[0],
        "loss: the same examples": found.tried[1],
        "rate: examples left out": found.judged[0],
        "loss: examples left out": found.judged[1],
    }
    return Finding(
        statement=f"By how much a step of gradient descent lowers the mean loss of {sample.words}, "
        f"{found.height:.3g}{told}, on the quarter of them that gave no part of its gradient; on the same "
        f"examples a step along the whole gradient lowers it by {found.best:.3g}.",
        range=(-math.inf, math.inf),
        unit="loss",
        premises=(ALONE,),
        kind="estimate",
        sample=sample.mark,
        failure=found.failure,
        curves=curves if constant is None else {**curves, "loss: a constant": torch.tensor([constant])},
        **scalar(at_both_levels(measure))._asdict(),
    )


def demo() -> Subject:
    """The loss (w - 2)^2 of every example at w = 0: one step finds the minimum, and gains all of 4."""
    y = torch.full((12, 1), 2.0, dtype=torch.float64)
    model = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.zero_()
    batch = Batch((torch.ones_like(y),), y)
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))
