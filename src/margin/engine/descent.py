"""Empirical risk minimization by gradient steps: the mean loss of a batch moves an optimizer."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from margin.engine.asking import weighted_mean, weighted_sum
from margin.engine.state import NonFiniteError, State, Step
from margin.tasks import Task
from margin.types import Batch, Metrics, Objective


@dataclass(frozen=True, slots=True)
class Risk:
    """The supervised objective: a task's loss of the model's outputs, for each term."""

    task: Task

    def __call__(self, model: nn.Module, batch: Batch, generator: torch.Generator) -> Tensor:
        """The loss of each term of a batch."""
        loss = self.task.loss
        if loss is None or batch.targets is None:
            lacking = "has no loss" if loss is None else "needs targets, and the data have none"
            raise ValueError(f"the task {self.task.name!r} {lacking}")
        return loss(model(*batch.inputs), batch.targets)


def risk(task: Task) -> Objective:
    """The supervised objective of a task.

    Raises:
        ValueError: The task has no loss.
    """
    if task.loss is None:
        raise ValueError(f"the task {task.name!r} has no loss: the entry must name an objective")
    return Risk(task)


@dataclass(frozen=True, slots=True)
class Descend:
    """How a loss moves an optimizer's parameters: differentiate, refuse what is not finite, clip, step.

    Args:
        clip: Largest Euclidean norm of the gradient; inf never clips.
        pieces: Pieces into which a batch is cut, to bound memory; their gradients are summed.
    """

    clip: float = math.inf
    pieces: int = 1

    def __call__(self, state: State, loss: Tensor, name: str = "") -> Metrics:
        """Differentiate a scalar loss and step the optimizer of that name."""
        parameters = self.parameters(state, name)
        grads = torch.autograd.grad(loss, parameters, allow_unused=True)
        return self.apply(state, grads, loss.item(), name)

    @staticmethod
    def parameters(state: State, name: str = "") -> list[Tensor]:
        """The parameters of that optimizer that require a gradient."""
        groups = state.optimizers[name].param_groups
        return [p for group in groups for p in group["params"] if p.requires_grad]

    def apply(self, state: State, grads: Sequence[Tensor | None], loss: float, name: str = "") -> Metrics:
        """Step the optimizer of that name along given gradients.

        Returns:
            The loss and the norm of the gradient before clipping.

        Raises:
            NonFiniteError: The loss or a gradient is not finite; nothing has been moved.
        """
        optimizer, parameters = state.optimizers[name], self.parameters(state, name)
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        present = [grad for grad in grads if grad is not None]
        norm = total_norm(present)
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self._refuse(state, loss, name)
            norm = total_norm([grad.double() for grad in present])
        if norm > self.clip:
            size = torch.tensor(norm, dtype=torch.float64)
            torch.nn.utils.clip_grads_with_norm_(parameters, self.clip, size)
        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(lambda: loss)  # it asks for the loss, and has the gradients already
        else:
            optimizer.step()
        return {"loss": loss, "grad_norm": norm}

    def _refuse(self, state: State, loss: float, name: str) -> None:
        ids = {id(parameter): key for key, parameter in state.model.named_parameters()}
        bad = [
            ids[id(p)]
            for p in self.parameters(state, name)
            if p.grad is not None and not p.grad.isfinite().all()
        ]
        if not bad and math.isfinite(loss):
            return  # every gradient is finite: the sum of their squares overflowed
        lr = state.optimizers[name].param_groups[0]["lr"]
        where = f"the first gradient concerned is that of {bad[0]}" if bad else "every gradient is finite"
        raise NonFiniteError(f"loss {loss:g} at step {state.step}, lr {float(lr):g}: {where}")


def total_norm(grads: Sequence[Tensor]) -> float:
    """The Euclidean norm of all gradients together; 0 where there are none."""
    if not grads:
        return 0.0
    # torch.nn.utils.get_total_norm groups by device first, which takes longer than the norms
    return math.hypot(*torch.stack(torch._foreach_norm(list(grads))).tolist())


def descent(objective: Objective, descend: Descend) -> Step:
    """One optimizer step on the batch's weighted mean loss, sum(w l) / sum(w) over all terms."""

    def step(state: State, batch: Batch) -> Metrics:
        if descend.pieces == 1:
            losses = objective(state.model, batch, state.generator)
            return descend(state, weighted_mean(losses, batch.weight))
        return _in_pieces(objective, descend, state, batch)

    return step


def _in_pieces(objective: Objective, descend: Descend, state: State, batch: Batch) -> Metrics:
    parameters = descend.parameters(state)
    grads: list[Tensor | None] = [None] * len(parameters)
    loss, terms = torch.zeros(()), torch.zeros(())
    for piece in cut(batch, descend.pieces):
        total, count = weighted_sum(objective(state.model, piece, state.generator), piece.weight)
        parts = torch.autograd.grad(total, parameters, allow_unused=True)
        grads = [a if b is None else b if a is None else a + b for a, b in zip(grads, parts, strict=True)]
        loss, terms = loss.to(total) + total.detach(), terms.to(count) + count
    mean = [None if grad is None else grad / terms for grad in grads]
    return descend.apply(state, mean, (loss / terms).item())


def cut(batch: Batch, pieces: int) -> Iterator[Batch]:
    """A batch in so many pieces of nearly equal length, fewer where it has fewer examples."""
    for index in torch.arange(len(batch.inputs[0])).tensor_split(pieces):
        if len(index):
            part = slice(int(index[0]), int(index[-1]) + 1)
            targets = None if batch.targets is None else batch.targets[part]
            weight = None if batch.weight is None else batch.weight[part]
            yield Batch(tuple(x[part] for x in batch.inputs), targets, weight)
