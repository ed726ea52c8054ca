"""What linear bounds certify of MNIST: intervals, CROWN, slopes moved by gradients; windows apart or shared.

The small CNN of Wong and Kolter (2018), and one with maxima over windows of 3 in steps of 2, which share
inputs, each trained against one signed step from a random point; of test images the share that each bound
certifies, and that PGD leaves right, which no certificate may exceed. The mean of the least margin says how
far bounds are apart where none or all certify. Layers of at most 100 units that may bend are tightened.

    python -m experiments.robust_linear_bounds
"""

import argparse
import time

import torch
from torch import Generator, Tensor, nn

from benchmarks.attacks import EPS as TRAIN_EPS
from benchmarks.attacks import trained
from benchmarks.record import record
from benchmarks.smoothing import small_cnn
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.data.open import open_data
from margin.engine.loop import risk
from margin.robust.attacks.gradient import Search, missed, pgd
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates.certify import ball_of
from margin.robust.certificates.intervals import margin_bounds
from margin.robust.certificates.linear_bounds import alpha_crown_margins, crown_margins
from margin.theory.prediction.risk import clopper_pearson

EPS, STEPS, UNITS = (0.04, 0.08), 20, 100
UNIT = Domain(torch.tensor(0.0), torch.tensor(1.0))


def pooled_cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(8, 16, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16 * 3 * 3, 50), nn.ReLU(), nn.Linear(50, 10)),
    )


def rows(name: str, model: nn.Module, x: Tensor, y: Tensor, eps: float) -> list[dict[str, object]]:
    """The certified shares, what PGD leaves, and the seconds of each."""
    threat, n = Threat(UNIT, eps), len(x)
    ball, made = ball_of(x, threat), []
    found = pgd(
        model, Batch((x,), y), risk(CLASSES), threat, Generator().manual_seed(0), search=Search(steps=40),
        goal=missed(CLASSES),
    )  # fmt: skip
    left = int((~found.broken).sum())
    bounds = {
        "intervals": lambda: margin_bounds(model, ball.low, ball.high, y),
        "CROWN": lambda: crown_margins(model, ball, y),
        "CROWN, tightened": lambda: crown_margins(model, ball, y, units=UNITS),
        f"alpha-CROWN, {STEPS} steps": lambda: alpha_crown_margins(model, ball, y, units=UNITS, steps=STEPS),
    }
    for what, ask in bounds.items():
        begin = time.process_time()
        least = ask().scatter(1, y[:, None], torch.inf).amin(1)
        seconds, sure = time.process_time() - begin, int((least > 0).sum())
        said = f"{name}, eps {eps:g}, {what}"
        made.append(
            {
                "what": f"{said}: certified",
                "value": sure / n,
                "unit": "share",
                "interval": list(clopper_pearson(sure, n)),
                "target": f"<= {left / n:.4g} (PGD-40)",
                "met": sure <= left,
            }
        )
        made.append(
            {"what": f"{said}: mean least margin", "value": float(least.mean()), "unit": "of the scores"}
        )
        made.append({"what": f"{said}: processor time", "value": seconds / n, "unit": "s an image"})
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--trained-on", type=int, default=20_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data("mnist", {})
    x, y = data.splits["train"].inputs[0].float() / 255, data.splits["train"].targets
    index = torch.randperm(len(data.splits["test"].targets), generator=Generator().manual_seed(0))[
        : given.images
    ]
    a, b = data.splits["test"].inputs[0][index].float() / 255, data.splits["test"].targets[index]
    figures = []
    for name, network in (("small CNN", small_cnn), ("maxima of 3 by 2", pooled_cnn)):
        model = trained(x[: given.trained_on], y[: given.trained_on], robust=True, model=network())
        for eps in EPS:
            figures += rows(name, model, a, b, eps)
            print(name, eps, flush=True)
    record(
        "robust/linear_bounds",
        title=f"What linear bounds certify of MNIST, networks trained against l-infinity {TRAIN_EPS}",
        figures=figures,
        trained_on=given.trained_on,
        images=given.images,
    )


if __name__ == "__main__":
    main()
