"""What is promised of a diffusion's samplers: their law for Gaussian data; what their steps cost a sample."""

import math

import torch
from torch import Generator, Tensor

from margin.core.catalog import resolve, user_options
from margin.core.findings import Finding, Subject
from margin.generative.diffusion.claims import asked
from margin.generative.diffusion.linear_gaussian_law import GaussianData, law_of
from margin.generative.diffusion.model import SAMPLERS, STOPS, Diffusion, Sampler
from margin.generative.diffusion.schedules import strided, strided_by_ratio

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
    zero = torch.zeros((), dtype=torch.float64)
    size = float(data.mean.abs().max() + data.variance.sqrt().max())
    return Finding(
        statement=f"For Gaussian data and the exact denoiser a sampler of {steps} steps is an affine map "
        "known in closed form, and noise: the largest difference, in model units. The curves are the "
        "distances (Wasserstein, order 2) of the samples' law from the data's.",
        value=torch.stack(gaps),
        unit="1",
        range=(0.0, math.inf),
        low=zero,
        high=zero,
        tolerance=1e-8 * max(1.0, size),
        labels=tuple(SAMPLERS),
        premises=(),
        reference="Song, Meng and Ermon 2021, Equation 7; Ho, Jain and Abbeel 2020, Equation 7",
        failure="" if bool(torch.stack(gaps).isfinite().all()) else "a sample is not finite",
        curves={"steps": torch.tensor(counts).double(), **curves},
    )


def _end(core: Diffusion, sampler: Sampler, data: GaussianData, x: Tensor, stops: list[int]) -> Tensor:
    """What a sampler makes of x with the exact denoiser, its noise always the same."""
    run, level = resolve(SAMPLERS[sampler]), core.schedule.alpha_bar

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
    fine = _own(core, "heun", x_T, min(core.schedule.steps, FINER * count))
    scale = x0.flatten(1).double().var(0).sum().sqrt().cpu()
    values, errors = [], []
    for sampler in PATHS:
        moved = (_own(core, sampler, x_T, count) - fine).flatten(1).double().square().sum(1).cpu()
        root = moved.mean().sqrt()
        values.append(root / scale)
        errors.append(moved.std() / math.sqrt(DRAWN) / (2 * root).clamp_min(1e-300) / scale)
    zero = torch.zeros((), dtype=torch.float64)
    return Finding(
        statement=f"From the same noise, samples of {count} steps tend with their number to those of the "
        f"probability flow, here {FINER} times as many of Heun's: the root mean square distance, in standard "
        "deviations of the examples.",
        value=torch.stack(values),
        unit="1",
        range=(0.0, math.inf),
        kind="estimate",
        stderr=torch.stack(errors),
        low=zero,
        high=zero,
        scope="limit",
        tolerance=0.1,
        labels=PATHS,
        premises=(),
        reference="Song et al. 2021, Equation 13; Karras, Aittala, Aila and Laine 2022, Algorithm 1",
        failure="" if bool(fine.isfinite().all()) else "samples are not finite",
    )


def _own(core: Diffusion, sampler: Sampler, x: Tensor, steps: int) -> Tensor:
    """What a sampler without noise makes of x with the model's network, of no class."""
    run = resolve(SAMPLERS[sampler])
    known = {"generator": Generator()} if "generator" in user_options(run) else {}

    def denoise(x: Tensor, t: int) -> Tensor:
        return core.eps(x, torch.full((len(x),), t, device=x.device))

    times = torch.tensor(stops_of(core, sampler, steps)[:-1]).long()
    out: Tensor = run(denoise, core.schedule, x, times=times, **known)
    return out
