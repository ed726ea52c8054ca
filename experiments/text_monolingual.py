"""A decoder that has read its language before it translates needs fewer pairs.

Sentences of a toy language are walks over 20 words, each followed by one of three; the other language has a
word for each of them and the opposite order. An encoder-decoder learns from few pairs, its decoder as drawn,
or first trained on 3,000 sentences of its language alone, behind an empty source. Held-out loss in nats a
word, three seeds, the same pairs and steps for both.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Generator

from benchmarks.record import record
from margin import Training, train
from margin.data.examples import Data
from margin.data.formats.sequences.rows import Ragged
from margin.data.formats.text.pair_examples import EOS, Pairs
from margin.data.formats.text.pairs import from_pairs
from margin.data.formats.text.tokenizers import Tokenization
from margin.data.splits import Split

WORDS, LONGEST, ALONE, COUNTS = 20, 10, 3000, (50, 200, 800)
MODEL, OPTIONS = "sequence/encoder_decoder", {"embedding": 16, "hidden": 32}
TRAINING = Training(
    max_steps=400,
    batch_size=32,
    lr=3e-3,
    schedule="cosine",
    clip=1.0,
    evaluate_every=100,
    patience=0,
    threads=1,
)
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t of a 95 % interval, by the number of values."""


def sentences(seed: int) -> Data:
    """Pairs of the toy languages; 500 are held out to choose the weights, 1,000 for test."""
    generator = Generator().manual_seed(seed)
    after = torch.stack([torch.randperm(WORDS, generator=generator)[:3] for _ in range(WORDS)])
    count = ALONE + max(COUNTS) + 1500
    walk = [torch.randint(WORDS, (count,), generator=generator)]
    for _ in range(LONGEST - 1):
        pick = torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), count, True, generator=generator)
        walk.append(after[walk[-1], pick])
    lengths = torch.randint(4, LONGEST + 1, (count,), generator=generator).tolist()
    rows = [row[:n] for row, n in zip(torch.stack(walk, 1).tolist(), lengths, strict=True)]
    sources = [" ".join(f"a{k}" for k in row) for row in rows]
    targets = [" ".join(f"b{k}" for k in reversed(row)) for row in rows]
    share = Split(test=1000 / count, val=500 / count, seed=seed)
    return from_pairs(sources, targets, rule=Tokenization(longest=0), split=share)


def with_training(data: Data, train_part: Pairs) -> Data:
    return replace(data, splits=dict(data.splits) | {"train": train_part})


def losses(seed: int) -> dict[str, list[float]]:
    data = sentences(seed)
    pairs = data.splits["train"]
    some, rest = torch.arange(max(COUNTS)), torch.arange(max(COUNTS), len(pairs))
    alone = pairs.part(rest)
    empty = Pairs(Ragged.of([torch.tensor([EOS])] * len(rest)), alone.answers)
    val = data.splits["val"]
    nothing = Pairs(Ragged.of([torch.tensor([EOS])] * len(val)), val.answers)
    found: dict[str, list[float]] = {"as drawn": [], "read before": []}
    with tempfile.TemporaryDirectory() as directory:
        first = Path(directory) / "language"
        language = replace(with_training(data, empty), splits={"train": empty, "val": nothing})
        train(MODEL, language, OPTIONS, replace(TRAINING, seed=seed, max_steps=600), out=first)
        for count in COUNTS:
            few = with_training(data, pairs.part(some[:count]))
            for name, begin in (("as drawn", None), ("read before", str(first))):
                out = Path(directory) / f"{name} {count}"
                run = train(MODEL, few, OPTIONS, replace(TRAINING, seed=seed, init_from=begin), out=out)
                found[name].append(run.metrics["test_loss"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    found = []
    for seed in range(seeds):
        found.append(losses(seed))
        print(found[-1], flush=True)
    figures: list[dict[str, object]] = []
    for k, count in enumerate(COUNTS):
        gaps = torch.tensor(
            [one["as drawn"][k] - one["read before"][k] for one in found], dtype=torch.float64
        )
        mean, half = float(gaps.mean()), T_95[seeds] * float(gaps.std()) / seeds**0.5
        figures.append(
            {
                "what": f"{count} pairs: held-out loss as drawn, less that of a decoder that read before",
                "value": mean,
                "unit": "nats a word",
                "interval": [mean - half, mean + half],
                "target": "> 0",
                "met": mean - half > 0,
            }
        )
    record(
        "text/monolingual",
        title="Pretraining a decoder on its own language: what it is worth in pairs of a toy translation",
        figures=figures,
        seeds=seeds,
        pairs=list(COUNTS),
        losses=found,
    )


if __name__ == "__main__":
    main()
