"""Adversarial training against the closed form of a linear model, and what must not leak from the attack."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import GradientUpdate, State, descent, fit, risk
from margin.robust.attacks.gradient import Search
from margin.robust.attacks.threat_models import Threat
from margin.robust.training.adversarial import adversarial_training, attacked

WIDE = Domain(torch.tensor(-10.0), torch.tensor(10.0))
OBJECTIVE = risk(CLASSES)


def data(seed=0, count=200):
    """Two classes: one strong feature, thirty weak ones that an adversary can turn."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (count,), generator=generator)
    sign = 2.0 * y[:, None] - 1
    strong = sign + 0.7 * torch.randn(count, 1, generator=generator)
    weak = 0.1 * sign + 0.3 * torch.randn(count, 30, generator=generator)
    return torch.cat([strong, weak], 1), y


def train(step, model, batch, steps=40):
    state = State({"model": model}, {"": torch.optim.Adam(model.parameters(), lr=0.1)})
    fit(state, lambda _: batch, step, max_steps=steps)
    return model


def linear(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Linear(31, 2).to(dtype)


def test_on_a_linear_model_it_is_training_on_the_margin_less_eps_times_the_l1_norm():
    x, y = data()
    batch, eps = Batch((x.double(),), y), 0.15

    def closed_form(model, batch, generator):
        w, b = model.weight[1] - model.weight[0], model.bias[1] - model.bias[0]
        sign = 2 * batch.targets - 1
        return F.softplus(-(sign * (batch.inputs[0] @ w + b) - eps * w.abs().sum()))

    # Steps of eps from anywhere in the ball: two reach its corner.
    step = adversarial_training(OBJECTIVE, GradientUpdate(), WIDE, eps=eps, steps=3, step_size=eps)
    ours = train(step, linear(), batch, steps=12)
    theirs = train(descent(closed_form, GradientUpdate()), linear(), batch, steps=12)
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=0, atol=1e-9)
    torch.testing.assert_close(ours.bias, theirs.bias, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_robust_accuracy_rises(seed):
    x, y = data(seed)
    held, labels = data(seed + 100, 1000)
    eps = 0.3

    def robust(model):
        w, b = model.weight[1] - model.weight[0], model.bias[1] - model.bias[0]
        return ((2 * labels - 1) * (held @ w + b) > eps * w.abs().sum()).float().mean()

    plain = train(descent(OBJECTIVE, GradientUpdate()), linear(torch.float32), Batch((x,), y))
    hard = train(
        adversarial_training(OBJECTIVE, GradientUpdate(), WIDE, eps=eps),
        linear(torch.float32),
        Batch((x,), y),
    )
    assert robust(hard) > robust(plain) + 0.2


def test_the_attack_moves_no_batch_statistic_and_draws_no_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(31, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2))
    x, y = data()
    worst = attacked(OBJECTIVE, Threat(WIDE, 0.0), Search(steps=3))
    twin = copy.deepcopy(model)
    torch.manual_seed(1)
    loss = worst(model, Batch((x,), y), Generator().manual_seed(0))
    torch.manual_seed(1)
    expected = OBJECTIVE(twin, Batch((x,), y), Generator().manual_seed(0))
    assert torch.equal(loss, expected)
    assert model[1].num_batches_tracked == 1
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), twin.buffers(), strict=True))
    assert all(m.training for m in model.modules())


def test_the_starting_points_come_from_the_steps_generator():
    x, y = data()
    worst = attacked(OBJECTIVE, Threat(WIDE, 0.1), Search(steps=1, step_size=1e-3))
    losses = [worst(linear(torch.float32), Batch((x,), y), Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])


def test_weights_and_padding_reach_the_descent():
    x, y = data()
    weight = torch.ones(200)
    weight[100:] = 0
    step = adversarial_training(OBJECTIVE, GradientUpdate(), WIDE, eps=0.1)
    whole = train(step, linear(torch.float32), Batch((x,), y, weight), steps=1)
    x2 = x.clone()
    x2[100:] = 0
    other = train(step, linear(torch.float32), Batch((x2,), y, weight), steps=1)
    torch.testing.assert_close(whole.weight, other.weight)


def test_bad_options_and_inputs_are_refused():
    with pytest.raises(ValueError, match="eps must be finite"):
        adversarial_training(OBJECTIVE, GradientUpdate(), WIDE, eps=-1.0)
    with pytest.raises(ValueError, match="steps and restarts must be at least 1"):
        adversarial_training(OBJECTIVE, GradientUpdate(), WIDE, steps=0)
    with pytest.raises(ValueError, match="step_size must be positive"):
        adversarial_training(OBJECTIVE, GradientUpdate(), WIDE, step_size=0.0)
    x, y = data()
    step = adversarial_training(OBJECTIVE, GradientUpdate(), Domain(torch.tensor(0.0), torch.tensor(1.0)))
    with pytest.raises(ValueError, match="inputs must lie in the stated domain"):
        train(step, linear(torch.float32), Batch((x,), y), steps=1)
