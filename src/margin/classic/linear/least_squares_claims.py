"""What least squares promises (Gauss 1809; Penrose 1956): orthogonal residuals, least norm, likelihood.

Subjects whose answers are known: a model of this area, solved on tiny data in float64.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.classic.linear.regression import LinearRegression, cutoff, least_squares, standard_errors
from margin.classic.linear.rows import Rows, centered, scaled, training_rows
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES, Task
from margin.core.types import Batch, Objective
from margin.data.examples import Data, InOrder
from margin.data.sets.tiny.tables import values
from margin.engine.loop import State, Step, risk
from margin.nn.preprocessed import Preprocessed, core_of, dtype_of


def whole(data: Data, part: str = "train") -> Sequence[Batch]:
    """A part of the data as one batch, in float64."""
    examples = data.splits[part]
    dtype = examples.inputs[0].double().dtype
    return InOrder(examples, len(examples), dtype=dtype)


def solved(
    data: Data, core: nn.Module, task: Task, objective: Objective, step: Step | None = None
) -> Subject:
    """The subject of a model that has taken one step on the whole training part.

    Args:
        data: The examples.
        core: The model, in its own units.
        task: How its outputs are read.
        objective: The loss of each term.
        step: What solves it; None leaves it as it is.
    """
    model = Preprocessed(data.preprocess, core).double()
    train = whole(data)
    if step is not None:
        step(State({"model": model}, generator=Generator().manual_seed(0)), train[0])
    return Subject(model=model, test=whole(data, "test"), train=train, task=task, objective=objective)


MOST_ROWS = 1000
"""Rows on which the Penrose identities are evaluated: their projectors are as large as the rows squared."""

DOUBLE = torch.finfo(torch.float64).eps


def solution(subject: Subject) -> tuple[Tensor, Tensor, float]:
    """The w and b of an affine model in float64, and the rounding of its type."""
    core = core_of(subject.model)
    w, b = core.weight.detach().double().cpu(), core.bias.detach().double().cpu()
    return w, b, torch.finfo(dtype_of(subject.model)).eps


def sensitivity(rows: Rows, w: Tensor, b: Tensor) -> float:
    """The root of the weighted sum of squares by which the outputs move where w and b move by their size."""
    columns = scaled(rows.x, rows.weight).norm(dim=0)
    return float(columns @ w.abs() + rows.weight.sum().sqrt() * b.abs())


def correlations(rows: Rows, residual: Tensor) -> Float[Tensor, " columns"]:
    r"""\|x_j . r\| / (\|x_j\| \|y\|) for each column and the constant, weighted; 0 for a column of zeros."""
    X = torch.cat((rows.x, torch.ones_like(rows.x[:, :1])), 1)
    X, r, y = (scaled(part, rows.weight) for part in (X, residual, rows.y))
    size = X.norm(dim=0) * y.norm()
    return torch.where(size > 0, (X.T @ r).abs() / size.where(size > 0, 1), (X.T @ r).abs())


def normal_equations(subject: Subject) -> Finding:
    """Whether the training residual is orthogonal to every feature and to the constant.

    Args:
        subject: A linear regression with its training examples.
    """
    rows = training_rows(subject)
    w, b, eps = solution(subject)
    found = correlations(rows, rows.x @ w + b - rows.y)
    unit = max(float(scaled(rows.y, rows.weight).norm()), 1e-300)
    return Finding(
        statement="The training residual is orthogonal to every feature and to the constant: the largest "
        "cosine, with the length of the targets in place of the residual's.",
        value=found.max(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=(2 * eps + 64 * (len(w) + 1) * DOUBLE) * (1 + sensitivity(rows, w, b) / unit),
        reference="Gauss 1809; Hastie, Tibshirani and Friedman 2009, Equation 3.5 (the normal equations)",
    )


def minimum_norm(subject: Subject) -> Finding:
    """Whether the coefficients lie in the row space, and the Penrose identities of the features' inverse.

    What lies outside of the row space of the centered features changes no prediction on the training
    examples and lengthens w.

    Args:
        subject: A linear regression with its training examples.
    """
    rows = training_rows(subject)
    w, _, eps = solution(subject)
    X = scaled(centered(rows.x, rows.weight)[0], rows.weight)
    _, S, Vh = torch.linalg.svd(torch.linalg.qr(X, mode="r").R, full_matrices=False)
    kept = S[cutoff(S, X) < S]
    basis = Vh[: len(kept)]
    outside = (w - basis.T @ (basis @ w)).norm() / w.norm().clamp(min=1e-300)
    condition = float(kept[0] / kept[-1]) if len(kept) else 1.0
    few = X[:MOST_ROWS]
    return Finding(
        statement=f"w has no part outside of the row space of the centered features (rank {len(kept)} of "
        f"{len(w)}), and their inverse X+, on {len(few):,} rows, satisfies Penrose's identities.",
        value=torch.stack((outside, *penrose(few))),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=2 * eps + 64 * max(X.shape) * DOUBLE * condition,
        labels=(
            "w outside",
            "X X+ X = X",
            "X+ X X+ = X+",
            "X X+ symmetric",
            "X+ X symmetric",
        ),
        curves={"singular values": S},
    )


def penrose(X: Float[Tensor, "rows features"]) -> list[Float[Tensor, ""]]:
    """The relative error of each of the four identities, for the library's pseudoinverse."""
    inverse = torch.linalg.pinv(X, rtol=max(X.shape) * DOUBLE)
    left, right = X @ inverse, inverse @ X
    pairs = ((left @ X, X), (inverse @ left, inverse), (left.T, left), (right.T, right))
    return [(one - other).norm() / other.norm().clamp(min=1e-300) for one, other in pairs]


def gaussian_noise(subject: Subject) -> Finding:
    r"""Whether the coefficients are those under which Gaussian noise makes the targets most probable.

    The mean negative log-likelihood at the model's w and b and its own residual variance is compared with
    the least possible, (1/2) log(2 pi e s^2), s^2 the least mean squared residual by another solver.

    Args:
        subject: A linear regression with its training examples.
    """
    rows = training_rows(subject)
    w, b, eps = solution(subject)
    share = rows.weight / rows.weight.sum()
    residual = rows.y - rows.x @ w - b
    design = torch.cat((rows.x, torch.ones_like(rows.x[:, :1])), 1)
    best = torch.linalg.lstsq(scaled(design, share), scaled(rows.y, share)[:, None], driver="gelsd").solution[
        :, 0
    ]
    least = share @ (rows.y - design @ best).square()
    scale = share @ rows.y.square()
    if not bool(least > (len(w) + 1) * eps * scale):
        fitted = Premise("some residual is left", "refuted", f"mean squared residual {float(least):.2g}")
        return _likelihood(torch.tensor(math.nan), (fitted,))
    left = Premise("some residual is left", "proved", f"mean squared residual {float(least):.4g}")
    law = torch.distributions.Normal(0.0, (share @ residual.square()).sqrt())
    value = -(share @ law.log_prob(residual))
    # the residual at the minimum is orthogonal to what rounding adds, so only its square counts
    moved = eps * sensitivity(rows, w, b) / float((rows.weight.sum() * least).sqrt())
    promise = 0.5 * (2 * math.pi * math.e * least).log()
    return _likelihood(value, (left,), promise, 2 * moved**2 + 1e-9)


def _likelihood(
    value: Tensor, premises: tuple[Premise, ...], promise: Tensor | None = None, tolerance: float = 0.0
) -> Finding:
    return Finding(
        statement="The mean negative log-likelihood of the training targets, under Gaussian noise of the "
        "residual's variance, is the least that an affine map can have.",
        value=value,
        unit="nats",
        range=(-math.inf, math.inf),
        equals=promise,
        tolerance=tolerance,
        premises=premises,
        reference="Bishop 2006, Section 3.1.1, Equations 3.11 and 3.21",
    )


def coefficients(subject: Subject, *, level: float = 0.95) -> Finding:
    """The coefficients and the intercept, with their confidence intervals by Student's t.

    They are in the model's own units: of standardized features where its data were standardized.

    Args:
        subject: A linear regression with its training examples.
        level: Probability with which each interval covers the truth, in (0, 1).
    """
    from scipy.special import stdtrit

    rows = training_rows(subject)
    w, b, _ = solution(subject)
    text, value = "the features and a constant are linearly independent", torch.cat((w, b[None]))
    interval = None
    try:
        errors = standard_errors(rows.x, rows.y, rows.weight)
        half = float(stdtrit(errors.freedom, (1 + level) / 2)) * torch.cat((errors.weight, errors.bias[None]))
        interval = (value - half, value + half)
        evidence = f"{len(rows.y)} rows, {len(w)} features, {errors.freedom} degrees of freedom"
        found = Premise(text, "proved", evidence)
    except ValueError as error:
        found = Premise(text, "refuted", str(error))
    normal = "errors are independent, normal, of mean 0 and one variance over the weight"
    return Finding(
        statement="The coefficients of the features as the model sees them, and the intercept, each with a "
        f"{level:.0%} interval.",
        value=value,
        unit="target units",
        range=(-math.inf, math.inf),
        kind="estimate",
        interval=interval,
        labels=(*(f"feature {i + 1}" for i in range(len(w))), "intercept"),
        premises=(found, Premise(normal, "assumed", "residuals cannot show it in full")),
    )


def demo() -> Subject:
    """Least squares on a few noisy values of a linear map."""
    data = values()
    return solved(data, LinearRegression(data.spec["in_features"]), VALUES, risk(VALUES), least_squares())
