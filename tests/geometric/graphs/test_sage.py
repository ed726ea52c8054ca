"""GraphSAGE: the formula with each aggregate by loops, odd graphs, unit rows."""

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from margin.geometric.graphs.sage import GraphSAGE, SAGELayer


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    g = Generator().manual_seed(0)
    x = torch.randn(7, 4, generator=g).double()
    return x, torch.randint(6, (2, 14), generator=g), torch.zeros(14, 0).double()


def by_hand(layer: SAGELayer, x: Tensor, edges: Tensor) -> Tensor:
    own, other = layer.linear.weight.chunk(2)
    rows = []
    for i in range(len(x)):
        seen = x[edges[0, edges[1] == i]]
        if layer.pool is not None:
            seen = (seen @ layer.pool.weight.T + layer.pool.bias).relu()
        if len(seen) == 0:
            found = torch.zeros(x.shape[1]).double()
        else:
            found = seen.mean(0) if layer.how == "mean" else seen.amax(0)
        rows.append(own @ x[i] + other @ found + layer.bias)
    return torch.stack(rows)


@pytest.mark.parametrize("how", ["mean", "max", "pool"])
def test_it_is_its_formula(how: str) -> None:
    x, edges, attr = drawn()
    torch.manual_seed(0)
    layer = SAGELayer(4, 3, how=how).double()  # type: ignore[arg-type]
    torch.nn.init.normal_(layer.bias)
    torch.testing.assert_close(layer(x, edges, attr), by_hand(layer, x, edges), rtol=0, atol=1e-12)


@pytest.mark.parametrize("how", ["mean", "max", "pool"])
def test_without_edges_a_node_has_its_own_row_alone_and_sparse_features_agree(how: str) -> None:
    x, edges, attr = drawn()
    torch.manual_seed(0)
    model = GraphSAGE(4, 3, how=how, hidden=5).double().eval()  # type: ignore[arg-type]
    alone = model(x, torch.zeros(2, 0, dtype=torch.int64), attr[:0], torch.tensor([7]))
    first, second = model.layers
    hidden = F.linear(x, first.linear.weight[:5], first.bias).relu()
    torch.testing.assert_close(alone, F.linear(hidden, second.linear.weight[:3], second.bias))
    few = torch.zeros_like(x)
    few[0, 1] = few[3, 2] = 1.0
    sparse = model(few, edges, attr, torch.tensor([7]))
    torch.testing.assert_close(sparse, model(few.clone().requires_grad_(), edges, attr, torch.tensor([7])))


def test_unit_rows_have_length_1_or_are_0() -> None:
    x, edges, attr = drawn()
    torch.manual_seed(0)
    model = GraphSAGE(4, 3, hidden=5, normalize="unit").double().eval()
    lengths = model.embeddings(x, edges, attr)[0].norm(dim=1)
    assert bool(((lengths - 1).abs() < 1e-9).logical_or(lengths == 0).all())


@pytest.mark.parametrize("how", ["mean", "max"])
def test_it_is_twice_differentiable(how: str) -> None:
    x, edges, attr = drawn()
    torch.manual_seed(0)
    model = GraphSAGE(4, 3, how=how, hidden=5, dropout=0.0).double()  # type: ignore[arg-type]
    x = x.requires_grad_()
    out = model(x, edges, attr, torch.tensor([7])).square().sum()
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    assert bool(second.any())
    assert bool(second.isfinite().all())


def test_it_refuses() -> None:
    with pytest.raises(Exception, match="median"):
        SAGELayer(4, 3, how="median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layers and hidden must be at least 1"):
        GraphSAGE(4, 3, hidden=0)
