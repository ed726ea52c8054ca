r"""Label smoothing (Szegedy et al., 2016): cross-entropy to a distribution over labels instead of one.

.. math:: \ell = -\sum_j q_{yj} w_j \log p_j, \qquad p = \mathrm{softmax}(f)

The uniform case is torch's own ``cross_entropy(label_smoothing=)``; here are a general matrix q and what a
mean over terms must divide by.

The loss of knowledge distillation (Hinton, Vinyals and Dean, 2015): a teacher's tempered probabilities.

.. math:: \ell = -\sum_y p_T(y) \log q_T(y), \qquad p_T = \mathrm{softmax}(F / T),\;
    q_T = \mathrm{softmax}(G / T)

G are the student's logits, F the teacher's. With q - p for the gradient this is a loss; without the minus, as
it is often printed, it is a reward.

The loss of a reward model (Bradley and Terry, 1952), and the distribution that a model aligned with it tends
to (Ouyang et al., 2022): :func:`preference_loss`, :func:`tilted`.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from margin.core.types import ClassScores, Labels, PerExample

IGNORED = -100
"""The label of a term that does not count, as in torch."""

ROUNDING = 1e-5
"""By how much a row of a confusion may miss the sum 1: what float32 leaves of a thousand classes."""


def smoothed_cross_entropy(
    logits: ClassScores,
    labels: Labels,
    confusion: Float[Tensor, "..."] | None = None,
    *,
    smoothing: float = 0.0,
    class_weight: Float[Tensor, "..."] | None = None,
    ignore_index: int = IGNORED,
) -> PerExample:
    """The cross-entropy of each example to its smoothed label, in nats, not reduced.

    A label y becomes the distribution (1 - eps) e_y + eps / K, or the row ``confusion[y]``. Torch's mean
    reduction is ``loss.sum() / term_weight(labels, class_weight).sum()``.

    Args:
        logits: One score a class.
        labels: 0 .. K-1, or ``ignore_index``.
        confusion: ``confusion[y, j]`` is the probability of training on j where the label is y, so rows sum
            to 1: the transpose of the column-stochastic Pi of the literature.
        smoothing: eps in [0, 1) of the uniform case.
        class_weight: w_j >= 0, by which the loss on class j is multiplied.
        ignore_index: The label of examples that do not count: their loss is 0.

    Raises:
        ValueError: ``smoothing`` is out of range, is given beside a confusion, a row of the confusion is no
            distribution, or a label is no class.

    Reference: Szegedy, Vanhoucke, Ioffe, Shlens and Wojna 2016, "Rethinking the Inception architecture",
    Section 7; for a matrix Patrini et al. 2017, "Making deep neural networks robust to label
    noise", Section 3.
    """
    classes = logits.shape[1]
    check_smoothing(smoothing, confusion, classes)
    if class_weight is not None and len(class_weight) != classes:
        raise ValueError(f"class_weight must have one weight a class: got {len(class_weight)} for {classes}")
    check_labels(labels, classes, ignore_index)
    if class_weight is not None:
        class_weight = class_weight.to(logits)
    if confusion is None:
        return F.cross_entropy(
            logits,
            labels,
            class_weight,
            ignore_index=ignore_index,
            reduction="none",
            label_smoothing=smoothing,
        )
    kept = labels != ignore_index
    q = confusion.to(logits)[torch.where(kept, labels, 0)]
    surprise = -logits.log_softmax(1)
    terms = surprise if class_weight is None else class_weight * surprise
    # a class of probability 0 counts for nothing, be its surprise infinite
    return torch.where((q > 0) & kept[:, None], q * terms, 0).sum(1)


def term_weight(
    labels: Labels,
    class_weight: Float[Tensor, " classes"] | None = None,
    *,
    ignore_index: int = IGNORED,
) -> PerExample:
    """What torch's mean divides by, of each term: the weight of its label's class, 0 where it is ignored."""
    kept = labels != ignore_index
    if class_weight is None:
        return kept.to(torch.get_default_dtype())
    return torch.where(kept, class_weight[torch.where(kept, labels, 0)], 0)


def check_labels(labels: Labels, classes: int, ignore_index: int = IGNORED) -> None:
    """Refuse a label that is no class; a negative one would be read from the end.

    Raises:
        ValueError: There is one, named by its index.
    """
    wrong = ((labels < 0) | (labels >= classes)) & (labels != ignore_index)
    if bool(wrong.any()):
        row = int(wrong.int().argmax())
        raise ValueError(f"labels must be 0 .. {classes - 1}: got {int(labels[row])} at index {row}")


def check_smoothing(smoothing: float, confusion: Tensor | None, classes: int | None = None) -> None:
    """Refuse a smoothing outside [0, 1), or a confusion that holds no distribution in every row.

    Args:
        smoothing: eps.
        confusion: Rows of probabilities, or None.
        classes: Their number, where it is known.

    Raises:
        ValueError: One is out of range, both are given, or a row is no distribution; the row is named.
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing must be in [0, 1): got {smoothing}")
    if confusion is None:
        return
    if smoothing:
        raise ValueError(f"a confusion stands in the place of smoothing: got both, smoothing={smoothing}")
    shape = tuple(confusion.shape)
    if len(shape) != 2 or shape[0] != shape[1] or (classes is not None and shape[0] != classes):
        wanted = "(K, K)" if classes is None else f"({classes}, {classes})"
        raise ValueError(f"confusion must have shape {wanted}, a row and a column a class: got {shape}")
    sums = confusion.double().sum(1)
    wrong = ~(((sums - 1).abs() <= ROUNDING) & (confusion >= 0).all(1))
    if bool(wrong.any()):
        row = int(wrong.int().argmax())
        raise ValueError(
            "every row of a confusion must be a distribution: "
            f"got row {row} with sum {sums[row].item():g}, least entry {confusion[row].min().item():g}"
        )


def distillation_loss(
    logits: ClassScores, teacher_logits: Float[Tensor, "..."], temperature: float = 1.0
) -> PerExample:
    """The cross-entropy of the student's tempered probabilities to the teacher's, in nats, of each example.

    Its gradient in G is (q_T - p_T) / T, and its least value over G the entropy of p_T, at G = F + constant.
    Multiply by T^2 to keep the gradient's size where T changes.

    Args:
        logits: G, the student's.
        teacher_logits: F, the teacher's.
        temperature: T > 0.

    Raises:
        ValueError: The shapes differ, or T is not positive and finite.

    Reference: Hinton, Vinyals and Dean 2015, "Distilling the knowledge in a neural network", Section 2.
    """
    _check(logits, teacher_logits, temperature)
    p = (teacher_logits / temperature).softmax(1)
    return _against(p, -(logits / temperature).log_softmax(1))


def distillation_excess(
    logits: ClassScores, teacher_logits: Float[Tensor, "..."], temperature: float = 1.0
) -> PerExample:
    """By how much the loss exceeds its least value, KL(p_T || q_T) in nats, of each example.

    T^2 KL -> ||G - F||^2 / (2 K) as T -> infinity, for K logits of mean 0.

    Args:
        logits: G, the student's.
        teacher_logits: F, the teacher's.
        temperature: T > 0.

    Raises:
        ValueError: The shapes differ, or T is not positive and finite.

    Reference: Hinton, Vinyals and Dean 2015, Section 2.1 (high temperatures).
    """
    _check(logits, teacher_logits, temperature)
    log_p = (teacher_logits / temperature).log_softmax(1)
    return _against(log_p.exp(), log_p - (logits / temperature).log_softmax(1))


def preference_loss(
    preferred: Float[Tensor, "*pairs"], rejected: Float[Tensor, "*pairs"]
) -> Float[Tensor, "*pairs"]:
    """The loss -log sigma(r+ - r-) of the rewards of two answers, of which the first was preferred.

    Only differences count: the reward is learned up to a number a question.

    Reference: Bradley and Terry 1952; Ouyang et al. 2022, Equation 1.
    """
    return F.softplus(rejected - preferred)


def tilted(
    log_p: Float[Tensor, "*batch answers"], reward: Float[Tensor, "*batch answers"], beta: float
) -> Float[Tensor, "*batch answers"]:
    r"""The log of q(y) ~ p(y) exp(r(y) / beta), the most of E_q r - beta KL(q \| p) over all q.

    The most is beta log E_p exp(r / beta).

    Args:
        log_p: The logarithms of the probabilities of finitely many answers before.
        reward: Of each answer.
        beta: What a nat of divergence costs, > 0.

    Raises:
        ValueError: beta is not positive and finite.

    Reference: Ouyang et al. 2022, Equation 2; Rafailov et al. 2023, Equation 4.
    """
    check_temperature(beta)
    return (log_p + reward / beta).log_softmax(-1)


def _check(logits: Tensor, teacher_logits: Tensor, temperature: float) -> None:
    if logits.shape != teacher_logits.shape:
        raise ValueError(
            "student and teacher must have one logit for each of the same classes: "
            f"got shapes {tuple(logits.shape)} and {tuple(teacher_logits.shape)}"
        )
    check_temperature(temperature)


def check_temperature(temperature: float) -> None:
    """Refuse a temperature that is not positive and finite.

    Raises:
        ValueError: It is not.
    """
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive and finite: got {temperature}")


def _against(p: Tensor, terms: Tensor) -> Tensor:
    """sum_y p(y) terms(y); what has probability 0 counts for nothing, be its term infinite or NaN."""
    return torch.where(p > 0, p * terms, 0).sum(1)
