"""Questions to a density: is its mass 1 in the plane, and what does it know more than a Gaussian?"""

import math

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import DENSITY
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.objectives import negative_log_density
from margin.generative.flow.realnvp import neural_spline_flow
from margin.nn.preprocessed import Preprocessed, core_of, features_of
from margin.theory.prediction.risk import clopper_pearson

CELLS = 400
"""Cells of a side of the grid; its error is told from half as many."""

DRAWN = 20_000
"""Samples by which the mass outside of the grid is told."""

LEVEL = 1 - 1e-4
"""Probability with which an interval is to hold the truth."""

WIDEST = 1000
"""Features whose covariance is inverted, at most."""

SHOWN = 100
"""Cells of a side of the grid that a report draws."""


def is_density(subject: Subject) -> bool:
    """Whether the model states an exact density of its inputs."""
    has = callable(getattr(core_of(subject.model), "log_prob", None))
    return has and subject.task.name == DENSITY.name


def is_plane(subject: Subject) -> bool:
    """Whether the model states a density of the plane and can be sampled."""
    sampled = callable(getattr(core_of(subject.model), "sample", None))
    return is_density(subject) and sampled and bool(subject.test) and _features(subject) == 2


def is_narrow(subject: Subject) -> bool:
    """Whether there are few enough features, and training rows enough, for a covariance."""
    rows = sum(len(batch.inputs[0]) for batch in subject.train)
    return bool(subject.test) and _features(subject) <= WIDEST and rows > _features(subject)


def _features(subject: Subject) -> int:
    return int(subject.test[0].inputs[0][0].numel())


def _rows(subject: Subject, part: str) -> Tensor:
    batches = subject.test if part == "test" else subject.train
    return torch.cat([features_of(subject.model, batch.inputs[0]).flatten(1) for batch in batches]).detach()


def box_of(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The corners of a box that holds all but a few of the samples, with a tenth to spare."""
    low, high = (rows.quantile(q, 0) for q in (0.0005, 0.9995))
    return low - 0.1 * (high - low), high + 0.1 * (high - low)


def grid(low: Tensor, high: Tensor, cells: int) -> tuple[Tensor, Tensor, float]:
    """The middles of the cells along each side (2, cells), all their points, and the area of one."""
    middle = (torch.arange(cells, dtype=low.dtype, device=low.device) + 0.5) / cells
    sides = low[:, None] + (high - low)[:, None] * middle
    return sides, torch.cartesian_prod(*sides), float((high - low).prod()) / cells**2


def mass(subject: Subject) -> Finding:
    """Whether the density of the plane integrates to 1: a box by a grid, and the rest by samples.

    Args:
        subject: A density of the plane that can be sampled.
    """
    core = core_of(subject.model)
    with eval_mode(subject.model) as generator, torch.no_grad():
        rows = core.sample(DRAWN, generator=generator).flatten(1)
        low, high = box_of(rows)
        count = int(((rows < low) | (rows > high)).any(1).sum())
        sides, points, area = grid(low, high, CELLS)
        log_density = core.log_prob(points).double()
        inside = float(log_density.exp().sum()) * area
        _, coarse, wide = grid(low, high, CELLS // 2)
        error = abs(float(core.log_prob(coarse).double().exp().sum()) * wide - inside)
        curves = _drawn(subject, sides, log_density.reshape(CELLS, CELLS))
    below, above = clopper_pearson(count, DRAWN, level=LEVEL)
    ends = [torch.tensor(inside + end, dtype=torch.float64) for end in (below - error, above + error)]
    return Finding(
        statement=f"The density integrates to 1: {inside:.5f} on a box by {CELLS:,} x {CELLS:,} cells (half "
        f"as many differ by {error:.1g}), and outside of it {count / DRAWN:.5f}, as {DRAWN:,} samples tell.",
        value=torch.tensor(inside + count / DRAWN, dtype=torch.float64),
        interval=(ends[0], ends[1]),
        kind="estimate",
        unit="1",
        range=(0.0, math.inf),
        low=torch.ones((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        scope="probability",
        tolerance=0.01,
        premises=(),
        reference="Dinh, Sohl-Dickstein and Bengio 2017, Equation 2 (the change of variables)",
        failure="" if math.isfinite(inside) else "the density of a cell is not finite",
        curves=curves,
    )


def _drawn(subject: Subject, sides: Tensor, log_density: Tensor) -> dict[str, Tensor]:
    """What the report draws: every few cells, in the user's units where the way back is known."""
    x, y = sides[:, :: CELLS // SHOWN]
    shown = log_density[:: CELLS // SHOWN, :: CELLS // SHOWN].T  # a row for each y
    points = torch.cat([batch.inputs[0] for batch in subject.test]).flatten(1)[:1000]
    undo = (
        getattr(subject.model.preprocess, "inverse", None)
        if isinstance(subject.model, Preprocessed)
        else None
    )
    if undo is not None:
        x, y = undo(torch.stack((x, y), 1)).unbind(1)
    elif isinstance(subject.model, Preprocessed):
        points = features_of(subject.model, points)
    return {"density x": x, "density y": y, "log density": shown, "density points": points.detach()}


def gain(subject: Subject) -> Finding:
    """How many nats more the density gives held-out examples than the Gaussian of the training examples.

    Args:
        subject: A density whose training examples are known.
    """
    core = core_of(subject.model)
    with eval_mode(subject.model), torch.no_grad():
        train, test = _rows(subject, "train"), _rows(subject, "test")
        ours, of_train = core.log_prob(test).double(), core.log_prob(train).double().mean()
        centered = train.double() - train.double().mean(0)
        factor, info = torch.linalg.cholesky_ex(centered.T @ centered / len(train))
        failure = "the covariance of the training examples is singular" if int(info) else ""
        theirs = torch.full_like(ours, math.nan)
        if not failure:
            gaussian = torch.distributions.MultivariateNormal(train.double().mean(0), scale_tril=factor)
            theirs = gaussian.log_prob(test.double())
    each = ours - theirs
    return Finding(
        statement=f"The mean log-density of {len(test):,} held-out examples, {float(ours.mean()):.4g} nats "
        "in the model's units, less that of the Gaussian with the training examples' mean and covariance, "
        f"{float(theirs.mean()):.4g}. Of the training examples it is {float(of_train):.4g}.",
        value=each.mean(),
        stderr=each.std() / math.sqrt(len(each)),
        kind="estimate",
        unit="nats",
        range=(-math.inf, math.inf),
        premises=(),
        reference="Theis, van den Oord and Bethge 2016, Section 3.1",
        failure=failure,
    )


def demo() -> Subject:
    """A flow of splines in the plane as it begins, and rows that it has drawn."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = neural_spline_flow(2, layers=2, hidden=(16,))
    with torch.no_grad():
        drawn = core.sample(600, generator=Generator().manual_seed(0))
    test, train = ([Batch((part,))] for part in drawn.split(300))
    return Subject(model=core, test=test, train=train, task=DENSITY, objective=negative_log_density)
