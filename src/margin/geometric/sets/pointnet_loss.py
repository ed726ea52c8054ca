"""PointNet's loss (Qi et al. 2017): cross-entropy, and how far its second transform is from orthogonal."""

from torch import Generator, Tensor, nn

from margin.core.tasks import term_loss
from margin.core.types import Batch
from margin.geometric.sets.pointnet import distance_from_orthogonal
from margin.nn.preprocessed import core_of, features_of


def penalized(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    r"""The loss of each cloud or point, with :math:`w \|I - A A^\top\|_F^2` of its cloud added.

    Args:
        model: A PointNet, classification or segmentation, whose option ``orthogonality`` is w.
        batch: Clouds, and a class for each or for each of its points.
        generator: Nothing is drawn.

    Raises:
        ValueError: There are no targets.

    Reference: Qi, Su, Mo and Guibas 2017, Equation 2 and Appendix C (w = 0.001).
    """
    if batch.targets is None:
        raise ValueError("a PointNet is judged by classes: the batch has no targets")
    core, (first, *rest) = core_of(model), batch.inputs
    logits, A = core.with_transform(features_of(model, first), *rest)
    loss = term_loss(logits, batch.targets)
    if A is None or core.orthogonality == 0:
        return loss
    penalty: Tensor = core.orthogonality * distance_from_orthogonal(A)
    return loss + penalty.reshape(-1, *[1] * (loss.ndim - 1))
