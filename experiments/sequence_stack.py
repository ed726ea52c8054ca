"""Counting by differentiable stacks (Joulin and Mikolov 2015): a^n b^n at n beyond those of the training.

All learn from the same strings of n = 1 .. 10. A string counts as right where each b after the first and the
end are predicted; n = 11 .. 50 are new. The Elman network and the LSTM have more parameters than the stacks.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn

from benchmarks.record import record
from margin import Training, load, train
from margin.data.sets.counting import anbn
from margin.runs.seed_interval import summary

LONGEST, BEYOND = 10, 50
MODELS = {
    "two stacks": ("sequence/stack_memory_language", {"hidden": 16, "stacks": 2, "capacity": 64}),
    "two stacks, no other memory": (
        "sequence/stack_memory_language",
        {"hidden": 16, "stacks": 2, "capacity": 64, "recurrent": "none"},
    ),
    "Elman": ("sequence/elman_language", {"embedding": 16, "hidden": 24}),
    "LSTM": ("sequence/lstm_language", {"embedding": 16, "hidden": 12}),
}


def right(model: nn.Module, n: int) -> bool:
    """Whether every determined token of a^n b^n is the likeliest: all b's but the first, and the end."""
    string = torch.tensor([[0] * n + [1] * n])
    with torch.no_grad():
        told = model(string).argmax(-1)[0, n:]
    return told.tolist() == [1] * (n - 1) + [2]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=800)
    arguments = parser.parse_args()
    data = anbn(examples=1000, longest=LONGEST, test_longest=BEYOND)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in MODELS}
    sizes = {}
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(arguments.seeds):
            training = Training(
                seed=seed,
                max_steps=arguments.steps,
                batch_size=32,
                lr=1e-2,
                schedule="cosine",
                clip=1.0,
                patience=0,
                evaluate_every=arguments.steps,
                threads=1,
            )
            for name, (entry, options) in MODELS.items():
                run = train(entry, data, options, training, out=Path(directory) / f"{name}-{seed}")
                model = load(run)
                sizes[name] = sum(p.numel() for p in model.parameters())
                known = sum(right(model, n) for n in range(1, LONGEST + 1)) / LONGEST
                new = sum(right(model, n) for n in range(LONGEST + 1, BEYOND + 1)) / (BEYOND - LONGEST)
                found[name].append({"known": known, "new": new})
                print(seed, name, known, new, flush=True)
    figures = []
    for name, scores in found.items():
        score = summary(scores)["new"]
        row = {
            "what": f"{name}: strings right of n = {LONGEST + 1} .. {BEYOND}",
            "value": score["mean"],
            "unit": "1",
            "interval": [score["low"], score["high"]],
        }
        figures.append(row)
    for name in ("Elman", "LSTM"):
        gains = [{"gain": a["new"] - b["new"]} for a, b in zip(found["two stacks"], found[name], strict=True)]
        gain = summary(gains)["gain"]
        figures.append(
            {
                "what": f"two stacks over {name}, paired by seed",
                "value": gain["mean"],
                "unit": "1",
                "interval": [gain["low"], gain["high"]],
                **({"target": "interval above 0", "met": gain["low"] > 0} if name == "Elman" else {}),
            }
        )
    record(
        "sequence/stack_memory",
        title=f"a^n b^n learned from n = 1 .. {LONGEST}, asked up to n = {BEYOND}; {arguments.seeds} seeds, "
        f"{arguments.steps} steps of 32 strings",
        figures=figures,
        parameters=sizes,
        scores=found,
    )


if __name__ == "__main__":
    main()
