"""Diagonals against dense matrices: unbiased, errors right, exact where they can be."""

import math

import pytest
import torch
from torch import Generator

from margin.theory.curvature.hutchinson import as_matrix, as_symmetric, estimated_diagonal


def matrix(n=40):
    A = torch.randn(n, n, generator=Generator().manual_seed(1), dtype=torch.float64)
    return A + A.T


def test_the_estimate_is_within_its_errors_which_are_those_of_the_formula():
    A = matrix()
    value, stderr = estimated_diagonal(lambda v: A @ v, 40, Generator().manual_seed(2), probes=39)
    # 40 coordinates at 4 standard errors from 39 draws: Student's tail 2.8e-4 each; 6 have 2e-9.
    assert bool(((value - A.diagonal()).abs() <= 6 * stderr).all())
    expected = (A.square().sum(1) - A.diagonal().square()).div(39).sqrt()
    ratio = stderr / expected
    # A variance from 39 draws has relative error 0.23 at most: its root 0.115; mean over 40 coordinates.
    assert ratio.mean().item() == pytest.approx(1, abs=0.1)


def test_it_is_unbiased():
    A = matrix(10)
    runs = [
        estimated_diagonal(lambda v: A @ v, 10, Generator().manual_seed(seed), probes=4)[0]
        for seed in range(400)
    ]
    runs = torch.stack(runs)
    off = (runs.mean(0) - A.diagonal()).abs() / (runs.std(0) / math.sqrt(400))
    assert off.max() <= 4.9  # 10 coordinates: probability 1e-5


def test_a_diagonal_matrix_and_enough_probes_are_exact():
    d = torch.linspace(-1, 2, 30, dtype=torch.float64)
    value, stderr = estimated_diagonal(lambda v: d * v, 30, Generator().manual_seed(0), probes=2)
    torch.testing.assert_close(value, d, rtol=0, atol=1e-15)
    assert stderr.max() < 1e-15
    A = matrix()
    value, stderr = estimated_diagonal(lambda v: A @ v, 40, Generator(), probes=40)
    assert torch.equal(value, A.diagonal()) and not bool(stderr.any())


def test_the_matrix_is_written_down_column_by_column():
    A = torch.randn(5, 5, generator=Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(as_matrix(lambda v: A @ v, 5), A)
    torch.testing.assert_close(as_symmetric(lambda v: A @ v, 5), (A + A.T) / 2)


def test_one_probe_has_no_error():
    with pytest.raises(ValueError, match="two probes: got 1"):
        estimated_diagonal(lambda v: v, 3, Generator(), probes=1)
