"""A training step of minGRU beside the same step without its recurrence, and beside torch's nn.GRU.

One thread, float32, batch 16, width 128, T = 4,096: from inputs of 128 numbers a step to the loss of ten
classes, the gradient of every parameter and a step of AdamW. Without its recurrence a layer gives
(1 - s_t) v_t, computed as one would write it; that is the floor that products and memory traffic set.
"""

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.record import interleaved, ratio, record
from margin.nn.scan import scan
from margin.sequence.linear.mingru import MinGRU, gated_average
from margin.sequence.linear.minlstm import MinLSTM

BATCH, WIDTH, TIME, ROUNDS = 16, 128, 4096, 7


class Layer(nn.Module):
    """The affine maps of a minGRU, and a function of their outputs."""

    def __init__(self, states: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.gate, self.candidate = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.states = states

    def forward(self, x: Tensor) -> Tensor:
        return self.states(self.gate(x), self.candidate(x))


def left_out(logits: Tensor, values: Tensor) -> Tensor:
    return (1 - logits.sigmoid()) * values


def unfused(logits: Tensor, values: Tensor) -> Tensor:
    gates = logits.sigmoid()
    return scan(gates, (1 - gates) * values)


def fused(logits: Tensor, values: Tensor) -> Tensor:
    return gated_average(logits, values, values.new_zeros(len(values), WIDTH))


def step_of(layer: nn.Module) -> Callable[[], None]:
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, TIME, WIDTH), torch.randint(10, (BATCH,))
    head = nn.Linear(WIDTH, 10)
    optimizer = torch.optim.AdamW([*layer.parameters(), *head.parameters()], fused=True)

    def run() -> None:
        states = layer(x)
        states = states[0] if isinstance(states, tuple) else states
        optimizer.zero_grad()
        F.cross_entropy(head(states.mean(1)), y).backward()
        optimizer.step()

    return run


def main() -> None:
    torch.set_num_threads(1)
    layers = {
        "left out": Layer(left_out),
        "gates, then scan": Layer(unfused),
        "gates and scan in one": Layer(fused),
        "minGRU": MinGRU(WIDTH, hidden=WIDTH),
        "minLSTM": MinLSTM(WIDTH, hidden=WIDTH),
        "nn.GRU": nn.GRU(WIDTH, WIDTH, batch_first=True),
    }
    times = interleaved(ROUNDS, **{name: step_of(layer) for name, layer in layers.items()})
    rows: list[dict[str, object]] = []
    for one, other, target in (
        ("minGRU", "left out", "<= 1.6"),
        ("nn.GRU", "minGRU", ">= 3"),
        ("gates, then scan", "left out", ""),
        ("gates and scan in one", "left out", ""),
        ("nn.GRU", "minLSTM", ""),
    ):
        value, low, high = ratio(times, one, other)
        row: dict[str, object] = {
            "what": f"{one} / {other}, a training step",
            "value": value,
            "unit": "ratio",
            "interval": [low, high],
        }
        if target:
            bound = float(target.split()[1])
            row |= {"target": target, "met": value <= bound if "<" in target else value >= bound}
        rows.append(row)
    record(
        "sequence/recurrent_step",
        title=f"A training step, batch {BATCH}, width {WIDTH}, T = {TIME:,}, one thread, float32",
        figures=rows,
        seconds={name: statistics.median(found) for name, found in times.items()},
        rounds=ROUNDS,
        threads=1,
    )


if __name__ == "__main__":
    main()
