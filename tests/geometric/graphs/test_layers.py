"""Layers are found by how they are called; their reach is seen in exact zeros of derivatives."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from margin.geometric.graphs.claims import small_gcn
from margin.geometric.graphs.gcn import GCNLayer
from margin.geometric.graphs.layers import captured_layers, passes_messages, reads_neighbors, steps_of
from margin.geometric.graphs.message_passing import steps_to
from margin.geometric.spectral.chebnet import ChebConv

SMALL = small_gcn()


class Own(nn.Module):
    """A user's layer: the mean of what the sources give, by name or by place."""

    def __init__(self, width: int, everything: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.everything = everything

    def forward(self, x: Tensor, *, edges: Tensor) -> Tensor:
        read = self.linear(x).index_select(0, edges[0])
        gave = torch.zeros_like(x).index_add(0, edges[1], read)
        return gave + 1e-9 * x.sum() if self.everything else gave


class Model(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.block = nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        for layer in self.block:
            x = layer(x, edges=edge_index).tanh()
        return x


def of(model: nn.Module):
    batch = SMALL.test[0]
    return replace(SMALL, model=model, test=[batch._replace(targets=batch.targets)])


def test_layers_are_heard_in_their_order_without_the_whole() -> None:
    found = captured_layers(SMALL)
    assert [call.name for call in found.calls] == ["layers.0", "layers.1"]
    assert all(isinstance(call.layer, GCNLayer) for call in found.calls)
    assert torch.equal(found.calls[1].x, found.calls[0].gave.relu().detach())
    assert torch.equal(found.output, found.calls[1].gave)
    assert found.output.dtype == torch.float64
    assert torch.equal(found.calls[0].ask(found.calls[0].x), found.calls[0].gave)


def test_a_user_s_layers_are_heard_called_twice_and_by_name() -> None:
    layer = Own(4)
    found = captured_layers(of(Model(layer, layer)))
    assert len(found.calls) == 2
    assert passes_messages(of(Model(layer)))
    assert not passes_messages(of(Pooled()))


class Pooled(nn.Module):
    """No row for a node comes out of anything that is told of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        return self.linear(x).sum(0, keepdim=True)


def test_sparse_features_are_heard_as_they_are() -> None:
    batch = SMALL.test[0]
    x, *rest = batch.inputs
    few = torch.zeros_like(x)
    few[0, 0] = 1.0
    found = captured_layers(replace(SMALL, test=[batch._replace(inputs=(few, *rest))]))
    assert [call.name for call in found.calls] == ["layers.0", "layers.1"]
    assert torch.equal(found.calls[0].x, few.double())


def test_what_reads_all_nodes_is_refuted_by_name_however_little_it_reads() -> None:
    edges = SMALL.test[0].inputs[1]
    fine, wrong = captured_layers(of(Model(Own(4), Own(4, everything=True)))).calls
    assert reads_neighbors(fine, edges).status == "sampled"
    premise = reads_neighbors(wrong, edges)
    assert premise.status == "refuted"
    assert "block.1" in premise.evidence


def test_a_layer_says_how_far_it_reads() -> None:
    batch = SMALL.test[0]
    edges = batch.inputs[1]
    layer = ChebConv(4, 4, order=2)

    class Chebyshev(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
            return self.layer(x, edge_index, edge_attr)

    (call,) = captured_layers(of(Chebyshev())).calls
    assert steps_of(call) == 2
    assert reads_neighbors(call, edges).status == "sampled"
    call.layer.__class__ = type("Two", (ChebConv,), {"hops": 1})
    assert reads_neighbors(call, edges).status == "refuted"
    assert bool((steps_to(torch.arange(12), edges, 12) == 2).any())


def test_asking_leaves_no_trace() -> None:
    model = SMALL.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    captured_layers(SMALL)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
