"""Spoken digits (Jackson et al. 2018) from the samples of 600 clips: three ways to hold clips out.

A GRU reads the logarithm of the power in 32 bands of each 32 ms of sound, less each band's mean over the
clip, and the logits are those of its mean output; nothing but the waveform is given. Its width and the
bands were chosen with one speaker held out for validation and a sixth untouched (0.71 and 0.51 on two
speakers, against 0.67 and 0.45 with the bands' own level); a training takes 15 passes, and the last weights
are judged.

Beside it, on the first way alone, linear recurrent units read pieces of 16 amplitudes, with no bands at
all.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import record
from margin import Training, train
from margin.data.sets.spoken_digits import fsdd

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")

BANDS: dict[str, Any] = {"features": "logmel", "level": "clip"}
PIECES: dict[str, Any] = {"features": "frames", "frame": 16, "hop": 16}

GRU: dict[str, Any] = {"hidden": 64, "pool": "mean"}
LRU: dict[str, Any] = {"width": 48, "states": 48, "layers": 2, "dropout": 0.2}

TRAINING = Training(
    epochs=15, batch_size=16, lr=3e-3, schedule="cosine", warmup=50, clip=1.0, patience=0, threads=1
)

T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}
"""Student's t of a 95 % interval, by the number of values."""


def accuracy(model: str, options: dict[str, Any], seed: int, **data: Any) -> float:
    source = fsdd(val=0.0, **data)
    with tempfile.TemporaryDirectory() as directory:
        run = train(model, source, options, replace(TRAINING, seed=seed), out=Path(directory) / "run")
        return run.metrics["test_accuracy"]


def figure(what: str, values: list[float], target: float | None = None) -> dict[str, object]:
    x = torch.tensor(values, dtype=torch.float64)
    half = T_95[len(values)] * float(x.std()) / len(values) ** 0.5
    row: dict[str, object] = {
        "what": what,
        "value": float(x.mean()),
        "unit": "1",
        "interval": [float(x.mean()) - half, float(x.mean()) + half],
    }
    return row if target is None else row | {"target": f">= {target:.2f}", "met": float(x.mean()) >= target}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=3, help="seeds of the net that reads amplitudes")
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {}

    def measure(name: str, model: str, options: dict[str, Any], seeds: int, **data: Any) -> list[float]:
        found[name] = [accuracy(model, options, seed, **data) for seed in range(seeds)]
        print(name, found[name], flush=True)
        return found[name]

    many = arguments.seeds
    two = measure("recordings 0 and 1", "sequence/gru", GRU, many, held_out=(0, 1), **BANDS)
    official = measure("recordings 0 to 4", "sequence/gru", GRU, many, **BANDS)
    left = {name: measure(name, "sequence/gru", GRU, 1, speaker=name, **BANDS) for name in SPEAKERS}
    figures = [
        figure("GRU on bands, recordings 0 and 1 held out: test accuracy", two, 0.90),
        figure("GRU on bands, official test part (recordings 0 to 4): test accuracy", official),
        figure("GRU on bands, one speaker left out, mean of the six", [left[name][0] for name in SPEAKERS]),
    ]
    if arguments.samples:
        raw = measure("amplitudes", "sequence/lru", LRU, arguments.samples, held_out=(0, 1), **PIECES)
        figures.append(figure("LRU on amplitudes, recordings 0 and 1 held out: test accuracy", raw))
    record(
        "sequence/fsdd",
        title="600 spoken digits of six speakers from their samples: test accuracy by what is held out",
        figures=figures,
        seeds=many,
        budget="15 passes over the training clips, one thread",
        accuracies=found,
    )


if __name__ == "__main__":
    main()
