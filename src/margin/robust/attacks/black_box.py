"""Attacks where gradients say nothing: random search, and gradients that leak through flat functions.

Random search reads scores alone (Andriushchenko, Croce, Flammarion & Hein, 2020). Where a saturated or
quantized function has the derivative 0, a stand-in finds a direction all the same (Athalye, Carlini &
Wagner, 2018, Section 4.1: backward pass differentiable approximation); here it serves forward as well.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

from margin.core.types import Batch, Objective
from margin.engine.evaluation import eval_mode
from margin.robust.attacks.threat_models import Threat

LEAK = 1e-3
"""Slope that a flat function is given."""

SHARE = 0.3
"""Share of the coordinates that a first proposal moves; later ones move fewer."""

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


@torch.no_grad()
def random_search(
    model: nn.Module,
    batch: Batch,
    objective: Objective,
    threat: Threat,
    generator: Generator,
    *,
    queries: int,
) -> Tensor:
    """The point of largest loss met by random proposals, each kept where the loss does not fall.

    It begins at a random corner of the cube, or at a random point of the sphere. A proposal moves some
    coordinates, ever fewer: to a side of the cube, or along a random direction. Of images it moves a random
    rectangle by one sign a channel, to which convolutions answer most.

    Args:
        model: Asked in evaluation mode; no gradient is read.
        batch: One real input, with the targets that the objective reads.
        objective: The loss of each example.
        threat: The ball and the domain.
        generator: Draws the proposals.
        queries: How often each example is asked for, >= 1.

    Reference: Andriushchenko et al. (2020), "Square attack: a query-efficient black-box adversarial attack
    via random search", Algorithms 1 and 2, with rectangles in place of squares.
    """
    x = batch.inputs[0]
    confine = threat.around(x)

    def loss_of(y: Tensor) -> Tensor:
        return objective(model, batch._replace(inputs=(y,)), generator).reshape(len(y), -1).sum(1)

    with eval_mode(model):
        best = confine(x + threat.eps * threat.steepest(_noise(x, generator)))
        loss = loss_of(best)
        for query in range(1, queries):
            share = SHARE * (1 - query / queries) ** 2
            y = confine(best + _reach(threat, query / queries) * threat.steepest(_patch(x, share, generator)))
            new = loss_of(y)
            take = new >= loss
            best = torch.where(take.reshape(-1, *(1,) * (x.ndim - 1)), y, best)
            loss = torch.where(take, new, loss)
    threat.check(best, x)
    return best


def _reach(threat: Threat, done: float) -> float:
    """How far a proposal goes: across the cube, or ever less of the ball's radius."""
    return 2 * threat.eps if threat.norm == "linf" else threat.eps * (1 - done)


def _noise(x: Tensor, generator: Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)


def _patch(x: Float[Tensor, "batch ..."], share: float, generator: Generator) -> Tensor:
    """A direction that moves about a share of the coordinates of each example, at least one."""
    if x.ndim >= 4:
        sides = [max(1, round(side * share**0.5)) for side in x.shape[-2:]]
        inside = torch.ones(len(x), *(1,) * (x.ndim - 1), device=x.device)
        for axis, side in zip((-2, -1), sides, strict=True):
            length = x.shape[axis]
            begin = torch.randint(length - side + 1, (len(x), 1), generator=generator).to(x.device)
            place = torch.arange(length, device=x.device)
            span = ((place >= begin) & (place < begin + side)).float()
            inside = inside * span.reshape(len(x), *(1,) * (x.ndim + axis - 1), length, *(1,) * (-axis - 1))
        sign = torch.randn(*x.shape[:-2], 1, 1, generator=generator, dtype=torch.float64)
        return sign.to(x) * inside.to(x)
    flat = torch.rand(len(x), x[0].numel(), generator=generator, dtype=torch.float64)
    chosen = (flat < share) | (flat == flat.amin(1, keepdim=True))
    return _noise(x, generator) * chosen.reshape(x.shape).to(x)
