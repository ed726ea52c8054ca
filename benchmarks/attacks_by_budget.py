"""Carlini and Wagner's attack beside foolbox's, Square beside torchattacks', each at the same budget.

The small CNN of MNIST of :mod:`benchmarks.attacks`, plainly trained. Of Carlini and Wagner's attack, 5
weights of 200 steps at rate .01, the mean Euclidean distance of the nearest examples found; of Square, 1,000
queries at l-infinity eps .1 with a first share of .8 and its loss the margin, the accuracy that is left.

Where foolbox finds nothing it returns a black image, which a network may call another class: it counts as not
found. Ours begins farther from the walls of the box, where most pixels of a digit lie.

    python -m benchmarks.attacks_by_budget --peer PYTHON_WITH_TORCHATTACKS_AND_FOOLBOX
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from torch import Generator, Tensor, nn

from benchmarks.attacks import EPS, PEER, trained
from benchmarks.record import record
from benchmarks.smoothing import small_cnn
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.data.open import open_data
from margin.engine.loop import risk
from margin.robust.attacks.carlini import Descent, carlini_wagner
from margin.robust.attacks.gradient import missed
from margin.robust.attacks.square import square
from margin.robust.attacks.threat_models import Threat

SEARCHES, STEPS, QUERIES, SHARE = 5, 200, 1000, 0.8
UNIT = Domain(torch.tensor(0.0), torch.tensor(1.0))
HEAD, _, _ = PEER.partition('if job == "foolbox"')
TAIL = f"""
torch.manual_seed(0)
begin = time.process_time()
if job == "foolbox":
    import foolbox as package
    wrapped = package.PyTorchModel(model, bounds=(0, 1), device="cpu")
    made = package.attacks.L2CarliniWagnerAttack(binary_search_steps={SEARCHES}, steps={STEPS},
        stepsize=0.01, initial_const=1e-3, abort_early=False)
    moved = made(wrapped, x, y, epsilons=None)[0]
    black = moved.flatten(1).abs().amax(1) == 0
    moved[black] = x[black]
else:
    import torchattacks as package
    moved = package.Square(model, norm="Linf", eps=eps, n_queries={QUERIES}, p_init={SHARE}, seed=0)(x, y)
seconds = time.process_time() - begin
with torch.no_grad():
    right, stays = model(x).argmax(1) == y, model(moved).argmax(1) == y
distance = (moved - x).flatten(1).norm(dim=1)
print(json.dumps({{"seconds": seconds, "left": int((right & stays).sum()),
    "distance": float(distance[right & ~stays].mean()), "version": getattr(package, "__version__", "")}}))
"""


def ours(job: str, model: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    """Seconds, images that stay right, and the mean distance of those that do not."""
    batch, begin = Batch((x,), y), time.process_time()
    with torch.no_grad():
        right = model(x).argmax(1) == y
    if job == "Carlini-Wagner":
        descent = Descent(steps=STEPS, searches=SEARCHES)
        found = carlini_wagner(model, batch, CLASSES, Threat(UNIT, 1e3, "l2"), descent=descent)
        broken, inputs = found.broken, found.inputs
    else:
        attack = square(
            model, batch, risk(CLASSES), Threat(UNIT, EPS), Generator().manual_seed(0), queries=QUERIES,
            share=SHARE, goal=missed(CLASSES),
        )  # fmt: skip
        broken, inputs = attack.broken, attack.inputs
    distance = (inputs - x).flatten(1).norm(dim=1)[right & broken].mean()
    seconds = time.process_time() - begin
    return {"seconds": seconds, "left": float((right & ~broken).sum()), "distance": float(distance)}


def of_peer(python: str, file: Path, peer: str) -> dict[str, float]:
    call = [python, "-c", HEAD + TAIL, str(file), peer, str(EPS), str(STEPS)]
    told = subprocess.run(call, capture_output=True, text=True, check=True)
    said: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return said


def rows_of(
    job: str, peer: str, runs: list[tuple[dict[str, float], dict[str, float]]], count: int
) -> list[dict[str, object]]:
    """How many times as fast, and what both leave."""
    ratios = sorted(other["seconds"] / own["seconds"] for own, other in runs)
    made: list[dict[str, object]] = [
        {
            "what": f"{job}: {peer}'s time / ours, {count} images",
            "value": median(ratios),
            "unit": "ratio",
            "interval": [ratios[0], ratios[-1]],
        }
    ]
    for who, found in (("ours", runs[-1][0]), (peer, runs[-1][1])):
        made.append(
            {"what": f"{job}: accuracy that {who} leaves", "value": found["left"] / count, "unit": "share"}
        )
        if job == "Carlini-Wagner":
            what = f"{job}: mean l2 distance of what {who} breaks"
            made.append({"what": what, "value": found["distance"], "unit": "of [0, 1]"})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, help="a Python that has torchattacks and foolbox")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--trained-on", type=int, default=20_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data("mnist", {})
    parts = {
        name: (data.splits[name].inputs[0].float() / 255, data.splits[name].targets) for name in data.splits
    }
    x, y = parts["train"]
    model = trained(x[: given.trained_on], y[: given.trained_on], robust=False)
    index = torch.randperm(len(parts["test"][0]), generator=Generator().manual_seed(0))[: given.images]
    held = {"x": parts["test"][0][index], "y": parts["test"][1][index]}
    rows, versions = [], {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "held.pt"
        torch.save({"weights": model.state_dict(), **held}, file)
        same = small_cnn().eval()
        same.load_state_dict(model.state_dict())
        for job, peer in (("Carlini-Wagner", "foolbox"), ("Square", "torchattacks")):
            runs = []
            for _ in range(given.rounds):
                runs.append((ours(job, same, held["x"], held["y"]), of_peer(given.peer, file, peer)))
                print(job, runs[-1], flush=True)
            versions[peer] = runs[-1][1]["version"]
            rows += rows_of(job, peer, runs, given.images)
    record(
        "robust/attacks_by_budget",
        title="Carlini and Wagner's attack and Square beside the peers' at equal budgets, small CNN, MNIST",
        figures=rows,
        peers=versions,
        rounds=given.rounds,
        trained_on=given.trained_on,
    )


if __name__ == "__main__":
    main()
