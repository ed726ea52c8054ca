"""The recurrent matrices of a model, by which its states go from step to step, and their spectra."""

from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from margin.sequence.linear.linear_system import LinearSystem
from margin.sequence.linear.lru import LRU


class Transition(NamedTuple):
    """The matrix that multiplies a state on its way to the next.

    Args:
        name: Where it is in the model.
        matrix: A, in float64; None where it is diagonal.
        eigenvalues: Its eigenvalues, in complex128.
    """

    name: str
    matrix: Float[Tensor, "states states"] | None
    eigenvalues: Complex[Tensor, " states"]


@torch.no_grad()
def transitions(model: nn.Module) -> list[Transition]:
    """Every recurrent matrix of LRUs, linear systems and simple recurrent networks, in the model's order.

    Gated cells have none: what multiplies their state depends on the input.

    Args:
        model: Any module.
    """
    found = []
    for name, module in model.named_modules():
        path = name.removeprefix("model.")
        if isinstance(module, LRU):
            found.append(Transition(path, None, module.eigenvalues.to(torch.complex128)))
        elif isinstance(module, LinearSystem):
            found.append(_dense(path, module.A))
        elif isinstance(module, nn.RNN):
            weights = dict(module.named_parameters())
            names = [key for key in weights if key.startswith("weight_hh_l")]
            found += [_dense(f"{path}.{key}".removeprefix("."), weights[key]) for key in names]
    return found


def _dense(name: str, A: Tensor) -> Transition:
    A = A.detach().double()
    finite = bool(A.isfinite().all())  # eigvals would raise
    values = torch.linalg.eigvals(A) if finite else torch.full((len(A),), torch.nan).to(torch.complex128)
    return Transition(name, A, values)
