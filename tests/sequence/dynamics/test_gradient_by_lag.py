"""The gradient by lag: against autograd through whole passes, closed forms, and power iteration."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.nn.recurrence import Recurrence, State
from margin.sequence.dynamics import gradients
from margin.sequence.dynamics.gradients import (
    by_lag,
    chosen_lags,
    flat,
    rates,
    spectral,
    trajectory,
    unflat,
)
from margin.sequence.linear.linear_system import LinearSystem
from margin.sequence.linear.lru import LRU
from margin.sequence.linear.mingru import MinGRU
from margin.sequence.recurrent.bidirectional import recurrence as bidirectional
from margin.sequence.recurrent.elman import recurrence as elman
from margin.sequence.recurrent.gru import ResetBeforeGRU
from margin.sequence.recurrent.lstm import recurrence as lstm

T, N, M = 9, 2, 3

KINDS = {
    "elman of two layers": lambda: elman(N, hidden=M, layers=2),
    "lstm": lambda: lstm(N, hidden=M),
    "gru": lambda: ResetBeforeGRU(N, hidden=M),
    "mingru": lambda: MinGRU(N, hidden=M),
    "lru": lambda: LRU(N, states=M),
    "linear system": lambda: LinearSystem(N, states=M),
}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def made(name: str) -> Recurrence:
    torch.manual_seed(0)
    return KINDS[name]().double().eval()


def system(A: Tensor) -> LinearSystem:
    """A linear system of transition A."""
    layer = LinearSystem(N, states=len(A)).double()
    with torch.no_grad():
        layer.A.copy_(A)
    return layer


class Forgetful(Recurrence):
    """A step that keeps what it is given and forgets its state."""

    def __init__(self) -> None:
        super().__init__(N, N)
        self.scale = nn.Parameter(torch.ones(()))

    def initial(self, x: Tensor) -> State:
        return (x.new_zeros(x.shape[0], N),)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.scale * x, (self.scale * x,)


def brute_force(layer: Recurrence, x: Tensor, lag: int) -> float:
    """The norm of the last state's derivative by the state ``lag`` steps before, by whole passes."""
    before = layer(x[None, : len(x) - lag], None, layer.initial(x[None]))[1]

    def last(row: Tensor) -> Tensor:
        return flat(layer(x[None, len(x) - lag :], None, unflat(row[None], before))[1])[0]

    J = torch.autograd.functional.jacobian(last, flat(before)[0])
    return float(torch.linalg.svdvals(J)[0])


@pytest.mark.parametrize("name", KINDS)
def test_it_is_the_derivative_of_a_whole_pass_at_every_lag(name: str) -> None:
    layer, x = made(name), drawn(0, 2, T, N)
    found = by_lag(layer, x)
    assert found.lags.tolist() == [1, 2, 3, 4, 6, 8, 9]
    assert not found.errors.any()
    for i in range(2):
        expected = [brute_force(layer, x[i], int(lag)) for lag in found.lags]
        torch.testing.assert_close(found.norms[i].tolist(), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", ["elman of two layers", "gru", "lru", "mingru"])
def test_products_with_vectors_find_the_same_norms_within_their_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x, lengths = made(name), drawn(0, 3, T, N), torch.tensor([T, 5, 0])
    exact = by_lag(layer, x, lengths)
    monkeypatch.setattr(gradients, "EXACT", 0)
    found = by_lag(layer, x, lengths)
    assert torch.equal(found.norms.isnan(), exact.norms.isnan())
    seen = ~exact.norms.isnan()
    gap = ((found.norms - exact.norms) / exact.norms).abs()[seen]
    assert float(gap.max()) <= 1e-6
    assert bool((found.norms <= exact.norms * (1 + 1e-12))[seen].all())  # no vector is stretched more
    assert bool((found.errors[seen] >= 0).all()) and float(found.errors[seen].max()) <= 1e-3


def test_a_large_derivative_has_an_error_that_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 evenly spread singular values 12 vectors see the largest to a few percent, and say so."""
    Q, _ = torch.linalg.qr(drawn(3, 30, 30))
    A = Q * torch.linspace(1, 2, 30, dtype=torch.float64)
    monkeypatch.setattr(gradients, "EXACT", 0)
    found = by_lag(system(A), drawn(0, 2, 1, N))
    assert found.lags.tolist() == [1]
    assert bool((found.norms <= 2 * (1 + 1e-12)).all()) and bool((found.norms >= 1.9).all())
    true = torch.linalg.svdvals(A)
    nearest = (found.norms[:, 0, None] - true).abs().amin(1)
    assert bool((nearest <= found.errors[:, 0] * found.norms[:, 0] + 1e-12).all())
    assert 1e-3 < float(found.errors.max()) < 0.2
    monkeypatch.setattr(gradients, "ROUNDS", 40)
    exact = by_lag(system(A), drawn(0, 2, 1, N))
    torch.testing.assert_close(exact.norms, torch.full_like(exact.norms, 2.0), rtol=1e-5, atol=0)
    nilpotent = by_lag(system(torch.diag(torch.ones(2, dtype=torch.float64), 1)), drawn(0, 1, 4, N))
    torch.testing.assert_close(nilpotent.norms[0].tolist(), [1.0, 1.0, 0.0, 0.0], rtol=1e-12, atol=1e-300)


def test_after_three_vectors_it_is_the_best_of_their_span_with_its_residual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another way: the largest ||A w|| over the span of v, A^T A v, (A^T A)^2 v, and ||A^T u - s w|| / s."""
    A = drawn(3, 8, 8)
    v = torch.randn(1, 8, generator=Generator().manual_seed(0), dtype=torch.float64)[0]
    Q, _ = torch.linalg.qr(torch.stack((v, A.T @ A @ v, A.T @ A @ A.T @ A @ v), 1))
    values, rights = torch.linalg.svd(A @ Q)[1:]
    w, s = Q @ rights[0], values[0]
    residual = (A.T @ (A @ w / s) - s * w).norm() / s
    monkeypatch.setattr(gradients, "EXACT", 0)
    monkeypatch.setattr(gradients, "ROUNDS", 3)
    found = by_lag(system(A), drawn(0, 1, 1, N))
    assert float(found.norms) == pytest.approx(float(s), rel=1e-6)  # A is kept in float32
    assert float(found.errors) == pytest.approx(float(residual), rel=1e-5)
    assert float(residual) > 0.01


def test_each_example_is_looked_at_from_its_own_end() -> None:
    layer, x = made("gru"), drawn(0, 3, T, N)
    found = by_lag(layer, x, torch.tensor([T, 4, 0]))
    alone = by_lag(layer, x[1:2, :4])
    torch.testing.assert_close(found.norms[1, :4], alone.norms[0], rtol=1e-12, atol=0)
    assert bool(found.norms[1, 4:].isnan().all()) and bool(found.norms[2].isnan().all())
    worse = torch.cat((x[1:2, :4], torch.full((1, T - 4, N), math.nan)), 1)
    again = by_lag(layer, worse, torch.tensor([4]))
    torch.testing.assert_close(again.norms[0], alone.norms[0], rtol=1e-12, atol=0)


def test_it_begins_where_the_state_is_said_to_be() -> None:
    layer, x = made("gru"), drawn(0, 1, T, N)
    start = (3 * drawn(5, 1, M),)
    J = torch.autograd.functional.jacobian(lambda z: layer(x, None, (z[None],))[1][0][0], start[0][0])
    found = by_lag(layer, x, None, start)
    assert float(found.norms[0, -1]) == pytest.approx(float(torch.linalg.svdvals(J)[0]), rel=1e-10)
    assert abs(float(by_lag(layer, x).norms[0, -1]) / float(found.norms[0, -1]) - 1) > 1e-3


@pytest.mark.parametrize("g", [0.5, 1.0, 1.5])
def test_a_scaled_orthogonal_linear_network_has_exactly_the_powers_of_its_scale(g: float) -> None:
    Q, _ = torch.linalg.qr(drawn(3, M, M))
    found = by_lag(system(g * Q), drawn(0, 2, 40, N))
    expected = (g ** found.lags.double()).expand(2, -1)
    torch.testing.assert_close(found.norms, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(rates(found), torch.full_like(expected, g), rtol=1e-12, atol=0)


def test_a_nilpotent_matrix_of_large_norm_does_not_explode() -> None:
    """sigma_1 = 10, and after m steps nothing is left: a norm above 1 / alpha implies no explosion."""
    U = 10 * torch.diag(torch.ones(M - 1, dtype=torch.float64), 1)
    assert float(torch.linalg.matrix_norm(U, 2)) == 10
    found = by_lag(system(U), drawn(0, 1, T, N))
    assert found.norms[0].tolist() == [10.0, 100.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_diagonal_recurrences_have_the_largest_product_of_their_gates() -> None:
    lru, mingru, x = made("lru"), made("mingru"), drawn(0, 1, T, N)
    modulus = lru.eigenvalues.abs().max()  # type: ignore[union-attr,operator]
    found = by_lag(lru, x)
    torch.testing.assert_close(found.norms[0], (modulus**found.lags).detach(), rtol=1e-12, atol=0)
    gates = mingru.logits(x).sigmoid()[0].detach()  # type: ignore[operator]
    expected = [float(gates[T - int(k) :].prod(0).max()) for k in found.lags]
    torch.testing.assert_close(by_lag(mingru, x).norms[0].tolist(), expected, rtol=1e-12, atol=0)


def test_of_blocks_on_the_diagonal_the_rows_are_sent_back_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = made("lru"), drawn(0, 2, T, N)
    lengths = torch.tensor([T, 4])
    whole = by_lag(layer, x, lengths)
    monkeypatch.setattr(gradients, "EXACT", 2)
    blocks = by_lag(layer, x, lengths, block=2)
    torch.testing.assert_close(blocks.norms, whole.norms, rtol=1e-12, atol=0, equal_nan=True)
    assert not blocks.errors.nan_to_num(0.0).any()


def test_products_with_vectors_see_norms_whose_squares_are_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "EXACT", 2)
    Q, _ = torch.linalg.qr(drawn(3, M, M))
    found = by_lag(system(1e-60 * Q), drawn(0, 1, 4, N))
    expected = 1e-60 ** found.lags.double()
    torch.testing.assert_close(found.norms[0], expected, rtol=1e-9, atol=0)


def test_a_part_of_the_state_is_moved_with_the_rest_held() -> None:
    """Of two layers the upper one's own derivative is the product of D U, of its states alone."""
    layer, x = made("elman of two layers"), drawn(0, 1, T, N)
    U = layer.layer.weight_hh_l1.detach()  # type: ignore[union-attr]
    z = torch.stack([state[0][0, 1] for state in trajectory(layer, x, layer.initial(x))])
    P, expected = torch.eye(M, dtype=torch.float64), []
    for t in range(T, 0, -1):
        P = P @ torch.diag(1 - z[t] ** 2) @ U
        expected.append(float(torch.linalg.matrix_norm(P, 2)))
    found = by_lag(layer, x, part=slice(M, 2 * M))
    wanted = [expected[int(k) - 1] for k in found.lags]
    torch.testing.assert_close(found.norms[0].tolist(), wanted, rtol=1e-10, atol=0)


def test_what_stands_behind_the_part_is_held_too() -> None:
    """An LSTM's dh / dh with its cell held, where the cell is not 0."""
    layer, x = made("lstm"), drawn(0, 1, 1, N)
    h, c = drawn(1, 1, 1, M), 3 * drawn(2, 1, 1, M)
    J = torch.autograd.functional.jacobian(lambda z: layer(x, None, (z, c))[1][0].flatten(), h)
    found = by_lag(layer, x, None, (h, c), slice(0, M))
    assert float(found.norms) == pytest.approx(float(torch.linalg.svdvals(J.reshape(M, M))[0]), rel=1e-10)


def test_a_state_that_is_forgotten_has_the_derivative_0() -> None:
    found = by_lag(Forgetful().double().requires_grad_(False), drawn(0, 2, T, N))
    assert not found.norms.any()


def test_what_is_not_finite_is_said_to_be_infinite_and_no_step_has_no_lag() -> None:
    layer = made("gru")
    with torch.no_grad():
        next(layer.parameters()).fill_(math.nan)
    assert bool(by_lag(layer, drawn(0, 2, T, N)).norms.isinf().all())
    assert by_lag(made("gru"), drawn(0, 2, 0, N)).norms.shape == (2, 0)
    assert by_lag(made("gru"), drawn(0, 2, T, N), torch.tensor([0, 0])).norms.shape == (2, 0)
    assert spectral(torch.tensor([[[3.0, 0], [0, 4]], [[math.inf, 0], [0, 0]]])).tolist() == [4.0, math.inf]


def test_a_recurrence_that_reads_later_steps_is_refused() -> None:
    layer = bidirectional(N, hidden=M).double()
    with pytest.raises(ValueError, match="needs a causal recurrence"):
        by_lag(layer, drawn(0, 2, T, N))


def test_lags_are_about_two_an_octave_and_hold_the_last() -> None:
    assert chosen_lags(0) == []
    assert chosen_lags(1) == [1]
    assert chosen_lags(2) == [1, 2]
    assert chosen_lags(5) == [1, 2, 3, 4, 5]
    assert chosen_lags(512)[-3:] == [256, 362, 512]
    assert len(chosen_lags(512)) == 18


def test_a_state_is_the_same_after_it_was_laid_flat() -> None:
    state = (
        drawn(0, 2, 3, 2),
        torch.complex(drawn(1, 2, 4), drawn(2, 2, 4)),
        torch.tensor([3, 4]),
        drawn(3, 2, 1),
    )
    row = flat(state)
    assert row.shape == (2, 6 + 8 + 1)
    again = unflat(row, state)
    assert all(torch.equal(a, b) for a, b in zip(again, state, strict=True))
