"""Double descent of networks on MNIST-1D by width, samples and steps, and bias and variance along the width.

400 examples, 15 % of the labels wrong, one hidden layer of ReLUs on the squared error of one-hot labels: the
networks interpolate where they have n K parameters (Greydanus and Kobak 2024 place the peak there). 20 widths
x 10 seeds are trained in loops of networks of about one size. Beside them least squares of smallest norm with
its exact limit (Hastie et al. 2022). Each part is written when it is done, and a part that is there is not
trained again; a picture is drawn of what there is.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from benchmarks.record import record
from margin.data.examples import InOrder
from margin.data.open import open_data
from margin.theory.capacity.interpolation import decomposed, ridgeless_risk
from margin.theory.capacity.many_networks import Networks, descend, started

N, NOISE, CLASSES, DIM = 400, 0.15, 10, 40
SEEDS = range(10)
WIDTHS = [2, 3, 5, 7, 10, 14, 20, 28, 40, 50, 60, 70, 80, 90, 100, 120, 160, 220, 300, 400]
SIZES = [*range(50, 401, 50), 500, 600, 700, 800, 1000, 1250, 1500, 2000, 2500, 3000, 3500, 4000]
FIXED = 40
"""Width of the curve by samples: it has as many parameters as 205 examples have targets."""


def examples(part: str) -> tuple[Tensor, Tensor]:
    batches = list(InOrder(open_data("mnist1d", {"val": 0.0}).splits[part], 1000))
    return torch.cat([b.inputs[0].flatten(1) for b in batches]), torch.cat([b.targets for b in batches])


def noisy(labels: Tensor, seed: int) -> Tensor:
    """One-hot labels of which a share is drawn anew."""
    generator = Generator().manual_seed(seed)
    other = torch.randint(CLASSES, labels.shape, generator=generator)
    wrong = torch.rand(labels.shape, generator=generator) < NOISE
    return F.one_hot(torch.where(wrong, other, labels), CLASSES).float()


def parameters(width: int) -> int:
    return (DIM + 1) * width + (width + 1) * CLASSES


@torch.no_grad()
def judged(networks: Networks, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The squared error on clean one-hot targets, the share of errors, and the outputs, of each network."""
    outputs = networks(x)
    target = F.one_hot(y, CLASSES).float()
    return (outputs - target).square().sum(-1).mean(-1), (outputs.argmax(-1) != y).float().mean(-1), outputs


def last_of(steps: int, *given: Any, **options: Any) -> Networks:
    for _, networks in descend(*given, steps=steps, batch_size=100, lr=3e-3, **options):
        found = networks
    return found


def by_width(steps: int) -> dict[str, Any]:
    x, y = examples("train")
    test = examples("test")
    targets = torch.stack([noisy(y[:N], seed) for seed in SEEDS])
    rows = []
    for group in (WIDTHS[:7], WIDTHS[7:12], WIDTHS[12:16], WIDTHS[16:18], WIDTHS[18:]):
        cases = [(width, seed) for width in group for seed in SEEDS]
        begun = started(DIM, [w for w, _ in cases], [s for _, s in cases], CLASSES)
        networks = last_of(steps, begun, x[:N], targets.repeat(len(group), 1, 1))
        loss, error, outputs = judged(networks, *test)
        for i, width in enumerate(group):
            own = slice(i * len(SEEDS), (i + 1) * len(SEEDS))
            target = F.one_hot(test[1], CLASSES).double().flatten()
            parts = decomposed(outputs[own].double().flatten(1), target)
            rows.append(row(width, loss[own], error[own]) | {
                "bias": float(parts.bias) * CLASSES, "variance": float(parts.variance) * CLASSES,
            })  # fmt: skip
            print("width", rows[-1], flush=True)
    return {"rows": rows}


def row(at: int, loss: Tensor, error: Tensor) -> dict[str, float]:
    spread = math.sqrt(len(loss))
    return {"at": at, "loss": float(loss.mean()), "loss_stderr": float(loss.std()) / spread,
            "error": float(error.mean()), "error_stderr": float(error.std()) / spread}  # fmt: skip


def by_samples(steps: int) -> dict[str, Any]:
    x, y = examples("train")
    cases = [(n, seed) for n in SIZES for seed in SEEDS]
    begun = started(DIM, [FIXED] * len(cases), [s for _, s in cases], CLASSES)
    targets = torch.stack([noisy(y, seed) for seed in SEEDS]).repeat(len(SIZES), 1, 1)
    loss, error, _ = judged(last_of(steps, begun, x, targets, [n for n, _ in cases]), *examples("test"))
    each = len(SEEDS)
    owns = [slice(i * each, (i + 1) * each) for i in range(len(SIZES))]
    return {"rows": [row(n, loss[own], error[own]) for n, own in zip(SIZES, owns, strict=True)]}


def by_steps(steps: int) -> dict[str, Any]:
    x, y = examples("train")
    test, found = examples("test"), []
    targets = torch.stack([noisy(y[:N], seed) for seed in SEEDS])
    seen = {round(10 * (steps / 10) ** (i / 24)) for i in range(25)}
    begun = started(DIM, [160] * len(SEEDS), list(SEEDS), CLASSES)
    for step, networks in descend(begun, x[:N], targets, steps=steps, batch_size=100, lr=3e-3):
        if step in seen:
            found.append(row(step, *judged(networks, *test)[:2]))
    return {"rows": found}


def ridgeless(steps: int, n: int = 100, draws: int = 50) -> dict[str, Any]:
    del steps
    rows = []
    for gamma in (0.2, 0.4, 0.6, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0):
        p, generator = round(gamma * n), Generator().manual_seed(round(100 * gamma))
        X = torch.randn(draws, n, p, generator=generator, dtype=torch.float64)
        beta = F.normalize(torch.randn(draws, p, 1, generator=generator, dtype=torch.float64), dim=1)
        y = X @ beta + 0.5 * torch.randn(draws, n, 1, generator=generator, dtype=torch.float64)
        excess = (torch.linalg.pinv(X) @ y - beta).square().sum((1, 2))
        exact = float(ridgeless_risk(p / n, noise=0.5).total)
        rows.append({"at": gamma, "excess": float(excess.mean()), "exact": exact,
                     "stderr": float(excess.std()) / math.sqrt(draws)})  # fmt: skip
    return {"rows": rows}


PARTS = {"width": by_width, "samples": by_samples, "steps": by_steps, "ridgeless": ridgeless}


def draw(found: dict[str, dict[str, Any]], file: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(13, 3.4), layout="constrained")
    names = {
        "width": "parameters / (n K)", "samples": "training examples", "steps": "steps", "ridgeless": "p / n"
    }  # fmt: skip
    for axes, (name, label) in zip(figure.subplots(1, 4), names.items(), strict=True):
        axes.set(xscale="log", xlabel=label, title=name)
        axes.xaxis.set_minor_formatter(NullFormatter())
        if name not in found:
            continue
        rows = found[name]["rows"]
        at = [r["at"] for r in rows]
        if name == "ridgeless":
            curve = torch.logspace(math.log10(0.2), math.log10(8), 400, dtype=torch.float64)
            exact = ridgeless_risk(curve, noise=0.5).total
            axes.plot(curve, exact, color="0.4", label="exact limit")
            axes.errorbar(at, [r["excess"] for r in rows], [2 * r["stderr"] for r in rows], fmt="o", ms=3.5)
            axes.set(yscale="log", ylabel="excess risk")
            continue
        if name == "width":
            at = [parameters(w) / (N * CLASSES) for w in at]
            for key, style in (("bias", ":"), ("variance", "--")):
                axes.plot(at, [r[key] for r in rows], style, color="0.5", label=key)
        axes.errorbar(at, [r["loss"] for r in rows], [2 * r["loss_stderr"] for r in rows], fmt="o-", ms=3.5)
        axes.set(ylabel="test squared error", yscale="log")
        if name == "width":
            axes.axvline(1, color="0.8")
            axes.legend(frameon=False)
    figure.savefig(file, dpi=110)


def peak(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The row of the largest loss between the ends."""
    return max(rows[1:-1], key=lambda r: r["loss"])


def figures_of(found: dict[str, dict[str, Any]]) -> list[dict[str, object]]:
    figures: list[dict[str, object]] = []
    if "width" in found:
        rows = found["width"]["rows"]
        top, last = peak(rows[5:]), rows[-1]
        place = parameters(int(top["at"])) / (N * CLASSES)
        figures += [
            {
                "what": "parameters at the peak, by n K",
                "value": place,
                "unit": "1",
                "target": "within [0.5, 2]",
                "published": "peak at about n K parameters (Greydanus and Kobak 2024)",
                "met": 0.5 <= place <= 2,
            },
            {
                "what": "test squared error at the peak by that of the widest",
                "value": top["loss"] / last["loss"],
                "unit": "1",
                "target": "> 1",
                "met": top["loss"] > last["loss"],
            },
        ]
    if "ridgeless" in found:
        rows = found["ridgeless"]["rows"]
        off = max(abs(r["excess"] - r["exact"]) / (4 * r["stderr"] + 0.1 * r["exact"]) for r in rows)
        figures.append(
            {
                "what": "ridgeless risk: largest distance from the limit, in 4 standard errors + 10 %",
                "value": off,
                "unit": "1",
                "target": "<= 1",
                "met": off <= 1,
            }
        )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/slt-double-descent"))
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    for name in arguments.parts:
        file = arguments.out / f"{name}-{arguments.steps}.json"
        if not file.exists():
            file.write_text(json.dumps(PARTS[name](arguments.steps)))
        found[name] = json.loads(file.read_text())
        draw(found, arguments.out / "double_descent.png")
    record(
        "theory/double_descent",
        title=f"Double descent on MNIST-1D: {N} examples, 15 % of the labels wrong, {len(SEEDS)} seeds",
        figures=figures_of(found),
        curves={name: part["rows"] for name, part in found.items()},
        steps=arguments.steps,
        seeds=list(SEEDS),
    )


if __name__ == "__main__":
    main()
