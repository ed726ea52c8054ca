"""What latent-variable models promise: steps never go back, sums are 1, no code beats a closed form."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CODES, DENSITY
from margin.core.types import Batch
from margin.data.sets.tiny.tables import values
from margin.engine.objectives import negative_log_density
from margin.engine.weighted_rows import rows_of_batches
from margin.generative.latent.gplvm import GPLVM, negative_log_likelihood, principal_latents
from margin.generative.latent.mixture import (
    GaussianMixture,
    Parts,
    em_iteration,
    mean_log_likelihood,
)
from margin.generative.latent.nmf import NMF, divergence, divergence_of, nonnegative, updated
from margin.generative.latent.rbm import MOST, RBM, all_states, pseudo_likelihood
from margin.nn.preprocessed import core_of

MOST_SEEN = 14
"""Visible bits of a machine all of whose rows are enumerated."""

ZERO = torch.zeros((), dtype=torch.float64)
NAN = torch.full((), math.nan, dtype=torch.float64)


def is_small_rbm(subject: Subject) -> bool:
    """Whether the model is a Boltzmann machine with a layer so small that all its states can be summed."""
    core = core_of(subject.model)
    return isinstance(core, RBM) and min(core.weight.shape) <= MOST


def is_tiny_rbm(subject: Subject) -> bool:
    """Whether it is one with so few visible bits that all rows can be enumerated."""
    core = core_of(subject.model)
    return is_small_rbm(subject) and len(core.visible) <= MOST_SEEN


def is_linear_gplvm(subject: Subject) -> bool:
    """Whether the model is a GPLVM with the linear kernel, and has its training examples."""
    core = core_of(subject.model)
    return isinstance(core, GPLVM) and core.kernel == "linear" and bool(core.fitted)


def counted_examples(subject: Subject, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    """Examples that count, as the core sees them, float64, and their weights."""
    rows = rows_of_batches(subject.model, batches, learner="the question", targets=False).double()
    return rows.x, rows.weight


@torch.no_grad()
def ascent(subject: Subject) -> Finding:
    """Whether one more iteration of EM on the training examples leaves them no less likely.

    Args:
        subject: A mixture of Gaussians with its training examples.
    """
    core: Any = core_of(subject.model)
    x, weight = counted_examples(subject, subject.train)
    parts = Parts(core.log_weights.double(), core.means.double(), core.factors.double())
    L = parts.factors
    least = float(torch.linalg.svdvals(L).min() ** 2 if L.ndim == 3 else L.min() ** 2)
    below = not least >= core.floor * (1 - 1e-3)  # factors are kept in the model's type
    value, failure, before = NAN, "", NAN
    try:
        new = em_iteration(x, weight, parts, covariance=core.covariance, floor=core.floor)
        before = mean_log_likelihood(x, weight, parts)
        value = mean_log_likelihood(x, weight, new) - before
    except (ValueError, RuntimeError) as error:
        failure = str(error)
    eps = float(torch.finfo(core.means.dtype).eps)
    return Finding(
        statement="One more iteration of EM makes the training examples no less likely: what it adds to "
        f"their mean log-likelihood of {float(before):.6g} nats. Near 0, the mixture is one that EM keeps.",
        value=value,
        unit="nats",
        range=(-math.inf, math.inf),
        low=ZERO,
        tolerance=64 * eps * (1 + abs(float(before))) if math.isfinite(float(before)) else 0.0,
        premises=(
            Premise(
                f"no variance is below the floor {core.floor:g}",
                "refuted" if below else "proved",
                f"factors: the least variance in any direction is {least:.4g}",
            ),
        ),
        reference="Dempster, Laird and Rubin 1977, Theorem 1; Bishop 2006, Section 9.4",
        failure=failure,
    )


@torch.no_grad()
def descent(subject: Subject) -> Finding:
    """Whether one more update of codes, and of parts, takes divergence from the training examples.

    Args:
        subject: A nonnegative factorization with its training examples.
    """
    core: Any = core_of(subject.model)
    x, weight = counted_examples(subject, subject.train)
    nonnegative(x)
    B = core.parts.double()
    low = float(B.min())
    Z = core.encode(x.to(core.parts)).double()
    scale = weight.sqrt() if core.loss == "frobenius" else weight

    def whole(Z: Tensor, B: Tensor) -> Tensor:
        return weight @ divergence(x, Z @ B, core.loss) / weight.sum()

    before = whole(Z, B)
    Z = updated(x, Z, B, core.loss)
    between = whole(Z, B)
    after = whole(Z, updated(x.T * scale, B.T, Z.T * scale, core.loss).T)
    name = {"frobenius": "half squared error", "kl": "divergence"}[core.loss]
    return Finding(
        statement=f"One more multiplicative update of codes, then of parts, does not raise the mean {name} "
        f"of training examples, {float(before):.6g}: what each takes away.",
        value=torch.stack((before - between, between - after)),
        unit="1" if core.loss == "frobenius" else "nats",
        range=(-math.inf, math.inf),
        low=ZERO.expand(2),
        tolerance=1e-10 * (1 + abs(float(before))),
        labels=("codes", "parts"),
        premises=(
            Premise(
                "parts are at least 0",
                "proved" if low >= 0 else "refuted",
                f"parts: the least number is {low:.4g}",
            ),
        ),
    )


@torch.no_grad()
def total(subject: Subject) -> Finding:
    """Whether the probabilities of all rows of bits sum to 1.

    Args:
        subject: A Boltzmann machine of few visible bits.
    """
    core: Any = core_of(subject.model)
    v = all_states(len(core.visible), 0, 2 ** len(core.visible)).to(core.visible)
    p = core.log_prob(v).double().exp()
    return Finding(
        statement=f"The probabilities of all {len(p):,} rows of {len(core.visible)} bits sum to 1; the "
        f"likeliest has {float(p.max()):.3g}. The partition function is summed over the smaller layer.",
        value=p.sum(),
        range=(0.0, math.inf),
        equals=1.0,
        tolerance=1e-4 if core.visible.dtype == torch.float32 else 1e-9,
        reference="Smolensky 1986, Section 2; Hinton 2012, Equation 4",
    )


@torch.no_grad()
def likelihood(subject: Subject) -> Finding:
    """The exact log-likelihood of held-out bits, which training by contrast never sees.

    Args:
        subject: A Boltzmann machine with a small layer.
    """
    core: Any = core_of(subject.model)
    x, weight = counted_examples(subject, subject.test)
    logs = core.log_prob(x.to(core.visible)).double()
    share = weight / weight.sum()
    mean = share @ logs
    pseudo = pseudo_likelihood(core, Batch((x.to(core.visible),)), Generator().manual_seed(0)).double()
    return Finding(
        statement=f"The mean log-probability of {len(x):,} held-out examples' bits (1 from 1/2 on), exactly; "
        f"bits that are all even have {-len(core.visible) * math.log(2):.4g}. The pseudolikelihood, which "
        f"the training reports, is {-float(share @ pseudo):.4g}.",
        value=mean,
        unit="nats",
        range=(-math.inf, 0.0),
        kind="estimate",
        stderr=(share.square() @ (logs - mean).square()).sqrt(),
        reference="Salakhutdinov and Murray 2008, Section 5; Besag 1975, Section 2",
    )


@torch.no_grad()
def closed_form(subject: Subject) -> Finding:
    """Whether no codes are more likely than those of dual probabilistic PCA.

    Args:
        subject: A GPLVM with the linear kernel that has its training examples.
    """
    core: Any = core_of(subject.model)
    Y = (core.rows - core.mean).double()
    n, d = Y.shape
    m = core.latents.shape[1]
    spectrum = torch.linalg.eigvalsh(Y @ Y.T / d).flip(0).clamp_min(0)
    noise = spectrum[m:].sum() / (n - m)
    logs = spectrum[:m].log().sum() + (n - m) * noise.log()
    best = 0.5 * d * (n * math.log(2 * math.pi) + logs + n) / n
    value = negative_log_likelihood(Y, core.noisy().double()) / n
    return Finding(
        statement=f"No codes of {m} numbers and no noise make the {n:,} examples more likely than dual "
        f"probabilistic PCA, whose negative log-likelihood an example is {float(best):.6g} nats.",
        value=value,
        unit="nats",
        range=(-math.inf, math.inf),
        low=best,
        tolerance=1e-6 * (1 + abs(float(best))) if math.isfinite(float(best)) else 0.0,
        premises=(
            Premise(
                "the examples vary outside of as many directions as a code has numbers",
                "proved" if float(noise) > 1e-12 * float(spectrum[0]) else "refuted",
                f"rows: the mean variance there is {float(noise):.4g}",
            ),
        ),
        reference="Lawrence 2005, Section 2.2 and Appendix A",
    )


def _subject(core: nn.Module, x: Tensor, objective: Any, task: Any = CODES) -> Subject:
    return Subject(
        model=core.eval(), test=(Batch((x,)),), train=(Batch((x,)),), task=task, objective=objective
    )


def _rows() -> Tensor:
    return values().splits["train"].inputs[0].float()


def mixture_demo() -> Subject:
    """A mixture as it begins, and forty rows."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = GaussianMixture(3, components=3)
    return _subject(core, _rows(), negative_log_density, DENSITY)


def nmf_demo() -> Subject:
    """A factorization as it begins, and forty rows."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = NMF(3, components=2)
    return _subject(core, _rows().abs(), divergence_of)


def rbm_demo() -> Subject:
    """A machine of six bits and four unseen ones, its weights drawn, and forty rows of bits."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = RBM(6, hidden_units=4)
        with torch.no_grad():
            core.weight.normal_()
    g = Generator().manual_seed(0)
    return _subject(core, core.sample(40, generator=g, steps=20), pseudo_likelihood)


def gplvm_demo() -> Subject:
    """A GPLVM with the linear kernel at the principal components of forty rows."""
    x = _rows()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = GPLVM(*x.shape, code=1, kernel="linear")
    with torch.no_grad():
        core.rows.copy_(x)
        core.mean.copy_(x.mean(0))
        core.latents.copy_(principal_latents(x, 1))
        core.fitted.fill_(True)
    return dataclasses.replace(_subject(core, x, negative_log_density))
