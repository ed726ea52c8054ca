"""Objectives that ask for no targets: the squared error of a reconstruction, a negative log-density.

Both are those of the model's own features, behind the preprocessing: in standardized units.
"""

from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.nn.preprocessed import core_of, features_of


def reconstruction_error(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    r"""\|x - decode(encode(x))\|^2 of each example, summed over its features."""
    core, x = core_of(model), features_of(model, batch.inputs[0]).flatten(1)
    return (x - core.decode(core.encode(x))).square().sum(1)


def negative_log_density(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    """-log p(x) of each example, in nats."""
    core, x = core_of(model), features_of(model, batch.inputs[0]).flatten(1)
    log_density: Tensor = -core.log_prob(x)
    return log_density
