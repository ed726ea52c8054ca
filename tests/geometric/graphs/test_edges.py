"""Loops: every node has exactly one, with the features that are said."""

import torch

from margin.geometric.graphs.message_passing import looped, with_self_loops


def test_by_hand() -> None:
    """Node 0 has two loops, node 1 none and two edges that reach it, node 2 neither."""
    edges = torch.tensor([[0, 0, 0, 2], [0, 1, 0, 1]])
    attr = torch.tensor([[1.0], [10.0], [3.0], [20.0]])
    found, carried = with_self_loops(edges, attr, 3)
    assert found.tolist() == [[0, 2, 0, 1, 2], [1, 1, 0, 1, 2]]
    assert carried[:, 0].tolist() == [10.0, 20.0, 2.0, 15.0, 0.0]


def test_without_edges_there_are_the_loops() -> None:
    found, carried = with_self_loops(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, 2), 3)
    assert found.tolist() == [[0, 1, 2]] * 2
    assert carried.tolist() == [[0.0, 0.0]] * 3
    assert with_self_loops(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, 2), 0)[0].shape == (2, 0)


def test_loops_added_before_change_nothing() -> None:
    """What is added is there once, whether or not it was there."""
    edges, attr = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.zeros(3, 0)
    once = with_self_loops(edges, attr, 4)
    twice = with_self_loops(*once, 4)
    assert torch.equal(once[0], twice[0])


def test_features_lie_as_the_entries_do() -> None:
    edges = torch.tensor([[2, 0, 1], [1, 2, 0]])
    where, carried = looped(edges, torch.tensor([[7.0], [8.0], [9.0]]), 3)
    rows = zip(where.row.tolist(), where.column.tolist(), carried[:, 0].tolist(), strict=True)
    assert set(rows) == {(1, 2, 7.0), (2, 0, 8.0), (0, 1, 9.0), (0, 0, 9.0), (1, 1, 7.0), (2, 2, 8.0)}
