"""The continuous network: attention, energy, one-step recall, its fixed points, bad inputs."""

import math

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from margin.classic.memory.associative_memory import squared_distance
from margin.classic.memory.dense_associative_memory import (
    ModernHopfield,
    continuous_energy,
    continuous_update,
    separations,
)
from margin.core.types import Batch


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("beta", [0.01, 1.0, 20.0])
def test_one_update_is_attention(beta: float) -> None:
    X, xi = normal(0, 11, 6), normal(1, 9, 6)
    attention = F.scaled_dot_product_attention(xi[None], X[None], X[None], scale=beta)[0]
    assert torch.allclose(continuous_update(X, xi, beta), attention, atol=1e-12)
    head = torch.nn.MultiheadAttention(6, 1, bias=False, dtype=torch.float64)  # with identity projections
    with torch.no_grad():
        head.in_proj_weight.copy_(torch.eye(6).repeat(3, 1))
        head.out_proj.weight.copy_(torch.eye(6))
    query = xi * beta * math.sqrt(6)  # it divides by sqrt(d)
    assert torch.allclose(head(query, X, X)[0], attention, atol=1e-10)


@pytest.mark.parametrize("beta", [0.05, 1.0, 5.0])
def test_the_energy_falls_along_the_update_and_is_not_negative(beta: float) -> None:
    X, xi = normal(2, 12, 5), 3 * normal(3, 40, 5)
    before = continuous_energy(X, xi, beta)
    for _ in range(30):
        xi = continuous_update(X, xi, beta)
        after = continuous_energy(X, xi, beta)
        assert (after <= before + 1e-12).all()
        assert (after >= 0).all()
        before = after


def test_the_update_is_where_the_bounded_energy_is_least() -> None:
    # by the concave-convex procedure: xi' minimizes |.|^2 / 2 less the tangent of lse at xi
    X, xi = normal(4, 6, 3), normal(5, 1, 3).requires_grad_(True)
    lse = (2.0 * xi @ X.T).logsumexp(1).sum() / 2.0
    (slope,) = torch.autograd.grad(lse, xi)
    assert torch.allclose(slope, continuous_update(X, xi.detach(), 2.0), atol=1e-12)


def test_the_energy_is_its_formula() -> None:
    X, xi = normal(6, 4, 3), normal(7, 1, 3)
    beta, M = 0.7, max(float(x.norm()) for x in X)
    lse = math.log(sum(math.exp(beta * float(x @ xi[0])) for x in X)) / beta
    expected = -lse + float(xi[0] @ xi[0]) / 2 + math.log(4) / beta + M**2 / 2
    assert continuous_energy(X, xi, beta).item() == pytest.approx(expected, abs=1e-12)


def test_separated_patterns_are_recalled_in_one_update() -> None:
    X = F.normalize(normal(8, 20, 64), dim=1) * 8
    noisy = X + 0.3 * normal(9, 20, 64)
    memory = ModernHopfield(64, 20, beta=2.0).double()
    memory.store(X, lambda x: x)
    assert (memory(noisy) - X).abs().max() <= 1e-6
    assert (separations(X) > 10).all()


def test_a_cold_network_gives_a_pattern_and_a_hot_one_the_mean() -> None:
    X = normal(10, 7, 16)
    assert torch.allclose(continuous_update(X, X, 1e-9), X.mean(0).expand_as(X), atol=1e-6)
    assert torch.allclose(continuous_update(X, X, 1e3), X, atol=1e-12)


def test_separations_by_hand() -> None:
    X = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    assert separations(X).tolist() == [1 - 2, 4 - 2, 9 - 0]


def test_a_stored_digit_is_retrieved_without_learned_projections() -> None:
    # a public failure: learned projections and a beta of 1 / sqrt(d) blur stored digits into their mean
    x = torch.from_numpy(load_digits().data[:50])
    x = (x - x.mean()) / x.std()
    x = F.normalize(x, dim=1) * 8
    memory = ModernHopfield(64, 50).double()
    memory.store(x, lambda x: x)
    assert (memory(x) - x).norm(dim=1).max() <= 0.05 * 8
    assert (continuous_update(x, x, 1 / 64) - x).norm(dim=1).min() > 2


def test_empty_rows_are_not_attended_to() -> None:
    X, xi = normal(11, 4, 6), normal(12, 5, 6)
    roomy, full = ModernHopfield(6, 50).double(), ModernHopfield(6, 4).double()
    roomy.store(X[:1], lambda x: x)
    roomy.store(X[1:], lambda x: x)
    full.store(X, lambda x: x)
    assert torch.allclose(roomy(xi), full(xi), atol=1e-12)
    assert torch.allclose(full(xi), continuous_update(X, xi, 1.0), atol=1e-12)


def test_updates_are_repeated() -> None:
    X, xi = normal(13, 4, 6), normal(14, 5, 6)
    memory = ModernHopfield(6, 4, beta=0.5, updates=3).double()
    memory.store(X, lambda x: x)
    expected = xi
    for _ in range(3):
        expected = continuous_update(X, expected, 0.5)
    assert torch.allclose(memory(xi), expected, atol=1e-12)


def test_the_loss_is_the_squared_distance_from_the_nearest_pattern() -> None:
    X = torch.tensor([[4.0, 0.0], [0.0, 4.0]])
    memory = ModernHopfield(2, 2, beta=1e-6)
    memory.store(X, lambda x: x)
    loss = squared_distance(memory, Batch((torch.tensor([[3.0, 1.0]]),)), torch.Generator())
    assert loss.tolist() == pytest.approx([(2**2 + 2**2) / 2], abs=1e-3)


def test_bad_options_and_inputs_are_refused() -> None:
    for beta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="beta must be positive, updates at least 1: got beta="):
            ModernHopfield(2, 2, beta=beta)
    with pytest.raises(ValueError, match="updates=0"):
        ModernHopfield(2, 2, updates=0)
    with pytest.raises(ValueError, match=r"inputs must be finite: got inf \(row 1, unit 0\)"):
        ModernHopfield(2, 2).store(torch.tensor([[0.0, 1.0], [math.inf, 0.0]]), lambda x: x)
