"""What exact inference promises of a Gaussian process: its examples' posterior, an evidence at rest."""

import math
from typing import Any

import torch
from torch import Generator, Tensor

from margin.bayes.gp.kernels import correlation
from margin.bayes.gp.learning import RANGE, regression, standardized
from margin.bayes.gp.regression import GaussianProcess, log_evidence
from margin.core.findings import Finding, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.data.examples import Data
from margin.data.sets.tiny.tables import values
from margin.engine.loop import State, risk
from margin.engine.weighted_rows import WeightedRows, training_rows
from margin.math.linear_algebra.positive_definite import factored
from margin.nn.preprocessed import Preprocessed, core_of, dtype_of, features_of

POINTS, FUNCTIONS = 80, 4
"""Places of a picture, and functions that are drawn from the prior."""

MOST = 256
"""Held-out examples at which the posterior is computed again."""


def posterior(subject: Subject) -> Finding:
    r"""Whether mean and variance are those of the exact posterior, computed again by another way.

    The covariance of the training values and the new one is written out pair by pair and the conditional
    Gaussian taken by an LU solve; the model's own goes by squared distances from one product, a Cholesky
    factor and coefficients that are kept.

    Args:
        subject: A Gaussian process regression with its training examples.
    """
    core: Any = core_of(subject.model)
    rows = training_rows(subject).double()
    x = torch.cat([features_of(subject.model, b.inputs[0]).flatten(1) for b in subject.test])[:MOST].cpu()
    with torch.no_grad():
        mean, variance, condition = _conditional(core, rows, x.double())
        law = core.predictive(x.to(core.examples))
    unit, signal = float(core.unit), float(core.signal)
    off = torch.stack(((law.mean - mean).abs().max() / unit, (law.variance - variance).abs().max() / unit**2))
    eps = torch.finfo(dtype_of(core)).eps
    return Finding(
        statement="The mean and the variance of the value at a new input are those of the posterior given "
        f"{len(rows.x):,} training examples, in units of the training values: the largest difference at "
        f"{len(x)} held-out inputs.",
        value=off.max(),
        unit="std of the targets",
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=64 * eps * (1 + signal) * (1 + condition),
        curves=_along(core, rows),
    )


@torch.no_grad()
def _along(core: Any, rows: WeightedRows) -> dict[str, Tensor]:
    """Functions of the prior, and the posterior's band, along the feature of the least length scale.

    The other features are at their means; values are in the user's unit.
    """
    found, unit = core.hyperparameters, core.unit.double()
    feature = int(found.scales.expand(rows.x.shape[1]).argmin())
    ends = rows.x[:, feature].min(), rows.x[:, feature].max()
    grid = torch.linspace(float(ends[0]), float(ends[1]), POINTS, dtype=torch.float64)
    x = rows.x.mean(0).repeat(POINTS, 1)
    x[:, feature] = grid
    square = ((x[:, None] - x) / found.scales).square().sum(2)
    root = factored(found.signal * correlation(square, core.kernel)).lower
    drawn = torch.randn(POINTS, FUNCTIONS, generator=Generator().manual_seed(0), dtype=torch.float64)
    prior = core.shift.double() + unit * (root @ drawn)
    law = core.predictive(x.to(core.examples))
    curves = {"along": grid, "mean": law.mean, "low": law.quantile(0.025), "high": law.quantile(0.975)}
    return curves | {f"prior {k + 1}": prior[:, k] for k in range(FUNCTIONS)}


def _conditional(core: Any, rows: WeightedRows, x: Tensor) -> tuple[Tensor, Tensor, float]:
    """Mean and variance of a new value at each x, and a bound of the covariance's condition number."""
    found, n = core.hyperparameters, len(rows.x)
    every = torch.cat((rows.x, x)) / found.scales
    square = (every[:, None] - every).square().sum(2)
    K = found.signal * correlation(square, core.kernel)
    noise = found.noise / rows.weight + float(core.jitter)
    y, shift, unit = standardized(rows.targets, rows.weight)
    solved = torch.linalg.solve(K[:n, :n] + torch.diag(noise), torch.cat((y[:, None], K[:n, n:]), 1))
    variance = K.diagonal()[n:] - (K[:n, n:] * solved[:, 1:]).sum(0) + found.noise
    bound = float(n * found.signal / noise.min()) if float(noise.min()) > 0 else math.inf
    return shift + unit * (K[n:, :n] @ solved[:, 0]), unit.square() * variance, bound


def stationarity(subject: Subject) -> Finding:
    """The derivative of the log evidence in the logarithm of each hyper-parameter, in nats: 0 at a maximum.

    Args:
        subject: A Gaussian process regression with its training examples.
    """
    core: Any = core_of(subject.model)
    rows = training_rows(subject).double()
    y, _, _ = standardized(rows.targets, rows.weight)
    found = core.hyperparameters
    slopes = log_evidence(rows.x, y, rows.weight, found, core.kernel).gradient
    names = [f"length scale {i + 1}" for i in range(len(found.scales))] + ["signal", "noise"]
    ends = [RANGE["scales"]] * len(found.scales) + [RANGE["signal"], RANGE["noise"]]
    at = found.log().exp().tolist()
    held = [
        name
        for name, (low, high), v in zip(names, ends, at, strict=True)
        if v <= low * 1.001 or v >= high / 1.001
    ]
    return Finding(
        statement="The derivative of the log evidence in the logarithm of each hyper-parameter, which is 0 "
        "at its maximum"
        + (f"; at an end of the range that is searched: {', '.join(held)}." if held else "."),
        value=slopes,
        unit="nat",
        range=(-math.inf, math.inf),
        labels=tuple(names),
    )


def learned(data: Data, model: GaussianProcess) -> Subject:
    """A Gaussian process that has learned a data set's training part, in float64."""
    parts = {
        name: part.take(torch.arange(len(part)), torch.Generator()) for name, part in data.splits.items()
    }
    batches = {name: part.to(dtype=torch.float64, device="cpu") for name, part in parts.items()}
    whole = Preprocessed(data.preprocess, model).double()
    regression()(State({"model": whole}), batches["train"])
    test: Batch = batches.get("test", batches["train"])
    return Subject(
        model=whole.eval(), test=[test], train=[batches["train"]], task=VALUES, objective=risk(VALUES)
    )


def demo() -> Subject:
    """A Gaussian process on a few noisy values of a linear map."""
    data = values()
    return learned(data, GaussianProcess(data.spec["in_features"], len(data.splits["train"])))
