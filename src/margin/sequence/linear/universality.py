"""What the last state of a linear recurrence remembers (Orvieto et al. 2024): the whole input, by one solve.

An MLP on such a state can therefore be any function of the sequence; how many digits it must read the state
to is the condition number of the solve.
"""

from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor


class Reconstruction(NamedTuple):
    """Inputs read back from a state.

    Args:
        x: The inputs x_1 .. x_T.
        condition: sigma_max / sigma_min of the map from inputs to state.
    """

    x: Float[Tensor, "time inputs"]
    condition: float


def roots_of_unity(count: int, *, radius: float = 1.0) -> Complex[Tensor, " count"]:
    """The eigenvalues r exp(2 pi i j / m), j = 0 .. m - 1, in complex128: of condition 1 for T = m, r = 1.

    Args:
        count: m, at least 1.
        radius: r, positive.

    Raises:
        ValueError: The count is below 1, or the radius is not positive.
    """
    if count < 1 or not radius > 0:
        raise ValueError(f"roots need count >= 1 and radius > 0: got {count} and {radius:g}")
    angle = 2 * torch.pi * torch.arange(count, dtype=torch.float64) / count
    return torch.polar(torch.full_like(angle, radius), angle)


def vandermonde(eigenvalues: Complex[Tensor, " states"], time: int) -> Complex[Tensor, "states time"]:
    r"""The matrix V_{jt} = lambda_j^{T-t}, t = 1 .. T: zeta_t = lambda zeta_{t-1} + x_t ends in V x.

    It has rank min(m, T) where the eigenvalues are distinct. The powers are products, from exponent 0 on, so
    that 0^0 is 1.

    Args:
        eigenvalues: lambda_1 .. lambda_m.
        time: T, at least 1.

    Raises:
        ValueError: The time is below 1.

    Reference: Horn and Johnson 2013, Section 0.9.11; Orvieto et al. 2024, Section 3.
    """
    if time < 1:
        raise ValueError(f"time must be at least 1: got {time}")
    factors = eigenvalues[:, None].repeat(1, time)
    factors[:, 0] = 1
    return factors.cumprod(1).flip(1)


def memory(
    eigenvalues: Complex[Tensor, " states"], B: Complex[Tensor, "states inputs"], time: int
) -> Float[Tensor, "rows columns"]:
    r"""The real matrix M from inputs x_1 .. x_T to the real and imaginary parts of the last state.

    .. math:: \zeta_T = \sum_t \lambda^{T-t} \odot (B x_t)

    Args:
        eigenvalues: lambda.
        B: How inputs enter; columns are input numbers.
        time: T, at least 1.
    """
    columns = (vandermonde(eigenvalues, time)[:, :, None] * B[:, None, :]).flatten(1)
    return torch.cat((columns.real, columns.imag))


def capacity(states: int, inputs: int) -> int:
    """The most steps that m complex states may hold: T n real unknowns, 2 m real equations."""
    return 2 * states // inputs


def reconstructed(
    zeta: Complex[Tensor, " states"],
    eigenvalues: Complex[Tensor, " states"],
    B: Complex[Tensor, "states inputs"],
    time: int,
) -> Reconstruction:
    """The inputs x_1 .. x_T that lead from 0 to a state, by least squares.

    Args:
        zeta: The state after T steps.
        eigenvalues: lambda.
        B: How inputs enter.
        time: T, at least 1.

    Raises:
        ValueError: The unknowns are more than the equations, T n > 2 m.

    Reference: Orvieto et al. 2024, Section 3.
    """
    states, inputs = B.shape
    if time * inputs > 2 * states:
        raise ValueError(
            f"{states} complex states hold {capacity(states, inputs)} steps of {inputs} numbers: got {time}"
        )
    U, singular, Vh = torch.linalg.svd(memory(eigenvalues, B, time), full_matrices=False)
    x = Vh.T @ ((U.T @ torch.cat((zeta.real, zeta.imag))) / singular)
    return Reconstruction(x.unflatten(0, (time, inputs)), float(singular[0] / singular[-1]))
