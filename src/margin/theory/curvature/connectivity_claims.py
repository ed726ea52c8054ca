"""How high the loss rises between two trainings, and from the first weights of one to its last.

Between two networks there is mostly a barrier on the straight line. Part of it is that their hidden units
come in other orders (Entezari et al., 2022); and there are bent paths without one (Garipov et al., 2018).
"""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.math.seeds import mix
from margin.theory.curvature.connectivity import Along, along, bent, bezier, has_statistics, straight
from margin.theory.curvature.hessian import pieces_of
from margin.theory.curvature.trained_weights import differentiated
from margin.theory.signal.alignment import aligned
from margin.theory.signal.path import NotAChainError, few_inputs
from margin.theory.signal.symmetry import permute_hidden

UNIT = "loss"
BATCH = 128
"""Examples a step of a descent on a bent path."""

HIGHEST = "It is the highest of {points} places; between them the path may rise higher"


def _second(subject: Subject) -> nn.Module:
    if subject.beside is None:
        raise ValueError("a path needs a second model beside the first: got none")
    return subject.beside


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


def _barrier(path: Along, normal: str, words: str, reference: str, curves: dict[str, Tensor]) -> Finding:
    value, stderr = path.barrier
    return Finding(
        statement=f"How far the mean loss over {words} rises above the line between its ends, "
        f"{_ends(path)}. {HIGHEST.format(points=len(path.t))}{normal}.",
        value=value,
        unit=UNIT,
        range=(0.0, math.inf),
        premises=(),
        reference=reference,
        kind="lower",
        stderr=stderr,
        failure="" if bool(value.isfinite()) else "the loss is not finite on the path",
        curves=curves,
    )


def linear(subject: Subject, *, examples: int | None = 2048) -> Finding:
    """The barrier of the straight path from a model's weights to those of a second one.

    Args:
        subject: A model with a second one beside it.
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
        "Frankle, Dziugaite, Roy and Carbin 2020, Section 2; Entezari et al. 2022, Section 2",
        _drawn(straight=path),
    )


def after_alignment(subject: Subject, *, examples: int | None = 2048) -> Finding:
    """The barrier of the straight path to a second model whose hidden units are put in this one's order.

    Args:
        subject: A chain of layers with a second one beside it.
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
        "Ainsworth, Hayase and Srinivasa 2023, Section 3.2; Entezari et al. 2022, Section 2",
        _drawn(straight=before, aligned=path),
    )


def curved(subject: Subject, *, steps: int = 300, lr: float = 0.01, examples: int | None = 1024) -> Finding:
    """The barrier of a quadratic Bezier curve to a second model, trained for a low loss along it.

    The curves are the loss on the straight path, on the one after alignment where the model is a chain of
    layers, and on the bent one.

    Args:
        subject: A model with a second one beside it.
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
        "Garipov, Izmailov, Podoprikhin, Vetrov and Wilson 2018, Section 3",
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
        premises=(),
        reference="Goodfellow, Vinyals and Saxe 2015, Section 3",
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
    """A network trained on three blobs; beside it the same with its units in another order."""
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
    beside = permute_hidden(model, 0, torch.randperm(8, generator=generator))
    return Subject(
        model=model,
        test=[batch],
        train=[batch],
        task=CLASSES,
        objective=risk(CLASSES),
        initial=initial,
        beside=beside,
    )
