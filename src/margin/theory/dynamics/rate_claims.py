r"""First-order methods on a model's own training loss, convex in the weights, beside their bounds.

Each question runs a method on a copy of the model, from the weights that the training began with where they
are known, else from 0. The constants of the theorems come from the data, not from the run.

The Polyak-Lojasiewicz ratio says how steep the loss is for its height (Polyak 1963):

.. math:: \mu_t = \frac{|\nabla h(\theta_t)|^2}{2 (h(\theta_t) - h^*)}

Were it at least mu at *all* weights, gradient descent at eta = 1/L would shrink the gap by 1 - mu/L a step.
On a path it is a measurement: it is no constant of the function, and no rate can be promised from it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.evaluation import eval_mode, weighted_sum
from margin.engine.loop import State, risk
from margin.optim.momentum import HeavyBall, Nesterov
from margin.theory.curvature.convex import loss_of
from margin.theory.curvature.trained_weights import (
    NO_LOSS,
    UNIT,
    Quadratic,
    Sample,
    differentiated,
    of_weights,
)
from margin.theory.curvature.twice_differentiable import twice_differentiable
from margin.theory.dynamics.rates import (
    Make,
    Path,
    follow,
    heavy_ball_bound,
    heavy_ball_options,
    linear_factor,
    nesterov_bound,
    stationary_bound,
)
from margin.theory.dynamics.weight_function import Curved, WeightFunction, curved

STEPS = (1, 10, 100)
"""Steps after which the bounds are looked at."""

FLAT = 1e-8
"""Curvatures below this share of the largest are left out: along them the methods hardly move."""

ROUNDING = 1e-9


class Posed(NamedTuple):
    """The mean loss of a subject, its constants, and where methods begin."""

    h: WeightFunction
    known: Curved
    start: Float[Tensor, " dim"]
    sample: Sample


def posed(subject: Subject, examples: int | None) -> Posed:
    """The mean loss over about so many training examples, with what is known of it.

    Raises:
        ValueError: The loss is not one whose curvature is known.
    """
    task = loss_of(subject)
    if task is None:
        raise ValueError("the question needs a squared error or a cross-entropy of the model's outputs")
    sample = differentiated(subject, examples)
    h = WeightFunction(subject.model, sample.batches, subject.objective)
    start = torch.zeros_like(h.weights) if subject.initial is None else h.of(subject.initial)
    known = curved(h, task)
    premises = (*known.premises, twice_differentiable(subject))
    return Posed(h, known._replace(premises=premises), start, sample)


def _begins(subject: Subject) -> str:
    return "from 0" if subject.initial is None else "from the weights that training began with"


def _run(problem: Posed, steps: int, make: Make) -> Path | None:
    return None if problem.known.failure else follow(problem.h, problem.start, make, steps)


def descent(subject: Subject, *, examples: int | None = 4096) -> Finding:
    r"""The least decrease of the loss by a step of gradient descent at 1/L, in units of \|g\|^2 / (2 L).

    The descent lemma promises at least 1; convexity, that a step cannot gain more than 2.

    Args:
        subject: A model whose outputs are affine in its weights.
        examples: About how many examples the loss is taken over; None: all.
    """
    problem = posed(subject, examples)
    L = problem.known.L
    path = _run(problem, 20, lambda ps: torch.optim.SGD(ps, lr=1 / L))
    value, failure, curves = math.nan, problem.known.failure, {}
    if path is not None:
        promised = path.gradient_norms[:-1].square() / (2 * L)
        told = promised > 1e-10 * path.values[:-1].abs()  # what is less drowns in the loss's rounding
        ratios = (-path.values.diff() / promised)[told]
        failure = "" if len(ratios) else "the gradient is 0 where the method begins"
        value = float(ratios.min()) if len(ratios) else math.nan
        curves = {"step": torch.arange(len(path.values)).double(), "loss": path.values.cpu()}
    return Finding(
        statement=f"The least decrease of the mean loss over {problem.sample.words} by a step of gradient "
        f"descent at the rate 1/L, L = {L:.4g}, {_begins(subject)}, over |gradient|^2 / (2 L).",
        value=torch.tensor(value, dtype=torch.float64),
        range=(-math.inf, math.inf),
        low=torch.tensor(1.0),
        high=torch.tensor(2.0),
        tolerance=1e-5,
        premises=problem.known.premises,
        failure=failure,
        curves=curves,
    )


def stationary(subject: Subject, *, examples: int | None = 4096) -> Finding:
    """The least squared gradient among the first T iterates of gradient descent, at most 2 L h_0 / T.

    Args:
        subject: A model whose outputs are affine in its weights.
        examples: About how many examples the loss is taken over; None: all.
    """
    problem = posed(subject, examples)
    L, value, high = problem.known.L, torch.full((len(STEPS),), math.nan, dtype=torch.float64), None
    curves: Mapping[str, Tensor] = {}
    path = _run(problem, STEPS[-1], lambda ps: torch.optim.SGD(ps, lr=1 / L))
    if path is not None:
        squares = path.gradient_norms.square()
        gap = float(path.values[0])  # no loss is negative
        bound = [stationary_bound(gap, L, T) for T in range(1, STEPS[-1] + 1)]
        value, high, _, curves = _beside(squares.cpu().cummin(0).values[: STEPS[-1]], bound)
    return Finding(
        statement=f"The least squared gradient of the mean loss over {problem.sample.words} among the "
        f"first T iterates of gradient descent at the rate 1/L, {_begins(subject)}: at most 2 L h_0 / T.",
        value=value,
        unit="loss^2 / weight^2",
        range=(0.0, math.inf),
        high=high,
        tolerance=ROUNDING,
        labels=tuple(f"T = {T}" for T in STEPS),
        premises=(
            *problem.known.premises,
            Premise("no loss is negative", "proved", "it is a square or a cross-entropy of classes"),
        ),
        failure=problem.known.failure,
        curves=curves,
    )


class Eigenbasis(NamedTuple):
    """A quadratic loss along the eigendirections that are not flat: their curvatures and the minimizer."""

    problem: Posed
    curvatures: Float[Tensor, " kept"]
    basis: Float[Tensor, "dim kept"]
    minimizer: Float[Tensor, " kept"]

    def errors(self, path: Path) -> Float[Tensor, "iterates kept"]:
        """Theta_t - theta* along the kept directions."""
        return path.points.cpu() @ self.basis - self.minimizer


def quadratic(problem: Posed) -> Eigenbasis:
    """The eigendirections of a quadratic loss, and its minimizer along them."""
    start = problem.start.cpu()
    values, vectors = torch.linalg.eigh(problem.known.matrix)
    kept = values > FLAT * values[-1]
    curvatures, basis = values[kept], vectors[:, kept]
    theta = problem.start.clone().requires_grad_()
    (slope,) = torch.autograd.grad(problem.h(theta), theta)
    return Eigenbasis(problem, curvatures, basis, start @ basis - (slope.cpu() @ basis) / curvatures)


class Compared(NamedTuple):
    """What a method left after 1, 10 and 100 steps, the bound on it, and both after every step."""

    value: Tensor
    high: Tensor | None
    failure: str
    curves: Mapping[str, Tensor]


def _beside(left: Tensor, bound: Sequence[float]) -> Compared:
    """What was left after the first step and each other, beside its bound."""
    rows, high = [t - 1 for t in STEPS], torch.tensor(bound, dtype=torch.float64)
    steps = torch.arange(1, len(left) + 1).double()
    curves = {"step": steps, "measured": left, "bound": high}
    return Compared(left[rows], high[rows], "", curves)


def _compared(problem: Posed) -> tuple[Eigenbasis | None, Compared]:
    failure = problem.known.failure
    found = None if failure else quadratic(problem)
    if found is not None and not bool((problem.start.cpu() @ found.basis - found.minimizer).abs().max() > 0):
        found, failure = None, "the method begins at the minimum"
    return found, Compared(torch.full((len(STEPS),), math.nan, dtype=torch.float64), None, failure, {})


def linear(subject: Subject, *, examples: int | None = 4096) -> Finding:
    """The share of the gap left by T steps of gradient descent at 1/L, at most (1 - mu/L)^T.

    mu is the least curvature that is not flat: the loss need not be strongly convex, only to satisfy the
    condition of Polyak and Lojasiewicz.

    Args:
        subject: A model of few weights whose outputs are affine in them, with the squared error.
        examples: About how many examples the loss is taken over; None: all.
    """
    problem = posed(subject, examples)
    found, result = _compared(problem)
    if found is not None:
        mu, L = float(found.curvatures[0]), problem.known.L
        path = follow(problem.h, problem.start, lambda ps: torch.optim.SGD(ps, lr=1 / L), STEPS[-1])
        gaps = found.errors(path).square() @ found.curvatures / 2
        result = _beside(gaps[1:] / gaps[0], [linear_factor(mu, L) ** t for t in range(1, len(gaps))])
    return _finding(
        subject,
        problem,
        result,
        "The share of the gap to the least mean loss",
        "gradient descent at 1/L",
    )


def accelerated(subject: Subject, *, examples: int | None = 4096) -> Finding:
    r"""The gap left by t steps of Nesterov's method, in units of L \|theta_0 - theta*\|^2 / 2.

    At most 4 / (t + 1)^2, whatever the condition number.

    Args:
        subject: A model of few weights whose outputs are affine in them, with the squared error.
        examples: About how many examples the loss is taken over; None: all.
    """
    problem = posed(subject, examples)
    found, result = _compared(problem)
    if found is not None:
        L = problem.known.L
        path = follow(
            problem.h, problem.start, lambda ps: Nesterov(ps, lr=1 / L, momentum="convex"), STEPS[-1]
        )
        errors = found.errors(path)
        distance = float(errors[0].norm())
        gaps = errors.square() @ found.curvatures / 2
        unit = L * distance**2 / 2
        bound = [nesterov_bound(distance, L, t) / unit for t in range(1, len(gaps))]
        result = _beside(gaps[1:] / unit, bound)
    return _finding(
        subject,
        problem,
        result,
        "The gap to the least mean loss, over L |theta_0 - theta*|^2 / 2,",
        "Nesterov's method at 1/L",
    )


def heavy_ball(subject: Subject, *, examples: int | None = 4096) -> Finding:
    r"""The share of \|theta_0 - theta*\| left by t steps of the best heavy ball, and its bound.

    The bound is (1 + (1 + r) t) r^t with r = (sqrt k - 1) / (sqrt k + 1), k the condition number.

    Args:
        subject: A model of few weights whose outputs are affine in them, with the squared error.
        examples: About how many examples the loss is taken over; None: all.
    """
    problem = posed(subject, examples)
    found, result = _compared(problem)
    if found is not None:
        mu, L = float(found.curvatures[0]), problem.known.L
        options = heavy_ball_options(mu, L)
        path = follow(
            problem.h,
            problem.start,
            lambda ps: HeavyBall(ps, lr=options.lr, momentum=options.momentum),
            STEPS[-1],
        )
        distances = torch.linalg.vector_norm(found.errors(path), dim=1)
        bound = [heavy_ball_bound(1.0, mu, L, t) for t in range(1, len(distances))]
        result = _beside(distances[1:] / distances[0], bound)
    return _finding(
        subject,
        problem,
        result,
        "The share of the distance to the minimizer",
        "the heavy ball of best options",
    )


# a finding's fields that the three questions about a quadratic share
def _finding(subject: Subject, problem: Posed, result: Compared, what: str, method: str) -> Finding:
    return Finding(
        statement=f"{what} of {problem.sample.words} left by t steps of {method}, {_begins(subject)}, "
        "along the eigendirections that are not flat.",
        value=result.value,
        range=(0.0, math.inf),
        high=result.high,
        tolerance=ROUNDING,
        labels=tuple(f"t = {t}" for t in STEPS),
        premises=(
            *problem.known.premises,
            Premise("the loss is quadratic", "proved", "a square of outputs that are affine in the weights"),
        ),
        failure=result.failure,
        curves=result.curves,
    )


def demo() -> Subject:
    """A line fitted to five points by least squares, from (0, 0): curvatures 2 and 4."""
    return _line(1.0)


def valley_demo() -> Subject:
    """The same with inputs that are five times smaller: curvatures 2 and 0.16, a long narrow valley."""
    return _line(0.2)


def _line(scale: float) -> Subject:
    x = scale * torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=torch.float64)
    y = torch.tensor([1.0, -1.0, 2.0, 1.0, 4.0], dtype=torch.float64)
    batch = Batch((x[:, None],), y)
    model = nn.Sequential(nn.Linear(1, 1), nn.Flatten(0)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))


COLUMN = "pl_ratio"
"""The column of a history in which the track writes the ratio."""


class Slope(NamedTuple):
    """The mean loss, its gradient's norm, and the least loss of a term."""

    risk: float
    gradient_norm: float
    least: float


def pl_ratio(gradient_norm: float, gap: float) -> float:
    r"""The ratio :math:`|g|^2 / (2\,\text{gap})`; NaN where the gap is not positive.

    With a lower bound of the least loss in place of h* the gap is too large, and the ratio a lower estimate.

    Args:
        gradient_norm: \|g\|.
        gap: h - h*, or more.

    Reference: Polyak 1963; Karimi, Nutini and Schmidt 2016, Equation 3.
    """
    return gradient_norm**2 / (2 * gap) if gap > 0 else math.nan


def slope_of(model: nn.Module, batches: Sequence[Batch], objective: Objective) -> Slope:
    """The mean loss over batches and its gradient's norm, by all trainable weights; leaves no trace.

    Args:
        model: Asked in evaluation mode.
        batches: The examples.
        objective: The loss of each term.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    grads = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
    total, count, least = 0.0, 0.0, math.inf
    with eval_mode(model) as generator, torch.enable_grad():
        for batch in batches:
            terms = objective(model, batch, generator)
            summed, weight = weighted_sum(terms, batch.weight)
            found = torch.autograd.grad(summed, parameters, allow_unused=True)
            for kept, grad in zip(grads, found, strict=True):
                if grad is not None:
                    kept += grad.double()
            total, count = total + float(summed.detach()), count + float(weight)
            seen = (
                terms.detach() if batch.weight is None else terms.detach()[batch.weight.to(terms.device) != 0]
            )
            least = min(least, float(seen.min())) if seen.numel() else least
    norm = math.sqrt(sum(float(grad.square().sum()) for grad in grads))
    return Slope(total / count, norm / count, least) if count else Slope(math.nan, math.nan, math.nan)


def track(state: State, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
    """The ratio during a training, over the whole training part; leaves no trace.

    Args:
        state: Of the training; the model that a user gets is asked.
        objective: The loss of each term, not negative: 0 stands for the least loss, which is not known.
        batches: The training part in order.

    Returns:
        ``risk``, ``risk_gradient_norm`` and ``pl_ratio``, NaN where a loss is negative.
    """
    found = slope_of(state.usable, batches, objective)
    ratio = pl_ratio(found.gradient_norm, found.risk) if found.least >= 0 else math.nan
    return {"risk": found.risk, "risk_gradient_norm": found.gradient_norm, COLUMN: ratio}


def along_path(subject: Subject, *, examples: int | None = 4096) -> Finding:
    """The least Polyak-Lojasiewicz ratio at the visited weights, with 0 for the least loss.

    They are the weights themselves, those that the training began with where they are known, and those of
    the evaluations of a training that tracked it.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        examples: About how many examples the risk is taken over; None: all.
    """
    sample = differentiated(subject, examples)
    models = [subject.model] + ([subject.initial] if subject.initial is not None else [])
    slopes = [slope_of(model, sample.batches, subject.objective) for model in models]
    ratios = [pl_ratio(slope.gradient_norm, slope.risk) for slope in slopes]
    rows = [(float(row.get("step", i)), row.get(COLUMN)) for i, row in enumerate(subject.history)]
    tracked = [(s, float(x)) for s, x in rows if isinstance(x, int | float) and math.isfinite(x)]
    least = min(slope.least for slope in slopes)
    failure = "" if all(math.isfinite(slope.risk) for slope in slopes) else NO_LOSS
    if not failure and not all(math.isfinite(slope.gradient_norm) for slope in slopes):
        failure = "the gradient of the loss is not finite"
    if not failure and any(slope.risk == 0 for slope in slopes):
        raise NotAsked("a loss is 0: there is no gap to the least one")
    value = min([*ratios, *(x for _, x in tracked)], default=math.nan) if not failure else math.nan
    where = "the weights" + (" and those that training began with" if subject.initial is not None else "")
    where += f" and {len(tracked)} evaluations of the training" if tracked else ""
    curves = torch.tensor(tracked, dtype=torch.float64).T if len(tracked) > 1 else None
    return Finding(
        statement="The least Polyak-Lojasiewicz ratio of the mean loss, |gradient|^2 / (2 loss), over "
        f"{sample.words}, at {where}. It promises no rate: other weights may have a smaller one.",
        value=torch.tensor(value, dtype=torch.float64),
        unit=UNIT,
        range=(0.0, math.inf),
        premises=(
            Premise(
                "no loss is negative, so that the gap is at most the loss",
                "refuted" if least < 0 else "sampled",
                f"the least loss of a term is {least:.3g}",
            ),
        ),
        kind="lower",
        failure=failure,
        curves={} if curves is None else {"step": curves[0], COLUMN: curves[1]},
    )


def pl_demo() -> Subject:
    """The loss (3 x^2 + y^2) / 2 at (1, 1): |g|^2 = 10 and h = 2, the ratio 5/2."""
    A = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))
    return of_weights(Quadratic(A), history=[{"step": 0, COLUMN: 2.75}, {"step": 1, COLUMN: 2.6}])
