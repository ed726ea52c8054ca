"""The coupling matrix elementwise, by hand: loops, weights, isolated nodes, directed edges."""

import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.graphs.sparsity import coupled, coupling, coupling_matrix, product, shares, weights_of


def by_hand(edges: Tensor, size: int, weight: Tensor) -> Tensor:
    """(a_ij + delta_ij) / sqrt(d_i d_j), entry by entry."""
    A = [[0.0] * size for _ in range(size)]
    for (j, i), w in zip(edges.T.tolist(), weight.tolist(), strict=True):
        A[i][j] += w
    d = [1 + sum(row) for row in A]
    return torch.tensor(
        [[(A[i][j] + (i == j)) / (d[i] * d[j]) ** 0.5 for j in range(size)] for i in range(size)]
    ).double()


@pytest.mark.parametrize("seed", range(3))
def test_it_is_its_formula_on_directed_weighted_graphs_with_loops_and_double_edges(seed: int) -> None:
    g = Generator().manual_seed(seed)
    edges = torch.randint(6, (2, 20), generator=g)
    weight = torch.rand(20, generator=g).double()
    expected = by_hand(edges, 7, weight)  # node 6 is isolated
    torch.testing.assert_close(coupling_matrix(edges, 7, weight).to_dense(), expected, rtol=0, atol=1e-6)
    assert expected[6, 6] == 1
    where, values = coupled(edges, weight[:, None], 7, "first")
    eye = torch.eye(7, dtype=torch.float64)
    torch.testing.assert_close(product(where, values, eye), expected, rtol=0, atol=1e-6)


def test_a_loop_that_is_there_makes_the_diagonal_larger_by_1() -> None:
    """One node with a loop of weight 3: a + 1 = 4 = d, so 1. Two nodes: by hand."""
    assert coupling_matrix(torch.tensor([[0], [0]]), 1, torch.tensor([3.0])).to_dense().item() == 1.0
    edges = torch.tensor([[0, 0, 1], [0, 1, 0]])
    found = coupling_matrix(edges, 2, torch.ones(3)).to_dense()
    torch.testing.assert_close(found, torch.tensor([[2 / 3, 6**-0.5], [6**-0.5, 1 / 2]]))


def test_without_edges_it_is_the_identity() -> None:
    found = coupling_matrix(torch.zeros(2, 0, dtype=torch.int64), 3, torch.zeros(0))
    assert torch.equal(found.to_dense(), torch.eye(3))


def test_its_rows_do_not_sum_to_1_on_a_path_but_do_on_a_ring() -> None:
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    sums = coupling_matrix(path, 3, torch.ones(4)).to_dense().sum(1)
    torch.testing.assert_close(sums, torch.tensor([0.5 + 6**-0.5, 1 / 3 + 2 * 6**-0.5, 0.5 + 6**-0.5]))
    ring = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    torch.testing.assert_close(coupling_matrix(ring, 3, torch.ones(6)).to_dense().sum(1), torch.ones(3))


def test_it_is_differentiable_in_the_weights() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    w = torch.rand(5, dtype=torch.float64, generator=Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: coupling(edges, 3, z)[1], (w,))
    attr = torch.rand(5, 2, requires_grad=True)
    coupled(edges, attr, 3, "first")[1].sum().backward()
    assert attr.grad is not None
    assert bool(attr.grad[:, 0].any())


def test_it_refuses_weights_that_have_no_root() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    for bad in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="must be at least 0: edge 1 has"):
            coupling(edges, 2, torch.tensor([1.0, bad]))
    with pytest.raises(ValueError, match="needs edges that carry a feature"):
        weights_of(torch.zeros(2, 0), "first")


def test_shares_average_what_reaches_a_node_and_are_0_where_no_weight_does() -> None:
    edges, weight = torch.tensor([[0, 1, 0], [2, 2, 1]]), torch.tensor([[3.0], [1.0], [0.0]])
    where, values = shares(edges, weight, 4, "first")
    found = product(where, values, torch.eye(4))
    assert found.tolist() == [[0.0] * 4, [0.0] * 4, [0.75, 0.25, 0.0, 0.0], [0.0] * 4]
