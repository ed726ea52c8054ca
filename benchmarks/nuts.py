"""Effective draws per gradient: NUTS and HMC of this package, and pyro's NUTS, each adapted by itself.

python -m benchmarks.nuts [--peer PYTHON_WITH_PYRO]; counts of gradients, which no load of the machine
changes. Laws of mean 0: a Gaussian of 20 deviations from 1 to 10, one of two coordinates with correlation
.99, and the funnel of Neal (2003) in three coordinates. Of HMC the trajectory has the 30 steps that are its
default. An effective draw is that of the coordinate, or of the square of a coordinate, which has the fewest,
as in Hoffman and Gelman (2014), Section 4: a trajectory of half a period ends on the other side, so that
its mean is better than that of independent draws, and the square stays as it was. A row is kept as it comes.
"""

import argparse
import json
import subprocess

import torch
from torch import Generator, Tensor

from benchmarks.record import record
from margin.bayes.mcmc.adaptation import Adaptation, MassMatrix, first_step
from margin.bayes.mcmc.chains import Energy, Moved, Point, point_at, transition
from margin.bayes.mcmc.diagnostics import effective_sample_size
from margin.bayes.mcmc.no_u_turn import no_u_turn_transition

CHAINS, WARM, DRAWS, STEPS, TARGET = 4, 100, 200, 30, 0.8
OURS: tuple[tuple[str, bool, MassMatrix], ...] = (
    ("NUTS", True, "diagonal"),
    ("NUTS, a dense mass matrix", True, "dense"),
    (f"HMC of {STEPS} steps", False, "diagonal"),
)

PEER = """
import json, sys
import torch
exec(sys.stdin.read())
from pyro.infer.mcmc import MCMC, NUTS
import pyro
pyro.set_rng_seed(int(sys.argv[2]))
torch.set_num_threads(1)
count, energy, dim = [0], LAWS[sys.argv[1]][0], LAWS[sys.argv[1]][1]
def potential(p):
    count[0] += 1
    return energy(p["w"][None])[0]
begun = []
def hook(kernel, samples, stage, i):
    if stage.lower().startswith("warm"):
        begun.append(count[0])
run = MCMC(NUTS(potential_fn=potential), num_samples=int(sys.argv[4]), warmup_steps=int(sys.argv[3]),
    initial_params={"w": torch.zeros(dim, dtype=torch.float64)}, disable_progbar=True, hook_fn=hook)
run.run()
print(json.dumps({"gradients": count[0] - begun[-1], "draws": run.get_samples()["w"].tolist(),
    "version": pyro.__version__}))
"""

LAWS_TEXT = """
import torch
scale = torch.logspace(0, 1, 20, dtype=torch.float64)
precision = torch.linalg.inv(torch.tensor([[1.0, 0.99], [0.99, 1.0]], dtype=torch.float64))

def funnel(theta):
    v, rest = theta[:, 0], theta[:, 1:]
    return v.square() / 18 + (rest.square() * (-v).exp()[:, None]).sum(1) / 2 + rest.shape[1] * v / 2

LAWS = {
    "20 deviations from 1 to 10": (lambda theta: (theta / scale).square().sum(1) / 2, 20),
    "correlation .99": (lambda theta: ((theta @ precision) * theta).sum(1) / 2, 2),
    "funnel of 3 coordinates": (funnel, 3),
}
"""


def laws() -> dict[str, tuple[Energy, int]]:
    found: dict[str, dict[str, tuple[Energy, int]]] = {}
    exec(LAWS_TEXT, found)  # the same text as the peer's process reads
    return found["LAWS"]


def sampled(
    energy: Energy, dim: int, seed: int, masses: MassMatrix, *, turning: bool
) -> tuple[Tensor, float, float]:
    """Draws after the warm-up, gradients of a chain since, and the share of divergent trajectories."""
    generator, found = Generator().manual_seed(seed), Adaptation(dim, masses)
    energy = found.within(energy)
    at = point_at(energy, 0.1 * torch.randn(CHAINS, dim, generator=generator, dtype=torch.float64))
    found.begin(first_step(energy, at, found.inverse, generator))

    def move(at: Point, step: float) -> Moved:
        if turning:
            return no_u_turn_transition(energy, at, inverse=found.inverse, step=step, generator=generator)
        step *= 0.8 + 0.4 * float(torch.rand((), generator=generator))
        return transition(energy, at, inverse=found.inverse, step=step, steps=STEPS, generator=generator)

    kept, gradients, divergent = [], 0.0, 0.0
    for k in range(WARM + DRAWS):
        moved = move(at, found.step(k < WARM))
        at, theta = moved.at, found.outside(moved.at.theta)
        if k < WARM:
            found.update(float(moved.acceptance.mean()), TARGET)
            if WARM // 4 <= k < 3 * WARM // 4:
                found.observe(theta)
            if k == 3 * WARM // 4:
                found.take_masses()
                at = point_at(energy, found.inside(theta))
                found.begin(dim**-0.25)
        else:
            kept.append(theta)
            gradients += float(moved.steps.mean())
            divergent += float(moved.divergent.double().mean())
    return torch.stack(kept), gradients, divergent / DRAWS


def of_peer(python: str, law: str, seed: int) -> tuple[Tensor, float, str]:
    call = [python, "-c", PEER, law, str(seed), str(WARM), str(DRAWS)]
    told = subprocess.run(call, input=LAWS_TEXT, capture_output=True, text=True, check=True)
    said = json.loads(told.stdout.splitlines()[-1])
    return torch.tensor(said["draws"], dtype=torch.float64), said["gradients"], said["version"]


def worth(draws: Tensor, gradients: float) -> float:
    """Effective draws of all chains per 1,000 gradients of all chains, of the number which has the fewest."""
    return 1000 * float(effective_sample_size(draws).min()) / (gradients * draws.shape[1])


def moments(draws: Tensor) -> Tensor:
    """Coordinates and their squares."""
    return torch.cat((draws, draws.square()), 2)


def row(law: str, who: str, found: list[float], **more: object) -> dict[str, object]:
    middle = sorted(found)[len(found) // 2]
    return {
        "what": f"{law}: {who}, effective draws per 1,000 gradients",
        "value": round(middle, 2),
        "unit": "draws",
        "interval": [round(min(found), 2), round(max(found), 2)],
        **more,
    }


def kept(rows: list[dict[str, object]], seeds: int, version: str) -> None:
    record(
        "bayes/nuts",
        title="Effective draws per gradient of NUTS and HMC, each adapted by itself: medians, least and most",
        figures=rows,
        seeds=seeds,
        peer=version,
        chains=CHAINS,
        warm_up=WARM,
        draws=DRAWS,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default="", help="a python that has pyro-ppl")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows, version = [], "not measured"
    for law, (energy, dim) in laws().items():
        for who, turning, masses in OURS:
            runs = [sampled(energy, dim, seed, masses, turning=turning) for seed in range(given.seeds)]
            rows.append(
                row(
                    law,
                    who,
                    [worth(moments(draws), gradients) for draws, gradients, _ in runs],
                    of_the_mean_alone=[round(worth(draws, gradients), 2) for draws, gradients, _ in runs],
                    gradients_a_draw=round(sum(run[1] for run in runs) / len(runs) / DRAWS, 1),
                    divergent=round(sum(run[2] for run in runs) / len(runs), 4),
                )
            )
            kept(rows, given.seeds, version)
        if given.peer:
            found = []
            for seed in range(given.seeds):
                one, gradients, version = of_peer(given.peer, law, seed)
                found.append(worth(moments(one[:, None]), gradients))
            rows.append(row(law, "NUTS of pyro-ppl", found))
            kept(rows, given.seeds, version)


if __name__ == "__main__":
    main()
