"""The objective of a flow of images (Theis et al. 2016): minus the bound of the log-probability of levels."""

from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.nn.preprocessed import core_of, features_of


def negative_bound(model: nn.Module, batch: Batch, generator: Generator) -> Float[Tensor, " batch"]:
    """Minus the bound of each image's log-probability, in nats, at points of the cells that are drawn anew.

    Reference: Theis, van den Oord and Bethge 2016, Section 3.1.
    """
    bound: Tensor = core_of(model).bound(features_of(model, batch.inputs[0]), generator=generator)
    return -bound
