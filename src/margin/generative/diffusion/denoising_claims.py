"""What the network of a diffusion knows: its bound, how it compares with the best affine map, its film."""

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject
from margin.generative.diffusion.claims import asked, looked_at
from margin.generative.diffusion.ddpm import ddpm
from margin.generative.diffusion.forward_process import energy
from margin.generative.diffusion.gaussian_denoiser import Mixture
from margin.generative.diffusion.loss import constant, drawn_times, importance, terminal, weights
from margin.generative.diffusion.model import Diffusion
from margin.generative.diffusion.parametrizations import target
from margin.generative.diffusion.schedules import strided

REPEATS = 8
"""Times and noises that are drawn for each example."""

FRAMES = 6
"""Times of the film."""

STEPS = 200
"""Steps of the chain that is filmed, at most."""

FILMED = 256
"""Samples that are filmed."""

GRID = 13
"""Arrows a side of the field of scores in the plane."""


@torch.no_grad()
def bound(subject: Subject) -> Finding:
    """The bound on -log p(x) in nats, and its terms: the end of the chain, the steps, the last step.

    Args:
        subject: A diffusion.
    """
    core, x0 = asked(subject)
    g, dim = Generator().manual_seed(0), x0[0].numel()
    share = importance(core.schedule, core.variance)
    factor = float(weights(core.schedule, core.parametrization, core.variance)[1])
    added = float(constant(core.schedule, core.variance, dim)[1])
    one = torch.ones(len(x0), dtype=torch.long, device=x0.device)
    whole, last = [], []
    for _ in range(REPEATS):
        t = drawn_times(share, len(x0), g).to(x0.device)
        whole.append(core.negative_bound(x0, t, torch.randn(x0.shape, generator=g).to(x0)))
        last.append(added + factor * core.error(x0, one, torch.randn(x0.shape, generator=g).to(x0)))
    total, first = (torch.stack(x).mean(0).double().cpu() for x in (whole, last))
    end = terminal(x0, core.schedule).cpu()
    middle = torch.zeros_like(first) if core.schedule.steps == 1 else total - end - first
    parts = torch.stack((end + middle + first, end, middle, first))
    return Finding(
        statement="-log p(x) <= L_T + sum of L_(t-1) + L_0, in the mean over the held-out examples, in model "
        f"units. {_beside(subject, core, x0)}",
        value=parts.mean(1),
        unit="nats",
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=parts.std(1) / math.sqrt(len(x0)),
        labels=("bound", "L_T", "L_1 .. L_(T-1)", "L_0"),
        premises=(),
        reference="Ho, Jain and Abbeel 2020, Equation 5",
    )


@torch.no_grad()
def affine(subject: Subject) -> Finding:
    """How much less the network errs than the best affine map, the exact denoiser of Gaussian data.

    The conditional mean errs no more than any affine map; so some network does.

    Args:
        subject: A diffusion whose training examples are known.
    """
    core, x0 = asked(subject)
    law, g, times = _moments(subject, core), Generator().manual_seed(0), looked_at(core)
    ratios, errors = [], []
    for t in times.tolist():
        level = core.schedule.alpha_bar[t]
        eps = torch.randn(x0.shape, generator=g).to(x0)
        own = core.error(x0, torch.full((len(x0),), t, device=x0.device), eps).double().cpu()
        other = affine_error(core, law, x0.flatten(1).double().cpu(), eps.flatten(1).double().cpu(), level)
        ratio = own.mean() / other.mean()
        ratios.append(ratio)
        errors.append((own - ratio * other).std() / math.sqrt(len(own)) / other.mean())
    values = torch.stack(ratios)
    return Finding(
        statement="The mean of what is to be predicted, given x_t, errs no more than the best affine map: "
        "the network's squared error over that of the affine map, by the time.",
        value=values,
        unit="1",
        range=(0.0, math.inf),
        kind="estimate",
        stderr=torch.stack(errors),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        scope="exists",
        labels=tuple(f"t = {t}" for t in times.tolist()),
        premises=(),
        reference="Efron 2011, Section 1; Vincent 2011, Section 4.2",
        curves={"t": times.double(), "error over that of the best affine map": values},
    )


def affine_error(core: Diffusion, law: Mixture, x0: Tensor, eps: Tensor, level: Tensor) -> Tensor:
    """The squared error of the best affine map from x_t to what is to be predicted, row by row.

    Args:
        core: Says what is predicted.
        law: One Gaussian, of the data's moments: its exact denoiser is the affine map.
        x0: Data, flat, in float64.
        eps: The noise in x_t.
        level: alpha_bar_t.
    """
    noisy = level.sqrt() * x0 + (1 - level).sqrt() * eps
    known = law.denoised(noisy, level) if float(level) > 0 else law.means.expand_as(x0)
    answer = target(known, law.eps(noisy, level), level, core.parametrization)
    return (answer - target(x0, eps, level, core.parametrization)).square().sum(1)


def _beside(subject: Subject, core: Diffusion, x0: Tensor) -> str:
    """What a Gaussian says of the examples, where their moments are those of a density."""
    law = _moments(subject, core)
    if float(law.spectra.min()) <= 1e-12 * float(law.spectra.max()):
        return "No Gaussian is told beside it: the examples' covariance is singular."
    return f"A Gaussian of their moments has {-float(law.log_prob(x0.flatten(1).cpu()).mean()):.4g} nats."


def _moments(subject: Subject, core: Diffusion) -> Mixture:
    """The Gaussian of the training examples' moments, else of the held-out ones."""
    x = asked(replace(subject, test=subject.train or subject.test))[1].flatten(1).double().cpu()
    return Mixture(x.mean(0)[None], x.T.cov().reshape(1, x.shape[1], -1))


@torch.no_grad()
def film(subject: Subject) -> Finding:
    """Whether the chain back passes the energies of the chain forth; its frames, and in the plane the scores.

    With the exact network both have the same law at every time as the steps grow.

    Args:
        subject: A diffusion; of classes, it is sampled without.
    """
    core, x0 = asked(subject)
    g, schedule = Generator().manual_seed(0), core.schedule
    stops = strided(schedule, min(schedule.steps, STEPS))
    stops = stops[schedule.alpha_bar[stops] > 0]
    signal = schedule.alpha_bar[stops].sqrt()  # the eye sees the share of the data, not the time
    evenly = torch.linspace(float(signal[0]), float(signal[-1]), FRAMES - 1, dtype=torch.float64)
    keep = (signal - evenly[:, None]).abs().argmin(1).unique()
    wanted, frames = set(stops[keep].tolist()), []

    def denoise(x: Tensor, t: int) -> Tensor:
        if t in wanted:
            frames.append(x)
        return core.eps(x, torch.full((len(x),), t, device=x.device))

    x_T = torch.randn(FILMED, *core.shape, generator=g).to(x0)
    x = ddpm(denoise, schedule, x_T, times=stops, generator=g, variance=core.variance)
    times = torch.cat((stops[keep], torch.zeros(1, dtype=torch.long)))
    shown = torch.stack((*frames, x))
    square = shown.flatten(2).double().square().sum(2).cpu()
    forth = energy(float(x0.double().square().sum() / len(x0)), schedule, x0[0].numel())[times]
    return Finding(
        statement=f"Back in {len(stops)} steps, the samples have the energy of noisy examples at each time: "
        "their ratio, which tends to 1 with the exact network and many steps.",
        value=square.mean(1) / forth,
        unit="1",
        range=(0.0, math.inf),
        kind="estimate",
        stderr=square.std(1) / math.sqrt(FILMED) / forth,
        low=torch.ones((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        scope="limit",
        tolerance=0.5,
        labels=tuple(f"t = {t}" for t in times.tolist()),
        premises=(),
        reference="Ho, Jain and Abbeel 2020, Algorithm 2",
        failure="" if bool(shown.isfinite().all()) else "samples are not finite",
        curves={"film times": times.double(), "film": shown.cpu(), **_field(core, times, shown)},
    )


def _field(core: Diffusion, times: Tensor, shown: Tensor) -> dict[str, Tensor]:
    """Scores on a grid of the plane at each time of the film but the last, which is without noise."""
    if core.shape != (2,):
        return {}
    reach = min(float(shown.abs().amax()), 3.5)
    side = torch.linspace(-reach, reach, GRID, dtype=shown.dtype, device=shown.device)
    grid = torch.cartesian_prod(side, side)
    fields = [core.score(grid, torch.full((len(grid),), int(t), device=grid.device)) for t in times[:-1]]
    return {"grid": grid.cpu(), "scores": torch.stack(fields).cpu()}
