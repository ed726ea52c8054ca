"""Jacobians and their bound on linear networks solved by hand, on random ones, and on a binary tree."""

from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.geometric.graphs import oversquashing as q
from margin.geometric.graphs.oversmoothing import smoothing_of
from margin.geometric.graphs.weisfeiler_leman import both_ways

GENERATOR = Generator().manual_seed(0)


def matrix_of(edges, nodes: int) -> Tensor:
    return smoothing_of(both_ways(edges), nodes).matrix


def tree(depth: int) -> list[tuple[int, int]]:
    """The edges of a binary tree, root 0."""
    return [((k - 1) // 2, k) for k in range(1, 2 ** (depth + 1) - 1)]


def test_rows_of_powers_are_those_of_dense_powers_of_a_directed_matrix() -> None:
    A = torch.rand(5, 5, generator=GENERATOR, dtype=torch.float64)
    for layers in range(4):
        expected = torch.linalg.matrix_power(A, layers)
        for node in range(5):
            torch.testing.assert_close(q.reach(A.to_sparse_coo(), node, layers), expected[node])


def test_the_jacobian_is_that_of_autograd_s_own() -> None:
    weight = torch.randn(3, 2, generator=GENERATOR, dtype=torch.float64)
    A = matrix_of([(0, 1), (1, 2), (2, 3)], 4).to_dense()

    def f(x: Tensor) -> Tensor:
        return torch.tanh(A @ x @ weight)

    x = torch.randn(4, 3, generator=GENERATOR, dtype=torch.float64)
    whole = torch.func.jacrev(f)(x)  # (node, output, node, feature)
    for node in range(4):
        expected = torch.linalg.matrix_norm(whole[node].movedim(1, 0), ord=2)
        torch.testing.assert_close(q.jacobian_norms(f, x, node), expected)
        torch.testing.assert_close(q.jacobian_norms(f, x, node, torch.tensor([2, 0])), expected[[2, 0]])


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_holds_on_random_networks(seed: int) -> None:
    generator = Generator().manual_seed(seed)
    A = matrix_of([(0, 1), (1, 2), (2, 3), (3, 4), (1, 4), (4, 5)], 6)
    widths = (3, 5, 4, 2)
    weights = [torch.randn(a, b, generator=generator, dtype=torch.float64) for a, b in pairwise(widths)]
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        for weight in weights:
            x = nn.functional.leaky_relu(A @ x @ weight, 0.3)
        return x

    norms = [float(torch.linalg.matrix_norm(weight, 2)) for weight in weights]
    for node in range(6):
        measured, bound = q.jacobian_norms(f, x, node), q.bound([A] * 3, norms, node)
        assert bool((measured <= bound * (1 + 1e-12)).all())
        product = norms[0] * norms[1] * norms[2]
        torch.testing.assert_close(bound, product * q.reach(A, node, 3))


def test_the_bound_is_tight_for_one_feature_and_no_activation() -> None:
    A = matrix_of([(0, 1), (1, 2)], 3)
    x = torch.randn(3, 1, dtype=torch.float64)
    measured = q.jacobian_norms(lambda x: -3.0 * (A @ (A @ x)) * 0.5, x, 2)
    torch.testing.assert_close(measured, q.bound([A, A], [3.0, 0.5], 2))


def test_layers_in_the_wrong_order_would_be_seen() -> None:
    """i reads j through A_2 A_1: two directed matrices that do not commute."""
    first = torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64).to_sparse_coo()
    then = torch.tensor([[0.0, 0.0], [5.0, 0.0]], dtype=torch.float64).to_sparse_coo()
    x = torch.randn(2, 1, dtype=torch.float64)
    measured = q.jacobian_norms(lambda x: then @ (first @ x), x, 1)
    assert measured.tolist() == [0.0, 10.0]
    assert q.bound([first, then], [1.0, 1.0], 1).tolist() == [0.0, 10.0]


def test_on_a_binary_tree_a_leaf_s_share_of_the_root_falls_exponentially() -> None:
    """One way of r steps leads from a leaf to the root: each inner step weighs 1/4, the last 1 / sqrt(12)."""
    shares = []
    for depth in (2, 3, 4, 5, 6):
        nodes = 2 ** (depth + 1) - 1
        share = q.reach(matrix_of(tree(depth), nodes), 0, depth)[nodes - 1]
        root, inner, leaf = 3.0, 4.0, 2.0
        known = (root * inner) ** -0.5 * (1 / inner) ** (depth - 2) * (inner * leaf) ** -0.5
        assert float(share) == pytest.approx(known, rel=1e-12)
        shares.append(float(share))
    assert all(b / a == pytest.approx(0.25) for a, b in pairwise(shares))


def test_every_layer_has_a_norm() -> None:
    A = matrix_of([(0, 1)], 2)
    with pytest.raises(ValueError, match="got 1 and 2"):
        q.bound([A], [1.0, 1.0], 0)
    with pytest.raises(ValueError, match="got 0 and 0"):
        q.bound([], [], 0)
