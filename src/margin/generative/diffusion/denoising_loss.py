"""What a diffusion minimizes, as the objective of a training: the loss at a time of each example."""

from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.core.types import Batch, PerExample
from margin.nn.preprocessed import core_of, features_of

DRAWS = 4
"""Times and noises of an example where the loss is only read: of one alone, the noise would choose the best
weights. Where it is differentiated, by a training or by a question about its curvature, each has one."""


def denoising_loss(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
    """The loss of an unconditional diffusion for each example."""
    return _drawn(model, batch, None, generator)


def conditional_denoising_loss(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
    """The loss of a diffusion that is told the class of each example.

    Raises:
        ValueError: The examples have no classes.
    """
    if batch.targets is None:
        raise ValueError("a diffusion given the class needs labeled examples: got none with a label")
    return _drawn(model, batch, batch.targets, generator)


def _drawn(model: nn.Module, batch: Batch, label: Tensor | None, generator: Generator) -> PerExample:
    """At one time and noise of each example where it is differentiated, else the mean of :data:`DRAWS`."""
    core: Any = core_of(model)
    x = features_of(model, batch.inputs[0]).reshape(-1, *core.shape)
    draws = 1 if torch.is_grad_enabled() else DRAWS
    return torch.stack([core.loss(x, generator, label) for _ in range(draws)]).mean(0)
