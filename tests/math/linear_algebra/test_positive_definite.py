"""Cholesky factors with a ladder of jitter: none where none is needed, what was added is told."""

import pytest
import torch

from margin.math.linear_algebra.positive_definite import LADDER, factored


def test_a_definite_matrix_gets_no_jitter() -> None:
    a = torch.randn(6, 6, dtype=torch.float64)
    K, b = a @ a.T + torch.eye(6), torch.randn(6, dtype=torch.float64)
    factor = factored(K)
    assert factor.jitter == 0
    assert torch.allclose(K @ factor.solve(b), b)
    assert torch.allclose(K @ factor.solve(b[:, None]), b[:, None])
    assert torch.allclose(factor.half_solve(b[:, None]).square().sum(), b @ torch.linalg.solve(K, b))
    assert torch.allclose(factor.log_det(), torch.logdet(K))


def test_a_singular_matrix_gets_the_least_step_that_serves() -> None:
    K = 3 * torch.ones(4, 4, dtype=torch.float64)
    factor = factored(K)
    assert factor.jitter in [3 * step for step in LADDER[1:]]
    shifted = K + factor.jitter * torch.eye(4)
    assert torch.allclose(factor.lower @ factor.lower.T, shifted, rtol=0, atol=1e-14)


def test_what_is_no_covariance_is_refused() -> None:
    with pytest.raises(ValueError, match="positive semidefinite up to rounding"):
        factored(torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64))
    with pytest.raises(ValueError, match="must be finite"):
        factored(torch.tensor([[torch.nan]], dtype=torch.float64))
