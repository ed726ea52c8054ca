r"""The loss of knowledge distillation (Hinton, Vinyals and Dean, 2015): a teacher's tempered probabilities.

.. math:: \ell = -\sum_y p_T(y) \log q_T(y), \qquad p_T = \mathrm{softmax}(F / T),\;
    q_T = \mathrm{softmax}(G / T)

G are the student's logits, F the teacher's. With q - p for the gradient this is a loss; without the minus, as
it is often printed, it is a reward.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from margin.core.types import ClassScores, PerExample


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
