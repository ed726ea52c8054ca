"""What a penalty makes of a model's last affine map: how many parameters it leaves, which ball it stands for.

The features that enter the map are the model's own; the least-squares problem on them is solved anew.
"""

import math

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.dynamics.shrinkage import constrained_minimizer, effective_parameters
from margin.theory.signal.last_layer import Design, in_row_space, last_design

SHARES = (1.0, 1e-1, 1e-2, 1e-3)
"""The penalties that are looked at, as shares of the largest eigenvalue."""

ROUNDING = 1e-8

SQUARED = Premise("the loss is quadratic", "proved", "the squared error of an affine map of fixed features")


def parameters(subject: Subject) -> Finding:
    """How many effective parameters a penalty leaves of the last map's: the trace of its smoother.

    Measured by a solve, it lies between half the number of eigenvalues that are at least the penalty, and
    that number plus the sum of the others over the penalty.

    Args:
        subject: A model with a last affine map and its training examples.
    """
    whole = last_design(subject)
    design = in_row_space(whole)
    value, low, high = torch.full((3, len(SHARES)), math.nan, dtype=torch.float64)
    failure, shown, curves = _reasons(design), "", {}
    if not failure:
        X = design.X
        eigenvalues = torch.linalg.svdvals(X).square()
        largest = eigenvalues.max()
        for i, share in enumerate(SHARES):
            mu = float(share * largest)
            value[i] = _smoother_trace(X, mu)
            above = eigenvalues >= mu * (1 - ROUNDING)
            low[i] = above.sum() / 2
            high[i] = above.sum() + eigenvalues[~above].sum() / mu
        shown = f" of {whole.X.shape[1]:,} features ({len(X):,} examples)"
        grid = torch.logspace(-6, 1, 50, dtype=torch.float64)
        counts = [effective_parameters(eigenvalues, float(g * largest)) for g in grid]
        curves = {
            "log10 of penalty / largest eigenvalue": grid.log10(),
            "effective parameters": torch.stack(counts),
        }
    return Finding(
        statement=f"The effective parameters that a penalty mu leaves the last map{shown}: lambda / (lambda "
        "+ mu), summed over the eigenvalues of the features' Gram matrix.",
        value=value,
        unit="parameters",
        range=(0.0, math.inf),
        low=low,
        high=high,
        tolerance=ROUNDING * design.X.shape[1],
        labels=tuple(f"mu = {share:g} of the largest eigenvalue" for share in SHARES),
        failure=failure,
        premises=(SQUARED,),
        reference="Hastie, Tibshirani and Friedman 2009, Equation 3.50; Goodfellow, Bengio and Courville "
        "2016, Section 7.1.1",
        curves=curves,
    )


def _smoother_trace(X: Tensor, mu: float) -> Tensor:
    """The trace of X (X^T X + mu I)^-1 X^T, by a solve on the smaller side."""
    gram = X.T @ X if X.shape[1] <= len(X) else X @ X.T
    shifted = gram + mu * torch.eye(len(gram), dtype=X.dtype)
    return torch.cholesky_solve(gram, torch.linalg.cholesky(shifted)).trace()


def multiplier(subject: Subject) -> Finding:
    """Whether the ball that a penalized solution lies on gives back its penalty as the multiplier.

    For each penalty the ridge solution's length is the radius; the problem under that constraint is solved on
    its own, and the multiplier stands relative to the penalty.

    Args:
        subject: A model with a last affine map and its training examples.
    """
    design = in_row_space(last_design(subject))
    value = torch.full((len(SHARES),), math.nan, dtype=torch.float64)
    failure, radii = _reasons(design), value.clone()
    if not failure:
        X, y = design.X, _leading(design)
        H = X.T @ X
        largest = float(torch.linalg.eigvalsh(H).max())
        free: Tensor = torch.linalg.lstsq(X, y[:, None], driver="gelsd").solution[:, 0]
        for i, share in enumerate(SHARES):
            mu = share * largest
            factor = torch.linalg.cholesky(H + mu * torch.eye(len(H), dtype=H.dtype))
            ridge = torch.cholesky_solve((X.T @ y)[:, None], factor)[:, 0]
            radii[i] = ridge.norm()
            value[i] = constrained_minimizer(H, free, float(radii[i])).multiplier / mu
    lengths = " < ".join(f"{float(r):.3g}" for r in radii)
    return Finding(
        statement="The multiplier of the constraint |w| <= r over the penalty whose solution has the length "
        f"r: the radii r, from the largest penalty to the least, are {lengths}.",
        value=value,
        unit="1",
        range=(0.0, math.inf),
        low=torch.ones_like(value),
        high=torch.ones_like(value),
        tolerance=1e-6,
        labels=tuple(f"mu = {share:g} of the largest eigenvalue" for share in SHARES),
        failure=failure
        or ("" if bool((radii.diff() > 0).all()) else "the radius does not grow as the penalty falls"),
        premises=(SQUARED,),
        reference="Boyd and Vandenberghe 2004, Section 5.5.3; Goodfellow, Bengio and Courville 2016, "
        "Section 7.2",
    )


def _leading(design: Design) -> Tensor:
    """The column of the targets that the features explain most."""
    return design.Y[:, int((design.X.T @ design.Y).norm(dim=0).argmax())]


def _reasons(design: Design) -> str:
    if not len(design.X):
        return "no training example has a weight above 0"
    if not bool(design.X.isfinite().all() and design.Y.isfinite().all()):
        return "the features or the targets are not finite"
    if not bool((design.X.T @ design.Y).abs().max() > 0):
        return "the features do not vary with the targets"
    return ""


def demo() -> Subject:
    """An affine map of six features of different size, and noisy values of another."""
    g = Generator().manual_seed(0)
    x = torch.randn(60, 6, generator=g, dtype=torch.float64) * torch.logspace(0, -2, 6, dtype=torch.float64)
    y = x.sum(1) + 0.1 * torch.randn(60, generator=g, dtype=torch.float64)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)).double()
    batches = [Batch((x,), y)]
    return Subject(model=model, test=batches, train=batches, task=VALUES, objective=risk(VALUES))
