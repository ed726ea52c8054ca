"""The dynamics beside the plain loop: states, sweeps, energies, ties, orders, cycles, programs."""

import numpy as np
import pytest
import torch

from margin.classic.memory.hopfield import correlations, energy
from margin.classic.memory.hopfield_dynamics import (
    BLOCK,
    asynchronous,
    asynchronous_program,
    sweep_orders,
    synchronous,
    synchronous_program,
    threshold_signs,
    trajectory,
)


def whole_weights(seed: int, n: int, most: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric weights of zero diagonal and thresholds, whole numbers, so that ties are ties."""
    generator = torch.Generator().manual_seed(seed)
    W = torch.randint(-most, most + 1, (n, n), generator=generator).float().triu(1)
    return W + W.T, torch.randint(-2, 3, (n,), generator=generator).float()


def states(seed: int, rows: int, n: int) -> torch.Tensor:
    return 2.0 * torch.randint(0, 2, (rows, n), generator=torch.Generator().manual_seed(seed)) - 1


def naive(
    W: np.ndarray, b: np.ndarray, x: np.ndarray, orders: np.ndarray, ties: str
) -> tuple[np.ndarray, int, list[float]]:
    """One probe, one unit at a time, with the energy of every state by its definition."""

    def H() -> float:
        return float(-x @ W @ x / 2 + b @ x)

    x, sweeps, energies = x.copy(), 0, []
    energies.append(H())
    while True:
        before = x.copy()
        for i in orders[sweeps % len(orders)]:
            h = W[i] @ x - b[i]
            if h != 0 or ties == "up":
                x[i] = 1.0 if h >= 0 else -1.0
            energies.append(H())
        if np.array_equal(x, before):
            return x, sweeps, energies
        sweeps += 1


@pytest.mark.parametrize("ties", ["up", "keep"])
@pytest.mark.parametrize("order", ["fixed", "random"])
@pytest.mark.parametrize("n", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
def test_it_is_the_plain_loop(n: int, order: str, ties: str) -> None:
    W, b = whole_weights(n, n)
    x = states(n + 1, 12, n)
    orders = sweep_orders(n, order, 100, seed=3)
    found = asynchronous(W, b, x, orders=orders, ties=ties)
    assert found.settled.all()
    for k in range(len(x)):
        state, sweeps, energies = naive(
            W.double().numpy(), b.double().numpy(), x[k].double().numpy(), orders.numpy(), ties
        )
        assert found.state[k].tolist() == state.tolist()
        assert int(found.sweeps[k]) == sweeps
        assert found.start[k].item() == energies[0]
        assert found.energy[k].item() == energies[-1]
        assert (np.diff(energies) <= 0).all()


def test_no_order_is_the_natural_order() -> None:
    W, b = whole_weights(0, 50)
    x = states(1, 20, 50)
    one, other = asynchronous(W, b, x), asynchronous(W, b, x, orders=sweep_orders(50, "fixed", 1))
    assert torch.equal(one.state, other.state)
    assert torch.equal(one.energy, other.energy)


def test_another_order_may_end_elsewhere() -> None:
    W, b = whole_weights(2, 60)
    x = states(3, 40, 60)
    natural = asynchronous(W, b, x)
    shuffled = asynchronous(W, b, x, orders=sweep_orders(60, "random", 100, seed=0))
    assert not torch.equal(natural.state, shuffled.state)


def test_a_probe_is_given_up_after_so_many_sweeps() -> None:
    W, b = whole_weights(4, 80)
    x = states(5, 30, 80)
    whole = asynchronous(W, b, x)
    assert int(whole.sweeps.max()) >= 2
    cut = asynchronous(W, b, x, max_sweeps=1)
    assert (cut.settled == (whole.sweeps == 0)).all()
    assert torch.equal(cut.energy, energy(W, b, cut.state).double())


@pytest.mark.parametrize("ties", ["up", "keep"])
def test_a_tie_goes_up_or_is_kept(ties: str) -> None:
    old = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    h = torch.tensor([0.0, 0.0, 2.0, 2.0, -2.0, -2.0])
    expected = [1, 1 if ties == "up" else -1, 1, 1, -1, -1]
    assert threshold_signs(h, old, ties).tolist() == expected


def test_all_at_once_may_alternate() -> None:
    W, b = torch.tensor([[0.0, -1.0], [-1.0, 0.0]]), torch.zeros(2)
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    state, period = synchronous(W, b, x)
    assert period.tolist() == [2, 1]
    assert state[0].tolist() == [1, 1]
    assert asynchronous(W, b, x).settled.all()


@pytest.mark.parametrize("seed", range(5))
def test_all_at_once_has_period_one_or_two(seed: int) -> None:
    W, b = whole_weights(seed, 30)
    x = states(seed + 9, 40, 30)
    state, period = synchronous(W, b, x)
    assert set(period.tolist()) <= {1, 2}
    for k in range(len(x)):  # by walking until a state is seen again
        walk, current = [], x[k].numpy()
        while current.tolist() not in walk:
            walk.append(current.tolist())
            current = np.where(W.numpy() @ current - b.numpy() >= 0, 1.0, -1.0).astype(np.float32)
        assert len(walk) - walk.index(current.tolist()) == int(period[k])
        assert state[k].tolist() in walk[walk.index(current.tolist()) :]


def test_asymmetric_weights_cycle_and_are_given_up() -> None:
    W, b = torch.tensor([[0.0, 1.0], [-1.0, 0.0]]), torch.zeros(2)
    found = asynchronous(W, b, torch.tensor([[1.0, 1.0]]), max_sweeps=50)
    assert found.settled.tolist() == [False]
    _, period = synchronous(W, b, torch.tensor([[1.0, 1.0]]), max_steps=50)
    assert period.tolist() == [0]


def test_a_trajectory_is_the_plain_loops() -> None:
    W, b = whole_weights(6, 25)
    x = states(7, 1, 25)[0]
    path = trajectory(W, b, x)
    state, sweeps, energies = naive(
        W.double().numpy(), b.double().numpy(), x.double().numpy(), np.arange(25)[None], "up"
    )
    assert len(path) == (sweeps + 1) * 25 + 1
    assert energy(W, b, path).tolist() == energies
    assert path[-1].tolist() == state.tolist()
    assert len(trajectory(W, b, x, max_sweeps=1)) == 26


@pytest.mark.parametrize("ties", ["up", "keep"])
@pytest.mark.parametrize("order", ["fixed", "random"])
def test_the_exported_loop_is_the_same(order: str, ties: str) -> None:
    W, b = whole_weights(8, 20)
    x = states(9, 6, 20)
    orders = sweep_orders(20, order, 30, seed=1)

    def field(unit: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        return W.index_select(0, unit) @ X - b.index_select(0, unit)[:, None]

    class Program(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return asynchronous_program(field, x, orders, ties, 30)

    program = torch.export.export(Program(), (x,)).module()
    assert torch.equal(program(x), asynchronous(W, b, x, orders=orders, ties=ties).state)


def test_the_exported_synchronous_loop_is_the_same() -> None:
    W, b = whole_weights(10, 20)
    x = states(11, 30, 20)

    class Program(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return synchronous_program(W, b, x, "up", 100)

    program = torch.export.export(Program(), (x,)).module()
    state, period = synchronous(W, b, x)
    assert 2 in period.tolist()
    assert torch.equal(program(x), state)


def test_large_loads_stay_exact_in_whole_numbers() -> None:
    patterns = states(12, 300, 150)
    C, b = correlations(patterns), torch.zeros(150)
    one = asynchronous(C, b, patterns)
    other = asynchronous(C.double(), b.double(), patterns.double())
    assert torch.equal(one.state.double(), other.state)
    assert torch.equal(one.energy, other.energy)


def test_the_inputs_are_left_alone() -> None:
    W, b = whole_weights(13, 30)
    x = states(14, 4, 30)
    before = x.clone()
    asynchronous(W, b, x)
    synchronous(W, b, x)
    trajectory(W, b, x[0])
    assert torch.equal(x, before)
