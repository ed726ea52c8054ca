"""BPTT against autograd and against the sum over paths; the notes' misprints fail where it holds."""

from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.nn.recurrence import Recurrence
from margin.sequence.linear.linear_system import LinearSystem
from margin.sequence.linear.lru import LRU
from margin.sequence.linear.mingru import MinGRU
from margin.sequence.recurrent.bptt import FUNCTIONS, STEEPEST, Phi, bptt, slopes, states
from margin.sequence.recurrent.elman import DeepTransition
from margin.sequence.recurrent.elman import recurrence as elman
from margin.sequence.recurrent.gru import ResetBeforeGRU
from margin.sequence.recurrent.lstm import CellMatrixLSTM

PHIS: tuple[Phi, ...] = ("tanh", "relu", "sigmoid")
B, T, M, N = 3, 7, 4, 2


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def problem(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """U, V, b, x, z_0 and the weights w_t of the loss sum_t sum (w_t z_t + z_t^3 / 3)."""
    shapes = ((M, M), (M, N), (M,), (B, T, N), (B, M), (B, T, M))
    return tuple(drawn(10 * seed + i, *shape) for i, shape in enumerate(shapes))  # type: ignore[return-value]


def loss(z: Tensor, w: Tensor) -> Tensor:
    return (w * z[:, 1:] + z[:, 1:] ** 3 / 3).sum()


def partial(z: Tensor, w: Tensor) -> Tensor:
    return w + z[:, 1:] ** 2


def apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / (1 + other.abs().max()))


def cut_loss(
    U: Tensor, V: Tensor, b: Tensor, x: Tensor, z0: Tensor, w: Tensor, phi: Phi, window: int
) -> Tensor:
    """The loss with the graph cut by detach k, 2 k, .. steps before the end."""
    z, total = z0, torch.zeros((), dtype=torch.float64)
    for t in range(T):
        if t > 0 and (T - t) % window == 0:
            z = z.detach()
        z = FUNCTIONS[phi](z @ U.T + x[:, t] @ V.T + b)
        total = total + (w[:, t] * z + z**3 / 3).sum()
    return total


@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_autograd_to_rounding(phi: Phi, seed: int) -> None:
    U, V, b, x, z0, w = (p.requires_grad_() for p in problem(seed))
    z = states(U, V, b, x, z0, phi)
    expected = torch.autograd.grad(loss(z, w), (U, V, b, x, z0))
    with torch.no_grad():
        found = bptt(U, V, x, z, partial(z, w), phi)
    got = (found.U, found.V, found.bias, found.x, found.z[:, 0])
    assert max(apart(one, other) for one, other in zip(got, expected, strict=True)) <= 1e-12


@pytest.mark.parametrize("window", [1, 2, 3, 6, 7, 8])
def test_truncated_it_is_autograd_with_the_graph_cut(window: int) -> None:
    U, V, b, x, z0, w = problem()
    for p in (U, V, b, x, z0):
        p.requires_grad_()
    expected = torch.autograd.grad(cut_loss(U, V, b, x, z0, w, "tanh", window), (U, V, b, x, z0))
    z = states(U, V, b, x, z0, "tanh").detach()
    found = bptt(U.detach(), V.detach(), x.detach(), z, partial(z, w), "tanh", window)
    pairs = zip((found.U, found.V, found.bias, found.x, found.z[:, 0]), expected, strict=True)
    assert max(apart(one, other) for one, other in pairs) <= 1e-12


def test_a_window_of_all_steps_cuts_nothing_and_a_smaller_one_is_biased() -> None:
    U, V, b, x, z0, w = problem()
    z = states(U, V, b, x, z0, "tanh")
    whole = bptt(U, V, x, z, partial(z, w), "tanh")
    for window in (T, T + 1, 100):
        assert torch.equal(bptt(U, V, x, z, partial(z, w), "tanh", window).U, whole.U)
    for window in range(1, T):
        assert apart(bptt(U, V, x, z, partial(z, w), "tanh", window).U, whole.U) > 1e-3


def jacobians(U: Tensor, z: Tensor) -> list[Tensor]:
    """J_1 .. J_T of the first example's states."""
    return [torch.diag(slopes(z[0, t], "tanh")) @ U for t in range(1, T + 1)]


def product(J: list[Tensor], first: int, last: int) -> Tensor:
    """J_last ... J_first; I where there are none."""
    out = torch.eye(M, dtype=torch.float64)
    for j in range(first, last + 1):
        out = J[j - 1] @ out
    return out


def test_it_is_the_sum_over_all_paths_and_the_printed_ones_are_not() -> None:
    """dL/dU = sum_t sum_(k<=t) [prod_(j=k+1..t) J_j]^T dl_t/dz_t (D_k .) z_(k-1)^T, by brute force.

    The notes print the product from j = k, one factor too many, and the derivative by z_t, not by z_i, in
    front of it: both are other numbers.
    """
    U, V, b, x, z0, w = problem()
    x, z0, w = x[:1], z0[:1], w[:1]
    z = states(U, V, b, x, z0, "tanh")
    J, d = jacobians(U, z), partial(z, w)[0]
    found = bptt(U, V, x, z, partial(z, w), "tanh")

    def direct(k: int, g: Tensor) -> Tensor:
        return torch.outer(slopes(z[0, k], "tanh") * g, z[0, k - 1])

    pairs = [(i, t) for i in range(1, T + 1) for t in range(1, i + 1)]
    right = sum(direct(t, product(J, t + 1, i).T @ d[i - 1]) for i, t in pairs)
    index = sum(direct(t, product(J, t, i).T @ d[i - 1]) for i, t in pairs)
    front = sum(direct(t, product(J, t + 1, i).T @ d[t - 1]) for i, t in pairs)
    assert isinstance(right, Tensor) and isinstance(index, Tensor) and isinstance(front, Tensor)
    assert apart(found.U, right) <= 1e-12
    assert apart(found.U, index) > 0.01
    assert apart(found.U, front) > 0.01


@pytest.mark.parametrize("phi", PHIS)
def test_slopes_are_derivatives_and_no_larger_than_alpha_which_is_attained(phi: Phi) -> None:
    a = torch.linspace(-4, 4, 8001, dtype=torch.float64).requires_grad_()
    values = FUNCTIONS[phi](a)
    (derivative,) = torch.autograd.grad(values.sum(), a)
    torch.testing.assert_close(slopes(values.detach(), phi), derivative, rtol=0, atol=1e-14)
    assert float(derivative.max()) == pytest.approx(STEEPEST[phi], abs=1e-12)


def test_relu_has_slope_0_at_0_as_torch_says() -> None:
    assert float(slopes(torch.zeros(1), "relu")) == 0


KINDS = {
    "elman": lambda: elman(N, hidden=M, layers=2),
    "deep transition": lambda: DeepTransition(N, hidden=M),
    "lstm": lambda: CellMatrixLSTM(N, hidden=M),
    "gru": lambda: ResetBeforeGRU(N, hidden=M),
    "mingru": lambda: MinGRU(N, hidden=M),
    "lru": lambda: LRU(N, states=M),
    "linear system": lambda: LinearSystem(N, states=M),
}


class Stepped(nn.Module):
    """A recurrence's step as a module's forward, so that it can be called with other parameters."""

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.r = recurrence

    def forward(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.r.step(x, state)


@pytest.mark.parametrize("name", KINDS)
def test_shared_parameters_get_the_sum_of_the_gradients_of_a_copy_for_each_step(name: str) -> None:
    torch.manual_seed(0)
    recurrence = KINDS[name]().double()
    x, w = drawn(0, B, T, N), drawn(1, B, T, recurrence.output_size)
    whole = torch.autograd.grad((w * recurrence(x)[0]).sum(), tuple(recurrence.parameters()))
    stepped = Stepped(recurrence)
    copies = [
        {key: p.detach().clone().requires_grad_() for key, p in stepped.named_parameters()} for _ in range(T)
    ]
    state, total = recurrence.initial(x), torch.zeros((), dtype=torch.float64)
    for t, copy in enumerate(copies):
        y, state = torch.func.functional_call(stepped, copy, (x[:, t], state))
        total = total + (w[:, t] * y).sum()
    apiece = [torch.autograd.grad(total, list(copy.values()), retain_graph=True) for copy in copies]
    for i, gradient in enumerate(whole):
        assert apart(torch.stack([g[i] for g in apiece]).sum(0), gradient) <= 1e-12
    assert all(any(apart(a, b) > 1e-6 for a, b in zip(*two, strict=True)) for two in pairwise(apiece))


def test_bad_options_are_refused() -> None:
    U, V, b, x, z0, w = problem()
    z = states(U, V, b, x, z0, "tanh")
    with pytest.raises(ValueError, match="window must be at least 1, or 0 for none: got -1"):
        bptt(U, V, x, z, w, "tanh", -1)
    with pytest.raises(ValueError, match="phi must be 'tanh', 'relu' or 'sigmoid': got 'gelu'"):
        slopes(z, "gelu")


def test_without_steps_nothing_is_learned() -> None:
    U, V, b, x, z0, w = problem()
    z = states(U, V, b, x[:, :0], z0, "tanh")
    found = bptt(U, V, x[:, :0], z, w[:, :0], "tanh")
    assert not found.U.any() and not found.z.any() and found.x.shape == (B, 0, N)
