"""Conditional diffusion of MNIST at 16 x 16: is a sample the digit asked for, and is every digit drawn?

The digits get two pixels of zeros around them and each 2 x 2 pixels become their mean. LeNet-5, trained on
the same training part, judges: its answers to samples of each class, and its last hidden layer as the space
in which coverage (Naeem et al. 2020) of the official test part is taken. The diffusion is the entry
conditional_image_diffusion, wider than its default; samples are DDIM's of 50 steps, guided by w = 0, 1, 2.
DDPM's 1,000 steps are measured beside it on fewer samples.

Budget: an hour of one core. Results are written as they come; with ``--out`` an interrupted training goes on.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from benchmarks.record import record
from margin import Run, Training, load, resume, train
from margin.data.examples import Arrays, Data, fingerprint
from margin.data.open import open_data
from margin.data.preprocess import fit_standardize
from margin.math.two_samples.precision_recall import expected_coverage, overlap, overlap_stderr
from margin.nn.preprocessed import core_of, features_of
from margin.theory.prediction.risk import clopper_pearson

SIDE, CLASSES, WIDTHS = 16, 10, (32, 64, 64)


def shrunk(x: Tensor) -> Tensor:
    """Images of 28 x 28 as 16 x 16."""
    return F.avg_pool2d(F.pad(x.float(), (2, 2, 2, 2)), 2)


def small_digits() -> Data:
    """MNIST in 16 x 16 pixels; a twentieth of the training digits validates."""
    data = open_data("mnist", {"val": 0.05})
    splits = {name: Arrays((shrunk(part.inputs[0]),), part.targets) for name, part in data.splits.items()}
    return replace(
        data,
        name="mnist (16 x 16)",
        splits=splits,
        spec={**data.spec, "image_size": (SIDE, SIDE), "in_features": SIDE**2},
        preprocess=fit_standardize(splits["train"].inputs[0], per="channel"),
        fingerprint=fingerprint(splits),
        origin={},
    )


class Judge:
    """A classifier: its answers, and its last hidden layer as features."""

    def __init__(self, run: Run) -> None:
        self.model = load(run).float()

    @torch.no_grad()
    def answers(self, x: Tensor) -> Tensor:
        return torch.cat([self.model(part).argmax(1) for part in x.float().split(1000)])

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        core: Any = core_of(self.model)
        hidden = nn.Sequential(*core.classifier[:-1])
        found = []
        for part in x.float().split(1000):
            z = F.interpolate(
                features_of(self.model, part), (32, 32), mode="bilinear", align_corners=False, antialias=True
            )
            found.append(hidden(core.features(z)))
        return torch.cat(found).double()


def seconds(run: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    return run(), time.perf_counter() - start


def trained(model: str, data: Data, options: dict[str, Any], training: Training, out: Path) -> Run:
    """A training, or the rest of one that was interrupted there."""
    if out.exists():
        return resume(out, data, Training(evaluate_every=training.evaluate_every))
    return train(model, data, options, training, out=out)


def share(what: str, right: Tensor, target: float | None = None) -> dict[str, object]:
    """A share of yes, with its exact interval."""
    low, high = clopper_pearson(int(right.sum()), len(right))
    value = float(right.double().mean())
    row: dict[str, object] = {"what": what, "value": value, "unit": "1", "interval": [low, high]}
    return row if target is None else row | {"target": f">= {target}", "met": value >= target}


def covered(what: str, judge: Judge, real: Tensor, generated: Tensor) -> dict[str, object]:
    """Coverage with 4 standard errors either way, beside what one law would give."""
    a, b = judge.features(real), judge.features(generated)
    value = overlap(a, b).coverage
    stderr = float(overlap_stderr(a, b, generator=Generator().manual_seed(0))[3])
    return {
        "what": what,
        "value": value,
        "unit": "1",
        "interval": [max(0.0, value - 4 * stderr), min(1.0, value + 4 * stderr)],
        "target": f"{expected_coverage(len(a), len(b)):.3f} if both were of one law",
    }


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, value in (("steps", 7000), ("count", 2000), ("slow", 500), ("epochs", 4), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--ddpm-steps", type=int, default=1000, help="steps of the slow sampler")
    parser.add_argument("--ddim-steps", type=int, default=50)
    parser.add_argument("--out", default="", help="a directory that keeps both runs, and goes on with them")
    return parser.parse_args()


def main() -> None:
    given = options()
    torch.set_num_threads(given.threads)
    data = small_digits()
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(given.out or scratch)
        measure(given, data, out)


def measure(given: argparse.Namespace, data: Data, out: Path) -> None:
    figures: list[dict[str, object]] = []
    times: dict[str, float] = {}

    def write() -> None:
        record(
            "generative/mnist_diffusion",
            title=f"Conditional diffusion of MNIST at {SIDE} x {SIDE}, {given.steps:,} training steps of 64 "
            f"digits, {given.threads} threads, seed 0",
            figures=figures,
            seconds=times,
            seed=0,
        )

    test, labels = data.splits["test"].inputs[0], data.splits["test"].targets
    common = Training(threads=given.threads)
    quick = replace(common, epochs=given.epochs, batch_size=64, lr=2e-3, schedule="cosine")
    run, times["classifier"] = seconds(lambda: trained("lenet5", data, {}, quick, out / "lenet5"))
    judge = Judge(run)
    figures.append(share("LeNet-5 on the test digits: accuracy", judge.answers(test) == labels))
    real = test[: given.count]
    figures.append(
        covered(
            "training digits: coverage of test digits",
            judge,
            real,
            data.splits["train"].inputs[0][: given.count],
        )
    )
    write()
    slow = replace(common, max_steps=given.steps, evaluate_every=-(-given.steps // 4))
    name = "conditional_image_diffusion"
    run = trained(name, data, {"widths": list(WIDTHS), "variance": "small"}, slow, out / "diffusion")
    times["diffusion"] = sum(row["seconds"] for row in run.history)
    figures.append({"what": "seconds of the diffusion's training", "value": times["diffusion"], "unit": "s"})
    write()
    model = load(run).float()

    def sampled(count: int, **more: Any) -> Tensor:
        return samples(model, count, **more)

    for w in (0.0, 1.0, 2.0):
        what = f"DDIM, {given.ddim_steps} steps, w = {w:g}"
        x, times[what] = seconds(
            lambda w=w: sampled(given.count, sampler="ddim", steps=given.ddim_steps, guidance=w)
        )
        right = judge.answers(x) == torch.arange(len(x)) % CLASSES
        figures.append(share(f"{what}, {len(x):,} samples: the class that was asked for", right, 0.97))
        figures.append(covered(f"{what}: coverage of {len(real):,} test digits", judge, real, x))
        write()
    what = f"DDPM, {given.ddpm_steps} steps, w = 0"
    x, times[what] = seconds(lambda: sampled(given.slow, sampler="ddpm", steps=given.ddpm_steps))
    right = judge.answers(x) == torch.arange(len(x)) % CLASSES
    figures.append(share(f"{what}, {len(x):,} samples: the class that was asked for", right, 0.97))
    figures.append(covered(f"{what}: coverage of {given.slow:,} test digits", judge, test[: given.slow], x))
    each = {
        name: times[name] / n
        for name, n in ((what, given.slow), (f"DDIM, {given.ddim_steps} steps, w = 0", given.count))
    }
    fast = each[f"DDIM, {given.ddim_steps} steps, w = 0"] / each[what]
    figures.append(
        {
            "what": "seconds of a DDIM sample over those of a DDPM sample",
            "value": fast,
            "unit": "1",
            "target": "<= 1/18",
            "met": fast <= 1 / 18,
        }
    )
    write()


def samples(model: nn.Module, count: int, *, seed: int = 0, at_once: int = 250, **more: Any) -> Tensor:
    """Samples in pixels, the classes in turn where there are any."""
    core: Any = core_of(model)
    generator, found = Generator().manual_seed(seed), []
    with torch.no_grad():
        for start in range(0, count, at_once):
            found.append(core.sample(min(at_once, count - start), generator=generator, **more))
    inverse: Any = model.preprocess
    return inverse.inverse(torch.cat(found))


if __name__ == "__main__":
    main()
