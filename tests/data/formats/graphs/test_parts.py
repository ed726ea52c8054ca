"""Nodes and graphs as examples, against loops over the graphs one by one."""

import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from margin.data.examples import InOrder, Share, Shuffled
from margin.data.formats.graphs.graphs import Graph, graph_of, joined
from margin.data.formats.graphs.parts import Graphs, Nodes, graphs_of


def line(size: int, *, offset: float = 0.0) -> Graph:
    at = torch.arange(size)
    index = torch.stack((at[:-1], at[1:])) if size else torch.zeros(2, 0, dtype=torch.int64)
    attr = torch.arange(index.shape[1]).float()[:, None] + offset
    return graph_of(at.float()[:, None] + offset, index, attr)


def part() -> Nodes:
    return Nodes(line(6), torch.tensor([1, 4, 5]), torch.tensor([9, 1, 9, 9, 0, 1]))


def taken(examples: Nodes | Graphs, index: list[int]) -> tuple[tuple[Tensor, ...], Tensor, Tensor | None]:
    batch = examples.take(torch.tensor(index, dtype=torch.int64), Generator())
    return batch.inputs, batch.targets, batch.weight


def test_a_batch_of_nodes_is_the_whole_graph_with_weight_at_them() -> None:
    nodes = part()
    assert len(nodes) == 3
    assert nodes.targets.tolist() == [1, 0, 1]
    inputs, targets, weight = taken(nodes, [0, 2])
    assert all(a is b for a, b in zip(inputs, nodes.graph.inputs, strict=True))  # no copies
    assert targets is nodes.known
    assert weight.tolist() == [0, 1, 0, 0, 0, 1]


def test_the_whole_part_is_the_same_batch_every_time() -> None:
    nodes = part()
    first = nodes.take(torch.arange(3), Generator())
    assert nodes.take(torch.arange(3), Generator()) is first
    assert first.weight.tolist() == [0, 1, 0, 0, 1, 1]
    shuffled = Shuffled(nodes, 3, seed=5)
    assert shuffled(0) is first
    assert shuffled(1) is first
    # Three places that are not the part's own: node 4 thrice.
    assert nodes.take(torch.tensor([1, 1, 1]), Generator()).weight.tolist() == [0, 0, 0, 0, 3, 0]


def test_shares_of_processes_add_up_to_the_batch() -> None:
    nodes, index = part(), torch.arange(3)
    weights = [Share(rank, 4).take(nodes, index, Generator()).weight for rank in range(4)]
    assert torch.stack(weights).sum(0).tolist() == [0, 1, 0, 0, 1, 1]


def test_nodes_are_evaluated_at_once_and_depend_on_each_other() -> None:
    nodes = part()
    assert nodes.evaluation_batch == 3
    assert not nodes.independent
    assert len(InOrder(nodes, nodes.evaluation_batch)) == 1
    assert Nodes(line(3), torch.zeros(0, dtype=torch.int64)).evaluation_batch == 1


def test_nodes_of_a_graph_without_targets() -> None:
    nodes = Nodes(line(3), torch.tensor([2]))
    assert nodes.targets is None
    assert nodes.take(torch.tensor([0]), Generator()).targets is None
    assert len(nodes.tensors()) == 1


def test_the_type_of_the_weight_is_that_of_the_features() -> None:
    graph = graph_of(torch.ones(2, 1, dtype=torch.float64), torch.zeros(2, 0, dtype=torch.int64))
    assert Nodes(graph, torch.tensor([0])).take(torch.tensor([0]), Generator()).weight.dtype == torch.float64


GRAPHS = [line(3), line(0), line(5, offset=10.0), line(1, offset=7.0)]


@pytest.mark.parametrize("index", [[0], [1], [2, 0], [3, 1, 0, 2], [2, 2], [1, 1], []])
def test_a_batch_of_graphs_joins_them_one_by_one(index: list[int]) -> None:
    examples = graphs_of(GRAPHS, torch.tensor([0, 1, 2, 3]))
    inputs, targets, weight = taken(examples, index)
    assert weight is None
    assert targets.tolist() == index
    if not index:
        assert [tuple(x.shape) for x in inputs] == [(0, 1), (2, 0), (0, 1), (0,)]
        return
    for got, expected in zip(inputs, joined([GRAPHS[k] for k in index]).inputs, strict=True):
        assert torch.equal(got, expected)


def test_edges_in_any_order_stay_with_their_graph() -> None:
    whole = joined(GRAPHS)
    mixed = torch.randperm(whole.num_edges, generator=Generator().manual_seed(1))
    shuffled = Graph(whole.x, whole.edge_index[:, mixed], whole.edge_attr[mixed], whole.sizes)
    for k, graph in enumerate(GRAPHS):
        inputs, _, _ = taken(Graphs(shuffled), [k])
        order = inputs[1][0].argsort()
        assert torch.equal(inputs[1][:, order], graph.edge_index)
        assert torch.equal(inputs[2][order], graph.edge_attr)


def test_chosen_graphs_are_examples_themselves() -> None:
    examples = graphs_of(GRAPHS, torch.tensor([0.0, 1.0, 2.0, 3.0])).chosen(torch.tensor([2, 1]))
    assert examples.targets.tolist() == [2.0, 1.0]
    assert examples.graph.sizes.tolist() == [5, 0]
    assert torch.equal(examples.graph.x, GRAPHS[2].x)


def test_every_graph_has_a_target_or_none(refused: Callable) -> None:
    with refused("4 graphs, 2 targets"):
        graphs_of(GRAPHS, torch.tensor([0, 1]))
    assert graphs_of(GRAPHS).targets is None
    assert graphs_of(GRAPHS).take(torch.tensor([0]), Generator()).targets is None


def test_examples_travel_to_workers() -> None:
    for examples in (part(), graphs_of(GRAPHS, torch.tensor([0, 1, 2, 3]))):
        again = pickle.loads(pickle.dumps(examples))
        assert all(map(torch.equal, again.tensors(), examples.tensors()))
        assert torch.equal(
            again.take(torch.tensor([0]), Generator()).inputs[0],
            examples.take(torch.tensor([0]), Generator()).inputs[0],
        )
