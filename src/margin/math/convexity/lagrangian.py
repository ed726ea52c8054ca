r"""Stationary points under equality constraints: Newton's method on Lagrange's conditions (Lagrange 1788).

.. math:: \nabla f(x) = \sum_j \gamma_j \nabla g_j(x), \qquad g(x) = c

The multiplier is the price of the constraint: :math:`\gamma_j = d f^* / d c_j`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Stationary(NamedTuple):
    """A stationary point of f under g = c.

    Args:
        x: The point.
        multipliers: gamma, one for each constraint.
        residual: Largest coordinate of Lagrange's conditions.
        steps: Newton steps taken.
        converged: Whether the residual is within the tolerance.
    """

    x: Float[Tensor, " dim"]
    multipliers: Float[Tensor, " constraints"]
    residual: float
    steps: int
    converged: bool


def stationary_point(
    f: Callable[[Tensor], Tensor],
    g: Callable[[Tensor], Tensor],
    c: Float[Tensor, " constraints"],
    start: Float[Tensor, " dim"],
    *,
    tol: float = 1e-10,
    max_steps: int = 50,
) -> Stationary:
    r"""A point where the Lagrangian f - gamma . (g - c) is stationary, a maximum of f or not.

    Each step solves the linearized conditions

    .. math:: \begin{pmatrix} \nabla^2_x \mathcal L & -J^\top \\ J & 0 \end{pmatrix}
        \begin{pmatrix} \Delta x \\ \gamma \end{pmatrix} =
        \begin{pmatrix} -\nabla f \\ c - g \end{pmatrix}

    The first multipliers are those that fit best at the start. From near a point whose constraints have
    independent gradients it converges quadratically.

    Args:
        f: The function, twice differentiable, of one vector.
        g: The constraints, a vector.
        c: Their values.
        start: Where the search begins.
        tol: Largest coordinate of the conditions, above 0.
        max_steps: Steps after which it gives up, at least 0; ``converged`` then says so.

    Raises:
        ValueError: The constraints are not as many as their values, more than the unknowns, or dependent
            where the search came.

    Reference: Nocedal and Wright 2006, Theorem 12.1 and Section 18.1.
    """
    m, n = len(c), len(start)
    given = g(start)
    if given.shape != c.shape or m > n:
        raise ValueError(
            f"c must have one value for each constraint, at most one for each unknown: got c of shape "
            f"{tuple(c.shape)}, g of {tuple(given.shape)}, {n} unknowns"
        )
    x = start.clone()
    gamma = torch.linalg.lstsq(torch.func.jacrev(g)(x).T, torch.func.grad(f)(x)[:, None]).solution[:, 0]

    def lagrangian(z: Tensor, multipliers: Tensor) -> Tensor:
        return f(z) - multipliers @ g(z)

    for step in range(max_steps + 1):
        slope, J = torch.func.grad(f)(x), torch.func.jacrev(g)(x)
        residual = float(torch.cat((slope - J.T @ gamma, g(x) - c)).abs().max())
        if residual <= tol or step == max_steps or residual != residual:
            break
        H = torch.func.jacrev(torch.func.grad(lagrangian))(x, gamma)
        top = torch.cat((H, -J.T), 1)
        matrix = torch.cat((top, torch.cat((J, J.new_zeros(m, m)), 1)))
        solved, info = torch.linalg.solve_ex(matrix, torch.cat((-slope, c - g(x))))
        if int(info) != 0:
            raise ValueError(
                f"the constraints' gradients must be independent where the search is: at {x.tolist()}"
            )
        x, gamma = x + solved[:n], solved[n:]
    return Stationary(x, gamma, residual, step, residual <= tol)
