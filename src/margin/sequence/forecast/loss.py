"""The loss of a forecast in units of each target's deviation, so that no target outweighs another."""

from torch import Generator, Tensor, nn

from margin.core.tasks import pinball, squared_error
from margin.core.types import Batch
from margin.nn.preprocessed import core_of


def scaled_error(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    """The loss of each term in units of its target's deviation, so that no target outweighs another.

    It is the squared error over the deviation's square, or for quantiles the pinball loss over the deviation.

    Args:
        model: A forecaster.
        batch: Contexts and what followed.
        generator: Nothing is drawn.

    Raises:
        ValueError: There are no targets.
    """
    if batch.targets is None:
        raise ValueError("a forecast is judged by what followed: the batch has no targets")
    scale = core_of(model).scale
    outputs = model(*batch.inputs)
    targets = (batch.targets - scale.mean) / scale.std
    if outputs.ndim == targets.ndim:
        return squared_error((outputs - scale.mean) / scale.std, targets)
    return pinball((outputs - scale.mean[:, None]) / scale.std[:, None], targets)
