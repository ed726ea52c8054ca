"""Backpropagation through time (Werbos 1990) is autograd's gradient; truncated, it is biased.

Streaming: a recurrence over a whole sequence is its step, applied to one input after the other.
"""

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, in_double, weighted_mean
from margin.nn.recurrence import State, unrolled, without_padding
from margin.sequence.recurrent import elman, gru
from margin.sequence.recurrent.bptt import Gradients, bptt, truncated
from margin.sequence.recurrent.captured import (
    NOT_WHOLE,
    TOO_SHORT,
    Call,
    Captured,
    captured,
    captured_calls,
    causal_ones,
    example,
    stated_causal,
)
from margin.sequence.recurrent.layers import TorchRecurrence

EXAMPLES = 8
"""Held-out examples in whose loss the explicit recursion is put beside autograd."""

ROUNDING = 1e-10
"""In float64, in parts of a gradient's largest entry, of its norm, or of an output's largest number."""

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
        with captured_calls(layers) as calls:
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
    return Finding(
        statement="The recursion g_t = dl_t/dz_t + J_(t+1)^T g_(t+1) is autograd's gradient by the weights "
        "of each simple recurrent network: the largest difference, in parts of the largest entry, for the "
        f"mean loss of {len(batch.inputs[0])} held-out examples, the first that count.",
        value=torch.stack(values).cpu(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING,
        labels=tuple(name for name, _ in layers),
        failure=failure,
    )


def mean_loss_of(subject: Subject, model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    """The subject's mean loss of a batch."""
    return weighted_mean(subject.objective(model, batch, generator), batch.weight)


def demo() -> Subject:
    """An Elman network of two layers on sequences of 0 to 12 steps."""
    return example(
        lambda: elman.classifier(2, 3, hidden=6, layers=2), (8, 12, 2), (12, 0, 5, 1, 12, 7, 2, 12), classes=3
    )


GROUPS, GROUP = 8, 8
"""Parts of the held-out batch over which a truncated gradient is averaged, and examples of each at most."""

PIECES = 256
"""Windows in a sequence at most."""


def gradient(subject: Subject, model: nn.Module, batch: Batch, window: int = 0) -> Tensor:
    """The gradient of a batch's mean loss by the parameters of the causal recurrences, in a row.

    Args:
        subject: Whose objective it is.
        model: In float64.
        batch: Real numbers in float64.
        window: Steps of a window beyond which no derivative goes, at least 1; 0 is none.
    """
    with eval_mode(model) as generator, torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        model.requires_grad_()
        if window:
            with truncated(model, window):
                loss = mean_loss_of(subject, model, batch, generator)
        else:
            loss = mean_loss_of(subject, model, batch, generator)
        parameters = [p for _, one in causal_ones(model) for p in one.parameters()]
        grads = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return torch.cat([g.flatten() for g in grads])


def longest_call(model: nn.Module, batch: Batch) -> int:
    """The most steps that a causal recurrence of the model is given at once; 0 where it is given none."""
    with torch.no_grad(), eval_mode(model), captured_calls(causal_ones(model)) as calls:
        model(*batch.inputs)
    made = [call for each in calls.values() for call in each]
    return max((c.x.shape[1] for c in made if c.lengths is None or bool((c.lengths > 0).any())), default=0)


def windows_of(time: int) -> list[int]:
    """Powers of two below the sequences' length that cut it into :data:`PIECES` at most, and the length."""
    powers = [2**i for i in range(time.bit_length()) if 2**i < time <= PIECES * 2**i]
    return [*powers, max(time, 1)]


def errors_by_window(subject: Subject, model: nn.Module, first: Batch, windows: list[int]) -> Tensor:
    """The relative error of the gradient of each group of examples, by the window: (groups, windows).

    Args:
        subject: Whose objective it is.
        model: In float64.
        first: Examples of which each counts.
        windows: Steps of each window.
    """
    count = min(len(first.inputs[0]), GROUPS * GROUP)
    size = -(-count // GROUPS)
    rows = []
    for i in range(0, count, size):
        batch = part_of(first, i, min(i + size, count))
        whole = gradient(subject, model, batch)
        apart = torch.stack([(gradient(subject, model, batch, k) - whole).norm() for k in windows])
        rows.append(torch.where(apart == 0, apart, apart / whole.norm()))
    return torch.stack(rows).cpu()


def truncation_bias(subject: Subject) -> Finding:
    """How far the gradient of truncated backpropagation through time is from the whole one, by its window.

    The value is ||g_k - g|| / ||g||, g by the parameters of the causal recurrences, the mean over groups of
    held-out examples that count with its error. At the sequences' length nothing is cut, and it is 0.

    Args:
        subject: A model with a causal recurrence.
    """
    model, first = in_double(subject.model), first_counted(subject)
    count = min(len(first.inputs[0]), GROUPS * GROUP)
    time = longest_call(model, part_of(first, 0, count)) if count else 0
    windows = windows_of(time)
    errors = errors_by_window(subject, model, first, windows) if count else torch.full((1, 1), math.nan)
    value = errors.mean(0).double()
    stderr = errors.std(0) / math.sqrt(len(errors)) if len(errors) > 1 else None
    failure = "" if time else "the model calls its recurrences step by step, or on no step"
    failure = failure if count else NONE_COUNTED
    return Finding(
        statement="The relative error of the gradient by the recurrences' parameters where no derivative "
        f"leaves a window of k of {time} steps, the mean over {len(errors)} groups of held-out examples.",
        value=value,
        range=(0.0, math.inf),
        kind="exact" if stderr is None else "estimate",
        stderr=stderr,
        labels=tuple(f"window {k}" for k in windows),
        failure=failure,
        curves={"window": torch.tensor(windows), "relative error of the gradient": value},
    )


EPS = torch.finfo(torch.float64).eps
FLOOR = torch.finfo(torch.float64).tiny / EPS
"""Where the largest number is below it, numbers underflow, and a difference is put in parts of this."""

GROWN = ROUNDING / 100
"""To which a move of 4 eps may grow: a step, a sum of many products, may round a hundred times as much."""


def streams(subject: Subject) -> bool:
    """Whether the model has a causal recurrence, and there are held-out examples."""
    return len(subject.test) > 0 and len(causal_ones(subject.model)) > 0


@torch.no_grad()
def difference(one: Captured) -> Tensor:
    """The largest difference between a whole pass and its steps: of outputs and of the state they leave.

    Each is in parts of the largest number of that output or state.

    Args:
        one: A causal recurrence and what it was given.
    """
    start = _start(one)
    whole, after = one.recurrence(one.x, one.lengths, start)
    apiece, state = unrolled(one.recurrence.step, one.x, one.lengths, start)
    pairs = [(whole, apiece), *zip(after, state, strict=True)]
    return torch.stack([_largest(a - b) / _largest(b).clamp_min(FLOOR) for a, b in pairs]).amax().cpu()


def _start(one: Captured) -> State:
    return one.recurrence.initial(one.x) if one.state is None else one.state


def _largest(x: Tensor) -> Tensor:
    return x.abs().double().amax() if x.numel() else x.abs().new_zeros(()).double()


@torch.no_grad()
def growth(one: Captured) -> Tensor:
    """How far the steps move where each input and each state is off by 4 eps, after 1 .. T steps.

    It is the largest move of an output or a state, in parts of its largest number up to there: by so much two
    right computations may differ, since each rounds its states at every step.

    Args:
        one: A causal recurrence and what it was given.
    """
    start, generator = _start(one), Generator().manual_seed(0)
    moves, sizes = [], []

    def off(x: Tensor) -> Tensor:
        if not (x.is_floating_point() or x.is_complex()):
            return x
        ways = torch.randint(2, x.shape, generator=generator).double() * 2 - 1
        return x * (1 + 4 * EPS * ways).to(x.device)

    def both(x: Tensor, state: State) -> tuple[Tensor, State]:
        y, new = one.recurrence.step(x, state[: len(start)])
        y_off, new_off = one.recurrence.step(off(x), tuple(off(s) for s in state[len(start) :]))
        pairs = [(y_off, y), *zip(new_off, new, strict=True)]
        moves.append(torch.stack([_largest(a - b) for a, b in pairs]))
        sizes.append(torch.stack([_largest(b) for _, b in pairs]))
        return y, (*new, *new_off)

    unrolled(both, one.x, one.lengths, (*start, *start))
    largest = torch.stack(sizes).cummax(0).values.clamp_min(FLOOR)
    return (torch.stack(moves) / largest).amax(1)[: one.x.shape[1]].cpu()


def answer(one: Captured) -> tuple[Tensor, str]:
    """The difference of a recurrence, and why it says nothing; "" where it does.

    Where rounding alone may make the difference, the first steps are compared, over which it may not.

    Args:
        one: A causal recurrence and what it was given.
    """
    apart = difference(one)
    if not bool(apart > ROUNDING):
        return apart, ""
    grown = growth(one)
    late = (grown > GROWN).nonzero()
    if not len(late):
        return apart, ""
    steps, lengths = int(late[0]), one.lengths
    early = one._replace(x=one.x[:, :steps], lengths=None if lengths is None else lengths.clamp_max(steps))
    apart = difference(early)
    if bool(apart > ROUNDING):
        return apart, ""
    return apart, (
        f"rounding grows to {float(grown.amax()):.1g} of the largest number over the {len(grown)} steps of "
        f"{one.name.removeprefix('model.')}: ask on shorter sequences, of {steps} steps at most"
    )


def streaming(subject: Subject) -> Finding:
    """Whether each causal recurrence over whole sequences is its own step, applied to one input at a time.

    Compared are all outputs and the state after each example's own last step. It is what makes a model that
    was trained on whole sequences one that answers as they come. Of a chaotic recurrence two right
    computations differ too, for rounding grows from step to step: it fails where only that was seen.

    Args:
        subject: A model with causal recurrences; they are asked on the inputs that the held-out examples give
            them, in float64.
    """
    layers = captured(subject, causal_ones)
    answers = [answer(one) for one in layers]
    wrong = any(bool(value > ROUNDING) for value, _ in answers)
    failure = "" if wrong else "; ".join(why for _, why in answers if why)
    steps = max((one.x.shape[1] for one in layers), default=0)
    return Finding(
        statement=f"Over {steps} steps, outputs and last state of each recurrence are those of its step, one "
        "input at a time: the largest difference, in parts of the largest number of each.",
        value=torch.stack([value for value, _ in answers]) if layers else torch.full((1,), math.nan),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING,
        labels=tuple(one.name.removeprefix("model.") for one in layers),
        premises=tuple(stated_causal(one.name, one.recurrence) for one in layers),
        failure=failure if layers else NOT_WHOLE,
    )


def streaming_demo() -> Subject:
    """A small GRU that classifies sequences of 0 to 9 steps."""
    return example(lambda: gru.classifier(2, 2, hidden=4, layers=2), (4, 9, 2), (0, 3, 9, 1))
