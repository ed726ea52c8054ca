"""The tasks: how a model's outputs are read, as classes, several labels, a signed score, values, codes.

A task turns outputs into the loss of each term, into scores, into the columns a user sees. It holds
no parameter and no state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from margin.core.types import ClassScores, Labels, PerExample


@dataclass(frozen=True, slots=True)
class Task:
    """How a model's outputs are read.

    Args:
        name: The name in a run's record and in messages.
        loss: ``(outputs, targets) -> the loss of each term``; None where only an objective has a loss.
        scores: Named functions ``(outputs, targets) -> the score of each term``.
        predict: ``outputs -> named columns``, what a user is shown.
        classes: ``outputs -> one score per class``, the largest predicted; None where there are none.
        probabilities: ``outputs -> the probability of each class``; None where the model states none.
        weigh: ``targets -> what each term counts in the mean of the loss``, sum(w l) / sum(w c), where the
            loss holds the factor c itself, as torch's cross-entropy of weighted classes; None where it is 1.
        by_term: Whether an example has several terms, each of whose losses reads its own output alone: terms
            in a row, of whichever examples, then have the same.
    """

    name: str
    loss: Callable[[Any, Tensor], Tensor] | None
    scores: Mapping[str, Callable[[Any, Tensor], Tensor]]
    predict: Callable[[Any], dict[str, Tensor]]
    classes: Callable[[Any], Tensor] | None = None
    probabilities: Callable[[Any], Tensor] | None = None
    weigh: Callable[[Tensor], Tensor] | None = None
    by_term: bool = False


COLUMN = "outputs: (N, 1), read as one number an example (N,)"
"""What is said of one output an example that stands in a column, which is not broadcast but read as (N,)."""


def class_loss(logits: ClassScores, labels: Labels) -> PerExample:
    """Cross-entropy -log softmax(logits)[label], in nats, of each example."""
    return F.cross_entropy(logits, labels, reduction="none")


def class_accuracy(scores: ClassScores, labels: Labels) -> PerExample:
    """1 where the largest score is the label's, else 0; a row with a NaN is never right."""
    right = scores.argmax(-1) == labels
    return (right & ~scores.isnan().any(-1)).to(scores.dtype)


def class_margins(
    scores: Float[Tensor, "*batch classes"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """The margin f_y - max_{j != y} f_j of each term, in the unit of the scores; > 0 where it is right.

    Reference: Mohri, Rostamizadeh and Talwalkar 2018, Section 9.2 (margin of a multi-class hypothesis).
    """
    index = labels.long().unsqueeze(-1)
    rival = scores.scatter(-1, index, -torch.inf).amax(-1)
    return scores.gather(-1, index).squeeze(-1) - rival


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(output - target)^2 of each term.

    Raises:
        ValueError: The shapes differ. Broadcasting (N, 1) against (N,) would compare every pair.
    """
    if outputs.shape != targets.shape:
        raise ValueError(
            "outputs and targets must have one shape: "
            f"got outputs {tuple(outputs.shape)}, targets {tuple(targets.shape)}"
        )
    return (outputs - targets).square()


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """|output - target| of each term."""
    return squared_error(outputs, targets).sqrt()


def perceptron_loss(score: PerExample, labels: Labels) -> PerExample:
    """The perceptron criterion max(0, -y z), y = 2 label - 1, whose subgradient step is the mistake rule."""
    return F.relu(-(2 * labels - 1).to(score.dtype) * score)


def ranking_loss(scores: ClassScores, labels: Labels) -> PerExample:
    """The multiclass perceptron criterion max(0, max_{j != y} f_j - f_y) of each example."""
    return F.relu(-class_margins(scores, labels))


def halfspace_classes(score: Float[Tensor, "*terms"]) -> Float[Tensor, "*terms sides"]:
    """The scores (-z, z) / 2 of the two sides; their margin is y z."""
    return torch.stack((-score, score), -1) / 2


def binary_loss(logit: Float[Tensor, "*terms"], labels: Int[Tensor, "*terms"]) -> Float[Tensor, "*terms"]:
    """Cross-entropy -log sigmoid((2 label - 1) logit), in nats, of each term."""
    return F.binary_cross_entropy_with_logits(logit, labels.to(logit.dtype), reduction="none")


def binary_accuracy(logit: Float[Tensor, "*terms"], labels: Int[Tensor, "*terms"]) -> Float[Tensor, "*terms"]:
    """1 where z > 0 and the label is 1, or neither: z = 0 is class 0, and a NaN is never right."""
    right = (logit > 0) == (labels == 1)
    return (right & ~logit.isnan()).to(logit.dtype)


def binary_probabilities(logit: Float[Tensor, "*terms"]) -> Float[Tensor, "*terms sides"]:
    """The probabilities (sigmoid(-z), sigmoid(z)) of the two classes."""
    return torch.stack((-logit, logit), -1).sigmoid()


def overlap(states: Float[Tensor, "batch units"], patterns: Float[Tensor, "batch units"]) -> PerExample:
    """The overlap (1/n) sum_i x_i p_i of states and patterns of -1 and +1: 1 where they are equal."""
    return (states * patterns).mean(1)


def exact_recall(states: Float[Tensor, "batch units"], patterns: Float[Tensor, "batch units"]) -> PerExample:
    """1 where every unit of the state is the pattern's."""
    return (states == patterns).all(1).to(states.dtype)


def _predict_classes(logits: ClassScores) -> dict[str, Tensor]:
    return {"class": logits.argmax(-1), "probability": logits.softmax(-1).amax(-1)}


CLASSES = Task(
    "classes",
    class_loss,
    {"accuracy": class_accuracy},
    _predict_classes,
    classes=lambda logits: logits,
    probabilities=lambda logits: logits.softmax(-1),
)
"""One logit per class; labels 0 .. K-1."""

HALFSPACE = Task(
    "halfspace",
    perceptron_loss,
    {"accuracy": binary_accuracy},
    lambda score: {"class": (score > 0).long(), "score": score},
    classes=halfspace_classes,
)
"""One signed score; label 1 is the positive side, 0 the negative. No probability is stated.

A prediction must name a class, so a score of 0 is class 0 and right where the label is 0. The perceptron rule
asks for more: there y z <= 0 is a mistake, a point on the boundary included, whatever its label.
"""

SCORES = Task(
    "scores",
    ranking_loss,
    {"accuracy": class_accuracy},
    lambda scores: {"class": scores.argmax(-1), "score": scores.amax(-1)},
    classes=lambda scores: scores,
)
"""One score per class, the first of the largest predicted; labels 0 .. K-1. No probability is stated."""

BINARY = Task(
    "binary",
    binary_loss,
    {"accuracy": binary_accuracy},
    lambda logit: {"class": (logit > 0).long(), "probability": logit.abs().sigmoid()},
    classes=halfspace_classes,
    probabilities=binary_probabilities,
)
"""The logit of class 1, whose probability is its sigmoid; labels 0 and 1."""

MULTILABEL = Task(
    "multilabel",
    binary_loss,
    {"accuracy": binary_accuracy},
    lambda logits: {"labels": (logits > 0).long(), "probability": logits.abs().sigmoid()},
    classes=halfspace_classes,
    probabilities=binary_probabilities,
    by_term=True,
)
"""The logit of each of several labels, 0 or 1, that an example may have at once; a term is a label."""

VALUES = Task(
    "values",
    squared_error,
    {"mse": squared_error, "mae": absolute_error},
    lambda values: {"value": values},
)
"""One real number per target; outputs and targets have one shape."""

MEMORY = Task(
    "memory",
    None,
    {"overlap": overlap, "exact_recall": exact_recall},
    lambda states: {f"unit {i + 1}": column for i, column in enumerate(states.unbind(1))},
)
"""The retrieved pattern, one number a unit; targets, where there are any, are the patterns meant."""

CODES = Task(
    "codes",
    None,
    {},
    lambda codes: {f"code {i + 1}": column for i, column in enumerate(codes.flatten(1).unbind(1))},
)
"""The coordinates by which a model of the inputs alone describes each of them; targets are ignored."""

LEVELS = (0.1, 0.5, 0.9)
"""The levels of the quantiles that a forecast states."""


def term_loss(
    logits: Float[Tensor, "*terms classes"], labels: Int[Tensor, "*terms"]
) -> Float[Tensor, "*terms"]:
    """Cross-entropy -log softmax(logits)[label], in nats, of each token, point or pixel."""
    flat = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return flat.reshape(labels.shape)


def term_accuracy(
    logits: Float[Tensor, "*terms classes"], labels: Int[Tensor, "*terms"]
) -> Float[Tensor, "*terms"]:
    """1 where the largest logit is the label's, else 0; a row with a NaN is never right."""
    return class_accuracy(logits.flatten(0, -2), labels.flatten()).reshape(labels.shape)


def pinball(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over the levels q of max(q e, (q - 1) e), e = target - output, least at the quantiles.

    Args:
        outputs: The targets' shape with one more axis, the levels.
        targets: (batch, horizon, targets).

    Raises:
        ValueError: The shapes do not fit: nothing is broadcast.

    Reference: Koenker and Bassett 1978, Section 3.
    """
    if outputs.shape != (*targets.shape, len(LEVELS)):
        raise ValueError(
            f"outputs must have the targets' shape and {len(LEVELS)} levels: "
            f"got outputs {tuple(outputs.shape)}, targets {tuple(targets.shape)}"
        )
    levels = torch.tensor(LEVELS).to(outputs)
    error = targets[..., None] - outputs
    return torch.maximum(levels * error, (levels - 1) * error).mean(-1)


def quantile_coverage(
    outputs: Float[Tensor, "batch horizon targets levels"], targets: Float[Tensor, "batch horizon targets"]
) -> Float[Tensor, "batch horizon targets"]:
    """1 where the target lies between the least and the largest quantile, its ends included."""
    return ((targets >= outputs[..., 0]) & (targets <= outputs[..., -1])).to(outputs.dtype)


def _predict_terms(logits: Tensor) -> dict[str, Tensor]:
    return {"class": logits.argmax(-1), "probability": logits.softmax(-1).amax(-1)}


def _predict_token(logits: Tensor) -> dict[str, Tensor]:
    """The most probable continuation of each sequence."""
    return {key: values[:, -1] for key, values in _predict_terms(logits).items()}


def _predict_series(values: Tensor) -> dict[str, Tensor]:
    """One column for each step ahead and target."""
    _, horizon, targets = values.shape
    name = (lambda k: "") if targets == 1 else (lambda k: f" of {k + 1}")
    return {
        f"value{name(k)} +{step + 1}": values[:, step, k] for k in range(targets) for step in range(horizon)
    }


def _predict_quantiles(outputs: Tensor) -> dict[str, Tensor]:
    columns = {level: _predict_series(part) for level, part in zip(LEVELS, outputs.unbind(-1), strict=True)}
    names = list(columns[LEVELS[0]])
    return {f"{name} q{level:g}": columns[level][name] for name in names for level in LEVELS}


TOKENS = Task("tokens", term_loss, {"accuracy": term_accuracy}, _predict_token, by_term=True)
"""The logits of the next token at every position; a term is a token."""

POINT_CLASSES = Task("point_classes", term_loss, {"accuracy": term_accuracy}, _predict_terms, by_term=True)
"""One logit per class at every point of a set; a term is a point."""

PIXEL_CLASSES = replace(
    POINT_CLASSES, name="pixel_classes", classes=CLASSES.classes, probabilities=CLASSES.probabilities
)
"""One logit per class at every pixel of an image, (batch, height, width, classes); a term is a pixel."""

TAGS = replace(PIXEL_CLASSES, name="tags")
"""One logit per class at every token of a text, (batch, time, classes); a term is a token."""


def span_loss(logits: Float[Tensor, "batch time 2"], spans: Int[Tensor, "batch 2"]) -> PerExample:
    """-log p(start) - log q(end) of each example, p and q the softmax over the places.

    Reference: Devlin, Chang, Lee and Toutanova 2019, Section 4.2.
    """
    start, end = logits.unbind(-1)
    return F.cross_entropy(start, spans[:, 0], reduction="none") + F.cross_entropy(
        end, spans[:, 1], reduction="none"
    )


def best_span(logits: Float[Tensor, "batch time 2"]) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """The places start <= end of the largest sum of logits, in O(time).

    Of each end the best start is the first of the largest among those not after it. A place of logits -inf is
    never chosen, if there is another.
    """
    start, end = logits.unbind(-1)
    best, first = start.cummax(1)
    # torch's cummax takes the last of several largest; scores are what is compared, so either is a maximum
    last = (best + end).argmax(1)
    return first.gather(1, last[:, None]).squeeze(1), last


def span_exact(logits: Float[Tensor, "batch time 2"], spans: Int[Tensor, "batch 2"]) -> PerExample:
    """1 where the best span is the answer's, else 0; a row with a NaN is never right."""
    start, end = best_span(logits)
    right = (start == spans[:, 0]) & (end == spans[:, 1]) & ~logits.isnan().flatten(1).any(1)
    return right.to(logits.dtype)


def span_f1(logits: Float[Tensor, "batch time 2"], spans: Int[Tensor, "batch 2"]) -> PerExample:
    """The F1 score of the tokens of the best span against those of the answer, by their places.

    Reference: Rajpurkar, Zhang, Lopyrev and Liang 2016, Section 6.1, whose tokens are words.
    """
    start, end = best_span(logits)
    shared = torch.minimum(end, spans[:, 1]) - torch.maximum(start, spans[:, 0]) + 1
    total = (end - start + 1) + (spans[:, 1] - spans[:, 0] + 1)
    f1 = 2 * shared.clamp_min(0).to(logits.dtype) / total
    return f1 * ~logits.isnan().flatten(1).any(1)


def _predict_span(logits: Tensor) -> dict[str, Tensor]:
    start, end = best_span(logits)
    places = logits.log_softmax(1)
    at = torch.arange(len(logits), device=logits.device)
    return {"start": start, "end": end, "probability": (places[at, start, 0] + places[at, end, 1]).exp()}


SPANS = Task("spans", span_loss, {"exact": span_exact, "f1": span_f1}, _predict_span)
"""The logits of an answer's start and end, (batch, time, 2); -inf where none can be, as in the question."""

SERIES = Task("series", squared_error, {"mse": squared_error, "mae": absolute_error}, _predict_series)
"""The values of each target at each step ahead; outputs and targets have one shape."""

QUANTILES = Task(
    "quantiles",
    pinball,
    {
        "mae": lambda outputs, targets: absolute_error(outputs[..., LEVELS.index(0.5)], targets),
        "coverage": quantile_coverage,
    },
    _predict_quantiles,
)
"""The quantiles of each target at each step ahead, of the levels :data:`LEVELS`."""


DENSITY = Task("density", None, {}, lambda outputs: {"log density": outputs})
"""The log-density of each example, in nats, in the model's own units; targets are ignored."""

PROBABILITY = Task("probability", None, {}, lambda outputs: {"log probability": outputs})
"""The log-probability of each example, in nats, where examples are countable; targets are ignored."""

CRITIC = Task("critic", None, {}, lambda outputs: {"critic": outputs})
"""What an adversary says of each example, the more the more it takes it for real; targets are ignored."""
