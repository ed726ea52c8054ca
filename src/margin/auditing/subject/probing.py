"""A stranger's module is asked a few examples a few times: what it does besides answering is said."""

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from margin.auditing.subject.operations import HELD, LIVE, Counter
from margin.auditing.subject.output_part import Read, part_at, path_of
from margin.auditing.subject.outputs import name_of
from margin.auditing.subject.user_modules import Asked, described
from margin.core.types import Batch
from margin.engine.evaluation import Kept, eval_mode, place_of, rows_of, running, same_bits
from margin.theory.behavior.claims import EIGHT_BITS, rounds_by_batch

NOISE = 10.0
"""By how many of the distances between two draws outputs may move where nothing but draws moves them."""

FEW = 32
"""Examples of the first batch that a model is asked some five times: a batch of a large one takes long."""


@torch.no_grad()
def few_of(model: nn.Module, batch: Batch, seconds: float) -> int:
    """How many of the first examples a model is asked: fewer, two at least, where one is large.

    What one takes is counted, not timed, so that as many are asked on every machine.

    Args:
        model: Any module.
        batch: Its examples; of one that takes no single one as many are asked as of any.
        seconds: What all passes may count for.
    """
    if not batch.divisible or len(batch.inputs[0]) <= 2:
        return FEW
    first = rows_of(batch, torch.arange(1))
    counter = Counter(1, (*model.parameters(), *model.buffers()))
    try:
        with eval_mode(model), counter:
            model(*(x.clone() for x in first.inputs))
    except Exception:  # what is wrong with the model, its first examples tell
        return FEW
    fits = min(HELD / max(LIVE * counter.largest, 1), seconds / (PASSES * max(counter.seconds, 1e-9)))
    return max(2, int(min(FEW, fits)))


def _returned(model: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    try:
        return model(*inputs)
    except Exception as error:
        reason = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
        whole = [name_of(x) for x in inputs if not x.is_floating_point()]
        cure = f"; if it takes real numbers, give x.float(): got {whole[0]}" if whole else ""
        raise ValueError(
            f"the model must accept the data: given {_passed(inputs)}, {_place(model, inputs)} raised "
            f"{reason}{cure}"
        ) from error


def _place(model: nn.Module, inputs: tuple[Tensor, ...]) -> str:
    """The layer in which the model raises, in words."""
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        return "it"
    layers: list[tuple[str, str]] = []
    with suppress(Exception), running(model, layers):
        model(*(x.clone() for x in inputs))
    return place_of(layers)


def _passed(inputs: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{tuple(x.shape)} {name_of(x)}" for x in inputs)


def run(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """What the model returns, which must be one real tensor with a row per example.

    Raises:
        ValueError: The model raised, or returned something else.
    """
    return checked(_returned(model, inputs), inputs)


def checked(outputs: Any, inputs: tuple[Tensor, ...]) -> Tensor:
    """What a model returned, if it is one tensor of real numbers with a row per example.

    Raises:
        ValueError: It is something else.
    """
    plain = isinstance(outputs, Tensor) and outputs.layout == torch.strided and not outputs.is_nested
    if not plain or outputs.ndim == 0 or len(outputs) != len(inputs[0]):
        got = tuple(outputs.shape) if plain else described(outputs)
        raise ValueError(
            f"the model must return one tensor with a row per example: given {_passed(inputs)}, got {got}"
        )
    if outputs.is_complex():
        raise ValueError(
            f"the model must return real numbers: got {name_of(outputs)}; audit a module whose forward "
            "returns model(x).real, or model(x).abs()"
        )
    if not outputs.is_floating_point():
        raise ValueError(
            f"the model must return scores or values, real numbers: got {name_of(outputs)}; return what it "
            "decides by (the scores before argmax or a threshold), or audit its answers alone: "
            "margin.audit(predictions=answers, targets=y)"
        )
    return outputs


class First(NamedTuple):
    """The first answer of a model as it came, which tells what to ask it next.

    Args:
        batch: The examples that it was given: the first ones, or all of a batch of which it takes no part.
        returned: Whatever it returned.
        took: Seconds.
        written: The buffers that it wrote; they are put back.
        overwrites: Whether it wrote into its inputs, which were copies.
    """

    batch: Batch
    returned: Any
    took: float
    written: list[str]
    overwrites: bool


@torch.no_grad()
def first_answer(model: nn.Module, batch: Batch, few: int) -> First:
    """Ask a model its first examples, once, in evaluation mode.

    Args:
        model: Any module.
        batch: Examples.
        few: How many it is asked; all of a batch that cannot be cut, or of which the model takes no part.

    Raises:
        ValueError: The model raised.
    """
    if batch.divisible and few < len(batch.inputs[0]):
        with suppress(ValueError):  # what is wrong with the model, the whole batch tells
            return _first(model, rows_of(batch, torch.arange(few)))
    return _first(model, batch)


def _first(model: nn.Module, batch: Batch) -> First:
    given = tuple(x.clone() for x in batch.inputs)
    with eval_mode(model):
        kept = Kept(model)
        start, returned = time.perf_counter(), _returned(model, given)
        took, written = time.perf_counter() - start, kept.written(model)
        kept.restore()
    return First(batch, returned, took, written, not all(map(same_bits, given, batch.inputs)))


def with_one_output(
    model: nn.Module, first: First, output: str | int | None, assumed: list[str]
) -> tuple[nn.Module, First]:
    """The model and its answer, or where it returns several things those that return the one that is meant.

    Args:
        model: Any module.
        first: Its answer.
        output: Which part is meant; None: the obvious one.
        assumed: Where it is said which one is taken.

    Raises:
        ValueError: It returns no such part, or what it returns has no obvious one.
    """
    path = path_of(first.returned, len(first.batch.inputs[0]), output, assumed)
    if not path:
        return model, first
    return Read(model, path), first._replace(returned=part_at(first.returned, path))


DRAWS = "the model draws at random in evaluation mode: this is of one draw"


UNTRIED = (
    "the model answers alike whenever it is asked, with gradients too (a pass takes {:.2g} s: there was no "
    "time to try it)"
)


class Probed(NamedTuple):
    """A model as it can be asked, what it returned, and by how much that moves when it is asked again."""

    model: nn.Module
    outputs: Tensor
    noise: Tensor

    @property
    def remark(self) -> str:
        """What every finding must say of the model; ""."""
        return DRAWS if bool(self.noise > 0) else ""


PASSES = 5
"""Passes with which it is found out what a model does besides answering."""


@torch.no_grad()
def probe(model: nn.Module, first: First, assumed: list[str], seconds: float = math.inf) -> Probed:
    """Ask the first examples again; what the model does besides answering is said.

    Args:
        model: Any module.
        first: Its first answer.
        assumed: Where it is said what was found.
        seconds: What this may take; the examples are not asked again where it would take longer.

    Raises:
        ValueError: The answer is not one real tensor with a row per example.
    """
    flags = {module: module.training for module in model.modules()}
    batch, overwrites, written = first.batch, first.overwrites, first.written
    outputs = checked(first.returned, batch.inputs)
    if PASSES * first.took > seconds:
        assumed.append(UNTRIED.format(first.took))
        asked = Asked(model, overwrites) if overwrites else model
        return Probed(asked, outputs.clone(), torch.zeros(()).double())
    with eval_mode(model):
        kept = Kept(model)
        torch.default_generator.manual_seed(1)  # what draws shall not draw what it drew first
        again, later = (run(model, tuple(x.clone() for x in batch.inputs)) for _ in range(2))
        kept.restore()
        with torch.enable_grad():
            recorded = run(model, tuple(x.clone() for x in batch.inputs)).detach()
    noise = _apart(outputs, again)
    remembers = bool(noise == 0) and bool(_apart(outputs, later) > 0)
    if overwrites:
        assumed.append("the model overwrites its input: each call is given a copy")
    if remembers:
        assumed.append(
            "the model answers by what it keeps of the calls before: each call begins in the state it came in"
        )
    if overwrites or remembers or outputs.is_inference():
        model, outputs = Asked(model, overwrites, remembers), outputs.clone()
    if written:
        names = ", ".join(map(repr, written))
        assumed.append(f"forward writes buffer {names}: it is put back after each question")
    if noise > 0:
        assumed.append("the model draws at random in evaluation mode: a finding is about one draw")
    elif _apart(outputs, recorded) > _rounding(outputs):
        assumed.append(
            "the model answers otherwise while torch records gradients: accuracy and loss are of the one "
            "function, curvature and attacks of the other"
        )
    elif any(flags.values()) and _moves_in(flags, model, batch, outputs):
        assumed.append("the model came in training mode, where it answers otherwise: it is asked in eval()")
    return Probed(model, outputs, noise)


def _moves_in(flags: Mapping[nn.Module, bool], model: nn.Module, batch: Batch, outputs: Tensor) -> bool:
    """Whether the model answers otherwise, or not at all, in the mode that it came in."""
    with eval_mode(model):
        for module, flag in flags.items():
            module.training = flag
        try:
            return bool(_apart(outputs, run(model, batch.inputs)) > 0)
        except ValueError:  # batch normalization of a single example
            return True


def _rounding(outputs: Tensor) -> Tensor:
    """By how much outputs may move that are computed in another order."""
    return torch.finfo(outputs.dtype).eps ** 0.5 * _size(outputs)


def _size(outputs: Tensor) -> Tensor:
    return torch.where(outputs.isfinite(), outputs, 0).abs().max().double()


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """The largest distance of two outputs; a NaN is where a NaN is."""
    moved = torch.where((a == b) | (a.isnan() & b.isnan()), 0, a - b).nan_to_num(torch.inf)
    return moved.abs().max().double()


@torch.no_grad()
def independent_rows(probed: Probed, batch: Batch, assumed: list[str]) -> bool:
    """Whether the first examples get the same outputs with and without the rest of their batch."""
    model, outputs, noise = probed
    if not batch.divisible:
        assumed.append("the examples of a batch may read each other: its inputs are not one row an example")
        return False
    few = max(1, len(outputs) // 2)
    if few == len(outputs):
        assumed.append("the examples do not read each other (one example shows nothing)")
        return True
    with eval_mode(model):
        try:
            alone = run(model, tuple(x[:few] for x in batch.inputs))
        except ValueError:
            assumed.append("the examples of a batch read each other: the model takes the whole batch or none")
            return False
    gap = _apart(alone, outputs[:few])
    # of a model that draws, other draws alone move the outputs
    eight = _size(outputs) * EIGHT_BITS if rounds_by_batch(model) else 0.0
    if gap > max(_rounding(outputs), eight) + NOISE * noise:
        assumed.append(
            f"the examples of a batch read each other: without the rest, outputs move by {gap:.2g}"
        )
        return False
    return True
