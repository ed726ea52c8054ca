"""Power iteration against the singular values, and what the spectral radius is to the norm."""

import math

import pytest
import torch

from margin.math.linear_algebra.norms import power_iteration, spectral_radius


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def start() -> torch.Generator:
    return torch.Generator().manual_seed(9)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (7, 3), (40, 40)])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_largest_singular_value_with_its_vectors(shape: tuple[int, int], seed: int) -> None:
    A = drawn(*shape, seed=seed)
    found = power_iteration(A, generator=start())
    assert found.value == pytest.approx(float(torch.linalg.matrix_norm(A, 2)), rel=1e-9)
    torch.testing.assert_close(A @ found.right, found.value * found.left, rtol=0, atol=1e-8)
    torch.testing.assert_close(A.T @ found.left, found.value * found.right, rtol=0, atol=1e-8)
    assert float(found.left.norm()) == pytest.approx(1.0)
    assert float(found.right.norm()) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_never_above_and_no_less_than_any_stretch_or_eigenvalue(seed: int) -> None:
    A = drawn(6, 6, seed=seed)
    norm = float(torch.linalg.matrix_norm(A, 2))
    value = power_iteration(A, generator=start(), tolerance=0.1).value  # coarse: still a lower bound
    assert value <= norm * (1 + 1e-12)
    exact = power_iteration(A, generator=start()).value
    assert spectral_radius(A) <= exact * (1 + 1e-9)
    x = drawn(6, 100, seed=seed + 1)
    assert float(((A @ x).norm(dim=0) / x.norm(dim=0)).max()) <= exact * (1 + 1e-9)


def test_radius_and_norm_are_equal_for_normal_matrices_alone() -> None:
    S = drawn(5, 5)
    for normal in (S + S.T, S - S.T, torch.linalg.qr(S)[0]):
        assert spectral_radius(normal) == pytest.approx(float(torch.linalg.matrix_norm(normal, 2)), rel=1e-12)
    nilpotent = torch.tensor([[0.0, 3.0], [0.0, 0.0]]).double()
    assert spectral_radius(nilpotent) == 0.0
    assert power_iteration(nilpotent, generator=start()).value == pytest.approx(3.0, rel=1e-12)


def test_two_equal_singular_values_are_no_obstacle() -> None:
    assert power_iteration(torch.eye(4).double(), generator=start()).steps == 1


def test_slow_convergence_is_said() -> None:
    A = torch.diag(torch.tensor([1.0, 0.999])).double()
    with pytest.raises(ArithmeticError, match="not converged after 5 steps: residual"):
        power_iteration(A, generator=start(), max_steps=5)
    assert power_iteration(A, generator=start()).value == pytest.approx(1.0, rel=1e-9)


def test_the_matrix_0_has_norm_0() -> None:
    assert power_iteration(torch.zeros(2, 3).double(), generator=start()).value == 0.0


def test_it_refuses() -> None:
    for A in (torch.zeros(0, 3), torch.tensor([[math.nan]]), torch.tensor([[math.inf, 1.0]])):
        with pytest.raises(ValueError, match="needs finite entries"):
            power_iteration(A, generator=start())
    for options in ({"tolerance": 0.0}, {"tolerance": math.nan}, {"max_steps": 0}):
        with pytest.raises(ValueError, match="tolerance must be positive and max_steps >= 1"):
            power_iteration(torch.eye(2), generator=start(), **options)
