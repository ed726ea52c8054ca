"""20 widths x 10 seeds of small networks trained in one loop, beside torch's own modules one after another.

Widths from 4 to 64, 40 inputs, 10 outputs, batches of 32, Adam with the fused kernel on both sides, one
thread. All networks take the same number of steps, the loop and a few of the single trainings in turn; the
single ones count for all, by the mean over every fifth width.
"""

import statistics

import torch
from torch import Generator, nn

from benchmarks.record import interleaved, record
from margin.theory.capacity.many_networks import descend, started

WIDTHS = [round(4 * 16 ** (i / 19)) for i in range(20)]
SEEDS, STEPS, ROUNDS, BATCH = 10, 100, 7, 32


def main() -> None:
    torch.set_num_threads(1)
    generator = Generator().manual_seed(0)
    x, y = torch.randn(400, 40, generator=generator), torch.randn(400, 10, generator=generator)
    cases = [(width, seed) for width in WIDTHS for seed in range(SEEDS)]
    begun = started(40, [w for w, _ in cases], [s for _, s in cases], 10)
    few = WIDTHS[2::5]

    def together() -> None:
        for _ in descend(begun, x, y, steps=STEPS, batch_size=BATCH):
            pass

    def alone() -> None:
        for width in few:
            model = nn.Sequential(nn.Linear(40, width), nn.ReLU(), nn.Linear(width, 10))
            optimizer = torch.optim.Adam(model.parameters(), fused=True)
            for _ in range(STEPS):
                picked = torch.randint(400, (BATCH,))
                optimizer.zero_grad()
                (model(x[picked]) - y[picked]).square().sum(-1).mean().backward()
                optimizer.step()

    times = interleaved(ROUNDS, together=together, alone=alone)
    ratios = [a / len(few) * len(cases) / t for a, t in zip(times["alone"], times["together"], strict=True)]
    middle = statistics.median(ratios)
    record(
        "theory/many_networks",
        title="200 small networks trained in one loop, beside one after another",
        figures=[
            {
                "what": f"times as fast, {len(WIDTHS)} widths x {SEEDS} seeds",
                "value": middle,
                "unit": "1",
                "interval": [min(ratios), max(ratios)],
                "target": ">= 5",
                "met": middle >= 5,
            }
        ],
        seeds=[0],
    )


if __name__ == "__main__":
    main()
