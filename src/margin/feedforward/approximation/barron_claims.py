"""Barron's bound (1993) held against the greedy net, unit by unit, on the measure of points of a ball."""

import math

import torch

from margin.core.findings import Finding, Premise, Status, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import risk
from margin.feedforward.approximation.barron import GreedyNet, ball, barron_bound, gaussian, greedy, steepest
from margin.nn.preprocessed import core_of


def is_greedy(subject: Subject) -> bool:
    """Whether the model is the catalog's greedy net of a function whose C_f is known."""
    return isinstance(core_of(subject.model), GreedyNet)


def greedy_bound(subject: Subject) -> Finding:
    """The mean squared error of the greedy nets of 1, 2, 4, ... sigmoids beside (2 r C_f)^2 / m.

    The theorem says that some net of m sigmoids and a constant is as good, for every probability measure on
    the ball, so for the held-out points themselves, each weighed alike or as told: there the error is exact.
    That the greedy net is such a net is measured. Of the largest error nothing is said.

    Args:
        subject: The catalog's greedy net.
    """
    net = core_of(subject.model)
    if not isinstance(net, GreedyNet):
        raise ValueError(f"this is asked of a greedy net of a known function: got {type(net).__name__}")
    x = torch.cat([batch.inputs[0] for batch in subject.test]).double()
    weight = torch.cat(
        [
            torch.ones(len(batch.inputs[0])) if batch.weight is None else batch.weight.cpu()
            for batch in subject.test
        ]
    ).double()
    with torch.no_grad(), eval_mode(subject.model):
        squares = (net.stages(x) - net.target.function(x)[:, None]).square().cpu()
    error = weight @ squares / weight.sum()
    sizes = torch.tensor([m for m in (2**k for k in range(20)) if m <= net.units])
    bound = torch.tensor(
        [barron_bound(net.radius, net.target.norm, m) for m in range(1, net.units + 1)], dtype=torch.float64
    )
    kept = weight > 0
    return Finding(
        statement=f"The mean squared error of m sigmoids for {net.target.name} on {int(kept.sum()):,} points "
        f"of the ball of radius {net.radius:g} is at most (2 r C_f)^2 / m, C_f = {net.target.norm:.4g}.",
        value=error[sizes - 1],
        unit="f^2",
        range=(0.0, math.inf),
        high=bound[sizes - 1],
        scope="exists",
        labels=tuple(f"m = {int(m)}" for m in sizes),
        premises=(_norm_premise(net, x[kept.to(x.device)]), _ball_premise(net, x[kept.to(x.device)])),
        reference="Barron 1993, Theorem 1",
        curves={
            "units": torch.arange(1, net.units + 1),
            "mean squared error": error,
            "Barron's bound": bound,
        },
    )


def _norm_premise(net: GreedyNet, x: torch.Tensor) -> Premise:
    """That C_f may be right: the gradient of f is nowhere longer."""
    slope, target = steepest(net.target.function, x), net.target
    right: Status = "proved" if target.known else "assumed"
    return Premise(
        f"the integral of |w| |f~(w)| is at most {target.norm:.4g}, w in radians",
        right if slope <= target.norm * (1 + 1e-9) else "refuted",
        f"{target.known or 'as given'}; it cannot be below the steepest slope at the points, {slope:.4g}",
    )


def _ball_premise(net: GreedyNet, x: torch.Tensor) -> Premise:
    farthest = float(torch.linalg.vector_norm(x, dim=1).max()) if len(x) else math.nan
    return Premise(
        f"the points lie in the ball of radius {net.radius:g} around 0",
        "proved" if farthest <= net.radius * (1 + 1e-9) else "refuted",
        f"the farthest is at {farthest:.4g}",
    )


def demo() -> Subject:
    """Sixty-four sigmoids for a Gaussian bump of the plane, on 300 points of a disk."""
    generator = torch.Generator().manual_seed(0)
    x = ball(300, 2, 2.0, generator)
    net = greedy(gaussian(2), x, 2.0, candidates=200, generator=generator)
    batch = Batch((x,), net.target.function(x))
    return Subject(model=net, test=[batch], task=VALUES, objective=risk(VALUES))
