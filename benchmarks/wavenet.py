"""WaveNet's generation at receptive field 1,024: kept inputs beside the network run again for each sample.

Naive is one forward pass over the last 1,024 samples, whose head is asked of the last step alone; it builds
no graph. The window is full from the first sample on, as it is in all of a sound but its first eighth of a
second.
"""

import argparse
import statistics

import torch
from torch import Generator

from benchmarks.record import interleaved, ratio, record
from margin.sequence.convolution.wavenet import CachedSteps, WaveNet

FIELD = 1024


def contestants(model: WaveNet, batch: int, steps: int) -> dict:
    """Calls that advance ``steps`` samples each: kept inputs, windows moved by one, whole windows."""
    tokens = torch.randint(256, (batch, FIELD), generator=Generator().manual_seed(0))
    with torch.no_grad():
        _, state = model.trunk(model.embedding(tokens))
    kept, next_ = CachedSteps(model.trunk, state), tokens[:, -1]

    @torch.no_grad()
    def cached() -> None:
        for _ in range(steps):
            model.head(kept(model.embedding(next_)))

    @torch.no_grad()
    def moved() -> None:
        for _ in range(steps):
            model.step(next_, state)

    @torch.no_grad()
    def naive() -> None:
        for _ in range(max(1, steps // 20)):
            outputs, _ = model.trunk(model.embedding(tokens))
            model.head(outputs[:, -1])

    return {"cached": cached, "moved": moved, "naive": naive}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures, raw = [], {}
    for batch, width in ((1, 32), (16, 32), (1, 128)):
        torch.manual_seed(0)
        model = WaveNet(256, width=width, skip=2 * width).eval()
        times = interleaved(arguments.rounds, **contestants(model, batch, arguments.steps))
        per = {"cached": arguments.steps, "moved": arguments.steps, "naive": max(1, arguments.steps // 20)}
        times = {name: [second / per[name] for second in seconds] for name, seconds in times.items()}
        case = f"batch {batch}, width {width}"
        for other in ("naive", "moved"):
            middle, low, high = ratio(times, other, "cached")
            row = {"what": f"{other} / cached, {case}", "value": middle, "unit": "x", "interval": [low, high]}
            if (other, batch, width) == ("naive", 1, 32):
                row |= {"target": ">= 20", "met": middle >= 20}
            figures.append(row)
        cost = statistics.median(times["cached"]) * 1e6
        figures.append({"what": f"a cached step, {case}", "value": cost, "unit": "us"})
        raw[case] = times
    record(
        "sequence/wavenet_generation",
        title="A WaveNet's next sample at receptive field 1,024, one thread, float32: seconds of three ways",
        figures=figures,
        interval="least and largest of the paired ratios",
        rounds=arguments.rounds,
        seconds=raw,
    )


if __name__ == "__main__":
    main()
