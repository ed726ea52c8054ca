r"""Paths between two settings of the weights, and the loss along them: straight, or bent to where it is low.

The barrier of a path is how far the loss rises above the line between its ends (Frankle et al., 2020;
Entezari et al., 2022),

.. math:: \max_{t \in [0, 1]} \; h(\phi(t)) - (1 - t)\, h(\phi(0)) - t\, h(\phi(1)).

On a straight path it is 0 for a convex loss. Garipov et al. (2018) train a quadratic Bezier curve between two
minima along which the loss stays low.

Between two networks there is mostly a barrier on the straight line. Part of it is that their hidden units
come in other orders (Entezari et al., 2022); and there are bent paths without one (Garipov et al., 2018).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES, Task
from margin.core.types import Batch, Objective
from margin.engine.evaluation import copied, eval_mode, expand_weight, pieces_of, terms_of, weighted_mean
from margin.engine.loop import risk
from margin.math.seeds import mix
from margin.theory.curvature.trained_weights import differentiated
from margin.theory.signal.chain import NotAChainError, few_inputs
from margin.theory.signal.symmetry import aligned, permute_hidden

Curve = Callable[[float], nn.Module]
"""The model at a place t in [0, 1] of a path."""

POINTS = 21
"""Places at which a path is looked at, both ends included."""


class Along(NamedTuple):
    """What was measured at each place of a path: mean loss and share of mistakes, with standard errors.

    ``terms`` are the losses of each term, ``weights`` theirs. ``error`` is NaN where a task has no accuracy.
    """

    t: Float[Tensor, " points"]
    terms: Float[Tensor, "points terms"]
    weights: Float[Tensor, " terms"]
    error: Float[Tensor, " points"]
    error_stderr: Float[Tensor, " points"]

    @property
    def loss(self) -> Float[Tensor, " points"]:
        """The mean loss at each place."""
        return _mean(self.terms, self.weights)

    @property
    def loss_stderr(self) -> Float[Tensor, " points"]:
        """Its standard error over the terms."""
        return _stderr(self.terms, self.weights)

    @property
    def excess(self) -> Float[Tensor, "points terms"]:
        """How far the loss of each term lies above the line between its values at the ends."""
        t = self.t[:, None]
        return self.terms - (1 - t) * self.terms[0] - t * self.terms[-1]

    @property
    def barrier(self) -> tuple[Tensor, Tensor]:
        """The largest mean excess over the places looked at, and its standard error over the terms."""
        mean = _mean(self.excess, self.weights)
        if not bool(mean.isfinite().all()):
            return mean.new_tensor(torch.nan), mean.new_tensor(torch.nan)
        at = int(mean.argmax())
        return mean[at], _stderr(self.excess, self.weights)[at]


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (weights * values).sum(-1) / weights.sum()


def _stderr(values: Tensor, weights: Tensor) -> Tensor:
    off = values - _mean(values, weights)[..., None]
    count = weights.sum() ** 2 / weights.square().sum()
    return (
        ((weights * off).square().sum(-1)).sqrt() / weights.sum() * (count / (count - 1).clamp(min=1)).sqrt()
    )


def check_alike(one: nn.Module, other: nn.Module) -> None:
    """Refuse two models whose parameters have different names or shapes.

    Raises:
        ValueError: They do; the message names the first.
    """
    ours, theirs = ({n: tuple(p.shape) for n, p in m.named_parameters()} for m in (one, other))
    for name in (*ours, *theirs):
        if ours.get(name) != theirs.get(name):
            raise ValueError(
                f"the two models must have the same parameters: {name} is {ours.get(name, 'absent')} in one, "
                f"{theirs.get(name, 'absent')} in the other"
            )


def straight(one: nn.Module, other: nn.Module) -> Curve:
    r"""The line :math:`\phi(t) = (1 - t)\, a + t\, b` between the parameters of two models.

    Buffers are those of the first model; see :func:`along` for batch statistics.

    Raises:
        ValueError: The models have different parameters.

    Reference: Goodfellow, Vinyals and Saxe 2015, Section 3.
    """
    check_alike(one, other)
    a, b = _weights(one), _weights(other)
    return _curve(one, lambda t: [x.lerp(y, t) for x, y in zip(a, b, strict=True)], {0.0: a, 1.0: b})


def bent(one: nn.Module, middle: Sequence[Tensor], other: nn.Module) -> Curve:
    r"""The quadratic Bezier curve :math:`\phi(t) = (1 - t)^2 a + 2 t (1 - t)\, \theta + t^2 b`.

    Args:
        one: Its parameters are a.
        middle: Theta, one tensor for each parameter.
        other: Its parameters are b.

    Raises:
        ValueError: The models have different parameters.

    Reference: Garipov, Izmailov, Podoprikhin, Vetrov and Wilson 2018, Section 3.
    """
    check_alike(one, other)
    a, b = _weights(one), _weights(other)
    return _curve(one, lambda t: _bezier(a, middle, b, t), {0.0: a, 1.0: b})


def _bezier(a: Sequence[Tensor], middle: Sequence[Tensor], b: Sequence[Tensor], t: float) -> list[Tensor]:
    parts = zip(a, middle, b, strict=True)
    return [(1 - t) ** 2 * x + 2 * t * (1 - t) * m + t**2 * y for x, m, y in parts]


def _weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def _curve(model: nn.Module, at: Callable[[float], list[Tensor]], ends: dict[float, list[Tensor]]) -> Curve:
    moved = copied(model)

    def curve(t: float) -> nn.Module:
        with torch.no_grad():
            for parameter, value in zip(moved.parameters(), ends.get(t) or at(t), strict=True):
                parameter.copy_(value)
        return moved

    return curve


def _with_statistics(model: nn.Module) -> list[_BatchNorm]:
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]


def has_statistics(model: nn.Module) -> bool:
    """Whether a batch normalization of the model keeps statistics."""
    return bool(_with_statistics(model))


@torch.no_grad()
def renormalize(model: nn.Module, batches: Sequence[Batch]) -> None:
    """Give a model's batch normalizations the statistics of these batches, the mean over them; in place.

    Statistics do not move along with the weights: those of either end are wrong in between. All else is asked
    in evaluation mode.

    Reference: Izmailov et al. 2018, Section 3.2; Garipov et al. 2018, Section 3.
    """
    layers = _with_statistics(model)
    if not layers:
        return
    with eval_mode(model):
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None
            layer.train()
        for batch in batches:
            model(*batch.inputs)
        found = [[buffer.clone() for buffer in layer.buffers()] for layer in layers]
    # what is asked leaves no trace, these statistics too: they are written here
    for layer, values in zip(layers, found, strict=True):
        for buffer, value in zip(layer.buffers(), values, strict=True):
            buffer.copy_(value)


@torch.no_grad()
def along(
    curve: Curve,
    batches: Sequence[Batch],
    task: Task,
    objective: Objective,
    *,
    statistics: Sequence[Batch] = (),
    points: int = POINTS,
) -> Along:
    """The loss and the share of mistakes at evenly spaced places of a path, its ends included.

    Args:
        curve: The model at each place.
        batches: The examples that are asked.
        task: How outputs are read.
        objective: The loss of each term.
        statistics: Batches from which batch normalization's statistics are recomputed at every place, the
            ends included; () keeps those of the model.
        points: Places, at least 2.

    Raises:
        ValueError: There are fewer than two places.
    """
    if points < 2:
        raise ValueError(f"a path has two ends: points must be at least 2, got {points}")
    t = torch.linspace(0, 1, points, dtype=torch.float64)
    terms, errors, errors_stderr = [], [], []
    for place in t.tolist():
        model = curve(place)
        renormalize(model, statistics)
        losses, wrong, weights = _terms(model, batches, task, objective)
        terms.append(losses)
        errors.append(_mean(wrong, weights))
        errors_stderr.append(_stderr(wrong, weights))
    return Along(t, torch.stack(terms), weights, torch.stack(errors), torch.stack(errors_stderr))


def _terms(
    model: nn.Module, batches: Sequence[Batch], task: Task, objective: Objective
) -> tuple[Tensor, Tensor, Tensor]:
    losses, wrong, weights = [], [], []
    with eval_mode(model) as generator:
        for batch in batches:
            found = terms_of(model, batch, task, objective, generator)
            weight = expand_weight(found["loss"], batch.weight).double()
            counted = weight != 0
            right = found.get("accuracy")
            misses = torch.full_like(weight, torch.nan) if right is None else 1 - right.double()
            losses.append(found["loss"].double()[counted])
            wrong.append(misses.expand_as(weight)[counted])
            weights.append(weight[counted])
    return torch.cat(losses).cpu(), torch.cat(wrong).cpu(), torch.cat(weights).cpu()


# The ends, the loss, and the four options of the descent.
def bezier(
    one: nn.Module,
    other: nn.Module,
    objective: Objective,
    batches: Sequence[Batch],
    *,
    steps: int = 300,
    lr: float = 0.01,
    seed: int = 0,
) -> list[Tensor]:
    r"""The middle point of a quadratic Bezier curve between two models along which the mean loss is low.

    .. math:: \min_\theta \; \mathbb E_{t \sim U[0, 1]}\; h(\phi_\theta(t)), \qquad
        \nabla_\theta h(\phi_\theta(t)) = 2 t (1 - t)\, \nabla h(\phi)

    by Adam from the middle of the line, at a rate that falls to 0. Each step draws t and one batch. The
    models are asked in evaluation mode, batch normalization apart, which takes the statistics of the batch.

    Args:
        one: The model at t = 0; it is left as it is.
        other: The model at t = 1, of the same parameters; it is left as it is.
        objective: The loss of each term.
        batches: The examples, at least one batch.
        steps: Gradients, at least 0; without any the curve is the line.
        lr: The rate at first, above 0.
        seed: Of t, of the batches, and of what the objective draws.

    Returns:
        Theta, one tensor for each parameter.

    Raises:
        ValueError: An option is out of range, there is no batch, or the models have different parameters.

    Reference: Garipov et al. 2018, Section 3.
    """
    if steps < 0 or not lr > 0 or not len(batches):
        raise ValueError(
            f"steps must be at least 0, lr above 0, and batches not empty: got steps={steps}, lr={lr}, "
            f"{len(batches)} batches"
        )
    check_alike(one, other)
    model, a, b = copied(one), _weights(one), _weights(other)
    middle = [((x + y) / 2).requires_grad_() for x, y in zip(a, b, strict=True)]
    optimizer = torch.optim.Adam(middle, lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, max(steps, 1))
    parameters = list(model.parameters())
    draws = Generator().manual_seed(seed)
    with eval_mode(model, seed) as generator, torch.enable_grad():
        for layer in model.modules():
            layer.train(isinstance(layer, _BatchNorm))
        moving = [i for i, p in enumerate(parameters) if p.requires_grad]
        for _ in range(steps):
            t = float(torch.rand((), generator=draws))
            batch = batches[int(torch.randint(len(batches), (), generator=draws))]
            with torch.no_grad():
                for parameter, value in zip(parameters, _bezier(a, middle, b, t), strict=True):
                    parameter.copy_(value)
            loss = weighted_mean(objective(model, batch, generator), batch.weight)
            found = torch.autograd.grad(loss, [parameters[i] for i in moving], allow_unused=True)
            for i, grad in zip(moving, found, strict=True):
                middle[i].grad = None if grad is None else 2 * t * (1 - t) * grad
            optimizer.step()
            schedule.step()
    return [m.detach() for m in middle]


UNIT = "loss"
BATCH = 128
"""Examples a step of a descent on a bent path."""

HIGHEST = "It is the highest of {points} places; between them the path may rise higher"


def _second(subject: Subject) -> nn.Module:
    if subject.reference_model is None:
        raise ValueError("a path needs a reference model: got none")
    return subject.reference_model


def _along(subject: Subject, batches: Sequence[Batch], one: nn.Module, other: nn.Module) -> Along:
    return along(straight(one, other), batches, subject.task, subject.objective, statistics=batches)


def _ends(path: Along) -> str:
    text = f"from a loss of {float(path.loss[0]):.4g} to {float(path.loss[-1]):.4g}"
    if bool(path.error.isnan().any()):
        return text
    at = int(path.error.argmax())
    return (
        f"{text}; the share of mistakes goes from {float(path.error[0]):.3g} to {float(path.error[-1]):.3g} "
        f"and is {float(path.error[at]):.3g} -+ {2 * float(path.error_stderr[at]):.2g} at the worst place"
    )


def _drawn(**paths: Along) -> dict[str, Tensor]:
    curves = {"place on the path": next(iter(paths.values())).t}
    for name, path in paths.items():
        curves[f"loss: {name}"] = path.loss
        curves[f"loss: {name}, error"] = path.loss_stderr
        if not bool(path.error.isnan().any()):
            curves[f"mistakes: {name}"] = path.error
    return curves


def _normalized(model: nn.Module) -> str:
    normal = "; batch normalization takes its statistics anew at every place"
    return normal if has_statistics(model) else ""


def _barrier(path: Along, normal: str, words: str, curves: dict[str, Tensor]) -> Finding:
    value, stderr = path.barrier
    return Finding(
        statement=f"How far the mean loss over {words} rises above the line between its ends, "
        f"{_ends(path)}. {HIGHEST.format(points=len(path.t))}{normal}.",
        value=value,
        unit=UNIT,
        range=(0.0, math.inf),
        kind="lower",
        stderr=stderr,
        failure="" if bool(value.isfinite()) else "the loss is not finite on the path",
        curves=curves,
    )


def linear(subject: Subject, *, examples: int | None = 2048) -> Finding:
    """The barrier of the straight path from a model's weights to those of a second one.

    Args:
        subject: A model with a reference model.
        examples: About how many training examples the loss is taken over; None: all.

    Raises:
        ValueError: There is no second model, or its parameters differ.
    """
    sample = differentiated(subject, examples)
    path = _along(subject, sample.batches, subject.model, _second(subject))
    return _barrier(
        path,
        _normalized(subject.model),
        f"{sample.words}, on the straight path between the two models' weights,",
        _drawn(straight=path),
    )


def after_alignment(subject: Subject, *, examples: int | None = 2048) -> Finding:
    """The barrier of the straight path to a second model whose hidden units are put in this one's order.

    Args:
        subject: A chain of layers with a reference model of the same layers.
        examples: About how many training examples the loss is taken over; None: all.

    Raises:
        ValueError: There is no second model, its layers differ, or it is no chain.
    """
    sample, other = differentiated(subject, examples), _second(subject)
    before = _along(subject, sample.batches, subject.model, other)
    other = aligned(subject.model, other, inputs=few_inputs(subject))
    path = _along(subject, sample.batches, subject.model, other)
    height = float(before.barrier[0])
    return _barrier(
        path,
        _normalized(subject.model),
        f"{sample.words}, on the straight path to the second model with its hidden units in the first one's "
        f"order (as they are, it rises by {height:.4g}),",
        _drawn(straight=before, aligned=path),
    )


def curved(subject: Subject, *, steps: int = 300, lr: float = 0.01, examples: int | None = 1024) -> Finding:
    """The barrier of a quadratic Bezier curve to a second model, trained for a low loss along it.

    The curves are the loss on the straight path, on the one after alignment where the model is a chain of
    layers, and on the bent one.

    Args:
        subject: A model with a reference model.
        steps: Gradients of the curve's descent, at least 0.
        lr: Its rate, above 0.
        examples: About how many training examples the loss is taken over; None: all.

    Raises:
        ValueError: There is no second model, its parameters differ, or an option is out of range.
    """
    sample, other = differentiated(subject, examples), _second(subject)
    batches = list(pieces_of(sample.batches, BATCH if subject.independent else None))
    middle = bezier(subject.model, other, subject.objective, batches, steps=steps, lr=lr)
    curve = bent(subject.model, middle, other)
    path = along(curve, sample.batches, subject.task, subject.objective, statistics=sample.batches)
    paths = {"straight": _along(subject, sample.batches, subject.model, other)}
    try:
        matched = aligned(subject.model, other, inputs=few_inputs(subject))
        paths["aligned"] = _along(subject, sample.batches, subject.model, matched)
    except NotAChainError:
        pass  # then there is no such path to be drawn
    height = float(paths["straight"].barrier[0])
    return _barrier(
        path,
        _normalized(subject.model),
        f"{sample.words}, on a Bezier curve of one middle point, trained for {steps} steps (on the straight "
        f"path it rises by {height:.4g}),",
        _drawn(**paths, bent=path),
    )


def from_initial(subject: Subject, *, examples: int | None = 2048) -> Finding:
    """The largest rise of the loss on the straight path from the first weights of a training to its last.

    0 says that the loss falls all the way, which Goodfellow, Vinyals and Saxe saw of many networks.

    Args:
        subject: A model whose initial weights are known.
        examples: About how many training examples the loss is taken over; None: all.

    Raises:
        ValueError: The initial weights are not known.
    """
    if subject.initial is None:
        raise ValueError("a path from the initial weights needs them: they are not known")
    sample = differentiated(subject, examples)
    path = _along(subject, sample.batches, subject.initial, subject.model)
    rise, stderr = largest_rise(path)
    how = "falls all the way" if float(rise) == 0 else "does not fall all the way"
    return Finding(
        statement=f"The mean loss over {sample.words} {how} on the straight path from the initial weights to "
        f"the trained ones, {_ends(path)}. The value is its largest rise from one of the "
        f"{len(path.t)} places looked at to a later one{_normalized(subject.model)}.",
        value=rise,
        unit=UNIT,
        range=(0.0, math.inf),
        kind="lower",
        stderr=stderr,
        failure="" if bool(rise.isfinite()) else "the loss is not finite on the path",
        curves=_drawn(straight=path),
    )


def largest_rise(path: Along) -> tuple[Tensor, Tensor]:
    """The largest rise of the mean loss from one place of a path to a later one, 0 where it never rises.

    Its standard error is that of the terms' rises between the same two places.
    """
    loss = path.loss
    if not bool(loss.isfinite().all()):
        return loss.new_tensor(math.nan), loss.new_tensor(math.nan)
    rises = loss - loss.cummin(0).values
    end = int(rises.argmax())
    begin = int(loss[: end + 1].argmin())
    both = path._replace(terms=(path.terms[end] - path.terms[begin])[None])
    return rises[end], both.loss_stderr[0]


def _network(generator: Generator) -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def demo() -> Subject:
    """A network trained on three blobs; its reference model is the same with its units in another order."""
    generator = Generator().manual_seed(2018)
    centers = torch.tensor([[0.0, 2.0], [1.7, -1.0], [-1.7, -1.0]], dtype=torch.float64)
    labels = torch.arange(60) % 3
    x = centers[labels] + torch.randn(60, 2, generator=generator, dtype=torch.float64) / 2
    batch = Batch((x,), labels)
    model = _network(Generator().manual_seed(mix(2018, 1)))
    initial = _network(Generator().manual_seed(mix(2018, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        risk(CLASSES)(model, batch, generator).mean().backward()
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    reference = permute_hidden(model, 0, torch.randperm(8, generator=generator))
    return Subject(
        model=model,
        test=[batch],
        train=[batch],
        task=CLASSES,
        objective=risk(CLASSES),
        initial=initial,
        reference_model=reference,
    )


def rise_demo() -> Subject:
    """A training that began with the same network in another order of units: the loss rises on the way."""
    subject = demo()
    return dataclasses.replace(subject, initial=subject.reference_model)
