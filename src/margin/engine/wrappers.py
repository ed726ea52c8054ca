"""Wrappers: a step around a step (schedule, moving average), an objective around an objective."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics, Objective
from margin.engine.loop import State, Step


def scheduled(step: Step, schedule: Callable[[int], float]) -> Step:
    """Multiply every optimizer's first learning rate by ``schedule(state.step)``."""

    def wrapped(state: State, batch: Any) -> Metrics:
        factor = schedule(state.step)
        for optimizer in state.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor
        return step(state, batch)

    return wrapped


def averaged(step: Step, decay: float | Literal["mean"], start: int = 0) -> Step:
    """Keep ``modules["average"]``: a moving average of the model's parameters, or their mean.

    A number is the decay of a <- decay a + (1 - decay) p. It forgets, so its variance does not go to 0, and
    it is biased to the weights that it began with, whose share after t steps is decay^t. "mean" is the mean
    over all weights since ``start`` (Polyak and Ruppert; stochastic weight averaging from the end of a
    training on), whose count is a function of the step alone.

    Buffers are copied: a running variance is an average already. Yet batch statistics are then those of the
    last weights, not of the averaged ones.

    Args:
        step: What is wrapped.
        decay: In [0, 1), or "mean".
        start: Steps before the average begins; until then it is a copy of the weights.

    Raises:
        ValueError: An option is out of range.

    Reference: Polyak and Juditsky (1992), "Acceleration of stochastic approximation by averaging"; Izmailov
    et al. (2018), "Averaging weights leads to wider optima and better generalization", Algorithm 1.
    """
    if decay != "mean" and (isinstance(decay, str) or not 0 <= decay < 1):
        raise ValueError(f"decay must be in [0, 1) or 'mean': got {decay!r}")
    if start < 0:
        raise ValueError(f"start must be at least 0: got {start}")

    @torch.no_grad()
    def update(state: State) -> None:
        average, model = state.modules["average"], state.model
        count = state.step - start + 1
        share = 1 / max(count, 1) if decay == "mean" else 1 - decay if count > 0 else 1.0
        for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(parameter, share)
        for copy, buffer in zip(average.buffers(), model.buffers(), strict=True):
            copy.copy_(buffer)

    def wrapped(state: State, batch: Any) -> Metrics:
        metrics = step(state, batch)
        update(state)
        return metrics

    return wrapped


def autocast(objective: Objective, device: str) -> Objective:
    """The objective with matrix products in bfloat16; weights, losses and gradients stay float32."""

    def wrapped(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            values = objective(model, batch, generator)
        return values.float()

    return wrapped
