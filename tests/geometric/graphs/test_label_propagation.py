"""Label propagation: the harmonic solution by a linear solve, walks by hand, graphs it does not know."""

import pytest
import torch
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.engine.loop import State
from margin.geometric.graphs.label_propagation import LabelPropagation, label_propagation


def taught(
    edges: Tensor, size: int, known: list[int], labels: list[int], **options: object
) -> tuple[LabelPropagation, tuple[Tensor, ...]]:
    model = LabelPropagation(3, len(known), **options).double()
    inputs = (
        torch.zeros(size, 1).double(),
        edges,
        torch.ones(edges.shape[1], 1).double(),
        torch.tensor([size]),
    )
    targets, weight = torch.zeros(size, dtype=torch.int64), torch.zeros(size).double()
    targets[known], weight[known] = torch.tensor(labels), 1.0
    state = State({"model": model}, generator=Generator().manual_seed(0))
    assert float(label_propagation()(state, Batch(inputs, targets, weight))["loss"]) == 0.0
    return model, inputs


def test_it_is_the_harmonic_solution() -> None:
    """F_U = (I - P_UU)^-1 P_UL Y, on a connected graph drawn at random."""
    g = Generator().manual_seed(0)
    ring = torch.stack((torch.arange(12), (torch.arange(12) + 1) % 12))
    edges = torch.cat((ring, torch.randint(12, (2, 10), generator=g)), 1)
    edges = torch.cat((edges, edges.flip(0)), 1)
    known, labels = [2, 5, 11], [0, 2, 1]
    model, inputs = taught(edges, 12, known, labels, sweeps=10_000, tolerance=0.0)
    A = torch.zeros(12, 12).double().index_put((edges[1], edges[0]), torch.ones(44).double(), accumulate=True)
    P = A / A.sum(1, keepdim=True)
    others = [i for i in range(12) if i not in known]
    Y = torch.eye(3).double()[labels]
    F = torch.linalg.solve(torch.eye(9).double() - P[others][:, others], P[others][:, known] @ Y)
    found = model(*inputs)
    torch.testing.assert_close(found[others], F, rtol=0, atol=1e-10)
    assert torch.equal(found[known], Y)
    torch.testing.assert_close(found.sum(1), torch.ones(12).double())


def test_the_gambler_on_a_path() -> None:
    """Between labels 0 and 1 at the ends of a path of 5 nodes the chances are 1, 3/4, 1/2, 1/4, 0."""
    path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    model, inputs = taught(torch.cat((path, path.flip(0)), 1), 5, [0, 4], [0, 1], tolerance=1e-12)
    expected = torch.tensor([1.0, 0.75, 0.5, 0.25, 0.0]).double()
    torch.testing.assert_close(model(*inputs)[:, 0], expected, rtol=0, atol=1e-9)


def test_where_no_label_leads_the_scores_are_0() -> None:
    """0 -> 1 <- 2, 3 alone: node 0 knows its label; messages go along edges only."""
    model, inputs = taught(torch.tensor([[0, 2], [1, 1]]), 4, [0], [2])
    assert model(*inputs).tolist() == [[0, 0, 1.0], [0, 0, 0.5], [0, 0, 0], [0, 0, 0]]
    model, inputs = taught(torch.zeros(2, 0, dtype=torch.int64), 3, [1], [0])
    assert model(*inputs).tolist() == [[0, 0, 0], [1.0, 0, 0], [0, 0, 0]]


def test_weights_count() -> None:
    model, (x, edges, _, sizes) = taught(
        torch.tensor([[0, 1], [2, 2]]), 3, [0, 1], [0, 1], edge_weight="first"
    )
    found = model(x, edges, torch.tensor([[3.0], [1.0]]).double(), sizes)
    assert found[2].tolist() == [0.75, 0.25, 0.0]
    with pytest.raises(ValueError, match="must be at least 0"):
        model(x, edges, torch.tensor([[3.0], [-1.0]]).double(), sizes)


def test_it_refuses_another_graph_and_bad_options() -> None:
    model, inputs = taught(torch.tensor([[0], [1]]), 2, [0], [0])
    with pytest.raises(ValueError, match="knows labels of one graph, of 2 nodes: got one of 3"):
        model(torch.zeros(3, 1).double(), *inputs[1:3], torch.tensor([3]))
    for options in ({"sweeps": 0}, {"tolerance": -1.0}, {"tolerance": float("nan")}):
        with pytest.raises(ValueError, match="sweeps must be at least 1"):
            LabelPropagation(3, 2, **options)  # type: ignore[arg-type]
