"""Objectives of flows: minus the log-density given the class, the log-probability of bits, or its bound."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, PerExample
from margin.generative.autoencoder.distributions import unit_inputs
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


def negative_log_probability(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
    """-log P of each example's bits, in nats, the bits drawn or thresholded as the model says."""
    core = core_of(model)
    x = features_of(model, batch.inputs[0]).flatten(1)
    if core.pixels == "threshold":
        return -core.log_prob(x)
    x = unit_inputs(x, "a distribution of bits")
    # u < 1, so a pixel of 1 is always 1, and one of 0 never
    return -core.of_bits((torch.rand(x.shape, generator=generator).to(x.device) < x).to(x.dtype))


def negative_bound(model: nn.Module, batch: Batch, generator: Generator) -> Float[Tensor, " batch"]:
    """Minus the bound of each image's log-probability, in nats, at points of the cells that are drawn anew.

    Reference: Theis, van den Oord and Bethge 2016, Section 3.1.
    """
    bound: Tensor = core_of(model).bound(features_of(model, batch.inputs[0]), generator=generator)
    return -bound
