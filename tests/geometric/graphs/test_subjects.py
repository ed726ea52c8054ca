"""What is read as a graph, nodes, a set: by the inputs, and by what the model says of itself."""

import pytest
import torch
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import in_double
from margin.engine.loop import risk
from margin.geometric.graphs import subjects as s

X = torch.randn(5, 3)
EDGES = torch.tensor([[0, 1], [1, 0]])
SIZES = torch.tensor([2, 3])


class Nodes(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        return x[:, :2]


class Graphs(Nodes):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        return torch.stack([part.sum(0) for part in x.split(sizes.tolist())])[:, :2]


class Sets(nn.Module):
    reads_sets = True

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


def subject(model: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor | None = None) -> Subject:
    return Subject(model=model, test=[Batch(inputs, targets)], task=CLASSES, objective=risk(CLASSES))


GRAPH = (X, EDGES, torch.zeros(2, 0), SIZES)


def test_a_graph_is_four_tensors_that_fit() -> None:
    assert s.is_graph_input(GRAPH)
    wrong = [
        GRAPH[:3],
        (X, EDGES, torch.zeros(3, 0), SIZES),
        (X, EDGES, torch.zeros(2, 0), torch.tensor([2, 2])),
        (X, EDGES.int(), torch.zeros(2, 0), SIZES),
        (X.long(), EDGES, torch.zeros(2, 0), SIZES),
        (X, torch.cat((EDGES, EDGES[:1])), torch.zeros(2, 0), SIZES),
        (X[:, 0], EDGES, torch.zeros(2, 0), SIZES),
    ]
    assert not any(map(s.is_graph_input, wrong))


@pytest.mark.parametrize("known", [True, False])
def test_nodes_and_graphs_are_told_apart_by_targets_or_answers(known: bool) -> None:
    nodes = subject(Nodes(), GRAPH, torch.zeros(5, dtype=torch.int64) if known else None)
    graphs = subject(Graphs(), GRAPH, torch.zeros(2, dtype=torch.int64) if known else None)
    assert s.is_node_model(nodes)
    assert not s.is_graph_model(nodes)
    assert s.is_graph_model(graphs)
    assert not s.is_node_model(graphs)
    assert s.is_set_or_graph(nodes)
    assert not s.is_set_model(nodes)


def test_a_mask_says_set_and_lengths_say_sequence() -> None:
    x = torch.randn(2, 4, 3)
    assert s.is_set_model(subject(nn.Identity(), (x, torch.ones(2, 4, dtype=torch.bool))))
    assert not s.is_set_model(subject(nn.Identity(), (x, torch.tensor([4, 2]))))
    assert not s.is_set_model(subject(nn.Identity(), (x, torch.ones(2, 3, dtype=torch.bool))))
    assert not s.is_set_model(subject(nn.Identity(), (x, torch.ones(2, 4, dtype=torch.int64))))
    assert not s.is_set_model(subject(nn.Identity(), (x,)))
    assert s.is_set_model(subject(nn.Sequential(Sets()), (x,)))
    assert not s.is_set_model(subject(Sets(), (x[0],)))


def test_a_pooling_of_sets_reads_sets() -> None:
    from margin.geometric.sets.pooling import SetPool

    assert s.is_set_model(subject(nn.Sequential(SetPool("sum")), (torch.randn(2, 4, 3),)))


def test_no_batches_is_nothing() -> None:
    empty = Subject(model=nn.Identity(), test=[], task=CLASSES, objective=risk(CLASSES))
    assert not s.is_graph(empty)
    assert not s.is_node_model(empty)
    assert not s.is_set_or_graph(empty)


def test_double_is_a_copy() -> None:
    model = nn.Linear(2, 1)
    copied = in_double(model)
    assert copied.weight.dtype == torch.float64
    assert model.weight.dtype == torch.float32
    assert model.training
    assert not copied.training
    first = s.first_inputs(subject(model, GRAPH))
    assert [each.dtype for each in first] == [torch.float64, torch.int64, torch.float64, torch.int64]
