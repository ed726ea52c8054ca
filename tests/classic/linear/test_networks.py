"""Linear networks: the formulas of their learning dynamics against autograd and numerical integration."""

import math
from itertools import pairwise

import pytest
import torch
from scipy.integrate import solve_ivp

from margin.classic.linear.networks import (
    LinearNetwork,
    aligned,
    balance,
    flow,
    half_time,
    mode_strength,
    one_layer_flow,
    product,
    two_layer_gradients,
    whitened_risk,
)


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_five_layers_are_one_matrix_of_the_least_width() -> None:
    torch.manual_seed(0)
    model = LinearNetwork(8, 5, hidden=(7, 3, 6, 9)).double()
    x = matrix(20, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(50):
        optimizer.zero_grad()
        (model(x) - matrix(20, 5, 1)).square().mean().backward()
        optimizer.step()
    total = product(model.weights).detach()
    assert torch.allclose(model(x), x @ total.T, atol=1e-12)
    assert int(torch.linalg.matrix_rank(total)) == 3
    assert LinearNetwork(8, 5, hidden=()).weights[0].shape == (5, 8)
    with pytest.raises(ValueError, match=r"every width must be at least 1: got hidden=\(3, 0\)"):
        LinearNetwork(8, 5, hidden=(3, 0))


def test_the_whitened_risk_is_the_squared_error_less_a_constant() -> None:
    x = matrix(50, 4)
    x = x @ torch.linalg.inv(torch.linalg.cholesky(x.T @ x / 50)).T
    assert torch.allclose(x.T @ x / 50, torch.eye(4).double(), atol=1e-12)
    y, A = matrix(50, 3, 1), matrix(3, 4, 2)
    error = (y - x @ A.T).square().sum(1).mean() - y.square().sum(1).mean()
    assert float(whitened_risk(A, y.T @ x / 50)) == pytest.approx(float(error), rel=1e-12)


def test_gradients_are_autograds_and_the_printed_ones_lack_factors() -> None:
    """2 Q W^T - 2 G W^T, as printed in some notes, is not 2 (Q W - G) W^T: a W is missing."""
    G, Q, W = matrix(3, 4), matrix(3, 5, 1).requires_grad_(), matrix(5, 4, 2).requires_grad_()
    slopes = torch.autograd.grad(whitened_risk(Q @ W, G), (Q, W))
    found = two_layer_gradients(Q.detach(), W.detach(), G)
    for one, other in zip(slopes, found, strict=True):
        assert torch.allclose(one, other, atol=1e-12)
    square = matrix(4, 4, 3), matrix(4, 4, 4), matrix(4, 4, 5)  # where the printed form has a shape at all
    right = two_layer_gradients(*square)[0]
    Q, W, G = square
    assert not torch.allclose(right, 2 * Q @ W.T - 2 * G @ W.T, rtol=0.1)
    assert not torch.allclose(two_layer_gradients(*square)[1], 2 * Q.T @ W - 2 * Q.T @ G, rtol=0.1)


def test_the_flow_of_one_layer_is_the_exponential() -> None:
    G, A = matrix(3, 4), matrix(3, 4, 1)
    times = torch.tensor([0.0, 0.3, 1.0]).double()
    exact = one_layer_flow(A, G, times, rate=0.5)
    found = solve_ivp(
        lambda t, a: -0.5 * 2 * (a - G.flatten().numpy()),
        (0, 1),
        A.flatten().numpy(),
        t_eval=times.numpy(),
        rtol=1e-10,
        atol=1e-12,
    )
    assert torch.allclose(exact.flatten(1).T, torch.from_numpy(found.y), atol=1e-8)
    own = flow(lambda w: (2 * (w[0] - G),), (A,), 1.0, 100)[-1][0]
    assert torch.allclose(own, one_layer_flow(A, G, torch.tensor([1.0]).double())[0], atol=1e-8)


def test_descent_on_one_layer_decays_by_one_less_twice_the_rate() -> None:
    G, A = matrix(3, 4), matrix(3, 4, 1).requires_grad_()
    start = A.detach().clone()
    optimizer = torch.optim.SGD([A], lr=0.07)
    for _ in range(9):
        optimizer.zero_grad()
        whitened_risk(A, G).backward()
        optimizer.step()
    assert torch.allclose(A.detach(), G + (1 - 2 * 0.07) ** 9 * (start - G), atol=1e-12)


def test_a_mode_is_the_sigmoid() -> None:
    s, a = torch.tensor([2.0]).double(), torch.tensor([0.01], dtype=torch.float64)
    assert float(mode_strength(s, a, torch.tensor([0.5]).double())) == pytest.approx(0.4306, abs=5e-5)
    found = solve_ivp(
        lambda t, a: 4 * a * (2 - a), (0, 2), [0.01], t_eval=[0.5, 1, 2], rtol=1e-11, atol=1e-13
    )
    times = torch.tensor([0.5, 1.0, 2.0]).double()
    assert mode_strength(s, a, times).tolist() == pytest.approx(found.y[0].tolist(), rel=1e-6)
    half = torch.tensor([half_time(2.0, 0.01)], dtype=torch.float64)
    assert float(mode_strength(s, a, half)) == pytest.approx(1.0, rel=1e-12)
    assert half_time(2.0, 0.01) == pytest.approx(math.log(199) / 8)


def test_simulated_strengths_match_and_the_strongest_is_first() -> None:
    U, V = torch.linalg.qr(matrix(5, 3)).Q, torch.linalg.qr(matrix(6, 3, 1)).Q
    s = torch.tensor([3.0, 2.0, 1.0]).double()
    G = U * s @ V.T
    Q, W = aligned(G, 3, 0.01, 4)
    assert torch.allclose(Q.T @ Q, W @ W.T, atol=1e-12)
    path = flow(lambda w: two_layer_gradients(*w, G), (Q, W), 3.0, 1500)
    strengths = torch.stack([torch.einsum("ik,ij,jk->k", U, q @ w, V) for q, w in path])
    times = torch.linspace(0, 3, 1501).double()
    theory = mode_strength(s, torch.full((3,), 0.01).double(), times[:, None])
    assert (strengths - theory).abs().max() < 1e-6
    halfway = [int((strengths[:, k] < s[k] / 2).sum()) for k in range(3)]
    assert halfway == sorted(halfway)
    assert all(b > a for a, b in pairwise(halfway))
    # one layer learns all at one rate: the share left is the same for every mode
    shallow = one_layer_flow(torch.zeros(5, 6).double(), G, torch.tensor([0.2]).double())[0]
    assert torch.allclose(
        torch.einsum("ik,ij,jk->k", U, shallow, V) / s, torch.full((3,), 1 - math.exp(-0.4)).double()
    )


def test_descent_follows_the_sigmoid_up_to_its_step() -> None:
    G = torch.diag(torch.tensor([2.0, 1.0])).double()
    Q, W = aligned(G, 2, 0.01, 2)
    for _ in range(5000):
        dQ, dW = two_layer_gradients(Q, W, G)
        Q, W = Q - 1e-4 * dQ, W - 1e-4 * dW
    a = (Q @ W).diagonal()
    theory = mode_strength(
        torch.tensor([2.0, 1.0]).double(), torch.full((2,), 0.01).double(), torch.tensor([0.5]).double()
    )
    assert (a - theory).abs().max() < 1e-3


def test_the_balance_is_kept_by_the_flow_and_drifts_with_the_step_of_descent() -> None:
    G, start = matrix(3, 4), (matrix(3, 5, 1) / 2, matrix(5, 4, 2) / 2)

    def drift(pair: tuple[torch.Tensor, ...]) -> float:
        (one,), (other,) = balance(pair[::-1]), balance(start[::-1])
        return float((one - other).abs().max())

    assert drift(flow(lambda w: two_layer_gradients(*w, G), start, 1.0, 400)[-1]) < 1e-6
    drifts = []
    for rate in (0.02, 0.01, 0.005):
        Q, W = start
        for _ in range(round(1 / rate)):
            dQ, dW = two_layer_gradients(Q, W, G)
            Q, W = Q - rate * dQ, W - rate * dW
        drifts.append(drift((Q, W)))
    assert drifts[0] > 1e-3
    for one, other in pairwise(drifts):
        assert 1.6 < one / other < 2.6  # of first order in the step


def test_the_minimum_of_rank_m_leaves_the_tail_of_g() -> None:
    G = matrix(5, 6)
    S = torch.linalg.svdvals(G)
    best = aligned(G, 2, 1.0, 2)
    U, _, Vh = torch.linalg.svd(G, full_matrices=False)
    Q, W = U[:, :2] * S[:2].sqrt(), S[:2].sqrt()[:, None] * Vh[:2]
    end = flow(lambda w: two_layer_gradients(*w, G), best, 8.0, 2000)[-1]
    assert torch.allclose(end[0] @ end[1], Q @ W, atol=1e-6)
    assert float((G - end[0] @ end[1]).square().sum()) == pytest.approx(float(S[2:].square().sum()), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_descent_from_any_start_reaches_the_error_of_eckart_and_young(seed: int) -> None:
    G = matrix(5, 6)
    pair = [matrix(5, 2, 10 + seed).requires_grad_(), matrix(2, 6, 20 + seed).requires_grad_()]
    optimizer = torch.optim.LBFGS(pair, max_iter=500, line_search_fn="strong_wolfe", tolerance_change=1e-14)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = whitened_risk(pair[0] @ pair[1], G)
        value.backward()
        return value

    optimizer.step(loss)
    tail = float(torch.linalg.svdvals(G)[2:].square().sum())
    found = float(whitened_risk(pair[0] @ pair[1], G).detach() + G.square().sum())
    assert found == pytest.approx(tail, rel=1e-8)
