"""Five recurrences as models of the next character of Shakespeare, at equal parameters and equal data.

Each has as many units as bring its parameters nearest to 100,000, in one layer; those that are linear in
time have two, since one alone could not combine what it remembers. All read the same 128-character blocks in
the same order, with the same optimizer and schedule. The weights of the last step are judged on the last
twentieth of the text, which nothing was chosen by.
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
from margin.data.corpora import tiny_shakespeare
from margin.sequence import elman, gru, lru, lstm, mingru

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = tiny_shakespeare()
    figures, sizes = [], {}
    with tempfile.TemporaryDirectory() as directory:
        for cell in CELLS:
            options, count = options_of(cell, data.spec["vocab_size"])
            training = Training(
                seed=arguments.seed,
                max_steps=arguments.steps,
                batch_size=32,
                lr=3e-3,
                schedule="cosine",
                warmup=100,
                clip=1.0,
                patience=0,
                evaluate_every=arguments.steps,
            )
            start = time.process_time()
            run = train(f"sequence/{cell}_language", data, options, training, out=Path(directory) / cell)
            seconds = time.process_time() - start
            bits = run.metrics["test_loss"] / math.log(2)
            sizes[cell] = {"options": options, "parameters": count, "seconds": round(seconds)}
            figures.append({"what": f"{cell}: held-out text", "value": bits, "unit": "bits a character"})
            print(cell, count, round(bits, 4), round(seconds), flush=True)
    record(
        "sequence/shakespeare",
        title=f"Next character of tiny Shakespeare, about {PARAMETERS:,} parameters each, "
        f"{arguments.steps:,} steps of 32 blocks of 128 characters, one thread, one seed",
        figures=figures,
        sizes=sizes,
        seed=arguments.seed,
    )


if __name__ == "__main__":
    main()
