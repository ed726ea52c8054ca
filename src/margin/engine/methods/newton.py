r"""Newton's method: to the stationary point of the quadratic model of the loss, damped and searched along.

.. math:: \theta \leftarrow \theta - s\, (H + \lambda I)^{-1} g, \qquad
          g = \nabla h(\theta),\ H = \nabla^2 h(\theta)
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from margin.core.types import Batch, Metrics, Objective
from margin.engine.batch_loss import BatchLoss, elsewhere, put, refuse_clip, refuse_shares
from margin.engine.loop import GradientUpdate, NonFiniteError, State, Step
from margin.engine.parallel.processes import world

DENSE_LIMIT = 5000
"""Most parameters of a dense Hessian, which then takes 200 MB in double precision."""

ROWS = 256
"""Rows of the Hessian computed at once."""

FIRST_DAMPING = 1e-3
"""Where the damping begins that makes a Hessian positive definite, times its largest entry."""

DECREASE = 1e-4
"""The share of the linear model's decrease that a move must bring (Armijo)."""

HALVINGS = 30
"""How often a move is halved before it is given up."""


def newton(
    objective: Objective,
    descend: GradientUpdate,
    *,
    damping: float = 0.0,
    solver: Literal["dense", "conjugate_gradients"] = "dense",
    iterations: int = 50,
    line_search: Literal["armijo", "none"] = "armijo",
) -> Step:
    """One Newton step on the batch's mean loss.

    Without a line search the step is the whole one, and stationary points of every kind attract it, saddles
    among them. With one, the direction must descend: the damping grows until H + damping I is positive
    definite, and the step is halved until the loss falls by 1e-4 of what the gradient promises.

    The dense solver forms the Hessian, in double precision, for up to 5000 parameters. Conjugate gradients
    ask for products with it alone; they end at a direction of negative curvature, at the residual
    min(1/2, |g|^1/2) |g|, or after so many iterations.

    The step moves the weights itself: of the optimizer only the choice of parameters counts, not its rate,
    momentum or weight decay. The metrics hold the length of the step (``length``, 0 where no step lowers
    the loss) and the damping that was used.

    Args:
        objective: The loss of each term, twice differentiable.
        descend: Which parameters; it must neither clip nor cut a batch into pieces.
        damping: lambda >= 0, in the units of the Hessian.
        solver: How the linear system is solved.
        iterations: Most iterations of the conjugate gradients, >= 1.
        line_search: Whether the loss must fall.

    Raises:
        ValueError: An option is out of range or does not fit; there are several processes; later, the dense
            Hessian would be too large, or is singular without a line search.

    Reference: Nocedal and Wright (2006), "Numerical optimization", Algorithms 3.1 (backtracking), 3.3 (added
    multiple of the identity) and 7.1 (line search Newton-CG).
    """
    if not 0 <= damping < math.inf:
        raise ValueError(f"damping must be at least 0 and finite: got {damping}")
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1: got {iterations}")
    refuse_clip("newton", descend)
    refuse_shares("newton", descend)
    if descend.pieces > 1:
        raise ValueError(f"newton takes a batch whole: accumulate must be 1, got {descend.pieces}")
    if world().size > 1:
        raise ValueError(f"newton takes a batch in one process: processes must be 1, got {world().size}")

    def step(state: State, batch: Batch) -> Metrics:
        asked = BatchLoss(state, objective, descend, batch)
        loss, g, product = _derivatives(asked)
        used = damping
        if solver == "dense":
            H = hessian(product, g)
            used = positive_definite(H, damping, _rounding(asked)) if line_search == "armijo" else damping
            p = _solved(H, g, used, state.step)
        else:
            p = conjugate_gradients(lambda v: product(v[None])[0] + damping * v, g, iterations)
        if not bool(p.isfinite().all()):
            raise NonFiniteError(f"the Newton step at step {state.step} is not finite: raise the damping")
        length = _search(asked, loss, g, p) if line_search == "armijo" else _move(asked, p)
        return {"loss": loss, "grad_norm": float(g.norm()), "length": length, "damping": used}

    return step


Vector = Float[Tensor, " weights"]
Product = Callable[[Float[Tensor, "rows weights"]], Float[Tensor, "rows weights"]]
"""The Hessian times each of several vectors."""


def _derivatives(asked: BatchLoss) -> tuple[float, Vector, Product]:
    """The loss, its gradient in double precision, and the products with its Hessian."""
    parameters = asked.parameters
    if not parameters:
        raise ValueError("newton needs parameters that require a gradient: the model has none")
    value = asked.differentiable()
    grads = torch.autograd.grad(value, parameters, create_graph=True, materialize_grads=True)
    loss = value.item()
    asked.check(list(grads), loss)
    flat = torch.cat([g.flatten() for g in grads])

    def product(rows: Float[Tensor, "rows weights"]) -> Float[Tensor, "rows weights"]:
        if not flat.requires_grad:  # the loss is linear
            return torch.zeros_like(rows)
        found = torch.autograd.grad(
            flat,
            parameters,
            rows.to(flat.dtype),
            retain_graph=True,
            materialize_grads=True,
            is_grads_batched=True,
        )
        return torch.cat([f.reshape(len(rows), -1) for f in found], 1).double()

    return loss, flat.detach().double(), product


def hessian(product: Product, g: Vector) -> Float[Tensor, "weights weights"]:
    """The Hessian, from its products with the unit vectors.

    Raises:
        ValueError: It has more than ``DENSE_LIMIT`` columns.
        NonFiniteError: An entry is not finite.
    """
    n = len(g)
    if n > DENSE_LIMIT:
        raise ValueError(
            f"a dense Hessian is for at most {DENSE_LIMIT} parameters: {n} take {8e-9 * n * n:.3g} GB; "
            "set --rule.solver conjugate_gradients"
        )
    H = torch.cat([product(rows) for rows in torch.eye(n, dtype=g.dtype, device=g.device).split(ROWS)])
    if not bool(H.isfinite().all()):
        raise NonFiniteError("the Hessian is not finite")
    return (H + H.T) / 2


def positive_definite(H: Float[Tensor, "weights weights"], damping: float, rounding: float) -> float:
    """The first damping, doubled time and again, at which H + damping I has a Cholesky factor.

    Args:
        H: Symmetric.
        damping: Where to begin.
        rounding: The relative error of the entries: a pivot below it counts as none.

    Reference: Nocedal and Wright (2006), Algorithm 3.3.
    """
    size = float(H.abs().max()) or 1.0
    while True:
        L, info = torch.linalg.cholesky_ex(H + damping * torch.eye(len(H), dtype=H.dtype, device=H.device))
        if not int(info) and float(L.diagonal().min()) ** 2 > rounding * size:
            return damping
        damping = max(2 * damping, FIRST_DAMPING * size)


def _solved(H: Float[Tensor, "weights weights"], g: Vector, damping: float, step: int) -> Vector:
    """The solution of (H + damping I) p = -g, its residual checked."""
    damped = H + damping * torch.eye(len(H), dtype=H.dtype, device=H.device)
    p, info = torch.linalg.solve_ex(damped, -g)
    residual = float((damped @ p + g).norm()) if not int(info) else math.inf
    if not residual <= 1e-6 * float(g.norm()):
        raise ValueError(f"the Hessian at step {step} is singular to working precision: set --rule.damping")
    return p


def conjugate_gradients(product: Callable[[Vector], Vector], g: Vector, iterations: int) -> Vector:
    """A descent direction near -H^-1 g by conjugate gradients, which negative curvature ends early.

    Args:
        product: H times a vector.
        g: The gradient.
        iterations: Most products.

    Reference: Nocedal and Wright (2006), Algorithm 7.1.
    """
    p, r, d = torch.zeros_like(g), g, -g
    square = float(r @ r)
    enough = min(0.5, square**0.25) * square**0.5
    for j in range(iterations):
        if square**0.5 <= enough:
            break
        Hd = product(d)
        curvature = float(d @ Hd)
        if curvature <= 0:
            return p if j else -g
        alpha = square / curvature
        p, r = p + alpha * d, r + alpha * Hd
        square, before = float(r @ r), square
        d = -r + (square / before) * d
    return p


def _rounding(asked: BatchLoss) -> float:
    return 10 * torch.finfo(asked.parameters[0].dtype).eps


def _move(asked: BatchLoss, p: Vector, length: float = 1.0) -> float:
    """Move the weights by length p; returns the length."""
    parts = p.split([w.numel() for w in asked.parameters])
    moved = [
        w.detach() + length * part.view_as(w).to(w.dtype)
        for w, part in zip(asked.parameters, parts, strict=True)
    ]
    put(asked.parameters, moved)
    return length


def _search(asked: BatchLoss, loss: float, g: Vector, p: Vector) -> float:
    """The first of 1, 1/2, 1/4, ... that brings the promised share of the decrease; 0 where none does."""
    slope, slack = float(g @ p), _rounding(asked) * abs(loss)
    for k in range(HALVINGS + 1):
        length = 0.5**k
        with elsewhere(asked.parameters):
            _move(asked, p, length)
            value = asked.value()
        if value <= loss + DECREASE * length * slope + slack:
            return _move(asked, p, length)
    return 0.0
