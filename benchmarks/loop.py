"""What the loop costs beside a hand-written one, and batches beside a stock DataLoader."""

import statistics

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.record import interleaved, ratio, record
from margin.core.tasks import CLASSES
from margin.data.examples import Arrays, Shuffled
from margin.engine.build import optimizer_of
from margin.engine.loop import GradientUpdate, State, descent, fit, risk

ROWS, BATCH, ROUNDS = 60_000, 128, 7


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS, 784, generator=generator)
    y = torch.randint(0, 10, (ROWS,), generator=generator)
    model, opt = network(), None
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def by_hand() -> None:
        perm, total = torch.randperm(ROWS), 0.0
        for i in range(0, ROWS, BATCH):
            j = perm[i : i + BATCH]
            opt.zero_grad()
            loss = F.cross_entropy(model(X[j]), y[j])
            loss.backward()
            opt.step()
            total += loss.item()

    ours = network()
    batches = Shuffled(Arrays((X,), y), BATCH, seed=0)
    state = State({"model": ours}, {"": optimizer_of(ours, "AdamW", lr=1e-3, options={}, decay_norms=True)})
    step = descent(risk(CLASSES), GradientUpdate())

    def by_fit() -> None:
        fit(
            state,
            batches,
            step,
            max_steps=state.step + batches.per_epoch,
            hooks=[lambda state, metrics: None],
        )

    def delivered() -> None:
        for i in range(batches.per_epoch):
            batches(i)

    loader = DataLoader(TensorDataset(X, y), batch_size=BATCH, shuffle=True)

    def stock() -> None:
        for _ in loader:
            pass

    loops = interleaved(ROUNDS, by_hand=by_hand, by_fit=by_fit)
    feeds = interleaved(3, delivered=delivered, stock=stock)
    cost, cheapest, dearest = ratio(loops, "by_fit", "by_hand")
    speed, slowest, fastest = ratio(feeds, "stock", "delivered")
    record(
        "engine/loop",
        title="An epoch through fit beside a hand-written loop: MLP 784-128-10, 60,000 rows, batch 128",
        figures=[
            {
                "what": "epoch through fit / by hand",
                "value": cost,
                "unit": "ratio",
                "interval": [cheapest, dearest],
                "target": "<= 1.10",
                "met": cost <= 1.10,
            },
            {
                "what": "stock DataLoader / batches by index",
                "value": speed,
                "unit": "ratio",
                "interval": [slowest, fastest],
                "target": ">= 10",
                "met": speed >= 10,
            },
        ],
        seconds={name: statistics.median(values) for name, values in {**loops, **feeds}.items()},
        rounds=ROUNDS,
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
