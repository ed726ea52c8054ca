"""What a diffusion's network and samplers do: the evidence bound, the error of the noise, the steps.

Samplers are compared on their own, with the exact denoiser of Gaussian data, and with the model's network;
the film shows samples on the way from noise to data, over the field of scores.
"""

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor

from margin.core.catalog import user_options
from margin.core.findings import Finding, Subject
from margin.generative.diffusion.chain_claims import asked, looked_at
from margin.generative.diffusion.exact import GaussianData, Mixture, law_of
from margin.generative.diffusion.model import (
    SAMPLERS,
    STOPS,
    Diffusion,
    Sampler,
    constant,
    drawn_times,
    importance,
    terminal,
    weights,
)
from margin.generative.diffusion.process import energy, strided, strided_by_ratio, target
from margin.generative.diffusion.samplers import ddpm

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
        range=(0.0, math.inf),
        kind="estimate",
        stderr=torch.stack(errors),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        scope="exists",
        labels=tuple(f"t = {t}" for t in times.tolist()),
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
        return "There is no Gaussian to compare with: the examples' covariance is singular."
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
        range=(0.0, math.inf),
        kind="estimate",
        stderr=square.std(1) / math.sqrt(FILMED) / forth,
        equals=1.0,
        scope="limit",
        tolerance=0.5,
        labels=tuple(f"t = {t}" for t in times.tolist()),
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


AXES = 8
"""Directions that are followed, those of largest spread first."""

DRAWN = 128
"""Samples that are drawn by each sampler."""

FINER = 4
"""How many times the steps of the path that others are held against."""

PATHS: tuple[Sampler, ...] = ("ddim", "euler", "heun", "dpm++")


def stops_of(core: Diffusion, sampler: Sampler, steps: int) -> list[int]:
    """Where a sampler stops, past an end without data, with 0."""
    times = (strided_by_ratio if sampler == "dpm++" else strided)(core.schedule, steps)
    return [*times[core.schedule.alpha_bar[times] > 0].tolist(), 0]


def gaussian_of(x: Tensor) -> GaussianData:
    """The Gaussian of the examples' moments, by its principal axes of largest spread."""
    rows = x.flatten(1).double().cpu()
    spectrum, axes = torch.linalg.eigh(rows.T.cov().reshape(rows.shape[1], -1))
    return GaussianData((rows.mean(0) @ axes).flip(0)[:AXES], spectrum.clamp_min(0).flip(0)[:AXES])


@torch.no_grad()
def recursion(subject: Subject) -> Finding:
    """Whether each sampler, given the exact denoiser of Gaussian data, is its own linear recursion.

    The data have the held-out examples' moments, the schedule is the model's. Two samples with the same noise
    must differ by the recursion's slope times the difference of their beginnings; without noise the sample of
    x_T = 0 must be its shift.

    Args:
        subject: A diffusion.
    """
    core, x0 = asked(subject)
    data, steps = gaussian_of(x0), min(core.schedule.steps, STOPS)
    x_T = torch.randn(4, len(data.mean), generator=Generator().manual_seed(0), dtype=torch.float64)
    counts = sorted({max(1, core.schedule.steps // k) for k in (2, 5, 10, 20, 50, 100)})
    gaps: list[Tensor] = []
    curves: dict[str, Tensor] = {}
    for sampler in SAMPLERS:
        stops = stops_of(core, sampler, steps)
        law = law_of(sampler, core.schedule, stops, data)
        origin = _end(core, sampler, data, torch.zeros_like(x_T), stops)
        gap = (_end(core, sampler, data, x_T, stops) - origin - law.slope * x_T).abs().max()
        shift = (origin - law.shift).abs().max() if sampler in PATHS else gap
        gaps.append(torch.maximum(gap, shift))
        curves[sampler] = torch.stack(
            [_distance(core, sampler, data, stops_of(core, sampler, n)) for n in counts]
        )
    size = float(data.mean.abs().max() + data.variance.sqrt().max())
    return Finding(
        statement=f"For Gaussian data and the exact denoiser a sampler of {steps} steps is an affine map "
        "known in closed form, and noise: the largest difference, in model units. The curves are the "
        "distances (Wasserstein, order 2) of the samples' law from the data's.",
        value=torch.stack(gaps),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-8 * max(1.0, size),
        labels=tuple(SAMPLERS),
        failure="" if bool(torch.stack(gaps).isfinite().all()) else "a sample is not finite",
        curves={"steps": torch.tensor(counts).double(), **curves},
    )


def _end(core: Diffusion, sampler: Sampler, data: GaussianData, x: Tensor, stops: list[int]) -> Tensor:
    """What a sampler makes of x with the exact denoiser, its noise always the same."""
    run, level = SAMPLERS[sampler], core.schedule.alpha_bar

    def denoise(x: Tensor, t: int) -> Tensor:
        m, p = data.marginal(level[t])
        return (1 - level[t]).sqrt() * (x - m) / p

    known = {"generator": Generator().manual_seed(1)} if "generator" in user_options(run) else {}
    out: Tensor = run(denoise, core.schedule, x, times=torch.tensor(stops[:-1]).long(), **known)
    return out


def _distance(core: Diffusion, sampler: Sampler, data: GaussianData, stops: list[int]) -> Tensor:
    """Wasserstein's distance of order 2 between the law of the samples and that of the data."""
    m, v = law_of(sampler, core.schedule, stops, data).law()
    return ((m - data.mean).square() + (v.sqrt() - data.variance.sqrt()).square()).sum().sqrt()


@torch.no_grad()
def steps(subject: Subject) -> Finding:
    """How far samples are moved by the length of the steps: of the model's own network, from the same noise.

    With ever more steps all samplers without noise come to the sample that the probability flow leads to.

    Args:
        subject: A diffusion; of classes, it is sampled without.
    """
    core, x0 = asked(subject)
    count = min(core.schedule.steps, STOPS)
    x_T = torch.randn(DRAWN, *core.shape, generator=Generator().manual_seed(0)).to(x0)
    most = min(core.schedule.steps, FINER * count)
    fine = _own(core, "heun", x_T, most)
    scale = x0.flatten(1).double().var(0).sum().sqrt().cpu()
    values, errors = [], []
    for sampler in PATHS:
        moved = (_own(core, sampler, x_T, count) - fine).flatten(1).double().square().sum(1).cpu()
        root = moved.mean().sqrt()
        values.append(root / scale)
        errors.append(moved.std() / math.sqrt(DRAWN) / (2 * root).clamp_min(1e-300) / scale)
    return Finding(
        statement=f"From the same noise, samples of {count} steps tend with their number to those of the "
        f"probability flow, here {most} of Heun's: the root mean square distance, in standard deviations of "
        "the examples.",
        value=torch.stack(values),
        range=(0.0, math.inf),
        kind="estimate",
        stderr=torch.stack(errors),
        equals=0.0,
        scope="limit",
        tolerance=0.1,
        labels=PATHS,
        failure="" if bool(fine.isfinite().all()) else "samples are not finite",
    )


def _own(core: Diffusion, sampler: Sampler, x: Tensor, steps: int) -> Tensor:
    """What a sampler without noise makes of x with the model's network, of no class."""
    run = SAMPLERS[sampler]
    known = {"generator": Generator()} if "generator" in user_options(run) else {}

    def denoise(x: Tensor, t: int) -> Tensor:
        return core.eps(x, torch.full((len(x),), t, device=x.device))

    times = torch.tensor(stops_of(core, sampler, steps)[:-1]).long()
    out: Tensor = run(denoise, core.schedule, x, times=times, **known)
    return out
