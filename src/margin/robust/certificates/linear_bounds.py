r"""CROWN: linear functions of the input below each margin, by backward propagation (Zhang et al., 2018).

A lower bound c^T f(x) >= a^T x + b starts as c at the output and is carried back call by call: a positive
coefficient takes the lower line of a result, a negative one the upper. The least value of a^T x + b over the
ball is a^T x_0 - eps ||a||_q with the dual norm, or that over the ball's box, whichever is larger. The graph
is the tape of the functions that the model called, so every structure is followed (Xu et al., 2020).

The lines need bounds of what enters each function. They are those of interval arithmetic (CROWN-IBP, Zhang et
al., 2020), tightened by the same backward pass where a layer has few units, and by the exact image of the
ball where everything before is affine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.engine.parallel.processes import kept_memory
from margin.robust.certificates.affine_forms import Ball, Form, identity, mapped, within
from margin.robust.certificates.coupled_lines import coupled
from margin.robust.certificates.interval_arithmetic import Box
from margin.robust.certificates.intervals import bounds, margins_of
from margin.robust.certificates.relaxations import (
    CONVERTED,
    UNIT,
    VIEWS,
    Lines,
    center,
    exact_form,
    linear,
    lines,
    rounding,
    scales,
)
from margin.robust.certificates.tape import Call, Tape

ELEMENTS = 1 << 23
"""Coefficients held at once in a backward pass."""

RATE, DECAY = 0.1, 0.98
"""Of Adam, which moves slopes; its rate shrinks so with each step."""

MOST = 1 << 26
"""Coefficients of the margins of all terms of an example, such as pixels, up to which these are bounded."""


@dataclass(slots=True, eq=False)
class Relaxed:
    """A tape whose calls lie between linear functions.

    Args:
        tape: Of one run of the model.
        ball: Its inputs.
        boxes: What each call's result lies in.
        raw: What its interval rule gives, before it was tightened.
    """

    tape: Tape
    ball: Ball
    boxes: list[Box]
    raw: list[Box]
    known: dict[int, Lines] = field(default_factory=dict)

    def at(self, index: int) -> Lines:
        """The lines of a call."""
        if index not in self.known:
            asked = self.call(index), self.inputs(index), self.raw[index]
            self.known[index] = coupled(*asked) or lines(*asked)
        return self.known[index]

    def inputs(self, index: int) -> list[Box]:
        """The boxes that enter a call."""
        return [self.boxes[i] for i in self.call(index).inputs]

    def call(self, index: int) -> Call:
        """The call at a position after the input's."""
        call = self.tape.calls[index]
        if call is None:
            raise IndexError(f"the input is no call: got position {index}")
        return call

    def least(
        self, index: int, rows: Float[Tensor, "rows batch ..."], steps: int = 0
    ) -> Float[Tensor, "rows batch"]:
        """Lower bounds of linear functions of a result, each of one example's part, over the ball.

        Gradients may move the slopes of the rectifiers' lower lines, for each row its own: any in [0, 1] are
        sound, and the largest bounds that are met are kept.

        Args:
            index: Which result.
            rows: Their coefficients, in the result's shape.
            steps: Steps of Adam on the slopes.
        """
        largest = max(box.low.numel() for box in self.boxes[: index + 1])
        if steps == 0:
            return torch.cat([self._least(index, part) for part in rows.split(max(1, ELEMENTS // largest))])
        parts = rows.split(max(1, ELEMENTS // (4 * largest)))
        return torch.cat([self._ascended(index, part, steps) for part in parts])

    def _ascended(self, index: int, rows: Tensor, steps: int) -> Tensor:
        first = {}
        for i in (i for i in range(1, index) if _bends_at_0(self.call(i))):
            if (slopes := self.at(i).slopes) is not None:
                first[i] = slopes[0].expand(len(rows), *slopes[0].shape).clone().requires_grad_()
        best = self._least(index, rows)
        if not first:
            return best
        optimizer = torch.optim.Adam(first.values(), lr=RATE)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY)
        for _ in range(steps):
            with torch.enable_grad():
                found = self._least(index, rows, first)
                gradients = torch.autograd.grad(
                    found.nan_to_num().sum(), list(first.values()), allow_unused=True
                )
            best = torch.fmax(best, found.detach())
            for slope, gradient in zip(first.values(), gradients, strict=True):
                slope.grad = None if gradient is None else -gradient
            optimizer.step()
            schedule.step()
            for slope in first.values():
                slope.clamp_(0, 1)
        return torch.fmax(best, self._least(index, rows, first))

    def _least(self, index: int, rows: Tensor, below: Mapping[int, Tensor] | None = None) -> Tensor:
        """The bounds, the slopes of some lower lines given by the position of their call."""
        batch, below = len(self.ball.x), {} if below is None else below
        constant = rows.new_zeros(len(rows), batch)
        pending = {index: rows}
        for i in range(index, 0, -1):
            own = pending.pop(i, None)
            if own is None:
                continue
            made = self.at(i)
            if made.low is not None or made.high is not None:
                signs = own.clamp(min=0) if made.low is not None else None, own.clamp(max=0)
                for signed, offset in zip(signs, (made.low, made.high), strict=True):
                    if signed is not None and offset is not None:
                        flat = signed.reshape(len(own), batch, -1)
                        constant = constant + torch.einsum("sbn,bn->sb", flat, offset.reshape(batch, -1))
            if made.shift is not None and made.error is not None:
                flat, shift = own.reshape(len(own), batch, -1), made.shift.expand_as(made.error)
                constant = constant + torch.einsum("sbn,bn->sb", flat, shift.reshape(batch, -1))
                constant = constant - torch.einsum("sbn,bn->sb", flat.abs(), made.error.reshape(batch, -1))
            constant = constant - made.floor
            if made.slopes is not None:
                own = torch.where(own > 0, below.get(i, made.slopes[0]), made.slopes[1]).mul_(own)
            if made.adjoint is None:
                continue
            for position, part in zip(self.call(i).inputs, made.adjoint(own), strict=True):
                pending[position] = pending[position] + part if position in pending else part
        return constant if 0 not in pending else constant + self.ball.least(pending[0])


def relaxed(tape: Tape, ball: Ball, units: int = 0, columns: int = 0, ascent: int = 0) -> Relaxed:
    """The tape between linear functions over the ball.

    Args:
        tape: Of a run over the ball's box.
        ball: The inputs.
        units: Where a result that enters a nonlinear function has at most so many units of an example whose
            bounds matter, these are tightened by a backward pass of their own, 0 for none.
        columns: Where an input has at most so many coordinates, all boxes are first cut by affine forms.
        ascent: Gradient steps on slopes in each of these backward passes.
    """
    made = Relaxed(tape, ball, [tape.boxes[0]], [tape.boxes[0]])
    forms: list[Form | None] = [None]
    if ball.x[0].numel() <= columns:
        forms = [identity(ball, tape.boxes[0].arithmetic)]
    curved = {i for call in tape.calls[1:] if call is not None and not linear(call) for i in call.inputs}
    affine = {0}
    for index in range(1, len(tape.calls)):
        call = made.call(index)
        cut = any(own is not tape.boxes[i] for i, own in zip(call.inputs, made.inputs(index), strict=True))
        box = call.box(made.inputs(index)) if cut else tape.boxes[index]
        made.raw.append(box)
        made.boxes.append(box)
        own = [forms[i] for i in call.inputs]
        one = made.at(index) if not linear(call) and any(form is not None for form in own) else None
        forms.append(mapped(call, own, made.inputs(index), box, one, ball))
        if linear(call) and affine.issuperset(call.inputs):
            affine.add(index)
        if index not in curved:
            continue
        if (form := forms[index]) is not None:
            made.boxes[index] = within(form, ball, box)
        elif index in affine:
            made.boxes[index] = _image(made, index, affine)
        if units and index not in affine:
            made.boxes[index] = _tightened(made, index, units, ascent)
    return made


def _image(made: Relaxed, index: int, affine: set[int]) -> Box:
    """The box of the exact image of the ball under an affine map, found column by column."""
    ball, box, shape = made.ball, made.boxes[index], made.ball.x.shape
    path = [i for i in sorted(affine - {0}) if i <= index]
    mixed = [i for i in path if made.call(i).func not in VIEWS | CONVERTED and not scales(made.call(i))]
    if len(mixed) < 2 and ball.norm == "linf":
        return box  # interval arithmetic is exact for one layer among scalings of each coordinate
    forms = {i: exact_form(made.call(i), made.inputs(i)) for i in path}

    def value(x: Tensor) -> Tensor:
        found = {0: x}
        for i in path:
            found[i] = forms[i](*(found[k] for k in made.call(i).inputs))
        return found[index]

    zero, count = value(torch.zeros_like(ball.x)), shape[1:].numel()
    radius, unit = ((ball.high - ball.low) / 2).flatten(1), ball.unit.expand(shape[1:]).flatten()
    reach, dual = torch.zeros_like(zero), torch.zeros_like(zero[:1])
    for first in range(0, count, shape[0]):  # so many at once as there are examples: no shape is another
        basis = torch.eye(count, dtype=zero.dtype, device=zero.device)[first : first + shape[0]]
        rows = len(basis)
        basis = torch.cat((basis, basis.new_zeros(shape[0] - rows, count)))
        column = (value(basis.reshape(shape)) - zero)[:rows].abs()
        reach += torch.tensordot(radius[:, first : first + rows], column, 1)
        scaled = column * unit[first : first + rows].reshape(-1, *(1,) * (column.ndim - 1))
        dual = torch.maximum(dual, scaled.amax(0)) if ball.norm == "l1" else dual + scaled.square().sum(0)
    low, high, error = box.low, box.high, _errors(made, path)[index]
    reaches = [(center(made.boxes[0]), reach)]
    if ball.norm != "linf":
        reaches.append((ball.x, ball.eps * (dual if ball.norm == "l1" else dual.sqrt())))
    for at, far in reaches:
        middle = value(at)
        own = error + (count + 8) * UNIT * (middle.abs() + zero.abs() + far)
        low, high = torch.maximum(low, middle - far - own), torch.minimum(high, middle + far + own)
    return box.cut(low, high)


def _errors(made: Relaxed, path: list[int]) -> dict[int, Tensor]:
    """How far the model's own results along affine calls may be off from those in exact arithmetic."""
    errors = {0: torch.zeros_like(made.ball.x)}
    for i in path:
        call, boxes = made.call(i), made.inputs(i)
        spread = call.box([Box(-errors[k], errors[k]) for k in call.inputs])
        errors[i] = (spread.high - spread.low) / 2 + rounding(call, boxes, made.raw[i])
    return errors


def _tightened(made: Relaxed, index: int, units: int, ascent: int) -> Box:
    """The box of a result, its units bounded by backward passes where they are few."""
    box, batch = made.boxes[index], len(made.ball.x)
    low, high = box.low.reshape(batch, -1), box.high.reshape(batch, -1)
    open_ = high > low
    if all(call is None or index not in call.inputs or _bends_at_0(call) for call in made.tape.calls):
        open_ = open_ & (low < 0) & (high > 0)
    count = int(open_.sum(1).max())
    if count == 0 or count > units:
        return box
    at = ((high - low) * open_).topk(count, 1).indices.T
    rows = torch.zeros(count, batch, low.shape[1], dtype=low.dtype, device=low.device)
    rows.scatter_(2, at[..., None], 1.0)
    rows = rows.reshape(count, *box.low.shape)
    below, above = made.least(index, rows, ascent).T, -made.least(index, -rows, ascent).T
    at = at.T
    low = low.scatter(1, at, torch.fmax(low.gather(1, at), below)).reshape(box.low.shape)
    high = high.scatter(1, at, torch.fmin(high.gather(1, at), above)).reshape(box.low.shape)
    return box.cut(low, high)


def place(boxes: list[Box], box: Box) -> int:
    """The position of a box: of itself, not of an equal one."""
    return next(i for i, own in enumerate(boxes) if own is box)


def _bends_at_0(call: Call) -> bool:
    return getattr(call.func, "__name__", "") == "relu"


# Eight parameters: what is bounded, and by how much work.
@torch.no_grad()
@kept_memory()
def crown_margins(
    model: nn.Module,
    ball: Ball,
    labels: Int[Tensor, " examples *terms"],
    classes: Callable[[Any], Any] = lambda outputs: outputs,
    *,
    units: int = 0,
    columns: int = 0,
    rivals: Tensor | None = None,
    ascent: int = 0,
) -> Float[Tensor, "examples *terms classes"]:
    """Lower bounds on f_y - f_j over a ball, for each class j; 0 at j = y. Never below those of intervals.

    Args:
        model: Any module of one input; left as it is.
        ball: The inputs.
        labels: The class y of each example, or of each of its terms, as pixels; of more of these than
            :data:`MOST` allows the bounds are those of intervals.
        classes: ``outputs -> one score per class``.
        units: See :func:`relaxed`.
        columns: See :func:`relaxed`.
        rivals: For each example the classes that are bounded so, of the others by intervals; None is all.
        ascent: Gradient steps on the slopes of the rectifiers' lower lines; see :func:`alpha_crown_margins`.

    Raises:
        NoIntervalRule: A layer or function has no rule, or there is not one score per class.
        ValueError: An end of the ball is no number.

    Reference: Zhang, Weng, Chen, Hsieh & Daniel (2018), "Efficient neural network robustness certification
    with general activation functions", Theorem 3.2; Xu et al. (2020).
    """
    tape, plain = Tape(), ball.norm == "linf" and not units and ball.x[0].numel() > columns
    products = torch.float32 if plain else torch.float64
    scores = bounds(model, ball.low, ball.high, classes, tape, products)
    if not tape.separable():
        parts = [
            crown_margins(
                model,
                ball.rows(torch.tensor([i])),
                labels[i : i + 1],
                classes,
                units=units,
                columns=columns,
                rivals=None if rivals is None else rivals[i : i + 1],
                ascent=ascent,
            )
            for i in range(len(labels))
        ]
        return torch.cat(parts)
    made, outputs = relaxed(tape, ball, units, columns, ascent), place(tape.boxes, scores)

    def tighter(scores: Box, below: Tensor) -> Tensor:
        shape, own = scores.low.shape, labels.reshape(len(labels), -1)
        every = torch.arange(shape[-1], device=labels.device)
        others = every.expand(*own.shape, -1) if rivals is None else rivals[:, None]
        if own.shape[1] > 1 and others[0].numel() * below.numel() > MOST:
            return below
        rows = _differences(own, others, scores.low)
        found = made.least(place(made.boxes, scores), rows, ascent)
        found = found.reshape(*others.shape[1:], -1).movedim(-1, 0)
        flat = below.reshape(*own.shape, -1)
        return flat.scatter(2, others, torch.fmax(flat.gather(2, others), found)).reshape(shape)

    return margins_of(made.boxes[outputs], labels, tighter)


def alpha_crown_margins(
    model: nn.Module,
    ball: Ball,
    labels: Int[Tensor, " examples *terms"],
    classes: Callable[[Any], Any] = lambda outputs: outputs,
    *,
    units: int = 0,
    columns: int = 0,
    steps: int = 20,
) -> Float[Tensor, "examples *terms classes"]:
    r"""Lower bounds on f_y - f_j by linear bounds of the best slopes that gradients find: alpha-CROWN.

    .. math:: \max_{\alpha \in [0, 1]} \min_{x \in B} a(\alpha)^\top x + b(\alpha)

    where a rectifier that may bend lies above alpha x, whatever alpha; each margin, and each end of a unit
    that is tightened, has slopes of its own. Never below :func:`crown_margins`, where the ascent begins.

    Args:
        model: Any module of one input; left as it is.
        ball: The inputs.
        labels: The class y of each example, or of each of its terms.
        classes: ``outputs -> one score per class``.
        units: See :func:`relaxed`; where most is gained, and most of the time goes.
        columns: See :func:`relaxed`.
        steps: Steps of Adam for each bound, each as dear as three passes of :func:`crown_margins`.

    Raises:
        NoIntervalRule: A layer or function has no rule, or there is not one score per class.
        ValueError: steps is negative, or an end of the ball is no number.

    Reference: Xu, Zhang, Wang, Wang, Jana, Lin & Hsieh (2021), "Fast and complete: enabling complete neural
    network verification with rapid and massively parallel incomplete verifiers", Section 3.1. There all
    slopes rise together for the margins; here each bound inside the network is first raised by itself.
    """
    if steps < 0:
        raise ValueError(f"steps must be at least 0: got {steps}")
    found = crown_margins(model, ball, labels, classes, units=units, columns=columns, ascent=steps)
    if units and steps:  # between tighter boxes the ascent begins at other slopes, and may end below
        plain = crown_margins(model, ball, labels, classes, units=units, columns=columns)
        found = torch.fmax(found, plain)
    return found


def _differences(own: Tensor, others: Tensor, scores: Tensor) -> Float[Tensor, "rows batch ..."]:
    """The coefficients of s_y - s_j: a row for each term of an example and each of its other classes j.

    Args:
        own: The class y of each term of each example.
        others: The classes j, along the last axis.
        scores: Of all terms, in the shape of the rows.
    """
    terms, at = own.shape[1], torch.arange(own.shape[1], device=own.device)
    rows = scores.new_zeros(terms, others.shape[2], len(own), terms, scores.shape[-1])
    block = rows[at, :, :, at]
    block.scatter_(3, others.permute(1, 2, 0)[..., None], -1.0)
    y = own.T[:, None, :, None].expand(*block.shape[:3], 1)
    rows[at, :, :, at] = block.scatter_add_(3, y, torch.ones_like(block[..., :1]))
    return rows.reshape(-1, *scores.shape)
