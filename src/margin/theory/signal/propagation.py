"""How a signal passes a network: sizes of activations and gradients layer by layer, and dead units.

Glorot and Bengio (2010) and He, Zhang, Ren and Sun (2015): a network trains where neither vanishes nor
explodes with depth. The size of a layer's output h is the root of the mean of its squared entries over
examples and units; that of its gradient the same of each example's own dloss/dh, so that neither depends on
how many examples are asked.

Nothing is promised: it is measured, with its error.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject, odd_parameter
from margin.core.tasks import CLASSES, VALUES, Task
from margin.core.types import Batch, Objective
from margin.engine.evaluation import counts, eval_mode, expand_weight, sample_examples
from margin.engine.loop import State, risk
from margin.theory.prediction.held_out import Estimate, Terms, independent_draws, limits_of, weighted_mean
from margin.theory.prediction.risk import clopper_pearson
from margin.theory.signal.chain import Call, watched

TRACKED = 256
"""Examples that a track asks at each evaluation, at least: whole batches."""

SUMMED = 2**20
"""Numbers whose squares are held at once."""

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

    def limits(self, what: str) -> tuple[Float[Tensor, " layers"], Float[Tensor, " layers"]]:
        """The 95 % limits of each layer's root mean square: the roots of those of the mean square."""
        found = [limits_of(self._terms(getattr(level, what))) for level in self.levels.values()]
        low, high = (torch.stack(ends).sqrt() for ends in zip(*found, strict=True))
        return low, high

    def _mean(self, squares: Tensor) -> Estimate:
        return weighted_mean(self._terms(squares))

    def _terms(self, squares: Tensor) -> Terms:
        keep = self.weight > 0
        return Terms(squares[keep], self.weight[keep], torch.arange(len(keep))[keep])


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
    squares: dict[str, Tensor] = {}  # no layer's output is kept, which may be as large as all of the graph
    gradients: dict[str, Tensor] = {}
    examples = len(weight)

    def seen(call: Call) -> None:
        output = _first_tensor(call.output)
        if output is None or not any(True for _ in call.module.parameters(recurse=False)):
            return
        name = _numbered(call.name or type(call.module).__name__, squares)
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
    rows = tensor.detach() if tensor.ndim and len(tensor) == examples else tensor.detach().reshape(1, -1)
    # a part at a time: in float64 a map of many pixels is twice as large
    parts = rows.reshape(len(rows), -1).split(max(1, SUMMED // len(rows)), 1)
    squares = sum((part.double().square().sum(1).cpu() for part in parts), torch.zeros(len(rows)).double())
    return (squares / rows[0].numel()).expand(examples).clone()


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


def activation_track(state: State, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
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


EXAMPLES = 1024


def has_layers(subject: Subject) -> bool:
    """Whether the objective asks a layer with parameters of its own for real numbers."""
    if not len(subject.test) or not any(True for _ in subject.model.parameters()):
        return False
    try:
        signal(subject.model, looked_at(subject, 2), subject.objective)
    except ValueError:  # an objective may read weights without calling the layer that holds them
        return False
    return True


def has_rectifiers(subject: Subject) -> bool:
    """Whether an activation whose output may be exactly 0 stands as a layer of its own."""
    return any(isinstance(module, RECTIFIERS) for module in subject.model.modules())


def activations(subject: Subject, *, examples: int = EXAMPLES) -> Finding:
    """The size of each layer's output, now and with the weights that the training began with.

    Args:
        subject: A model with an objective.
        examples: Held-out examples at most, drawn at random; at least 2.
    """
    return _sizes(subject, "activation", examples)


def gradients(subject: Subject, *, examples: int = EXAMPLES) -> Finding:
    """The size of an example's gradient in each layer's output, now and when training began.

    Args:
        subject: A model with an objective.
        examples: Held-out examples at most, drawn at random; at least 2.
    """
    return _sizes(subject, "gradient", examples)


def _sizes(subject: Subject, what: str, examples: int) -> Finding:
    if examples < 2:
        raise ValueError(f"examples must be at least 2, or there is no error: got {examples}")
    few = looked_at(subject, subject.at_most(examples) or examples)
    now = signal(subject.model, few, subject.objective)
    sizes, errors = now.sizes(what)
    curves = {"depth": torch.arange(1, len(sizes) + 1).double(), "now": sizes}
    began = ""
    if subject.initial is not None:
        start = signal(subject.initial, few, subject.objective)
        first, _ = start.sizes(what)
        if list(start.levels) == list(now.levels):
            curves["at the start"] = first
        began = f" (when training began: {_gain(first, what)})"
    over = "from the first to the last layer" if what == "activation" else "from the last layer to the first"
    of = "the output" if what == "activation" else "an example's loss gradient in the output"
    return Finding(
        statement=f"Root mean square of {of} of each layer with parameters, over {len(now.weight):,} "
        f"held-out examples; {over} it changes by a factor of {_gain(sizes, what)}{began}.",
        value=sizes,
        unit="output" if what == "activation" else "loss / output",
        range=(0.0, math.inf),
        kind="estimate",
        stderr=errors,
        printed=now.limits(what),
        premises=(independent_draws(subject),),
        failure=_failure(now, sizes, what),
        labels=tuple(now.levels),
        curves=curves,
    )


def _gain(sizes: Tensor, what: str) -> str:
    last, first = (sizes[-1], sizes[0]) if what == "activation" else (sizes[0], sizes[-1])
    return f"{float(last / first):.3g}" if float(first) > 0 else "undefined (0 to begin with)"


def _failure(found: Signal, sizes: Tensor, what: str) -> str:
    if int((found.weight > 0).sum()) < 2:
        return "fewer than two examples have a weight above 0: there is no error"
    if not bool(sizes.isfinite().all()):
        name = list(found.levels)[int((~sizes.isfinite()).nonzero()[0])]
        return f"the {what} of layer {name!r} is not finite"
    return ""


def dead(subject: Subject, *, examples: int = EXAMPLES) -> Finding:
    """The share of rectified units that give 0 for every example looked at, layer by layer.

    It bounds from above the share of units that are dead, as one more example may wake a unit.

    Args:
        subject: A model with rectifiers as layers.
        examples: Held-out examples at most, drawn at random.

    Raises:
        NotAsked: No rectifier was run, as of a generator's where a critic answers.
    """
    if examples < 1:
        raise ValueError(f"examples must be at least 1: got {examples}")
    few = looked_at(subject, subject.at_most(examples) or examples)
    found = dead_units(subject.model, few)
    if not found:
        raise NotAsked("no rectifier is run where held-out examples are answered")
    count = sum(counted_examples(batch) for batch in few)
    units = sum(len(each) for each in found.values())
    silent = sum(int(each.sum()) for each in found.values())
    seldom = clopper_pearson(0, count, level=0.95)[1] if count else 1.0
    began = ""
    if subject.initial is not None:
        first = dead_units(subject.initial, few)
        began = f" (when training began: {sum(int(each.sum()) for each in first.values()):,})"
    return Finding(
        statement=f"{silent:,} of {units:,} rectified units give 0 for all of {count:,} held-out "
        f"examples{began}. Each is, with 95 % confidence, active on less than {seldom:.2g} of all "
        "examples; it need not be dead.",
        value=torch.stack([each.double().mean() for each in found.values()]),
        range=(0.0, 1.0),
        kind="upper",
        premises=(independent_draws(subject),),
        failure=odd_parameter(subject.model) if count else "no held-out example has a weight above 0",
        labels=tuple(f"{name}: {len(each)} units" for name, each in found.items()),
    )


# demonstrations


def doubling_demo() -> Subject:
    """Four layers that double every entry: sizes 2, 4, 8, 16; gradients halve from layer to layer."""
    model = nn.Sequential(*(nn.Linear(3, 3, bias=False) for _ in range(4))).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(2 * torch.eye(3))
    x = torch.tensor([[1.0, 1, 1], [1, -1, 1], [-1, 1, 1], [1, 1, -1]], dtype=torch.float64)
    return _subject(model, [Batch((x,), torch.zeros(4, 3, dtype=torch.float64))], VALUES)


def dead_demo() -> Subject:
    """Of four rectified units one has weights 0 and a bias below 0: dead. One more sleeps on these inputs."""
    first = nn.Linear(1, 4)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0], [-1.0], [0.0], [1.0]]))
        first.bias.copy_(torch.tensor([0.0, 0.0, -1.0, -5.0]))
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(4, 2)).double()
    x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]], dtype=torch.float64)
    return _subject(model, [Batch((x,), torch.tensor([0, 0, 1, 1]))], CLASSES)


def _subject(model: nn.Module, test: Sequence[Batch], task: Task) -> Subject:
    return Subject(model=model, test=test, task=task, objective=risk(task))
