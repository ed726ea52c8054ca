"""Grokking: addition modulo p is generalized long after its training half is fitted (Power et al. 2022).

A network of one hidden layer reads the sum of an embedding of each number and is trained by AdamW with strong
weight decay on half of all pairs, all at once. An early stop at the first step whose training error is 0, or
whose held-out loss has not fallen for a while, would keep a network that has generalized nothing. The state
is written every 500 steps: started again, the script goes on with the seed that was interrupted.
"""

import argparse
import json
from pathlib import Path
from statistics import median

import torch
from torch import Generator, Tensor, nn

from benchmarks.record import record
from margin.engine.checkpoints import load_state, save_state
from margin.engine.loop import State

FITTED, GENERALIZED, LEARNED = 0.999, 0.99, 0.999
PATIENCE = 10
"""Evaluations without a lower held-out loss after which an early stop ends a training."""

Rows = list[dict[str, float]]


class Adder(nn.Module):
    """Logits of a + b from the sum of two embeddings."""

    def __init__(self, modulus: int, width: int) -> None:
        super().__init__()
        self.left, self.right = nn.Embedding(modulus, width), nn.Embedding(modulus, width)
        self.out = nn.Linear(width, modulus, bias=False)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        found: Tensor = self.out((self.left(a) + self.right(b)).relu())
        return found


def first(rows: Rows, key: str, least: float) -> float:
    return next((row["step"] for row in rows if row[key] >= least), float("nan"))


def stopped(rows: Rows) -> dict[str, float]:
    """The row that an early stop by the held-out loss keeps."""
    best = 0
    for i, row in enumerate(rows):
        if row["test_loss"] < rows[best]["test_loss"]:
            best = i
        elif i - best >= PATIENCE:
            break
    return rows[best]


def trained(arguments: argparse.Namespace, seed: int, place: Path) -> Rows:
    place.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    p = arguments.modulus
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    pairs = pairs[torch.randperm(len(pairs), generator=Generator().manual_seed(seed))]
    sums, half = pairs.sum(1) % p, round(arguments.share * len(pairs))
    model = Adder(p, arguments.width)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=arguments.lr, weight_decay=arguments.decay, betas=(0.9, 0.98), fused=True
    )
    rows: Rows = []
    state = State({"model": model}, {"": optimizer})
    if (file := place / "state.safetensors").exists():
        load_state(file, state)
        rows = json.loads((place / "history.json").read_text())
    start = int(rows[-1]["step"]) if rows else 0
    if rows and rows[-1]["test"] >= LEARNED:
        return rows
    for step in range(start + 1, arguments.steps + 1):
        optimizer.zero_grad()
        logits = model(*pairs[:half].T)
        nn.functional.cross_entropy(logits, sums[:half]).backward()
        optimizer.step()
        if step % arguments.every == 0:
            with torch.no_grad():
                other = model(*pairs[half:].T)
                rows.append({
                    "step": step,
                    "train": float((logits.argmax(1) == sums[:half]).float().mean()),
                    "test": float((other.argmax(1) == sums[half:]).float().mean()),
                    "test_loss": float(nn.functional.cross_entropy(other, sums[half:])),
                })  # fmt: skip
        if step % 500 == 0:
            save_state(file, state)
            (place / "history.json").write_text(json.dumps(rows))
            print(f"seed {seed}", rows[-1], flush=True)
            if rows[-1]["test"] >= LEARNED:
                break
    return rows


def spread(what: str, values: list[float], unit: str = "1", **more: object) -> dict[str, object]:
    """A figure of all seeds: their median, the least and the largest."""
    return {
        "what": what,
        "value": median(values),
        "unit": unit,
        "interval": [min(values), max(values)],
        **more,
    }


def figures_of(runs: list[Rows]) -> list[dict[str, object]]:
    fitted = [first(rows, "train", FITTED) for rows in runs]
    general = [first(rows, "test", GENERALIZED) for rows in runs]
    ratios = [b / a for a, b in zip(fitted, general, strict=True)]
    return [
        spread("step at which 99.9 % of the training pairs are right", fitted, "step"),
        spread("held-out accuracy at that step",
            [next((row["test"] for row in rows if row["step"] == at), float("nan"))
             for rows, at in zip(runs, fitted, strict=True)]),
        spread(f"held-out accuracy that an early stop keeps, by the held-out loss and {PATIENCE} evaluations",
            [stopped(rows)["test"] for rows in runs]),
        spread("step at which 99 % of the held-out pairs are right", general, "step"),
        spread("the second step by the first", ratios, target=">= 2 of each seed",
            published="long after the training half (Power et al. 2022, Figure 1)",
            met=all(ratio >= 2 for ratio in ratios)),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/slt-grokking"))
    parser.add_argument("--modulus", type=int, default=59)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--decay", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs = [trained(given, seed, given.out / f"{given.modulus}-{seed}") for seed in range(given.seeds)]
    record(
        "theory/grokking",
        title=f"Grokking: addition modulo {given.modulus}, {given.share:.0%} of the pairs for training, "
        f"hidden layer of {given.width}, AdamW with weight decay {given.decay:g}; median, least and "
        f"largest of {given.seeds} seeds",
        figures=figures_of(runs),
        curves={f"seed {seed}": rows for seed, rows in enumerate(runs)},
        seeds=list(range(given.seeds)),
    )


if __name__ == "__main__":
    main()
