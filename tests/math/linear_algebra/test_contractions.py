"""Contractions against tensordot and loops; the gradient of W X by contraction against autograd."""

from itertools import product

import pytest
import torch

from margin.math.linear_algebra.contractions import chain_rule, contract, product_derivative


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("a", [(), (2,), (2, 3)])
@pytest.mark.parametrize("b", [(), (4,), (4, 3)])
@pytest.mark.parametrize("c", [(), (5,), (2, 2)])
def test_a_contraction_is_tensordot(a, b, c):
    P, Q = randn(*a, *b), randn(*b, *c, seed=1)
    found = contract(P, Q, len(b))
    assert found.shape == (*a, *c)
    torch.testing.assert_close(found, torch.tensordot(P, Q, dims=len(b)), rtol=1e-12, atol=1e-12)


def test_a_contraction_is_the_sum_over_shared_indices():
    P, Q = randn(2, 3, 2), randn(3, 2, 4, seed=1)
    found = contract(P, Q, 2)
    for i, k in product(range(2), range(4)):
        total = sum(P[i, j1, j2] * Q[j1, j2, k] for j1, j2 in product(range(3), range(2)))
        assert float(found[i, k]) == pytest.approx(float(total), abs=1e-12)
    # tensors that are not contiguous are read by index, not by memory
    swapped = P.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(contract(swapped, Q, 2), found)


def test_the_gradient_of_a_product_by_contraction_is_autograds():
    W, X = randn(3, 4).requires_grad_(), randn(4, 5, seed=1)
    y = W @ X
    loss = y.sin().sum()
    upstream, expected = torch.autograd.grad(loss, (y, W))
    whole = product_derivative(X, 3)
    torch.testing.assert_close(whole, torch.func.jacrev(lambda W: W @ X)(W.detach()))
    found = chain_rule(upstream, whole)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, upstream @ X.mT, rtol=1e-12, atol=1e-12)


def test_axes_that_do_not_match_are_refused():
    with pytest.raises(
        ValueError, match=r"the last 1 axes of P must be the first of Q: got \(2, 3\) and \(4,"
    ):
        contract(randn(2, 3), randn(4, 3), 1)
    with pytest.raises(ValueError, match=r"shared must lie in 0 \.\. 1: got 2"):
        contract(randn(2), randn(2, 2), 2)
    with pytest.raises(ValueError, match="axes of P must be the first of Q"):
        chain_rule(randn(2, 3), randn(3, 2, 4))  # the axes of y in the wrong order
    with pytest.raises(ValueError, match="rows must be at least 1: got 0"):
        product_derivative(randn(2, 2), 0)
