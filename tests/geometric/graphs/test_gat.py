"""Graph attention: the formula by loops, loops and edge features, uniform scores, static ranking."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.graphs.attention import GATLayer, GATv2Layer, gat


def drawn(size: int = 7, edges: int = 14, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features, directed edges with loops and double edges, features of edges; the last node is isolated."""
    g = Generator().manual_seed(seed)
    x = torch.randn(size, 4, generator=g).double()
    return x, torch.randint(size - 1, (2, edges), generator=g), torch.randn(edges, 2, generator=g).double()


def attended(edges: Tensor, attr: Tensor, i: int, size: int) -> list[tuple[int, Tensor]]:
    """The nodes to which i attends, itself last, with the features of each edge."""
    found, own, around = [], [], []
    for k in range(edges.shape[1]):
        j, target = edges[:, k].tolist()
        if target == i:
            (own if j == i else around).append(attr[k])
            if j != i:
                found.append((j, attr[k]))
    loop = torch.stack(own or around).mean(0) if own or around else torch.zeros(attr.shape[1]).double()
    return [*found, (i, loop)]


def by_hand(layer: GATLayer, x: Tensor, edges: Tensor, attr: Tensor) -> Tensor:
    V = layer.linear.weight.reshape(layer.heads, layer.width, -1)
    rows = []
    for i in range(len(x)):
        heads = []
        for k in range(layer.heads):
            scores, values = [], []
            for j, e in attended(edges, attr, i, len(x)):
                s = layer.left[k] @ (V[k] @ x[i]) + layer.right[k] @ (V[k] @ x[j])
                s = s if layer.edge is None else s + layer.edge[k] @ e
                scores.append(s if s > 0 else layer.slope * s)
                values.append(V[k] @ x[j])
            heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
        rows.append(torch.cat(heads) if layer.merge == "concat" else torch.stack(heads).mean(0))
    return torch.stack(rows) + layer.bias


@pytest.mark.parametrize("merge", ["concat", "mean"])
@pytest.mark.parametrize("edge_features", [0, 2])
def test_it_is_its_formula(merge: str, edge_features: int) -> None:
    x, edges, attr = drawn()
    torch.manual_seed(0)
    layer = GATLayer(4, 3, 2, edge_features=edge_features, merge=merge, slope=0.3).double()  # type: ignore[arg-type]
    torch.nn.init.normal_(layer.bias)
    expected = by_hand(layer, x, edges, attr)
    torch.testing.assert_close(layer(x, edges, attr), expected, rtol=0, atol=1e-12)
    assert layer.bias.shape == ((6,) if merge == "concat" else (2,))


def test_equal_scores_are_a_uniform_mean_over_neighbors_and_self() -> None:
    x, edges, attr = drawn()
    layer = GATLayer(4, 1, 2).double()
    with torch.no_grad():
        layer.left.zero_(), layer.right.zero_()
    found = layer(x, edges, attr[:, :0])
    for i in range(7):
        nodes = [j for j, _ in attended(edges, attr, i, 7)]
        torch.testing.assert_close(found[i], (x[nodes] @ layer.linear.weight.T).mean(0))


def test_its_weights_sum_to_1_and_name_their_edges() -> None:
    x, edges, attr = drawn()
    torch.manual_seed(0)
    layer = GATLayer(4, 3, 2, edge_features=2).double()
    where, weights = layer.attention(x, edges, attr)
    torch.testing.assert_close(
        torch.zeros(7, 3).double().index_add(0, where[1], weights), torch.ones(7, 3).double()
    )
    expected = sorted((j, i) for i in range(7) for j, _ in attended(edges, attr, i, 7))
    assert sorted(map(tuple, where.T.tolist())) == expected


def complete(size: int) -> Tensor:
    return torch.cartesian_prod(torch.arange(size), torch.arange(size)).T.contiguous()


def favourites(layer: GATLayer | GATv2Layer, x: Tensor) -> Tensor:
    """The node that each node of a complete graph attends to most."""
    edges = complete(len(x))
    where, weights = layer.attention(x, edges, torch.zeros(edges.shape[1], 0).double())
    found = torch.zeros(len(x), len(x)).double()
    found[where[1], where[0]] = weights[:, 0]
    return found.argmax(1)


def test_its_ranking_is_static_and_that_of_the_second_kind_is_not() -> None:
    """Brody et al. 2022, Theorem 1, on 20 drawn layers; and a GATv2 layer in which each node picks itself."""
    g = Generator().manual_seed(0)
    for seed in range(20):
        torch.manual_seed(seed)
        x = torch.randn(6, 4, generator=g).double()
        assert len(favourites(GATLayer(4, 1, 3).double(), x).unique()) == 1
    own = GATv2Layer(4, 1, 8).double()
    with torch.no_grad():
        eye = torch.eye(4).double()
        own.linear.weight.copy_(torch.cat((eye, -eye, -eye, eye)))  # -|x_i - x_j|, coordinate by coordinate
        own.score.fill_(-1.0)
    assert favourites(own, x).tolist() == [0, 1, 2, 3, 4, 5]


def test_scores_of_100_and_more_leave_numbers_and_gradients() -> None:
    x, edges, attr = drawn()
    layer = GATLayer(4, 2, 2, edge_features=2).double()
    for size in (100.0, 1e8):
        big = (size * x).requires_grad_()
        out = layer(big, edges, size * attr)
        (gradient,) = torch.autograd.grad(out.sum(), big)
        assert bool(out.isfinite().all())
        assert bool(gradient.isfinite().all())


def test_dropped_attention_has_the_same_mean() -> None:
    """Seed fixed. 4,000 draws of a row with at most 15 terms: the largest of 42 standardized means is < 4.8.

    The probability that one exceeds it is below 42 x 1.6e-6 = 7e-5. A hundred copies of the graph are
    drawn at once, which no edge joins.
    """
    x, edges, attr = drawn()
    torch.manual_seed(0)
    layer = GATLayer(4, 3, 2, attention_dropout=0.5).double()
    with torch.no_grad():
        expected = layer.eval()(x, edges, attr[:, :0])
        layer.train()
        copied = torch.cat([edges + len(x) * copy for copy in range(100)], 1)
        many = x.repeat(100, 1), copied, attr[:, :0].repeat(100, 1)
        draws = torch.cat([layer(*many).unflatten(0, (100, len(x))) for _ in range(40)])
    error = draws.std(0) / math.sqrt(4000)
    assert float(((draws.mean(0) - expected).abs() / error).max()) < 4.8
    assert bool((draws.std(0) > 0).all())


def test_without_edges_a_node_reads_itself() -> None:
    x = drawn()[0]
    layer = GATLayer(4, 3, 2, edge_features=2).double()
    found = layer(x, torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, 2).double())
    torch.testing.assert_close(found, x @ layer.linear.weight.T)


def test_the_network_joins_heads_and_averages_the_last() -> None:
    model = gat(4, 0, 3, hidden=5, heads=2, last_heads=4, layers=3)
    assert [layer.merge for layer in model.layers] == ["concat", "concat", "mean"]
    assert [tuple(layer.linear.weight.shape) for layer in model.layers] == [(10, 4), (10, 10), (12, 10)]


def test_it_refuses() -> None:
    for options in ({"attention_dropout": 1.0}, {"dropout": -0.5}):
        with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\)"):
            gat(4, 0, 3, **options)
    with pytest.raises(ValueError, match="heads and their width must be at least 1: got 0"):
        gat(4, 0, 3, heads=0)
    with pytest.raises(ValueError, match="layers must be at least 1: got 0"):
        gat(4, 0, 3, layers=0)
