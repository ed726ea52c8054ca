r"""The compression bound: a network that can be written in few bits errs on new examples as on known ones.

A copy of the network, pruned and rounded, takes L nats of a code that was fixed beforehand, so that

.. math:: \mathrm{kl}(\hat R \| R) \le \frac{L + \ln(K / \delta)}{n}

for the best of K copies (Occam's bound; Zhou, Veitch, Austern, Adams and Orbanz 2019, Section 3; Arora, Ge,
Neyshabur and Zhang 2018). It speaks of the copy, and says something where its bits are fewer than examples.
"""

import dataclasses
import math
from typing import NamedTuple

import torch
from torch import Generator, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.bounds.description import NATS_A_BIT, pruned
from margin.theory.bounds.ladder import constant_errors, errors_of
from margin.theory.bounds.samples import occam_bound
from margin.theory.prediction.confusion import classified
from margin.theory.prediction.held_out import independent_draws
from margin.theory.prediction.memorization import training_part
from margin.theory.prediction.risk import share_interval

DELTA = 0.05
"""The probability that the bound fails."""

KEEP, LEVELS = (1.0, 0.5, 0.25, 0.1, 0.03), (3, 5, 9, 17)
"""Shares of the weights that stay, and the values of one: all pairs are tried, the choice is paid for."""

FREE = Premise(
    "neither the architecture nor the code was chosen by the training examples",
    "assumed",
    "the code is fixed; who chose the architecture cannot be seen from here",
)


class Copy(NamedTuple):
    """A pruned copy and what its length promises of it.

    Args:
        bound: Of the share of new examples that it answers wrongly.
        risk: That share of the training examples.
        nats: Its length.
        levels: Values of an entry.
        keep: Share of the entries of a matrix that stay.
        model: The copy.
    """

    bound: float
    risk: float
    nats: float
    levels: int
    keep: float
    model: nn.Module


def compression(subject: Subject) -> Finding:
    """How often the best compressed copy errs on held-out examples, below the bound of its training errors.

    Args:
        subject: A model with one class label an example, with training examples.

    Reference: Zhou et al. 2019, Theorem 4.1; Langford 2005, Corollary 4.2.
    """
    found, failure = classified(subject)
    constant = constant_errors(found)
    best, shortest, n = best_copy(subject, constant)
    pays = max(-n * math.log(1 - constant) - math.log(len(KEEP) * len(LEVELS) / DELTA), 0) / NATS_A_BIT
    if best is None:
        told = (
            f"No copy that was tried says more than a constant answer: the shortest takes "
            f"{shortest / NATS_A_BIT:,.0f} bits, and {n:,} training examples pay for {pays:,.0f}."
        )
    else:
        found, failed = classified(dataclasses.replace(subject, model=best.model))
        failure = failure or failed
        told = (
            f"A copy that keeps {best.keep:.0%} of the entries of each matrix, with {best.levels} values, "
            f"takes {best.nats / NATS_A_BIT:,.0f} bits and errs on {best.risk:.2%} of {n:,} training "
            f"examples: with {1 - DELTA:.0%} confidence on at most {best.bound:.1%} of new ones."
        )
    errors, count = errors_of(found)
    value = torch.tensor(errors / count, dtype=torch.float64)
    return Finding(
        statement="The share of held-out examples that the best compressed copy answers wrongly (the model "
        "itself where none says anything) lies below the bound by its length and its training errors.",
        value=value,
        range=(0.0, 1.0),
        kind="estimate",
        interval=share_interval(value, count, level=1 - 1e-4),
        printed=share_interval(value, count),
        high=torch.tensor(1.0 if best is None else best.bound, dtype=torch.float64),
        scope="probability",
        premises=(independent_draws(subject), FREE),
        failure=failure,
        remarks=(told,),
    )


def best_copy(subject: Subject, constant: float) -> tuple[Copy | None, float, int]:
    """The copy of the least bound, if that is below a constant answer's errors; the shortest's length; n.

    Args:
        subject: A model with training examples.
        constant: The share of errors from which on a bound says nothing.
    """
    part = training_part(subject)
    whole = max(math.floor(errors_of(classified(part)[0])[1]), 1)
    share, best, shortest = DELTA / (len(KEEP) * len(LEVELS)), None, math.inf
    for levels in LEVELS:
        for keep in KEEP:
            twin, nats = pruned(subject.model, levels, keep)
            shortest = min(shortest, nats)
            if float(occam_bound(0.0, whole, share, choice=nats)) >= (best.bound if best else constant):
                continue  # right for all, it would promise no more
            copied, failure = classified(dataclasses.replace(part, model=twin))
            if failure:
                continue
            errors, n = errors_of(copied)
            bound = float(occam_bound(errors / n, whole, share, choice=nats))
            if bound < (best.bound if best else constant):
                best = Copy(bound, errors / n, nats, levels, keep, twin)
    return best, shortest, whole


def demo() -> Subject:
    """A line of 30 weights, three of which matter, of 3,000 training and 500 held-out examples."""
    generator = Generator().manual_seed(7)
    x = torch.randn(3500, 15, generator=generator)
    labels = (x[:, 0] - x[:, 1] + 0.8 * x[:, 2] > 0).long()
    model = nn.Linear(15, 2)
    with torch.no_grad():
        model.weight.copy_(0.02 * torch.randn(2, 15, generator=generator))
        model.weight[1, :3] += torch.tensor([1.0, -1.0, 0.8])
        model.weight[0, :3] -= torch.tensor([1.0, -1.0, 0.8])
        model.bias.zero_()
    return Subject(
        model=model,
        test=[Batch((x[3000:],), labels[3000:])],
        train=[Batch((x[:3000],), labels[:3000])],
        task=CLASSES,
        objective=risk(CLASSES),
    )
