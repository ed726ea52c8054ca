"""Words read backward: what a vector of fixed size holds of a source, and what attention changes.

An encoder-decoder must press a word into one vector, a decoder with additive attention looks at every letter
again. Words of 1 to 20 letters out of 20 come as often in each length; 18,000 for training, 1,000 held out. A
word counts as right where greedy decoding gives every letter and then the end. Both models have about as many
parameters, a third has the vector of twice the size. Five seeds, the same for each.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.record import record
from margin import Training, load, train
from margin.data.examples import Data, InOrder
from margin.data.sets.reversal import reversal
from margin.nn.preprocessed import core_of
from margin.nn.seq2seq import END, Seq2Seq
from margin.runs.seed_interval import summary

SEEDS = 5
LONGEST = 20
LONG = range(11, LONGEST + 1)
MODELS = {
    "attention, 64 units": ("sequence/attention_seq2seq", {"embedding": 32, "hidden": 64}),
    "one vector, 128 units": ("sequence/encoder_decoder", {"embedding": 32, "hidden": 128}),
    "one vector, 256 units": ("sequence/encoder_decoder", {"embedding": 32, "hidden": 256}),
}
TRAINING = Training(
    max_steps=1500,
    batch_size=64,
    lr=3e-3,
    schedule="cosine",
    clip=1.0,
    evaluate_every=500,
    patience=0,
    threads=1,
)


def right(model: Seq2Seq, data: Data) -> tuple[torch.Tensor, torch.Tensor]:
    """Which held-out words are reversed without a mistake, and their letters."""
    exact, letters = [], []
    for batch in InOrder(data.splits["test"], 250):
        source, lengths = batch.inputs[:2]
        found = model.translate(source, lengths, longest=LONGEST + 5)
        time = max(found.tokens.shape[1], batch.targets.shape[1])
        asked = torch.where(batch.weight > 0, batch.targets, END)
        two = [torch.nn.functional.pad(y, (0, time - y.shape[1]), value=END) for y in (found.tokens, asked)]
        exact.append((two[0] == two[1]).all(1) & found.ended)
        letters.append(lengths - 1)
    return torch.cat(exact).double(), torch.cat(letters)


def picture(curves: dict[str, list[list[float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for name, rows in curves.items():
        seeds = torch.tensor(rows)
        line = axes.plot(range(1, LONGEST + 1), seeds.mean(0), marker="o", markersize=3, label=name)[0]
        axes.fill_between(
            range(1, LONGEST + 1),
            seeds.amin(0),
            seeds.amax(0),
            color=line.get_color(),
            alpha=0.2,
            linewidth=0,
        )
    axes.set(xlabel="letters of the word", ylabel="words without a mistake", xticks=range(2, LONGEST + 1, 2))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", default="", help="where the picture goes, as reversal.png")
    arguments = parser.parse_args()
    data = reversal(examples=20_000, symbols=20, longest=LONGEST, test=0.05, val=0.05)
    curves, means, sizes = {}, {}, {}
    with tempfile.TemporaryDirectory() as directory:
        for name, (entry, options) in MODELS.items():
            curves[name], means[name] = [], []
            for seed in range(SEEDS):
                run = train(
                    entry, data, options, replace(TRAINING, seed=seed), out=Path(directory) / f"{name}{seed}"
                )
                model = core_of(load(run))
                exact, letters = right(model, data)
                curves[name].append([float(exact[letters == n].mean()) for n in range(1, LONGEST + 1)])
                means[name].append(
                    {"all": float(exact.mean()), "long": float(exact[letters >= LONG[0]].mean())}
                )
            sizes[name] = sum(p.numel() for p in model.parameters())
    figures = []
    for name, rows in means.items():
        for part, of in (("all", "1 to 20 letters"), ("long", "11 to 20 letters")):
            found = summary(rows)[part]
            target = {"attention, 64 units": ">= 0.95"}.get(name, "none; falls with the length")
            figures.append(
                {
                    "what": f"{name}: words of {of} without a mistake",
                    "value": found["mean"],
                    "unit": "1",
                    "interval": [max(0.0, found["low"]), min(1.0, found["high"])],
                    "target": target,
                    "met": found["mean"] >= 0.95 if name.startswith("attention") else None,
                }
            )
    first, *others = means
    for name in others:
        gaps = [{"gap": a["long"] - b["long"]} for a, b in zip(means[first], means[name], strict=True)]
        found = summary(gaps)["gap"]
        figures.append(
            {
                "what": f"{first}, less {name}: words of 11 to 20 letters, paired by seed",
                "value": found["mean"],
                "unit": "1",
                "interval": [found["low"], found["high"]],
                "target": "an interval above 0",
                "met": found["low"] > 0,
            }
        )
    record(
        "sequence/reversal",
        title=f"Words read backward, by length: one vector against attention, {SEEDS} paired seeds",
        figures=figures,
        budget="1,500 steps of 64 words each",
        seeds=list(range(SEEDS)),
        parameters=sizes,
        by_length=curves,
    )
    if arguments.picture:
        picture(curves, Path(arguments.picture))


if __name__ == "__main__":
    main()
