"""What counts for each message: 1, or one over the number that reach its node."""

import torch

from margin.geometric.graphs.node_net import arriving


def test_sums_and_means() -> None:
    edges = torch.tensor([[0, 1, 2, 0], [2, 2, 0, 2]])
    where, counts = arriving(edges, torch.zeros(4, 0), 4, "mean")
    found = {}
    for i, j, c in zip(where.row.tolist(), where.column.tolist(), counts.tolist(), strict=True):
        found[i, j] = found.get((i, j), 0.0) + c
    assert {k: round(v, 6) for k, v in found.items()} == {(0, 2): 1.0, (2, 0): 0.666667, (2, 1): 0.333333}
    assert arriving(edges, torch.zeros(4, 0), 4, "sum")[1].tolist() == [1.0] * 4
    empty = arriving(edges[:, :0], torch.zeros(0, 0), 4, "mean")
    assert len(empty[1]) == 0
