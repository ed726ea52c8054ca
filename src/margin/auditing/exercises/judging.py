"""The judge of an exercise: a student's function is called on cases, where it must keep a theorem's promise.

A judge is a function of an :class:`Answer` that yields a :class:`Trial` for each thing measured and a
:class:`~margin.core.findings.Premise` for each hypothesis of the theorem on its cases. What is right is
computed in another way than the formula that is asked for: by autograd, by enumeration, by conditioning a
joint law. An answer that is wrong is compared with the forms that are often written, to tell which it is.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from margin.auditing.book.chapters import Exercise, exercises, run
from margin.core.catalog import claims, resolve
from margin.core.findings import Finding, Premise, Verdict
from margin.core.user_modules import reported
from margin.figures.digits import exact

TOLERANCE = 1e-9
"""How far rounding may move a number, relative to the largest of what is right and 1."""

FEW = 16
"""Numbers at most of a tensor that is shown whole."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing that was measured of an answer.

    Args:
        label: Of what, on which case.
        value: What was measured.
        low: The least that the theorem allows.
        high: The most.
        told: The input on which it fails, and how, in words; read only where it does.
    """

    label: str
    value: float
    low: float = 0.0
    high: float = 0.0
    told: str = ""


Judge = Callable[["Answer"], Iterator[Trial | Premise]]


@dataclass
class Answer:
    """A student's function, each call of which is checked and remembered.

    Args:
        name: How messages call it.
        function: The function.
        names: Its parameters, as the stub calls them.
    """

    name: str
    function: Callable[..., Any]
    names: tuple[str, ...]
    calls: list[tuple[tuple[Any, ...], tuple[Tensor, ...]]] = field(default_factory=list)

    def one(self, shape: tuple[int, ...], *given: Any) -> Tensor:
        """What the function returns, a tensor of this shape; of shape () a number will do.

        Raises:
            ValueError: It raises, changes what it was given, or returns something else.
        """
        return self.several((shape,), *given)[0]

    def several(self, shapes: tuple[tuple[int, ...], ...], *given: Any) -> tuple[Tensor, ...]:
        """What the function returns, as many tensors as there are shapes; see :meth:`one`."""
        copies = [x.clone() if isinstance(x, Tensor) else x for x in given]
        with reported(self.name):
            returned = self.function(*copies)
        for name, before, after in zip(self.names, given, copies, strict=True):
            if isinstance(before, Tensor) and not torch.equal(before, after):
                raise ValueError(f"{self.name} must leave its arguments as they are: it changed {name}")
        parts = returned if len(shapes) > 1 else (returned,)
        told = ", ".join(map(str, shapes))
        if not isinstance(parts, tuple | list) or len(parts) != len(shapes):
            got = f"{len(parts)} of them" if isinstance(parts, tuple | list) else type(parts).__name__
            raise ValueError(f"{self.name} must return {len(shapes)} tensors, of shapes {told}: got {got}")
        dtype = next(
            (x.dtype for x in given if isinstance(x, Tensor) and x.is_floating_point()), torch.float64
        )
        found = tuple(
            self._checked(part, shape, dtype, given) for part, shape in zip(parts, shapes, strict=True)
        )
        self.calls.append((given, found))
        return found

    def _checked(
        self, part: Any, shape: tuple[int, ...], dtype: torch.dtype, given: tuple[Any, ...]
    ) -> Tensor:
        """A part of what was returned, as a tensor without gradient."""
        if shape == () and isinstance(part, float | int) and not isinstance(part, bool):
            return torch.tensor(part, dtype=dtype)
        inputs = ", ".join(f"{name} {_sized(x)}" for name, x in zip(self.names, given, strict=True))
        if not isinstance(part, Tensor):
            raise ValueError(f"{self.name} must return a tensor of shape {shape}: got {type(part).__name__}")
        if part.shape != shape:
            raise ValueError(
                f"{self.name} must return a tensor of shape {shape} for {inputs}: got {tuple(part.shape)}"
            )
        if part.dtype != dtype:
            raise ValueError(f"{self.name} must return the dtype that it is given, {dtype}: got {part.dtype}")
        return part.detach().clone()


def _sized(value: Any) -> str:
    return f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else str(value)


def equal(label: str, got: Tensor, right: Tensor, given: str = "") -> Trial:
    """The largest error of what was returned, which must be 0.

    Args:
        label: Of what, on which case.
        got: What was returned.
        right: What is right, of the same shape.
        given: The input in words; "" where it is too large to be read.
    """
    error = (got - right).abs() / right.abs().max().clamp(min=1.0)
    worst = int(error.nan_to_num(nan=math.inf).argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(worst), got.shape)]
    at = f" at {place}" if place else ""
    pair = f"got {_number(got.flatten()[worst])}{at}, right is {_number(right.flatten()[worst])}"
    return Trial(label, float(error.flatten()[worst]), told=f"{pair}{f', for {given}' if given else ''}")


def _number(value: Tensor) -> str:
    return exact(float(value))


def shown(names: str, *values: Any) -> str:
    """Inputs in words, by their names, which commas divide; of a large tensor its shape."""
    return ", ".join(f"{name} = {_shown(x)}" for name, x in zip(names.split(", "), values, strict=True))


def _shown(value: Any) -> str:
    if not isinstance(value, Tensor):
        return exact(value) if isinstance(value, float) else str(value)
    if value.numel() > FEW:
        return f"a tensor {tuple(value.shape)}"
    if value.ndim == 0:
        return _number(value)
    return f"[{', '.join(_shown(row) for row in value)}]"


def exercise(name: str, function: Callable[..., Any]) -> Finding:
    """Judge an answer to an exercise: the finding *holds* where it keeps the theorem's promise on every case.

    Args:
        name: One that ``margin exercise`` lists.
        function: The answer, a function as the exercise's stub declares it.

    Raises:
        ValueError: There is no such exercise; the function raises, changes what it is given, or returns
            another shape or dtype than asked for.
    """
    table = exercises()
    if name not in table:
        raise ValueError(f"an exercise must be one of {', '.join(table)}: got {name!r}")
    task, _ = table[name]
    answer = Answer(name, function, _parameters(task))
    _check_parameters(answer)
    judge: Judge = resolve(task.judge)
    found = [*judge(answer)]
    trials = [one for one in found if isinstance(one, Trial)]
    finding = Finding(
        statement=f"{task.title}, on {len(trials)} cases.",
        value=torch.tensor([trial.value for trial in trials], dtype=torch.float64),
        range=(-math.inf, math.inf),
        low=torch.tensor([trial.low for trial in trials], dtype=torch.float64),
        high=torch.tensor([trial.high for trial in trials], dtype=torch.float64),
        tolerance=TOLERANCE,
        labels=tuple(trial.label for trial in trials),
        premises=tuple(one for one in found if isinstance(one, Premise)),
        reference=claims()[task.claim].reference,
    )
    return _explained(finding, task, answer, trials)


def _parameters(task: Exercise) -> tuple[str, ...]:
    return tuple(inspect.signature(run(task.stub)[task.name]).parameters)


def _check_parameters(answer: Answer) -> None:
    """Refuse a function that cannot be called as the stub is.

    Raises:
        ValueError: It takes another number of arguments.
    """
    try:
        signature = inspect.signature(answer.function)
    except ValueError:  # a function of C tells none; its call will
        return
    try:
        signature.bind(*answer.names)
    except TypeError:
        asked = f"{len(answer.names)} arguments, ({', '.join(answer.names)})"
        raise ValueError(f"{answer.name} must take {asked}: got {signature}") from None


def _explained(finding: Finding, task: Exercise, answer: Answer, trials: list[Trial]) -> Finding:
    """The finding, and in words where it fails first and which form that is often written it is."""
    if finding.verdict is Verdict.HOLDS:
        return finding
    verdicts = zip(trials, finding.verdicts, strict=True)
    first = next(trial for trial, verdict in verdicts if verdict is not Verdict.HOLDS)
    remarks = [f"{first.label}: {first.told}"]
    remarks += [
        f"Often written, and wrong: {title}." for title in task.wrong if _is_form(task, title, answer)
    ]
    return replace(finding, remarks=tuple(remarks))


def _is_form(task: Exercise, title: str, answer: Answer) -> bool:
    """Whether a form that is often written gives what the answer gave, in every call."""
    form = Answer(task.name, run(task.wrong[title])[task.name], answer.names)
    for given, got in answer.calls:
        try:
            other = form.several(tuple(tuple(part.shape) for part in got), *given)
        except ValueError:
            return False
        pairs = zip(got, other, strict=True)
        if not all(torch.allclose(a, b, rtol=1e-7, atol=1e-9, equal_nan=True) for a, b in pairs):
            return False
    return True
