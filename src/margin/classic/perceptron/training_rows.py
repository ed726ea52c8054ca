"""The training examples of a subject as rows: what theorems about hyperplanes speak of."""

from jaxtyping import Float, Int
from torch import Tensor

from margin.core.findings import Subject
from margin.engine import weighted_rows


def training_rows(
    subject: Subject, most: int | None = None
) -> tuple[Float[Tensor, "rows features"], Int[Tensor, " rows"]]:
    """Features, as the catalog's model sees them, and labels of the training examples that count.

    Args:
        subject: One with training examples of one real input.
        most: Rows at most, drawn at random; all if not given.

    Returns:
        The rows in float64 and the labels, in the order of the examples, on the CPU; examples of weight 0 are
        left out.

    Raises:
        ValueError: The examples have no targets, or a weight is negative or not finite.
        NonFiniteError: A feature is not finite.
    """
    rows = weighted_rows.training_rows(subject, most=most)
    return rows.x.double(), rows.targets.long()


def has_rows(subject: Subject) -> bool:
    """Whether the examples are one real input each, with a class."""
    first = subject.train[0] if len(subject.train) else None
    if first is None or first.targets is None or len(first.inputs) != 1:
        return False
    return bool(first.inputs[0].is_floating_point() and first.targets.ndim == 1)
