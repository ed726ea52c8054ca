"""The functions that a model called on its way from input to output, in order, with the box of each result.

It is recorded while interval bounds pass through the model, and can be run again: on other boxes, by the
interval rules, or on tensors, by the functions themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from margin.engine.evaluation import leaves
from margin.robust.certificates.interval_arithmetic import Box


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is the result of a call of the tape, by its position; 0 is the input."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a torch function.

    Args:
        func: The function.
        rule: Its interval rule.
        args: Its arguments: constants in float64, and references to earlier results.
        kwargs: The same, by name.
        part: Which of several results this is; None where it is the only one.
    """

    func: Callable[..., Any]
    rule: Callable[..., Any]
    args: Any
    kwargs: Any
    part: int | None = None

    @property
    def inputs(self) -> tuple[int, ...]:
        """The positions of its arguments, each once."""
        refs = [value.index for value in leaves((self.args, self.kwargs)) if isinstance(value, Ref)]
        return tuple(dict.fromkeys(refs))

    def box(self, boxes: Sequence[Box]) -> Box:
        """The result's box, by the rule, from those of :attr:`inputs`."""
        return self._ask(self.rule, boxes)

    def value(self, *tensors: Tensor) -> Tensor:
        """The result itself, by the function, from those of :attr:`inputs`."""
        return self._ask(self.func, tensors)

    def cast(self, kind: torch.dtype) -> "Call":
        """The same call with its real constants in another type."""
        return replace(self, args=_cast(self.args, kind), kwargs=_cast(self.kwargs, kind))

    def sized(self) -> "Call":
        """The same call with the absolute values of its real constants: no entries of a column cancel."""
        return replace(self, args=_sizes(self.args), kwargs=_sizes(self.kwargs))

    def _ask(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        known = dict(zip(self.inputs, values, strict=True))
        result = function(*_filled(self.args, known), **_filled(self.kwargs, known))
        return result if self.part is None else result[self.part]


def _filled(value: Any, known: dict[int, Any]) -> Any:
    if isinstance(value, Ref):
        return known[value.index]
    if isinstance(value, dict):
        return {key: _filled(part, known) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_filled(part, known) for part in value)
    return value


def _cast(value: Any, kind: torch.dtype) -> Any:
    if isinstance(value, dict):
        return {key: _cast(part, kind) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_cast(part, kind) for part in value)
    return value.to(kind) if isinstance(value, Tensor) and value.is_floating_point() else value


def _sizes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sizes(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_sizes(part) for part in value)
    return value.abs() if isinstance(value, Tensor) and value.is_floating_point() else value


@dataclass(slots=True, eq=False)
class Tape:
    """The calls of one run. ``boxes`` holds each result's box; the first is the input's and has no call."""

    boxes: list[Box] = field(default_factory=list)
    calls: list[Call | None] = field(default_factory=list)

    def add(self, call: Call | None, box: Box) -> int:
        """Append a call; returns its position."""
        self.calls.append(call)
        self.boxes.append(box)
        return len(self.boxes) - 1

    def values(self, x: Tensor, last: int) -> list[Tensor]:
        """The results up to the one at ``last`` on an input of the recorded shape, in its type."""
        found = [x]
        for call in filter(None, self.calls[1 : last + 1]):  # the first is the input, which no call gave
            own = call if x.dtype == torch.float64 else call.cast(x.dtype)
            found.append(own.value(*(found[i] for i in call.inputs)).to(x.dtype))  # conversions undone
        return found

    def separable(self) -> bool:
        """Whether the results of an example lie in its own rows of each result, and depend on it alone.

        Tried: the first example is changed, and no row of another one may change; in float32 by no bit, as
        equal rows at equal places go through equal sums.
        """
        x = self.boxes[0]
        count = len(x.low)
        if count == 1:
            return True
        center = (x.low + x.high) / 2
        rtol, atol = 1e-9, 1e-12
        if x.in_single:
            center, rtol, atol = center.float(), 0.0, 0.0
        other = torch.cat((center[1:2] + 1, center[1:]))
        pairs = zip(*(self.values(at, len(self.calls) - 1) for at in (center, other)), strict=True)
        for a, b in pairs:
            if a.ndim == 0 or len(a) % count:
                return False
            rest = slice(len(a) // count, None)
            if torch.equal(a[rest], b[rest]):
                continue
            if not torch.allclose(a[rest], b[rest], rtol=rtol, atol=atol, equal_nan=True):
                return False
        return True
