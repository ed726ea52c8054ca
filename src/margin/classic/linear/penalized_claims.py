"""What penalized least squares promises: a gradient of 0 (ridge), the lasso's conditions, its duality gap."""

import math

import torch
from torch import Tensor

from margin.classic.linear.lasso import (
    GAP,
    Lasso,
    duality_gap,
    lasso,
    lasso_loss,
    lasso_path,
    standard_problem,
    violation,
)
from margin.classic.linear.least_squares_claims import DOUBLE, sensitivity, solution, solved
from margin.classic.linear.ridge import Ridge, ridge, ridge_loss
from margin.classic.linear.rows import Rows, scaled, training_rows
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.data.sets.tiny.tables import values
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of


def ridge_stationarity(subject: Subject) -> Finding:
    """Whether the gradient of the stated penalized loss is 0 at the model's coefficients.

    Each derivative is divided by the size that its data part can have: of the column and of the targets.

    Args:
        subject: A ridge regression with its training examples.
    """
    rows, core = training_rows(subject), core_of(subject.model)
    w, b, eps = solution(subject)
    w, b = w.requires_grad_(), b.requires_grad_()
    loss = ridge_loss(rows.x, rows.y, w, b, penalty=core.penalty, scaling=core.scaling, weight=rows.weight)
    slopes = torch.autograd.grad(loss, (w, b))
    size = _column_sizes(rows) / (1.0 if core.scaling == "sum" else float(rows.weight.sum()))
    slope = torch.cat((slopes[0], slopes[1][None])).abs()
    relative = torch.where(size > 0, slope / size.where(size > 0, 1), slope)
    w, b = w.detach(), b.detach()
    factor = core.penalty * (2 if core.scaling == "undivided" else 1)
    penalized = factor * w.abs() / size[:-1].where(size[:-1] > 0, 1)
    length = max(float(scaled(rows.y, rows.weight).norm()), 1e-300)
    reach = 1 + sensitivity(rows, w, b) / length
    return Finding(
        statement=f"The gradient of the penalized loss ({core.scaling}, penalty {core.penalty:g}) is 0 at "
        "the model's coefficients: the largest derivative, relative to its data part.",
        value=relative.max(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=(2 * eps + 64 * (len(w) + 1) * DOUBLE) * (reach + float(penalized.max())),
        reference="Hoerl and Kennard 1970, Equation 2.1; Hastie, Tibshirani and Friedman 2009, Equation 3.44",
    )


def _column_sizes(rows: Rows) -> Tensor:
    """The product of the lengths of each column, the constant last, and the targets."""
    X = torch.cat((rows.x, torch.ones_like(rows.x[:, :1])), 1)
    return scaled(X, rows.weight).norm(dim=0) * scaled(rows.y, rows.weight).norm()


def lasso_conditions(subject: Subject) -> Finding:
    """Whether every coefficient satisfies its condition of optimality.

    The duality gap G at which the solver stops allows a residual that is off by sqrt(2 n G) in length, and
    so a condition that is off by sqrt(2 G) times the root mean square of its column.

    Args:
        subject: A lasso with its training examples.
    """
    rows, core = training_rows(subject), core_of(subject.model)
    w, _, eps = solution(subject)
    problem = standard_problem(rows.x, rows.y, rows.weight)
    spread, size = problem.Z.square().mean(0).sqrt(), problem.t.square().mean().sqrt()
    rounding = (2 * eps + 64 * (len(w) + 1) * DOUBLE) * (spread @ w.abs() + size)
    allowed = float(rounding + math.sqrt(GAP) * size) * float(spread.max())
    return Finding(
        statement=f"At penalty {core.penalty:g} every coefficient satisfies the lasso's condition of "
        f"optimality ({int((w != 0).sum())} of {len(w)} are not 0): the largest violation over the penalty.",
        value=violation(problem, w, core.penalty).max() / core.penalty,
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=allowed / core.penalty,
        reference="Tibshirani 1996, Section 2; Hastie, Tibshirani and Wainwright 2015, Equation 2.6",
    )


def lasso_gap(subject: Subject) -> Finding:
    """Whether the loss exceeds the least possible by no more than the duality gap certifies.

    The least loss is that of a solve by the path, from the largest penalty down.

    Args:
        subject: A lasso with its training examples.
    """
    rows, core = training_rows(subject), core_of(subject.model)
    w, _, _ = solution(subject)
    problem = standard_problem(rows.x, rows.y, rows.weight)
    gap = duality_gap(problem, w, core.penalty)
    path = lasso_path(rows.x, rows.y, [core.penalty * 2**k for k in range(5)], rows.weight)
    least = lasso_loss(problem, path.weight[-1], core.penalty)
    excess = lasso_loss(problem, w, core.penalty) - least
    scale = float(problem.t.square().sum()) / (2 * len(problem.t))
    return Finding(
        statement=f"The loss exceeds the least found by at most the duality gap {float(gap):.2g}.",
        value=excess,
        unit="loss",
        range=(-math.inf, math.inf),
        low=-path.gap[-1],
        high=gap,
        tolerance=64 * len(w) * DOUBLE * max(scale, 1e-300),
        premises=(Premise("the penalty is positive", "proved", f"penalty {core.penalty:g}"),),
        reference="Kim, Koh, Lustig, Boyd and Gorinevsky 2007, Equation 12 (weak duality)",
    )


def ridge_demo() -> Subject:
    """Ridge regression on a few noisy values of a linear map."""
    data = values()
    return solved(data, Ridge(data.spec["in_features"]), VALUES, risk(VALUES), ridge())


def lasso_demo() -> Subject:
    """The lasso on a few noisy values of a linear map, one coefficient at 0."""
    data = values()
    return solved(data, Lasso(data.spec["in_features"], penalty=0.5), VALUES, risk(VALUES), lasso())
