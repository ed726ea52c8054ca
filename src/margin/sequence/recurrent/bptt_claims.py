"""What backpropagation through time promises: its recursion gives the gradient that autograd gives."""

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, in_double, weighted_mean
from margin.engine.loop import risk
from margin.nn.recurrence import without_padding
from margin.sequence.recurrent.bptt import Gradients, bptt
from margin.sequence.recurrent.elman import classifier
from margin.sequence.recurrent.heard import TOO_SHORT, Call, listening
from margin.sequence.recurrent.torch_recurrent import TorchRecurrence

EXAMPLES = 8
"""Held-out examples in whose loss the explicit recursion is put beside autograd."""

ROUNDING = 1e-10
"""In parts of the largest entry of a gradient, in float64."""

NONE_COUNTED = "no held-out term counts: all weights are 0"


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


def explicit(
    layer: nn.RNN, x: Tensor, states: list[Tensor], partial: Tensor, last: Tensor
) -> list[Gradients]:
    """The gradients of each layer of a simple recurrent network, from the highest down to the lowest.

    Args:
        layer: The network.
        x: Its inputs, (batch, time, n).
        states: z_0 .. z_T of each layer, (batch, time + 1, m).
        partial: The derivative of the loss by each output, with the other outputs held.
        last: That by the states, of each layer, that the network returns: 0 but at each example's last step,
            (batch, time, layers, m).
    """
    phi: Any = layer.nonlinearity
    inputs = [x, *(z[:, 1:] for z in states[:-1])]
    found: list[Gradients] = []
    for k in reversed(range(layer.num_layers)):
        U, V = getattr(layer, f"weight_hh_l{k}"), getattr(layer, f"weight_ih_l{k}")
        partial = (partial if not found else found[-1].x) + last[:, :, k]
        found.append(bptt(U, V, inputs[k], states[k], partial, phi))
    return found


def _at_ends(last: Tensor, lengths: Tensor | None, time: int) -> Tensor:
    """The derivatives by the returned states, each at its example's last step, the others 0."""
    out = last.new_zeros(len(last), time, *last.shape[1:])
    ends = torch.full((len(last),), time, device=last.device) if lengths is None else lengths
    here = (ends > 0).nonzero()[:, 0]
    out[here, ends[here] - 1] = last[here]
    return out


@torch.no_grad()
def states_of(module: TorchRecurrence, call: Call) -> list[Tensor]:
    """z_0 .. z_T of each layer as the network itself computed them; at padding 0.

    Computed anew by another order of sums, those of a chaotic network would be others after some hundred
    steps. The lowest k layers are asked as a network of k layers, which is how torch computes them.

    Args:
        module: A simple recurrent network.
        call: Its call on whole sequences.
    """
    layer, own, outputs = module.layer, dict(module.layer.named_parameters()), []
    start = (module.initial(call.x) if call.state is None else call.state)[0].detach()
    for k in range(1, layer.num_layers):
        low = nn.RNN(
            layer.input_size,
            layer.hidden_size,
            k,
            nonlinearity=layer.nonlinearity,
            bias=layer.bias,
            batch_first=True,
        ).to(call.x)
        low.load_state_dict({name: own[name] for name in low.state_dict()})
        outputs.append(TorchRecurrence(low)(call.x, call.lengths, (start[:, :k],))[0])
    outputs.append(call.output[0].detach())
    return [torch.cat((start[:, k, None], y), 1) for k, y in enumerate(outputs)]


@torch.no_grad()
def _difference(module: TorchRecurrence, call: Call, grads: list[Tensor], partials: list[Tensor]) -> Tensor:
    """The largest difference of the explicit gradients from autograd's, in parts of the largest entry."""
    layer, x, lengths = module.layer, without_padding(call.x.detach(), call.lengths), call.lengths
    last = _at_ends(partials[1], lengths, x.shape[1])
    outer = without_padding(partials[0], lengths)  # an output at padding is the number 0
    found = explicit(layer, x, states_of(module, call), outer, last)[::-1]  # type: ignore[arg-type]
    mine = {f"weight_hh_l{k}": one.U for k, one in enumerate(found)}
    mine |= {f"weight_ih_l{k}": one.V for k, one in enumerate(found)}
    mine |= {f"bias_{side}_l{k}": one.bias for k, one in enumerate(found) for side in ("hh", "ih")}
    names = [name for name, _ in layer.named_parameters()]
    pairs = [(mine[name], grad) for name, grad in zip(names, grads, strict=True)]
    size = torch.stack([grad.abs().max() for _, grad in pairs]).max()
    apart = torch.stack([(one - grad).abs().max() for one, grad in pairs]).max()
    return torch.where(apart == 0, apart, apart / size)


def counted(batch: Batch) -> Batch:
    """The examples of a batch of which some term counts."""
    if batch.weight is None:
        return batch
    here = (batch.weight != 0).flatten(1).any(1) if batch.weight.ndim > 1 else batch.weight != 0
    targets = None if batch.targets is None else batch.targets[here]
    return Batch(tuple(x[here] for x in batch.inputs), targets, batch.weight[here])


def first_counted(subject: Subject) -> Batch:
    """The examples that count of the first held-out batch that has some; those of the last, if none has."""
    batches = (counted(batch) for batch in subject.test)
    for batch in batches:
        if len(batch.inputs[0]):
            break
    return batch


def compared(subject: Subject, model: nn.Module, batch: Batch) -> tuple[list[Tensor], str]:
    """The difference of each simple recurrent network, NaN where there is none, and why; "" where there is.

    Args:
        subject: Whose objective it is.
        model: In float64.
        batch: Examples that count, real numbers in float64.
    """
    layers, failure = elman_layers(model), ""
    values = [torch.tensor(math.nan).double() for _ in layers]
    with eval_mode(model) as generator, torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        model.requires_grad_()
        with listening(layers) as calls:
            loss = mean_loss_of(subject, model, batch, generator)
        for i, (name, module) in enumerate(layers):
            if len(calls[name]) != 1:
                failure = f"{name} must be called once on whole sequences: got {len(calls[name])} calls"
                continue
            (call,) = calls[name]
            y, state = call.output
            if not y.requires_grad:  # no weight was used: there is no step
                failure = TOO_SHORT
                continue
            count, wanted = len(list(module.parameters())), [*module.parameters(), y, *state]
            grads = torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True)
            values[i] = _difference(module, call, list(grads[:count]), list(grads[count:]))
    return values, failure


def equals_autograd(subject: Subject) -> Finding:
    """Whether the recursion of backpropagation through time gives autograd's gradient of the held-out loss.

    The recursion is run on the states of the model and on the loss's derivatives by what each simple
    recurrent network returns; its sums are put beside autograd's derivatives by the weights. Asked are the
    first held-out examples that count.

    Args:
        subject: A model with simple recurrent networks.
    """
    batch = part_of(first_counted(subject), 0, EXAMPLES)
    model = in_double(subject.model)
    layers = elman_layers(model)
    values, failure = [torch.tensor(math.nan).double() for _ in layers], NONE_COUNTED
    if len(batch.inputs[0]):
        values, failure = compared(subject, model, batch)
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
