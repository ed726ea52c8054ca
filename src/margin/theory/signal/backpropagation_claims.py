"""The written-out recursion of backpropagation against automatic differentiation, on a subject's own network.

Rumelhart, Hinton and Williams (1986). A layer whose backward pass was replaced (a gradient that is clipped,
masked or passed straight through) would show here.
"""

import copy
import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, weighted_mean
from margin.engine.loop import risk
from margin.theory.signal.backpropagation import RESHAPING, SLOPES, Unrolled, unit_gradients
from margin.theory.signal.path import NotAChainError, Stage, chain_of, few_inputs
from margin.theory.signal.sizes import looked_at

ROUNDING = 1e-10
"""In float64, relative to the sum of the moduli of the terms."""

EXAMPLES = 512


class Compared(NamedTuple):
    """A layer's relative difference of recursion and autograd, and the size of its gradient."""

    difference: float
    scale: float


def is_affine_chain(subject: Subject) -> bool:
    """Whether the model is a chain of Linear layers and pointwise activations whose slope is known."""
    if not len(subject.test):
        return False
    try:
        stages = chain_of(subject.model, few_inputs(subject))
    except NotAChainError:
        return False
    return all(type(stage.layer) is nn.Linear and _known(stage) for stage in stages)


def _known(stage: Stage) -> bool:
    return all(type(module) in SLOPES or type(module) in RESHAPING for _, module in stage.after)


def recursion(subject: Subject, *, examples: int = EXAMPLES) -> Finding:
    """The gradient of the mean loss by the formulas of a unit, against autograd; computed in float64.

    Args:
        subject: A chain of Linear layers and pointwise activations, with an objective that runs it once.
        examples: Examples at most, drawn at random.

    Raises:
        ValueError: ``examples`` is below 1.
    """
    if examples < 1:
        raise ValueError(f"examples must be at least 1: got {examples}")
    stages = chain_of(subject.model, few_inputs(subject))
    model = copy.deepcopy(subject.model).double()
    batch = looked_at(subject, examples)[0]  # of several batches the first is enough
    batch = batch.to(dtype=torch.float64, device=batch.inputs[0].device)
    compared, failure = _compare(model, stages, batch, subject)
    return Finding(
        statement="The gradient of each layer by the recursion of the deltas is that of automatic "
        f"differentiation; the loss is the mean over {len(batch.inputs[0]):,} examples, differences are "
        "relative to the sum of the moduli of the terms.",
        value=torch.tensor([each.difference for each in compared], dtype=torch.float64),
        unit="1",
        range=(0.0, math.inf),
        low=torch.tensor(0.0),
        high=torch.tensor(0.0),
        tolerance=ROUNDING,
        labels=tuple(stage.name for stage in stages),
        failure=failure,
        premises=(),
        reference="Rumelhart, Hinton and Williams 1986, Equations 4-7",
    )


def names_of(stage: Stage) -> tuple[str, ...]:
    """The names of a stage's layers in order; one that serves twice is named twice."""
    return (stage.name, *(name for name, _ in stage.after))


def _compare(
    model: nn.Module, stages: tuple[Stage, ...], batch: Batch, subject: Subject
) -> tuple[list[Compared], str]:
    """Both gradients of each stage on a copy of the model in float64, which is left to be thrown away."""
    layers = [model.get_submodule(name) for stage in stages for name in names_of(stage)]
    affine = [layer for layer in layers if type(layer) is nn.Linear]
    entered: list[Tensor] = []
    answered: list[Tensor] = []
    layers[0].register_forward_pre_hook(lambda module, args: entered.append(args[0]))
    layers[-1].register_forward_hook(lambda module, args, output: answered.append(output))
    with eval_mode(model) as generator, torch.enable_grad():
        model.requires_grad_(True)
        loss = weighted_mean(subject.objective(model, batch, generator), batch.weight)
        nothing = [Compared(math.nan, math.nan)] * len(stages)
        if len(entered) != 1:
            return nothing, f"the objective must run the model once: it ran it {len(entered)} times"
        wanted = [p for layer in affine for p in layer.parameters()]
        upstream, *automatic = torch.autograd.grad(loss, [answered[-1], *wanted], materialize_grads=True)
    with torch.no_grad():
        found = unit_gradients(layers, entered[0].detach(), upstream)
    compared = _differences(found, affine, automatic)
    sizes = [each.scale for each in compared]
    if not all(math.isfinite(each) for each in (*sizes, loss.item())):
        return compared, "the loss or a gradient is not finite"
    return compared, "" if any(sizes) else "the gradient of the loss in the outputs is 0: nothing to compare"


def _differences(found: Unrolled, affine: list[nn.Linear], automatic: list[Tensor]) -> list[Compared]:
    compared, rest = [], iter(automatic)  # max() of torch, unlike Python's, passes over no NaN
    for i, layer in enumerate(affine):
        pairs = [(next(rest), found.weights[i], found.weight_sizes[i])]
        if layer.bias is not None:
            pairs.append((next(rest), found.biases[i], found.bias_sizes[i]))
        differences = [
            _relative(float((auto - own).abs().max()), float(sizes.max())) for auto, own, sizes in pairs
        ]
        compared.append(
            Compared(float(torch.tensor(differences).max()), max(float(sizes.max()) for *_, sizes in pairs))
        )
    return compared


def _relative(gap: float, size: float) -> float:
    """A difference in units of the terms' size; NaN stays NaN, and terms that are all 0 leave no room."""
    if size == 0:
        return 0.0 if gap == 0 else math.inf
    return gap / size


def demo() -> Subject:
    """A network of three affine layers, tanh and ReLU, of fixed weights on twelve points of three classes."""
    generator = Generator().manual_seed(1986)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    return Subject(
        model=model, test=[Batch((x,), torch.arange(12) % 3)], task=CLASSES, objective=risk(CLASSES)
    )
