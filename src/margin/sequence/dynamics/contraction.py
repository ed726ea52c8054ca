"""The gradient-norm bound (Bengio et al. 1994; Pascanu et al. 2013): how much a step can stretch at most."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from margin.core.findings import Premise
from margin.nn.recurrence import Recurrence, State
from margin.sequence.linear.linear_system import LinearSystem
from margin.sequence.linear.lru import LRU
from margin.sequence.recurrent.bptt import FUNCTIONS, STEEPEST
from margin.sequence.recurrent.captured import Captured, topmost
from margin.sequence.recurrent.elman import DeepTransition
from margin.sequence.recurrent.layers import TorchRecurrence

KINDS = (TorchRecurrence, DeepTransition, LinearSystem, LRU)

INSIDE = (nn.RNN, nn.Linear, nn.ModuleList)
"""What layers of these kinds, and those that average, consist of."""

POINTS, CLOSE = 64, 1e-10
"""Random states and inputs at which a step is compared with its formula, and the relative gap allowed."""


class Contraction(NamedTuple):
    """A layer whose step is z_t = phi(U z_{t-1} + V x_t + b), phi of slope alpha at most.

    Args:
        name: Where its matrix is in the recurrence; "" where there is but one.
        part: Which numbers of the recurrence's state are its own.
        stretch: alpha sigma_1(U), by which no step's derivative in the state is larger.
        formula: How this came about, in words.
        block: Size of the blocks on the diagonal of a step's derivative, which is 0 beside them; 0 where it
            may be anything.
    """

    name: str
    part: slice
    stretch: float
    formula: str
    block: int = 0


def stretch(matrix: Tensor, alpha: float = 1.0) -> float:
    """The most by which z -> phi(U z + c) can stretch, alpha sigma_1(U); NaN where U is not finite.

    ||dz_i / dz_t|| is at most its power i - t. Below 1 gradients vanish; above 1 they need not explode: the
    reverse of an upper bound says nothing.

    Args:
        matrix: U.
        alpha: The largest slope of phi.

    Reference: Pascanu, Mikolov and Bengio 2013, Section 2.1; Horn and Johnson 2013, Section 5.6.
    """
    U = matrix.detach().double()
    return alpha * float(torch.linalg.matrix_norm(U, 2)) if bool(U.isfinite().all()) else math.nan


def simple(model: nn.Module) -> list[tuple[str, Recurrence]]:
    """The layers of a model, with their names, whose step is a phi of an affine map of the state."""
    return topmost(model, _is_simple)


def _is_simple(module: nn.Module) -> bool:
    if isinstance(module, TorchRecurrence):
        return isinstance(module.layer, nn.RNN)
    return isinstance(module, KINDS)


def contractions(recurrence: Recurrence) -> list[Contraction]:
    """The layers of one of :func:`simple` with the most that a step of each stretches its own state.

    A layer of several reads the one below and none above it, so that the derivative by its own earlier state
    with the inputs from below held is the product of its own steps.

    Args:
        recurrence: What :func:`simple` gave.
    """
    if isinstance(recurrence, TorchRecurrence):
        return _layers(recurrence.layer)
    if isinstance(recurrence, DeepTransition):
        alpha = STEEPEST[recurrence.nonlinearity]
        rest = [layer for layer in recurrence.rest if isinstance(layer, nn.Linear)]
        matrices = [recurrence.recur.weight, *(layer.weight for layer in rest)]
        most = float(torch.tensor([stretch(W, alpha) for W in matrices], dtype=torch.float64).prod())
        depth = f"{len(matrices)} matrices of slope {alpha:g}"
        return [Contraction("", slice(0, recurrence.output_size), most, f"sigma_1 of {depth}, multiplied")]
    if isinstance(recurrence, LinearSystem):
        return [Contraction("", slice(0, len(recurrence.A)), stretch(recurrence.A), "sigma_1(A)")]
    if isinstance(recurrence, LRU):
        modulus = recurrence.eigenvalues.detach().abs()
        most = float(modulus.double().max())
        return [Contraction("", slice(0, 2 * len(modulus)), most, "max |lambda|", block=2)]
    raise ValueError(f"no bound is known of a step of {type(recurrence).__name__}")


def _layers(layer: Any) -> list[Contraction]:
    m, alpha = layer.hidden_size, STEEPEST[layer.nonlinearity]
    several = layer.num_layers > 1
    return [
        Contraction(
            f"layer {k + 1}" if several else "",
            slice(k * m, (k + 1) * m),
            stretch(getattr(layer, f"weight_hh_l{k}"), alpha),
            f"alpha sigma_1(U), alpha = {alpha:g} for {layer.nonlinearity}",
        )
        for k in range(layer.num_layers)
    ]


def altered(layer: nn.Module, *kinds: type[nn.Module]) -> str:
    """What of a layer need not be as its class has it, in words; "" where it is one of these kinds, as made.

    Looked at are the class of the layer and of every module in it, their hooks, and methods that were set on
    a module itself.

    Args:
        layer: The layer.
        kinds: What it is to be, not a subclass of which.
    """
    for name, module in layer.named_modules():
        where = f" in its {name}" if name else ""
        if type(module) not in (INSIDE if name else kinds):
            return f"a {type(module).__name__}{where}"
        if module._forward_hooks or module._forward_pre_hooks:
            return f"a {type(layer).__name__} with a hook{where}"
        own = [key for key in vars(module) if callable(getattr(type(module), key, None))]
        if own:
            return f"a {type(layer).__name__} with a {own[0]} of its own{where}"
    return ""


def formula(layer: Recurrence, x: Tensor, state: State) -> State:
    """The state after a step by the formula of the layer's class, from the layer's parameters.

    Args:
        layer: A layer of :func:`simple`.
        x: The inputs of the step.
        state: The state before it.
    """
    if isinstance(layer, TorchRecurrence):
        return (_simple_step(layer.layer, x, state[0]),)
    if isinstance(layer, DeepTransition):
        phi = FUNCTIONS[layer.nonlinearity]
        z = phi(F.linear(x, layer.read.weight, layer.read.bias) + F.linear(state[0], layer.recur.weight))
        for one in layer.rest:
            if isinstance(one, nn.Linear):
                z = phi(F.linear(z, one.weight, one.bias))
        return (z,)
    kind = LinearSystem if isinstance(layer, LinearSystem) else LRU
    return kind.step(layer, x, state)[1]  # type: ignore[arg-type]


def _simple_step(layer: Any, x: Tensor, state: Tensor) -> Tensor:
    """The new states (batch, layers, m) of an nn.RNN, each layer reading the one below."""
    phi, new = FUNCTIONS[layer.nonlinearity], list[Tensor]()
    for k, old in enumerate(state.unbind(1)):
        read = F.linear(new[-1] if new else x, getattr(layer, f"weight_ih_l{k}"))
        bias = getattr(layer, f"bias_ih_l{k}") + getattr(layer, f"bias_hh_l{k}") if layer.bias else 0.0
        new.append(phi(read + F.linear(old, getattr(layer, f"weight_hh_l{k}")) + bias))
    return torch.stack(new, 1)


@torch.no_grad()
def step_is_its_own(one: Captured) -> Premise:
    """The premise that a layer's step is that of its class, on which the bound rests.

    It is proved of a layer of that very class, as it was made; else the step is compared with its formula.

    Args:
        one: A layer of :func:`simple` and what it was given.
    """
    layer = one.recurrence
    kind = next(kind for kind in KINDS if isinstance(layer, kind))
    text = f"the step of {one.name} is phi of an affine map of the state"
    what = altered(layer, kind)
    if not what:
        return Premise(text, "proved", f"it is a {kind.__name__}")
    generator = Generator().manual_seed(0)
    x = torch.randn(POINTS, layer.input_size, generator=generator, dtype=one.x.dtype).to(one.x.device)
    state = tuple(
        torch.randn(part.shape, generator=generator, dtype=part.dtype).to(part.device)
        if part.is_floating_point() or part.is_complex()
        else part
        for part in layer.initial(x)
    )
    own, its = layer.step(x, state)[1], formula(layer, x, state)
    pairs = list(zip(own, its, strict=False))  # a subclass may hold more, which the bound is not about
    gap = max(float(((a - b).abs() / (1 + b.abs())).max()) for a, b in pairs)
    evidence = f"it is {what}, whose step differs from a {kind.__name__}'s by {gap:.3g}"
    return Premise(text, "sampled" if gap <= CLOSE else "refuted", f"{evidence} at {POINTS} random points")
