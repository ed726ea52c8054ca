"""Errors of symmetry on functions whose symmetry is known, and the printed rule that fails on a 3-cycle."""

import math

import pytest
import torch

from margin.geometric.sets import equivariance as e
from margin.math.groups.permutations import matrix

X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_sums_are_invariant_and_pointwise_maps_equivariant() -> None:
    assert e.check_invariant(lambda x: x.sum(-2), X) < 1e-14
    assert e.check_equivariant(torch.sin, X) == 0
    assert e.check_equivariant(lambda x: x - x.mean(-2, keepdim=True), X) < 1e-14


def test_what_reads_the_order_is_found() -> None:
    weight = torch.arange(5.0, dtype=torch.float64)[:, None]
    assert e.check_invariant(lambda x: (weight * x).sum(-2), X) > 0.1
    assert e.check_equivariant(lambda x: weight * x, X) > 0.1
    assert e.check_equivariant(lambda x: x.flip(-2), X) > 0.1


def test_the_error_is_relative_and_by_hand() -> None:
    x = torch.tensor([[1.0], [3.0]])
    swap = torch.tensor([1, 0])
    acts = [e.Act(e.on_rows(swap), e.same)]
    assert e.equivariance_error(lambda x: 10 * x[..., 0, 0], (x,), acts) == pytest.approx(
        2.0
    )  # |30 - 10| / 10
    assert e.equivariance_error(lambda x: 0.1 * x[..., 0, 0], (x,), acts) == pytest.approx(0.2)  # over 1


def test_f_of_x_equals_p_f_of_px_fails_on_a_cycle() -> None:
    """The printed rule f(X) = P f(PX) asks P P = I of the identity, which a 3-cycle is not."""
    P = matrix(torch.tensor([1, 2, 0]))
    x = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    assert torch.equal(P.T @ (P @ x), x)
    assert not torch.equal(P @ (P @ x), x)
    swap = matrix(torch.tensor([1, 0, 2]))
    assert torch.equal(swap @ (swap @ x), x)  # an involution hides it


def test_a_renumbered_graph_is_the_same_graph() -> None:
    x = torch.randn(4, 2, dtype=torch.float64)
    edge_index = torch.tensor([[0, 1, 1, 3], [1, 2, 3, 0]])
    attr, sizes, pi = torch.arange(4.0)[:, None], torch.tensor([4]), torch.tensor([2, 0, 3, 1])
    moved = e.on_nodes(pi)((x, edge_index, attr, sizes))

    def dense(inputs) -> torch.Tensor:
        A = torch.zeros(4, 4, dtype=torch.float64)
        A[inputs[1][1], inputs[1][0]] = inputs[2][:, 0].double() + 1
        return A

    P = matrix(pi)
    assert torch.equal(dense(moved), P @ dense((x, edge_index, attr, sizes)) @ P.T)
    assert torch.equal(moved[0], P @ x)
    order = torch.tensor([3, 1, 0, 2])
    listed = e.on_edges(order)((x, edge_index, attr, sizes))
    assert torch.equal(dense(listed), dense((x, edge_index, attr, sizes)))


def test_masks_move_with_their_elements() -> None:
    mask = torch.tensor([[True, True, False, True, False]] * 2)
    acts = [e.Act(e.on_rows(torch.tensor([4, 3, 2, 1, 0])), e.same)]
    assert e.equivariance_error(lambda x, m: (x * m[..., None]).sum(-2), (X, mask), acts) < 1e-14


def test_nan_and_other_shapes_are_not_passed_over() -> None:
    acts = [e.Act(e.on_rows(torch.arange(5)), e.same)]
    assert math.isnan(e.equivariance_error(lambda x: x / 0 * 0, (X,), acts))
    with pytest.raises(ValueError, match="the shape of g f"):
        e.equivariance_error(lambda x: x, (X,), [e.Act(e.on_rows(torch.arange(5)), lambda y: y[..., 0])])
    with pytest.raises(ValueError, match="got none"):
        e.equivariance_error(lambda x: x, (X,), [])
