"""Activations by name: the pointwise functions that stand between affine maps."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.catalog import nearest

Activation = Literal["relu", "leaky_relu", "tanh", "sigmoid", "gelu", "gelu_tanh", "silu", "identity"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU("tanh"),
    "silu": nn.SiLU,
    "identity": nn.Identity,
}
"""Torch's modules, by the names of :data:`Activation`."""


def activation_of(name: str, *, slope: float | None = None) -> nn.Module:
    r"""The pointwise function of that name, torch's own module.

    ============ ===============================================
    relu         max(0, z)
    leaky_relu   max(z, a z), a the slope
    tanh         (e^z - e^-z) / (e^z + e^-z)
    sigmoid      1 / (1 + e^-z)
    gelu         z Phi(z), Phi the standard normal's distribution
    gelu_tanh    z / 2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))), near gelu
    silu         z / (1 + e^-z)
    identity     z
    ============ ===============================================

    Torch takes 0 as the derivative of relu at 0.

    Args:
        name: Which one.
        slope: a of the leaky ReLU, in [0, 1]; None takes torch's 0.01 (a graph attention layer has 0.2).

    Raises:
        ValueError: There is none of that name, or a slope is given to one that has none or is out of range.
    """
    if name not in ACTIVATIONS:
        near = nearest(name, ACTIVATIONS) or list(ACTIVATIONS)
        raise ValueError(f"unknown activation {name!r}; nearest: {', '.join(near)}")
    if slope is None:
        return ACTIVATIONS[name]()
    if name != "leaky_relu":
        raise ValueError(f"only leaky_relu has a slope: got activation={name!r}, slope={slope}")
    if not 0 <= slope <= 1:
        raise ValueError(f"slope must be in [0, 1]: got {slope}")
    return nn.LeakyReLU(slope)


class Centered(nn.Module):
    """The map z -> phi(z) - phi(0), which is 0 at 0.

    Args:
        activation: phi, pointwise and without parameters.
    """

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation
        self.offset = float(activation(torch.zeros((), dtype=torch.float64)))

    def forward(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """phi(z) - phi(0)."""
        return self.activation(z) - self.offset


def centered(name: str) -> nn.Module:
    """The activation of that name less its value at 0: itself for all but the sigmoid, which loses 1/2.

    Raises:
        ValueError: There is none of that name.
    """
    shifted = Centered(activation_of(name))
    return shifted if shifted.offset else shifted.activation
