"""Adversarial training against the closed form of a linear model, and what must not leak from the attack."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, nn

from margin.core.tasks import CLASSES, SCORES
from margin.core.types import Batch, Domain
from margin.engine.loop import GradientUpdate, NonFiniteError, State, descent, fit, risk
from margin.robust.attacks.gradient import Search
from margin.robust.attacks.threat_models import Threat
from margin.robust.training.adversarial import (
    adversarial_training,
    ascended,
    attacked,
    divergent,
    fast,
    pgd_accuracy,
    trades,
)
from margin.robust.training.certified import ibp

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


def tough(rule, eps):
    """A step of each rule at a radius."""
    own = {
        "trades": {"task": CLASSES, "beta": 1.0},
        "ibp": {"task": CLASSES, "total_steps": 40, "kappa": 0.0},
    }
    factory = {"pgd": adversarial_training, "fast": fast, "trades": trades, "ibp": ibp}[rule]
    return factory(OBJECTIVE, GradientUpdate(), WIDE, eps=eps, **own.get(rule, {}))


@pytest.mark.parametrize("rule", ["pgd", "fast", "trades", "ibp"])
@pytest.mark.parametrize("seed", range(3))
def test_robust_accuracy_rises(seed, rule):
    x, y = data(seed)
    held, labels = data(seed + 100, 1000)
    eps = 0.3

    def robust(model):
        w, b = model.weight[1] - model.weight[0], model.bias[1] - model.bias[0]
        return ((2 * labels - 1) * (held @ w + b) > eps * w.abs().sum()).float().mean()

    plain = train(descent(OBJECTIVE, GradientUpdate()), linear(torch.float32), Batch((x,), y))
    hard = train(tough(rule, eps), linear(torch.float32), Batch((x,), y))
    assert robust(hard) > robust(plain) + 0.2


def drawn(shape, seed=0):
    """Uniform draws in [-1, 1], as the first of a generator of that seed."""
    return 2 * torch.rand(shape, generator=Generator().manual_seed(seed), dtype=torch.float64) - 1


def test_fast_training_takes_one_step_of_five_quarters_of_eps_from_a_random_point():
    """Kills a step of eps, a start at the input, and a step that is not cut to the ball."""
    x, y = data()
    x, model, eps, seen = x.double(), linear(), 0.2, []

    def watched(model, batch, generator):
        seen.append(batch.inputs[0].detach())
        return OBJECTIVE(model, batch, generator)

    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.1)})
    w = (model.weight[1] - model.weight[0]).detach().clone()
    state.generator.manual_seed(3)
    fast(watched, GradientUpdate(), WIDE, eps=eps)(state, Batch((x,), y))
    up = -(2.0 * y[:, None] - 1) * w.sign()
    expected = x + (eps * drawn(x.shape, 3) + 1.25 * eps * up).clamp(-eps, eps)
    torch.testing.assert_close(seen[-1], expected, rtol=0, atol=1e-12)
    assert len(seen) == 2


def test_one_step_from_the_end_of_the_domain_ends_inside_the_ball_too():
    """An input at 0 of [0, 1], a loss that rises: from d in [-eps, eps] to min(eps, d + 1.25 eps).

    Kills a start that is cut to the domain before the step, whose every end is the corner eps.
    """
    model = nn.Linear(1, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [0.0]]))
    x, y, eps = torch.zeros(50, 1, dtype=torch.float64), torch.ones(50, dtype=torch.long), 0.3
    threat, search = (
        Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), eps),
        Search(steps=1, step_size=1.25 * eps),
    )
    moved = ascended(model, Batch((x,), y), OBJECTIVE, threat, Generator().manual_seed(0), search)
    expected = (eps * drawn(x.shape) + 1.25 * eps).clamp(0, eps)
    torch.testing.assert_close(moved.inputs[0], expected, rtol=0, atol=1e-12)
    assert (expected < eps).sum() > 10


def test_the_ascent_is_projected_and_its_last_iterate_is_taken():
    """In one dimension steps of a quarter of eps end where a hand count says."""
    model = nn.Linear(1, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [1.0]]))
    x, y, eps = torch.zeros(50, 1, dtype=torch.float64), torch.ones(50, dtype=torch.long), 0.4
    for steps in (1, 6):
        search = Search(steps=steps, step_size=eps / 4)
        moved = ascended(
            model, Batch((x,), y), OBJECTIVE, Threat(WIDE, eps), Generator().manual_seed(0), search
        )
        expected = (eps * drawn(x.shape) - steps * eps / 4).clamp(-eps, eps)
        torch.testing.assert_close(moved.inputs[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_attacked_inputs_lie_in_the_ball_and_in_the_domain(norm):
    x, y = data()
    unit = Domain(torch.tensor(-1.5), torch.tensor(1.5))
    x, eps = x.clamp(-1.5, 1.5), 0.3
    threat = Threat(unit, eps, norm)
    moved = ascended(
        linear(torch.float32), Batch((x,), y), OBJECTIVE, threat, Generator().manual_seed(0), Search(steps=3)
    ).inputs[0]
    threat.check(moved, x)
    order = {"linf": torch.inf, "l2": 2, "l1": 1}[norm]
    sizes = torch.linalg.vector_norm((moved - x).double(), order, dim=1)
    assert sizes.min() > 0.5 * eps
    assert sizes.max() <= eps * (1 + 1e-6)


def test_a_gradient_that_is_no_number_ends_the_step_before_a_weight_moves():
    x, y = data()

    def broken(model, batch, generator):
        return OBJECTIVE(model, batch, generator) * (batch.inputs[0].sum(1) * 0).sqrt().log()

    model = linear(torch.float32)
    before = model.weight.detach().clone()
    with pytest.raises(NonFiniteError):
        train(adversarial_training(broken, GradientUpdate(), WIDE, eps=0.1), model, Batch((x,), y), steps=1)
    assert torch.equal(model.weight, before)


def test_the_clean_share_mixes_the_two_losses():
    x, y = data()
    batch, model = Batch((x.double(),), y), linear()
    threat, search = Threat(WIDE, 0.15), Search(steps=2, step_size=0.3)
    w, b = (row[1] - row[0] for row in (model.weight, model.bias))
    margin = (2 * y - 1) * (x.double() @ w + b)
    clean, robust = F.softplus(-margin), F.softplus(0.15 * w.abs().sum() - margin)
    for share in (0.0, 0.3, 1.0):
        loss = attacked(OBJECTIVE, threat, search, share)(model, batch, Generator().manual_seed(0))
        torch.testing.assert_close(loss, share * clean + (1 - share) * robust)


def test_trades_adds_the_divergence_to_the_end_of_the_ball_on_the_side_of_the_start():
    """In one dimension KL(p(x) || p(x')) rises away from x; the other direction of KL has other values."""
    model = nn.Linear(1, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.3], [1.7]]))
        model.bias.copy_(torch.tensor([0.2, -0.4]))
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    y = torch.tensor([0, 1] * 4 + [1])
    eps, beta = 0.5, 3.0
    objective = divergent(OBJECTIVE, CLASSES, Threat(WIDE, eps), Search(steps=3, step_size=eps), beta)
    loss = objective(model, Batch((x,), y), Generator().manual_seed(0))
    ends = x + eps * drawn(x.shape).sign()
    p, q = (torch.softmax(model(point), 1) for point in (x, ends))
    expected = -p.gather(1, y[:, None])[:, 0].log() + beta * (p * (p / q).log()).sum(1)
    torch.testing.assert_close(loss, expected)
    ours = torch.autograd.grad(loss.sum(), model.weight)[0]
    torch.testing.assert_close(ours, torch.autograd.grad(expected.sum(), model.weight)[0])


def test_trades_without_divergence_is_plain_descent_and_asks_the_model_once():
    x, y = data()
    step = trades(OBJECTIVE, GradientUpdate(), WIDE, CLASSES, beta=0.0)
    ours = train(step, linear(), Batch((x.double(),), y), steps=3)
    plain = train(descent(OBJECTIVE, GradientUpdate()), linear(), Batch((x.double(),), y), steps=3)
    assert torch.equal(ours.weight, plain.weight)


def test_other_inputs_that_are_no_real_numbers_stay_as_they_are():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(3, 2)

        def forward(self, x, lengths):
            mask = torch.arange(x.shape[1]) < lengths[:, None]
            return self.last((x * mask[..., None]).sum(1))

    torch.manual_seed(0)
    x, lengths, y = torch.randn(6, 4, 3), torch.tensor([1, 2, 3, 4, 4, 1]), torch.tensor([0, 1, 0, 1, 1, 0])
    moved = ascended(
        Masked(),
        Batch((x, lengths), y),
        OBJECTIVE,
        Threat(WIDE, 0.1),
        Generator().manual_seed(0),
        Search(steps=2),
    )
    assert moved.inputs[1] is lengths
    assert 0 < (moved.inputs[0] - x).abs().max() <= 0.1
    with pytest.raises(ValueError, match=r"one input of real numbers: got torch\.float32, torch\.float32"):
        ascended(Masked(), Batch((x, x), y), OBJECTIVE, Threat(WIDE, 0.1), Generator(), Search())


@pytest.mark.parametrize("eps", [0.05, 0.2])
def test_the_measured_accuracy_is_that_of_the_worst_corner(eps):
    x, y = data(count=200)
    model = linear()
    w, b = model.weight[1] - model.weight[0], model.bias[1] - model.bias[0]
    margin = (2 * y - 1) * (x.double() @ w + b) - eps * w.abs().sum()
    batches = [Batch((part,), labels) for part, labels in zip(x.double().split(90), y.split(90), strict=True)]
    found = pgd_accuracy(WIDE, CLASSES, eps=eps)(model, batches)
    assert found == {"pgd_accuracy": pytest.approx(float((margin > 0).double().mean()))}
    assert 0 < found["pgd_accuracy"] < 1


def test_the_attack_moves_no_batch_statistic_and_draws_no_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(31, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2))
    x, y = data()
    worst = attacked(OBJECTIVE, Threat(WIDE, 0.1), Search(steps=3))
    twin, evaluated = copy.deepcopy(model), copy.deepcopy(model).eval()
    torch.manual_seed(1)
    loss = worst(model, Batch((x,), y), Generator().manual_seed(0))
    moved = ascended(
        evaluated, Batch((x,), y), OBJECTIVE, Threat(WIDE, 0.1), Generator().manual_seed(0), Search(steps=3)
    )
    torch.manual_seed(1)
    expected = OBJECTIVE(twin, moved, Generator())
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
    with pytest.raises(ValueError, match=r"clean must be in \[0, 1\]: got 1.5"):
        fast(OBJECTIVE, GradientUpdate(), WIDE, clean=1.5)
    with pytest.raises(ValueError, match="beta must be at least 0 and finite: got -1"):
        trades(OBJECTIVE, GradientUpdate(), WIDE, CLASSES, beta=-1.0)
    with pytest.raises(ValueError, match="TRADES needs class probabilities: the task 'scores' states none"):
        trades(OBJECTIVE, GradientUpdate(), WIDE, SCORES)
    x, y = data()
    step = adversarial_training(OBJECTIVE, GradientUpdate(), Domain(torch.tensor(0.0), torch.tensor(1.0)))
    with pytest.raises(ValueError, match="inputs must lie in the stated domain"):
        train(step, linear(torch.float32), Batch((x,), y), steps=1)
