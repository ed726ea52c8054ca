"""Nothing is read from beyond the layers' reach: exact zeros, found broken by the faintest global term."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from margin.core.findings import Verdict
from margin.geometric.graphs import claims as c
from margin.geometric.graphs.claims import small_gcn
from margin.geometric.graphs.gcn import GCN, GCNLayer
from margin.geometric.graphs.layers import captured_layers
from margin.geometric.graphs.weisfeiler_leman import both_ways, ring
from margin.geometric.spectral.chebnet import ChebConv

SMALL = small_gcn()


def path(nodes: int, model: nn.Module):
    edges = both_ways([(i, i + 1) for i in range(nodes - 1)])
    x = torch.randn(nodes, 4, generator=torch.Generator().manual_seed(0))
    batch = SMALL.test[0]
    inputs = (x, edges, torch.zeros(edges.shape[1], 0), torch.tensor([nodes]))
    return replace(SMALL, model=model, test=[batch._replace(inputs=inputs, targets=torch.arange(nodes) % 3)])


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_on_a_path_the_derivative_is_zero_beyond_the_layers(layers: int) -> None:
    model = GCN(4, 3, hidden=6, layers=layers)
    found = c.dependence(path(8, model))
    assert found.verdict is Verdict.HOLDS
    assert float(found.value) == 0.0
    pairs = sum(abs(i - j) > layers for i in range(8) for j in range(8))
    assert f"over {pairs} pairs" in found.statement


def test_depth_equal_to_the_diameter_reaches_all() -> None:
    assert c.leaves_some_out(path(4, GCN(4, 3, layers=2)))
    assert not c.leaves_some_out(path(4, GCN(4, 3, layers=3)))
    found = c.dependence(path(4, GCN(4, 3, layers=3)))
    assert found.verdict is Verdict.FAILED
    assert "no node is more than 3 steps" in found.failure


class Leaks(nn.Module):
    """A global term: between the layers, or inside one."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.inside = inside
        self.first = Everywhere(4, 4) if inside else GCNLayer(4, 4)
        self.last = GCNLayer(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        z = self.first(x, edge_index, edge_attr).tanh()
        return self.last(z if self.inside else z - 1e-9 * z.mean(0), edge_index, edge_attr)


class Everywhere(GCNLayer):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return super().forward(x, edge_index, edge_attr) + 1e-9 * x.sum()


def test_a_faint_global_term_between_layers_violates() -> None:
    found = c.dependence(path(8, Leaks(False)))
    assert found.verdict is Verdict.VIOLATED
    assert 0 < float(found.value) < 1e-8


def test_a_layer_that_reads_all_is_a_broken_premise_by_name() -> None:
    found = c.dependence(path(8, Leaks(True)))
    assert found.verdict is Verdict.UNFOUNDED
    assert "first" in found.premises[0].evidence
    assert found.premises[1].status == "sampled"


def test_layers_of_several_steps_count_as_many() -> None:
    class Chebyshev(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = ChebConv(4, 3, order=3)

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
            return self.layer(x, edge_index, edge_attr)

    subject = path(9, Chebyshev())
    assert c.reach(captured_layers(subject)) == 3
    assert c.dependence(subject).verdict is Verdict.HOLDS


def test_of_pooled_models_the_nodes_are_looked_at_before() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = GCNLayer(4, 3)

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
            return self.layer(x, edge_index, edge_attr).sum(0, keepdim=True)

    base = path(6, Pooled())
    batch = base.test[0]
    subject = replace(base, test=[batch._replace(targets=torch.tensor([1]))])
    assert c.leaves_some_out(subject)
    assert c.dependence(subject).verdict is Verdict.HOLDS


def test_a_ring_small_enough_is_reached_whole_and_components_never() -> None:
    model = GCN(4, 3, layers=2)
    base = path(5, model)
    batch = base.test[0]
    x, _, _, sizes = batch.inputs
    edges = both_ways(ring(5))
    whole = replace(base, test=[batch._replace(inputs=(x, edges, torch.zeros(10, 0), sizes))])
    assert not c.leaves_some_out(whole)
    assert c.leaves_some_out(SMALL)  # a ring beside a path
