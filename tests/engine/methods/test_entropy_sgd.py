"""Entropy-SGD: the gradient of the local entropy on a quadratic, two wells, and the chain it keeps."""

import math

import pytest
import torch
from torch import nn

from margin.core.types import Batch
from margin.engine.checkpoints import load_state, save_state
from margin.engine.loop import GradientUpdate, NonFiniteError, State, descent, fit
from margin.engine.methods.flat_minima import KEPT, entropy_sgd

HERE = Batch((torch.zeros(1, dtype=torch.float64),))
A, C = 3.0, 0.5  # the quadratic A/2 (x - C)^2


class Point(nn.Module):
    def __init__(self, at):
        super().__init__()
        self.x = nn.Parameter(torch.as_tensor(at, dtype=torch.float64).clone())


def state_at(at, lr=1.0, seed=1):
    model = Point(at)
    return State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=lr)}, seed=seed)


def quadratic(model, batch, generator):
    return (A / 2 * (model.x - C) ** 2).sum()[None]


def run(state, steps, objective=quadratic, **options):
    fit(state, lambda k: HERE, entropy_sgd(objective, GradientUpdate(), **options), max_steps=steps)
    return state.model.x.detach()


@pytest.mark.parametrize("gamma", [0.2, 2.0])
def test_the_move_is_along_the_exact_gradient_of_the_local_entropy(gamma):
    # E theta' = (A C + gamma theta) / (A + gamma), of which the noiseless chain finds the mode too
    at = torch.tensor([2.0, -1.0], dtype=torch.float64)
    moved = run(state_at(at), 300, gamma=gamma, inner=300, inner_lr=0.2, noise=0.0)
    assert (at - moved - gamma * A * (at - C) / (A + gamma)).abs().max() <= 1e-12
    # the same from the integral itself
    u = torch.linspace(-15, 15, 100_001, dtype=torch.float64)
    t = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    entropy = -torch.logsumexp(-A / 2 * (u - C) ** 2 - gamma / 2 * (t - u) ** 2, 0)
    (slope,) = torch.autograd.grad(entropy, t)
    assert abs((at - moved)[0] - slope) <= 1e-6


def test_with_noise_sqrt_2_the_chain_has_the_gibbs_density():
    """4,000 chains: the mean strays by 0.008, the variance by 2.2 %; 5 of each fail once in 10^6."""
    gamma, rate = 1.0, 0.05
    at = torch.full((4000,), 2.0, dtype=torch.float64)
    state = state_at(at)
    run(state, 150, gamma=gamma, inner=200, inner_lr=rate, noise=math.sqrt(2), forget=0.0)
    chain = state.modules[KEPT].at[0]
    # of Langevin steps of length rate; the density's own is its limit 1 / (A + gamma)
    variance = 1 / (A + gamma) / (1 - rate * (A + gamma) / 2)
    assert abs(chain.mean() - (A * C + gamma * 2.0) / (A + gamma)) <= 5 * math.sqrt(variance / 4000)
    assert abs(chain.var() / variance - 1) <= 5 * math.sqrt(2 / 4000)


def wells(x):
    """Two wells of depth 0: at -1 of width 0.1, at 1 of width 1."""
    narrow = (1 - math.exp(-2)) * torch.exp(-((x + 1) ** 2) / (2 * 0.1**2))
    return -torch.log(narrow + torch.exp(-((x - 1) ** 2) / 2))


def test_of_two_wells_of_one_depth_it_prefers_the_wide_one():
    """200 starts in the narrow well; two fifths leave it, less than a fifth with probability 1e-8."""
    assert wells(torch.tensor([-1.0, 1.0], dtype=torch.float64)).abs().max() <= 1e-10
    u = torch.linspace(-8, 8, 100_001, dtype=torch.float64)
    entropies = [-torch.logsumexp(-wells(u) - 0.25 * (t - u) ** 2, 0) for t in (-1, 1)]
    assert entropies[1] < entropies[0] - 0.4

    def objective(model, batch, generator):
        return wells(model.x).sum()[None]

    begin = torch.full((200,), -0.98, dtype=torch.float64)
    state = state_at(begin, lr=0.004)
    fit(state, lambda k: HERE, descent(objective, GradientUpdate()), max_steps=300)
    assert (state.model.x + 1).abs().max() <= 0.01
    options = {"gamma": 0.5, "inner": 50, "inner_lr": 0.004, "noise": math.sqrt(2), "forget": 0.98}
    found = run(state_at(begin, lr=2.0), 1000, objective, **options)
    assert (found > 0.3).double().mean() >= 0.2


def test_one_round_by_hand():
    at, gamma, rate, forget = 2.0, 0.5, 0.1, 0.6
    chain = mean = at
    for _ in range(3):
        chain -= rate * (A * (chain - C) - gamma * (at - chain))
        mean = forget * mean + (1 - forget) * chain
    state = state_at([at])
    options = {"gamma": gamma, "inner": 3, "inner_lr": rate, "noise": 0.0, "forget": forget}
    assert run(state, 2, **options).item() == at  # the weights move at the end of a round alone
    assert abs(run(state, 3, **options).item() - (at - gamma * (at - mean))) <= 1e-14


def test_the_scope_grows_from_round_to_round():
    at = torch.tensor([2.0], dtype=torch.float64)
    one, other = state_at(at), state_at(at)
    options = {"inner": 4, "inner_lr": 0.1, "noise": 0.0}
    run(one, 8, gamma=0.5, growth=0.5, **options)
    run(other, 4, gamma=0.5, **options)
    run(other, 8, gamma=0.75, **options)
    assert torch.equal(one.model.x, other.model.x)
    with pytest.raises(ValueError, match="gamma has grown to 24: inner_lr must be less than 2 / gamma"):
        run(state_at(at), 8, gamma=1.0, growth=23.0, **options)


@pytest.mark.parametrize("cut", [1, 4, 6])
def test_a_checkpoint_within_a_round_loses_nothing(tmp_path, cut):
    begin = torch.linspace(-1, 2, 5, dtype=torch.float64)
    options = {"gamma": 0.5, "inner": 4, "inner_lr": 0.1, "noise": 0.3}
    whole = run(state_at(begin), 10, **options)
    first = state_at(begin)
    run(first, cut, **options)
    save_state(tmp_path / "state", first)
    second = state_at(begin, seed=99)
    load_state(tmp_path / "state", second)
    assert torch.equal(run(second, 10, **options), whole)


def test_the_noise_depends_on_seed_and_step():
    ends = [
        run(state_at([2.0], seed=seed), 1, gamma=1.0, inner=1, noise=1.0, forget=0.0).item()
        for seed in (1, 1, 2)
    ]
    assert ends[0] == ends[1] != ends[2]


def test_what_is_not_finite_moves_nothing():
    def cliff(model, batch, generator):
        return torch.where(model.x < 1, math.inf, model.x)

    state = state_at([1.05])
    with pytest.raises(NonFiniteError, match="loss inf at step 1"):
        run(state, 4, cliff, gamma=1.0, inner=4, inner_lr=0.1, noise=0.0)
    assert state.model.x.item() == 1.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.0}, r"gamma must be positive and finite: got 0\.0"),
        ({"inner_lr": math.nan}, "inner_lr must be positive and finite: got nan"),
        ({"noise": -1.0}, r"noise must be at least 0 and finite: got -1\.0"),
        ({"growth": -1.0}, r"growth must be at least 0 and finite: got -1\.0"),
        ({"inner": 0}, "inner must be at least 1: got 0"),
        ({"forget": 1.0}, r"forget must be in \[0, 1\): got 1\.0"),
        ({"gamma": 4.0, "inner_lr": 0.5}, r"inner_lr must be less than 2 / gamma = 0\.5: got 0\.5"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        entropy_sgd(quadratic, GradientUpdate(), **options)


def test_a_training_of_less_than_a_round_would_move_nothing():
    with pytest.raises(ValueError, match="inner must be at most the 5 steps of the training, got 6"):
        entropy_sgd(quadratic, GradientUpdate(), 5, inner=6)
    entropy_sgd(quadratic, GradientUpdate(), 6, inner=6)


def test_weights_in_shares_are_refused():
    with pytest.raises(ValueError, match="entropy_sgd needs whole weights"):
        entropy_sgd(quadratic, GradientUpdate(synchronized=True))
