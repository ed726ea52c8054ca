"""Neighbor sampling: what a training step costs with it beside the same step on batches drawn before.

The graph has 200,000 nodes and 4 million directed edges, a node's in-degree falls off as a power; two mean
layers 128 wide read 64 features, batches are of 512 nodes with 15 and 10 neighbors.
"""

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from benchmarks.record import interleaved, ratio, record
from margin.core.types import Batch
from margin.data.examples import Shuffled
from margin.data.formats.graphs.graphs import graph_of
from margin.data.formats.graphs.neighbor_sampling import Sampled
from margin.data.formats.graphs.parts import Nodes
from margin.data.sampling.loading import Prefetched

NODES, EDGES, FEATURES, CLASSES, WIDTH = 200_000, 4_000_000, 64, 10, 128
NEIGHBORS, BATCH, STEPS, ROUNDS, MOST = (15, 10), 512, 20, 7, 1.5


class MeanLayer(nn.Module):
    """A node's own features and the mean of its neighbors', each through a matrix (Hamilton et al. 2017)."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.own, self.near = nn.Linear(width, out), nn.Linear(width, out, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        total = x.new_zeros(x.shape).index_add_(0, target, x[source])
        count = target.bincount(minlength=len(x)).clamp(min=1)[:, None]
        return self.own(x) + self.near(total / count)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = MeanLayer(FEATURES, WIDTH), MeanLayer(WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        return self.last(F.relu(self.first(x, edge_index)), edge_index)


def examples() -> Nodes:
    generator = Generator().manual_seed(0)
    source = torch.randint(NODES, (EDGES,), generator=generator)
    # Targets u^3: the in-degree of node r falls off as r^(-2/3).
    target = (torch.rand(EDGES, dtype=torch.float64, generator=generator) ** 3 * NODES).long()
    x = torch.randn(NODES, FEATURES, generator=generator)
    known = torch.randint(CLASSES, (NODES,), generator=generator)
    graph = graph_of(x, torch.stack((source, target)))
    return Nodes(graph, torch.randperm(NODES, generator=generator)[: NODES // 2].sort().values, known)


def stepper(model: nn.Module) -> Callable[[Batch], None]:
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        terms = F.cross_entropy(model(*batch.inputs), batch.targets, reduction="none")
        (batch.weight @ terms / batch.weight.sum()).backward()
        optimizer.step()

    return step


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shuffled = Shuffled(Sampled(examples(), NEIGHBORS), BATCH, seed=0)
    ready = [shuffled(k) for k in range(STEPS)]
    step = stepper(Net())
    rounds = iter(range(10**6))

    def over(batches: Callable[[int], Batch]) -> Callable[[], None]:
        def run() -> None:
            start = next(rounds) * STEPS
            for k in range(start, start + STEPS):
                step(batches(k))

        return run

    # A worker reads on from round to round, so its start is not counted.
    ahead = Prefetched(shuffled, 1, 10**9)
    at = iter(range(10**9))

    def with_worker() -> None:
        for _ in range(STEPS):
            step(ahead(next(at)))

    with_worker()
    times = interleaved(
        ROUNDS,
        model=over(lambda k: ready[k % STEPS]),
        sampling=lambda: [shuffled(k) for k in range(STEPS)],
        one_process=over(shuffled),
        worker=with_worker,
    )
    ahead.close()
    beside, low, high = ratio(times, "worker", "model")
    alone, alone_low, alone_high = ratio(times, "one_process", "model")
    drawn = statistics.median(times["sampling"]) / STEPS * 1e3
    sizes = [len(batch.inputs[0]) for batch in ready]
    record(
        "geometric/neighbor_sampling",
        title="A training step with neighbor sampling beside the same step on batches drawn before",
        figures=[
            {
                "what": "step with one worker that samples / step of the model alone",
                "value": beside,
                "unit": "ratio",
                "interval": [low, high],
                "target": f"<= {MOST}",
                "met": beside <= MOST,
            },
            {
                "what": "step with sampling in the same process / step of the model alone",
                "value": alone,
                "unit": "ratio",
                "interval": [alone_low, alone_high],
            },
            {"what": f"drawing a batch of {statistics.mean(sizes):,.0f} nodes", "value": drawn, "unit": "ms"},
        ],
        seed=0,
        threads=1,
        sizes={
            "nodes": NODES,
            "edges": EDGES,
            "features": FEATURES,
            "width": WIDTH,
            "batch": BATCH,
            "neighbors": list(NEIGHBORS),
        },
        seconds=times,
    )


if __name__ == "__main__":
    main()
