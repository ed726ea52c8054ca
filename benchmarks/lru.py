"""A training step of the linear recurrent unit beside nn.GRU: batch 16, width 128, T = 4,096, one thread."""

import torch
from torch import nn

from benchmarks.record import interleaved, ratio, record
from margin.sequence.linear.linear_system import LinearBlock
from margin.sequence.linear.lru import LRU

BATCH, WIDTH, TIME, ROUNDS = 16, 128, 4096, 7


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(BATCH, TIME, WIDTH)
    gru = nn.GRU(WIDTH, WIDTH, batch_first=True)
    layer = LRU(WIDTH, states=WIDTH)
    block = LinearBlock(LRU(WIDTH, states=WIDTH), WIDTH)

    def step(module: nn.Module, *rest: object) -> None:
        module.zero_grad()
        y, _ = module(x, *rest)
        y.square().mean().backward()

    times = interleaved(
        ROUNDS,
        gru=lambda: step(gru),
        lru=lambda: step(layer),
        block=lambda: step(block, None, block.core.initial(x)),
    )
    figures = []
    for name, what, target in (
        ("lru", "the recurrent layer, 128 complex states", 1.5),
        ("block", "a whole block: norm, recurrence, gates", None),
    ):
        middle, least, largest = ratio(times, "gru", name)
        figures.append(
            {
                "what": f"nn.GRU's seconds over those of the LRU: {what}",
                "value": middle,
                "unit": "1",
                "interval": [least, largest],
                **({} if target is None else {"target": f">= {target}", "met": middle >= target}),
            }
        )
    record(
        "sequence/lru",
        title=f"Forward and backward in float32, batch {BATCH}, width {WIDTH}, T = {TIME:,}, one thread, "
        f"medians of {ROUNDS} interleaved rounds",
        figures=figures,
        seconds=times,
    )


if __name__ == "__main__":
    main()
