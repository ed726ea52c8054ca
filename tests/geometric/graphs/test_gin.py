"""The graph isomorphism network: its formula, what it tells apart, its readouts."""

import pytest
import torch
from torch import Generator, Tensor

from margin.data.sets.tiny.graphs import ring, star
from margin.geometric.graphs.gcn import classifier as gcn_classifier
from margin.geometric.graphs.gin import GINLayer, classifier, gin, regressor


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    g = Generator().manual_seed(0)
    x = torch.randn(7, 4, generator=g).double()
    return x, torch.randint(6, (2, 14), generator=g), torch.zeros(14, 0).double()


@pytest.mark.parametrize("eps", ["learned", "zero"])
def test_a_layer_is_an_mlp_of_the_sum(eps: str) -> None:
    x, edges, attr = drawn()
    torch.manual_seed(0)
    layer = GINLayer(4, 5, eps=eps).double().eval()  # type: ignore[arg-type]
    for value in (layer.norm.running_mean, layer.norm.weight, layer.norm.bias):
        torch.nn.init.normal_(value)
    e = 0.0
    if layer.eps is not None:
        torch.nn.init.constant_(layer.eps, 0.7)
        e = 0.7
    s = torch.stack([(1 + e) * x[i] + x[edges[0, edges[1] == i]].sum(0) for i in range(7)])
    norm = layer.norm
    z = (s @ layer.linear.weight.T - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    expected = layer.last((z * norm.weight + norm.bias).relu())
    torch.testing.assert_close(layer(x, edges, attr), expected, rtol=0, atol=1e-12)


def answers(model: torch.nn.Module, *graphs: tuple[Tensor, Tensor]) -> list[Tensor]:
    """What a model says of each graph, nodes all alike."""
    model = model.double().eval()
    return [
        model(x, edges, torch.zeros(edges.shape[1], 0).double(), torch.tensor([len(x)]))
        for x, edges in graphs
    ]


def test_it_tells_what_refinement_tells_and_no_more() -> None:
    """A path and a star of 4 nodes; two triangles and a hexagon."""
    torch.manual_seed(0)
    model = classifier(1, 3)
    ones = torch.ones(6, 1).double()
    path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    one, other = answers(model, (ones[:4], path), (ones[:4], star(4).edge_index))
    assert float((one - other).detach().abs().max()) > 1e-3
    triangles = torch.cat((ring(3).edge_index, ring(3).edge_index + 3), 1)
    one, other = answers(model, (ones, triangles), (ones, ring(6).edge_index))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_sum_counts_and_a_mean_does_not() -> None:
    """Two graphs of nodes without edges: {a} and {a, a}."""
    torch.manual_seed(0)
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    one, two = torch.ones(1, 1).double(), torch.ones(2, 1).double()
    for pool, tells in (("sum", True), ("mean", False), ("max", False)):
        a, b = answers(classifier(1, 2, pool=pool), (one, nothing), (two, nothing))  # type: ignore[arg-type]
        assert (float((a - b).detach().abs().max()) > 1e-6) == tells, pool


@pytest.mark.parametrize("build", [classifier, gcn_classifier])
@pytest.mark.parametrize("pool", ["sum", "mean", "max"])
def test_graphs_do_not_read_each_other_and_one_without_nodes_has_an_answer(build: object, pool: str) -> None:
    x, edges, attr = drawn()
    torch.manual_seed(0)
    model = build(4, 3, pool=pool).double().eval()  # type: ignore[operator]
    alone = model(x, edges, attr, torch.tensor([7]))
    twice = torch.cat((x, x)), torch.cat((edges, edges + 7), 1), torch.cat((attr, attr))
    found = model(*twice, torch.tensor([7, 0, 7]))
    torch.testing.assert_close(found[[0, 2]], alone.expand(2, -1))
    assert bool(found.isfinite().all())


def test_the_answer_to_a_graph_without_nodes_is_the_bias() -> None:
    model = classifier(4, 3).double().eval()
    x, edges, attr = drawn()
    found = model(x[:0], edges[:, :0], attr[:0], torch.tensor([0]))
    torch.testing.assert_close(found[0], model.heads[0].bias)


def test_nodes_and_numbers() -> None:
    x, edges, attr = drawn()
    assert gin(4, 3).double()(x, edges, attr, torch.tensor([7])).shape == (7, 3)
    assert regressor(4).double()(x, edges, attr, torch.tensor([3, 4])).shape == (2,)


def test_it_refuses() -> None:
    with pytest.raises(ValueError, match="layers and hidden must be at least 1: got 0"):
        gin(4, 3, layers=0)
    for bad in ({"pool": "median"}, {"eps": "fixed"}):
        with pytest.raises(Exception, match=r"median|fixed"):
            classifier(4, 3, **bad)  # type: ignore[arg-type]
