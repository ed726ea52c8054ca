"""How often bounds hold, with the held-out examples as the whole population: there the risk is known.

Samples are drawn from them with replacement. Nothing here says anything of the model's quality: its errors
are the loss of which the theorems speak.
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import CLASSES
from margin.theory.bounds.pac_bayes import change_of_measure, pac_bayes_kl
from margin.theory.bounds.samples import (
    binomial_bound,
    hoeffding_bound,
    occam_bound,
    rademacher_bound,
    vc_probability,
)
from margin.theory.prediction.confusion import class_scores, classified
from margin.theory.prediction.held_out import stated
from margin.theory.prediction.risk import share_interval

SEED = 1971
DELTA = 0.05
DRAWS = 1000
"""Samples that are drawn."""

SURE = 1 - 1e-4
"""The level of the interval by which a share of the samples is judged."""

MOST = 500
"""Held-out examples of the population, at most."""

RARE = 1e-5
"""Numbers of errors that are less probable are not drawn."""

EPSILONS = (0.28, 0.3)
MANY = 5000
"""Examples of a sample of which the inequality of Vapnik and Chervonenkis promises something."""


def coverage(subject: Subject, *, n: int = 100) -> Finding:
    r"""The probability that a bound of one classifier's risk holds, summed over all numbers of errors.

    .. math:: \sum_{k=0}^n P(\mathrm{Bin}(n, R) = k)\, 1[\mathrm{bound}(k) \ge R]

    Args:
        subject: A model with class labels; R is its share of errors on the held-out examples.
        n: Examples of a sample.
    """
    from scipy.stats import binom

    found, failure = classified(subject)
    wrong = (found.labels != found.predicted).double()
    R = float(wrong @ found.weight / found.weight.sum())
    ks = torch.arange(n + 1)
    chance = torch.from_numpy(binom.pmf(ks.numpy(), n, R))
    shares = ks.double() / n
    bounds = {
        "exactly": torch.tensor([binomial_bound(k, n, DELTA) for k in ks.tolist()], dtype=torch.float64),
        "Chernoff": occam_bound(shares, n, DELTA),
        "Hoeffding": hoeffding_bound(shares, n, DELTA),
    }
    return Finding(
        statement=f"The probability that a bound from {n} examples of the held-out ones lies at or above the "
        f"share of errors on all of these, {R:.4g}, summed over all numbers of errors.",
        value=torch.stack([chance[bound >= R].sum().clamp(max=1) for bound in bounds.values()]),
        range=(0.0, 1.0),
        low=torch.tensor(1 - DELTA, dtype=torch.float64),
        tolerance=1e-9,
        failure=failure,
        labels=tuple(bounds),
        curves=_by_errors(ks.double()[chance > RARE], R, {k: b[chance > RARE] for k, b in bounds.items()}),
    )


def _by_errors(errors: Tensor, R: float, bounds: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The bounds by the number of errors in the sample, where that is not too rare, and the risk."""
    named = {f"bound, {name}": bound for name, bound in bounds.items()}
    return {"errors in the sample": errors, **named, "the risk": torch.full_like(errors, R)}


def finite_class(subject: Subject, *, n: int = 100, draws: int = DRAWS) -> Finding:
    """How often bounds hold for every classifier of a finite class at once, and for every posterior tried.

    The class is the model itself with a constant added to the score of one class. PAC-Bayes has the uniform
    prior, and posteriors that fall exponentially with the errors on the sample.

    Args:
        subject: A model with class labels.
        n: Examples of a sample.
        draws: Samples.
    """
    wrong = moved_decisions(subject)
    risks, size = wrong.double().mean(1), len(wrong)
    generator = Generator().manual_seed(SEED)
    picked = torch.randint(wrong.shape[1], (draws, n), generator=generator)
    seen = torch.stack([row[picked].double().mean(1) for row in wrong], 1)
    signs = 2.0 * torch.randint(2, (draws, n), generator=generator).double() - 1
    follows = torch.stack([(row[picked].double() * signs).mean(1) for row in wrong], 1).amax(1)
    choice = math.log(size)
    held = {
        "Hoeffding and a union": hoeffding_bound(seen, n, DELTA, choice=choice) >= risks,
        "Chernoff and a union": occam_bound(seen, n, DELTA, choice=choice) >= risks,
        "PAC-Bayes": torch.stack([_gibbs_holds(seen, risks, n, slope) for slope in (0, 0.2, 1, 5)], 1),
        "Rademacher": rademacher_bound(seen, follows.mean().clamp(min=0), n, DELTA) >= risks,
    }
    shares = torch.stack([ok.all(1).double().mean() for ok in held.values()])
    return Finding(
        statement=f"The share of {draws:,} samples of {n} held-out examples whose bounds hold at once for "
        f"all of {size} classifiers: the model's scores, a constant added to one of them.",
        value=shares,
        range=(0.0, 1.0),
        kind="estimate",
        interval=share_interval(shares, draws, level=SURE),
        printed=share_interval(shares, draws),
        low=torch.tensor(1 - DELTA, dtype=torch.float64),
        scope="probability",
        labels=tuple(held),
        curves=_by_classifier(risks, seen, n, choice),
    )


def _by_classifier(risks: Tensor, seen: Tensor, n: int, choice: float) -> dict[str, Tensor]:
    """Of each classifier, the best first: risk, share of errors on the first sample, two bounds."""
    order = risks.argsort(stable=True)
    first = seen[0, order]
    return {
        "classifier": torch.arange(len(risks)).double(),
        "risk": risks[order],
        "errors on one sample": first,
        "Chernoff and a union": occam_bound(first, n, DELTA, choice=choice),
        "Hoeffding and a union": hoeffding_bound(first, n, DELTA, choice=choice),
    }


def moved_decisions(subject: Subject) -> Bool[Tensor, "classifiers examples"]:
    """Which of the held-out examples each classifier of a class gets wrong: scores, a constant on one."""
    answered, scores = class_scores(subject)
    scores, labels = scores[:MOST], answered.targets.long()[:MOST]
    if not bool(scores.isfinite().all()):
        raise NotAsked("a score is not finite")
    spread = float(scores.std()) or 1.0
    rows = [scores.argmax(1) != labels]
    for k in range(min(scores.shape[1], 10)):
        for step in (-1.0, -0.5, 0.5, 1.0):
            moved = scores.clone()
            moved[:, k] += step * spread
            rows.append(moved.argmax(1) != labels)
    return torch.stack(rows)


def _gibbs_holds(
    seen: Float[Tensor, "draws classifiers"], risks: Float[Tensor, " classifiers"], n: int, slope: float
) -> Bool[Tensor, " draws"]:
    """Whether the bound holds of the posterior that falls as exp(-slope n errors), sample by sample."""
    log_q = (-slope * n * seen).log_softmax(1)
    q = log_q.exp()
    kl = (q * (log_q + math.log(len(risks)))).sum(1).clamp(min=0)
    return pac_bayes_kl((q * seen).sum(1).clamp(max=1), kl, n, DELTA) >= q @ risks - 1e-12


def uniform(subject: Subject, *, n: int = MANY, draws: int = DRAWS) -> Finding:
    """How often the errors of some threshold on a sample lie farther from its risk than a distance.

    The class is all thresholds on the score of the first class, which tell it from the others: n points have
    n + 1 labelings.

    Args:
        subject: A model with class labels.
        n: Examples of a sample.
        draws: Samples.
    """
    answered, scores = class_scores(subject)
    x, order = scores[:MOST, 0].sort()
    if not bool(x.isfinite().all()):
        raise NotAsked("a score is not finite")
    y = (answered.targets.long()[:MOST] == 0)[order].double()
    generator = Generator().manual_seed(SEED)
    farthest = torch.empty(draws, dtype=torch.float64)
    for i in range(draws):
        share = (
            torch.bincount(torch.randint(len(x), (n,), generator=generator), minlength=len(x)).double() / n
        )
        off = share - 1 / len(x)
        # of the threshold below point j: what is above and not of the class, below and of it
        above = (off * (1 - 2 * y)).flip(0).cumsum(0).flip(0)
        ties = torch.cat((torch.ones(1, dtype=torch.bool), x[1:] > x[:-1]))
        errors = torch.cat((above[ties], torch.zeros(1, dtype=torch.float64))) + off @ y
        farthest[i] = errors.abs().max()
    epsilon = torch.tensor(EPSILONS, dtype=torch.float64)
    shares = (farthest[:, None] > epsilon).double().mean(0)
    grid = torch.linspace(0, 0.35, 351, dtype=torch.float64)
    return Finding(
        statement=f"The share of {draws:,} samples of {n:,} held-out examples on which some threshold on the "
        "score of the first class errs by more than epsilon more, or less, than on all of them.",
        value=shares,
        range=(0.0, 1.0),
        kind="estimate",
        interval=share_interval(shares, draws, level=SURE),
        printed=share_interval(shares, draws),
        high=vc_probability(epsilon, math.log(n + 1), n),
        scope="probability",
        labels=tuple(f"epsilon {e:g}" for e in EPSILONS),
        curves={
            "epsilon": grid,
            "share of samples that are farther off": (farthest[:, None] > grid).double().mean(0),
            "promised at most": vc_probability(grid, math.log(n + 1), n).clamp(max=1),
        },
    )


def donsker_varadhan(subject: Subject) -> Finding:
    """How far the change of measure lies above a mean, with the model's laws as posteriors; and at equality.

    The prior is the mean of the laws, the variable the logarithm of another example's law, cut at 1e-9.

    Args:
        subject: A model of class probabilities.
    """
    _, scores = class_scores(subject)
    scores = scores[:MOST]
    if not bool(scores.isfinite().all()):
        raise NotAsked("a score is not finite")
    q = scores.softmax(1)
    p, x = q.mean(0).expand_as(q), q.roll(1, 0).clamp(min=1e-9).log()
    tilted = (p.log() + x).softmax(1)
    gaps = torch.stack((change_of_measure(x, q, p).min(), change_of_measure(x, tilted, p).abs().max()))
    return Finding(
        statement="KL(q || p) + ln E_p e^X - E_q X over the laws that the model states, at the least, and of "
        "the tilted law p e^X, where it is 0.",
        value=gaps,
        unit="nat",
        range=(-math.inf, math.inf),
        low=torch.zeros(2, dtype=torch.float64),
        high=torch.tensor([math.inf, 0.0], dtype=torch.float64),
        tolerance=1e-9,
        labels=("stated laws", "tilted law"),
    )


def demo() -> Subject:
    """Two normal scores a standard deviation apart, of 300 examples."""
    generator = Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    scores = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    return stated(scores + 1.5 * nn.functional.one_hot(labels, 3), labels, task=CLASSES)
