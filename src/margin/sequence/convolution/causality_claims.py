"""Causality (van den Oord et al. 2016, Equation 1): what is said of a step depends on no later one."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES, TOKENS
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, expand_weight, in_double
from margin.engine.loop import risk
from margin.sequence.convolution.tcn import classifier, language
from margin.sequence.recurrent.heard import NOT_WHOLE, Heard, from_the_front, heard, outermost, some

CUTS = 8
"""Steps at which a sequence is cut in two."""

ROUNDING = 1e-10
"""In parts of the largest entry, in float64: a Fourier transform spreads its rounding over all steps."""

NOISE = 64 * torch.finfo(torch.float64).eps
"""The rounding of one operation, in parts of the largest number that it yields."""

ZERO = torch.zeros((), dtype=torch.float64)


def cuts(time: int) -> list[int]:
    """At most :data:`CUTS` steps that have a later one, evenly spread from the first such to the last."""
    return torch.linspace(0, time - 2, min(CUTS, time - 1)).round().long().tolist() if time > 1 else []


def steps(one: Heard) -> int:
    """The steps of the longest sequence that a recurrence was given; what stands behind them is padding."""
    if one.lengths is None:
        return one.x.shape[1]
    return int(one.lengths.max()) if len(one.lengths) else 0


def derivatives(one: Heard) -> Float[Tensor, "cuts time"]:
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


def leak(one: Heard) -> Tensor:
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
def change(one: Heard) -> Tensor:
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
    layers = heard(subject)
    values = [ask(one) for one in layers for ask in (leak, change)]
    failure = "" if layers else NOT_WHOLE
    if any(steps(one) < 2 for one in layers):
        failure = "the held-out sequences have fewer than two steps"
    return Finding(
        statement="No output of a recurrent layer depends on a later input: the largest derivative of a step "
        "by one, in parts of that by its own input, and the largest change of the outputs up to a step where "
        "all later inputs are others, in parts of the outputs.",
        value=torch.stack(values) if values else torch.full((1,), math.nan, dtype=torch.float64),
        unit="1",
        range=(0.0, math.inf),
        low=ZERO,
        high=ZERO,
        tolerance=ROUNDING,
        labels=tuple(f"{one.name}, {by}" for one in layers for by in ("derivative", "change")),
        premises=tuple(from_the_front(name, layer) for name, layer in outermost(subject.model)),
        reference="van den Oord et al. 2016, Section 2.1",
        failure=failure,
    )


def said_next(batch: Batch) -> int | None:
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
    return subject.task.name == TOKENS.name and bool(subject.test) and said_next(subject.test[0]) is not None


@torch.no_grad()
def replacement(subject: Subject) -> Finding:
    """The largest change of the logits up to a step where every later token is replaced by another at random.

    Any model of tokens can be asked, whatever it is made of.

    Args:
        subject: A model whose targets are the next tokens of an input.
    """
    batch = subject.test[0]
    place = said_next(batch)
    if place is None:
        raise ValueError("this is asked of a model that predicts the next token of an input")
    model, inputs = in_double(subject.model), list(some(batch))
    tokens = inputs[place]
    generator = Generator().manual_seed(0)
    with eval_mode(model):
        before = model(*inputs)
        vocab = before.shape[-1]
        others = torch.randint(1, max(vocab, 2), tokens.shape, generator=generator).to(tokens)
        changes = []
        for t in cuts(tokens.shape[1]):
            inputs[place] = tokens.clone()
            inputs[place][:, t + 1 :] = (tokens + others)[:, t + 1 :] % vocab
            changes.append((model(*inputs) - before)[:, : t + 1].abs().amax())
    return Finding(
        statement="The logits up to a step do not change where every later token is replaced by another.",
        value=torch.stack(changes).amax().cpu(),
        unit="nats",
        range=(0.0, math.inf),
        low=ZERO,
        high=ZERO,
        tolerance=ROUNDING * max(1.0, float(before.abs().amax())),
        premises=(),
        reference="van den Oord et al. 2016, Equation 1",
        failure="" if vocab > 1 else "of a single token none can be replaced by another",
    )


def derivative_demo() -> Subject:
    """A small TCN that classifies sequences of 20 steps."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = classifier(2, 2, hidden=4, layers=2)
    x = torch.randn(4, 20, 2, generator=Generator().manual_seed(0))
    batch = Batch((x,), torch.arange(4) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


def replacement_demo() -> Subject:
    """A small TCN that predicts the next of 5 tokens."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = language(5, hidden=4, layers=2)
    tokens = torch.randint(5, (4, 21), generator=Generator().manual_seed(0))
    batch = Batch((tokens[:, :-1],), tokens[:, 1:])
    return Subject(model=model, test=[batch], task=TOKENS, objective=risk(TOKENS))
