"""The gradient-norm bound (Bengio et al. 1994; Pascanu et al. 2013): how much a step can stretch at most."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from margin.findings import Premise
from margin.sequence.bptt import STEEPEST
from margin.sequence.deep_transition import DeepTransition
from margin.sequence.heard import Heard, topmost
from margin.sequence.linear_system import LinearSystem
from margin.sequence.lru import LRU
from margin.sequence.recurrence import Recurrence
from margin.sequence.torch_recurrent import TorchRecurrence

KINDS = (TorchRecurrence, DeepTransition, LinearSystem, LRU)


class Contraction(NamedTuple):
    """A layer whose step is z_t = phi(U z_{t-1} + V x_t + b), phi of slope alpha at most.

    Args:
        name: Where its matrix is in the recurrence; "" where there is but one.
        part: Which numbers of the recurrence's state are its own.
        stretch: alpha sigma_1(U), by which no step's derivative in the state is larger.
        formula: How this came about, in words.
    """

    name: str
    part: slice
    stretch: float
    formula: str


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
        return [Contraction("", slice(0, 2 * len(modulus)), float(modulus.double().max()), "max |lambda|")]
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


@torch.no_grad()
def step_is_its_own(one: Heard) -> Premise:
    """The premise that a layer's step is that of its class, on which the bound rests.

    Args:
        one: A layer of :func:`simple` and what it was given.
    """
    layer = one.recurrence
    kind = next(kind for kind in KINDS if isinstance(layer, kind))
    text = f"the step of {one.name} is phi of an affine map of the state"
    if type(layer) is kind:
        return Premise(text, "proved", f"it is a {kind.__name__}")
    x = one.x.new_ones(len(one.x), layer.input_size)
    state = tuple(torch.ones_like(part) / 2 for part in layer.initial(x))
    own, its = layer.step(x, state)[1], kind.step(layer, x, state)[1]  # type: ignore[arg-type]
    gap = max(float((a - b).abs().max()) for a, b in zip(own, its, strict=True))
    evidence = f"it is a {type(layer).__name__}, whose step differs from a {kind.__name__}'s by {gap:.3g}"
    return Premise(text, "sampled" if gap <= 1e-10 else "refuted", evidence)
