"""Models that know no order, and models that do, each in one way that the claim must find."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, POINT_CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.geometric.graphs.coupling_claims import small_gcn
from margin.geometric.graphs.twin_graphs import both_ways, ring
from margin.geometric.sets import equivariance_claims as c


class Reads(nn.Module):
    """Sums over the edges of a node; each option reads one thing that is an accident of the listing."""

    def __init__(self, accident: str = "none", graphs: bool = False) -> None:
        super().__init__()
        self.accident, self.graphs = accident, graphs

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        source, target = edge_index
        weight = edge_attr[:, :1] if edge_attr.shape[1] else x.new_ones(len(edge_attr), 1)
        if self.accident == "edges":
            weight = weight * torch.linspace(1, 1.01, len(weight)).to(x)[:, None]
        z = x + torch.zeros_like(x).index_add(0, target, weight * x[source].sin())
        if self.accident == "nodes":
            z = z + 1e-6 * torch.arange(len(x)).to(x)[:, None]
        if not self.graphs:
            return z
        rows = torch.stack([part.sum(0) for part in z.split(sizes.tolist())])
        if self.accident == "graphs":
            rows = rows + 1e-6 * torch.arange(len(sizes)).to(x)[:, None]
        return rows


def subject(model: nn.Module, *, graphs: bool) -> Subject:
    generator = Generator().manual_seed(0)
    edges = both_ways([*ring(4), (4, 5), (5, 6)])
    x = torch.randn(7, 3, generator=generator)
    attr = torch.rand(edges.shape[1], 1, generator=generator)
    inputs = (x, edges, attr, torch.tensor([4, 3]))
    targets = torch.zeros(2 if graphs else 7, dtype=torch.int64)
    return Subject(model=model, test=[Batch(inputs, targets)], task=CLASSES, objective=risk(CLASSES))


@pytest.mark.parametrize("graphs", [True, False])
def test_sums_over_edges_hold(graphs: bool) -> None:
    found = c.equivariance(subject(Reads(graphs=graphs), graphs=graphs))
    assert found.verdict is Verdict.HOLDS
    assert found.labels == ("nodes renumbered", "edges listed in another order", "graphs in another order")


@pytest.mark.parametrize(
    ("accident", "graphs", "seen"),
    [
        ("nodes", False, {0, 2}),
        ("edges", False, {1}),
        ("edges", True, {1}),
        ("graphs", True, {2}),
    ],
)
def test_each_accident_is_found_where_it_is(accident: str, graphs: bool, seen: set[int]) -> None:
    found = c.equivariance(subject(Reads(accident, graphs), graphs=graphs))
    assert {k for k, verdict in enumerate(found.verdicts) if verdict is Verdict.VIOLATED} == seen


def test_gcn_holds_and_one_graph_has_no_order_of_graphs() -> None:
    found = c.equivariance(small_gcn())
    assert found.verdict is Verdict.HOLDS
    assert len(found.labels) == 2


def test_blocks_move_together() -> None:
    """By hand: graphs of 2, 0 and 3 nodes listed as third, first, second."""
    sizes, order = torch.tensor([2, 0, 3]), torch.tensor([2, 0, 1])
    assert c.of_blocks(sizes, order).tolist() == [2, 3, 4, 0, 1]
    pi = c.within_graphs(sizes, Generator().manual_seed(0))
    assert sorted(pi[:2].tolist()) == [0, 1]
    assert sorted(pi[2:].tolist()) == [2, 3, 4]


class Points(nn.Module):
    def __init__(self, ordered: bool) -> None:
        super().__init__()
        self.ordered = ordered

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        seen = x * mask[..., None]
        return x + (seen.cumsum(1) if self.ordered else seen.sum(1, keepdim=True))


@pytest.mark.parametrize("ordered", [True, False])
def test_points_follow(ordered: bool) -> None:
    x = torch.randn(2, 5, 3, generator=Generator().manual_seed(0))
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    batch = Batch((x, mask), torch.zeros(2, 5, dtype=torch.int64))
    found = c.equivariance(
        Subject(model=Points(ordered), test=[batch], task=POINT_CLASSES, objective=risk(POINT_CLASSES))
    )
    assert found.verdict is (Verdict.VIOLATED if ordered else Verdict.HOLDS)
    assert "follows" in found.statement


def test_sets_hold_and_a_nan_fails() -> None:
    demo = c.demo()
    assert c.equivariance(demo).verdict is Verdict.HOLDS
    with torch.no_grad():
        demo.model.outer.bias.fill_(math.nan)
    assert c.equivariance(demo).verdict is Verdict.FAILED


def test_the_group_and_its_action_hold_on_sets_and_nodes() -> None:
    for each in (c.demo(), small_gcn()):
        found = c.group_axioms(each)
        assert found.verdict is Verdict.HOLDS
        assert found.value.tolist() == [0.0, 0.0]


def test_a_wrong_action_would_be_found(monkeypatch) -> None:
    monkeypatch.setattr(c, "composed", lambda first, then: then[first])  # the other order
    found = c.group_axioms(c.demo())
    assert found.verdicts == [Verdict.HOLDS, Verdict.VIOLATED]
    monkeypatch.undo()
    monkeypatch.setattr(c, "inverse", lambda pi: pi)  # true of involutions only
    assert c.group_axioms(c.demo()).verdicts == [Verdict.HOLDS, Verdict.VIOLATED]


def test_sampled_graph_without_edges() -> None:
    base = small_gcn()
    batch = base.test[0]
    x, _, attr, sizes = batch.inputs
    none = (x, torch.zeros(2, 0, dtype=torch.int64), attr[:0], sizes)
    assert c.equivariance(replace(base, test=[batch._replace(inputs=none)])).verdict is Verdict.HOLDS
