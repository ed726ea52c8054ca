"""Graph convolutions: the dense formula, order, the ball they see, odd graphs."""

import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.graphs.gcn import GCN, GCNLayer
from margin.geometric.graphs.sparsity import coupling_matrix


def drawn(size: int = 9, edges: int = 16, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features, directed edges with loops and double edges, positive edge features."""
    g = Generator().manual_seed(seed)
    x = torch.randn(size, 4, generator=g).double()
    return x, torch.randint(size - 1, (2, edges), generator=g), torch.rand(edges, 2, generator=g).double()


def net(**options: object) -> GCN:
    torch.manual_seed(0)
    model = GCN(4, 3, **options).double().eval()
    for layer in model.layers:
        torch.nn.init.normal_(layer.bias)
    return model


@pytest.mark.parametrize("edge_weight", ["none", "first"])
def test_two_layers_are_the_dense_formula(edge_weight: str) -> None:
    x, edges, attr = drawn()
    model = net(hidden=5, edge_weight=edge_weight)
    weight = attr[:, 0] if edge_weight == "first" else torch.ones(edges.shape[1])
    A = coupling_matrix(edges, 9, weight.double()).to_dense()
    one, two = model.layers
    hidden = (A @ x @ one.linear.weight.T + one.bias).relu()
    expected = A @ hidden @ two.linear.weight.T + two.bias
    found = model(x, edges, attr, torch.tensor([9]))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_order_of_edges_and_nodes_does_not_matter() -> None:
    x, edges, attr = drawn()
    model, g = net(edge_weight="first"), Generator().manual_seed(5)
    out = model(x, edges, attr, torch.tensor([9]))
    order, pi = torch.randperm(16, generator=g), torch.randperm(9, generator=g)
    torch.testing.assert_close(model(x, edges[:, order], attr[order], torch.tensor([9])), out)
    place = pi.argsort()
    torch.testing.assert_close(model(x[pi], place[edges], attr, torch.tensor([9])), out[pi])


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_k_layers_see_the_ball_of_k_edges(layers: int) -> None:
    """On a path node 0 depends on nodes 0 .. k, and the derivative by others is 0 exactly."""
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
    x = torch.rand(5, 4, dtype=torch.float64, generator=Generator().manual_seed(0)).requires_grad_()
    model = net(hidden=16, layers=layers)
    for layer in model.layers:
        torch.nn.init.uniform_(layer.linear.weight)  # positive: no ReLU hides a dependence
        torch.nn.init.ones_(layer.bias)
    out = model(x, edges, torch.zeros(8, 0).double(), torch.tensor([5]))
    (gradient,) = torch.autograd.grad(out[0].sum(), x)
    assert bool(gradient[: layers + 1].all())
    assert not gradient[layers + 1 :].any()


def test_messages_go_from_source_to_target() -> None:
    x = torch.rand(2, 4, dtype=torch.float64, generator=Generator().manual_seed(0)).requires_grad_()
    out = net(layers=1)(x, torch.tensor([[0], [1]]), torch.zeros(1, 0).double(), torch.tensor([2]))
    assert torch.autograd.grad(out[1, 0], x, retain_graph=True)[0][0].any()
    assert not torch.autograd.grad(out[0, 0], x)[0][1].any()


def test_without_edges_it_is_a_perceptron_and_without_nodes_it_answers() -> None:
    x, nothing = drawn()[0], torch.zeros(2, 0, dtype=torch.int64)
    model = net(hidden=5)
    one, two = model.layers
    hidden = (x @ one.linear.weight.T + one.bias).relu()
    found = model(x, nothing, torch.zeros(0, 0).double(), torch.tensor([9]))
    torch.testing.assert_close(found, hidden @ two.linear.weight.T + two.bias)
    assert model(x[:0], nothing, torch.zeros(0, 0).double(), torch.tensor([0])).shape == (0, 3)


def test_features_that_are_mostly_0_give_the_same() -> None:
    _, edges, attr = drawn()
    x = torch.zeros(9, 4, dtype=torch.float64)
    x[2, 1], x[7, 3] = 1.0, -2.0
    model = net()
    sparse = model(x, edges, attr, torch.tensor([9]))
    dense = model(x.clone().requires_grad_(), edges, attr, torch.tensor([9]))
    torch.testing.assert_close(sparse, dense, rtol=0, atol=1e-12)


def test_edges_that_are_written_into_are_sorted_anew() -> None:
    x, edges, attr = drawn()
    model = net()
    model(x, edges, attr, torch.tensor([9]))
    edges[:, 0] = torch.tensor([8, 0])
    again = model(x, edges.clone(), attr, torch.tensor([9]))
    assert torch.equal(model(x, edges, attr, torch.tensor([9])), again)


def test_it_is_twice_differentiable() -> None:
    x, edges, attr = drawn()
    model = net(hidden=3)
    x = x.requires_grad_()
    (first,) = torch.autograd.grad(
        model(x, edges, attr, torch.tensor([9])).square().sum(), x, create_graph=True
    )
    first.square().sum().backward()
    assert bool(x.grad.isfinite().all())  # type: ignore[union-attr]
    assert all(bool(p.grad.any()) for p in model.parameters() if p.grad is not None)


def test_parts_of_several_graphs_do_not_meet() -> None:
    x, edges, attr = drawn()
    model = net()
    both = model(
        torch.cat((x, x)), torch.cat((edges, edges + 9), 1), torch.cat((attr, attr)), torch.tensor([9, 9])
    )
    torch.testing.assert_close(both[:9], both[9:])


def test_it_refuses() -> None:
    with pytest.raises(ValueError, match="layers and hidden must be at least 1: got 0, 16"):
        GCN(4, 3, layers=0)
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\): got 1"):
        GCN(4, 3, dropout=1.0)
    x, edges, attr = drawn()
    with pytest.raises(ValueError, match="needs edges that carry a feature"):
        GCNLayer(4, 3, edge_weight="first").double()(x, edges, attr[:, :0])
