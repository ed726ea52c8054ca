"""How fast a training went, beside the theorem that speaks of it, where one does.

The bound for convex functions (Beck and Teboulle 2009, Theorem 3.1) is of gradient descent at a constant rate
on the whole training loss. Whether a training was that is found by repeating it from its first weights.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.evaluation import eval_mode, evaluate, weighted_sum
from margin.engine.loop import risk
from margin.theory.curvature.convex import is_affine, loss_of
from margin.theory.curvature.trained_weights import differentiated
from margin.theory.dynamics.rates import FEWEST, convex_bound, fitted_exponent, fitted_rate
from margin.theory.dynamics.weight_function import Curved, WeightFunction, curved

REPEATED = 20_000_000
"""Examples that a repeated training may go through, steps times examples."""

SHARE = 1e-3
"""How far from an iterate, as a share of the way that training went, its weights may be by rounding."""

PIECES = 20
"""Pieces of the segment between the first weights and the last."""


def training_rows(subject: Subject) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"]]:
    """The steps and the training losses of a history, where both are known and finite."""
    rows = [(row.get("step"), row.get("train_loss")) for row in subject.history]
    known = [(float(s), float(x)) for s, x in rows if _number(s) and _number(x)]
    known = [(s, x) for s, x in known if s > 0]
    found = torch.tensor(known, dtype=torch.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and math.isfinite(value)


def has_enough_rows(subject: Subject) -> bool:
    """Whether the history holds enough training losses, all positive, to fit a rate."""
    steps, losses = training_rows(subject)
    return len(steps) >= FEWEST and bool((losses > 0).all()) and bool((steps.diff() > 0).all())


def fitted(subject: Subject) -> Finding:
    """The rate at which the training loss fell: the factor a step, and the power of the step.

    Which of the two describes the training better is the one of the smaller error; neither is promised by a
    theorem. What an irreducible loss hides is not seen: the values are of the loss, not of its gap.

    Args:
        subject: A model with a history of at least 8 training losses, all positive.
    """
    steps, losses = training_rows(subject)
    value = errors = torch.full((2,), math.nan, dtype=torch.float64)
    failure = ""
    if has_enough_rows(subject):
        rate = fitted_rate(losses, every=float((steps[-1] - steps[0]) / (len(steps) - 1)))
        power = fitted_exponent(steps, losses)
        value = torch.tensor([rate.value, power.value], dtype=torch.float64)
        errors = torch.tensor([rate.stderr, power.stderr], dtype=torch.float64)
    else:
        failure = f"a rate needs at least {FEWEST} training losses, all positive: got {len(steps)}"
    return Finding(
        statement=f"How fast the training loss fell over {len(steps)} evaluations: its factor a step, if the "
        "fall is geometric, and its power of the step, if it is algebraic; the errors are of four stretches.",
        value=value,
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=errors,
        labels=("factor a step", "power of the step"),
        failure=failure,
        curves={"step": steps, "training loss": losses} if len(steps) > 1 else {},
    )


class Repeated(NamedTuple):
    """What repeating a training as gradient descent gave.

    Args:
        step: The iterate nearest to the model's weights.
        off: Their distance, as a share of the way from the first weights to the model's.
    """

    step: int
    off: float


def repeat_descent(subject: Subject, lr: float, steps: int) -> Repeated:
    """Gradient descent on the whole training loss from the first weights, compared with the model's.

    Args:
        subject: A model with its first weights and its training examples.
        lr: The rate.
        steps: How many steps are repeated.
    """
    if subject.initial is None:
        raise ValueError("a training is repeated from its first weights: they are not known")
    model = copy.deepcopy(subject.initial)
    wanted, first = _vector(subject.model), _vector(subject.initial)
    way = float((wanted - first).norm())
    nearest = Repeated(0, 1.0)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for step in range(1, steps + 1):
        with torch.no_grad():
            for parameter, grad in zip(
                parameters, _gradient(model, subject.train, subject.objective), strict=True
            ):
                parameter.sub_(grad, alpha=lr)
        off = float((_vector(model) - wanted).norm()) / max(way, 1e-300)
        if off < nearest.off:
            nearest = Repeated(step, off)
    return nearest


def _vector(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1).double() for p in model.parameters() if p.requires_grad])


def _gradient(model: nn.Module, batches: Sequence[Batch], objective: Objective) -> list[Tensor]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    grads, count = [torch.zeros_like(p) for p in parameters], 0.0
    with eval_mode(model) as generator, torch.enable_grad():
        for batch in batches:
            total, weight = weighted_sum(objective(model, batch, generator), batch.weight)
            for kept, grad in zip(grads, torch.autograd.grad(total, parameters), strict=True):
                kept += grad
            count += float(weight)
    return [grad / count for grad in grads]


def is_repeatable(subject: Subject) -> bool:
    """Whether the training had one learning rate, and was short enough to be repeated step by step."""
    steps = _last_step(subject)
    examples = sum(len(batch.inputs[0]) for batch in subject.train)
    return has_constant_rate(subject) and steps >= 1 and 0 < steps * examples <= REPEATED


def has_constant_rate(subject: Subject) -> bool:
    """Whether the history holds a learning rate, always the same."""
    return len({row["lr"] for row in subject.history if _number(row.get("lr"))}) == 1


def _last_step(subject: Subject) -> int:
    return max((int(row["step"]) for row in subject.history if _number(row.get("step"))), default=0)


def training(subject: Subject) -> Finding:
    r"""The training loss that a convex training reached, and the most that it may be.

    .. math:: h(\theta_t) \le \min_z h(z) + \frac{|\theta_0 - z|^2}{2 \eta t}

    for gradient descent at a constant eta <= 1/L. Any z will do, so no minimizer need exist: of separable
    classes it does not. The z is sought by L-BFGS from theta_0, without a look at what training found.

    Args:
        subject: A model whose outputs are affine in its weights, with its first weights, its training
            examples and a history.

    Reference: Beck and Teboulle 2009, Theorem 3.1.
    """
    task = loss_of(subject)
    if task is None or subject.initial is None:
        raise ValueError("the question needs a convex loss of the outputs, and the first weights")
    h = WeightFunction(subject.model, subject.train, subject.objective)
    known = curved(h, task)
    rates = [float(row["lr"]) for row in subject.history if _number(row.get("lr"))]
    eta = rates[0] if rates else math.nan
    constant = has_constant_rate(subject)
    found = repeat_descent(subject, eta, _last_step(subject)) if constant else Repeated(0, math.inf)
    same = found.step >= 1 and found.off <= SHARE
    premises = (
        *known.premises,
        Premise(
            "training was gradient descent on the whole loss at a constant rate",
            "proved" if same else "refuted",
            _repeated_words(found, constant, same),
        ),
        _rate_premise(rates, known),
    )
    high = None
    if same and not known.failure:
        z = nearby(h, h.of(subject.initial), 2 * eta * found.step)
        distance = float((z - h.of(subject.initial)).norm())
        high = h(z).detach().cpu() + convex_bound(distance, eta, found.step)
    value = h(h.weights).detach().cpu()
    return Finding(
        statement=f"The mean training loss after {found.step:,} steps of gradient descent is at most the "
        "loss at any other weights z plus |theta_0 - z|^2 / (2 eta t).",
        value=value,
        unit="loss",
        range=(0.0, math.inf),
        high=high,
        tolerance=1e-5 * float(value.abs()),
        premises=premises,
        failure=known.failure,
    )


def _rate_premise(rates: Sequence[float], known: Curved) -> Premise:
    text = "the rate is at most 1/L"
    if not rates or known.failure:
        return Premise(text, "assumed", "the rate or L is not known")
    within = max(rates) <= (1 + 1e-6) / known.L
    evidence = f"it is {max(rates):.4g}, 1/L is {1 / known.L:.4g}"
    return Premise(text, "proved" if within else "refuted", evidence)


def _repeated_words(found: Repeated, constant: bool, same: bool) -> str:
    if not constant:
        return "the learning rate is not known, or it changes over the history"
    where = (
        f"repeated, step {found.step:,} comes nearest to the weights, at {found.off:.2g} of the way they went"
    )
    return (
        where if same else f"{where}: momentum, minibatches, a penalty or augmentation make such a difference"
    )


def nearby(h: WeightFunction, start: Float[Tensor, " dim"], width: float) -> Float[Tensor, " dim"]:
    r"""Weights z of small h(z) + \|z - start\|^2 / width, by L-BFGS from the start.

    Args:
        h: A convex mean loss.
        start: theta_0.
        width: 2 eta t, > 0.
    """
    z = start.clone().requires_grad_()
    solver = torch.optim.LBFGS([z], max_iter=100, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        total = h(z) + (z - start).square().sum() / width
        (z.grad,) = torch.autograd.grad(total, z)
        return total.detach()

    solver.step(closure)
    return z.detach()


def segment(subject: Subject, *, examples: int | None = 1024) -> Finding:
    """The least curvature of the loss along the segment from the first weights to the last.

    A convex loss has none below 0. Buffers (the statistics of batch normalization) stay the last model's.

    Args:
        subject: A model with the weights that its training began with.
        examples: About how many examples the loss is taken over; None: all.
    """
    if subject.initial is None:
        raise ValueError("a segment needs the weights that training began with: they are not known")
    sample = differentiated(subject, examples)
    shares = torch.linspace(0, 1, PIECES + 1, dtype=torch.float64)
    model = copy.deepcopy(subject.model)
    losses = []
    for share in shares.tolist():
        with torch.no_grad():
            for moved, first, last in zip(
                model.parameters(), subject.initial.parameters(), subject.model.parameters(), strict=True
            ):
                moved.copy_(first + share * (last - first) if share < 1 else last)
        losses.append(evaluate(model, sample.batches, subject.task, subject.objective)["loss"])
    loss = torch.tensor(losses, dtype=torch.float64)
    bends = loss.diff().diff() * PIECES**2
    convex = is_affine(subject)
    eps = torch.finfo(next(model.parameters()).dtype).eps
    return Finding(
        statement=f"The least second difference of the mean loss over {sample.words} along the segment from "
        "the first weights to the last, per square of the way. Of a convex loss none is below 0.",
        value=bends.min(),
        unit="loss",
        range=(-math.inf, math.inf),
        low=torch.tensor(0.0) if convex else None,
        tolerance=16 * eps * PIECES**2 * float(loss.abs().max()),
        premises=(_convexity(convex),),
        failure="" if bool(loss.isfinite().all()) else "the loss is not finite",
        curves={"share of the way": shares, "loss": loss},
    )


def _convexity(affine: bool) -> Premise:
    if affine:
        return Premise(
            "the loss is convex in the weights",
            "sampled",
            "the outputs agree with their differences along random directions; the loss is convex in them",
        )
    return Premise("nothing is promised", "assumed", "the outputs are not known to be affine in the weights")


def demo() -> Subject:
    """Nine steps of gradient descent at the rate 1/L = 1/4 on a line fitted to five points, from (0, 0)."""
    x = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=torch.float64)
    y = torch.tensor([1.0, -1.0, 2.0, 1.0, 4.0], dtype=torch.float64)
    batch = Batch((x[:, None],), y)
    models = [nn.Sequential(nn.Linear(1, 1), nn.Flatten(0)).double() for _ in range(2)]
    for parameter in (p for model in models for p in model.parameters()):
        nn.init.zeros_(parameter)
    history = []
    for step in range(1, 10):
        grads = _gradient(models[1], [batch], risk(VALUES))
        loss = evaluate(models[1], [batch], VALUES, risk(VALUES))["loss"]
        history.append({"step": step, "train_loss": loss, "lr": 0.25})
        with torch.no_grad():
            for parameter, grad in zip(models[1].parameters(), grads, strict=True):
                parameter.sub_(grad, alpha=0.25)
    return Subject(
        model=models[1],
        initial=models[0],
        test=[batch],
        train=[batch],
        task=VALUES,
        objective=risk(VALUES),
        history=history,
    )
