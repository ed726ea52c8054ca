"""The learning-rate range test: the loss while the rate rises from step to step (Smith, 2017).

At small rates the loss hardly moves, then it falls, then it rises: the rates at which it falls fastest, is
lowest, and leaves for good say where a training may begin.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.types import Batch, Objective
from margin.engine.evaluation import copied, pieces_of, weighted_mean
from margin.math.seeds import mix
from margin.nn.preprocessed import device_of
from margin.theory.curvature.hessian import real_terms
from margin.theory.curvature.trained_weights import Quadratic, differentiated, of_weights

WATCHED = 256
"""Examples on which the loss is watched."""


class Sweep(NamedTuple):
    """The loss after a step at each rate; ``before`` is that of the weights at first."""

    rates: Float[Tensor, " steps"]
    losses: Float[Tensor, " steps"]
    before: float
    diverged: bool

    @property
    def steepest(self) -> float:
        """The rate, up to the lowest loss, at which the loss falls fastest; NaN where it never falls.

        The fall at a step is taken over the step, the one before it and the one after it.
        """
        if math.isnan(self.lowest):
            return math.nan
        path = torch.cat((torch.tensor([self.before], dtype=torch.float64), self.losses))
        falls = (path[:-1] - path[1:])[: int(self.losses.nan_to_num(math.inf).argmin()) + 1]
        near = nn.functional.avg_pool1d(falls[None], 3, 1, 1, count_include_pad=False)[0]
        return float(self.rates[int(near.argmax())])

    @property
    def lowest(self) -> float:
        """The rate after which the loss is lowest; NaN where it is never below what it was at first."""
        at = int(self.losses.nan_to_num(math.inf).argmin())
        return float(self.rates[at]) if self.losses[at] < self.before else math.nan


# The model, its loss and its examples, and the options of the sweep.
def sweep(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    low: float = 1e-5,
    high: float = 10.0,
    steps: int = 100,
    batch_size: int | None = 32,
    seed: int = 0,
) -> Sweep:
    """Gradient descent on minibatches at rates that rise geometrically from ``low`` to ``high``.

    A copy of the model is trained, in training mode. The loss is watched on the first examples after every
    step, in training mode too, with the same draws each time, so that it is one function of the weights. The
    sweep ends where that loss has risen by its magnitude at first, or is not finite.

    Args:
        model: Its parameters that require a gradient are moved.
        batches: The examples; where they run out they come again in another order.
        objective: The loss of each term.
        low: First rate, above 0.
        high: Last rate, above ``low``.
        steps: How many rates, at least 3.
        batch_size: Examples of a step; None leaves batches whole.
        seed: Of the order, and of what the objective draws.

    Raises:
        ValueError: An option is out of range, no parameter requires a gradient, or there is no batch.

    Reference: Smith 2017, Section 3.3 (there the rate rises linearly).
    """
    if not 0 < low < high < math.inf or steps < 3 or (batch_size is not None and batch_size < 1):
        raise ValueError(
            "low must be above 0 and below high, steps at least 3, batch_size at least 1: "
            f"got low={low}, high={high}, steps={steps}, batch_size={batch_size}"
        )
    moved = copied(model)
    parameters = [p for p in moved.parameters() if p.requires_grad]
    if not parameters or not len(batches):
        lacking = "examples" if parameters else "parameters that require a gradient"
        raise ValueError(f"a range test needs {lacking}: there are none")
    watched = next(pieces_of(batches[:1], WATCHED if batch_size is not None else None))
    rates = torch.logspace(math.log10(low), math.log10(high), steps, dtype=torch.float64)
    losses: list[float] = []
    device = device_of(moved)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
        moved.train()
        before = _watch(moved, watched, objective, seed)
        for step, (rate, batch) in enumerate(
            zip(rates.tolist(), _drawn(batches, batch_size, seed), strict=False)
        ):
            _seed(mix(seed, step, 31), device)
            values = real_terms(objective(moved, batch, Generator().manual_seed(mix(seed, step, 37))))
            loss = weighted_mean(values, batch.weight)
            grads = torch.autograd.grad(loss, parameters, allow_unused=True)
            with torch.no_grad():
                for p, grad in zip(parameters, grads, strict=True):
                    if grad is not None:
                        p.sub_(rate * grad)
            losses.append(_watch(moved, watched, objective, seed))
            if not losses[-1] <= before + abs(before):
                break
    diverged = not losses[-1] <= before + abs(before)
    return Sweep(rates[: len(losses)], torch.tensor(losses, dtype=torch.float64), before, diverged)


def _seed(key: int, device: torch.device) -> None:
    # nn.Dropout draws from the global generators
    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        torch.cuda.manual_seed(key)


@torch.no_grad()
def _watch(model: nn.Module, batch: Batch, objective: Objective, seed: int) -> float:
    _seed(mix(seed, 41), device_of(model))
    values = real_terms(objective(model, batch, Generator().manual_seed(mix(seed, 43))))
    return float(weighted_mean(values.double(), batch.weight))


def _drawn(batches: Sequence[Batch], size: int | None, seed: int) -> Iterator[Batch]:
    """Minibatches without end: each pass takes every batch, its examples in a new order."""
    generator = Generator().manual_seed(seed)
    while True:
        for i in torch.randperm(len(batches), generator=generator).tolist():
            batch = batches[i]
            if size is None:
                yield batch
                continue
            for index in torch.randperm(len(batch.inputs[0]), generator=generator).split(size):
                yield Batch(
                    tuple(x[index] for x in batch.inputs),
                    None if batch.targets is None else batch.targets[index],
                    None if batch.weight is None else batch.weight[index],
                )


def range_test(
    subject: Subject,
    *,
    low: float = 1e-5,
    high: float = 10.0,
    steps: int = 100,
    batch_size: int = 32,
    examples: int | None = 8192,
) -> Finding:
    """The rates at which plain gradient descent falls fastest, is lowest, and diverges, while the rate rises.

    It begins with the weights that the training began with, where they are known, else with the model's own:
    what it says of those is about training on.

    Args:
        subject: A model with parameters that require a gradient, its training examples and an objective.
        low: First rate, above 0.
        high: Last rate, above ``low``.
        steps: How many rates, at least 3.
        batch_size: Examples of a step.
        examples: About how many examples steps are drawn from; None: all.
    """
    sample = differentiated(subject, examples)
    model = subject.model if subject.initial is None else subject.initial
    begin = "the trained weights" if subject.initial is None else "the initial weights"
    size = batch_size if subject.independent else None
    found = sweep(model, sample.batches, subject.objective, low=low, high=high, steps=steps, batch_size=size)
    value = torch.tensor([found.steepest, found.lowest, float(found.rates[-1])], dtype=torch.float64)
    factor = (high / low) ** (1 / (steps - 1))
    ends = (value / factor, value * factor)
    ends[0][2] = found.rates[-2] if found.diverged and len(found.rates) > 1 else value[2]
    ends[1][2] = value[2] if found.diverged else math.inf
    failure = "" if math.isfinite(found.before) else "the loss is not finite at first"
    if not failure and len(found.losses) == 1 and not math.isfinite(float(found.losses[0])):
        failure = f"the loss is not finite after one step at the rate {low:g}"
    falls = failure != "" or not math.isnan(found.lowest)
    tried = f"rates from {low:g} to {float(found.rates[-1]):g} were tried"
    end = "diverges at" if found.diverged else "does not diverge up to"
    return Finding(
        statement=f"Gradient descent from {begin} with {batch_size if size else 'all'} examples a step, at "
        f"rates that rise from {low:g} by a factor of {factor:.3g} a step: where the loss falls fastest, "
        f"where it is lowest, and where it has doubled; it {end} {float(found.rates[-1]):.3g}. It was "
        f"{found.before:.4g} at first.",
        value=value,
        unit="learning rate",
        range=(0.0, math.inf),
        premises=() if falls else (Premise("the loss falls at some rate", "refuted", tried),),
        kind="estimate",
        interval=ends,
        failure=failure,
        labels=("steepest fall", "lowest loss", "divergence"),
        curves={"learning rate": found.rates, "loss after the step": found.losses, "rates found": value},
    )


def demo() -> Subject:
    """The loss w^2 of one weight: gradient descent contracts at rates below 1 and diverges above it."""
    return of_weights(Quadratic(torch.tensor([[2.0]], dtype=torch.float64)), examples=4)
