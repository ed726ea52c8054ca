"""Readouts: the sum over the layers, the features counting as layer 0."""

import torch
from torch import Generator

from margin.geometric.graphs.gcn import GCN
from margin.geometric.graphs.node_net import GraphReadout, LayerReadout, LayerRegressor


def test_a_readout_of_every_layer_is_the_sum_of_maps_of_pooled_rows() -> None:
    g = Generator().manual_seed(0)
    x, edges = torch.randn(7, 4, generator=g), torch.randint(3, (2, 6), generator=g)
    attr, sizes = torch.zeros(6, 0), torch.tensor([3, 4])
    torch.manual_seed(0)
    net = GCN(4, 5, hidden=6, dropout=0.0)
    model = LayerReadout(net, 2, pool="sum", dropout=0.5).eval()
    rows = [x, *net.embeddings(x, edges, attr)]
    expected = model.heads[0].bias + sum(
        torch.stack((each[:3].sum(0), each[3:].sum(0))) @ head.weight.T
        for each, head in zip(rows, model.heads, strict=True)
    )
    torch.testing.assert_close(model(x, edges, attr, sizes), expected)
    assert [head.bias is None for head in model.heads] == [False, True, True]
    model.train()
    assert not torch.equal(model(x, edges, attr, sizes), model(x, edges, attr, sizes))


def test_one_number_a_graph() -> None:
    net = GCN(4, 5, dropout=0.0)
    x, nothing = torch.ones(3, 4), torch.zeros(2, 0, dtype=torch.int64)
    found = LayerRegressor(net, pool="mean")(x, nothing, torch.zeros(0, 0), torch.tensor([2, 1]))
    assert found.shape == (2,)
    torch.testing.assert_close(found[0], found[1])  # a mean does not count
    model = GraphReadout(net, 1, pool="sum", dropout=0.0)
    two = model(x, nothing, torch.zeros(0, 0), torch.tensor([2, 1]))[:, 0] - model.head.bias
    torch.testing.assert_close(two[0], 2 * two[1])
