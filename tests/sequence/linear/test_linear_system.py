"""The linear system: both bases, its impulse response, and which powers of A grow."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from margin.sequence.linear.linear_system import (
    LinearSystem,
    classifier,
    diagonalized,
    impulse_response,
    stability,
)


def drawn(states: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(states, states, generator=g, dtype=torch.float64) / math.sqrt(states)
    B = torch.randn(states, 2, generator=g, dtype=torch.float64)
    return A, B, torch.randn(3, states, generator=g, dtype=torch.float64)


def outputs(A: np.ndarray, B: np.ndarray, C: np.ndarray, x: np.ndarray) -> np.ndarray:
    z, found = np.zeros(len(A), np.result_type(A, B)), []
    for x_t in x:
        z = A @ z + B @ x_t
        found.append(C @ z)
    return np.array(found)


@pytest.mark.parametrize("seed", range(5))
def test_outputs_are_the_same_in_both_bases(seed: int) -> None:
    A, B, C = drawn(7, seed)
    found = diagonalized(A, B, C)
    x = np.random.default_rng(seed).standard_normal((30, 2))
    dense = outputs(A.numpy(), B.numpy(), C.numpy(), x)
    diagonal = outputs(np.diag(found.eigenvalues.numpy()), found.B.numpy(), found.C.numpy(), x)
    np.testing.assert_allclose(diagonal.real, dense, rtol=0, atol=1e-10)
    np.testing.assert_allclose(diagonal.imag, 0, atol=1e-10)
    torch.testing.assert_close(  # A = P L P^{-1}, not P A P^{-1}
        found.basis @ torch.diag(found.eigenvalues), A.to(found.basis.dtype) @ found.basis
    )
    assert found.condition >= 1


def test_a_normal_transition_has_condition_1() -> None:
    angle = torch.tensor(0.7, dtype=torch.float64)
    rotation = torch.stack(
        (torch.stack((angle.cos(), -angle.sin())), torch.stack((angle.sin(), angle.cos())))
    )
    eye = torch.eye(2, dtype=torch.float64)
    assert diagonalized(rotation, eye, eye).condition == pytest.approx(1.0, abs=1e-12)


def test_a_jordan_block_has_no_diagonal_form() -> None:
    jordan, eye = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double(), torch.eye(2, dtype=torch.float64)
    with pytest.raises(ValueError, match="basis of eigenvectors: the eigenvectors of A have condition"):
        diagonalized(jordan, eye, eye)


def test_the_impulse_response_is_c_a_to_the_k_b() -> None:
    A, B, C = drawn(4, 0)
    response = impulse_response(A, B, C, 6)
    for k in range(6):
        expected = C @ torch.linalg.matrix_power(A, k) @ B
        torch.testing.assert_close(response[k], expected, rtol=1e-12, atol=1e-12)
    found = diagonalized(A, B, C)
    for k in range(6):
        torch.testing.assert_close((found.C * found.eigenvalues**k @ found.B).real, response[k])
    with pytest.raises(ValueError, match="length must be at least 1: got 0"):
        impulse_response(A, B, C, 0)


def test_the_impulse_response_is_what_the_layer_answers_to_an_impulse() -> None:
    torch.manual_seed(0)
    layer = LinearSystem(3, states=4).double()
    x = torch.zeros(3, 5, 3, dtype=torch.float64)
    x[:, 0] = torch.eye(3, dtype=torch.float64)
    with torch.no_grad():
        y, _ = layer(x)
        response = impulse_response(layer.A, layer.B, layer.C, 5)
        response[0] += torch.diag(layer.d)
    torch.testing.assert_close(y, response.permute(2, 0, 1), rtol=0, atol=1e-12)


JORDAN = [[1.0, 1.0], [0.0, 1.0]]
ROTATION = [[0.6, -0.8], [0.8, 0.6]]


@pytest.mark.parametrize(
    ("A", "expected"),
    [
        ([[0.5]], "asymptotic"),
        ([[1.0]], "marginal"),
        ([[-1.0]], "marginal"),
        ([[1.1]], "unstable"),
        ([[1.0, 0.0], [0.0, 1.0]], "marginal"),
        (JORDAN, "unstable"),
        ([[-1.0, 1.0], [0.0, -1.0]], "unstable"),
        (ROTATION, "marginal"),
        ([[0.5, 100.0], [0.0, 0.5]], "asymptotic"),  # a Jordan block inside the disc: grows, then vanishes
        ([[1.0, 5.0], [0.0, 0.5]], "marginal"),  # distinct eigenvalues, one on the circle
        ([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "unstable"),
        ([[0.0, 1.0], [0.0, 0.0]], "asymptotic"),
    ],
)
def test_the_rule_of_stability(A: list[list[float]], expected: str) -> None:
    assert stability(torch.tensor(A, dtype=torch.float64)) == expected
    norms = [
        float(torch.linalg.matrix_norm(torch.linalg.matrix_power(torch.tensor(A, dtype=torch.float64), k), 2))
        for k in (100, 1000)
    ]
    grown = norms[1] / norms[0] if norms[0] > 0 else 0.0
    assert {"asymptotic": grown < 1e-3, "marginal": abs(grown - 1) < 0.5, "unstable": grown > 5}[expected]


def test_a_jordan_block_of_a_rotation_grows_too() -> None:
    R, eye, zero = torch.tensor(ROTATION).double(), torch.eye(2).double(), torch.zeros(2, 2).double()
    grows = torch.cat((torch.cat((R, eye), 1), torch.cat((zero, R), 1)))
    assert stability(grows, tolerance=1e-6) == "unstable"
    stays = torch.cat((torch.cat((R, zero), 1), torch.cat((zero, R), 1)))
    assert stability(stays, tolerance=1e-6) == "marginal"


@pytest.mark.parametrize("size", [1e3, 1e7, 1e9])
def test_what_is_large_inside_the_disc_hides_no_jordan_block_on_its_edge(size: float) -> None:
    """In any order of the states: the threshold is that of the edge's own block."""
    large = torch.tensor([[0.0, size], [0.0, 0.5]]).double()
    turned = torch.tensor([[-1.0, size], [0.0, 0.3]]).double()
    for block, expected in ((torch.tensor(JORDAN), "unstable"), (torch.eye(2), "marginal")):
        A = torch.block_diag(large, block.double(), turned)
        assert stability(A) == expected
        for seed in range(5):
            order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
            assert stability(A[order][:, order]) == expected


@pytest.mark.parametrize(("coupling", "expected"), [(3e-6, "unstable"), (3e-7, "marginal")])
def test_a_coupling_counts_as_0_at_the_tolerance(coupling: float, expected: str) -> None:
    assert stability(torch.tensor([[1.0, coupling], [0.0, 1.0]]).double()) == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_rule_does_not_depend_on_the_basis(seed: int) -> None:
    """Rounding splits the double eigenvalue 1 of a Jordan block by 1e-8, along or off the real axis."""
    P = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    stays = torch.diag(torch.tensor([1.0, 1.0, 0.5, -0.2], dtype=torch.float64))
    grows = stays.clone()
    grows[0, 1] = 1.0
    assert stability(P @ stays @ torch.linalg.inv(P)) == "marginal"
    assert stability(P @ grows @ torch.linalg.inv(P)) == "unstable"


def test_a_printed_rule_by_the_modulus_alone_would_call_the_jordan_block_stable() -> None:
    A = torch.tensor(JORDAN).double()
    assert float(torch.linalg.eigvals(A).abs().max()) <= 1
    powers = list(itertools.accumulate([A] * 50, torch.matmul))
    assert [float(P[0, 1]) for P in powers] == [float(k) for k in range(1, 51)]


def test_it_refuses() -> None:
    for tolerance in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="tolerance must be in"):
            stability(torch.eye(2), tolerance=tolerance)
    with pytest.raises(ValueError, match="states must be at least 1: got 0"):
        LinearSystem(3, states=0)
    for gain in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="gain must be positive"):
            LinearSystem(3, gain=gain)


def test_eigenvalues_begin_in_a_disc_of_radius_gain() -> None:
    """Seed fixed; the radius of a Ginibre matrix of 400 exceeds 1 by .1 with probability below 1e-4."""
    torch.manual_seed(0)
    radius = float(LinearSystem(1, states=400, gain=0.5).eigenvalues.detach().abs().max())
    assert radius == pytest.approx(0.5, abs=0.05)


def test_a_state_to_go_on_from_and_padding() -> None:
    torch.manual_seed(0)
    layer = LinearSystem(2, states=3).double()
    x = torch.randn(2, 6, 2, dtype=torch.float64)
    whole, last = layer(x)
    first, state = layer(x[:, :2])
    second, state = layer(x[:, 2:], None, state)
    torch.testing.assert_close(torch.cat((first, second), 1), whole)
    torch.testing.assert_close(state[0], last[0])
    logits = classifier(2, 4)(x.float(), torch.tensor([6, 0]))
    assert logits.shape == (2, 4)
