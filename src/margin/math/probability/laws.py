"""Finite laws: tensors of probabilities, at least 0, that sum to 1 (Kolmogorov 1933)."""

from jaxtyping import Float
from torch import Tensor, finfo

ROUNDING = 1e-5
"""How far a sum may be from 1: laws that were rounded to single precision pass in double too."""


def check_law(probabilities: Float[Tensor, "..."], axes: int = 1, name: str = "probabilities") -> None:
    """Refuse what is no law along the last ``axes`` axes.

    Args:
        probabilities: One law, or a batch of laws.
        axes: Number of axes over which one law extends.
        name: How a message calls it.

    Raises:
        ValueError: An axis is missing, an entry is negative or not finite, or a sum is not 1.
    """
    if axes < 1 or probabilities.ndim < axes:
        raise ValueError(
            f"{name} must have an axis for each variable: got shape {tuple(probabilities.shape)}"
        )
    bad = ~(probabilities >= 0) | probabilities.isinf()
    if bool(bad.any()):
        index = tuple(bad.nonzero()[0].tolist())
        raise ValueError(f"{name} must be finite and >= 0: got {probabilities[index].item():g} at {index}")
    totals = probabilities.flatten(-axes).sum(-1)
    off = (totals - 1).abs() > max(ROUNDING, 100 * finfo(probabilities.dtype).eps)
    if bool(off.any()):
        worst = totals.flatten()[(totals - 1).abs().argmax()]
        raise ValueError(f"{name} must sum to 1: got {worst.item():.6g}; divide by the sum")
