"""Interval bound propagation: bounds on a model's outputs over a box of inputs (Gowal et al., 2018).

The model's own forward is run on a tensor that stands for a box, so any module is followed by what it
calls, whatever its structure; a function without a rule stops the run and is named with its layer.
"""

import copy
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.core.types import Labels
from margin.engine.evaluation import eval_mode, leaves, place_of, running
from margin.engine.parallel.processes import kept_memory
from margin.robust.certificates.interval_arithmetic import ULPS, Affine, Box, NoIntervalRule, Squashed
from margin.robust.certificates.interval_table import (
    MEANINGS,
    PRODUCTS,
    composed,
    facts,
    in_place,
    outside,
    rules,
    views,
)
from margin.robust.certificates.tape import Call, Ref, Tape

RULES = rules()
COMPOSED = composed()
FACTS = facts()
VIEWS = views()
IN_PLACE = in_place()
OUTSIDE = outside()
TYPE = Tensor.dtype.__get__  # type: ignore[attr-defined]  # a slot, as torch names it to a subclass
LOWER = "the model computes in lower precision than its parameters"


class Trail:
    """The layers that are being run, outermost first, and the tape on which their calls are written."""

    def __init__(self, tape: Tape | None = None) -> None:
        self.layers: list[tuple[str, str]] = []
        self.tape = tape

    def refusal(self, reason: str) -> NoIntervalRule:
        """The error that names the innermost layer."""
        return NoIntervalRule(f"no interval rule for {place_of(self.layers)}: {reason}")


class Interval(Tensor):
    """A tensor that stands for every tensor of a box; torch functions act on it by the table of rules.

    It has no storage: an operation that the table does not know cannot read a value from it.

    Args:
        box: The set it stands for.
        trail: Names the layer in messages.
        place: Its position on the tape.
    """

    box: Box
    trail: Trail
    place: int
    shared: bool

    @staticmethod
    def __new__(cls: type["Interval"], box: Box, trail: Trail, place: int = 0) -> "Interval":
        """A tensor of the box's shape, type and device, without storage."""
        return Tensor._make_wrapper_subclass(cls, box.shape, dtype=box.dtype, device=box.ends[0].device)

    def __init__(self, box: Box, trail: Trail, place: int = 0) -> None:
        self.box = box
        self.trail = trail
        self.place = place
        # Whether other tensors may be views of it: overwriting one would then have to change the others.
        self.shared = False

    def __repr__(self) -> str:  # type: ignore[override]  # torch passes itself an argument that is not used
        return f"Interval(shape={tuple(self.box.shape)})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Apply the rule of ``func``."""
        kwargs = dict(kwargs or {})
        first = next(value for value in leaves((args, kwargs)) if isinstance(value, Interval))
        if func == TYPE:  # a branch on it must go the way that it goes in the model
            return first.box.arithmetic or first.box.dtype
        if func in FACTS and not any(isinstance(value, Interval) for value in leaves((args[1:], kwargs))):
            own = first.box.arithmetic or first.box.dtype  # new constants are rounded as in the model
            return func(torch.empty_like(first.box.ends[0], dtype=own), *args[1:], **kwargs)
        if func in COMPOSED:
            try:
                return COMPOSED[func](*args, **kwargs)
            except NoIntervalRule as error:
                named = str(error).startswith("no interval rule for")
                raise (error if named else first.trail.refusal(str(error))) from None
        overwrites = bool(kwargs.pop("inplace", False)) or func in IN_PLACE
        first._refuse_autocast()
        rule = IN_PLACE.get(func) or RULES.get(func)
        if rule is None or kwargs.get("out") is not None:
            name = getattr(func, "__name__", str(func))
            said = f"{name} ({MEANINGS[name]})" if name in MEANINGS else name
            raise first.trail.refusal(said if rule is None else f"{name} into a given tensor")
        dtype = first.box.dtype
        try:
            cast = None if func in PRODUCTS else dtype
            result = rule(*_boxes(args, cast), **_boxes(kwargs, cast))
        except NoIntervalRule as error:
            raise first.trail.refusal(str(error)) from None
        call = None
        if first.trail.tape is not None:
            call = Call(OUTSIDE.get(func, func), rule, *_boxes((args, kwargs), dtype, _reference))
        return (first._overwrite if overwrites else first._wrap)(func, args, result, call)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the stub leaves out that it is a class method
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Refuse: nothing reaches this below the table of rules."""
        raise NoIntervalRule(f"{func} met an interval below torch's functions")

    def _refuse_autocast(self) -> None:
        """Refuse a region in which the model rounds to a coarser type: float64 bounds would not follow it."""
        device, arithmetic = self.box.ends[0].device.type, self.box.arithmetic
        if arithmetic is None or not torch.is_autocast_enabled(device):
            return
        coarse = torch.get_autocast_dtype(device)
        if torch.finfo(coarse).eps > torch.finfo(arithmetic).eps:
            raise self.trail.refusal(f"{LOWER}: autocast to {coarse}")

    def _wrap(self, func: Any, args: Any, result: Any, call: Call | None) -> Any:
        if isinstance(result, tuple):
            calls = [None if call is None else replace(call, part=i) for i in range(len(result))]
            return tuple(self._wrap(func, args, *pair) for pair in zip(result, calls, strict=True))
        if not isinstance(result, Box):
            return result
        inputs = [value for value in leaves(args) if isinstance(value, Interval)]
        for value in inputs:
            if value.box is result:
                return value
        made = Interval(result, self.trail, self._written(result, call))
        if func in VIEWS:
            for value in (made, *inputs):
                value.shared = True
        return made

    def _overwrite(self, func: Any, args: Any, result: Box, call: Call | None) -> "Interval":
        target = args[0]
        if not isinstance(target, Interval) or target.shared:
            raise self.trail.refusal(f"{func.__name__} overwrites a tensor of which there are views")
        target.box, target.place = result, self._written(result, call)
        return target

    def _written(self, box: Box, call: Call | None) -> int:
        """The position of a call on the tape, where there is one."""
        return 0 if call is None or self.trail.tape is None else self.trail.tape.add(call, box)


def _box(value: Interval) -> Box:
    return value.box


def _reference(value: Interval) -> Ref:
    return Ref(value.place)


def _boxes(value: Any, dtype: torch.dtype | None, stand_in: Callable[[Interval], Any] = _box) -> Any:
    """The arguments with boxes for tensors that stand for them, real constants in a type, if one is given."""
    if isinstance(value, dict):
        return {key: _boxes(part, dtype, stand_in) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_boxes(part, dtype, stand_in) for part in value)
    if isinstance(value, Interval):
        return stand_in(value)
    if dtype is None or not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    return value.to(dtype)


def propagate(
    model: nn.Module,
    box: Box,
    read: Callable[[Any], Any] = lambda outputs: outputs,
    tape: Tape | None = None,
) -> Box:
    """The box of a model's outputs over a box of its inputs, differentiable by the model's parameters.

    Args:
        model: Any module of one input; run as it stands, in its own mode, its constants as they are.
        box: The inputs.
        read: Applied to the outputs, by the same rules.
        tape: Where its calls are written; None writes none.

    Raises:
        NoIntervalRule: A layer or function has no rule; the message names it.
    """
    trail = Trail(tape)
    if tape is not None:
        tape.add(None, box)
    with running(model, trail.layers):
        try:
            outputs = read(model(Interval(box, trail)))
        except NoIntervalRule:
            raise
        except Exception as error:
            line = (str(error).splitlines() or [""])[0]
            raise trail.refusal(f"its forward cannot be followed: {type(error).__name__}: {line}") from error
    if not isinstance(outputs, Interval):
        raise trail.refusal("the output does not depend on the input by functions with a rule")
    return outputs.box


def bounds(
    model: nn.Module,
    low: Float[Tensor, "batch ..."],
    high: Float[Tensor, "batch ..."],
    read: Callable[[Any], Any] = lambda outputs: outputs,
    tape: Tape | None = None,
    products: torch.dtype = torch.float64,
) -> Box:
    """Bounds on a model's outputs over low <= x <= high, computed in float64 from a copy of the model.

    They hold for exact arithmetic and for the model's own: each rule widens its result by what rounding
    in the coarsest type of the model's parameters and buffers can do
    (:mod:`margin.robust.certificates.interval_arithmetic`). Where the model rounds more coarsely than that,
    under autocast
    or by a flag of torch, it is refused; see also :func:`check_copy`.

    Args:
        model: Any module of one input; left as it is, its copy is asked in evaluation mode.
        low: Least value of each coordinate.
        high: Largest value of each coordinate.
        read: Applied to the outputs, by the same rules.
        tape: Where the model's calls are written; None writes none.
        products: The type in which products with constants are taken where it is the model's own: float32 is
            several times as fast as float64, and grants each sum three times its rounding instead of once.

    Returns:
        The box of the outputs, in float64.

    Raises:
        NoIntervalRule: A layer or function has no rule, the model cannot be copied, or it computes in lower
            precision than its parameters.
        ValueError: low exceeds high somewhere.

    Reference: Gowal et al. (2018), "On the effectiveness of interval bound propagation for training
    verifiably robust models", Equations 6-7.
    """
    if low.shape != high.shape or not bool((low <= high).all()):
        raise ValueError("an interval needs ends of one shape with low <= high")
    try:
        # Its constants stay in its own type until they meet a box: what it computes of its parameters, such
        # as a normalized weight, is then rounded as the model rounds it, and known without error.
        own = _twin(model)
    except Exception as error:
        raise NoIntervalRule(f"the model cannot be copied: {type(error).__name__}") from error
    if isinstance(own, torch.jit.ScriptModule) and not isinstance(own, torch.jit._trace.TopLevelTracedModule):
        raise NoIntervalRule("the model is a script, whose layers torch does not show")
    arithmetic = coarsest_type(model)
    if arithmetic == torch.float32 and (flag := _reduced(low.device)):
        raise NoIntervalRule(f"{LOWER}: {flag}")
    with torch.no_grad(), eval_mode(own), kept_memory():
        return propagate(own, Box(low.double(), high.double(), arithmetic, products=products), read, tape)


def _twin(model: nn.Module) -> nn.Module:
    """A copy that shares its parameters, which a forward pass only reads."""
    memo: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    for own in (own for module in model.modules() for own in vars(module).values()):
        if not own and type(own) in (dict, OrderedDict):  # of hooks: copied part by part they take most time
            memo[id(own)] = type(own)()
    return copy.deepcopy(model, memo)


def coarsest_type(model: nn.Module) -> torch.dtype:
    """The real type of a module's parameters and buffers that rounds the most; float32 where it has none."""
    kinds = {tensor.dtype for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()}
    return max(kinds, key=lambda kind: torch.finfo(kind).eps, default=torch.float32)


def _reduced(device: torch.device) -> str:
    """The flag by which torch multiplies float32 matrices in a coarser type, or ""."""
    if (precision := torch.get_float32_matmul_precision()) != "highest":
        return f"torch.set_float32_matmul_precision({precision!r}); set 'highest'"
    if device.type == "cuda" and torch.backends.cudnn.allow_tf32:
        return "convolutions in TF32; set torch.backends.cudnn.allow_tf32 = False"
    return ""


@torch.no_grad()
def check_copy(
    model: nn.Module,
    x: Float[Tensor, "batch ..."],
    classes: Callable[[Any], Any] = lambda outputs: outputs,
) -> None:
    """Refuse a model whose outputs do not lie in the bounds of their own inputs.

    It may compute in a coarser type than that of its parameters, where no function shows it.

    Args:
        model: Any module of one input.
        x: Points at which both are asked.
        classes: ``outputs -> what is compared``.

    Raises:
        NoIntervalRule: An output lies outside the bounds of its own input, or has none.
    """
    box = bounds(model, x, x, classes)
    with eval_mode(model):
        own = classes(model(x))
    if own.shape != box.low.shape:
        raise NoIntervalRule(f"bounds and outputs of the model must have one shape: got {tuple(own.shape)}")
    outside = (own < box.low) | (own > box.high)
    if bool(outside.any()):
        center, radius = (box.low + box.high) / 2, (box.high - box.low) / 2
        at = ((own - center).abs() / radius).nan_to_num(torch.inf).argmax()
        off, rounding = ((own - center).abs().flatten()[at], radius.flatten()[at])
        raise NoIntervalRule(
            f"{LOWER}: an output is off by {off.item():.2g} from that in float64, where rounding in "
            f"{coarsest_type(model)} explains {rounding.item():.2g}"
        )


@torch.no_grad()
def margin_bounds(
    model: nn.Module,
    low: Float[Tensor, "batch ..."],
    high: Float[Tensor, "batch ..."],
    labels: Int[Tensor, " examples *terms"],
    classes: Callable[[Any], Any] = lambda outputs: outputs,
) -> Float[Tensor, "examples *terms classes"]:
    """Lower bounds on f_y - f_j over low <= x <= high, for each class j; 0 at j = y.

    Where the scores come straight from a linear layer w a + b, the rows are merged first: the bound is that
    of (w_y - w_j) a + b_y - b_j, which is never worse and exact for a linear model. Margins of a final
    softmax, its logarithm, or sigmoid have the signs of those of its argument.

    Args:
        model: Any module of one input; left as it is.
        low: Least value of each coordinate.
        high: Largest value of each coordinate.
        labels: The class y of each example, or of each of its terms, as pixels.
        classes: ``outputs -> one score per class``.

    Raises:
        NoIntervalRule: A layer or function has no rule, or there is not one score per class.
        ValueError: low exceeds high somewhere.

    Reference: Gowal et al. (2018), Section 3 and Equation 8 (elision of the last layer).
    """
    return margins_of(bounds(model, low, high, classes, products=torch.float32), labels)


def all_beaten(below: Float[Tensor, "batch classes"], labels: Labels) -> Bool[Tensor, " batch"]:
    """Whether the bound of every rival's margin is above 0: the example is right in the whole box."""
    return below.scatter(1, labels[:, None], torch.inf).amin(1) > 0


def margins_of(
    scores: Box,
    labels: Int[Tensor, " examples *terms"],
    tighter: Callable[[Box, Tensor], Tensor] = lambda scores, below: below,
) -> Float[Tensor, "examples *terms classes"]:
    """Lower bounds on s_y - s_j over a box of scores, 0 at j = y; differentiable where the box is.

    Args:
        scores: One for each class, along the last axis.
        labels: The class y of each example, or of each of its terms.
        tighter: ``(scores, bounds of their margins) -> better ones``, asked of the scores under a last
            softmax or sigmoid.

    Raises:
        NoIntervalRule: There is not one score per class.
    """
    if scores.low.ndim < 2 or scores.low.shape[:-1] != labels.shape:
        raise NoIntervalRule(f"margins need one score per class: got shape {tuple(scores.low.shape)}")
    return _margins(scores, labels, tighter).scatter(-1, labels[..., None], 0.0)


def _margins(
    scores: Box, labels: Int[Tensor, " examples *terms"], tighter: Callable[[Box, Tensor], Tensor]
) -> Float[Tensor, "examples *terms classes"]:
    """Lower bounds on the margins, of the scores as such or by the layer that made them."""
    own = labels[..., None]
    plain = scores.low.gather(-1, own) - scores.high
    made_by, slack = scores.made_by, 4 * ULPS * scores.unit
    if scores.low.ndim != 2 or made_by is None:
        return tighter(scores, plain)
    if isinstance(made_by, Affine):
        return tighter(scores, _merged(made_by, labels))
    below = _margins(made_by.scores, labels, tighter)
    if isinstance(made_by, Squashed):
        # sigmoid(z) - sigmoid(z - d) has one hill in z: its least value is at an end of z.
        ends = [end.gather(1, own) for end in (made_by.scores.low, made_by.scores.high)]
        gains = [end.sigmoid() - (end - below).sigmoid() for end in ends]
        return torch.maximum(plain, torch.where(below > 0, torch.minimum(*gains) - slack, plain))
    # Where y is the largest, both are off by a few roundings of log p; elsewhere by more.
    sure = below - slack * (1 + math.log(below.shape[1]) + below.abs())
    first = (sure.scatter(1, own, torch.inf) > 0).all(1, keepdim=True)
    # Of K its probability is then 1/K at least: p_y - p_j = p_y (1 - exp(-d)).
    gain = sure if made_by.log else -(1 - slack) * torch.expm1(-sure) / below.shape[1]
    return torch.maximum(plain, torch.where(first, gain, plain))


def _merged(layer: Affine, labels: Labels) -> Float[Tensor, "batch classes"]:
    """The bound of w_y a - w_j a + b_y - b_j, each with the rounding of its two sums."""
    inputs, weight = layer.inputs, layer.weight.to(layer.inputs.dtype)
    bias = torch.zeros_like(weight[:, 0]) if layer.bias is None else layer.bias.to(weight)
    center, radius = (inputs.high + inputs.low) / 2, (inputs.high - inputs.low) / 2
    gamma = inputs.gamma(weight.shape[1])
    rounding = gamma * (inputs.magnitude @ weight.abs().T + bias.abs())
    scores = center @ weight.T + bias
    below = torch.empty_like(scores)
    for label in labels.unique():
        rows = labels == label
        difference = (weight[label] - weight).abs()
        own = (scores[rows, label] - rounding[rows, label])[:, None]
        below[rows] = own - scores[rows] - rounding[rows] - radius[rows] @ difference.T
    return below
