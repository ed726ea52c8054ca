"""Reading a sequence back from the last state of a linear recurrence: exact at the roots of unity."""

import math

import numpy as np
import pytest
import torch

from margin.sequence.linear.lru import (
    capacity,
    memory,
    reconstructed,
    roots_of_unity,
    vandermonde,
)

EPS = torch.finfo(torch.float64).eps


def last_state(eigenvalues: torch.Tensor, B: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    zeta = torch.zeros(len(eigenvalues), dtype=torch.complex128)
    for x_t in x:
        zeta = eigenvalues * zeta + B @ x_t.to(B.dtype)
    return zeta


def relative(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).norm() / y.norm())


def test_the_last_state_is_the_vandermonde_matrix_times_the_inputs() -> None:
    values = torch.tensor([0.5 + 0.1j, -0.3j, 0.0], dtype=torch.complex128)
    V = vandermonde(values, 4)
    expected = np.vander(values.numpy(), 4)  # decreasing powers
    np.testing.assert_allclose(V, expected, atol=1e-15)
    assert V[2].tolist() == [0, 0, 0, 1]  # 0^0 = 1
    x = torch.randn(4, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(V @ x[:, 0].to(V.dtype), last_state(values, torch.ones(3, 1).to(V.dtype), x))


@pytest.mark.parametrize("count", [1, 2, 16, 100])
def test_roots_of_unity_have_condition_1(count: int) -> None:
    values, one = roots_of_unity(count), torch.ones(count, 1, dtype=torch.complex128)
    x = torch.randn(count, 1, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    found = reconstructed(last_state(values, one, x), values, one, count)
    assert found.condition == pytest.approx(1.0, abs=1e-12)
    assert relative(found.x, x) <= count * found.condition * EPS


@pytest.mark.parametrize("seed", range(10))
def test_any_distinct_eigenvalues_read_back_within_condition_times_rounding(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    m, n = 12, 2
    radius = (0.8 + 0.2 * torch.rand(m, generator=g, dtype=torch.float64)).sqrt()
    values = torch.polar(radius, 2 * math.pi * torch.rand(m, generator=g, dtype=torch.float64))
    B = torch.randn(m, n, generator=g, dtype=torch.complex128)
    time = capacity(m, n) // 2
    x = torch.randn(time, n, generator=g, dtype=torch.float64)
    found = reconstructed(last_state(values, B, x), values, B, time)
    assert relative(found.x, x) <= time * n * found.condition * EPS
    assert relative(found.x, x) < 1e-6


def test_at_capacity_a_real_sequence_needs_half_as_many_complex_states() -> None:
    """Conjugates say nothing new: the roots of -1 above the axis, m of 2 m, hold 2 m real numbers."""
    m = 8
    values = torch.polar(
        torch.ones(m, dtype=torch.float64), math.pi * (torch.arange(m, dtype=torch.float64) + 0.5) / m
    )
    one = torch.ones(m, 1, dtype=torch.complex128)
    assert capacity(m, 1) == 16
    x = torch.randn(16, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = reconstructed(last_state(values, one, x), values, one, 16)
    assert found.condition == pytest.approx(1.0, abs=1e-12)
    assert relative(found.x, x) < 1e-13


def test_tens_of_real_eigenvalues_read_nothing_back() -> None:
    values = torch.linspace(0.02, 0.98, 40, dtype=torch.float64).to(torch.complex128)
    one = torch.ones(40, 1, dtype=torch.complex128)
    x = torch.randn(40, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = reconstructed(last_state(values, one, x), values, one, 40)
    assert found.condition > 1e16
    assert relative(found.x, x) > 0.01


def test_equal_eigenvalues_are_told_by_the_condition() -> None:
    values = torch.tensor([0.5, 0.5, 0.9j], dtype=torch.complex128)
    one = torch.ones(3, 1, dtype=torch.complex128)
    assert float(torch.linalg.cond(vandermonde(values, 3))) > 1e15
    assert reconstructed(torch.zeros(3).to(torch.complex128), values, one, 4).condition > 1e15


def test_the_real_matrix_is_the_recurrence() -> None:
    g = torch.Generator().manual_seed(0)
    values = torch.polar(torch.rand(3, generator=g).double(), torch.rand(3, generator=g).double())
    B = torch.randn(3, 2, generator=g, dtype=torch.complex128)
    x = torch.randn(2, 2, generator=g, dtype=torch.float64)
    zeta = last_state(values, B, x)
    torch.testing.assert_close(memory(values, B, 2) @ x.flatten(), torch.cat((zeta.real, zeta.imag)))


def test_it_refuses() -> None:
    values = roots_of_unity(3)
    one = torch.ones(3, 1, dtype=torch.complex128)
    with pytest.raises(ValueError, match="3 complex states hold 6 steps of 1 numbers: got 7"):
        reconstructed(torch.zeros(3, dtype=torch.complex128), values, one, 7)
    with pytest.raises(ValueError, match="time must be at least 1: got 0"):
        vandermonde(values, 0)
    for count, radius in ((0, 1.0), (2, 0.0), (2, math.nan)):
        with pytest.raises(ValueError, match="count >= 1 and radius > 0"):
            roots_of_unity(count, radius=radius)
