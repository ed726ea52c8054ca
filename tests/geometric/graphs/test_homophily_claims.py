"""Shares of edges counted by hand; labels that are not held out are never read."""

from dataclasses import replace

import torch

from margin.core.findings import Verdict
from margin.core.tasks import VALUES
from margin.geometric.graphs import claims as c
from margin.geometric.graphs.attention import GATLayer, GATv2Layer
from margin.geometric.graphs.claims import small_gcn
from margin.geometric.graphs.layers import captured_layers

EDGES = torch.tensor([[0, 1, 1, 2, 2, 2], [1, 0, 2, 1, 2, 3]])


def test_shares_by_hand() -> None:
    everywhere = torch.ones(4, dtype=torch.bool)
    assert c.homophily(torch.tensor([0, 0, 1, 1]), EDGES, everywhere) == (3, 5)  # the loop is none
    among = torch.tensor([True, True, True, False])
    assert c.homophily(torch.tensor([0, 0, 1, 1]), EDGES, among) == (2, 4)
    nobody = torch.tensor([True, False, True, False])
    assert c.homophily(torch.tensor([0, 0, 1, 1]), EDGES, nobody) == (0, 0)


def test_labels_of_other_parts_change_nothing() -> None:
    demo = small_gcn()
    (batch,) = demo.test
    weight = (torch.arange(12) < 6).float()
    answers = []
    for other in (0, 2):
        targets = torch.where(weight > 0, batch.targets, other)
        found = c.share(replace(demo, test=[batch._replace(targets=targets, weight=weight)]))
        assert found.verdict is Verdict.MEASURED
        answers.append((found.value.tolist(), found.curves["graph labels"].tolist()))
    assert answers[0] == answers[1]
    assert answers[0][0][2] == 0.0  # 0 1 2 0 1 2 along the ring: no edge joins two of a class


def test_edges_between_nodes_and_classes_are_needed() -> None:
    demo = small_gcn()
    (batch,) = demo.test
    x, _, attr, sizes = batch.inputs
    loops = torch.arange(12).expand(2, -1).contiguous()
    assert c.classifies_nodes(demo)
    assert not c.classifies_nodes(replace(demo, task=VALUES))
    lone = batch._replace(inputs=(x, loops, attr[:1].expand(12, -1), sizes))
    assert not c.classifies_nodes(replace(demo, test=[lone]))


def test_attention_of_the_last_layer_sums_to_one_at_every_node() -> None:
    demo = small_gcn()
    for layer in (GATLayer(4, 3, 2, merge="mean"), GATv2Layer(4, 3, 2, merge="mean")):

        class Model(torch.nn.Module):
            def __init__(self, own: torch.nn.Module) -> None:
                super().__init__()
                self.own = own

            def forward(self, x, edge_index, edge_attr, sizes):
                return self.own(x, edge_index, edge_attr)

        subject = replace(demo, model=Model(layer))
        found = c.attention_of(captured_layers(subject))
        assert found is not None
        edges, weights = found
        sums = torch.zeros(12, dtype=torch.float64).index_add_(0, edges[1], weights)
        torch.testing.assert_close(sums, torch.ones(12, dtype=torch.float64))
        drawn = c.share(subject).curves
        assert drawn["graph attention"].shape == drawn["graph edges"][0].shape
    assert c.attention_of(captured_layers(demo)) is None


def test_a_nan_fails() -> None:
    demo = c.demo()
    with torch.no_grad():
        demo.model.layers[1].bias.fill_(torch.nan)
    assert c.share(demo).verdict is Verdict.FAILED
