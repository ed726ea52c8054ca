r"""Sharpness in a box: how much the loss can rise when every weight moves a little.

Keskar et al. (2017): the largest loss in the box :math:`|z_i| \le \varepsilon (|\theta_i| + 1)` about the
weights, less the loss, relative to 1 + loss. It depends on the parametrization (Dinh et al. 2017); in the box
:math:`|z_i| \le \varepsilon |\theta_i|`, after Kwon et al. (2021), scaling one layer up and the next one down
changes nothing.
"""

import copy
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.evaluation import weighted_sum
from margin.engine.loop import risk
from margin.math.seeds import mix
from margin.theory.curvature.hessian import MEMORY, differentiating, pieces_of, real_terms
from margin.theory.curvature.trained_weights import differentiated

Box = Literal["absolute", "relative"]
"""``absolute``: a weight moves by epsilon (|weight| + 1); ``relative``: by epsilon |weight|."""


class Ascent(NamedTuple):
    """The loss at the weights, and the largest that the ascent found in the box."""

    loss: float
    highest: float

    @property
    def sharpness(self) -> float:
        """The rise of the loss relative to 1 + loss, at least 0."""
        return max(self.highest - self.loss, 0.0) / (1 + self.loss) if self.loss > -1 else math.nan


# The four options of the ascent, and the three of every risk.
def box_ascent(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    epsilon: float = 1e-3,
    box: Box = "absolute",
    steps: int = 10,
    memory: int = MEMORY,
    independent: bool = True,
) -> Ascent:
    """The largest mean loss that signed gradient ascent finds in a box about the weights.

    The first step goes to the corner that the gradient names, where a linear loss is largest; the others move
    by a quarter of the box and are cut back to it. A second ascent begins at a random corner, because at a
    minimum no gradient names one. The answer is a lower bound of the maximum. A copy of the model is moved.

    Args:
        model: The module; its parameters that require a gradient are moved.
        batches: The examples.
        objective: The loss of each term.
        epsilon: Size of the box, above 0.
        box: How it follows the weights.
        steps: Gradients of each ascent, at least 1.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
        independent: Whether a batch may be cut.

    Raises:
        ValueError: An option is out of range, or no parameter requires a gradient.

    Reference: Keskar et al. 2017, Metric 2.1 with A the identity; Kwon et al. 2021, Section 3.
    """
    if not (math.isfinite(epsilon) and epsilon > 0) or steps < 1:
        raise ValueError(f"epsilon must be above 0, steps at least 1: got epsilon={epsilon}, steps={steps}")
    moved = copy.deepcopy(model)
    with differentiating(moved, batches, objective, independent=independent, memory=memory) as (
        moved,
        batches,
        chunk,
        _,
    ):
        parameters = [p for p in moved.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError("a box of weights needs parameters that require a gradient: the model has none")
        centers = [p.detach().clone() for p in parameters]
        one = 1.0 if box == "absolute" else 0.0
        sides = [epsilon * (center.abs() + one) for center in centers]
        generator = Generator().manual_seed(2017)
        losses: list[float] = []
        for corner in (False, True):
            with torch.no_grad():
                for p, center, side in zip(parameters, centers, sides, strict=True):
                    signs = 2 * torch.randint(2, p.shape, generator=generator) - 1
                    p.copy_(center + side * signs.to(p) if corner else center)
            for step in range(steps + 1):
                loss, gradients = _loss_and_gradient(moved, batches, objective, chunk, parameters)
                losses.append(loss)
                if not math.isfinite(loss):
                    return Ascent(losses[0], loss)
                length = 0.25 if step or corner else 1.0
                with torch.no_grad():
                    for p, g, center, side in zip(parameters, gradients, centers, sides, strict=True):
                        p.copy_((p + length * side * g.sign()).clamp(center - side, center + side))
    return Ascent(losses[0], max(losses))


def _loss_and_gradient(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    chunk: int | None,
    parameters: Sequence[Tensor],
) -> tuple[float, list[Tensor]]:
    total, weight = 0.0, 0.0
    sums = [torch.zeros_like(p) for p in parameters]
    like = parameters[0]
    for number, piece in enumerate(pieces_of(batches, chunk)):
        seed = mix(number, 17)
        torch.default_generator.manual_seed(seed)
        batch = piece.to(dtype=like.dtype, device=like.device)
        values = real_terms(objective(model, batch, Generator().manual_seed(seed)))
        value, count = weighted_sum(values, batch.weight)
        total, weight = total + float(value.detach()), weight + float(count)
        if value.requires_grad:
            found = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
            for one, g in zip(sums, found, strict=True):
                one += g
    return total / weight if weight else math.nan, sums


def _claim(
    subject: Subject, box: Box, epsilon: float, steps: int, examples: int | None, memory: int
) -> Finding:
    sample = differentiated(subject, examples)
    found = box_ascent(
        subject.model,
        sample.batches,
        subject.objective,
        epsilon=epsilon,
        box=box,
        steps=steps,
        memory=memory,
        independent=subject.independent,
    )
    room = "epsilon (|weight| + 1)" if box == "absolute" else "epsilon |weight|"
    failure = "" if math.isfinite(found.highest) else "the loss is not finite in the box"
    if not failure and found.loss <= -1:
        failure = f"a rise relative to 1 + loss needs a loss above -1: it is {found.loss:.3g}"
    return Finding(
        statement=f"The mean loss over {sample.words} rises by at least this share of 1 + loss, from "
        f"{found.loss:.4g} to {found.highest:.4g}, where every weight moves by at most {room}, epsilon = "
        f"{epsilon:g}; two signed ascents of {steps} steps.",
        value=torch.tensor(math.nan if failure else found.sharpness, dtype=torch.float64),
        unit="1",
        range=(0.0, math.inf),
        premises=(),
        reference="Keskar et al. 2017, Section 2.2.1, Metric 2.1"
        if box == "absolute"
        else "Kwon, Kim, Park and Choi 2021, Section 3 (adaptive sharpness)",
        kind="lower",
        failure=failure,
    )


def demo() -> Subject:
    """The loss (w - 2)^2 at its minimum: in a box of 3 epsilon it rises by 9 epsilon^2."""
    model = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(2.0)
    one = torch.ones(4, 1, dtype=torch.float64)
    batch = Batch((one,), 2 * one)
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))


def box_sharpness(
    subject: Subject,
    *,
    epsilon: float = 1e-3,
    steps: int = 10,
    examples: int | None = 1024,
    memory: int = MEMORY,
) -> Finding:
    """Epsilon-sharpness: the relative rise of the loss in a box, epsilon (|weight| + 1) for each weight.

    The ascent gives a lower bound of the maximum. The number depends on the parametrization (Dinh et al.
    2017, Theorem 4 and Section 4): compare models of one architecture, trained alike, with it, or none.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        epsilon: Size of the box, above 0.
        steps: Gradients of the ascent, at least 1.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
    """
    return _claim(subject, "absolute", epsilon, steps, examples, memory)


def adaptive_sharpness(
    subject: Subject,
    *,
    epsilon: float = 1e-2,
    steps: int = 10,
    examples: int | None = 1024,
    memory: int = MEMORY,
) -> Finding:
    """The relative rise of the loss in a box that gives each weight epsilon |weight|, whatever its scale.

    The arguments are those of :func:`box_sharpness`.
    """
    return _claim(subject, "relative", epsilon, steps, examples, memory)
