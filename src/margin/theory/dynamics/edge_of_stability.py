r"""The edge of stability: the curvature at which an optimizer's step stops contracting (Cohen et al., 2021).

On a quadratic loss with Hessian H gradient descent at rate eta is stable if and only if no eigenvalue exceeds
:math:`2 / \eta`; with heavy-ball momentum beta the limit is :math:`2 (1 + \beta) / \eta`, with Nesterov's
:math:`2 (1 + \beta) / (\eta (1 + 2 \beta))`. An adaptive optimizer that divides its step by P is such a
method for :math:`P^{-1/2} H P^{-1/2}` (Cohen et al., 2022). Full-batch training drives the largest eigenvalue
up to the limit, where it hovers: a law found by experiment, not a theorem.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from margin.core.findings import Finding, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.loop import State
from margin.optim.heavy_ball import HeavyBall
from margin.optim.nesterov import Nesterov
from margin.theory.curvature.hessian import risk_hessian
from margin.theory.curvature.lanczos import SEED, extreme_eigenvalues

KNOWN = (SGD, HeavyBall, Nesterov, Adam, AdamW, RMSprop, Adagrad)
RESIDUAL = 1e-2
"""Largest residual of the sharpness, relative to the largest magnitude of the spectrum."""


class Edge(NamedTuple):
    """What an optimizer's step looks like near a minimum, one number for each parameter.

    It is stable while the largest eigenvalue of D (H + C) D + W stays below the limit, D, C, W diagonal with
    the entries ``scale``, ``coupled`` and ``decoupled``.
    """

    limit: float
    scale: Float[Tensor, " dim"]
    coupled: Float[Tensor, " dim"]
    decoupled: Float[Tensor, " dim"]


def edge_of(optimizer: Optimizer, parameters: Sequence[Tensor]) -> Edge:
    r"""The limit of stability of an optimizer at its present state, and the map that it limits.

    A rate of its own for a group of parameters is part of the preconditioner. A penalty |theta|^2 / 2 adds to
    the Hessian; decay apart from the gradient (AdamW) at the rate w adds :math:`w (1 + \beta) / (1 - \beta)`.

    Args:
        optimizer: SGD, HeavyBall, Nesterov, Adam, AdamW, RMSprop or Adagrad.
        parameters: Those that the Hessian is taken by, in its order; one that the optimizer has not moved
            yet has scale 0.

    Raises:
        ValueError: No limit is known: it is another optimizer, its groups have different momenta, its rate
            is 0, or it maximizes.

    Reference: Cohen, Kaur, Li, Kolter and Talwalkar 2021, Section 2; Cohen et al. 2022, Section 2 (the
    preconditioner, with Adam's correction of its first moment). With weight decay: the eigenvalue -1 of the
    recurrence.
    """
    groups = optimizer.param_groups
    _check(optimizer, groups)
    eta = float(groups[0]["lr"])
    limit, gain = _limit(optimizer, groups[0])
    of = {id(p): group for group in groups for p in group["params"]}
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    for p in parameters:
        group = of.get(id(p))
        P = None if group is None else _preconditioner(optimizer, group, p)
        if group is None or P is None:
            zeros = torch.zeros(p.numel(), dtype=p.dtype, device=p.device)
            rows.append((zeros, zeros, zeros))
            continue
        rate = float(group["lr"]) / eta
        decay, none = torch.full_like(P, float(group.get("weight_decay", 0))), torch.zeros_like(P)
        apart = isinstance(optimizer, AdamW) or bool(group.get("decoupled_weight_decay", False))
        scale = (rate / P).sqrt()
        rows.append((scale, none, decay * rate * gain) if apart else (scale, decay, none))
    return Edge(limit / eta, *(torch.cat(parts) for parts in zip(*rows, strict=True)))


def _check(optimizer: Optimizer, groups: list[dict[str, Any]]) -> None:
    names = ", ".join(kind.__name__ for kind in KNOWN)
    if not isinstance(optimizer, KNOWN):
        raise ValueError(f"a limit of stability is known of {names}: got {type(optimizer).__name__}")
    momenta = {
        repr((g.get("momentum"), g.get("betas"), g.get("dampening"), g.get("nesterov"))) for g in groups
    }
    if len(momenta) > 1:
        raise ValueError(
            f"a limit of stability needs one momentum: the groups have {', '.join(sorted(momenta))}"
        )
    if any(group.get("maximize", False) for group in groups):
        raise ValueError("a limit of stability is of a descent: this optimizer maximizes")
    if groups[0].get("momentum") == "convex":
        raise ValueError("a limit of stability needs a constant momentum: got momentum='convex'")
    if not all(float(group["lr"]) > 0 for group in groups):
        raise ValueError("a limit of stability needs a learning rate above 0: it is 0")


def _limit(optimizer: Optimizer, group: dict[str, Any]) -> tuple[float, float]:
    """Eta times the limit, and by how much momentum multiplies decay that is apart from the gradient."""
    if isinstance(optimizer, Adam):
        beta = float(group["betas"][0])
        gain = (1 + beta) / (1 - beta)
        return 2 * gain, gain
    beta = float(group.get("momentum", 0))
    if isinstance(optimizer, Nesterov) or group.get("nesterov", False):
        return 2 * (1 + beta) / (1 + 2 * beta), 1.0
    damped = 1 - float(group.get("dampening", 0)) if beta else 1.0
    return 2 * (1 + beta) / damped, 1.0


def _preconditioner(optimizer: Optimizer, group: dict[str, Any], p: Tensor) -> Tensor | None:
    """What the optimizer divides the gradient by, beside its rate; None where it has not moved ``p`` yet."""
    if isinstance(optimizer, SGD | HeavyBall | Nesterov):
        return torch.ones(p.numel(), dtype=p.dtype, device=p.device)
    kept = optimizer.state.get(p) or {}
    steps = float(kept.get("step", 0))
    if steps == 0:
        return None
    if isinstance(optimizer, Adam):
        first, second = (1 - float(beta) ** steps for beta in group["betas"])
        v = kept["max_exp_avg_sq"] if group["amsgrad"] else kept["exp_avg_sq"]
        P = first * ((v / second).sqrt() + group["eps"])
    elif isinstance(optimizer, Adagrad):
        P = (kept["sum"].sqrt() + group["eps"]) * (1 + (steps - 1) * group["lr_decay"])
    else:
        v = kept["square_avg"] - kept["grad_avg"].square() if group["centered"] else kept["square_avg"]
        P = v.clamp(min=0).sqrt() + group["eps"]
    return P.detach().reshape(-1).to(p.dtype)


def track(state: State, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
    """The sharpness of the training loss beside the limit of the optimizer's stability; leaves no trace.

    The loss is over all training examples, asked in evaluation mode: every evaluation of the training costs
    some tens of products with its Hessian.

    Args:
        state: Of the training; the weights that its optimizer moves are asked.
        objective: The loss of each term.
        batches: The training part in order.

    Returns:
        ``sharpness``, the largest eigenvalue of the (preconditioned) Hessian, penalty included, NaN where it
        is not found; ``stability_limit``.

    Raises:
        ValueError: There is not one optimizer, or no limit is known of it.
    """
    if len(state.optimizers) != 1:
        raise ValueError(f"the edge of stability is that of one optimizer: there are {len(state.optimizers)}")
    (optimizer,) = state.optimizers.values()
    with risk_hessian(state.model, batches, objective) as hessian:
        edge = edge_of(optimizer, hessian.parameters)

        def product(v: Tensor) -> Tensor:
            inner = edge.scale * v
            return edge.scale * (hessian(inner) + edge.coupled * inner) + edge.decoupled * v

        if not bool(edge.scale.any()):
            return {"sharpness": math.nan, "stability_limit": edge.limit}
        found = extreme_eigenvalues(product, hessian.start(SEED), ends=("largest",), tol=RESIDUAL)
        settled = found.converged and hessian.finite
    return {
        "sharpness": float(found.values[0]) if settled else math.nan,
        "stability_limit": edge.limit,
    }


class Followed(NamedTuple):
    """Sharpness and limit at the steps of a history that hold both."""

    step: Float[Tensor, " rows"]
    sharpness: Float[Tensor, " rows"]
    limit: Float[Tensor, " rows"]


def followed(subject: Subject) -> Followed:
    """The sharpness of a training, as its history has it; rows without a finite number are left out."""
    names = ("step", "sharpness", "stability_limit")
    rows = [[row.get(name) for name in names] for row in subject.history]
    known = [row for row in rows if all(isinstance(x, int | float) and math.isfinite(x) for x in row)]
    return Followed(*torch.tensor(known, dtype=torch.float64).reshape(-1, len(names)).T)


def has_edge(subject: Subject) -> bool:
    """Whether the history holds the sharpness beside the limit of stability."""
    return any("sharpness" in row and "stability_limit" in row for row in subject.history)


def ratio(subject: Subject) -> Finding:
    """The sharpness in units of the optimizer's limit of stability, over the last third of a training.

    About 1: the training went at the edge. Well below: the steps were short for the curvature that the
    training met, or noise kept it away from sharp places, as small batches do. Above: its steps overshoot.

    Args:
        subject: A subject whose training was followed by the track ``theory/edge_of_stability``.
    """
    found = followed(subject)
    share = found.sharpness / found.limit
    last = share[-max(1, math.ceil(len(share) / 3)) :]
    value = last.mean() if len(share) else torch.tensor(math.nan, dtype=torch.float64)
    extremes = f"from {float(last.min()):.3g} to {float(last.max()):.3g}" if len(last) else "unknown"
    above = f"{int((last > 1).sum())} of its {len(last)}" if len(last) else "none of its"
    return Finding(
        statement="The largest eigenvalue of the training loss's Hessian in units of the limit beyond which "
        "the optimizer's step is unstable on a quadratic, its mean over the last third of the training: "
        f"there it goes {extremes}, and lies above 1 in {above} evaluations.",
        value=value,
        unit="limit of stability",
        range=(-math.inf, math.inf),
        premises=(),
        reference="Cohen, Kaur, Li, Kolter and Talwalkar 2021, Section 3; Cohen et al. 2022, Section 2",
        kind="estimate",
        interval=(value - RESIDUAL * value.abs(), value + RESIDUAL * value.abs()),
        failure="" if len(share) else "no evaluation of the training found the sharpness",
        curves={"step": found.step, "sharpness": found.sharpness, "stability limit": found.limit},
    )


class Product(nn.Module):
    """The function u v of its two weights, whatever the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([3.0, 0.2], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """The same value for every example."""
        return self.weights.prod().expand(len(x))


def demo() -> Subject:
    """The loss (u v - 1)^2 / 2, by gradient descent at rate 1/4 from (3, 0.2), where the sharpness is 9.

    At a minimum the sharpness is u^2 + v^2. The descent cannot rest where that exceeds 2 / eta = 8,
    and comes to rest below.
    """
    model, history = Product(), []
    batch = Batch((torch.zeros(2, dtype=torch.float64),), torch.ones(2, dtype=torch.float64))

    def objective(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        return (model(*batch.inputs) - 1).square() / 2

    state = State({"model": model}, {"": SGD(model.parameters(), lr=0.25)})
    for step in range(1, 19):
        loss = objective(model, batch, state.generator).mean()
        (model.weights.grad,) = torch.autograd.grad(loss, [model.weights])
        state.optimizers[""].step()
        history.append({"step": step, **track(state, objective, [batch])})
    return Subject(
        model=model, test=[batch], train=[batch], task=VALUES, objective=objective, history=history
    )
