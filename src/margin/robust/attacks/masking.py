"""Masked gradients: input gradients that are 0, not finite or not to be had, and what is done about them.

Where a saturated or quantized function has the derivative 0, a stand-in that leaks finds a direction all the
same (Athalye, Carlini & Wagner, 2018, Section 4.1: backward pass differentiable approximation); here it
serves forward as well. A part of a gradient that is not finite is taken as 0, and counted.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

from margin.core.types import Batch, Objective
from margin.engine.loop import Risk
from margin.robust.attacks.gradient import Criterion, input_gradient, loss_of_input, moved_input

LEAK = 1e-3
"""Slope that a flat function is given."""

LACKS = re.compile(
    "derivative for .* is not implemented|You must implement either the backward|once_differentiable"
)
"""How torch says that it cannot differentiate a function."""

_FLAT = (
    *("tanh", "sigmoid", "softmax", "relu", "relu6", "hardtanh", "hardsigmoid", "clamp", "clip"),
    *("sign", "round", "floor", "ceil", "trunc", "softsign", "erf"),
)
FLAT = {
    function
    for name in _FLAT
    for space in (torch, F, Tensor)
    if callable(function := getattr(space, name, None))
}
"""Functions of each coordinate, and softmax, that rise or stay: the argument's own slope points their way."""


class Leaking(TorchFunctionMode):
    """Within it the functions that saturate rise on, by a small slope: a stand-in that is never flat.

    The stand-in also tells apart what saturation made equal, such as classes of probability 0.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Add ``LEAK`` times the argument to the function's value."""
        value = func(*args, **(kwargs or {}))
        x = args[0] if args else None
        if (
            func not in FLAT
            or not isinstance(x, Tensor)
            or not x.is_floating_point()
            or x.shape != value.shape
        ):
            return value
        return value + LEAK * x


class Leaky(nn.Module):
    """A model run so that its saturating functions leak.

    Args:
        model: Shared, not copied.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        """The stand-in's outputs."""
        with Leaking():
            return self.model(x)


class _Repair(torch.autograd.Function):
    """The identity, whose gradient is 0 in every coordinate where it is not finite."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seen: "Careful") -> Tensor:
        """The input itself, as another tensor."""
        ctx.seen = seen
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """What came, repaired; which examples were is told the model."""
        (gradient,) = gradients
        finite = gradient.isfinite()
        ctx.seen.repaired = ~finite.flatten(1).all(1)
        return torch.where(finite, gradient, 0), None


class Careful(nn.Module):
    """A model by whose input one may always differentiate: what is not finite, or not to be had, is 0.

    Args:
        model: Shared, not copied.
        blocked: Its outputs have no gradient: torch lacks the derivative of a function.
    """

    def __init__(self, model: nn.Module, *, blocked: bool = False) -> None:
        super().__init__()
        self.model, self.blocked = model, blocked
        self.repaired = torch.zeros(0, dtype=torch.bool)

    def forward(self, x: Tensor) -> Any:
        """The model's outputs."""
        if self.blocked:
            with torch.no_grad():
                return self.model(x)
        return self.model(_Repair.apply(x, self))


class Gradients(NamedTuple):
    """What the input gradients of a batch are like.

    Args:
        model: By whose input one may differentiate.
        slopes: The gradient of each loss, 0 where it is not finite.
        blind: Examples at which every gradient is exactly 0.
        broken: Examples at which some gradient was not finite.
        lacking: Why there is no gradient, "" where there is one.
    """

    model: Careful
    slopes: tuple[Tensor, ...]
    blind: Bool[Tensor, " batch"]
    broken: Bool[Tensor, " batch"]
    lacking: str


def gradients_of(
    model: nn.Module, batch: Batch, losses: Sequence[Objective], generator: Generator
) -> Gradients:
    """The input gradients of several losses of a model in evaluation mode, and what is wrong with them.

    Raises:
        NonFiniteError: A loss is NaN.
    """
    careful, lacking, slopes = Careful(model), "", []
    broken = torch.zeros(len(moved_input(batch)), dtype=torch.bool, device=moved_input(batch).device)
    for loss in losses:
        careful.repaired = torch.zeros_like(broken)
        # An objective that is not of the outputs alone may ask the model for more than to be called.
        asked = careful if isinstance(loss, Criterion | Risk) else model
        try:
            slope = input_gradient(asked, batch, loss, generator)
        except RuntimeError as error:
            if not (lacking := _no_derivative(error)):
                raise
            careful = Careful(model, blocked=True)
            careful.repaired = torch.zeros_like(broken)
            slope = loss_of_input(model, batch, loss, generator)
        slopes.append(slope.gradient)
        broken = broken | careful.repaired
    blind = ~torch.stack([slope.flatten(1).any(1) for slope in slopes]).any(0)
    return Gradients(careful, tuple(slopes), blind & ~broken, broken, lacking)


def _no_derivative(error: RuntimeError) -> str:
    """The line that says which derivative torch lacks, "" of another error."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line[:120] for line in lines if LACKS.search(line)), "")
