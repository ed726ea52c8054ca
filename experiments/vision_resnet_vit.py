"""ResNet-20 against a vision transformer on one budget: test accuracy of 5 seeds each, paired by seed.

Both take about 40 million multiply-adds an image of 32 x 32 as they are published (our last block is asked
for the class token alone, which leaves 34), see the same images in the same order with the same augmentation
for as many epochs, and have the same optimizer; no rate is tuned. CIFAR-10 is a lossy copy of 2,500 training
and 1,000 test images, so that no published accuracy compares; of Fashion-MNIST 5,000 of the training images
are taken, and all of the test part.

Each training leaves its accuracy in a file of the folder ``--out`` and, seed by seed, in the record, and is
not repeated when it is in either.
"""

import argparse
import json
import math
import os
import statistics
from pathlib import Path

import numpy as np
import torch
from scipy.stats import t as student
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.record import record
from margin import Training, resume, train
from margin.data.assembly import assemble, raw_arrays
from margin.data.data_home import folder_of
from margin.data.examples import Data
from margin.data.formats.arrays.idx import read_pairs
from margin.data.splits import Split
from margin.engine.build import build

RECORD = Path(__file__).parent.parent / "docs/results/vision/resnet_vit.json"
"""What is recorded is not trained again."""

MODELS = {
    "ResNet-20": ("vision/resnet", {"depth": 20}),
    "ViT": ("vision/vit", {"patch": 4, "width": 96, "depth": 5, "heads": 4}),
}
EPOCHS = {"CIFAR-10 (lossy copy)": 15, "Fashion-MNIST (5,000)": 8}
FASHION = 5000


def cifar() -> Data:
    """The lossy copy of CIFAR-10, its own test part."""
    parts = {}
    for part in ("train", "test"):
        with np.load(folder_of("cifar10") / f"{part}.npz") as file:
            parts[part] = (np.ascontiguousarray(file["x"].transpose(0, 3, 1, 2)), file["y"])
            names = tuple(str(name) for name in file["classes"])
    return official("cifar10", parts, names)


def fashion() -> Data:
    """The first 5,000 training images of Fashion-MNIST, and its test part."""
    pairs = read_pairs(folder_of("fashion-mnist"))
    x, y = pairs["train"]
    return official("fashion-mnist", {"train": (x[:FASHION], y[:FASHION]), "test": pairs["test"]}, None)


def official(name: str, parts: dict, classes: tuple[str, ...] | None) -> Data:
    kept = {} if classes is None else {"classes": classes}
    raw = raw_arrays(name, *parts["train"], task="classes", domain=None, test_arrays=parts["test"], **kept)
    return assemble(raw, Split(test=0.0, val=0.0))


SETS = {"CIFAR-10 (lossy copy)": cifar, "Fashion-MNIST (5,000)": fashion}


def trained(case: str, model: str, seed: int, out: Path) -> dict:
    """The test accuracy of one training, from its file where there is one."""
    done = out / f"{list(SETS).index(case)}-{list(MODELS).index(model)}-{seed}.json"
    if done.exists():
        return json.loads(done.read_text())
    name, options = MODELS[model]
    training = Training(
        epochs=EPOCHS[case], batch_size=64, lr=1e-3, schedule="cosine", warmup=100, patience=0, seed=seed,
        threads=1, evaluate_every=100_000, augment=["flip", "shift:2"],
    )  # fmt: skip
    path = out / done.stem
    begun = (path / "run.yaml").exists()
    data = SETS[case]()
    run = resume(path, data) if begun else train(name, data, options, training, out=path)
    found = {"test_accuracy": run.metrics["test_accuracy"]}
    done.write_text(json.dumps(found) + "\n")
    print(case, model, seed, found, flush=True)
    return found


def size(case: str, model: str) -> dict[str, int]:
    """Parameters of a network, and multiply-adds of one image."""
    name, options = MODELS[model]
    data = SETS[case]()
    core = build({"model": name, "spec": data.spec, "options": options})
    # under the math kernel, whose products of queries, keys and values are counted
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        core.eval()(torch.zeros(1, *data.encoding["shape"]))
    return {
        "parameters": sum(p.numel() for p in core.parameters()),
        "multiply_adds": counter.get_total_flops() // 2,
    }


def interval(values: list[float]) -> dict:
    """The mean with Student's 95 % interval."""
    mean = statistics.fmean(values)
    half = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return {"value": mean, "unit": "1", "interval": [mean - half, mean + half]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    os.nice(10)
    runs: dict[str, dict] = json.loads(RECORD.read_text())["runs"] if RECORD.exists() else {}
    for seed in range(arguments.seeds):  # seed by seed, so that what is there of a broken series is paired
        for case in SETS:
            for model in MODELS:
                name = f"{case}, {model}, seed {seed}"
                if name not in runs:
                    runs[name] = trained(case, model, seed, arguments.out)
        if seed:
            written(runs, seed + 1)


def written(runs: dict[str, dict], seeds: int) -> None:
    """Write what is known of so many seeds."""
    figures = []
    for case in SETS:
        scores = {
            m: [runs[f"{case}, {m}, seed {seed}"]["test_accuracy"] for seed in range(seeds)] for m in MODELS
        }
        figures += [{"what": f"{m}, {case}: test accuracy", **interval(scores[m])} for m in MODELS]
        apart = [one - other for one, other in zip(*scores.values(), strict=True)]
        found = interval(apart)
        figures.append(
            {
                "what": f"{case}: test accuracy of the ResNet less the ViT's, paired by seed",
                **found,
                "target": "the interval excludes 0",
                "met": not found["interval"][0] <= 0 <= found["interval"][1],
            }
        )
    record(
        "vision/resnet_vit",
        title="ResNet-20 and a ViT of as many multiply-adds, equal epochs and augmentation, "
        f"{seeds} of 5 paired seeds",
        figures=figures,
        packages=("scipy",),
        epochs=EPOCHS,
        sizes={case: {model: size(case, model) for model in MODELS} for case in SETS},
        runs={name: {"test_accuracy": one["test_accuracy"]} for name, one in runs.items()},
    )


if __name__ == "__main__":
    main()
