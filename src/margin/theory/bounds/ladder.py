"""The ladder: what samples promise of the risk of this very classifier, all at once, rung by rung.

Held-out examples, which chose nothing, bound it by the binomial law. Training examples chose the weights, so
that a bound from them pays for the length of these: it says something of short networks and many examples.
Of a model that stores no weights, as a fitted estimator of another library, the length of what was learned is
not known, and there is none.
"""

import dataclasses
import math

import torch
from torch import nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.theory.bounds.certificate import drawn_once
from margin.theory.bounds.description import quantized, stored_nats
from margin.theory.bounds.samples import binomial_bound, hoeffding_bound, occam_bound
from margin.theory.bounds.spectral import by_norms
from margin.theory.prediction.confusion import Classified, classified
from margin.theory.prediction.held_out import Terms, independent_draws, stated, trials_of, weighted_mean
from margin.theory.prediction.memorization import training_part

CONSTANT = "errors of a constant answer"
"""The name of the share of held-out examples that the commonest class does not answer: a bound that is no
less is vacuous, of whatever classifier."""

DELTA = 0.05
"""The probability that one of the bounds fails."""

OF_CAPACITY = 0.001
"""The share of it that is for bounds by the capacity of all networks of a kind, which are seldom below 1."""

LEVELS = (3, 9, 33)
"""Values of a quantized entry that are tried; the choice among them is paid for. Odd numbers, for 0."""

BINOMIAL, HOEFFDING = "held-out examples, exactly", "held-out examples, by Hoeffding"
DRAWN = "training examples, a network drawn once from its law"
STORED, QUANTIZED = "training examples, weights as stored", "training examples, weights quantized"

STORED_ALL = Premise(
    "training chose nothing of the model but the weights that it stores",
    "assumed",
    "a shape, a setting or a constant in its code that the training examples chose is paid for nowhere",
)


def ladder(subject: Subject) -> Finding:
    """Upper bounds of the share of new examples that are answered wrongly, each by another theorem.

    Args:
        subject: A model with one class label an example; with training examples, and weights that can be
            written down, there are bounds from these.

    Reference: Langford 2005, Theorem 3.3 (binomial) and Corollary 4.2 (Occam); Hoeffding 1963, Theorem 1.
    """
    found, failure = classified(subject)
    models = subject.compared or 1
    # what was fitted elsewhere keeps its numbers where they are not seen: their length is not known
    described = len(subject.train) > 0 and stored_nats(subject.model) > 0
    names = [BINOMIAL, HOEFFDING, *([STORED, QUANTIZED] if described else [])]
    names += [DRAWN] if described and subject.certified else []
    delta = DELTA * (1 - OF_CAPACITY) / len(names) / models  # at once of all that were compared
    known = dict.fromkeys(names, math.nan)
    if not failure:
        errors, n = errors_of(found)
        whole = max(math.floor(n), 1)
        known[BINOMIAL] = binomial_bound(errors, n, delta)
        known[HOEFFDING] = float(hoeffding_bound(errors / n, whole, delta))
        if described:
            known |= _by_training(subject, found, delta)
            if (drawn := drawn_once(subject, delta)) is not None:
                known[DRAWN] = drawn
            else:
                known.pop(DRAWN, None)  # not all rows of its certificate are at hand
            known |= by_norms(training_part(subject), DELTA * OF_CAPACITY / models)
    once = f"at once of the {models:,} models that the examples compared" if models > 1 else "at once"
    return Finding(
        statement="Upper bounds of the share of new examples that are answered wrongly, which hold "
        f"{once} with {1 - DELTA:.0%} confidence. Where weights are quantized it is that of a copy of few "
        "values, where a network is drawn from a law over the weights that of this one.",
        value=torch.tensor([*known.values()], dtype=torch.float64),
        range=(0.0, 1.0),
        premises=(independent_draws(subject), *unseen(subject), *([STORED_ALL] if described else [])),
        failure=failure,
        labels=tuple(known),
        curves={CONSTANT: torch.tensor([constant_errors(found)], dtype=torch.float64)},
    )


def constant_errors(found: Classified) -> float:
    """The share of examples that the best constant answer gets wrong."""
    return 1 - float(torch.bincount(found.labels, found.weight).max() / found.weight.sum())


def unseen(subject: Subject) -> tuple[Premise, ...]:
    """What the held-out examples have chosen, by the training's record and by the user's word.

    Of the best of several models that they compared, a bound holds if it holds of each: by the union bound
    the probability that one of N fails is at most N times that of one.

    Args:
        subject: A model, with what is known of how it was selected.

    Reference: Langford 2005, Corollary 4.2, of a uniform prior on N.
    """
    told = () if subject.selection is None else (subject.selection,)
    if subject.compared is None:
        return *told, Premise(
            "the held-out examples chose nothing: this model is not the best of several on them",
            "assumed",
            "say how many models they have compared, this one among them, by --selected-on-test N "
            "(selected_on_test=N in Python): the bounds then pay for the choice",
        )
    if subject.compared == 1:
        said = "it was said: they have judged this model alone"
        return *told, Premise("the held-out examples chose nothing", "assumed", said)
    return *told, Premise(
        f"the held-out examples chose nothing but this model, of {subject.compared:,} made without them",
        "assumed",
        f"it was said; each bound fails with 1/{subject.compared:,} of the probability that it has alone",
    )


def errors_of(found: Classified) -> tuple[float, float]:
    """The number of errors and of examples of equal weight that a sample is worth."""
    right = (found.labels == found.predicted).double()
    terms = Terms(right, found.weight, found.example)
    n = trials_of(right, terms, level=1 - 2 * DELTA)
    return min(max(n * (1 - float(weighted_mean(terms).mean)), 0.0), n), n


def _by_training(subject: Subject, held_out: Classified, delta: float) -> dict[str, float]:
    """Occam's bounds: of the weights as they are stored, and of the best of a few quantized copies."""
    part = training_part(subject)
    found, failure = classified(part)
    if failure:
        return {STORED: 1.0, QUANTIZED: 1.0}
    errors, n = errors_of(found)
    whole = max(math.floor(n), 1)
    stored = float(occam_bound(errors / n, whole, delta, choice=stored_nats(subject.model)))
    constant = constant_errors(held_out)
    best, share = 1.0, delta / len(LEVELS)
    for levels in LEVELS:
        twin, nats = quantized(subject.model, levels)
        if float(occam_bound(0.0, whole, share, choice=nats)) >= min(best, constant):
            continue  # right for all, it would promise no more than a constant answer
        copied, failure = classified(dataclasses.replace(part, model=twin))
        if not failure:
            errors, n = errors_of(copied)
            best = min(best, float(occam_bound(errors / n, whole, share, choice=nats)))
    return {STORED: stored, QUANTIZED: best}


def demo() -> Subject:
    """Of 80 held-out examples 4 are wrong, of a model without weights that could be written down."""
    labels = torch.arange(80) % 2
    predicted = torch.where(torch.arange(80) < 4, 1 - labels, labels)
    return stated(nn.functional.one_hot(predicted, 2).double(), labels, task=CLASSES)
