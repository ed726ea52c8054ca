"""The objective of a density given the class: minus the log-density of each example given its own."""

from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.nn.preprocessed import core_of, features_of


def negative_log_density_given(
    model: nn.Module, batch: Batch, generator: Generator
) -> Float[Tensor, " batch"]:
    """-log p(x | c) of each example, in nats.

    Raises:
        ValueError: The examples have no classes.
    """
    if batch.targets is None:
        raise ValueError("a density given the class needs labeled examples: got none with a label")
    core, x = core_of(model), features_of(model, batch.inputs[0])
    log_density: Tensor = core.log_prob_given(x, batch.targets)
    return -log_density
