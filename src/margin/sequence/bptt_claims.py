"""What backpropagation through time promises: its recursion gives the gradient that autograd gives."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.engine.asking import asking, in_double, weighted_mean
from margin.engine.descent import risk
from margin.findings import Finding, Subject
from margin.sequence.bptt import Gradients, bptt, states
from margin.sequence.elman import classifier
from margin.sequence.torch_recurrent import TorchRecurrence
from margin.tasks import CLASSES
from margin.types import Batch

EXAMPLES = 8
"""Held-out examples in whose loss the explicit recursion is put beside autograd."""

ROUNDING = 1e-10
"""In parts of the largest entry of a gradient, in float64."""


def elman_layers(model: nn.Module) -> list[tuple[str, TorchRecurrence]]:
    """The recurrences of a model that are one of torch's simple recurrent networks, with their names."""
    return [
        (name.removeprefix("model.") or type(module).__name__, module)
        for name, module in model.named_modules()
        if isinstance(module, TorchRecurrence)
        and isinstance(module.layer, nn.RNN)
        and "weight_hh_l0" in dict(module.layer.named_parameters())  # not where a parametrization makes it
    ]


def has_elman(subject: Subject) -> bool:
    """Whether the model has a simple recurrent network, and there are held-out examples."""
    return len(subject.test) > 0 and len(elman_layers(subject.model)) > 0


def part_of(batch: Batch, start: int, stop: int) -> Batch:
    """Some examples of a batch, real numbers in float64."""
    inputs = tuple(x[start:stop] for x in batch.inputs)
    targets = None if batch.targets is None else batch.targets[start:stop]
    weight = None if batch.weight is None else batch.weight[start:stop]
    return Batch(inputs, targets, weight).to(dtype=torch.float64, device=inputs[0].device)


def explicit(layer: nn.RNN, x: Tensor, start: Tensor, partial: Tensor, last: Tensor) -> list[Gradients]:
    """The gradients of each layer of a simple recurrent network, from the highest down to the lowest.

    Args:
        layer: The network.
        x: Its inputs, (batch, time, n).
        start: z_0, (batch, layers, m).
        partial: The derivative of the loss by each output, with the other outputs held.
        last: That by the states, of each layer, that the network returns: 0 but at each example's last step,
            (batch, time, layers, m).
    """
    weights = [
        [getattr(layer, f"{name}_l{k}", None) for name in ("weight_hh", "weight_ih", "bias_hh", "bias_ih")]
        for k in range(layer.num_layers)
    ]
    phi: Any = layer.nonlinearity
    inputs, all_states = [x], []
    for k, (U, V, b, c) in enumerate(weights):
        bias = U.new_zeros(len(U)) if b is None else b + c  # type: ignore[union-attr,arg-type]
        all_states.append(states(U, V, bias, inputs[k], start[:, k], phi))  # type: ignore[arg-type]
        inputs.append(all_states[k][:, 1:])
    found: list[Gradients] = []
    for k in reversed(range(layer.num_layers)):
        U, V = weights[k][:2]
        partial = (partial if not found else found[-1].x) + last[:, :, k]
        found.append(bptt(U, V, inputs[k], all_states[k], partial, phi))  # type: ignore[arg-type]
    return found


def _at_ends(last: Tensor, lengths: Tensor | None, time: int) -> Tensor:
    """The derivatives by the returned states, each at its example's last step, the others 0."""
    out = last.new_zeros(len(last), time, *last.shape[1:])
    ends = torch.full((len(last),), time, device=last.device) if lengths is None else lengths
    here = (ends > 0).nonzero()[:, 0]
    out[here, ends[here] - 1] = last[here]
    return out


@torch.no_grad()
def _difference(layer: nn.RNN, call: tuple[Any, ...], grads: list[Tensor], partials: list[Tensor]) -> Tensor:
    """The largest difference of the explicit gradients from autograd's, in parts of the largest entry."""
    x, lengths, state = (*call, None, None)[:3]
    x = x.detach()
    if lengths is not None:
        x = x.masked_fill(
            torch.arange(x.shape[1], device=x.device)[None, :, None] >= lengths[:, None, None], 0
        )
    start = x.new_zeros(len(x), layer.num_layers, layer.hidden_size) if state is None else state[0].detach()
    last = _at_ends(partials[1], lengths, x.shape[1])
    found = explicit(layer, x, start, partials[0], last)[::-1]
    mine = {f"weight_hh_l{k}": one.U for k, one in enumerate(found)}
    mine |= {f"weight_ih_l{k}": one.V for k, one in enumerate(found)}
    mine |= {f"bias_{side}_l{k}": one.bias for k, one in enumerate(found) for side in ("hh", "ih")}
    names = [name for name, _ in layer.named_parameters()]
    pairs = [(mine[name], grad) for name, grad in zip(names, grads, strict=True)]
    size = torch.stack([grad.abs().max() for _, grad in pairs]).max()
    apart = torch.stack([(one - grad).abs().max() for one, grad in pairs]).max()
    return torch.where(apart == 0, apart, apart / size)


@contextmanager
def _listening(layers: list[tuple[str, TorchRecurrence]]) -> Iterator[dict[str, list[Any]]]:
    """What each layer is given and gives back, call by call."""
    calls: dict[str, list[Any]] = {name: [] for name, _ in layers}

    def listen(name: str, module: nn.Module) -> Any:
        return module.register_forward_hook(lambda _, given, output: calls[name].append((given, output)))

    handles = [listen(name, module) for name, module in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def equals_autograd(subject: Subject) -> Finding:
    """Whether the recursion of backpropagation through time gives autograd's gradient of the held-out loss.

    The recursion is run on the states of the model and on the loss's derivatives by what each simple
    recurrent network returns; its sums are put beside autograd's derivatives by the weights.

    Args:
        subject: A model with simple recurrent networks.
    """
    model, batch = in_double(subject.model), part_of(subject.test[0], 0, EXAMPLES)
    layers, values, failure = elman_layers(model), [], ""
    with asking(model) as generator, torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        model.requires_grad_()
        with _listening(layers) as calls:
            loss = mean_loss_of(subject, model, batch, generator)
        for name, module in layers:
            if len(calls[name]) != 1:
                failure = f"{name} must be called once on whole sequences: got {len(calls[name])} calls"
                values.append(torch.tensor(math.nan).double())
                continue
            ((given, (y, state)),) = calls[name]
            count, rnn = len(list(module.parameters())), module.layer
            wanted = [*module.parameters(), y, *state]
            grads = torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True)
            values.append(_difference(rnn, given, list(grads[:count]), list(grads[count:])))  # type: ignore[arg-type]
    zero = torch.zeros((), dtype=torch.float64)
    return Finding(
        statement="The recursion g_t = dl_t/dz_t + J_(t+1)^T g_(t+1) is autograd's gradient by the weights "
        "of each simple recurrent network: the largest difference, in parts of the largest entry.",
        value=torch.stack(values).cpu(),
        unit="1",
        range=(0.0, math.inf),
        low=zero,
        high=zero,
        tolerance=ROUNDING,
        labels=tuple(name for name, _ in layers),
        premises=(),
        reference="Werbos 1990, Section III; Goodfellow, Bengio and Courville 2016, Section 10.2.2",
        failure=failure,
    )


def mean_loss_of(subject: Subject, model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    """The subject's mean loss of a batch."""
    return weighted_mean(subject.objective(model, batch, generator), batch.weight)


def demo() -> Subject:
    """An Elman network of two layers on sequences of 0 to 12 steps."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = classifier(2, 3, hidden=6, layers=2)
    x = torch.randn(8, 12, 2, generator=Generator().manual_seed(0))
    lengths = torch.tensor([12, 0, 5, 1, 12, 7, 2, 12])
    return Subject(
        model=model, test=[Batch((x, lengths), torch.arange(8) % 3)], task=CLASSES, objective=risk(CLASSES)
    )
