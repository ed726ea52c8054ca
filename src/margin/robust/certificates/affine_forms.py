r"""Affine forms: each result as a linear function of the input and an interval for what is left over.

.. math:: f(x) \in c + \sum_i g_i (x_i - m_i) \pm r, \qquad x \in B

It is carried from the input to the output, in as many columns g_i as an input has coordinates (forward
mode; Xu et al., 2020, Section 3.1), with one slope below and above a nonlinear function, as zonotopes have
(Singh et al., 2018), whose new terms are kept as the interval r. For few coordinates this bounds every layer
at once, where a backward pass bounds one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from margin.robust.certificates.interval_arithmetic import Box
from margin.robust.certificates.relaxations import (
    CURVES,
    UNIT,
    Lines,
    center,
    exact_form,
    linear,
    rounding,
)
from margin.robust.certificates.tape import Call

AT_ONCE = 1 << 22
"""Elements of the columns that are mapped at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Ball:
    """The inputs around each example: a ball of a norm and the box that holds it.

    Args:
        x: The centers, in float64.
        low: Least value of each coordinate in the ball and the domain.
        high: Largest value.
        eps: Radius.
        norm: Of (y - x) / unit.
        unit: Length of one unit along each coordinate.
    """

    x: Tensor
    low: Tensor
    high: Tensor
    eps: float
    norm: Literal["linf", "l2", "l1"]
    unit: Tensor

    def least(self, rows: Float[Tensor, "rows batch ..."]) -> Float[Tensor, "rows batch"]:
        """The least value of each linear function over the ball, less the rounding of its own sums."""
        flat = rows.flatten(2)
        middle, radius = ((self.high + self.low) / 2).flatten(1), ((self.high - self.low) / 2).flatten(1)
        size = flat.abs()
        least = torch.einsum("sbn,bn->sb", flat, middle) - torch.einsum("sbn,bn->sb", size, radius)
        if self.norm != "linf":
            scaled = flat * self.unit.expand(self.x.shape[1:]).flatten()
            reach = self.eps * self.dual(scaled)
            least = torch.maximum(least, torch.einsum("sbn,bn->sb", flat, self.x.flatten(1)) - reach)
        most = torch.maximum(self.low.abs(), self.high.abs()).flatten(1)
        return least - (flat.shape[2] + 8) * UNIT * torch.einsum("sbn,bn->sb", size, most)

    def dual(self, rows: Tensor) -> Tensor:
        """The dual norm over the last axis."""
        if self.norm == "l2":
            return rows.norm(dim=-1) * (1 + rows.shape[-1] * UNIT)
        return rows.abs().amax(-1) if self.norm == "l1" else rows.abs().sum(-1)

    def rows(self, index: Tensor) -> "Ball":
        """The balls of some of the examples."""
        return replace(self, x=self.x[index], low=self.low[index], high=self.high[index])


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A result as a function of the input.

    Args:
        center: Its value at the middle of the input's box.
        columns: The slope by each coordinate of an input, along a leading axis.
        rest: How far the result may be from that linear function.
        reach: How far the linear function moves over the box of the inputs.
    """

    center: Tensor
    columns: Tensor
    rest: Tensor
    reach: Tensor


def identity(ball: Ball, arithmetic: torch.dtype | None) -> Form:
    """The form of the input itself; its columns are in single precision where the model is."""
    x = ball.x
    count = x[0].numel()
    kind = torch.float32 if arithmetic == torch.float32 else x.dtype
    eye = torch.eye(count, dtype=kind, device=x.device).reshape(count, 1, *x.shape[1:])
    middle, radius = (ball.low + ball.high) / 2, (ball.high - ball.low) / 2
    return Form(middle, eye.expand(count, *x.shape), torch.zeros_like(x), radius)


def _weighted(columns: Tensor, weights: Tensor) -> Tensor:
    """The sum of the columns' sizes, each by its coordinate's weight in each example; rounded upwards."""
    rows = weights.flatten(1).T.to(columns.dtype)
    flat = columns.abs().reshape(len(columns), len(weights), -1)
    found = torch.einsum("nbk,nb->bk", flat, rows).reshape(columns.shape[1:])
    return found.double() * (1 + _error(columns))


def _error(columns: Tensor) -> float:
    """The relative error of a sum over the columns, and of a product with them."""
    return (len(columns) + 8) * torch.finfo(columns.dtype).eps


def within(form: Form, ball: Ball, box: Box) -> Box:
    """A box cut to where the form can be over the ball."""
    far = form.reach + form.rest
    low, high = form.center - far, form.center + far
    if ball.norm != "linf":
        offset = ball.x - (ball.low + ball.high) / 2
        shift = torch.einsum(
            "nbk,nb->bk",
            form.columns.reshape(len(form.columns), len(offset), -1).double(),
            offset.flatten(1).T,
        ).reshape(form.center.shape)
        scale = ball.unit.expand(ball.x.shape[1:]).reshape(-1, *(1,) * (form.columns.ndim - 1))
        scaled = form.columns.double() * scale
        dual = scaled.abs().amax(0) if ball.norm == "l1" else scaled.square().sum(0).sqrt()
        error = _error(form.columns) * (_weighted(form.columns, offset.abs()) + ball.eps * dual)
        far, middle = ball.eps * dual + form.rest + error, form.center + shift
        low, high = torch.maximum(low, middle - far), torch.minimum(high, middle + far)
    slack = (len(form.columns) + 8) * UNIT * (form.center.abs() + far)
    return box.cut(torch.fmax(box.low, low - slack), torch.fmin(box.high, high + slack))


def mapped(
    call: Call, forms: Sequence[Form | None], boxes: Sequence[Box], raw: Box, bent: Lines | None, ball: Ball
) -> Form | None:
    """The form of a call's result, None where its function has none and intervals must do.

    Args:
        call: Of the tape.
        forms: Those of its inputs, None of one that has none.
        boxes: Those of its inputs.
        raw: What the interval rule gives for them.
        bent: The lines of a function that is not linear.
        ball: The inputs.
    """
    known = next((form for form in forms if form is not None), None)
    if known is None:
        return None
    if linear(call):
        own = [
            _constant(box, known) if form is None else form for form, box in zip(forms, boxes, strict=True)
        ]
        return _affine(call, own, boxes, raw, ball)
    if call.func in CURVES and len(boxes) == 1 and bent is not None and bent.slopes is not None:
        return _bent(known, boxes[0], bent)
    return None


def _constant(box: Box, like: Form) -> Form:
    """The form of a result of which the box alone is known."""
    columns = like.columns.new_zeros(1).expand(len(like.columns), *box.low.shape)
    radius = (box.high - box.low) / 2
    return Form(center(box), columns, radius, torch.zeros_like(radius))


def _affine(call: Call, forms: Sequence[Form], boxes: Sequence[Box], raw: Box, ball: Ball) -> Form:
    """An affine function, column by column.

    Its own sums are rounded as the model's are, so the interval rule says by how much.
    """
    function, kind = exact_form(call, boxes), forms[0].columns.dtype
    single = exact_form(call.cast(kind), boxes)
    shift = single(*(torch.zeros_like(form.center, dtype=kind) for form in forms))
    several = max(1, AT_ONCE // max(raw.low.numel(), *(box.low.numel() for box in boxes)))
    parts = zip(*(form.columns.split(several) for form in forms), strict=True)
    columns = torch.cat([torch.vmap(single)(*part) - shift for part in parts])

    def spread(parts: Sequence[Tensor], arithmetic: torch.dtype | None = None) -> Tensor:
        box = call.box([Box(-part, part, arithmetic) for part in parts])
        return (box.high - box.low) / 2 * (1 + 16 * UNIT)

    lengths = [form.reach + 2.0**-28 * form.center.abs() for form in forms]
    rest = spread([form.rest for form in forms]) + rounding(call, boxes, raw)
    rest = rest + spread(lengths, kind) - spread(lengths)
    width = ((ball.high - ball.low) / 2).flatten(1).sum(1)
    width = width.repeat_interleave(len(shift) // len(width), 0).reshape(-1, *(1,) * (shift.ndim - 1))
    rest = rest + 4 * torch.finfo(kind).eps * shift.abs() * (1 + width)
    radius = (ball.high - ball.low) / 2
    return Form(function(*(form.center for form in forms)), columns, rest, _weighted(columns, radius))


def _bent(form: Form, box: Box, lines: Lines) -> Form:
    """A function between two lines: of one slope, and as far from it as the lines are at the box's ends."""
    if lines.slopes is None or lines.high is None:
        raise ValueError("a function of one variable lies between lines")
    below, above = lines.slopes
    finite = box.low.isfinite() & box.high.isfinite() & form.rest.isfinite()
    # A rectifier has 0 or x below: the slope of its chord leaves the least.
    chord = bool(((below == 0) | (below == 1)).all())
    slope = torch.where(finite, above if chord else (below + above) / 2, 0.0).to(form.columns.dtype)
    a, b, s = torch.where(finite, box.low, 0.0), torch.where(finite, box.high, 0.0), slope.double()
    offset = torch.zeros_like(a) if lines.low is None else lines.low
    least = offset + torch.minimum((below - s) * a, (below - s) * b)
    most = lines.high + torch.maximum((above - s) * a, (above - s) * b)
    size = s.abs() * (form.center.abs() + torch.maximum(a.abs(), b.abs())) + least.abs() + most.abs()
    rounded = 2 * torch.finfo(slope.dtype).eps * s.abs() * form.reach
    rest = s.abs() * torch.where(finite, form.rest, 0.0) + (most - least) / 2 + 32 * UNIT * size + rounded
    known = finite & rest.isfinite()
    return Form(
        s * form.center + torch.where(known, (least + most) / 2, 0.0),
        form.columns * slope,
        torch.where(known, rest, torch.inf),
        s.abs() * form.reach * (1 + 2 * torch.finfo(slope.dtype).eps),
    )
