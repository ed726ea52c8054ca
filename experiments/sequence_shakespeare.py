"""Five recurrences as models of the next character of Shakespeare, at equal parameters and equal data.

Each has as many units as bring its parameters nearest to 100,000, in one layer; those that are linear in
time have two, since one alone could not combine what it remembers. All read the same 128-character blocks in
the same order, with the same optimizer and schedule. The weights of the last step are judged on the last
twentieth of the text, which nothing was chosen by; the learning rate was, .01 against .003, by the twentieth
before it.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from benchmarks.record import record
from margin import Training, train
from margin.data.examples import Data
from margin.data.sets.corpora import tiny_shakespeare
from margin.runs.seed_interval import summary
from margin.sequence.linear import lru, mingru
from margin.sequence.recurrent import elman, gru, lstm

PARAMETERS = 100_000
CELLS: dict[str, tuple[Callable[..., nn.Module], dict[str, object], str]] = {
    "elman": (elman.language, {"recurrent_init": "orthogonal"}, "hidden"),
    "lstm": (lstm.language, {}, "hidden"),
    "gru": (gru.language, {}, "hidden"),
    "mingru": (mingru.language, {"layers": 2}, "hidden"),
    "lru": (lru.language, {}, "width"),
}


def options_of(cell: str, vocab_size: int) -> tuple[dict[str, object], int]:
    """The options of the size whose parameters are nearest to the number meant, and that number."""
    build, options, size = CELLS[cell]
    found: dict[int, dict[str, object]] = {}
    for units in range(16, 513, 2):
        given = {**options, size: units, **({"states": units} if cell == "lru" else {})}
        with torch.device("meta"):
            found[sum(p.numel() for p in build(vocab_size, **given).parameters())] = given
    nearest = min(found, key=lambda count: abs(count - PARAMETERS))
    return found[nearest], nearest


def trained(cell: str, steps: int, seed: int, data: Data) -> tuple[float, dict[str, object]]:
    """Bits a character of the held-out text, and what the training was."""
    options, count = options_of(cell, data.spec["vocab_size"])
    training = Training(
        seed=seed,
        max_steps=steps,
        batch_size=32,
        lr=1e-2,
        schedule="cosine",
        warmup=100,
        clip=1.0,
        patience=0,
        evaluate_every=steps,
    )
    start = time.process_time()
    with tempfile.TemporaryDirectory() as directory:
        run = train(f"sequence/{cell}_language", data, options, training, out=Path(directory) / cell)
        bits = run.metrics["test_loss"] / math.log(2)
    seconds = round(time.process_time() - start)
    print(cell, seed, count, round(bits, 4), seconds, flush=True)
    return bits, {"options": options, "parameters": count, "seconds": seconds}


def figure(cell: str, bits: list[float]) -> dict[str, object]:
    row: dict[str, object] = {"what": f"{cell}: held-out text", "unit": "bits a character"}
    if len(bits) == 1:
        return row | {"value": bits[0]}
    found = summary([{"bits": value} for value in bits])["bits"]
    return row | {"value": found["mean"], "interval": [found["low"], found["high"]], "seeds": len(bits)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = tiny_shakespeare()
    bits: dict[str, list[float]] = {cell: [] for cell in CELLS}
    sizes: dict[str, object] = {}
    for seed in range(arguments.seeds):
        for cell in CELLS:
            value, sizes[cell] = trained(cell, arguments.steps, seed, data)
            bits[cell].append(value)
        record(
            "sequence/shakespeare",
            title=f"Next character of tiny Shakespeare, about {PARAMETERS:,} parameters each, "
            f"{arguments.steps:,} steps of 32 blocks of 128 characters, one thread, seeds from 0",
            figures=[figure(cell, values) for cell, values in bits.items()],
            bits=bits,
            sizes=sizes,
        )


if __name__ == "__main__":
    main()
