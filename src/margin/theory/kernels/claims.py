"""The tangent kernel of a trained network: how it is aligned with the labels, and how far training moved it.

While the kernel stays as it was the network is a linear model in its weights ("lazy" training, Chizat,
Oyallon and Bach 2019); as it turns toward the labels the network learns features.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import drawn_rows, eval_mode
from margin.engine.loop import risk
from margin.theory.kernels.empirical import MEMORY, empirical_ntk
from margin.theory.kernels.networks import WideNetwork
from margin.theory.kernels.regression import Linearized, kernel_alignment, relative_change
from margin.theory.kernels.structured import Inputs, outputs_of

T = TypeVar("T")

EXAMPLES = 128
MOST_OUTPUTS = 64
"""Outputs of an example beyond which a kernel is not asked for: a backward pass each."""


class Looked(NamedTuple):
    """The examples between which the kernel is, and how they are called."""

    batch: Batch
    words: str
    mark: str


def _looked_at(subject: Subject, examples: int) -> Looked:
    kind = "training" if subject.train else "held-out"
    found = drawn_rows(subject.train or subject.test, subject.at_most(examples) or examples)
    if len(found.batches) != 1 or found.taken < 2:
        raise NotAsked("a kernel is between two examples or more of one size")
    outputs = _asked(lambda: _outputs(subject.model, found.batches[0].inputs))
    if outputs.shape[1] > MOST_OUTPUTS:
        raise NotAsked(f"an example has {outputs.shape[1]:,} outputs, more than {MOST_OUTPUTS}")
    mark = ("" if subject.train else "held-out", "" if found.whole else f"{found.taken:,} drawn")
    return Looked(found.batches[0], found.words(kind), ", ".join(filter(None, mark)))


def _asked(compute: Callable[[], T]) -> T:
    """What a computation returns; where the kernel does not suit the model or the memory, it is not asked."""
    try:
        return compute()
    except ValueError as error:
        raise NotAsked(str(error)) from error


@torch.no_grad()
def _outputs(model: nn.Module, inputs: Inputs) -> Tensor:
    with eval_mode(model):
        return outputs_of(model, inputs).double()


def _kernel(model: nn.Module, inputs: Inputs, memory: int) -> Tensor:
    K = _asked(lambda: empirical_ntk(model, inputs, outputs="mean", memory=memory))
    return K.double().cpu()


def _targets(batch: Batch) -> tuple[Tensor, Tensor]:
    """The targets as numbers, classes as indicators; and as one number an example, for an order."""
    y = batch.targets
    if (
        y is None
        or len(y) != len(batch.inputs[0])
        or y.ndim > 2
        or (y.ndim == 2 and not y.is_floating_point())
    ):
        raise NotAsked("targets are neither a class nor numbers, a row an example")
    y = y.detach().cpu()
    if y.is_floating_point():
        return y.double(), y.double().reshape(len(y), -1)[:, 0]
    kinds = y.unique(return_inverse=True)[1]
    return nn.functional.one_hot(kinds).double(), y.double()


def alignment(subject: Subject, *, examples: int = EXAMPLES, memory: int = MEMORY) -> Finding:
    """The centered alignment of the tangent kernel with the targets, and of that which training began with.

    Args:
        subject: A model with weights that require a gradient, and targets.
        examples: Examples at most, drawn at random; training ones where they are known.
        memory: Bytes that may be held, about.
    """
    batch, words, mark = _looked_at(subject, examples)
    y, order = _targets(batch)
    models = {"now": subject.model} | ({} if subject.initial is None else {"at the start": subject.initial})
    kernels = {name: _kernel(model, batch.inputs, memory) for name, model in models.items()}
    value = torch.tensor([kernel_alignment(K, y) for K in kernels.values()], dtype=torch.float64)
    if bool((y == y[0]).all()):
        raise NotAsked("the targets of all examples that were drawn are equal")
    ranked = order.argsort(stable=True)
    sides = {name: K.diagonal().clamp(min=0).sqrt() for name, K in kernels.items()}
    pictures = {
        f"kernel {name}": (K / (sides[name][:, None] * sides[name]))[ranked][:, ranked]
        for name, K in kernels.items()
        if bool((sides[name] > 0).all())
    }
    return Finding(
        statement=f"The alignment of the tangent kernel with that of the targets, over {words}: 1 is a "
        "kernel in which only the targets count.",
        value=value.clamp(0, 1),  # of positive semidefinite kernels it is in there but for rounding
        range=(0.0, 1.0),
        labels=tuple(kernels),
        sample=mark,
        failure="" if bool(value.isfinite().all()) else "the kernel is constant, or not finite",
        curves={**pictures, "target": order[ranked]},
    )


def drift(subject: Subject, *, examples: int = EXAMPLES, memory: int = MEMORY) -> Finding:
    r"""How far training moved kernel and weights, and how much of the outputs' change is linear.

    Relative to the start: :math:`\|K - K_0\| / \|K_0\|`, :math:`\|\theta - \theta_0\| / \|\theta_0\|`, and
    :math:`\|f - f_{\mathrm{lin}}\| / \|f - f_0\|` with the first-order Taylor polynomial about the start.
    All are O(1 / sqrt(width)) or less for networks in the tangent kernel's parametrization, which are lazy.

    Args:
        subject: A model and the weights that its training began with.
        examples: Examples at most, drawn at random; training ones where they are known.
        memory: Bytes that may be held, about.
    """
    batch, words, mark = _looked_at(subject, examples)
    initial = subject.initial
    if initial is None:
        raise NotAsked("the weights that the training began with are not known")
    before, after = (_kernel(model, batch.inputs, memory) for model in (initial, subject.model))
    start, moved = _weights(initial, subject.model)
    if not bool(moved.any()):
        raise NotAsked("the weights are those that the training began with")
    found = {
        "kernel": relative_change(before, after),
        "weights": float(moved.norm() / start.norm()) if bool(start.any()) else math.nan,
    }
    curved = _beyond_first_order(initial, subject.model, batch.inputs)
    if curved is not None:
        found["outputs, beyond first order"] = curved
    spectra = {
        f"eigenvalues {name}": torch.linalg.eigvalsh(K).flip(0).clamp(min=0) / len(K)
        for name, K in (("at the start", before), ("now", after))
        if bool(K.isfinite().all())
    }
    value = torch.tensor(list(found.values()), dtype=torch.float64)
    return Finding(
        statement=f"What training changed, relative to the start: the tangent kernel over {words}, the "
        "weights, and the part of the outputs' change that is not of first order in the weights; all small "
        "is lazy training, a linear model.",
        value=value,
        range=(0.0, math.inf),
        labels=tuple(found),
        sample=mark,
        failure="" if bool(value.isfinite().all()) else "a kernel or an output is 0 or not finite",
        curves=spectra,
    )


def _weights(initial: nn.Module, model: nn.Module) -> tuple[Tensor, Tensor]:
    """The weights at the start, and their change, of those that were trained."""
    first = dict(initial.named_parameters())
    pairs = [(first[name].detach(), p.detach()) for name, p in model.named_parameters() if p.requires_grad]
    start = torch.cat([a.reshape(-1).double() for a, _ in pairs])
    return start, torch.cat([(b.double() - a.double()).reshape(-1) for a, b in pairs])


def _beyond_first_order(initial: nn.Module, model: nn.Module, inputs: Inputs) -> float | None:
    """|f - f_lin| / |f - f_0|; None where the model has no forward derivative."""
    line = Linearized(initial)
    first, last = dict(initial.named_parameters()), dict(model.named_parameters())
    with torch.no_grad():
        for name, beta in zip(line.names, line.beta, strict=True):
            beta.copy_(last[name].to(beta) - first[name].to(beta))
    try:
        linear = _outputs(line, inputs)
    except (RuntimeError, NotImplementedError):
        return None
    f, f0 = _outputs(model, inputs), _outputs(initial, inputs)
    change = (f - f0).norm()
    return float((f - linear).norm() / change) if change > 0 else math.nan


def trained(width: int, *, steps: int = 200, seed: int = 0) -> Subject:
    """A network of one hidden layer on two classes of points in the plane, after steps on all of them."""
    generator = Generator().manual_seed(seed)
    x = torch.randn(64, 2, generator=generator, dtype=torch.float64)
    y = (x.prod(1) > 0).long()
    torch_model = WideNetwork(2, 2, width=width, bias_std=0.5, generator=generator).double()
    initial = WideNetwork(2, 2, width=width, bias_std=0.5).double()
    initial.load_state_dict(torch_model.state_dict())
    for _ in range(steps):
        loss = nn.functional.cross_entropy(torch_model(x), y)
        for p, g in zip(
            torch_model.parameters(), torch.autograd.grad(loss, list(torch_model.parameters())), strict=True
        ):
            p.data -= g
    return Subject(
        model=torch_model,
        initial=initial,
        test=[Batch((x[:32],), y[:32])],
        train=[Batch((x,), y)],
        task=CLASSES,
        objective=risk(CLASSES),
    )


def demo() -> Subject:
    """The network of :func:`trained`, 64 units wide."""
    return trained(64)


def narrow_demo() -> Subject:
    """The same 8 units wide and for longer: so few units move far enough to learn features."""
    return trained(8, steps=600)
