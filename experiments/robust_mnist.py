"""Robust training on MNIST, l-infinity, eps .1 and .3: adversarial and by interval bounds, a small CNN.

Each row is trained by its rule for the stated epochs, then judged on the official test part: clean and
certified accuracy on all of it; on 1,000 test images drawn at random, PGD of 100 steps on the cross-entropy
and an ensemble, the worst case of that, of PGD on the margin, and of random search, image by image. The CNN
is that of Wong and Kolter (2018): 16 and 32 maps by 4x4 convolutions of stride 2, 100 units; with interval
bounds the small one of Gowal et al. (2018), whose second stride is 1, by their schedule of eps, of kappa and
of the learning rate, in a quarter of their steps. At eps .3 PGD begins with the weights of the row "fast .3":
from drawn ones the CNN stays at a constant answer, as the row beside it shows. A row that is done is kept in
--out and not trained again; a training that was cut off goes on.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from benchmarks.record import record
from margin import Run, Training, load, resume, train
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.open import open_data
from margin.engine.loop import risk
from margin.robust.attacks.gradient import Search, margin_loss, missed, pgd
from margin.robust.attacks.square import square
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates.intervals import margin_bounds
from margin.theory.prediction.risk import clopper_pearson

ATTACKED, STEPS, QUERIES, WHITE = 1000, 100, 300, 255.0

ROWS = {
    # name: rule, eps, options of the rule in shares of [0, 1], epochs
    "undefended": ("", 0.1, {}, 2),
    "pgd .1": ("pgd", 0.1, {"eps": 0.1, "steps": 5}, 3),
    "ibp .3": ("ibp", 0.3, {"eps": 0.33, "warmup": 0.05, "ramp": 0.6}, 25),
    "ibp .1": ("ibp", 0.1, {"eps": 0.15, "warmup": 0.05, "ramp": 0.6}, 25),
    "fast .3": ("fast", 0.3, {"eps": 0.3}, 6),
    "pgd .3, weights as drawn": ("pgd", 0.3, {"eps": 0.3, "steps": 7}, 4),
    "pgd .3": ("pgd", 0.3, {"eps": 0.3, "steps": 7}, 4),
}

DROP = 11_400
"""The step from which the learning rate of IBP is a tenth: the authors' first drop, at a quarter of theirs,
comes a quarter of their ramp after its end."""

WONG = "Wong and Kolter 2018, convex_adversarial README"
GOWAL = "Gowal et al. 2018, interval-bound-propagation README (medium network, 100 epochs)"
CHALLENGE = "MadryLab/mnist_challenge (larger network, 100,000 steps)"
PUBLISHED = {
    ("undefended", "clean"): (0.989, WONG),
    ("undefended", "PGD-100"): (0.183, f"{WONG}, its PGD"),
    ("undefended", "certified"): (0.0, WONG),
    ("ibp .1", "clean"): (0.9894, GOWAL),
    ("ibp .1", "PGD-100"): (0.9799, f"{GOWAL}, its PGD"),
    ("ibp .1", "certified"): (0.9708, f"{GOWAL}, verified"),
    ("ibp .3", "clean"): (0.9834, GOWAL),
    ("ibp .3", "PGD-100"): (0.9603, f"{GOWAL}, its PGD"),
    ("ibp .3", "certified"): (0.9179, f"{GOWAL}, verified"),
    ("pgd .3", "clean"): (0.9853, CHALLENGE),
    ("pgd .3", "PGD-100"): (0.9252, CHALLENGE),
    ("pgd .3", "ensemble"): (0.8850, f"{CHALLENGE}; AutoAttack, fra31/auto-attack"),
}


def small_cnn(channels: int, num_classes: int) -> nn.Module:
    """The small network of Wong and Kolter (2018), Section 4."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 100),
        nn.ReLU(),
        nn.Linear(100, num_classes),
    )


def gowal_small(channels: int, num_classes: int) -> nn.Module:
    """The small network of Gowal et al. (2018), Table 1."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 10 * 10, 100),
        nn.ReLU(),
        nn.Linear(100, num_classes),
    )


def trained(name: str, data: object, out: Path) -> Run:
    rule, _, options, epochs = ROWS[name]
    if (out / "run.yaml").exists():
        return resume(out, data)
    options = {**options, **({"eps": options["eps"] * WHITE} if "eps" in options else {})}
    own = {"lr": 2e-3, "schedule": "cosine"}
    if rule == "ibp":
        own = {"lr": 1e-3, "schedule": "step", "schedule_options": {"every": DROP, "factor": 0.1}}
    if name == "pgd .3":
        own |= {"lr": 1e-3, "init_from": str(out.parent / "fast.3")}
    training = Training(epochs=epochs, batch_size=100, optimizer="Adam", seed=0, patience=0, threads=1, **own)
    model = f"experiments.robust_mnist:{'gowal_small' if rule == 'ibp' else 'small_cnn'}"
    return train(model, data, {}, training, rule=rule, step=options, task="classes", out=out)


def batches(x: Tensor, y: Tensor, size: int) -> list[Batch]:
    return [Batch((a,), b) for a, b in zip(x.split(size), y.split(size), strict=True)]


@torch.no_grad()
def judged(model: nn.Module, data: object, eps: float) -> dict[str, tuple[int, int]]:
    """How many images are right, of how many, by each measure."""
    threat, wrong = Threat(data.domain, eps * WHITE), missed(CLASSES)
    part, generator = data.splits["test"], Generator().manual_seed(0)
    x, y = part.inputs[0].float(), part.targets
    right, certified = [], []
    for batch in batches(x, y, 500):
        right.append(~wrong(model(*batch.inputs), batch.targets))
        below = margin_bounds(model, *threat.hull(batch.inputs[0]), batch.targets)
        certified.append(below.scatter(1, batch.targets[:, None], torch.inf).amin(1) > 0)
    index = torch.randperm(len(x), generator=generator)[:ATTACKED]
    white, all_of_them = [], []
    search = Search(steps=STEPS, step_size=0.01 * WHITE if eps > 0.2 else 0.005 * WHITE)
    for batch in batches(x[index], y[index], 250):
        alive = ~wrong(model(*batch.inputs), batch.targets)
        found = pgd(model, batch, risk(CLASSES), threat, generator, search=search, goal=wrong)
        alive = alive & ~wrong(model(found.inputs), batch.targets)
        white.append(alive)
        found = pgd(model, batch, margin_loss(CLASSES), threat, generator, search=search, goal=wrong)
        alive = alive & ~wrong(model(found.inputs), batch.targets)
        found = square(model, batch, margin_loss(CLASSES), threat, generator, queries=QUERIES, goal=wrong)
        all_of_them.append(alive & ~found.broken)
    sure = torch.cat(certified)
    if bool((sure[index] & ~torch.cat(all_of_them)).any()):
        raise RuntimeError("an image is both certified and broken")
    shares = {"clean": right, "PGD-100": white, "ensemble": all_of_them, "certified": certified}
    return {what: (int(torch.cat(parts).sum()), len(torch.cat(parts))) for what, parts in shares.items()}


def written(rows: dict[str, dict[str, object]]) -> None:
    figures = []
    for name, row in rows.items():
        for what, (right, count) in row["right"].items():
            published, source = PUBLISHED.get((name, what), (None, ""))
            figure = {
                "what": f"{name}: {what} accuracy at eps {row['eps']}",
                "value": round(right / count, 4),
                "unit": "share",
                "interval": [round(end, 4) for end in clopper_pearson(right, count)],
            }
            figures.append(figure | ({"published": f"{published} ({source})"} if source else {}))
    record(
        "robust/mnist",
        title="Robust training on MNIST, small CNN, official test part, one thread of a busy machine",
        figures=figures,
        rows=rows,
        attacked=ATTACKED,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", default=[*ROWS])
    parser.add_argument("--out", type=Path, default=Path("build/robust_mnist"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    data, done = open_data("mnist", {"val": 0.05}), arguments.out / "rows.json"
    for name in arguments.rows:
        rows = json.loads(done.read_text()) if done.exists() else {}
        if name in rows:
            continue
        start = time.process_time()
        run = trained(name, data, arguments.out / name.replace(" ", ""))
        rule, eps, options, epochs = ROWS[name]
        seconds = time.process_time() - start
        right = judged(load(run.path), data, eps)
        rows[name] = {
            "rule": rule or "none",
            "eps": eps,
            "options": options,
            "epochs": epochs,
            "right": right,
            "processor_seconds_of_training": round(seconds, 1),
            "metrics": run.metrics,
        }
        done.write_text(json.dumps(rows, indent=1))
        written(rows)


if __name__ == "__main__":
    main()
