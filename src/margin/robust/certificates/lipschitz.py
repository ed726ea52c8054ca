r"""Lipschitz constants of models, layer by layer, and the margins that they certify (Szegedy et al., 2014).

.. math:: m_j(y) \ge m_j(x) - \|w_c - w_j\|_q \prod_k L_k\, \epsilon, \qquad \|y - x\|_p \le \epsilon

The constant of an affine layer is its operator norm: of a matrix the largest singular value, of a
convolution that of the periodic one on the padded image (Sedghi, Gupta & Long, 2019), of others the root of
the largest row sum times the largest column sum (Schur); in the l-infinity norm it is the largest row sum, in
l1 the largest column sum. That of a nonlinear function is its largest slope, over the ball's bounds or
everywhere. Sums add the constants of their terms (Gouk et al., 2021, Section 3). Rounding of the model's own
arithmetic is carried along as a length.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import Labels
from margin.engine.evaluation import leaves
from margin.math.linear_algebra.convolution_norms import circular_norm_bound
from margin.robust.attacks.threat_models import length
from margin.robust.certificates.affine_forms import Ball
from margin.robust.certificates.interval_arithmetic import ULPS, Affine, Box, NoIntervalRule, Normalized
from margin.robust.certificates.interval_table import named
from margin.robust.certificates.intervals import bounds
from margin.robust.certificates.linear_bounds import place
from margin.robust.certificates.relaxations import CONVERTED, VIEWS, linear, rounding
from margin.robust.certificates.tape import Call, Tape

SLACK = 1e-9
"""Relative error granted to a norm computed in float64."""

_SLOPES: dict[str, float] = {
    **dict.fromkeys(("relu", "tanh", "relu6", "hardtanh", "abs", "softplus", "atan", "logsigmoid"), 1.0),
    **dict.fromkeys(("clamp", "clip", "clamp_min", "clamp_max", "softsign"), 1.0),
    "sigmoid": 0.25,
    "hardsigmoid": 1 / 6,
    "gelu": 1.129,
    "silu": 1.09984,
    "mish": 1.08895,
    "hardswish": 1.5,
    "selu": 1.7580994,
    "softmax": 0.5,
}
"""The largest slope of each function, rounded upwards; of softmax, in each of the three norms."""

SLOPES = {function: slope for name, slope in _SLOPES.items() for function in named(name)}
_LOCAL = {"relu": lambda x: (x > 0).double(), "tanh": lambda x: 1 - x.tanh().square()}
LOCAL = {function: slope for name, slope in _LOCAL.items() for function in named(name)}
"""The slope of a function where it is largest on an interval: at the point named by :func:`_steepest`."""

LEAKY = set(named("leaky_relu"))
MATRICES = set(named("linear"))
CONVOLUTIONS = set(named("conv1d", "conv2d", "conv3d"))
SUMS = set(named("add", "__add__", "__radd__", "sub", "subtract", "__sub__", "rsub", "__rsub__"))
JOINED = set(named("cat", "concat", "concatenate", "hstack", "vstack", "stack"))
POOLED = {function: axes for axes in (1, 2, 3) for function in named(f"max_pool{axes}d")}


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """How far results may move.

    Args:
        constant: The Lipschitz constant of a result as a function of the input, of each example.
        error: The length by which the model's own arithmetic may miss the result, of each example.
    """

    constant: Tensor
    error: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Constants:
    """The constants along a tape.

    Args:
        tape: Of one run of the model over the ball's box.
        stretches: One for each result.
        names: The functions, with the constant of each alone.
    """

    tape: Tape
    stretches: tuple[Stretch, ...]
    names: tuple[tuple[str, float], ...]


def constants(tape: Tape, ball: Ball, *, local: bool = True, last: int | None = None) -> Constants:
    """The Lipschitz constants of the results of a tape, in the norm of the ball.

    Args:
        tape: Of one run of the model over the ball's box.
        ball: The inputs.
        local: Whether slopes are bounded over the ball's box, or everywhere.
        last: The last result that is asked about; None is the last of all.

    Raises:
        NoIntervalRule: A function has no constant; the message names it.
    """
    batch, norm = len(ball.x), ball.norm
    one = ball.x.new_ones(batch)
    found = [Stretch(one * float(ball.unit.max()), one * 0)]
    names = []
    for index, call in enumerate(tape.calls[: None if last is None else last + 1]):
        if call is None:
            continue
        boxes, own = [tape.boxes[i] for i in call.inputs], [found[i] for i in call.inputs]
        parts = _constants_of(call, boxes, norm, local, batch)
        if call.func in JOINED and norm != "l1":
            order = 2.0 if norm == "l2" else math.inf
            grown = [torch.stack([s.constant for s in own]).norm(order, 0)]
            grown += [torch.stack([s.error for s in own]).norm(order, 0)]
        else:
            grown = [sum(p * s.constant for p, s in zip(parts, own, strict=True))]
            grown += [sum(p * s.error for p, s in zip(parts, own, strict=True))]
        if call.func not in VIEWS | CONVERTED:
            error = rounding(call, boxes, tape.boxes[index])
            grown[1] = grown[1] + length(error.reshape(batch, -1), norm)
            names.append((getattr(call.func, "__name__", "?"), float(torch.stack(list(parts)).max())))
        found.append(Stretch(grown[0] * (1 + SLACK), grown[1] * (1 + SLACK)))
    return Constants(tape, tuple(found), tuple(names))


def _constants_of(call: Call, boxes: Sequence[Box], norm: str, local: bool, batch: int) -> tuple[Tensor, ...]:
    """The constant of a call by each of its inputs, of each example."""
    one = boxes[0].low.new_ones(batch)
    if call.func in CONVERTED:
        return (one,)
    if call.func in SUMS or call.func in JOINED:
        scale = abs(call.kwargs.get("alpha", 1))
        return tuple(one * max(1.0, scale) * _repeated(box, call, boxes, norm) for box in boxes)
    if linear(call):
        return (one * _operator_norm(call, boxes[0], norm),)
    if call.func in POOLED:
        most = 1.0 if norm == "linf" else _overlap(call, POOLED[call.func])
        return (one * (math.sqrt(most) if norm == "l2" else most),)
    if call.func in LEAKY and len(boxes) == 1:
        slope = _argument(call, 1, "negative_slope", 0.01)
        return (one * max(1.0, abs(slope)),)
    if call.func in SLOPES and len(boxes) == 1:
        if local and call.func in LOCAL:
            x = boxes[0]
            slopes = LOCAL[call.func](_steepest(call, x)).reshape(batch, -1).amax(1)
            return (slopes,)
        return (one * SLOPES[call.func],)
    raise NoIntervalRule(f"no Lipschitz constant is known of {getattr(call.func, '__name__', call.func)}")


def _steepest(call: Call, x: Box) -> Tensor:
    """Where on an interval the slope is largest: of tanh the point nearest to 0, of relu the upper end."""
    if getattr(call.func, "__name__", "").startswith("relu"):
        return x.high
    return torch.where((x.low <= 0) & (x.high >= 0), 0.0, torch.minimum(x.low.abs(), x.high.abs()))


def _repeated(box: Box, call: Call, boxes: Sequence[Box], norm: str) -> float:
    """The norm of the map that repeats a term which a sum broadcasts."""
    if call.func in JOINED:
        return 1.0
    shape = torch.broadcast_shapes(*(b.low.shape for b in boxes), *(_shapes(call)))
    copies = math.prod(shape) / box.low.numel()
    return {"linf": 1.0, "l2": math.sqrt(copies), "l1": copies}[norm]


def _shapes(call: Call) -> list[torch.Size]:
    return [value.shape for value in leaves((call.args, call.kwargs)) if isinstance(value, Tensor)]


def _operator_norm(call: Call, box: Box, norm: str) -> float:
    """The norm of an affine call's linear part, from above."""
    if norm == "l2" and call.func in MATRICES and isinstance(weight := _argument(call, 1, "weight"), Tensor):
        return float(torch.linalg.matrix_norm(weight.double(), 2))
    sums = _sums(call, box)
    if norm != "l2":
        return float(sums[0 if norm == "linf" else 1])
    schur = math.sqrt(float(sums[0]) * float(sums[1]))
    return min(schur, _convolution_norm(call, box)) if call.func in CONVOLUTIONS else schur


def _argument(call: Call, position: int, name: str, default: Any = None) -> Any:
    return call.args[position] if len(call.args) > position else call.kwargs.get(name, default)


def _sums(call: Call, box: Box) -> tuple[Tensor, Tensor]:
    """The largest sum of a row and of a column of the linear part, of absolute values."""
    one = torch.ones_like(box.low)
    image = call.box([Box(-one, one)])
    sized = call.sized()
    value, pull = torch.func.vjp(lambda x: sized.value(x).to(x.dtype), torch.zeros_like(one))  # type: ignore[misc]
    (columns,) = pull(torch.ones_like(value))
    return (image.high - image.low).max() / 2, columns.abs().max()


def _convolution_norm(call: Call, box: Box) -> float:
    """That of the periodic convolution of stride 1 on the padded image, of which this one is a part."""
    weight, groups = _argument(call, 1, "weight"), _argument(call, 6, "groups", 1)
    axes = weight.ndim - 2
    padding, dilation = _argument(call, 4, "padding", 0), _argument(call, 5, "dilation", 1)
    spread = _spread(weight, (dilation,) * axes if isinstance(dilation, int) else tuple(dilation))
    if isinstance(padding, str):
        around = [m - 1 if padding == "same" else 0 for m in spread.shape[2:]]
    else:
        around = [2 * p for p in ((padding,) * axes if isinstance(padding, int) else padding)]
    sizes = tuple(n + p for n, p in zip(box.low.shape[2:], around, strict=True))
    return max(circular_norm_bound(part, sizes) for part in spread.chunk(groups))


def _spread(weight: Tensor, dilation: tuple[int, ...]) -> Tensor:
    """The kernel with zeros between its taps."""
    spans = [d * (m - 1) + 1 for m, d in zip(weight.shape[2:], dilation, strict=True)]
    wide = weight.new_zeros(*weight.shape[:2], *spans)
    places: tuple[Any, ...] = (..., *(slice(None, None, d) for d in dilation))
    wide[places] = weight
    return wide


def _overlap(call: Call, axes: int) -> float:
    """In how many windows of a pooling an input may lie."""
    names = ("kernel_size", "stride")
    given = dict(zip(names, call.args[1:], strict=False)) | dict(call.kwargs)
    kernel = given["kernel_size"]
    sizes = (kernel,) * axes if isinstance(kernel, int) else tuple(kernel)
    stride = given.get("stride") or sizes
    steps = (stride,) * axes if isinstance(stride, int) else tuple(stride)
    return float(math.prod(math.ceil(k / s) for k, s in zip(sizes, steps, strict=True)))


@torch.no_grad()
def lipschitz_margins(
    model: nn.Module,
    ball: Ball,
    labels: Labels,
    classes: Callable[[Any], Any] = lambda outputs: outputs,
    *,
    local: bool = True,
) -> Float[Tensor, "batch classes"]:
    """Lower bounds on f_y - f_j over a ball by Lipschitz constants, for each class j; 0 at j = y.

    Args:
        model: Any module of one input; left as it is.
        ball: The inputs.
        labels: The class y of each example.
        classes: ``outputs -> one score per class``.
        local: Whether slopes are bounded over the ball, or everywhere.

    Raises:
        NoIntervalRule: A layer or function has no interval rule or no constant; the message names it.

    Reference: Szegedy et al. (2014), Section 4.3; Tsuzuku, Sato & Sugiyama (2018), Proposition 1.
    """
    tape = Tape()
    scores = bounds(model, ball.low, ball.high, classes, tape)
    if not tape.separable():
        raise NoIntervalRule("Lipschitz constants of a model whose examples depend on each other")
    head, log = scores.made_by, False
    if isinstance(head, Normalized):
        scores, log, head = head.scores, True, head.scores.made_by
    if scores.low.ndim != 2 or (head is not None and not isinstance(head, Affine)):
        raise NoIntervalRule("margins by Lipschitz constants need one score per class")
    values = tape.values(ball.x, len(tape.calls) - 1)
    out = values[place(tape.boxes, scores)]
    gaps = out.gather(1, labels[:, None]) - out
    dual = {"linf": 1.0, "l2": 2.0, "l1": math.inf}[ball.norm]
    if head is None:
        pair = torch.ones(2, dtype=out.dtype).norm(dual)
        index, turn = place(tape.boxes, scores), pair.expand(len(labels), out.shape[1])
        own = torch.zeros_like(out)
    else:
        index = place(tape.boxes, head.inputs)
        weight = head.weight.to(out)
        turn = (weight[labels][:, None] - weight).norm(dual, 2)
        call = tape.calls[place(tape.boxes, scores)]
        if call is None:
            raise NoIntervalRule("a model without layers has no Lipschitz constant")
        rounded = rounding(call, [head.inputs], scores)
        own = rounded + rounded.gather(1, labels[:, None])
    stretch = constants(tape, ball, local=local, last=index).stretches[index]
    lost = turn * (stretch.constant * ball.eps + stretch.error)[:, None] * (1 + SLACK) + own
    loss = SLACK * (out.abs().amax(1, keepdim=True) + lost)
    below = gaps - lost - loss
    if log:
        below = below - 4 * ULPS * scores.unit * (1 + math.log(out.shape[1]) + below.abs())
    return below.scatter(1, labels[:, None], 0.0)
