r"""Classifier-free guidance (Ho and Salimans 2021): a class's noise, pushed away from that of no class.

The guided noise is that of the score of :math:`q_t(x | c)^{1 + w} q_t(x)^{-w}` at every t. These are not the
noised densities of :math:`p(x | c)^{1 + w} p(x)^{-w}`: raising to a power and adding noise do not commute. So
the samples do not have the latter law, not even with exact networks and infinitely many steps.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

Noise = Float[Tensor, " batch *shape"]
Denoise = Callable[[Tensor, Tensor], Tensor]
"""``(x_t, label) -> eps``, for labels of a class each or of none."""


def guided(eps_class: Noise, eps_none: Noise, weight: float) -> Noise:
    r"""The noise :math:`(1 + w)\, \epsilon_c - w\, \epsilon_\emptyset`.

    Args:
        eps_class: Predicted with the class.
        eps_none: Predicted without.
        weight: w: 0 is conditional, -1 unconditional, above 0 leans away from what all classes share.

    Reference: Ho and Salimans 2021, Equation 6.
    """
    return (1 + weight) * eps_class - weight * eps_none


def guided_eps(denoise: Denoise, x: Noise, label: Int64[Tensor, " batch"], none: int, weight: float) -> Noise:
    """The guided noise at x; a network that would count 0 times is not asked.

    Args:
        denoise: The noise that is predicted for points and their labels.
        x: Noisy points.
        label: The class of each.
        none: The label of no class.
        weight: w of :func:`guided`.
    """
    if weight == 0:
        return denoise(x, label)
    without = denoise(x, label.new_full(label.shape, none))
    return without if weight == -1 else guided(denoise(x, label), without, weight)


def classes_of(
    turn: Int64[Tensor, " count"], num_classes: int, weight: float, label: int | None
) -> Int64[Tensor, " count"] | None:
    """The classes of samples that are to be drawn, None of a model without classes.

    Args:
        turn: 0, 1, 2, ...: the samples' numbers, on the model's device.
        num_classes: Number of classes, 0 of a model without.
        weight: w of :func:`guided`.
        label: The class of all; None: the classes in turn.

    Raises:
        ValueError: Guidance or a class is asked of a model without classes, or a class does not exist.
    """
    if not num_classes:
        if weight or label is not None:
            asked = f"label={label}" if label is not None else f"guidance={weight:g}"
            raise ValueError(f"guidance and label need a model trained on classes: got {asked}")
        return None
    if label is not None and not 0 <= label < num_classes:
        raise ValueError(f"label must be from 0 to {num_classes - 1}: got {label}")
    return turn % num_classes if label is None else turn.new_full(turn.shape, label)


def dropped(
    label: Int64[Tensor, " batch"], none: int, probability: float, generator: Generator
) -> Int64[Tensor, " batch"]:
    """The labels, each replaced by that of no class with a probability, so that both are learned.

    Args:
        label: The class of each.
        none: The label of no class.
        probability: In [0, 1].
        generator: Where it is drawn which are replaced.

    Reference: Ho and Salimans 2021, Algorithm 1.
    """
    kept = torch.rand(len(label), generator=generator).to(label.device) >= probability
    return torch.where(kept, label, none)
