"""The state of a training and the loop that advances it.

Randomness is a function of (seed, rank, step): the loop reseeds before every step, so a checkpoint holds no
generator and a resumed training draws what the unbroken one drew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from margin.core.types import TERMS, Batch, Metrics
from margin.engine.parallel.processes import summed, world
from margin.math.seeds import mix


class Preprocessed(nn.Module):
    """A model behind the map from the user's units to its own: outcome(model(preprocess(x), *rest)).

    Args:
        preprocess: Maps the first input; fitted on the training part.
        model: The catalog's model.
        outcome: From the model's output back to the user's units; None: it is in them.
    """

    def __init__(self, preprocess: nn.Module, model: nn.Module, outcome: nn.Module | None = None) -> None:
        super().__init__()
        self.preprocess: nn.Module = preprocess
        self.model: nn.Module = model
        self.outcome: nn.Module | None = outcome

    def forward(self, x: Any, *rest: Any) -> Any:
        """The model's outputs for inputs in the user's units."""
        found = self.model(self.preprocess(x), *rest)
        return found if self.outcome is None else self.outcome(found)


def core_of(model: nn.Module) -> Any:
    """The catalog's model, without the preprocessing in front of it."""
    return model.model if isinstance(model, Preprocessed) else model


def features_of(model: nn.Module, x: Tensor) -> Tensor:
    """An input as the catalog's model sees it."""
    return model.preprocess(x) if isinstance(model, Preprocessed) else x


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
        history: The rows of the run's history so far, for a step that looks at them.
    """

    modules: dict[str, nn.Module]
    optimizers: dict[str, Optimizer] = field(default_factory=dict)
    step: int = 0
    seed: int = 0
    tally: dict[str, float | Tensor] = field(default_factory=dict)
    generator: Generator = field(default_factory=Generator)
    waiting: dict[str, dict[str, Tensor]] = field(default_factory=dict)
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
    rows = _rows(batch) if batch.weight is None else _kept(batch.weight)
    return {"examples": summed(rows)}


def _kept(weight: Tensor) -> Tensor:
    """The number of rows of which some term counts."""
    return (weight.reshape(len(weight), -1) != 0).any(1).sum().double()


def _rows(batch: Batch) -> Tensor:
    return torch.tensor(float(len(batch.inputs[0])), dtype=torch.float64, device=batch.inputs[0].device)


def device_of(model: nn.Module) -> torch.device:
    """The device of a module's first parameter or buffer; the CPU where it has none."""
    tensor = next(model.parameters(), next(model.buffers(), None))
    return torch.device("cpu") if tensor is None else tensor.device


def dtype_of(model: nn.Module) -> torch.dtype:
    """The real type of a module's first floating parameter or buffer; float32 where it has none."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32


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
    """
    device = device_of(state.model)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        state.model.train()
        while state.step < max_steps:
            state.reseed(device)
            batch = batches(state.step)
            metrics = step(state, batch)
            state.step += 1
            state.count(metrics, batch)
            for hook in hooks:
                if reason := hook(state, metrics):
                    return reason
    return "max_steps"
