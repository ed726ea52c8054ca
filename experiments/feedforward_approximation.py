"""Rates of approximation, measured: h^2 and h^(1/2) of interpolants, 1/m of greedy nets, width, depth."""

import math
from itertools import pairwise

import torch
from scipy.stats import t as student
from torch import nn

from benchmarks.record import record
from margin.feedforward.approximation.barron import Spectral, ball, barron_bound, cosine, gaussian, greedy
from margin.feedforward.approximation.uniform import uniform_distance
from margin.feedforward.piecewise.error import FunctionInterpolant, error_on_grid
from margin.feedforward.piecewise.pieces import pieces_of, sup_distance
from margin.feedforward.piecewise.sawtooth import teeth

SEEDS = range(5)
POINTS, UNITS, RATE_FROM = 1000, 64, 8
WIDTHS, STEPS = (4, 16, 64, 256), 400
TARGETS: dict[str, tuple[Spectral, float]] = {
    "cos(w.x), |w| = 6, d = 1, r = 1": (cosine(torch.tensor([6.0])), 1.0),
    "cos(w.x), |w| = 5, d = 5, r = 1": (cosine(torch.tensor([3.0, 4.0, 0.0, 0.0, 0.0])), 1.0),
    "exp(-|x|^2/2), d = 2, r = 2": (gaussian(2), 2.0),
    "exp(-|x|^2/2), d = 10, r = 3": (gaussian(10), 3.0),
}


def slope(x: list[float], y: list[float]) -> float:
    """The exponent: the slope of log y against log x by least squares."""
    a, b = torch.tensor(x).double().log(), torch.tensor(y).double().log()
    a = a - a.mean()
    return float(a @ (b - b.mean()) / a.square().sum())


def figure(what: str, values: list[float], **more: object) -> dict[str, object]:
    """Mean over seeds with a 95 % t interval."""
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    half = float(student.ppf(0.975, len(values) - 1)) * deviation / math.sqrt(len(values))
    return {"what": what, "value": mean, "unit": "1", "interval": [mean - half, mean + half], **more}


def interpolants() -> list[dict[str, object]]:
    sizes = [2**k for k in range(3, 11)]
    cases = (("sin on [0, pi]", torch.sin, math.pi, 2.0), ("sqrt on [0, 1]", torch.sqrt, 1.0, 0.5))
    figures = []
    for name, f, high, theory in cases:
        errors = [error_on_grid(FunctionInterpolant(f, 0.0, high, pieces=n)).largest for n in sizes]
        exponent = slope([high / n for n in sizes], errors)
        figures.append(
            {
                "what": f"interpolant of {name}, 8 to 1024 pieces: exponent of the uniform error in h",
                "value": exponent,
                "unit": "1",
                "target": f"{theory} within 0.02",
                "met": abs(exponent - theory) <= 0.02,
            }
        )
    return figures


def sigmoids(target: Spectral, x: torch.Tensor, seed: int) -> float:
    """The mean squared error of a net of UNITS sigmoids trained by L-BFGS."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(x.shape[1], UNITS), nn.Sigmoid(), nn.Linear(UNITS, 1)).double()
    return descend(model, x, target.function(x))


def descend(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """STEPS steps of L-BFGS on the mean squared error; what it is afterwards."""
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        error = (model(x).flatten() - y).square().mean()
        error.backward()
        return error

    optimizer.step(loss)
    with torch.no_grad():
        return float((model(x).flatten() - y).square().mean())


def barron() -> list[dict[str, object]]:
    figures = []
    sizes = list(range(RATE_FROM, UNITS + 1))
    for name, (target, radius) in TARGETS.items():
        exponents, ratios, trained = [], [], []
        for seed in SEEDS:
            generator = torch.Generator().manual_seed(seed)
            x = ball(POINTS, target.dimension, radius, generator)
            net = greedy(target, x, radius, units=UNITS, generator=generator)
            errors = (net.stages(x) - target.function(x)[:, None]).square().mean(0).tolist()
            exponents.append(slope([float(m) for m in sizes], errors[RATE_FROM - 1 :]))
            ratios.append(max(e / barron_bound(radius, target.norm, m) for m, e in enumerate(errors, 1)))
            trained.append(sigmoids(target, x, seed) / barron_bound(radius, target.norm, UNITS))
        note = {"target": "at most 1 (Barron 1993, Theorem 1: some net)", "met": max(ratios) <= 1}
        rate = figure(f"greedy net, {name}: exponent of the mean squared error in m, 8 to 64", exponents)
        figures += [
            figure(f"greedy net, {name}: largest error / bound, m = 1 .. 64", ratios, **note),
            {**rate, "published": "the bound falls as m^-1 (Barron 1993)"},
            figure(f"net of 64 sigmoids by L-BFGS, {name}: error / bound", trained),
        ]
    return figures


def wavy(x: torch.Tensor) -> torch.Tensor:
    return (3 * x[:, 0]).sin() * (2 * x[:, 1]).cos() + x[:, 0] * x[:, 1]


def universality() -> list[dict[str, object]]:
    axis = torch.linspace(-1, 1, 33, dtype=torch.float64)
    x, ends = torch.cartesian_prod(axis, axis), torch.ones(2)
    errors: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for width in WIDTHS:
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1)).double()
            descend(model, x, wavy(x))

            def network(points: torch.Tensor, model: nn.Module = model) -> torch.Tensor:
                return model(points).flatten()

            errors[width].append(uniform_distance(wavy, network, -ends, ends, points=40_000).lower)
    what = "trained ReLU net of two inputs on [-1, 1]^2"
    figures = [figure(f"{what}: uniform error at width {w}", values) for w, values in errors.items()]
    for one, other in pairwise(WIDTHS):
        falls = [a - b for a, b in zip(errors[one], errors[other], strict=True)]
        row = figure(f"{what}: fall of the uniform error from width {one} to {other}, paired seeds", falls)
        figures.append({**row, "target": "above 0 in the interval", "met": row["interval"][0] > 0})
    return figures


def depth() -> list[dict[str, object]]:
    figures = []
    for level in (2, 3, 4):
        x = torch.linspace(0, 1, 32 * 2**level + 1, dtype=torch.float64)[:, None]
        y, width, distances = teeth(level)(x[:, 0])[:, 0], 2**level - 2, []
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, 1)).double()
            descend(model, x, y)
            distances.append(sup_distance(pieces_of(list(model)), teeth(level), 0.0, 1.0)[0])
        row = figure(
            f"trained layer of {width} ReLUs: uniform distance from the {2**level}-piece sawtooth", distances
        )
        met = min(distances) >= 0.5
        figures.append({**row, "target": "at least 0.5 at every seed (theorem)", "met": met})
    return figures


def main() -> None:
    torch.set_num_threads(1)
    record(
        "feedforward/approximation",
        title="Approximation: exponents in h and m, error over Barron's bound, width, depth; 5 seeds",
        figures=[*interpolants(), *barron(), *universality(), *depth()],
        packages=("scipy",),
        seeds=list(SEEDS),
    )


if __name__ == "__main__":
    main()
