"""Double descent of networks on MNIST-1D by width, samples and steps, and bias and variance along the width.

400 examples, 15 % of the labels wrong, one hidden layer of ReLUs on the squared error of one-hot labels: the
networks interpolate where they have n K parameters (Greydanus and Kobak 2024 place the peak there). 20 widths
x 10 seeds are trained in loops of networks of about one size, each seed on 400 examples of its own: bias and
variance are those over data sets, noise of the labels and initial weights. Beside them stands least squares
of smallest norm, with its exact limit (Hastie et al. 2022) and on random Fourier features of MNIST (Belkin et
al. 2019). By steps the risk of such a network rises and hardly falls. It falls twice where two parts of the
features have step sizes far apart (Heckel and Yilmaz 2021, "Early stopping in deep networks: double descent
and how to eliminate it"): of MNIST, features of detail fit the wrong labels before smooth ones are learned.
Beside that stands the exact mean over wrong labels. Each part is written when it is done, and a part that is
there is not trained again; a picture is drawn of what there is.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from benchmarks.record import record
from margin.data.examples import InOrder
from margin.data.open import open_data
from margin.theory.capacity.interpolation import decomposed, ridgeless_risk
from margin.theory.capacity.many_networks import Networks, descend, started
from margin.theory.dynamics.shrinkage import descent_factor

N, NOISE, CLASSES, DIM = 400, 0.15, 10, 40
SEEDS = range(10)
WIDTHS = [2, 3, 5, 7, 10, 14, 20, 28, 40, 50, 60, 70, 80, 90, 100, 120, 160, 220, 300, 400]
SIZES = [*range(50, 401, 50), 500, 600, 700, 800, 1000, 1250, 1500, 2000, 2500, 3000, 3500, 4000]
FIXED = 40
"""Width of the curve by samples: it has as many parameters as 205 examples have targets."""
PACES = ((160, 3.5, 1.0), (800, 6.0, 3e-3))
"""Fourier features of two kinds: their number, the length over which they vary, their part of the step."""


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
    drawn = [torch.randperm(len(x), generator=Generator().manual_seed(seed))[:N] for seed in SEEDS]
    pools = torch.stack([x[own] for own in drawn])
    targets = torch.stack([noisy(y[own], seed) for own, seed in zip(drawn, SEEDS, strict=True)])
    rows = []
    for group in (WIDTHS[:7], WIDTHS[7:12], WIDTHS[12:16], WIDTHS[16:18], WIDTHS[18:]):
        cases = [(width, seed) for width in group for seed in SEEDS]
        begun = started(DIM, [w for w, _ in cases], [s for _, s in cases], CLASSES)
        size = (len(group), 1, 1)
        networks = last_of(steps, begun, pools.repeat(size), targets.repeat(size))
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


def features(steps: int, n: int = 1000, draws: int = 5, scale: float = 5.0) -> dict[str, Any]:
    """Least squares of smallest norm on cos(v x + b), v normal of deviation 1 / scale, of n rows of MNIST."""
    del steps
    (x, y), (new, labels) = (images(part, n) for part in ("train", "test"))
    target, rows = F.one_hot(y, CLASSES).double(), []
    for gamma in (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0):
        p, found = round(gamma * n), []
        for seed in range(draws):
            generator = Generator().manual_seed(seed)
            v = torch.randn(x.shape[1], p, generator=generator, dtype=torch.float64) / scale
            b = 2 * math.pi * torch.rand(p, generator=generator, dtype=torch.float64)
            weights = torch.linalg.lstsq((x @ v + b).cos(), target, driver="gels").solution
            found.append((new @ v + b).cos() @ weights)
        outputs = torch.stack(found)
        loss = (outputs - F.one_hot(labels, CLASSES)).square().sum(-1).mean(-1)
        rows.append(row(gamma, loss, (outputs.argmax(-1) != labels).double().mean(-1)))
        print("features", rows[-1], flush=True)
    return {"rows": rows}


class Paced(NamedTuple):
    """A data set in features, those of the small step size scaled down: as if that were the step's own."""

    x: Tensor
    new: Tensor
    targets: Tensor
    clean: Tensor


def two_paced(seed: int, pool: tuple[Tensor, Tensor], new: Tensor) -> Paced:
    """N rows of MNIST drawn by a seed, their features and their noisy targets."""
    generator = Generator().manual_seed(seed)
    own = torch.randperm(len(pool[0]), generator=generator)[:N]
    parts: list[tuple[Tensor, ...]] = []
    for count, scale, pace in PACES:
        v = torch.randn(new.shape[1], count, generator=generator, dtype=torch.float64) / scale
        b = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
        parts.append(tuple((x @ v + b).cos() * math.sqrt(2 * pace / count) for x in (pool[0][own], new)))
    labels = pool[1][own]
    clean = F.one_hot(labels, CLASSES).double()
    return Paced(
        *(torch.cat(both, 1) for both in zip(*parts, strict=True)), noisy(labels, seed).double(), clean
    )


def by_scales(steps: int, lr: float = 0.02) -> dict[str, Any]:
    """Gradient descent from 0; the setting was chosen on the data of another seed, 100."""
    del steps
    pool, (new, labels) = images("train", 4000), images("test", 2000)
    cases, truth = [two_paced(seed, pool, new) for seed in SEEDS], F.one_hot(labels, CLASSES).double()
    x, others, targets, _ = (torch.stack(column).float() for column in zip(*cases, strict=True))
    gram, others = x @ x.mT, others @ x.mT  # the weights stay x^T a
    a, rows, found = torch.zeros_like(targets), [], []
    seen = {round(2 ** (i / 2)) for i in range(29)}
    for step in range(1, max(seen) + 1):
        a += lr * torch.baddbmm(targets, gram, a, alpha=-1)
        if step in seen:
            outputs = others @ a
            loss = (outputs - truth).square().sum(-1).mean(-1)
            rows.append(row(step, loss, (outputs.argmax(-1) != labels).double().mean(-1)))
            found.append(loss)
    exact = torch.stack([exact_losses(case, truth, lr, [r["at"] for r in rows]) for case in cases], 1)
    spread = (torch.stack(found) - exact).std(1) / math.sqrt(len(cases))
    added = [{"exact": float(e.mean()), "off_stderr": float(s)} for e, s in zip(exact, spread, strict=True)]
    return {"rows": [r | more for r, more in zip(rows, added, strict=True)]}


def exact_losses(case: Paced, truth: Tensor, lr: float, steps: Sequence[float]) -> Tensor:
    """The mean over draws of the wrong labels, in closed form: of outputs S Y, |S E[Y] - truth|^2 + v |S|^2.

    S is the smoother of so many steps; v, the variance of a row of Y, is that of the law of its label.
    """
    eigenvalues, vectors = torch.linalg.eigh(case.x @ case.x.T)
    law = (1 - NOISE) * case.clean + NOISE / CLASSES
    variance = 1 - float(law[0].square().sum())
    front, found = case.new @ case.x.T @ vectors, []
    for step in steps:
        S = front * (descent_factor(eigenvalues, lr, int(step)) / eigenvalues) @ vectors.T
        found.append(((S @ law - truth).square().sum() + variance * S.square().sum()) / len(truth))
    return torch.stack(found)


def images(part: str, count: int) -> tuple[Tensor, Tensor]:
    """The first images of a part of MNIST, pixels in [0, 1]."""
    batch = open_data("mnist", {"val": 0.0}).splits[part].take(torch.arange(count), Generator())
    x = batch.inputs[0].flatten(1).double()
    return x / x.max(), batch.targets


PARTS = {
    "width": by_width, "samples": by_samples, "steps": by_steps, "scales": by_scales, "ridgeless": ridgeless,
    "features": features,
}  # fmt: skip


def draw(found: dict[str, dict[str, Any]], file: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(19, 3.4), layout="constrained")
    names = {
        "width": "parameters / (n K)", "samples": "training examples", "steps": "steps",
        "scales": "steps, two step sizes", "ridgeless": "p / n", "features": "features / n",
    }  # fmt: skip
    for axes, (name, label) in zip(figure.subplots(1, 6), names.items(), strict=True):
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
        if name == "scales":
            axes.plot(at, [r["exact"] for r in rows], color="0.4", label="exact mean over labels")
            axes.plot(at, [r["error"] for r in rows], ":", color="0.5", label="test error")
        if name == "width":
            axes.axvline(1, color="0.8")
        if name in ("width", "scales"):
            axes.legend(frameon=False)
    figure.savefig(file, dpi=110)


def peak(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The row of the largest loss between the ends."""
    return max(rows[1:-1], key=lambda r: r["loss"])


def rise(rows: Sequence[dict[str, float]]) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """The row that lies the farthest above an earlier one, that earlier one before it, and the last row."""
    pairs = [(min(rows[:j], key=lambda r: r["loss"]), rows[j]) for j in range(1, len(rows) - 1)]
    low, top = max(pairs, key=lambda pair: pair[1]["loss"] - pair[0]["loss"])
    return low, top, rows[-1]


def descents(rows: Sequence[dict[str, float]], key: str) -> list[dict[str, float]]:
    """The first row, the least before a peak, that peak and the least behind it, where both are farthest."""

    def at(one: dict[str, float]) -> float:
        return one[key]

    triples = [(min(rows[:j], key=at), rows[j], min(rows[j + 1 :], key=at)) for j in range(1, len(rows) - 1)]
    return [rows[0], *max(triples, key=lambda t: min(t[1][key] - t[0][key], t[1][key] - t[2][key]))]


def apart(one: dict[str, float], other: dict[str, float], key: str = "loss") -> float:
    """How far a row lies above another, in standard errors of a difference of independent ones."""
    return (one[key] - other[key]) / math.hypot(one[f"{key}_stderr"], other[f"{key}_stderr"])


Row = dict[str, object]


def figure(what: str, value: object, target: str = "", met: bool | None = None, published: str = "") -> Row:
    told = {"target": target, "published": published}
    found: Row = {"what": what, "value": value, "unit": "1", **{k: v for k, v in told.items() if v}}
    return found if met is None else found | {"met": met}


def figures_of(found: dict[str, dict[str, Any]]) -> list[Row]:
    rows_of = {name: part["rows"] for name, part in found.items()}
    figures: list[Row] = []
    if rows := rows_of.get("width"):
        top, last = peak(rows[5:]), rows[-1]
        place, by_last = parameters(int(top["at"])) / (N * CLASSES), top["loss"] / last["loss"]
        at = "peak at about n K parameters (Greydanus and Kobak 2024)"
        figures += [
            figure("parameters at the peak, by n K", place, "within [0.5, 2]", 0.5 <= place <= 2, at),
            figure("test squared error at the peak by that of the widest", by_last, "> 1", by_last > 1),
        ]
    if rows := rows_of.get("samples"):
        place = parameters(FIXED) / (peak(rows)["at"] * CLASSES)
        what = f"width {FIXED}, by samples: parameters by n K at the largest test squared error"
        figures.append(figure(what, place, "within [0.5, 2]", 0.5 <= place <= 2))
    if rows := rows_of.get("steps"):
        low, top, last = rise(rows)
        what = (
            f"width 160, by steps: test squared error at its least before step {top['at']:.0f}, there, and "
        )
        target = "rises and falls again, by two standard errors"
        met = all(apart(top, other) > 2 for other in (low, last))
        figures.append(figure(what + "at the end", [r["loss"] for r in (low, top, last)], target, met))
    if rows := rows_of.get("scales"):
        figures += figures_of_scales(rows)
    if rows := rows_of.get("features"):
        top, last = peak(rows), rows[-1]
        what = "random Fourier features of 1,000 rows of MNIST: features by n at the peak"
        met = 0.9 <= top["at"] <= 1.1 and last["error"] < top["error"]
        published = "1 (Belkin et al. 2019, Figure 2, n = 10,000)"
        figures.append(figure(what, top["at"], "within [0.9, 1.1]", met, published))
        figures += [figure(f"test error at {r['at']:g} n features", r["error"]) for r in (rows[2], top, last)]
    if rows := rows_of.get("ridgeless"):
        off = max(abs(r["excess"] - r["exact"]) / (4 * r["stderr"] + 0.1 * r["exact"]) for r in rows)
        what = "ridgeless risk: largest distance from the limit, in 4 standard errors + 10 %"
        figures.append(figure(what, off, "<= 1", off <= 1))
    return figures


def figures_of_scales(rows: Sequence[dict[str, float]]) -> list[Row]:
    figures, name = [], "features of MNIST at two step sizes"
    target = "falls, rises and falls again, by two standard errors each"
    for key, measure in (("loss", "test squared error"), ("error", "test error")):
        first, low, top, last = four = descents(rows, key)
        met = all(apart(one, other, key) > 2 for one, other in ((first, low), (top, low), (top, last)))
        places = ", ".join(f"{one['at']:.0f}" for one in four)
        what = f"{name}, {measure} after steps {places}"
        published = "two descents (Heckel and Yilmaz 2021, Section 2)"
        figures.append(figure(what, [one[key] for one in four], target, met, published))
    off = max(abs(r["loss"] - r["exact"]) / r["off_stderr"] for r in rows)
    what = f"{name}: largest distance from the exact mean over wrong labels, in paired standard errors"
    return [*figures, figure(what, off, "<= 5", off <= 5)]


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
