"""Empirical risk minimization by gradient steps: the mean loss of a batch moves an optimizer."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from margin.core.tasks import Task
from margin.core.types import TERMS, Batch, Metrics, Objective
from margin.engine.evaluation import weighted_mean, weighted_sum
from margin.engine.loop import NonFiniteError, State, Step
from margin.engine.parallel.processes import (
    Spread,
    averaged_gradients,
    averaged_number,
    norms,
    summed,
    summed_later,
    world,
)


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

    Of several processes each differentiates the loss of its share (:func:`mean_loss`); the gradients'
    mean over the processes is then the gradient of the whole batch's.

    Args:
        clip: Largest Euclidean norm of the gradient; inf never clips.
        pieces: Pieces into which a batch is cut, to bound memory; their gradients are summed.
        synchronized: Whether a backward pass averages the gradients over the processes already.
    """

    clip: float = math.inf
    pieces: int = 1
    synchronized: bool = False

    def __call__(self, state: State, loss: Tensor, name: str = "") -> Metrics:
        """Differentiate a scalar loss and step the optimizer of that name."""
        grads, value = self.gradients(state, loss, name), loss.item()
        return self.apply(
            state, grads, averaged_number(value, loss.device) if self.synchronized else value, name
        )

    def gradients(self, state: State, loss: Tensor, name: str = "") -> list[Tensor | None]:
        """The gradient of a scalar loss with respect to each parameter of that optimizer."""
        parameters = self.parameters(state, name)
        if not self.synchronized:
            return list(torch.autograd.grad(loss, parameters, allow_unused=True))
        for parameter in parameters:
            parameter.grad = None
        loss.backward()  # what averages hooks into the accumulation, which autograd.grad leaves out
        return [parameter.grad for parameter in parameters]

    @staticmethod
    def parameters(state: State, name: str = "") -> list[Tensor]:
        """The parameters of that optimizer that require a gradient."""
        groups = state.optimizers[name].param_groups
        return [p for group in groups for p in group["params"] if p.requires_grad]

    def apply(self, state: State, grads: Sequence[Tensor | None], loss: float, name: str = "") -> Metrics:
        """Step the optimizer of that name along given gradients.

        Args:
            state: What is advanced.
            grads: For each parameter of that optimizer; of this process's share where not synchronized.
            loss: Of all processes where synchronized, else of this one's share.
            name: Which optimizer.

        Returns:
            The loss and the norm of the gradient before clipping, over all processes.

        Raises:
            NonFiniteError: The loss or a gradient is not finite; nothing has been moved.
        """
        optimizer, parameters = state.optimizers[name], self.parameters(state, name)
        if not self.synchronized and world().size > 1:
            loss = averaged_number(loss, parameters[0].device)
            grads = averaged_gradients(grads)
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = None if grad is None else laid_out(grad, parameter)
        present = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = total_norm(present)
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self._refuse(state, loss, name)
            norm = total_norm([grad.double() for grad in present])
        if norm > self.clip:
            torch._foreach_mul_(present, self.clip / (norm + 1e-6))  # as torch.nn.utils.clip_grad_norm_
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


def laid_out(grad: Tensor, parameter: Tensor) -> Tensor:
    """A gradient in the memory layout of its parameter: torch's fused steps read both by one index.

    ``backward`` sees to that, ``torch.autograd.grad`` does not.
    """
    if grad.layout != torch.strided or grad.stride() == parameter.stride():
        return grad
    return torch.empty_like(parameter).copy_(grad)


def total_norm(grads: Sequence[Tensor]) -> float:
    """The Euclidean norm of all gradients together; 0 where there are none."""
    # torch.nn.utils.get_total_norm groups by device first, which takes longer than the norms
    return math.hypot(*norms(list(grads))) if grads else 0.0


def mean_loss(losses: Tensor, weight: Tensor | None) -> Tensor:
    """The batch's mean loss sum(w l) / sum(w), both sums over all processes, to be differentiated.

    Of several processes each gets its own part of the sum, scaled so that the mean over the processes of
    losses and of gradients is that of the whole batch.
    """
    size = world().size
    if size == 1:
        return weighted_mean(losses, weight)
    total, count = weighted_sum(losses, weight)
    return total * size / summed(count)


def descent(objective: Objective, descend: Descend) -> Step:
    """One optimizer step on the batch's weighted mean loss, sum(w l) / sum(w) over all terms."""
    if world().size > 1 and not descend.synchronized:
        objective, descend = Spread(objective), replace(descend, synchronized=True)

    def step(state: State, batch: Batch) -> Metrics:
        if descend.pieces == 1 and world().size == 1:
            losses = objective(state.model, batch, state.generator)
            terms = losses.numel() if batch.weight is None else weighted_sum(losses, batch.weight)[1]
            return descend(state, weighted_mean(losses, batch.weight)) | {TERMS: terms}
        return _summed_descent(objective, descend, state, batch)

    return step


def _summed_descent(objective: Objective, descend: Descend, state: State, batch: Batch) -> Metrics:
    """Gradients of sums of losses, gathered piece by piece, divided at the end by the sum of weights."""
    parameters = descend.parameters(state)
    for parameter in parameters:
        parameter.grad = None
    sums: list[Tensor] = []
    pieces = list(cut(batch, descend.pieces)) if descend.pieces > 1 else [batch]
    for i, piece in enumerate(pieces):
        last = i == len(pieces) - 1
        with nullcontext() if last else _apart(objective, state.model):
            total, count = weighted_sum(objective(state.model, piece, state.generator), piece.weight)
            sums.append(torch.stack((total.detach(), count)).double())
            if last:  # the sum over the processes goes on while the gradients are computed
                over_all = summed_later(torch.stack(sums).sum(0))
            total.backward()
    loss, terms = over_all().tolist()
    grads = [parameter.grad for parameter in parameters]
    torch._foreach_mul_([grad for grad in grads if grad is not None], world().size / terms)
    return descend.apply(state, grads, loss / terms) | {TERMS: terms}


def _apart(objective: Objective, model: nn.Module) -> AbstractContextManager[None]:
    """Gradients gathered inside are averaged over the processes only with those of a later backward pass."""
    return objective.wrapped(model).no_sync() if isinstance(objective, Spread) else nullcontext()


def cut(batch: Batch, pieces: int) -> Iterator[Batch]:
    """A batch in so many pieces of nearly equal length, fewer where it has fewer examples.

    Raises:
        ValueError: Its inputs have no common first axis, as those of graphs.
    """
    if not batch.divisible:
        raise ValueError(f"accumulate must be 1: a batch of graphs is one graph, got {pieces} pieces of it")
    for index in torch.arange(len(batch.inputs[0])).tensor_split(pieces):
        if len(index):
            part = slice(int(index[0]), int(index[-1]) + 1)
            targets = None if batch.targets is None else batch.targets[part]
            weight = None if batch.weight is None else batch.weight[part]
            yield Batch(tuple(x[part] for x in batch.inputs), targets, weight)
