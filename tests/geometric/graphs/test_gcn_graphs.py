"""Graph convolutions pooled: the dense formula."""

import pytest
import torch
from torch import Generator

from margin.geometric.graphs.gcn import classifier
from margin.geometric.graphs.sparsity import coupling_matrix


@pytest.mark.parametrize("pool", ["sum", "mean", "max"])
def test_it_is_the_dense_formula(pool: str) -> None:
    g = Generator().manual_seed(0)
    x, edges = torch.randn(7, 4, generator=g).double(), torch.randint(7, (2, 14), generator=g)
    torch.manual_seed(0)
    model = classifier(4, 3, hidden=5, layers=2, pool=pool).double().eval()  # type: ignore[arg-type]
    A = coupling_matrix(edges, 7, torch.ones(14).double()).to_dense()
    one, two = model.net.layers
    rows = (A @ (A @ x @ one.linear.weight.T).relu() @ two.linear.weight.T).relu()
    pooled = {"sum": rows.sum(0), "mean": rows.mean(0), "max": rows.amax(0)}[pool]
    found = model(x, edges, torch.zeros(14, 0).double(), torch.tensor([7]))
    torch.testing.assert_close(found[0], model.head(pooled))
