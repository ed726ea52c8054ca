"""What padding costs in batches of similar length, beside shuffled ones: Multi30k and spoken digits.

The share of padding among the steps of all batches of a pass, mean of five passes; batches of 32. Then the
time in which a GRU of 64 units reads 40 batches of sources of Multi30k and goes back, padded either way.
"""

import time

import torch
from torch import Tensor, nn

from benchmarks.record import record
from margin.data.examples import Data, Shuffled
from margin.data.sampling.length_batches import BySimilarLength, padding
from margin.data.sets.corpora import multi30k
from margin.data.sets.spoken_digits import fsdd

BATCH, PASSES, STEPS, REPEATS = 32, 5, 40, 7


def shares(data: Data, sides: list[Tensor]) -> dict[str, float]:
    train = data.splits["train"]
    near = BySimilarLength(train, train.lengths, BATCH, seed=0)
    generator = torch.Generator().manual_seed(0)
    plain = [torch.randperm(len(train), generator=generator).split(BATCH) for _ in range(PASSES)]
    return {
        "shuffled": sum(padding(batches, *sides) for batches in plain) / PASSES,
        "similar": sum(padding(near.indices(k), *sides) for k in range(PASSES)) / PASSES,
    }


def seconds(batches: Shuffled | BySimilarLength, model: nn.Module, steps: int) -> float:
    embedding, recurrence = model
    begin = time.perf_counter()
    for step in range(steps):
        recurrence(embedding(batches(step).inputs[0]))[0].sum().backward()
    return time.perf_counter() - begin


def main() -> None:
    torch.set_num_threads(1)
    texts, clips = multi30k(), fsdd()
    train = texts.splits["train"]
    found = {
        "Multi30k": shares(texts, [train.sources.lengths, train.asked]),
        "spoken digits": shares(clips, [clips.splits["train"].lengths]),
    }
    model = nn.Sequential(nn.Embedding(texts.spec["source_vocab_size"], 64), nn.GRU(64, 64, batch_first=True))
    plain = Shuffled(train, BATCH, seed=0)
    near = BySimilarLength(train, train.lengths, BATCH, seed=0)
    ratios = []
    for _ in range(REPEATS):
        ratios.append(seconds(plain, model, STEPS) / seconds(near, model, STEPS))
    figures = [
        {
            "what": f"{name}: padding in batches of similar length; shuffled {share['shuffled']:.3f}",
            "value": share["similar"],
            "unit": "share of the steps",
            "target": f"<= {share['shuffled'] / 2:.3f}, half",
            "met": share["similar"] <= share["shuffled"] / 2,
        }
        for name, share in found.items()
    ]
    ratio = sorted(ratios)[REPEATS // 2]
    figures.append(
        {
            "what": "Multi30k: time of a GRU in shuffled batches over that in batches of similar length",
            "value": ratio,
            "unit": "1",
            "interval": [min(ratios), max(ratios)],
            "target": ">= 1",
            "met": ratio >= 1,
        }
    )
    record(
        "sequence/padding",
        title=f"Batches of {BATCH} by similar length, pools of 32; median of {REPEATS} interleaved timings",
        figures=figures,
        metrics=found,
    )


if __name__ == "__main__":
    main()
