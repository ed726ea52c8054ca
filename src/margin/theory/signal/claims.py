"""Whether a signal reaches the last layer, and the gradient the first: now, and when training began.

Glorot and Bengio (2010), He, Zhang, Ren and Sun (2015). Nothing is promised: it is measured, with its error.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES, VALUES, Task
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.prediction.held_out import independent_draws
from margin.theory.prediction.risk import clopper_pearson
from margin.theory.signal.sizes import RECTIFIERS, Signal, counted_examples, dead_units, looked_at, signal

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
    few = looked_at(subject, examples)
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
        premises=(independent_draws(subject),),
        failure=_failure(now, sizes, what),
        labels=tuple(now.levels),
        curves=curves,
        reference="Glorot and Bengio 2010, Section 4; He, Zhang, Ren and Sun 2015, Section 2.2",
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
    """
    if examples < 1:
        raise ValueError(f"examples must be at least 1: got {examples}")
    few = looked_at(subject, examples)
    found = dead_units(subject.model, few)
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
        value=torch.stack([each.double().mean() for each in found.values()])
        if found
        else torch.tensor(math.nan, dtype=torch.float64),
        unit="1",
        range=(0.0, 1.0),
        kind="upper",
        premises=(independent_draws(subject),),
        failure=_silence(found, count),
        labels=tuple(f"{name}: {len(each)} units" for name, each in found.items()),
        reference="Maas, Hannun and Ng 2013, Section 2; Clopper and Pearson 1934 "
        "(Brown, Cai and DasGupta 2001, Section 4.2.1)",
    )


def _silence(found: dict[str, Tensor], count: int) -> str:
    if not found:
        return "no rectifier was run"
    return "" if count else "no held-out example has a weight above 0"


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
