"""A folder of JPEGs larger than memory: the peak memory of a training on 2,000 and on 20,000, and its speed.

Images of 224 x 224 pixels are written to a temporary folder, and one epoch of LeNet-5 is trained on them in a
process of its own, never held in memory; then with and without the threads that decode ahead.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from benchmarks.record import interleaved, ratio, record
from margin.data.examples import Shuffled
from margin.data.open import open_data
from margin.data.sampling.loading import Prefetched

SIDE = 224
TRAIN = """
import resource, sys, time
from margin import Training, train
from margin.data.open import open_data
start = time.perf_counter()
data = open_data(sys.argv[1], {"memory": "never", "val": 0.1, "test": 0.1})
train("lenet5", data, training=Training(epochs=1, batch_size=64, threads=1), out=sys.argv[2])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(peak, time.perf_counter() - start)
"""


def write(folder: Path, count: int) -> None:
    """So many JPEGs in two classes: smooth noise, whose files are of a photograph's size."""
    for name in "ab":
        (folder / name).mkdir(parents=True)
    for k in range(count):
        coarse = np.random.default_rng(k).integers(0, 256, (28, 28, 3), np.uint8)
        picture = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        picture.save(folder / "ab"[k % 2] / f"{k:05d}.jpg", quality=85)


def peak(folder: Path, out: Path) -> tuple[float, float]:
    """Peak MiB and seconds of one epoch, in a process of its own."""
    words = [sys.executable, "-c", TRAIN, str(folder), str(out)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    mebibytes, seconds = done.stdout.split()[-2:]
    return float(mebibytes), float(seconds)


def speed(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of 20 steps of a small network whose batches are decoded in its own thread, and ahead."""

    def steps(readers: int):
        examples = open_data(folder, {"memory": "never", "readers": readers}).splits["train"]
        model = nn.Sequential(nn.Conv2d(3, 32, 7, 4), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 55 * 55, 2))
        descent = torch.optim.SGD(model.parameters(), 1e-6)

        def run() -> None:
            feed = Prefetched(Shuffled(examples, 64, seed=0), 0, 20, ahead=readers > 0)
            for step in range(20):
                batch = feed(step)
                descent.zero_grad()
                nn.functional.cross_entropy(model(batch.inputs[0]), batch.targets).backward()
                descent.step()
            feed.close()

        return run

    return interleaved(rounds, own=steps(0), ahead=steps(2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs=2, default=(2_000, 20_000))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures, peaks = [], {}
    with tempfile.TemporaryDirectory() as directory:
        for count in arguments.sizes:
            folder = Path(directory) / str(count)
            start = time.perf_counter()
            write(folder, count)
            print(f"{count} written in {time.perf_counter() - start:.0f} s", flush=True)
            peaks[count], seconds = peak(folder, Path(directory) / f"run-{count}")
            what = f"one epoch on {count:,} images of 224 x 224"
            figures.append({"what": f"peak memory of {what}", "value": peaks[count], "unit": "MiB"})
            figures.append({"what": f"seconds of {what}", "value": seconds, "unit": "s"})
            print(figures[-2:], flush=True)
        small, large = (peaks[count] for count in arguments.sizes)
        figures.append(
            {
                "what": "peak memory of ten times the images, in parts of the smaller",
                "value": large / small,
                "unit": "x",
                "target": "<= 1.1",
                "met": large / small <= 1.1,
            }
        )
        times = speed(Path(directory) / str(arguments.sizes[0]), arguments.rounds)
        middle, low, high = ratio(times, "own", "ahead")
        row = {"what": "decoding in the training's thread / read ahead", "value": middle, "unit": "x"}
        figures.append({**row, "interval": [low, high]})
    record(
        "vision/photographs",
        title="Training on a folder of JPEGs that is not held in memory, one thread of torch",
        figures=figures,
        packages=("pillow",),
        interval="least and largest of the paired ratios",
        seconds=times,
    )


if __name__ == "__main__":
    main()
