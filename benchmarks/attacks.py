"""Attacks beside torchattacks' and foolbox's: PGD-20 on 1,000 images, the ensemble beside AutoAttack.

Both attack the same small CNN of MNIST, at l-infinity eps .1 of [0, 1], once trained plainly and once against
one signed step from a random point; PGD with one random start and steps of 2.5 eps / 20. A time is the
processor's own, and the libraries take turns. AutoAttack is torchattacks' copy of its standard version, which
takes 10 steps where the authors' takes 100: both budgets are measured, and ours is given the same steps.

    python -m benchmarks.attacks --peer PYTHON_WITH_TORCHATTACKS_AND_FOOLBOX
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from benchmarks.record import record
from benchmarks.smoothing import small_cnn
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.data.open import open_data
from margin.engine.loop import risk
from margin.robust.attacks.ensemble import Budget, ensemble
from margin.robust.attacks.gradient import Search, missed, pgd
from margin.robust.attacks.threat_models import Threat
from margin.theory.prediction.risk import clopper_pearson

EPS, TRAINED, SIZE = 0.1, 20_000, 100
STEPS = {"PGD-20": 20, "ensemble of 10 steps": 10, "ensemble of 100 steps": 100}
RECORDS = {"PGD-20": "pgd", "ensemble of 10 steps": "autoattack_10", "ensemble of 100 steps": "autoattack"}

PEER = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import torch
from torch import nn
torch.set_num_threads(1)
file, job, eps, steps = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
held = torch.load(file, weights_only=True)
model = nn.Sequential(nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.ReLU(),
    nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 100), nn.ReLU(),
    nn.Linear(100, 10)).eval()
model.load_state_dict(held["weights"])
x, y = held["x"], held["y"]
if job == "foolbox":
    import foolbox
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    made = foolbox.attacks.LinfPGD(abs_stepsize=2.5 * eps / steps, steps=steps, random_start=True)
    attack, package = lambda a, b: made(wrapped, a, b, epsilons=eps)[1], foolbox
else:
    import torchattacks
    if job == "torchattacks":
        attack = torchattacks.PGD(model, eps=eps, alpha=2.5 * eps / steps, steps=steps, random_start=True)
    else:
        attack = torchattacks.AutoAttack(model, norm="Linf", eps=eps, n_classes=10, seed=0)
        for part in attack._autoattack.attacks:
            if hasattr(part, "steps"):
                part.steps = steps
    package = torchattacks
torch.manual_seed(0)
begin, right = time.process_time(), 0
for a, b in zip(x.split(100), y.split(100)):
    moved = attack(a, b)
    with torch.no_grad():
        right += int(((model(a).argmax(1) == b) & (model(moved).argmax(1) == b)).sum())
version = getattr(package, "__version__", "")
print(json.dumps({"seconds": time.process_time() - begin, "right": right, "version": version}))
"""


def trained(x: Tensor, y: Tensor, *, robust: bool, model: nn.Module | None = None) -> nn.Module:
    """The network after two passes, plain or against one signed step of 1.25 eps from a random point."""
    model, generator = (small_cnn() if model is None else model).train(), Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(2):
        for index in torch.randperm(len(x), generator=generator).split(100):
            a, b = x[index], y[index]
            if robust:
                delta = EPS * (2 * torch.rand(a.shape, generator=generator) - 1)
                moved = (a + delta).clamp(0, 1).requires_grad_()
                (slope,) = torch.autograd.grad(F.cross_entropy(model(moved), b), moved)
                delta = (moved.detach() + 1.25 * EPS * slope.sign() - a).clamp(-EPS, EPS)
                a = (a + delta).clamp(0, 1)
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()
    return model.eval()


def ours(job: str, model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, Tensor]:
    """Seconds, and which images stay right, by our PGD or our ensemble."""
    threat, right = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), EPS), []
    generator, goal, begin = Generator().manual_seed(0), missed(CLASSES), time.process_time()
    for a, b in zip(x.split(SIZE), y.split(SIZE), strict=True):
        batch = Batch((a,), b)
        if job == "PGD-20":
            search = Search(steps=STEPS[job])
            found = pgd(model, batch, risk(CLASSES), threat, generator, search=search, goal=goal).broken
        else:
            budget = Budget(steps=STEPS[job], boundary=STEPS[job])
            found = ensemble(model, batch, CLASSES, threat, generator, budget=budget).broken
        right.append(~found)
    return time.process_time() - begin, torch.cat(right)


def floor(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> float:
    """Seconds of the bare gradients by the input alone, by torch's own kernels, so many of each image.

    Of the images that an attack does not break, no attack of so many of these takes less.
    """
    begin = time.process_time()
    for a, b in zip(x.split(SIZE), y.split(SIZE), strict=True):
        for _ in range(steps):
            moved = a.clone().requires_grad_()
            torch.autograd.grad(F.cross_entropy(model(moved), b, reduction="sum"), moved)
    return time.process_time() - begin


def of_peer(python: str, file: Path, peer: str, job: str) -> tuple[float, int, str]:
    call = [python, "-c", PEER, str(file), peer, str(EPS), str(STEPS[job])]
    told = subprocess.run(call, capture_output=True, text=True, check=True)
    said = json.loads(told.stdout.splitlines()[-1])
    return said["seconds"], said["right"], said["version"]


def _ratio(over: list[float], under: list[float]) -> tuple[float, list[float]]:
    """The ratio of the medians, and the range of those of the rounds."""
    ratios = sorted(b / a for a, b in zip(under, over, strict=True))
    return median(over) / median(under), [ratios[0], ratios[-1]]


# Five parameters: what is measured, on whom, how often, of whom.
def compared(
    job: str, which: str, file: Path, rounds: int, peers: dict[str, str]
) -> tuple[list[dict[str, object]], dict[str, str]]:
    """Rows of one job: our time over each peer's, and the accuracy that each leaves."""
    held = torch.load(file, weights_only=True)
    model = small_cnn().eval()
    model.load_state_dict(held["weights"])
    x, y = held["x"], held["y"]
    times: dict[str, list[float]] = {"ours": [], "floor": [], **{name: [] for name in peers}}
    left, versions = {}, {}
    for _ in range(rounds):
        seconds, right = ours(job, model, x, y)
        times["ours"].append(seconds)
        left["ours"] = int(right.sum())
        if job == "PGD-20":
            times["floor"].append(floor(model, x[right], y[right], STEPS[job]))
        for name, python in peers.items():
            seconds, left[name], versions[name] = of_peer(python, file, name, job)
            times[name].append(seconds)
        print(job, which, times, left, flush=True)
    rows: list[dict[str, object]] = []
    for name in peers:
        most = left[name] + (0 if job == "PGD-20" else 0.005 * len(x))
        least = 2.0 if job == "PGD-20" else 1 / 0.7
        value, interval = _ratio(times[name], times["ours"])
        rows.append(
            {
                "what": f"{job}, {which}: {name}'s time / ours, {len(x):,} images",
                "value": value,
                "unit": "ratio",
                "interval": interval,
                "target": f">= {least:.3g} at an accuracy <= {most / len(x):.4g}",
                "met": value >= least and left["ours"] <= most,
            }
        )
        if times["floor"]:
            what = f"{job}, {which}: {name}'s time / bare gradients of the {left['ours']} images left"
            value, interval = _ratio(times[name], times["floor"])
            rows.append({"what": what, "value": value, "unit": "ratio", "interval": interval})
    for name, count in left.items():
        interval = list(clopper_pearson(count, len(x)))
        what = f"{job}, {which}: accuracy that {name} leaves"
        rows.append({"what": what, "value": count / len(x), "unit": "share", "interval": interval})
    return rows, versions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, help="a Python that has torchattacks and foolbox")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=1000, help="of PGD")
    parser.add_argument("--job", choices=tuple(STEPS), help="one of them alone")
    parser.add_argument("--few", type=int, default=200, help="images of the ensemble, which is run once")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data("mnist", {})
    parts = {
        name: (data.splits[name].inputs[0].float() / 255, data.splits[name].targets) for name in data.splits
    }
    x, y = parts["train"]
    index = torch.randperm(len(parts["test"][0]), generator=Generator().manual_seed(0))
    found: dict[str, list[dict[str, object]]] = {}
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for which, robust in (("plain", False), ("adversarially trained", True)):
            jobs = [job for job in (STEPS if robust else ("PGD-20",)) if arguments.job in (None, job)]
            model = trained(x[:TRAINED], y[:TRAINED], robust=robust) if jobs else small_cnn()
            for job in jobs:
                chosen = index[: arguments.images if job == "PGD-20" else arguments.few]
                file = Path(folder) / "held.pt"
                held = {"x": parts["test"][0][chosen], "y": parts["test"][1][chosen]}
                torch.save({"weights": model.state_dict(), **held}, file)
                names = ("torchattacks", "foolbox") if job == "PGD-20" else ("AutoAttack",)
                rounds = arguments.rounds if job == "PGD-20" else 1
                made, seen = compared(job, which, file, rounds, dict.fromkeys(names, arguments.peer))
                found.setdefault(job, []).extend(made)
                versions |= seen
    for job, rows in found.items():
        record(
            f"robust/{RECORDS[job]}",
            title=f"{job} beside the peers': small CNN, MNIST, l-infinity {EPS}, one thread",
            figures=rows,
            peers=versions,
            rounds=arguments.rounds if job == "PGD-20" else 1,
            trained_on=TRAINED,
        )


if __name__ == "__main__":
    main()
