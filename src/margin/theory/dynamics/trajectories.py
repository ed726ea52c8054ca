"""Optimizers' paths over a function of two weights, and how the minimum reached depends on the start."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.math.convexity.functions import Function, curvatures
from margin.math.convexity.landscapes import landscape
from margin.optim.heavy_ball import HeavyBall
from margin.optim.nesterov import Nesterov
from margin.theory.curvature.trained_weights import differentiated
from margin.theory.dynamics.convergence import Make, Path, follow
from margin.theory.dynamics.weight_function import WeightFunction

STEPS = 60
SIDE = 45
"""Points of the surface along each axis."""


def customary(f: Function, start: Float[Tensor, " dim"]) -> dict[str, Make]:
    """Gradient descent, heavy ball, Nesterov's method and Adam with rates from the curvature at the start.

    Args:
        f: The function, twice differentiable.
        start: Where they will begin.
    """
    found = curvatures(f, start[None])[0].abs().max()
    lr = 1 / float(found) if bool(found > 0) and bool(found.isfinite()) else 0.1
    slope = torch.linalg.vector_norm(torch.func.grad(f)(start))
    far = float(slope) * lr or 0.1
    return {
        "gradient descent": lambda ps: torch.optim.SGD(ps, lr=lr),
        "heavy ball": lambda ps: HeavyBall(ps, lr=lr, momentum=0.9),
        "Nesterov": lambda ps: Nesterov(ps, lr=lr, momentum="convex"),
        "Adam": lambda ps: torch.optim.Adam(ps, lr=far),
    }


def window_of(paths: Mapping[str, Path], room: float = 0.15) -> Float[Tensor, "2 2"]:
    """A box that holds the paths and some room, low and high of each axis.

    Iterates more than twice as high above the lowest as the start is are not counted.

    Args:
        paths: Of two coordinates each.
        room: What is added on each side, as a share of the larger side.
    """
    points = torch.cat([path.points for path in paths.values()]).double()
    values = torch.cat([path.values for path in paths.values()]).double()
    # a path that leaves would shrink the others to a dot
    height = 2 * (values[0] - values[values.isfinite()].min())
    points = points[points.isfinite().all(1) & (values <= values[values.isfinite()].min() + height)]
    low, high = points.amin(0), points.amax(0)
    side = float((high - low).max()) or 1.0
    # a narrow box would hide what lies beside the path
    half = torch.maximum((high - low) / 2, torch.tensor(side / 4, dtype=torch.float64)) + room * side
    middle = (low + high) / 2
    return torch.stack((middle - half, middle + half), 1)


def surface(f: Function, window: Float[Tensor, "2 2"], side: int = SIDE) -> Float[Tensor, "side side"]:
    """The function on a grid over a window; rows go along the second coordinate.

    Args:
        f: Of two coordinates.
        window: Low and high of each axis.
        side: Points along each.
    """
    x, y = (torch.linspace(float(low), float(high), side, dtype=torch.float64) for low, high in window)
    return torch.stack([torch.stack([f(torch.stack((a, b))).detach() for a in x]) for b in y])


def has_two_weights(subject: Subject) -> bool:
    """Whether the model has exactly two weights that are trained."""
    return sum(p.numel() for p in subject.model.parameters() if p.requires_grad) == 2


def paths(subject: Subject, *, examples: int | None = 4096) -> Finding:
    """The loss left by four optimizers after 60 steps, over a model's two weights, with their paths.

    They begin at the weights that training began with where they are known, else at the model's.

    Args:
        subject: A model of two weights.
        examples: About how many examples the loss is taken over; None: all.
    """
    sample = differentiated(subject, examples)
    h = WeightFunction(subject.model, sample.batches, subject.objective)
    start = h.weights if subject.initial is None else h.of(subject.initial)
    made = {name: follow(h, start, make, STEPS) for name, make in customary(h, start).items()}
    value = torch.stack([path.values[-1] for path in made.values()]).double()
    window = window_of(made)
    return Finding(
        statement=f"The mean loss over {sample.words} that each optimizer leaves after {STEPS} steps from "
        "the same start, at rates that the curvature there suggests.",
        value=value,
        unit="loss",
        range=(-math.inf, math.inf),
        premises=(),
        reference="Polyak 1964; Nesterov 1983; Kingma and Ba 2015, Algorithm 1",
        labels=tuple(made),
        curves={
            "surface": surface(h, window),
            "window": window,
            **{f"path: {name}": path.points for name, path in made.items()},
        },
    )


def reached(
    f: Function, starts: Sequence[float] | Float[Tensor, " starts"], *, lr: float, steps: int
) -> Float[Tensor, " starts"]:
    """Where gradient descent on a function of one variable ends, for each start: it depends on the start.

    Args:
        f: The function of a vector of one coordinate.
        starts: Where descent begins.
        lr: The rate, > 0.
        steps: How many, >= 0.

    Reference: Goodfellow, Bengio and Courville 2016, Section 8.2.
    """
    begun = torch.as_tensor(starts, dtype=torch.float64)
    ends = [follow(f, x[None], lambda ps: torch.optim.SGD(ps, lr=lr), steps).points[-1] for x in begun]
    return torch.cat(ends)


def basin(start: float) -> float:
    """The minimum of the double well (x^2 - 1)^2 that gradient descent at the rate 0.05 reaches: sign(start).

    At 0 it stays, on the maximum between the wells.

    Args:
        start: x_0 with |x_0| < 2, so that no step leaps across.
    """
    return float(reached(landscape("double_well").value, [start], lr=0.05, steps=400)[0])


def demo() -> Subject:
    """A line fitted to points whose inputs are far from 0: a valley of condition number 29."""
    x = torch.tensor([0.5, 1.0, 1.5, 2.0, 2.5], dtype=torch.float64)
    batch = Batch((x[:, None],), 3 - 2 * x)
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Flatten(0)).double()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))
