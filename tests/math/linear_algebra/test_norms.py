"""The chain of norms on random vectors, at its equality cases, and the geometry of cosines."""

import math

import pytest
import torch
from torch.nn import functional as F

from margin.math.linear_algebra.norms import norm_chain


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dim", [1, 2, 3, 10, 1000])
def test_the_chain_never_falls(dim):
    chain = norm_chain(randn(200, dim))
    assert chain.shape == (200, 5)
    steps = chain.diff(dim=-1)
    assert bool((steps >= -1e-12 * chain[:, 1:]).all())
    if dim > 1:
        assert bool((steps > 0).all())  # a random vector is no equality case


def test_the_five_are_the_norms_by_hand():
    assert norm_chain(torch.tensor([3.0, -4.0])).tolist() == pytest.approx(
        [5 / math.sqrt(2), 4, 5, 7, 5 * math.sqrt(2)]
    )


@pytest.mark.parametrize("dim", [2, 5, 64])
def test_a_unit_vector_and_a_vector_of_ones_are_the_equality_cases(dim):
    unit = norm_chain(torch.eye(dim, dtype=torch.float64)[0]).tolist()
    assert unit == pytest.approx([dim**-0.5, 1, 1, 1, dim**0.5])
    ones = norm_chain(torch.ones(dim, dtype=torch.float64)).tolist()
    assert ones == pytest.approx([1, 1, dim**0.5, dim, dim])


def test_a_space_of_dimension_0_has_no_chain():
    with pytest.raises(ValueError, match="dimension >= 1: got 0"):
        norm_chain(torch.zeros(3, 0))


def test_distances_are_norms_less_twice_the_inner_product():
    x, y = randn(100, 5), randn(100, 5, seed=1)
    apart = (x - y).square().sum(1)
    cosine = F.cosine_similarity(x, y)
    lengths = x.norm(dim=1), y.norm(dim=1)
    expected = lengths[0] ** 2 + lengths[1] ** 2 - 2 * cosine * lengths[0] * lengths[1]
    torch.testing.assert_close(apart, expected, rtol=1e-12, atol=1e-12)


def test_an_equilateral_triangle_has_cosine_one_half():
    a, b = torch.tensor([1.0, 0.0]).double(), torch.tensor([0.5, math.sqrt(3) / 2], dtype=torch.float64)
    assert float((a - b).norm()) == pytest.approx(1)
    assert float(F.cosine_similarity(a, b, dim=0)) == pytest.approx(0.5, abs=1e-15)
