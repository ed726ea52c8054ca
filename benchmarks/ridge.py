"""Ridge regression beside scikit-learn's Cholesky solver, tall and wide: same solution, how much time."""

import numpy as np
import torch
from sklearn.linear_model import Ridge as Reference
from threadpoolctl import threadpool_limits

from benchmarks.record import interleaved, ratio, record
from margin.classic.linear.ridge import ridge_solution

SHAPES, PENALTY, ROUNDS = ((20_000, 500), (500, 20_000)), 1.0, 7


def measured(rows: int, features: int) -> tuple[list[dict[str, object]], dict[str, float]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    y = x[:, 0] + torch.randn(rows, generator=generator, dtype=torch.float64)
    peer = Reference(alpha=PENALTY, solver="cholesky")
    found: dict[str, torch.Tensor] = {}

    def ours() -> None:
        found["w"], found["b"] = ridge_solution(x, y, PENALTY)

    times = interleaved(ROUNDS, ours=ours, reference=lambda: peer.fit(x.numpy(), y.numpy()))
    slower, least, most = ratio(times, "ours", "reference")
    gap = float(np.linalg.norm(found["w"].numpy() - peer.coef_) / np.linalg.norm(peer.coef_))
    shape = f"{rows:,} x {features:,}"
    figures: list[dict[str, object]] = [
        {
            "what": f"{shape}: relative difference of w",
            "value": gap,
            "unit": "1",
            "target": "<= 1e-8",
            "met": gap <= 1e-8,
        },
        {
            "what": f"{shape}: time / scikit-learn's",
            "value": slower,
            "unit": "ratio",
            "interval": [least, most],
            "target": "<= 1.1",
            "met": slower <= 1.1,
        },
    ]
    medians = {f"{name}, {shape}": sorted(values)[len(values) // 2] for name, values in times.items()}
    return figures, medians


def main() -> None:
    torch.set_num_threads(1)  # two threaded libraries in turn would wait for each other's spinning threads
    with threadpool_limits(1):
        measure()


def measure() -> None:
    parts = [measured(*shape) for shape in SHAPES]
    record(
        "classic/ridge",
        title="Ridge regression beside scikit-learn's Ridge(solver='cholesky'), float64",
        figures=[figure for figures, _ in parts for figure in figures],
        packages=("scikit-learn",),
        threads=1,
        seconds={name: value for _, medians in parts for name, value in medians.items()},
    )


if __name__ == "__main__":
    main()
