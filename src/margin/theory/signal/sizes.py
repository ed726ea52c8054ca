r"""How a signal passes a network: sizes of activations and gradients layer by layer, and dead units.

Glorot and Bengio (2010) and He, Zhang, Ren and Sun (2015): a network trains where neither vanishes nor
explodes with depth. The size of a layer's output h is the root of the mean of its squared entries over
examples and units; that of its gradient the same of each example's own dloss/dh, so that neither depends on
how many examples are asked.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from margin.core.findings import Subject
from margin.core.types import Batch, Objective
from margin.engine.evaluation import counts, eval_mode, expand_weight, sample_examples
from margin.engine.loop import State
from margin.theory.prediction.held_out import Estimate, Terms, weighted_mean
from margin.theory.signal.path import Call, watched

TRACKED = 256
"""Examples that a track asks at each evaluation, at least: whole batches."""

RECTIFIERS: tuple[type[nn.Module], ...] = (nn.ReLU, nn.ReLU6, nn.Threshold, nn.Hardshrink, nn.Softshrink)
"""Activations whose output, and slope, is exactly 0 on an interval."""

CHANNELS_FIRST: tuple[type[nn.Module], ...] = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.GroupNorm,
)


class Level(NamedTuple):
    """The signal at a layer: for each example the mean square of its output, and of the gradient in it."""

    activation: Float[Tensor, " examples"]
    gradient: Float[Tensor, " examples"]


class Signal(NamedTuple):
    """The levels of a network by layer, in the order in which layers are run, and the examples' weights."""

    levels: dict[str, Level]
    weight: Float[Tensor, " examples"]

    def sizes(self, what: str) -> tuple[Float[Tensor, " layers"], Float[Tensor, " layers"]]:
        r"""The root mean square of each layer and its standard error over examples, :math:`s / 2m`.

        Args:
            what: ``activation`` or ``gradient``.
        """
        found = [self._mean(getattr(level, what)) for level in self.levels.values()]
        roots = torch.stack([each.mean.sqrt() for each in found])
        errors = torch.stack([each.stderr for each in found])
        return roots, torch.where(errors == 0, 0.0, errors / (2 * roots))

    def _mean(self, squares: Tensor) -> Estimate:
        keep = self.weight > 0
        return weighted_mean(Terms(squares[keep], self.weight[keep], torch.arange(len(keep))[keep]))


def signal(model: nn.Module, batches: Sequence[Batch], objective: Objective) -> Signal:
    """The signal at every layer with parameters of its own, forward and back; leaves no trace.

    A layer that is run several times has a level for each run, "name (2)" the second.

    Args:
        model: Any module, asked in evaluation mode.
        batches: The examples.
        objective: The loss of each term; an example's gradient is that of the sum of its terms.

    Raises:
        ValueError: No layer with parameters gives real numbers.
    """
    parts: dict[str, list[Level]] = {}
    weights = []
    with eval_mode(model) as generator, torch.enable_grad():
        model.requires_grad_(True)  # a frozen layer has a signal too
        for batch in batches:
            weight = _example_weight(batch)
            weights.append(weight)
            for name, level in _levels(model, batch, objective, generator, weight).items():
                parts.setdefault(name, []).append(level)
    if not parts:
        raise ValueError("a signal needs layers with parameters that give real numbers: there is none")
    whole = {name: Level(*map(torch.cat, zip(*found, strict=True))) for name, found in parts.items()}
    counted = torch.cat(weights)
    # A layer that some batches skip says nothing of all examples.
    kept = {name: level for name, level in whole.items() if len(level.activation) == len(counted)}
    return Signal(kept, counted)


def _levels(
    model: nn.Module, batch: Batch, objective: Objective, generator: Generator, weight: Tensor
) -> dict[str, Level]:
    outputs: dict[str, Tensor] = {}
    squares: dict[str, Tensor] = {}
    gradients: dict[str, Tensor] = {}
    examples = len(weight)

    def seen(call: Call) -> None:
        output = _first_tensor(call.output)
        if output is None or not any(True for _ in call.module.parameters(recurse=False)):
            return
        name = _numbered(call.name or type(call.module).__name__, outputs)
        outputs[name] = output
        squares[name] = _mean_squares(output, examples)  # now: a later layer may overwrite it
        gradients[name] = torch.zeros(examples, dtype=torch.float64)
        if output.requires_grad:
            output.register_hook(lambda g: gradients.__setitem__(name, _mean_squares(g, examples)))

    with watched(model, seen):
        values = objective(model, batch, generator)
    counted = expand_weight(values, batch.weight)
    if batch.weight is None or batch.weight.ndim <= 1:
        counted = (counted > 0).to(counted)  # an example that counts twice has no larger gradient
    total = torch.where(counted != 0, counted * values, 0).sum()
    if total.requires_grad:
        torch.autograd.grad(total, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    return {name: Level(squares[name], gradients[name]) for name in squares}


def _numbered(name: str, taken: Mapping[str, Any]) -> str:
    count = 1 + sum(key == name or key.startswith(f"{name} (") for key in taken)
    return name if count == 1 else f"{name} ({count})"


def _first_tensor(output: Any) -> Tensor | None:
    if isinstance(output, tuple | list):
        output = next((part for part in output if isinstance(part, Tensor)), None)
    real = isinstance(output, Tensor) and output.is_floating_point() and output.numel() > 0
    return output if real else None


def _mean_squares(tensor: Tensor, examples: int) -> Float[Tensor, " examples"]:
    """The mean square of each example's entries; of all of them where rows are no examples."""
    squares = tensor.detach().double().square().cpu()
    if tensor.ndim and len(tensor) == examples:
        return squares.reshape(examples, -1).mean(1)
    return squares.mean().expand(examples).clone()


def _example_weight(batch: Batch) -> Float[Tensor, " examples"]:
    examples = len(batch.inputs[0])
    if batch.weight is None:
        return torch.ones(examples, dtype=torch.float64)
    weight = batch.weight.detach().double().cpu()
    if weight.ndim > 1:
        return (weight.flatten(1) > 0).any(1).double()
    return weight if len(weight) == examples else torch.ones(examples, dtype=torch.float64)


@torch.no_grad()
def dead_units(model: nn.Module, batches: Sequence[Batch]) -> dict[str, Bool[Tensor, " units"]]:
    """Which units of each rectifier give 0 for every example of the batches; leaves no trace.

    A unit of a convolution is a channel, dead where it is 0 at every place. What is 0 on a sample may be
    active elsewhere; what is active once is not dead. A rectifier that serves in several places has units of
    its own in each, under "name (2)" the second.

    Args:
        model: Any module whose activations are layers; asked in evaluation mode.
        batches: The examples; those of weight 0 do not count.
    """
    dead: dict[str, Tensor] = {}
    axis = -1
    run: dict[str, Tensor] = {}

    def seen(call: Call) -> None:
        nonlocal axis
        if any(True for _ in call.module.parameters(recurse=False)):
            axis = 1 if isinstance(call.module, CHANNELS_FIRST) else -1
        output = _first_tensor(call.output)
        if not isinstance(call.module, RECTIFIERS) or output is None or output.ndim < 2:
            return
        rows = output[kept.to(output.device)] if len(output) == len(kept) else output
        # A NaN is not 0: it does not pass for dead.
        run[_numbered(call.name, run)] = (rows == 0).movedim(axis, 0).flatten(1).all(1).cpu()

    with eval_mode(model), watched(model, seen):
        for batch in batches:
            kept = _example_weight(batch) > 0
            run.clear()
            model(*batch.inputs)
            for name, silent in run.items():
                dead[name] = dead[name] & silent if name in dead else silent
    return dead


def counted_examples(batch: Batch) -> int:
    """How many examples of a batch have a weight above 0."""
    return int((_example_weight(batch) > 0).sum())


def first_batches(batches: Sequence[Batch], count: int) -> list[Batch]:
    """Whole batches from the front that hold ``count`` examples or more: examples may read each other."""
    taken: list[Batch] = []
    for batch in batches:
        if count <= 0:
            break
        taken.append(batch)
        count -= len(batch.inputs[0])
    return taken


def looked_at(subject: Subject, count: int) -> list[Batch]:
    """``count`` held-out examples drawn at random, or whole batches where they read each other.

    Those of weight 0 are passed over, unless there are no others or they are read by others.
    """
    found = sample_examples(subject.test, count, admits=counts, whole_batches=not subject.independent)
    return list(found.batches) or first_examples(subject.test, count)


def first_examples(batches: Iterable[Batch], count: int) -> list[Batch]:
    """Whole batches from the front, the last one cut, that hold ``count`` examples."""
    taken: list[Batch] = []
    for batch in batches:
        if count <= 0:
            break
        size = min(count, len(batch.inputs[0]))
        targets = None if batch.targets is None else batch.targets[:size]
        weight = None if batch.weight is None else batch.weight[:size]
        taken.append(Batch(tuple(x[:size] for x in batch.inputs), targets, weight))
        count -= size
    return taken


def activations(state: State, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
    """A track: how activations and gradients pass the network while it is trained, on its first examples.

    Args:
        state: The training.
        objective: The loss of each term.
        batches: The training part in order.

    Returns:
        ``activation_gain``: the size of the last layer's output in units of the first one's;
        ``gradient_gain``: the size of the gradient in the first layer's output in units of the last one's;
        ``dead_share``: the share of rectified units that give 0 for all of these examples, where there are
        rectifiers.

    Reference: Glorot and Bengio 2010, Section 4; He, Zhang, Ren and Sun 2015, Section 2.2.
    """
    few = first_batches(batches, TRACKED)
    found = signal(state.model, few, objective)
    forward, _ = found.sizes("activation")
    back, _ = found.sizes("gradient")
    columns = {
        "activation_gain": _ratio(forward[-1], forward[0]),
        "gradient_gain": _ratio(back[0], back[-1]),
    }
    if dead := dead_units(state.model, few):
        columns["dead_share"] = float(torch.cat(list(dead.values())).double().mean())
    return columns


def _ratio(one: Tensor, other: Tensor) -> float:
    return float(one / other) if float(other) > 0 else math.nan
