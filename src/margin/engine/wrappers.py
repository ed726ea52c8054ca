"""Wrappers: a step around a step (schedule, moving average), an objective around an objective."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.engine.state import State, Step
from margin.types import Batch, Metrics, Objective


def scheduled(step: Step, schedule: Callable[[int], float]) -> Step:
    """Multiply every optimizer's first learning rate by ``schedule(state.step)``."""

    def wrapped(state: State, batch: Any) -> Metrics:
        factor = schedule(state.step)
        for optimizer in state.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor
        return step(state, batch)

    return wrapped


def averaged(step: Step, decay: float) -> Step:
    """Keep ``modules["average"]``, a <- decay a + (1 - decay) p over the model's parameters.

    Buffers are copied: a running variance is an average already.
    """

    @torch.no_grad()
    def update(state: State) -> None:
        average, model = state.modules["average"], state.model
        for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(parameter, 1 - decay)
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
