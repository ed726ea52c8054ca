"""The heavy ball: PyTorch's iterates, its optimal rate on a quadratic, its gain under a constant gradient."""

import math

import pytest
import torch
from torch import nn

from margin.optim.momentum import HeavyBall, Nesterov, gain


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2


def walk(make, function, start, steps):
    """The iterates of an optimizer that ``make`` makes for one parameter."""
    x = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer, path = make([x]), [x.detach().clone()]
    for _ in range(steps):
        optimizer.zero_grad()
        function(x).backward()
        optimizer.step()
        path.append(x.detach().clone())
    return torch.stack(path)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_it_has_the_iterates_of_sgd_with_momentum(beta, weight_decay):
    ours = walk(lambda p: HeavyBall(p, 0.01, beta, weight_decay), rosenbrock, [-1.0, 1.5], 60)
    theirs = walk(
        lambda p: torch.optim.SGD(p, 0.01, momentum=beta, weight_decay=weight_decay),
        rosenbrock,
        [-1.0, 1.5],
        60,
    )
    assert (ours - theirs).abs().max() <= 1e-12


def test_a_move_is_carried_on_as_it_was_when_the_rate_changes():
    x = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = HeavyBall([x], lr=0.5, momentum=0.5)
    x.grad = torch.ones_like(x)
    optimizer.step()  # 1 - 0.5
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()  # 0.5 - 0.1 + 0.5 (-0.5); SGD would move by 0.1 (1 + 0.5)
    assert abs(x.item() - 0.15) <= 1e-15


def test_the_optimal_numbers_reach_the_optimal_rate_on_a_quadratic():
    mu, L = 1.0, 100.0
    lr = 4 / (math.sqrt(L) + math.sqrt(mu)) ** 2
    beta = ((math.sqrt(L / mu) - 1) / (math.sqrt(L / mu) + 1)) ** 2
    curvatures = torch.tensor([mu, 7.0, 40.0, L], dtype=torch.float64)
    path = walk(lambda p: HeavyBall(p, lr, beta), lambda x: (curvatures * x**2).sum() / 2, [1.0] * 4, 800)
    rate = (path[800].norm() / path[400].norm()).log() / 400
    assert abs(rate / math.log(9 / 11) - 1) <= 0.01  # double roots leave a factor t: log 2 / 400


def test_without_forgetting_it_does_not_converge():
    with pytest.raises(ValueError, match=r"momentum must be in \[0, 1\): got 1\.0"):
        HeavyBall([nn.Parameter(torch.zeros(1))], momentum=1.0)
    path = walk(lambda p: torch.optim.SGD(p, 0.1, momentum=1.0), lambda x: (x**2).sum() / 2, [1.0], 2000)
    assert path[-100:].abs().max() > 0.9


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_the_gain_under_a_constant_gradient_is_the_geometric_sum(beta):
    path = walk(lambda p: HeavyBall(p, 0.1, beta), lambda x: 2 * x.sum(), [0.0], 21)
    moves = (path[1:] - path[:-1])[:, 0]
    for t in range(21):
        assert abs(-moves[t].item() / 0.2 - sum(beta**k for k in range(t + 1))) <= 1e-12
        assert abs(gain(beta, t + 1) - sum(beta**k for k in range(t + 1))) <= 1e-12
        if beta:
            printed = sum(beta**k for k in range(1, t))  # as in the notes: it loses the gradient step itself
            assert abs(gain(beta, t + 1) - printed) > 0.9


def test_the_gain_tends_to_ten_at_nine_tenths():
    assert abs(gain(0.9, 400) - 10) <= 1e-12
    assert gain(0.9, 0) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, r"lr must be positive and finite: got 0\.0"),
        ({"lr": math.nan}, "lr must be positive and finite: got nan"),
        ({"momentum": -0.1}, r"momentum must be in \[0, 1\): got -0\.1"),
        ({"weight_decay": -1.0}, r"weight_decay must be at least 0 and finite: got -1\.0"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        HeavyBall([nn.Parameter(torch.zeros(1))], **options)


def test_a_gain_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"beta must be in \[0, 1\): got 1"):
        gain(1.0, 3)
    with pytest.raises(ValueError, match="steps must be at least 0: got -1"):
        gain(0.5, -1)


@pytest.mark.parametrize("make", [HeavyBall, Nesterov])
def test_gradients_stay_as_they_are(make):
    x = nn.Parameter(torch.ones(2))
    x.grad = torch.tensor([1.0, 2.0])
    make([x], weight_decay=0.5).step()
    assert x.grad.tolist() == [1.0, 2.0]


def test_a_parameter_without_a_gradient_rests_and_a_closure_is_asked_first():
    moved, resting = (nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = HeavyBall([moved, resting], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = moved.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2.0
    assert torch.equal(moved.detach(), torch.zeros(2))
    assert torch.equal(resting.detach(), torch.ones(2))
    assert resting not in optimizer.state
