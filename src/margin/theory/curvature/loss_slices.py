r"""The loss about the weights: its slices, and its sharpness in a box of the weights.

Goodfellow, Vinyals and Saxe (2015) draw the loss along a line, Li et al. (2018) along random directions of
which every filter has the norm of the weights' own: else a network that does not mind its scale looks flat or
sharp by that scale alone.

Sharpness in a box, after Keskar et al. (2017): the largest loss in the box :math:`|z_i| \le \varepsilon
(|\theta_i| + 1)` about the weights, less the loss, relative to 1 + loss. It depends on the parametrization
(Dinh et al. 2017); in the box :math:`|z_i| \le \varepsilon |\theta_i|`, after Kwon et al. (2021), scaling one
layer up and the next one down changes nothing.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.evaluation import copied, eval_mode, pieces_of, weighted_sum
from margin.engine.loop import risk
from margin.math.seeds import mix
from margin.theory.curvature.eigenpairs import ROWS, Pairs, leading_eigenpairs
from margin.theory.curvature.hessian import MEMORY, differentiating, real_terms
from margin.theory.curvature.trained_weights import NO_LOSS, differentiated, hessian_of, vectors_within
from margin.theory.curvature.twice_differentiable import twice_differentiable

SIDE = 17
"""Places along each side of a plane; odd, so that one of them is where the weights are."""

PLACES = torch.linspace(-1, 1, 21, dtype=torch.float64)
SHOWN = (0.2, 0.5, 1.0)
"""Distances at which the rise of the loss is stated, in norms of the weights: some of the places."""


@torch.no_grad()
def losses_at(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    moves: Float[Tensor, "places directions"],
    directions: Float[Tensor, "directions dim"],
) -> Float[Tensor, " places"]:
    """The mean loss where the weights are moved by sums of directions; a copy of the model is moved.

    Args:
        model: The module; its parameters that require a gradient are moved. Asked in evaluation mode.
        batches: The examples.
        objective: The loss of each term; what it draws is drawn alike at every place.
        moves: For each place, how far in each direction.
        directions: One number for each moved parameter, in their order.
    """
    moved = copied(model)
    pairs = _with_centers(moved, model)
    sizes = [p.numel() for p, _ in pairs]
    losses = []
    for move in moves:
        offset = move.to(directions) @ directions
        for (p, center), part in zip(pairs, offset.split(sizes), strict=True):
            p.copy_(center + part.view_as(p).to(p))
        losses.append(_mean_loss(moved, batches, objective))
    return torch.tensor(losses, dtype=torch.float64)


def _with_centers(moved: nn.Module, model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Each parameter that is moved with the model's own, which stays, of the same type.

    Which are moved the model's own say: the copy of a scripted one requires no gradient where none is
    recorded.
    """
    pairs = zip(moved.parameters(), model.parameters(), strict=True)
    return [(p, own.detach().to(p)) for p, own in pairs if own.requires_grad]


def _mean_loss(model: nn.Module, batches: Sequence[Batch], objective: Objective) -> float:
    total, weight = 0.0, 0.0
    with eval_mode(model):
        for number, batch in enumerate(batches):
            torch.default_generator.manual_seed(mix(number, 23))
            values = real_terms(objective(model, batch, Generator().manual_seed(mix(number, 23))))
            value, count = weighted_sum(values.double(), batch.weight)
            total, weight = total + float(value), weight + float(count)
    return total / weight if weight else math.nan


def filter_normalized(model: nn.Module, generator: Generator) -> Float[Tensor, " dim"]:
    r"""A random direction whose every filter has the norm of the weights': :math:`d \leftarrow d |w| / |d|`.

    A filter is what makes one output: a row of a matrix, a kernel of a convolution. Biases, gains and shifts
    stay where they are.

    Args:
        model: Its parameters that require a gradient, in their order.
        generator: Source of the direction, on the CPU.

    Reference: Li, Xu, Taylor, Studer and Goldstein 2018, Section 4.
    """
    parts = []
    for p in model.parameters():
        if not p.requires_grad:
            continue
        if p.ndim < 2:
            parts.append(torch.zeros(p.numel(), dtype=p.dtype, device=p.device))
            continue
        d = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p)
        norms = (p.detach().flatten(1).norm(dim=1) / d.flatten(1).norm(dim=1)).reshape(
            -1, *[1] * (p.ndim - 1)
        )
        parts.append((d * norms).reshape(-1))
    return torch.cat(parts)


def plane(
    subject: Subject,
    *,
    rise: float = 1.0,
    side: int = SIDE,
    examples: int | None = 1024,
    memory: int = MEMORY,
) -> Finding:
    """How far the loss falls below that at the weights on the plane of the two sharpest directions.

    Along each direction the plane reaches to where the quadratic of the Hessian has risen by ``rise``. The
    statement says how far the loss itself has risen there: far from that, the quadratic does not describe it.

    Args:
        subject: A model with two parameters at least that require a gradient, and an objective.
        rise: What the quadratic has risen by at the middle of a side, above 0, in units of the loss.
        side: Places along each side, odd, at least 3.
        examples: About how many examples the loss is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about, and the vectors.

    Raises:
        ValueError: An option is out of range, or the model has a single parameter.
    """
    if not rise > 0 or side < 3 or side % 2 == 0:
        raise ValueError(f"rise must be above 0, side odd and at least 3: got rise={rise}, side={side}")
    found, words, finite = _sharpest(subject, examples, memory)
    premise = twice_differentiable(subject)
    failure = "" if found.converged else "the two sharpest directions were not found"
    failure = failure if finite else NO_LOSS
    if not failure and float(found.values.min()) <= 0:
        failure = f"the loss is curved upwards in fewer than two directions: {float(found.values.min()):.3g}"
    if failure:
        return _plane_finding(premise, words, found.values, rise, failure)
    radius = (2 * rise / found.values).sqrt()
    ticks = torch.linspace(-1, 1, side, dtype=torch.float64)
    places = torch.cartesian_prod(ticks, ticks)
    sample = differentiated(subject, examples)
    losses = losses_at(
        subject.model, sample.batches, subject.objective, places * radius, found.vectors
    ).reshape(side, side)
    return _plane_finding(premise, words, found.values, rise, "", (radius[:, None] * ticks, losses))


def _sharpest(subject: Subject, examples: int | None, memory: int) -> tuple[Pairs, str, bool]:
    with hessian_of(subject, examples, memory) as (hessian, sample):
        if hessian.dim < 2:
            raise ValueError("a plane needs two parameters that require a gradient: the model has one")
        start = hessian.start()
        rows = vectors_within(hessian.dim, memory, start.element_size(), least=4, most=ROWS)
        found = leading_eigenpairs(hessian, start, 2, by="largest", tol=1e-2, rows=rows)
        return found, sample.words, hessian.finite


def _plane_finding(
    premise: Premise,
    words: str,
    values: Tensor,
    rise: float,
    failure: str,
    plane: tuple[Tensor, Tensor] | None = None,
) -> Finding:
    value, told = torch.tensor(math.nan, dtype=torch.float64), ""
    ticks, losses = plane or (None, None)
    if losses is not None:
        middle = losses[losses.shape[0] // 2, losses.shape[1] // 2]
        value = middle - losses[losses.isfinite()].min()
        half = len(losses) // 2
        edges = [losses[0, half], losses[-1, half], losses[half, 0], losses[half, -1]]
        rises = ", ".join(f"{float(edge - middle):.3g}" for edge in edges)
        told = (
            f" Where the quadratic has risen by {rise:g} along each, to both sides, it has risen by {rises}."
        )
        failure = failure or ("" if bool(middle.isfinite()) else NO_LOSS)
    curves = {}
    if ticks is not None and losses is not None:
        curves = {"first direction": ticks[0], "second direction": ticks[1], "loss on the plane": losses}
    return Finding(
        statement=f"How far the mean loss over {words} falls below its value at the weights on the plane of "
        f"the two sharpest directions, of curvature {float(values[0]):.4g} and {float(values[1]):.4g}.{told}",
        value=value,
        unit="loss",
        range=(0.0, math.inf),
        premises=(premise,),
        kind="lower",
        failure=failure,
        curves=curves,
    )


def has_filters(subject: Subject) -> bool:
    """Whether a parameter of two axes or more requires a gradient, and all that do are real."""
    trained = [p for p in subject.model.parameters() if p.requires_grad]
    return any(p.ndim >= 2 for p in trained) and not any(p.is_complex() for p in trained)


def random_directions(
    subject: Subject, *, directions: int = 8, seed: int = 2018, examples: int | None = 1024
) -> Finding:
    """How the loss rises on both sides along random directions of which every filter has the weights' norm.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        directions: How many, at least 2.
        seed: Of the directions.
        examples: About how many examples the loss is taken over; None: all.

    Raises:
        ValueError: An option is out of range.
    """
    if directions < 2:
        raise ValueError(f"a standard error needs two directions: got {directions}")
    sample = differentiated(subject, examples)
    generator = Generator().manual_seed(seed)
    drawn = (filter_normalized(subject.model, generator) for _ in range(directions))  # one held at a time
    lines = torch.stack(
        [losses_at(subject.model, sample.batches, subject.objective, PLACES[:, None], d[None]) for d in drawn]
    )
    middle = len(PLACES) // 2
    at = [int((PLACES - distance).abs().argmin()) for distance in SHOWN]
    rises = torch.stack([(lines[:, i] + lines[:, -1 - i]) / 2 - lines[:, middle] for i in at], 1)
    finite = bool(rises.isfinite().all())
    failure = "" if finite else "the loss is not finite on a slice"
    return Finding(
        statement=f"How far the mean loss over {sample.words} rises from {float(lines[0, middle]):.4g} where "
        "every filter is moved by this share of its norm in a random direction, the mean over both sides and "
        f"{directions} directions.",
        value=rises.mean(0),
        unit="loss",
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=rises.std(0) / math.sqrt(directions),
        failure=failure,
        labels=tuple(f"{distance:g} of the norm" for distance in SHOWN),
        curves={"distance": PLACES} | {f"direction {i + 1}": line for i, line in enumerate(lines)},
    )


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
    moved = copied(model)
    with differentiating(moved, batches, objective, independent=independent, memory=memory) as (
        moved,
        batches,
        chunk,
        _,
    ):
        pairs = _with_centers(moved, model)
        # what can be made again, as the box, is not held: a vector of a large model is memory
        if not pairs:
            raise ValueError("a box of weights needs parameters that require a gradient: the model has none")
        one = 1.0 if box == "absolute" else 0.0
        generator = Generator().manual_seed(2017)
        losses: list[float] = []
        for corner in (False, True):
            with torch.no_grad():
                for p, center in pairs:
                    signs = 2 * torch.randint(2, p.shape, generator=generator) - 1
                    side = epsilon * (center.abs() + one)
                    p.copy_(center + side * signs.to(p) if corner else center)
            for step in range(steps + 1):
                loss, gradients = _loss_and_gradient(moved, batches, objective, chunk, [p for p, _ in pairs])
                losses.append(loss)
                if not math.isfinite(loss):
                    return Ascent(losses[0], loss)
                length = 0.25 if step or corner else 1.0
                with torch.no_grad():
                    for (p, center), g in zip(pairs, gradients, strict=True):
                        side = epsilon * (center.abs() + one)
                        p.copy_((p + length * side * g.sign()).clamp(center - side, center + side))
                del gradients, g
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
            torch._foreach_add_(sums, list(found))
            del found, value, values  # before the next piece's
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
        range=(0.0, math.inf),
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
