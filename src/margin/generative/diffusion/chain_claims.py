"""What the chain of a diffusion promises: its energy, end, posterior, divergences and entropy."""

import math

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import DENSITY
from margin.core.types import Batch
from margin.generative.diffusion.exact import ExactDenoiser, Mixture
from margin.generative.diffusion.model import Diffusion, constant, denoising_loss, terminal, weights
from margin.generative.diffusion.process import (
    bayes,
    energy,
    jump,
    linear_schedule,
    posterior,
    posterior_mean,
    target,
    to_eps,
)
from margin.nn.preprocessed import core_of, features_of

ROWS = 512
"""Examples that a question looks at, at most."""

TIMES = 9
"""Times at which a curve along the chain is measured."""

DRAWN = 20_000
"""Numbers of noise by which an energy is measured, at least."""


def has_middle(subject: Subject) -> bool:
    """Whether the model is a diffusion with a step, not the first, that leaves something of the data."""
    core = core_of(subject.model)
    return isinstance(core, Diffusion) and bool((core.schedule.alpha_bar[2:] > 0).any())


def asked(subject: Subject) -> tuple[Diffusion, Tensor]:
    """The diffusion and the held-out examples in its units, at most :data:`ROWS`."""
    core = core_of(subject.model)
    if not isinstance(core, Diffusion):
        raise ValueError(f"this is asked of a diffusion: got {type(core).__name__}")
    rows, count = [], 0
    for batch in subject.test:
        rows.append(features_of(subject.model, batch.inputs[0]).reshape(-1, *core.shape))
        count += len(rows[-1])
        if count >= ROWS:
            break
    return core, torch.cat(rows)[:ROWS].to(core.place)


def looked_at(core: Diffusion, first: int = 1) -> Tensor:
    """Times from ``first`` to T, rising, about evenly."""
    T = core.schedule.steps
    return torch.linspace(min(first, T), T, min(TIMES, T), dtype=torch.float64).round().long().unique()


@torch.no_grad()
def conservation(subject: Subject) -> Finding:
    r"""Whether noisy examples have the energy of the recursion :math:`(1 - \beta_t) E + \beta_t d`.

    Args:
        subject: A diffusion.
    """
    core, x0 = asked(subject)
    times, dim, g = looked_at(core), x0[0].numel(), Generator().manual_seed(0)
    square = x0.flatten(1).double().square().sum(1).cpu()
    repeats = math.ceil(DRAWN / (len(x0) * dim))
    many, values, errors = x0.repeat(repeats, *(1,) * len(core.shape)), [], []
    for level in core.schedule.alpha_bar[times]:
        eps = torch.randn(many.shape, generator=g).to(x0)
        noisy = jump(many, eps, level).flatten(1).double().square().sum(1).cpu()
        drawn = noisy - level * square.repeat(repeats)  # the examples' own energy is no estimate
        values.append(level * square.mean() + drawn.mean())
        errors.append(drawn.std() / math.sqrt(len(many)))
    promised = energy(float(square.mean()), core.schedule, dim)
    return Finding(
        statement=f"E|x_t|^2 = (1 - beta_t) E|x_(t-1)|^2 + beta_t d: from {float(square.mean()):.4g} of the "
        f"examples towards d = {dim}, along {core.schedule.steps:,} steps.",
        value=torch.stack(values),
        unit="model units^2",
        range=(0.0, math.inf),
        kind="estimate",
        stderr=torch.stack(errors),
        equals=promised[times],
        tolerance=0.1 * max(dim, float(square.mean())),
        labels=tuple(f"t = {t}" for t in times.tolist()),
        curves={"t": times.double(), "measured": torch.stack(values), "promised": promised[times]},
    )


@torch.no_grad()
def end(subject: Subject) -> Finding:
    """Terminal signal: the information L_T on an example at the end of the chain, in nats, and alpha_bar_T.

    Args:
        subject: A diffusion.
    """
    core, x0 = asked(subject)
    last = float(core.schedule.alpha_bar[-1])
    kept = terminal(x0, core.schedule).cpu()
    return Finding(
        statement=f"At the end alpha_bar is {last:.3g}: of an example x_T tells "
        "KL(q(x_T | x_0) | N(0, I)), which the samples' beginning ignores.",
        value=kept.mean(),
        unit="nats",
        range=(0.0, math.inf),
        kind="estimate",
        stderr=kept.std() / math.sqrt(len(kept)),
    )


@torch.no_grad()
def posteriors(subject: Subject) -> Finding:
    """Whether three forms of q(x_{t-1} | x_t, x_0) agree: by x_0, by the noise, by Bayes' rule.

    Args:
        subject: A diffusion of which :func:`has_middle` is true.
    """
    core, x0 = asked(subject)
    a, g = core.schedule.alpha_bar, Generator().manual_seed(0)
    times = [t for t in looked_at(core, 2).tolist() if a[t] > 0]
    x0, gaps = x0.double().cpu(), []
    for t in times:
        eps = torch.randn(x0.shape, generator=g, dtype=torch.float64)
        x_t = jump(x0, eps, a[t])
        mean, variance = posterior(x0, x_t, a[t], a[t - 1])
        other, same = bayes(x0, x_t, a[t], a[t - 1])
        third = posterior_mean(eps, x_t, a[t], a[t - 1])
        size = mean.abs().max().clamp_min(1)
        gap = torch.maximum((mean - other).abs().max(), (mean - third).abs().max()) / size
        gaps.append(torch.maximum(gap, (variance - same).abs() / variance))
    return Finding(
        statement="The law of x_(t-1) given x_t and x_0 is one Gaussian in three forms: the largest "
        "relative difference of their means and variances.",
        value=torch.stack(gaps),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-9,
        labels=tuple(f"t = {t}" for t in times),
    )


@torch.no_grad()
def divergences(subject: Subject) -> Finding:
    """Whether the weighted error of the prediction is the divergence of the two Gaussians, term by term.

    The divergence is computed from their means and variances, as torch.distributions does.

    Args:
        subject: A diffusion of which :func:`has_middle` is true.
    """
    core, x0 = asked(subject)
    schedule, dim, g = core.schedule, x0[0].numel(), Generator().manual_seed(0)
    a = schedule.alpha_bar
    times = [t for t in looked_at(core, 2).tolist() if a[t] > 0]
    factor = weights(schedule, core.parametrization, core.variance)
    added = constant(schedule, core.variance, dim)
    values = []
    for t in times:
        eps = torch.randn(x0.shape, generator=g).to(x0)
        at = torch.full((len(x0),), t, device=x0.device)
        output = core.predict(jump(x0, eps, a[t]), at).double()
        y = target(x0.double(), eps.double(), a[t], core.parametrization)
        by_weight = added[t] + factor[t] * (y - output).flatten(1).square().sum(1)
        kl = divergence(core, x0.double(), eps.double(), output, t)
        values.append(((by_weight - kl).abs() / kl).max().cpu())
    return Finding(
        statement="KL(q(x_(t-1) | x_t, x_0) | p(x_(t-1) | x_t)) is a constant and a weight times the "
        "squared error of what the network predicts: the largest relative difference.",
        value=torch.stack(values),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-6,
        labels=tuple(f"t = {t}" for t in times),
    )


def divergence(core: Diffusion, x0: Tensor, eps: Tensor, output: Tensor, t: int) -> Tensor:
    """KL(q(x_{t-1} | x_t, x_0) | p(x_{t-1} | x_t)) of each example by the two Gaussians, t > 1.

    Args:
        core: The diffusion.
        x0: Data.
        eps: The noise in x_t.
        output: What the network predicted at x_t.
        t: The time.
    """
    level, before = core.schedule.alpha_bar[t], core.schedule.alpha_bar[t - 1]
    x_t, dim = jump(x0, eps, level), x0[0].numel()
    mean, spread = posterior(x0, x_t, level, before)
    mu = posterior_mean(to_eps(output, x_t, level, core.parametrization), x_t, level, before)
    s2 = spread if core.variance == "small" else 1 - level / before
    ratio = spread / s2
    return 0.5 * ((mean - mu).flatten(1).square().sum(1) / s2 + dim * (ratio - 1 - ratio.log()))


@torch.no_grad()
def entropy(subject: Subject) -> Finding:
    r"""Whether a step back is no less certain than a step forth, as long as noise adds entropy.

    .. math:: H(x_{t-1} | x_t) = H(x_t | x_{t-1}) + H(x_{t-1}) - H(x_t)

    for Gaussian examples of the held-out covariance. Where H(x_t) falls, as it does for data wider than the
    noise, the inequality is false.

    Args:
        subject: A diffusion of which :func:`has_middle` is true.
    """
    core, x0 = asked(subject)
    spectrum = torch.linalg.eigvalsh(x0.flatten(1).double().T.cov().reshape(x0[0].numel(), -1)).clamp_min(0)
    a = core.schedule.alpha_bar.to(spectrum)[:, None]
    marginal = (a * spectrum + 1 - a)[1:]  # at t = 0 an example may have no density
    alpha, beta = core.schedule.alpha.to(spectrum)[2:, None], core.schedule.beta.to(spectrum)[2:, None]
    back = marginal[:-1] - alpha * marginal[:-1].square() / marginal[1:]
    gap = 0.5 * (back / beta).log().sum(1).cpu()
    grown = 0.5 * (marginal[1:] / marginal[:-1]).log().sum(1).cpu()
    low = [t + 2 for t in (grown < -1e-9).nonzero()[:, 0].tolist()]
    return Finding(
        statement="H(x_(t-1) | x_t) <= H(x_t | x_(t-1)), nats: the largest difference over the steps, "
        f"at t = {int(gap.argmax()) + 2}.",
        value=gap.max(),
        unit="nats",
        range=(-math.inf, math.inf),
        high=torch.zeros((), dtype=torch.float64),
        tolerance=1e-9 * x0[0].numel(),
        premises=(
            Premise("examples are Gaussian", "assumed", "only their covariance is read"),
            Premise(
                "the entropy of x_t does not fall",
                "refuted" if low else "proved",
                f"it falls at {len(low)} steps, the first t = {low[0]}" if low else "at no step",
            ),
        ),
        curves={"t": torch.arange(2, len(gap) + 2).double(), "back - forth": gap, "fall of entropy": -grown},
    )


def demo() -> Subject:
    """Two hundred Gaussian points of the plane, narrower than the noise, and their exact denoiser."""
    return _gaussian(50)


def long_demo() -> Subject:
    """The same in a chain of 200 steps, of which a sampler may take fewer."""
    return _gaussian(200)


def _gaussian(steps: int) -> Subject:
    wide = torch.tensor([[[0.5, 0.2], [0.2, 0.3]]], dtype=torch.float64)
    law = Mixture(torch.tensor([[0.3, -0.2]], dtype=torch.float64), wide)
    schedule = linear_schedule(steps)
    model = Diffusion(ExactDenoiser(law, schedule), schedule, (2,)).double()
    test, train = (Batch((law.sample(200, Generator().manual_seed(s)),)) for s in (0, 1))
    return Subject(model=model, test=[test], train=[train], task=DENSITY, objective=denoising_loss)
