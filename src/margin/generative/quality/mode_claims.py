"""Which components of a mixture a generator covers, where classes are components: Srivastava et al. 2017."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.generative.quality.generated import Compared, can_be_sampled, compared
from margin.generative.quality.mode_coverage import WITHIN, good_share, mode_coverage
from margin.math.two_samples.distances import distances
from margin.theory.prediction.risk import clopper_pearson

LEVEL = 1 - 1e-4
"""Probability with which an interval is to hold the truth."""

APART = 6.0
"""Standard deviations between two means, at least: then balls of 3 do not meet."""

ROUND = 2.0
"""Ratio of the largest to the least variance along an axis within the classes, at most."""

EACH = 8
"""Training rows of each class that are needed."""

FEATURES = 16
"""Features at most: in more no class of real data is a ball, and looking for one costs."""


class Components(NamedTuple):
    """The components of a mixture of round Gaussians, estimated from labeled rows."""

    means: Float[Tensor, "modes dim"]
    std: float
    weights: Float[Tensor, " modes"]


def components_of(found: Compared) -> Components | None:
    """The classes as components, where they are round, of one size and apart; else None.

    Args:
        found: Its training rows are labeled.
    """
    labels, x = found.labels, found.train
    if x.ndim != 2 or not len(labels) or not 1 <= x.shape[1] <= FEATURES:
        return None
    counts = torch.bincount(labels)
    if len(counts) < 2 or int(counts.min()) < EACH:
        return None
    means = torch.zeros(len(counts), x.shape[1], dtype=x.dtype).index_add(0, labels, x) / counts[:, None]
    inner = x - means[labels]
    covariance = inner.T @ inner / (len(x) - len(counts))
    spectrum = torch.linalg.eigvalsh(covariance)
    std = float(spectrum.mean()) ** 0.5
    gaps = distances(means, means).fill_diagonal_(math.inf)
    if not float(spectrum[0]) * ROUND >= float(spectrum[-1]) > 0 or not float(gaps.min()) >= APART * std:
        return None
    return Components(means, std, counts.double() / len(x))


def has_components(subject: Subject) -> bool:
    """Whether the classes are components of a mixture of round Gaussians that are apart."""
    if not can_be_sampled(subject) or not len(subject.train):
        return False
    first = subject.test[0]
    if first.inputs[0].ndim != 2 or first.inputs[0].shape[1] > FEATURES or first.targets is None:
        return False
    return not first.targets.is_floating_point() and components_of(compared(subject)) is not None


def modes(subject: Subject) -> Finding:
    """The share of the modes that the samples cover, and the share of the samples that are good.

    Args:
        subject: Its classes are the components of a mixture.
    """
    found, said = compared(subject), ""
    parts = components_of(found)
    if parts is None:
        raise ValueError("mode coverage needs classes that are round Gaussians, apart from each other")
    means, std, weights = parts
    value = low = high = torch.full((2,), math.nan, dtype=torch.float64)
    real = mode_coverage(found.test, means, std, weights=weights)
    if not found.failure:
        answer = mode_coverage(found.samples, means, std, weights=weights)
        count, covered = len(found.samples), answer.covered / len(means)
        ends = clopper_pearson(round(answer.good * count), count, level=LEVEL)
        value = torch.tensor([covered, answer.good], dtype=torch.float64)
        # what so many samples covered, they covered
        low, high = (torch.tensor([covered, end], dtype=torch.float64) for end in ends)
        said = f" The divergence of the good samples' modes from the data's is {answer.divergence:.3g} nats."
    return Finding(
        statement=f"Of {len(means)} modes, those that {len(found.samples):,} samples cover, and the share of "
        f"samples within {WITHIN:g} standard deviations of a mode; of held-out examples it is "
        f"{real.good:.3f}, of the mixture {good_share(means.shape[1]):.3f}.{said}",
        value=value,
        interval=(low, high),
        kind="estimate",
        unit="1",
        range=(0.0, 1.0),
        labels=("share of modes covered", "share of good samples"),
        premises=(_round(real.good, len(found.test), means.shape[1]),),
        reference="Srivastava, Valkov, Russell, Gutmann and Sutton 2017, Section 5.1",
        failure=found.failure,
    )


def _round(share: float, count: int, dim: int) -> Premise:
    """Whether as many held-out examples are good as of a mixture of round Gaussians."""
    low, high = clopper_pearson(round(share * count), count, level=LEVEL)
    expected = good_share(dim)
    fits = low <= expected <= high
    return Premise(
        "each class is a round Gaussian",
        "sampled" if fits else "refuted",
        f"{share:.3f} of {count:,} held-out examples lie within {WITHIN:g} standard deviations, of a "
        f"Gaussian {expected:.3f}",
    )
