"""Backpropagation through time (Werbos 1990), written out for an Elman network, whole or cut into windows."""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Phi = Literal["tanh", "relu", "sigmoid"]

STEEPEST = {"tanh": 1.0, "relu": 1.0, "sigmoid": 0.25}
"""alpha, the largest slope of each phi: attained at 0 by tanh and by the sigmoid, above 0 by relu."""

FUNCTIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}

States = Float[Tensor, "batch states m"]
"""z_0 .. z_T, one more than there are steps."""


class Gradients(NamedTuple):
    """What a loss that reads the states z_1 .. z_T changes by.

    Args:
        U: dL/dU, (m, m).
        V: dL/dV, (m, n).
        bias: dL/db, (m,).
        x: dL/dx_t of each step, (batch, time, n).
        z: g_t = dL/dz_t of z_0 .. z_T in total, (batch, time + 1, m).
    """

    U: Tensor
    V: Tensor
    bias: Tensor
    x: Tensor
    z: Tensor


def slopes(z: Float[Tensor, "*batch m"], phi: str) -> Float[Tensor, "*batch m"]:
    """The slope where phi took the values z: 1 - z^2, z (1 - z) for a sigmoid, 1 or (at 0) 0 for relu.

    Raises:
        ValueError: There is no such phi.
    """
    if phi == "tanh":
        return 1 - z.square()
    if phi == "sigmoid":
        return z * (1 - z)
    if phi == "relu":
        return (z > 0).to(z.dtype)
    raise ValueError(f"phi must be 'tanh', 'relu' or 'sigmoid': got {phi!r}")


def states(
    U: Float[Tensor, "m m"],
    V: Float[Tensor, "m n"],
    bias: Float[Tensor, " m"],
    x: Float[Tensor, "batch time n"],
    start: Float[Tensor, "batch m"],
    phi: Phi,
) -> States:
    """z_0 = start and z_t = phi(U z_{t-1} + V x_t + b) for each step.

    Reference: Goodfellow, Bengio and Courville 2016, Equations 10.8 and 10.9.
    """
    z = [start]
    for read in F.linear(x, V, bias).unbind(1):
        z.append(FUNCTIONS[phi](F.linear(z[-1], U) + read))
    return torch.stack(z, 1)


# the formula's seven symbols
def bptt(
    U: Float[Tensor, "m m"],
    V: Float[Tensor, "m n"],
    x: Float[Tensor, "batch time n"],
    z: States,
    partial: Float[Tensor, "batch time m"],
    phi: Phi,
    window: int = 0,
) -> Gradients:
    r"""The gradient of a loss of the states, by one recursion from the last step to the first.

    .. math:: g_t = \frac{\partial \ell}{\partial z_t} + J_{t+1}^\top g_{t+1}, \qquad J_t = D_t U, \qquad
        D_t = \mathrm{diag}(\varphi'(U z_{t-1} + V x_t + b))

    .. math:: \frac{dL}{dU} = \sum_t (D_t g_t) z_{t-1}^\top, \qquad \frac{dL}{dV} = \sum_t (D_t g_t) x_t^\top,
        \qquad \frac{dL}{db} = \sum_t D_t g_t

    Truncated, the sequence is cut into windows of k steps, and no derivative goes from one to that before:
    the term J_{t+1}^T g_{t+1} is left out where T - t is a multiple of k, so that the last window is whole.
    With k >= T nothing is left out.

    Args:
        U: The recurrent matrix.
        V: The matrix of the inputs.
        x: x_1 .. x_T.
        z: The states z_0 .. z_T of these inputs.
        partial: The derivative of the loss by each of z_1 .. z_T with the other states held.
        phi: The nonlinearity.
        window: k, at least 1; 0 never cuts.

    Raises:
        ValueError: The window is negative, or there is no such phi.

    Reference:
        Werbos 1990, Section III; Goodfellow, Bengio and Courville 2016, Equations 10.18 to 10.28; Williams
        and Peng 1990, Section 3 (truncated).
    """
    if window < 0:
        raise ValueError(f"window must be at least 1, or 0 for none: got {window}")
    time = x.shape[1]
    slope = slopes(z[:, 1:], phi)
    g, before = [], torch.zeros_like(z[:, 0])
    for t in range(time, 0, -1):
        g.append(partial[:, t - 1] + before)
        cut = window > 0 and t > 1 and (time - t + 1) % window == 0
        before = torch.zeros_like(before) if cut else (slope[:, t - 1] * g[-1]) @ U
    total = torch.stack([before, *reversed(g)], 1)
    read = slope * total[:, 1:]  # D_t g_t: what reaches the sum inside phi
    return Gradients(
        U=torch.einsum("bti,btj->ij", read, z[:, :-1]),
        V=torch.einsum("bti,btj->ij", read, x),
        bias=read.sum((0, 1)),
        x=read @ V,
        z=total,
    )
