"""Stochastic gradient descent as a loop over steps: the state, the gradient step, its wrappers, and ``fit``.

Randomness is a function of (seed, rank, step): the loop reseeds before every step, so a checkpoint holds no
generator and a resumed training draws what the unbroken one drew. A step minimizes the empirical risk of a
batch; a schedule, a plateau of the validation loss and a moving average are steps around a step.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from margin.core.catalog import check_options
from margin.core.tasks import Task
from margin.core.types import TERMS, Batch, Metrics, Objective
from margin.engine.evaluation import weighted_mean, weighted_sum
from margin.engine.parallel.processes import (
    Spread,
    averaged_gradients,
    averaged_number,
    kept_memory,
    norms,
    summed,
    summed_later,
    world,
)
from margin.math.seeds import mix
from margin.nn.preprocessed import core_of, device_of, features_of
from margin.optim.schedules import plateau

ONE_VALUE = (
    "batch normalization needs two values of each map in a training step, whose spread it divides by: got "
    "maps of {}; set --batch-size 2 or more, or take larger images"
)
"""What torch.nn.BatchNorm's own refusal becomes; {} is the shape that it names."""


@dataclass(slots=True)
class State:
    """All that a training changes; with the run's arguments, enough to go on bit for bit.

    Args:
        modules: "model", and "average" where a moving average of it is kept.
        optimizers: By the name of the submodule they move; "" is the whole model.
        step: Steps taken.
        seed: The training's seed.
        tally: Sums of the steps' metrics since the last row of the history, of their terms and examples,
            and their number; a loss is summed times its terms.
        generator: What the current step draws from.
        waiting: What a checkpoint holds of modules that the step has not asked for yet.
        idle: What it holds of optimizers that the step has not asked for yet.
        history: The rows of the run's history so far, for a step that looks at them.
    """

    modules: dict[str, nn.Module]
    optimizers: dict[str, Optimizer] = field(default_factory=dict)
    step: int = 0
    seed: int = 0
    tally: dict[str, float | Tensor] = field(default_factory=dict)
    generator: Generator = field(default_factory=Generator)
    waiting: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    idle: dict[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()

    @property
    def model(self) -> nn.Module:
        """The module that is trained, in the user's units."""
        return self.modules["model"]

    @property
    def core(self) -> nn.Module:
        """The catalog's model, without the preprocessing in front of it."""
        core: nn.Module = core_of(self.model)
        return core

    @property
    def usable(self) -> nn.Module:
        """The module a user gets: the average where there is one."""
        return self.modules.get("average", self.model)

    def kept(self, name: str, make: Callable[[], nn.Module]) -> nn.Module:
        """The module that a step keeps under a name of its own: made once, then part of every checkpoint.

        Args:
            name: Its name in the state.
            make: What makes it, where no checkpoint holds it.
        """
        if name not in self.modules:
            module = make().to(device_of(self.model))
            if name in self.waiting:
                module.load_state_dict(self.waiting.pop(name))
            self.modules[name] = module
        return self.modules[name]

    def kept_optimizer(self, name: str, make: Callable[[], Optimizer]) -> Optimizer:
        """The optimizer that a step keeps under a name of its own: made once, then part of every checkpoint.

        Args:
            name: Its name in the state.
            make: What makes it, with the parameters that it moves.
        """
        if name not in self.optimizers:
            optimizer = make()
            if name in self.idle:
                optimizer.load_state_dict(self.idle.pop(name))
            self.optimizers[name] = optimizer
        return self.optimizers[name]

    def features(self, batch: Batch) -> Tensor:
        """The first input of a batch as the catalog's model sees it."""
        return features_of(self.model, batch.inputs[0])

    def reseed(self, device: torch.device) -> None:
        """Make this step's randomness a function of (seed, rank, step) alone."""
        key = mix(self.seed, world().rank, self.step)
        self.generator.manual_seed(key)
        # nn.Dropout draws from the global generators and knows no other
        torch.default_generator.manual_seed(key ^ 0x5BD1E995)
        if device.type == "cuda":
            torch.cuda.manual_seed(key ^ 0x5BD1E995)

    def count(self, metrics: Metrics, batch: Any) -> None:
        """Add a step's metrics to the tally, a loss as often as it has terms."""
        terms = terms_in(metrics, batch)
        metrics.pop(TERMS, None)  # it is the tally's alone
        sums = {name: value * terms if is_loss(name) else value for name, value in metrics.items()}
        counts = {TERMS: terms, **examples_in(batch), "steps": 1}
        for name, value in {**sums, **counts}.items():
            self.tally[name] = self.tally.get(name, 0.0) + value


Step = Callable[[State, Any], Metrics]
"""How a training advances: ``(state, batch) -> metrics``."""

Hook = Callable[[State, Metrics], str | None]
"""Looks at the state after a step, may write to the run, may return a reason to stop."""

Batches = Callable[[int], Any]
"""The batch of a step."""


class NonFiniteError(ArithmeticError):
    """A loss or gradient is not finite; no parameter has been moved."""


def is_loss(name: str) -> bool:
    """Whether a metric is a mean over the terms of a batch, which a mean over steps must weigh."""
    return name == "loss" or name.endswith("_loss")


def terms_in(metrics: Metrics, batch: Any) -> float | Tensor:
    """The weights of the terms that a step's loss is the mean of: what the step says, else its batch's sum.

    Of several processes, that of all their shares.
    """
    if TERMS in metrics:
        return metrics[TERMS]
    if not isinstance(batch, Batch):
        return 1.0
    return summed(_rows(batch) if batch.weight is None else batch.weight.double().sum())


def examples_in(batch: Any) -> dict[str, float | Tensor]:
    """How many examples a batch holds that count, in all processes; {} where its rows are no examples."""
    if not (isinstance(batch, Batch) and batch.divisible):
        return {}
    if batch.weight is None and world().size == 1:
        return {"examples": len(batch.inputs[0])}
    return {"examples": summed(_rows(batch) if batch.weight is None else _kept(batch.weight))}


def _kept(weight: Tensor) -> Tensor:
    """The number of rows of which some term counts."""
    return (weight.reshape(len(weight), -1) != 0).any(1).sum().double()


def _rows(batch: Batch) -> Tensor:
    return torch.tensor(float(len(batch.inputs[0])), dtype=torch.float64, device=batch.inputs[0].device)


def fit(state: State, batches: Batches, step: Step, *, max_steps: int, hooks: Sequence[Hook] = ()) -> str:
    """Advance ``state`` until ``max_steps`` or until a hook says why to stop.

    Args:
        state: Advanced in place.
        batches: The batch of each step.
        step: What advances the state; raises NonFiniteError before it moves a parameter.
        max_steps: Steps after which the training ends.
        hooks: Called in order after each step.

    Returns:
        Why it ended: ``"max_steps"`` or a hook's reason.

    Raises:
        ValueError: A batch normalization gets one value of each map.
    """
    device = device_of(state.model)
    # what decodes in threads would keep the pages of each thread's heap
    keep = nullcontext() if getattr(batches, "threaded", False) else kept_memory()
    with torch.random.fork_rng([device] if device.type == "cuda" else []), keep:
        state.model.train()
        while state.step < max_steps:
            state.reseed(device)
            batch = batches(state.step)
            try:
                metrics = step(state, batch)
            except ValueError as error:
                if not str(error).startswith("Expected more than 1 value per channel"):
                    raise
                raise ValueError(ONE_VALUE.format(str(error).rpartition("size ")[2])) from None
            state.step += 1
            state.count(metrics, batch)
            for hook in hooks:
                if reason := hook(state, metrics):
                    return reason
    return "max_steps"


def learn(model: nn.Module, objective: Objective, batch: Batch, *, steps: int, lr: float = 0.01) -> None:
    """Take so many steps of Adam on one batch, in place: the training of a demonstration."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    state = State({"model": model}, {"": optimizer})
    fit(state, lambda step: batch, descent(objective, GradientUpdate()), max_steps=steps)


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
class GradientUpdate:
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
        if not self.synchronized:
            return list(torch.autograd.grad(loss, self.parameters(state, name), allow_unused=True))
        parameters = self.forget(state, name)
        loss.backward()  # what averages hooks into the accumulation, which autograd.grad leaves out
        return [parameter.grad for parameter in parameters]

    def forget(self, state: State, name: str = "") -> list[Tensor]:
        """Drop the gradients of that optimizer's parameters, which are returned."""
        parameters = self.parameters(state, name)
        for parameter in parameters:
            parameter.grad = None
        return parameters

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
        laid = [None if g is None else laid_out(g, p) for p, g in zip(parameters, grads, strict=True)]
        for parameter, grad in zip(parameters, laid, strict=True):
            parameter.grad = grad
        present = [grad for grad in laid if grad is not None]
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


def descent(objective: Objective, descend: GradientUpdate) -> Step:
    """One optimizer step on the batch's weighted mean loss, sum(w l) / sum(w) over all terms."""
    if world().size > 1 and not descend.synchronized:
        objective, descend = Spread(objective), replace(descend, synchronized=True)

    def step(state: State, batch: Batch) -> Metrics:
        if descend.pieces == 1 and world().size == 1:
            descend.forget(state)  # before the activations are there, so that memory holds one or the other
            losses = objective(state.model, batch, state.generator)
            terms = losses.numel() if batch.weight is None else weighted_sum(losses, batch.weight)[1]
            return descend(state, weighted_mean(losses, batch.weight)) | {TERMS: terms}
        return _summed_descent(objective, descend, state, batch)

    return step


def _summed_descent(objective: Objective, descend: GradientUpdate, state: State, batch: Batch) -> Metrics:
    """Gradients of sums of losses, gathered piece by piece, divided at the end by the sum of weights."""
    parameters = descend.forget(state)
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


METRIC = "val_loss"

DEFAULTS = {"patience": 5.0, "factor": 0.1}


def on_plateau(step: Step, options: Mapping[str, float]) -> Step:
    """Multiply every learning rate, which a schedule sets anew before each step, by its drops so far.

    Those are :func:`margin.optim.schedules.plateau` of the validation losses.

    Args:
        step: What is wrapped.
        options: ``patience``, torch's: so many evaluations in a row may bring no best validation loss, the
            next one drops the rate; and ``factor``, by which each drop multiplies it.

    Raises:
        ValueError: There is no such option, or it is out of range; later, nothing is held out.
    """
    check_options(plateau, options, "the schedule plateau")
    chosen = {**DEFAULTS, **options}
    plateau([], **chosen)  # refuses what is out of range before the first step

    def wrapped(state: State, batch: Any) -> Metrics:
        if any(METRIC not in row for row in state.history):
            raise ValueError("the schedule plateau watches the validation loss: nothing is held out")
        factor = plateau([_number(row[METRIC]) for row in state.history], **chosen)
        for optimizer in state.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] *= factor
        return step(state, batch)

    return wrapped


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
