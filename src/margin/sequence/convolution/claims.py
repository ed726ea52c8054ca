"""Causality (van den Oord et al. 2016, Equation 1): no output depends on a later input.

Receptive fields: how far back the oldest input lies that an output reads. Fast generation from kept inputs
(Paine et al. 2016) gives the logits of the whole network.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import TOKENS
from margin.core.types import Batch
from margin.engine.evaluation import drawn_rows, eval_mode, expand_weight, in_double
from margin.engine.loop import risk
from margin.math.evenly import evenly
from margin.nn.preprocessed import core_of
from margin.nn.recurrence import Recurrence
from margin.sequence.convolution.causal import CausalConv1d
from margin.sequence.convolution.tcn import classifier, language
from margin.sequence.convolution.wavenet import CachedSteps, WaveNet
from margin.sequence.recurrent.captured import (
    EXAMPLES,
    NOT_WHOLE,
    Captured,
    captured,
    example,
    first_inputs,
    outermost,
    seeded,
    stated_causal,
)

CUTS = 8
"""Steps at which a sequence is cut in two."""

ROUNDING = 1e-10
"""In parts of the largest entry, in float64: a Fourier transform spreads its rounding over all steps."""

NOISE = 64 * torch.finfo(torch.float64).eps
"""The rounding of one operation, in parts of the largest number that it yields."""


def cuts(time: int) -> list[int]:
    """At most :data:`CUTS` steps that have a later one, evenly spread from the first such to the last."""
    return evenly(time - 1, CUTS).tolist() if time > 1 else []


def steps(one: Captured) -> int:
    """The steps of the longest sequence that a recurrence was given; what stands behind them is padding."""
    if one.lengths is None:
        return one.x.shape[1]
    return int(one.lengths.max()) if len(one.lengths) else 0


def derivatives(one: Captured) -> Float[Tensor, "cuts time"]:
    """The largest derivative by the input of each step of a random combination of the outputs at each cut.

    Where dy_t / dx_s is not 0, neither is its product with a random vector, with probability 1.

    Args:
        one: A recurrence and what it was given.
    """
    x = one.x.clone().requires_grad_()
    with torch.enable_grad():
        y, _ = one.recurrence(x, one.lengths)
        generator = Generator().manual_seed(0)
        v = torch.randn(y.shape[0], y.shape[2], generator=generator, dtype=y.dtype).to(y.device)
        values = [(y[:, t] * v).sum() for t in cuts(steps(one))]
        rows = [torch.autograd.grad(value, x, retain_graph=True)[0].abs().amax((0, 2)) for value in values]
    return torch.stack(rows) if rows else x.new_zeros(0, x.shape[1])


def share(later: Tensor, own: Tensor, largest: Tensor) -> Tensor:
    """The largest share that what comes later has in each of some quantities; NaN where one is not finite.

    What is within :data:`NOISE` of the largest number that an operation yields is its rounding: such a later
    part is 0, and where the own part is no more, the later one is measured by the largest.

    Args:
        later: What is due to later inputs, at least 0.
        own: What it is a share of.
        largest: The largest number of the operation that yielded both.
    """
    noise = NOISE * largest
    shares = torch.where(later <= noise, 0.0, later / torch.where(own > noise, own, largest))
    finite = later.isfinite() & own.isfinite() & largest.isfinite()
    return torch.where(finite, shares, math.nan).amax().cpu()


def leak(one: Captured) -> Tensor:
    """The largest derivative of a step by a later input, in parts of that by its own input.

    NaN where no step has a later one.
    """
    rows = derivatives(one)
    if not len(rows):
        return torch.full((), math.nan, dtype=torch.float64)
    at = torch.tensor(cuts(steps(one)), device=rows.device)[:, None]
    later = torch.where(torch.arange(rows.shape[1], device=rows.device) > at, rows, 0)
    return share(later.amax(1), rows.gather(1, at)[:, 0], rows.amax(1))


@torch.no_grad()
def change(one: Captured) -> Tensor:
    """The largest change of the outputs up to a cut where all later inputs are others, in parts of them.

    A step function of later inputs, or what is detached from them, has no derivative and is seen here.
    The others are drawn ten times as wide as the inputs are. NaN where no step has a later one.
    """
    shares = [torch.full((), math.nan, dtype=torch.float64)]
    generator = Generator().manual_seed(0)
    wide = 10 * (1 + (one.x.abs().amax() if one.x.numel() else 0))
    y, _ = one.recurrence(one.x, one.lengths)
    for t in cuts(steps(one)):
        others = wide * torch.randn(one.x.shape, generator=generator, dtype=one.x.dtype).to(one.x.device)
        moved, _ = one.recurrence(torch.cat((one.x[:, : t + 1], others[:, t + 1 :]), 1), one.lengths)
        before, after = y[:, : t + 1], moved[:, : t + 1]
        largest = torch.maximum(y.abs().amax(), moved.abs().amax())
        shares.append(share((after - before).abs().amax(), before.abs().amax(), largest))
    return torch.stack(shares[1:] or shares).amax()


def derivative(subject: Subject) -> Finding:
    """How much each recurrence inside the model depends on later inputs, by derivatives and by other inputs.

    Args:
        subject: A model with recurrences; they are asked on the inputs that the held-out examples give them.
    """
    layers = captured(subject)
    values = [ask(one) for one in layers for ask in (leak, change)]
    failure = "" if layers else NOT_WHOLE
    if any(steps(one) < 2 for one in layers):
        failure = "the held-out sequences have fewer than two steps"
    return Finding(
        statement="No output of a recurrent layer depends on a later input: the largest derivative of a step "
        "by one, in parts of that by its own input, and the largest change of the outputs up to a step where "
        "all later inputs are others, in parts of the outputs.",
        value=torch.stack(values) if values else torch.full((1,), math.nan, dtype=torch.float64),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING,
        labels=tuple(f"{one.name}, {by}" for one in layers for by in ("derivative", "change")),
        premises=tuple(stated_causal(name, layer) for name, layer in outermost(subject.model)),
        failure=failure,
    )


def next_token_input(batch: Batch) -> int | None:
    """Which input holds at each step what was the target of the step before; None where none does.

    Args:
        batch: Targets of shape (batch, time); a place of weight 0 is padding.
    """
    targets = batch.targets
    if targets is None or targets.ndim != 2 or targets.shape[1] < 2:
        return None
    counts = expand_weight(targets.double(), batch.weight) > 0
    pairs = counts[:, 1:] & counts[:, :-1]
    for place in reversed(range(len(batch.inputs))):
        x = batch.inputs[place]
        alike = x.shape == targets.shape and not x.is_floating_point()
        if alike and bool(pairs.any()) and bool((x[:, 1:] == targets[:, :-1])[pairs].all()):
            return place
    return None


def predicts_next(subject: Subject) -> bool:
    """Whether the targets are the next tokens of an input."""
    return (
        subject.task.name == TOKENS.name
        and bool(subject.test)
        and next_token_input(subject.test[0]) is not None
    )


@torch.no_grad()
def replacement(subject: Subject) -> Finding:
    """The largest change of the logits up to a step where every later token is replaced by another at random.

    Any model of tokens can be asked, whatever it is made of.

    Args:
        subject: A model whose targets are the next tokens of an input.
    """
    place = next_token_input(subject.test[0])
    if place is None:
        raise ValueError("this is asked of a model that predicts the next token of an input")
    model, drawn = in_double(subject.model), drawn_rows(subject.test, EXAMPLES)
    generator = Generator().manual_seed(0)
    changes, largest, vocab = [torch.zeros((), dtype=torch.float64)], 1.0, 2
    with eval_mode(model):
        for batch in drawn.batches:
            inputs = list(first_inputs(batch))
            tokens, before = inputs[place], model(*inputs)
            largest, vocab = max(largest, float(before.abs().amax())), before.shape[-1]
            others = torch.randint(1, max(vocab, 2), tokens.shape, generator=generator).to(tokens)
            for t in cuts(tokens.shape[1]):
                inputs[place] = tokens.clone()
                inputs[place][:, t + 1 :] = (tokens + others)[:, t + 1 :] % vocab
                changes.append((model(*inputs) - before)[:, : t + 1].abs().amax().cpu())
    return Finding(
        statement="The logits up to a step do not change where every later token is replaced by another: the "
        f"largest change, over {drawn.words()}.",
        value=torch.stack(changes).amax(),
        unit="nats",
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING * largest,
        failure="" if vocab > 1 else "of a single token none can be replaced by another",
    )


def derivative_demo() -> Subject:
    """A small TCN that classifies sequences of 20 steps."""
    return example(lambda: classifier(2, 2, hidden=4, layers=2), (4, 20, 2))


def replacement_demo() -> Subject:
    """A small TCN that predicts the next of 5 tokens."""
    return _next_of_tokens(lambda: language(5, hidden=4, layers=2), (4, 21))


LONGEST = 1 << 16
"""Steps beyond which a receptive field is not measured."""

LONG = 4096
"""Steps of the sequences that are asked where no more are needed to see beyond the stated field."""

OUTPUTS, SEQUENCES = 4, 4


def bounded(subject: Subject) -> list[tuple[str, Recurrence, int]]:
    """The outermost recurrences that state a receptive field."""
    found = (
        (name, layer, getattr(layer, "receptive_field", None)) for name, layer in outermost(subject.model)
    )
    return [(name, layer, field) for name, layer, field in found if isinstance(field, int)]


def has_receptive_field(subject: Subject) -> bool:
    """Whether a recurrence of the model states its receptive field."""
    return len(bounded(subject)) > 0


def gradient_by_lag(layer: Recurrence, time: int) -> Tensor:
    """The largest derivative of the last outputs by the input 0, 1, 2, .. steps before, on random sequences.

    Args:
        layer: A recurrence in float64.
        time: Steps of the sequences.

    Returns:
        Largest absolute derivatives by lag, of shape (time,).
    """
    generator = Generator().manual_seed(0)
    parameter = next(layer.parameters())
    draw = torch.randn(SEQUENCES, time, layer.input_size, generator=generator, dtype=torch.float64)
    x = draw.to(parameter.device).requires_grad_()
    with torch.enable_grad():
        y, _ = layer(x)
        v = torch.randn(SEQUENCES, y.shape[2], generator=generator, dtype=torch.float64).to(x.device)
        largest = x.new_zeros(time)
        for back in range(min(OUTPUTS, time)):
            (gradient,) = torch.autograd.grad((y[:, time - 1 - back] * v).sum(), x, retain_graph=True)
            lags = gradient.abs().amax((0, 2)).flip(0)[back:]
            largest[: len(lags)] = torch.maximum(largest[: len(lags)], lags)
    return largest.detach().cpu()


def asked_steps(layer: Recurrence, field: int, longest: int) -> int:
    """How long the sequences must be that would show a field larger than the stated one.

    Twice the field, the longest sequence at hand, and what the convolutions in the layer could reach if each
    read the one before it, whichever is longest; of these beyond :data:`LONG` the field alone counts.

    Args:
        layer: A recurrence.
        field: The receptive field that it states.
        longest: Steps of the longest held-out sequence.
    """
    reach = sum(part.reach for part in layer.modules() if isinstance(part, CausalConv1d))
    return max(field, min(max(2 * field, longest, 1 + reach), LONG)) + 2 * OUTPUTS


def support(subject: Subject) -> Finding:
    """The largest lag at which an output of each layer depends on an input, plus 1, against what it states.

    Measured by derivatives on random sequences longer than the stated field, see :func:`asked_steps`: an
    input further back than stated that is read is seen if it is in them. Shut rectifiers and weights of 0
    make the field smaller.

    Args:
        subject: A model with recurrences that state a receptive field.
    """
    layers = dict(outermost(in_double(subject.model)))
    longest = max((x.shape[1] for batch in subject.test for x in batch.inputs if x.ndim > 1), default=0)
    names, values, promised, curves, failure = [], [], [], {}, ""
    for name, _, field in bounded(subject):
        lags = torch.zeros(0)
        if field > LONGEST:
            failure = f"{name} states {field:,} steps: more than {LONGEST:,} are not measured"
        else:
            lags = gradient_by_lag(layers[name], asked_steps(layers[name], field, longest))
            curves[f"{name}: derivative by lag"] = lags
        if not bool(lags.isfinite().all()):
            failure = f"the derivatives of {name} are not finite"
        names.append(name)
        values.append(int(lags.nonzero().max()) + 1 if bool(lags.any()) else 0)
        promised.append(field)
    return Finding(
        statement="An output depends on no input further back than the receptive field its layer states.",
        value=torch.tensor(values),
        unit="steps",
        range=(0.0, math.inf),
        high=torch.tensor(promised),
        labels=tuple(names),
        premises=tuple(stated_causal(name, layer) for name, layer, _ in bounded(subject)),
        failure=failure,
        curves=curves,
    )


def receptive_field_demo() -> Subject:
    """A TCN of two blocks, 13 steps of field."""
    return example(lambda: classifier(2, 2, hidden=8, layers=2), (4, 20, 2))


SOUNDS, STEPS = 2, 1536
"""Held-out sounds of which a WaveNet is asked, and their first steps."""


def is_wavenet(subject: Subject) -> bool:
    """Whether the model is the catalog's WaveNet."""
    return isinstance(core_of(subject.model), WaveNet) and len(subject.test) > 0


@torch.no_grad()
def cached(subject: Subject) -> Finding:
    """The largest difference between logits computed step by step from rings, and by the whole network.

    Args:
        subject: The catalog's WaveNet; it reads held-out examples.
    """
    core = in_double(core_of(subject.model))
    if not isinstance(core, WaveNet):
        raise ValueError(f"this is asked of a WaveNet: got {type(core).__name__}")
    drawn = drawn_rows(subject.test, SOUNDS)
    gap = largest = torch.zeros((), dtype=torch.float64)
    longest = 0
    with eval_mode(core):
        for batch in drawn.batches:
            tokens = batch.inputs[0][:SOUNDS, :STEPS]
            whole = core(tokens)
            steps = CachedSteps(core.trunk, core.initial(tokens))
            for t, token in enumerate(tokens.unbind(1)):
                logits = core.head(steps(core.embedding(token)))
                gap = torch.maximum(gap, (logits - whole[:, t]).abs().amax().cpu())
                largest = torch.maximum(largest, whole[:, t].abs().amax().cpu())
            longest = max(longest, tokens.shape[1])
    return Finding(
        statement="Logits computed step by step from the inputs that each layer keeps are those of the whole "
        f"network: the largest difference in {longest:,} steps of {drawn.words()}.",
        value=gap,
        unit="nats",
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING * max(1.0, float(largest)),
    )


def wavenet_demo() -> Subject:
    """A small WaveNet, whose rings wrap several times in 40 tokens."""
    return _next_of_tokens(lambda: WaveNet(5, width=4, skip=4, layers=3), (2, 41))


def _next_of_tokens(build: Callable[[], nn.Module], shape: tuple[int, int]) -> Subject:
    """A model drawn with seed 0 that predicts the next of 5 tokens, of sequences drawn with seed 0."""
    tokens = torch.randint(5, shape, generator=Generator().manual_seed(0))
    batch = Batch((tokens[:, :-1],), tokens[:, 1:])
    return Subject(model=seeded(build), test=[batch], task=TOKENS, objective=risk(TOKENS))
