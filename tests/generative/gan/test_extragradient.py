"""Steps of two-player games on the bilinear one, whose every step is a matrix."""

import math

import numpy as np
import pytest
import torch

from margin.generative.gan.game import (
    alternating,
    extragradient,
    optimistic,
    saddle_field,
    simultaneous,
)

ETA, STEPS = 0.1, 500
BILINEAR = saddle_field(lambda theta, phi: theta * phi)


def start() -> list[torch.Tensor]:
    return [torch.ones((), dtype=torch.float64), torch.ones((), dtype=torch.float64)]


def norm(w: list[torch.Tensor]) -> float:
    return math.hypot(*(float(x) for x in w))


def test_the_field_has_the_second_player_ascend() -> None:
    theta, phi = torch.tensor(2.0).double(), torch.tensor(-3.0).double()
    assert [float(x) for x in BILINEAR((theta, phi))] == [-3.0, -2.0]


def test_simultaneous_steps_leave_at_their_rate() -> None:
    w, norms = start(), []
    for _ in range(STEPS):
        w = simultaneous(BILINEAR, w, ETA)
        norms.append(norm(w))
    rate = math.sqrt(1 + ETA**2)
    assert norms[0] == pytest.approx(math.sqrt(2) * rate, abs=1e-14)
    assert norms[-1] == pytest.approx(math.sqrt(2) * rate**STEPS, rel=1e-12)
    assert norms[-1] == pytest.approx(17.02, abs=0.005)


def test_extragradient_steps_approach_at_theirs() -> None:
    w = start()
    for _ in range(STEPS):
        w = extragradient(BILINEAR, w, ETA)
    expected = math.sqrt(2) * (1 - ETA**2 + ETA**4) ** (STEPS / 2)
    assert norm(w) == pytest.approx(expected, rel=1e-12)
    assert norm(w) == pytest.approx(0.1176, abs=5e-5)


def test_with_the_other_players_old_place_the_rule_diverges() -> None:
    """grad_theta l(theta_half, phi), grad_phi l(theta, phi_half), as the notes print: plain steps here."""
    w, plain = start(), start()
    for _ in range(STEPS):
        half = simultaneous(BILINEAR, w, ETA)
        theta = w[0] - ETA * BILINEAR((half[0], w[1]))[0]
        phi = w[1] - ETA * BILINEAR((w[0], half[1]))[1]
        w, plain = [theta, phi], simultaneous(BILINEAR, plain, ETA)
    assert [float(x) for x in w] == [float(x) for x in plain]
    assert norm(w) == pytest.approx(17.02, abs=0.005)


def test_alternating_steps_circle() -> None:
    """phi first: the step's matrix [[1 - eta^2, -eta], [eta, 1]] has determinant 1, complex eigenvalues."""
    matrix = np.array([[1 - ETA**2, -ETA], [ETA, 1.0]])
    w = start()
    for k in range(1, STEPS + 1):
        w = alternating(BILINEAR, w, ETA)
        assert 1.2 < norm(w) < 1.6
        if k in (1, 7, STEPS):
            expected = np.linalg.matrix_power(matrix, k) @ [1.0, 1.0]
            np.testing.assert_allclose([float(x) for x in w], expected, rtol=1e-10)


def test_optimistic_steps_are_their_recursion_and_approach() -> None:
    """w_{t+1} = w_t - eta J (2 w_t - w_{t-1}), J = [[0, 1], [-1, 0]], w_{-1} = w_0: a matrix of two steps."""
    j, eye = np.array([[0.0, 1.0], [-1.0, 0.0]]), np.eye(2)
    matrix = np.block([[eye - 2 * ETA * j, ETA * j], [eye, np.zeros((2, 2))]])
    w = start()
    before = BILINEAR(w)
    for _ in range(STEPS):
        w, before = optimistic(BILINEAR, w, before, ETA)
    expected = (np.linalg.matrix_power(matrix, STEPS) @ np.ones(4))[:2]
    np.testing.assert_allclose([float(x) for x in w], expected, rtol=1e-9)
    assert norm(w) < 0.2


def test_a_game_of_vectors_with_a_solution_elsewhere() -> None:
    g = torch.Generator().manual_seed(0)
    a = torch.eye(3).double() + 0.2 * torch.randn(3, 3, generator=g, dtype=torch.float64)
    b, c = torch.randn(2, 3, generator=g, dtype=torch.float64)
    field = saddle_field(lambda theta, phi: theta @ a @ phi - theta @ b - c @ phi)
    w = [torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)]
    for _ in range(200):
        w = extragradient(field, w, 0.5)
    np.testing.assert_allclose(w[1].numpy(), np.linalg.solve(a.numpy(), b.numpy()), atol=1e-6)
    np.testing.assert_allclose(w[0].numpy(), np.linalg.solve(a.numpy().T, c.numpy()), atol=1e-6)
