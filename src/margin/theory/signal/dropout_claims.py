"""What a model with dropout answers when all units are kept, beside the mean of its answers over masks.

Weight scaling is exact for the mean of outputs that are affine in the masks, and so for the geometric mean of
probabilities that are their softmax (Srivastava et al. 2014, Section 7.5); it is not for probabilities.
"""

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, sample_examples
from margin.engine.loop import risk
from margin.theory.prediction.held_out import output_of_one
from margin.theory.signal.dropout import dropping, monte_carlo_draws

SAMPLES = 200
"""Masks that are drawn at least."""

ANSWERS = 50_000
"""Answers, examples times masks, that are drawn at least, but where that took too many masks."""

MOST_SAMPLES = 2_000
"""Masks that are drawn at most."""

EXAMPLES = 256
"""Held-out examples that are asked, whole batches of them."""

SHARE = 0.05
"""Width at which a mean over masks is told from the answer without, over the answers' root mean square."""

GEOMETRIC = "Goodfellow, Bengio and Courville 2016, Section 7.12; Srivastava et al. 2014, Section 7.5"


def has_dropout(subject: Subject) -> bool:
    """Whether the model drops units while it trains, and answers with one tensor."""
    if not dropping(subject.model) or not subject.test:
        return False
    return isinstance(output_of_one(subject), Tensor)


def affine_in_masks(subject: Subject) -> bool:
    """Whether the model's outputs are an affine map of what its only dropout layer gives.

    The submodules that run after it are watched: they must be linear maps which, one after the other, give
    the model's answer.

    Args:
        subject: A model with dropout.
    """
    model = copy.deepcopy(subject.model)
    dropped = dropping(model)
    if len(dropped) != 1 or not isinstance(dropped[0], _DropoutNd):
        return False
    calls: list[tuple[nn.Module, Any]] = []

    def watch(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        calls.append((module, output))

    handles = [m.register_forward_hook(watch) for m in model.modules() if not list(m.children())]
    with torch.no_grad(), eval_mode(model):
        outputs = model(*subject.test[0].inputs)
        for handle in handles:
            handle.remove()
        places = [i for i, (module, _) in enumerate(calls) if module is dropped[0]]
        if len(places) != 1:
            return False
        after = [module for module, _ in calls[places[0] + 1 :]]
        if not all(isinstance(module, nn.Linear | nn.Flatten | nn.Identity) for module in after):
            return False
        again = nn.Sequential(*after)(calls[places[0]][1])
    same = isinstance(outputs, Tensor) and again.numel() == outputs.numel()
    return same and torch.allclose(again.flatten(), outputs.flatten(), rtol=1e-5, atol=0, equal_nan=True)


def weight_scaling(subject: Subject) -> Finding:
    """Whether the answer with all units kept is the mean of the answers over masks, before any softmax.

    Of classes it is the score of the predicted class less the mean score, of a single score its size on the
    predicted side, else the mean output; averaged over examples. Where the outputs are affine in the masks
    the two are the same, and softmax of the scores is the geometric mean of the ensemble; elsewhere nothing
    is promised.

    Args:
        subject: A model with dropout.
    """
    exact = affine_in_masks(subject)
    scaled, draws = _answers(subject, _scores)
    gaps = draws.mean(1) - scaled.mean()
    size = float(scaled.square().mean().sqrt())
    zero = torch.zeros((), dtype=torch.float64)
    return Finding(
        statement=f"The mean over {len(draws):,} draws of masks of the predicted score, less that score when "
        f"all units are kept, over {len(scaled):,} held-out examples whose scores have the size {size:.3g}.",
        value=gaps.mean(),
        unit="score",
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=gaps.std() / math.sqrt(len(draws)),
        low=zero if exact else None,
        high=zero if exact else None,
        tolerance=SHARE * size if exact and math.isfinite(size) else 0.0,
        failure="" if bool(draws.isfinite().all() and scaled.isfinite().all()) else "an answer is not finite",
        premises=_premises(subject) if exact else (),
        reference=GEOMETRIC,
    )


def _premises(subject: Subject) -> tuple[Premise, ...]:
    dropped = dropping(subject.model)
    p = max(float(getattr(module, "p", 0.0)) for module in dropped)
    others = sorted(
        {type(m).__name__ for m in dropped if isinstance(m, nn.AlphaDropout | nn.FeatureAlphaDropout)}
    )
    return (
        Premise(
            "the mean over masks of what a dropout layer gives is its input",
            "refuted" if others else "proved",
            f"{', '.join(others)} puts a value other than 0 in a unit's place and scales: its mean is an "
            "affine map of its input"
            if others
            else "a unit is dropped to 0 and else divided by the probability that it is kept",
        ),
        Premise("the outputs are affine in the masks", "proved", "only linear maps follow the dropout"),
        Premise(
            "a unit is kept with a probability above 0",
            "proved" if p < 1 else "refuted",
            f"the dropout layer drops a unit with probability {p:g}",
        ),
    )


def ensemble(subject: Subject) -> Finding:
    """By how much the confidence with all units kept exceeds the ensemble's, the mean over masks.

    Confidence is the probability of the class that is predicted when all units are kept. Weight scaling gives
    at most the geometric mean of the ensemble; the arithmetic mean, which a Bayesian reading asks for, is
    another.

    Args:
        subject: A model with dropout that states class probabilities.
    """
    probabilities = subject.task.probabilities
    if probabilities is None:
        raise ValueError(f"this needs a task with probabilities: got task {subject.task.name!r}")

    def confidence(outputs: Tensor, labels: Tensor | None) -> Tensor:
        stated = probabilities(outputs)
        return _picked(stated, stated.argmax(-1) if labels is None else labels)

    scaled, draws = _answers(subject, confidence)
    mean = draws.mean(0)
    gaps = scaled.mean() - draws.mean(1)
    order = scaled.argsort()
    return Finding(
        statement="The mean confidence when all units are kept, less the same class's mean probability over "
        f"{len(draws):,} draws of masks, over {len(scaled):,} held-out examples.",
        value=gaps.mean(),
        unit="probability",
        range=(-1.0, 1.0),
        kind="estimate",
        stderr=gaps.std() / math.sqrt(len(draws)),
        failure="" if bool(draws.isfinite().all() and scaled.isfinite().all()) else "an answer is not finite",
        premises=(),
        reference="Gal and Ghahramani 2016, Section 4; Srivastava et al. 2014, Section 7.5",
        curves={"all units kept": scaled[order], "mean over masks": mean[order], "the same": scaled[order]},
    )


Reading = Callable[..., Tensor]
"""``(outputs, labels) -> one number an example``; labels are the predicted classes, or None."""


def _answers(subject: Subject, read: Reading) -> tuple[Tensor, Tensor]:
    """One number an example with all units kept, and a row of them for each draw of masks.

    Raises:
        NotAsked: The draws do not differ.
    """
    generator = Generator().manual_seed(0)
    few = sample_examples(subject.test, EXAMPLES, whole_batches=not subject.independent)
    samples = min(max(SAMPLES, ANSWERS // max(few.taken, 1)), MOST_SAMPLES)
    scaled, draws = [], []
    for batch in few.batches:
        with torch.no_grad(), eval_mode(subject.model):
            outputs = subject.model(*batch.inputs)
        labels = _predicted(subject, outputs)
        keep = _counted(batch, outputs)
        scaled.append(read(outputs, labels).double().cpu()[keep])
        reading = partial(read, labels=labels)
        drawn = monte_carlo_draws(subject.model, batch.inputs, samples, generator, reading)
        draws.append(torch.stack(list(drawn))[:, keep])
    found = torch.cat(draws, 1)
    p = max(float(getattr(module, "p", 0.0)) for module in dropping(subject.model))
    if p < 1 and bool((found == found[0]).all()):
        raise NotAsked(
            f"{len(found):,} draws of masks give the same answers: the model's dropout layers drop nothing, "
            "as where its forward calls functional.dropout with their p"
        )
    return torch.cat(scaled), found


def _counted(batch: Batch, outputs: Tensor) -> Tensor:
    """Which examples have a weight above 0."""
    if batch.weight is None:
        return torch.ones(len(outputs), dtype=torch.bool)
    return (batch.weight.flatten(1).sum(1) if batch.weight.ndim > 1 else batch.weight).cpu() > 0


def _predicted(subject: Subject, outputs: Tensor) -> Tensor | None:
    """The predicted class of each term, None where there are no classes."""
    return None if subject.task.classes is None else subject.task.classes(outputs).argmax(-1)


def _picked(scores: Tensor, labels: Tensor) -> Tensor:
    """The score of a label, averaged over the terms of an example."""
    picked = scores.gather(-1, labels[..., None])[..., 0]
    return picked.flatten(1).mean(1) if picked.ndim > 1 else picked


def _scores(outputs: Tensor, labels: Tensor | None) -> Tensor:
    """A linear function of an example's outputs: see :func:`weight_scaling`."""
    if labels is None:
        return outputs.flatten(1).mean(1) if outputs.ndim > 1 else outputs
    if outputs.ndim == labels.ndim:  # one score a term: its size on the predicted side
        signed = outputs * (2 * labels - 1).to(outputs.dtype)
        return signed.flatten(1).mean(1) if signed.ndim > 1 else signed
    return _picked(outputs - outputs.mean(-1, keepdim=True), labels)


def demo() -> Subject:
    """A classifier that is affine behind its dropout."""
    g = Generator().manual_seed(0)
    x = torch.randn(64, 6, generator=g, dtype=torch.float64)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.5), nn.Linear(12, 3)).double()
        torch.nn.init.normal_(model.get_parameter("3.weight"))
    batches = [Batch((x,), torch.randint(0, 3, (64,), generator=g))]
    return Subject(model=model, test=batches, train=batches, task=CLASSES, objective=risk(CLASSES))
