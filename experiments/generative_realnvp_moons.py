"""Flows on two moons: the log-likelihood of held-out points beside that of the density they are drawn from.

The density is that of ``margin.data``: a moon drawn evenly, t evenly on [0, pi], and normal noise, so

    p(x) = 1/2 sum over moons of 1/pi * integral over t of N(x; arc(t), noise^2 I) dt

by the trapezoidal rule on 2,000 intervals. Its mean logarithm on the held-out points estimates minus the
entropy; flow and density are compared on the same points, so that the difference has the small error.
"""

import argparse
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.record import record
from margin import Training, load, train
from margin.data.sets.synthetic import two_moons
from margin.runs.seed_interval import summary

NOISE, EXAMPLES, HELD_OUT = 0.1, 20_000, 10_000
TRAINING = Training(
    max_steps=4_000, batch_size=256, lr=2e-3, schedule="cosine", clip=5.0, patience=0, threads=1
)
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "affine couplings": ("generative/realnvp", {"layers": 8, "hidden": (64, 64), "activation": "tanh"}),
    "spline couplings": (
        "generative/neural_spline_flow",
        {"layers": 4, "hidden": (64, 64), "activation": "tanh", "bins": 16},
    ),
}


def log_density(x: Tensor, nodes: int = 2_000) -> Tensor:
    """log p of two moons at each point, in nats, in float64."""
    t = torch.linspace(0, math.pi, nodes + 1, dtype=torch.float64)
    weight = torch.full_like(t, 1 / nodes)
    weight[[0, -1]] /= 2
    arcs = (torch.stack((t.cos(), t.sin()), 1), torch.stack((1 - t.cos(), 0.5 - t.sin()), 1))
    answers = []
    for part in x.double().split(1_000):
        each = [
            torch.logsumexp(weight.log() - torch.cdist(part, arc).square() / (2 * NOISE**2), 1)
            for arc in arcs
        ]
        answers.append(torch.logsumexp(torch.stack(each), 0))
    return torch.cat(answers) - math.log(2 * math.pi * NOISE**2) - math.log(2)


def entropy_by_grid(cells: int = 600) -> tuple[float, float]:
    """Mass and entropy of the density on a box that holds all but 1e-10 of it, by the midpoint rule."""
    sides = [torch.linspace(a, b, cells + 1, dtype=torch.float64) for a, b in ((-1.8, 2.8), (-1.3, 1.8))]
    middles = [(side[1:] + side[:-1]) / 2 for side in sides]
    area = math.prod(float(side[1] - side[0]) for side in sides)
    logs = log_density(torch.cartesian_prod(*middles), nodes=400)
    return float(logs.exp().sum() * area), -float((logs.exp() * logs).sum() * area)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=TRAINING.max_steps)
    arguments = parser.parse_args()
    mass, entropy = entropy_by_grid()
    print(f"mass {mass:.8f}, entropy {entropy:.5f} nats", flush=True)
    figures: list[dict[str, object]] = [
        {"what": "minus the entropy of two moons, by a grid", "value": -entropy, "unit": "nats", "mass": mass}
    ]
    runs: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, (model, options) in MODELS.items():
            rows = []
            for seed in range(arguments.seeds):
                data = two_moons(examples=EXAMPLES, noise=NOISE, seed=seed, test=0.0, val=0.1)
                x = two_moons(examples=HELD_OUT, noise=NOISE, seed=1_000 + seed, test=0.0, val=0.0)
                held_out = x.splits["train"].inputs[0].double()
                training = replace(TRAINING, seed=seed, max_steps=arguments.steps)
                run = train(model, data, options, training, out=Path(directory) / f"{name}-{seed}")
                flow = load(run)
                with torch.no_grad():
                    found = flow(held_out.float()).double() - flow.preprocess.std.double().log().sum()
                apart = found - log_density(held_out)
                rows.append(
                    {
                        "mean log-likelihood": float(found.mean()),
                        "less the true density's": float(apart.mean()),
                        "its standard error on the points": float(apart.std()) / math.sqrt(HELD_OUT),
                    }
                )
                print(name, seed, rows[-1], flush=True)
            for what, row in summary(rows).items():
                figures.append(
                    {
                        "what": f"{name}: {what}",
                        "value": row["mean"],
                        "unit": "nats",
                        "interval": [row["low"], row["high"]],
                    }
                )
            runs[name] = rows
    record(
        "generative/realnvp_moons",
        title=f"Flows on {EXAMPLES:,} points of two moons, noise {NOISE}, {arguments.steps:,} steps of "
        f"{TRAINING.batch_size}, {arguments.seeds} seeds; {HELD_OUT:,} fresh points held out",
        figures=figures,
        runs=runs,
    )


if __name__ == "__main__":
    main()
