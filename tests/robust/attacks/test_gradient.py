"""Attacks against the closed forms of linear models, and the traces they must not leave."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.core.tasks import CLASSES, HALFSPACE, class_margins
from margin.core.types import Batch, Domain
from margin.engine.loop import NonFiniteError, risk
from margin.robust.attacks.gradient import (
    Search,
    fgsm,
    hit,
    input_gradient,
    margin_loss,
    missed,
    pgd,
    ratio_loss,
    target_loss,
    targeted_ratio_loss,
)
from margin.robust.attacks.threat_models import Threat

WIDE = Domain(torch.tensor(-1e6), torch.tensor(1e6))
CROSS_ENTROPY = risk(CLASSES)


def logistic(shape, seed=0, dtype=torch.float64):
    """Two-class logistic regression on inputs of any shape, with its w and b of f = f_1 - f_0."""
    torch.manual_seed(seed)
    d = math.prod(shape)
    model = nn.Sequential(nn.Flatten(), nn.Linear(d, 2)).to(dtype)
    weight, bias = model[1].weight.detach(), model[1].bias.detach()
    x = torch.randn(40, *shape, dtype=dtype)
    y = torch.randint(0, 2, (40,))
    return model, Batch((x,), y), weight[1] - weight[0], bias[1] - bias[0]


def signed_score(batch, w, b):
    return (2 * batch.targets - 1) * (batch.inputs[0].flatten(1) @ w + b)


def dual(w, norm):
    """The dual norm: how far a linear function rises within the unit ball."""
    return {"linf": w.abs().sum(), "l2": w.norm(), "l1": w.abs().max()}[norm]


def generator():
    return torch.Generator().manual_seed(0)


SHAPES = [(6,), (3, 4, 4), (5, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_fgsm_is_the_exact_worst_case_of_logistic_regression(shape):
    model, batch, w, b = logistic(shape)
    eps = 0.3
    x = fgsm(model, batch, CROSS_ENTROPY, Threat(WIDE, eps))
    loss = CROSS_ENTROPY(model, batch._replace(inputs=(x,)), generator())
    expected = F.softplus(-(signed_score(batch, w, b) - eps * w.abs().sum()))
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_the_smallest_ball_that_flips_a_linear_classifier(norm):
    model, batch, w, b = logistic((6,))
    length = dual(w, norm)
    right = signed_score(batch, w, b) > 0
    part = Batch((batch.inputs[0][right],), batch.targets[right])
    distance = signed_score(part, w, b) / length  # |f| / ||w||_q
    goal = missed(CLASSES)
    for i, radius in enumerate(distance.tolist()):
        one = Batch((part.inputs[0][i : i + 1],), part.targets[i : i + 1])
        for factor, broken in ((1 - 1e-6, False), (1 + 1e-6, True)):
            x = fgsm(model, one, CROSS_ENTROPY, Threat(WIDE, factor * radius, norm))
            assert bool(goal(model(x), one.targets)) is broken


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("shape", SHAPES)
def test_pgd_reaches_the_optimum_of_a_linear_model_and_never_exceeds_it(norm, shape):
    model, batch, w, b = logistic(shape)
    eps = 0.3
    length = dual(w, norm)
    found = pgd(model, batch, CROSS_ENTROPY, Threat(WIDE, eps, norm), generator(), search=Search(steps=20))
    best = F.softplus(-(signed_score(batch, w, b) - eps * length))
    assert (found.loss <= best + 1e-12).all()
    torch.testing.assert_close(found.loss, best, rtol=1e-2, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_one_clean_step_of_length_eps_is_fgsm_bit_for_bit(dtype, norm):
    model, batch, _, _ = logistic((3, 4, 4), dtype=dtype)
    threat = Threat(WIDE, 0.1, norm)
    search = Search(steps=1, step_size=0.1, start="clean")
    assert torch.equal(
        pgd(model, batch, CROSS_ENTROPY, threat, generator(), search=search).inputs,
        fgsm(model, batch, CROSS_ENTROPY, threat),
    )


def test_a_step_that_lowers_the_loss_is_a_step_all_the_same():
    wave = lambda model, batch, _: torch.sin(10 * batch.inputs[0][:, 0])  # rises at 0, is negative at 0.4
    batch, threat = Batch((torch.zeros(1, 1),), torch.tensor([0])), Threat(WIDE, 0.4)
    search = Search(steps=1, step_size=0.4, start="clean")
    found = pgd(nn.Identity(), batch, wave, threat, generator(), search=search)
    assert torch.equal(found.inputs, fgsm(nn.Identity(), batch, wave, threat))
    torch.testing.assert_close(found.loss, torch.tensor([math.sin(4.0)]))
    long = pgd(nn.Identity(), batch, wave, threat, generator(), search=Search(steps=40, step_size=0.02))
    assert long.loss > 0.99


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.5), nn.Linear(32, 3))


def examples(seed=1):
    torch.manual_seed(seed)
    return Batch((torch.rand(30, 6),), torch.randint(0, 3, (30,)))


@pytest.mark.parametrize("seed", range(3))
def test_ten_steps_raise_the_loss_at_least_as_far_as_one(seed):
    model, batch, threat = network(seed).eval(), examples(seed), Threat(WIDE, 0.2)
    one = CROSS_ENTROPY(
        model, batch._replace(inputs=(fgsm(model, batch, CROSS_ENTROPY, threat),)), generator()
    )
    ten = pgd(model, batch, CROSS_ENTROPY, threat, generator(), search=Search(steps=10, restarts=2)).loss
    assert (ten >= one - 1e-5).all()


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_eps_0_gives_the_inputs_bit_for_bit_though_they_lie_outside_the_unit_box(norm):
    model, batch = network().eval(), examples()
    batch = batch._replace(inputs=(10 * batch.inputs[0] - 4.31,))
    threat = Threat(WIDE, 0.0, norm)
    assert torch.equal(fgsm(model, batch, CROSS_ENTROPY, threat), batch.inputs[0])
    found = pgd(model, batch, CROSS_ENTROPY, threat, generator())
    assert torch.equal(found.inputs, batch.inputs[0])
    torch.testing.assert_close(found.loss, CROSS_ENTROPY(model, batch, generator()))


def test_outputs_keep_to_the_domain():
    domain = Domain(torch.zeros(6), torch.ones(6))
    model, batch = network().eval(), examples()
    for norm in ("linf", "l2", "l1"):
        threat = Threat(domain, 0.5, norm)
        for x in (
            fgsm(model, batch, CROSS_ENTROPY, threat),
            pgd(model, batch, CROSS_ENTROPY, threat, generator()).inputs,
        ):
            assert x.min() >= 0 and x.max() <= 1
            assert (threat.size(x, batch.inputs[0]) <= 0.5 * (1 + 1e-6)).all()


def test_eps_is_measured_in_the_users_units_before_the_models_own_scaling():
    class Scaled(nn.Module):
        def forward(self, x):
            return (x / 16 - 0.5) @ torch.tensor([[1.0, -1.0]] * 6)

    x = torch.full((2, 6), 8.0)
    moved = fgsm(Scaled(), Batch((x,), torch.tensor([0, 1])), CROSS_ENTROPY, Threat(WIDE, 2.0))
    torch.testing.assert_close((moved - x).abs(), torch.full_like(x, 2.0))


def test_inputs_outside_the_domain_are_refused():
    batch = examples()
    small = Threat(Domain(torch.tensor(0.0), torch.tensor(0.5)), 0.1)
    with pytest.raises(ValueError, match="inputs must lie in the stated domain"):
        fgsm(network(), batch, CROSS_ENTROPY, small)
    with pytest.raises(ValueError, match="inputs must lie in the stated domain"):
        pgd(network(), batch, CROSS_ENTROPY, small, generator())


def test_an_example_is_broken_if_any_iterate_is():
    class Stripe(nn.Module):
        """Wrong only in a thin stripe on the way, whose loss is not the largest."""

        def forward(self, x):
            wrong = ((x > 0.38) & (x < 0.42)).to(x)
            return torch.cat([-x - 10 * wrong, torch.full_like(x, -9.0)], 1)

    x, y = torch.zeros(1, 1), torch.tensor([0])
    search = Search(steps=5, step_size=0.2, start="clean")
    # Its slope leads through the stripe and beyond it; in the stripe it is the smallest of all.
    objective = lambda model, batch, _: (
        batch.inputs[0][:, 0] - 100 * (model(batch.inputs[0])[:, 0] < -9).float()
    )
    threat = Threat(WIDE, 1.0)
    found = pgd(Stripe(), Batch((x,), y), objective, threat, generator(), search=search, goal=missed(CLASSES))
    assert found.broken.all()
    torch.testing.assert_close(found.inputs, torch.full((1, 1), 0.4))
    plain = pgd(Stripe(), Batch((x,), y), objective, threat, generator(), search=search)
    torch.testing.assert_close(plain.inputs, torch.ones(1, 1))


def test_a_wrong_example_is_not_moved():
    model, batch, w, b = logistic((6,))
    wrong = signed_score(batch, w, b) < 0
    found = pgd(model, batch, CROSS_ENTROPY, Threat(WIDE, 5.0), generator(), goal=missed(CLASSES))
    assert torch.equal(found.inputs[wrong], batch.inputs[0][wrong])
    assert found.broken.all()
    assert (model(found.inputs).argmax(1) != batch.targets).all()


def test_restarts_keep_the_best_of_each_example():
    model, batch, threat = network().eval(), examples(), Threat(WIDE, 0.5)
    losses = [
        pgd(model, batch, CROSS_ENTROPY, threat, generator(), search=Search(steps=2, restarts=r)).loss
        for r in (1, 4)
    ]
    assert (losses[1] >= losses[0]).all()
    assert (losses[1] > losses[0]).any()


def test_a_targeted_attack_reaches_its_class():
    torch.manual_seed(0)
    model = nn.Linear(4, 3, bias=False)
    model.weight.data = torch.eye(3, 4)
    batch = Batch((torch.randn(20, 4),), torch.zeros(20, dtype=torch.long))
    found = pgd(model, batch, target_loss(CLASSES, 2), Threat(WIDE, 20.0), generator(), goal=hit(CLASSES, 2))
    assert found.broken.all()
    assert (model(found.inputs).argmax(1) == 2).all()


def test_momentum_adds_the_gradients_before_each_over_its_mean_size():

    class Tent(nn.Module):
        def forward(self, x):
            return x

    def tent(model, batch, _):
        x = batch.inputs[0]
        return (x[:, 0] - 4 * (x[:, 0] - 1).relu()) + 0.2 * x[:, 1]

    batch, threat = Batch((torch.zeros(1, 2),), torch.tensor([0])), Threat(WIDE, 100.0, "l2")
    asked = []
    seen = lambda model, batch, g: (asked.append(batch.inputs[0].detach().clone()), tent(model, batch, g))[1]
    search = Search(steps=3, step_size=2.0, start="clean", momentum=0.5)
    pgd(Tent(), batch, seen, threat, generator(), search=search)
    first = torch.tensor([1.0, 0.2]) / 0.6
    second = 0.5 * first + torch.tensor([-3.0, 0.2]) / 1.6
    third = 0.5 * second + torch.tensor([1.0, 0.2]) / 0.6
    at, expected = torch.zeros(2), []
    for velocity in (first, second, third):
        at = at + 2 * velocity / velocity.norm()
        expected.append(at)
    torch.testing.assert_close(torch.cat(asked[-3:]), torch.stack(expected))


def test_the_ratio_of_logits_by_hand_and_its_invariance():
    scores, labels = torch.tensor([[5.0, 3.0, 1.0, 0.0], [0.0, 4.0, 1.0, 2.0]]), torch.tensor([0, 2])
    batch = Batch((scores,), labels)
    loss = ratio_loss(CLASSES)(nn.Identity(), batch, generator())
    torch.testing.assert_close(loss, torch.tensor([-(5 - 3) / (5 - 1), -(1 - 4) / (4 - 1)]))
    scaled = ratio_loss(CLASSES)(nn.Identity(), Batch((7 * scores - 3,), labels), generator())
    torch.testing.assert_close(scaled, loss)
    pairs = torch.tensor([[0, 2], [2, 0]])
    aimed = targeted_ratio_loss(CLASSES)(nn.Identity(), Batch((scores,), pairs), generator())
    torch.testing.assert_close(aimed, torch.tensor([-(5 - 1) / (5 - 0.5), -(1 - 0) / (4 - 0.5)]))
    three = targeted_ratio_loss(CLASSES)(nn.Identity(), Batch((scores[:1, :3],), pairs[:1]), generator())
    torch.testing.assert_close(three, torch.tensor([-(5 - 1) / (5 - 1.0)]))
    with pytest.raises(ValueError, match="three classes: got 2"):
        ratio_loss(CLASSES)(nn.Identity(), Batch((scores[:, :2],), labels), generator())


def test_examples_that_are_broken_leave_the_batch():
    """The model is asked of those alone that still hold; as many passes as example and step need."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = []

        def forward(self, x):
            self.rows.append(len(x))
            return torch.cat([1 - x[:, :1], x[:, :1] - 1], 1)

    x = torch.linspace(0.05, 0.95, 10)[:, None]  # the further from 1, the more steps of .1
    model, batch = Counting(), Batch((x,), torch.zeros(10, dtype=torch.long))
    search = Search(steps=10, step_size=0.1, start="clean")
    found = pgd(
        model,
        batch,
        margin_loss(CLASSES),
        Threat(WIDE, 2.0),
        generator(),
        search=search,
        goal=missed(CLASSES),
    )
    assert found.broken.all() and (found.inputs > 1).all()
    assert model.rows == [10, 10, *range(10, 0, -1)]  # the last is broken by the last step


def test_margins_by_hand():
    scores = torch.tensor([[1.0, 4.0, 2.0], [0.0, 0.0, 0.0]])
    assert class_margins(scores, torch.tensor([1, 0])).tolist() == [2.0, 0.0]
    assert class_margins(scores, torch.tensor([0, 2])).tolist() == [-3.0, 0.0]
    assert class_margins(torch.tensor([[-1.0, -2.0, -5.0]]), torch.tensor([0])).tolist() == [1.0]


def test_the_margin_loss_has_a_gradient_where_the_perceptrons_is_flat():
    class Score(nn.Module):
        def forward(self, x):
            return x[:, 0]

    batch = Batch((torch.tensor([[2.0]]),), torch.tensor([1]))
    assert not input_gradient(Score(), batch, risk(HALFSPACE), generator()).gradient.any()
    found = pgd(
        Score(), batch, margin_loss(HALFSPACE), Threat(WIDE, 3.0), generator(), goal=missed(HALFSPACE)
    )
    assert found.broken.all()


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_a_model_without_gradient_gives_no_nan(norm):
    constant = nn.Linear(6, 3)
    nn.init.zeros_(constant.weight)

    class Steps(nn.Module):
        def forward(self, x):
            return F.one_hot((x.sum(1) > 3).long(), 3).float()

    for model in (constant, Steps()):
        x = fgsm(model, examples(), CROSS_ENTROPY, Threat(WIDE, 0.1, norm))
        assert torch.equal(x, examples().inputs[0])
        assert (
            pgd(model, examples(), CROSS_ENTROPY, Threat(WIDE, 0.1, norm), generator())
            .inputs.isfinite()
            .all()
        )


def test_nan_fails_loudly():
    class Root(nn.Module):
        def forward(self, x):
            return torch.sqrt(x - x.detach()) @ torch.ones(6, 3)  # the value is 0, the gradient not finite

    class Nan(nn.Module):
        def forward(self, x):
            return x[:, :3] * torch.nan

    for model in (Root(), Nan()):
        with pytest.raises(NonFiniteError):
            fgsm(model, examples(), CROSS_ENTROPY, Threat(WIDE, 0.1))
        with pytest.raises(NonFiniteError):
            pgd(model, examples(), CROSS_ENTROPY, Threat(WIDE, 0.1), generator())


def test_the_gradient_does_not_shrink_with_the_batch_nor_with_the_terms():
    model, batch = network().double().eval(), examples()
    batch = batch._replace(inputs=(batch.inputs[0].double(),))
    whole = input_gradient(model, batch, CROSS_ENTROPY, generator())
    alone = input_gradient(
        model, Batch((batch.inputs[0][:1],), batch.targets[:1]), CROSS_ENTROPY, generator()
    )
    torch.testing.assert_close(whole.gradient[:1], alone.gradient)
    twice = lambda m, b, g: CROSS_ENTROPY(m, b, g)[:, None].expand(-1, 2)
    torch.testing.assert_close(input_gradient(model, batch, twice, generator()).gradient, 2 * whole.gradient)


def test_attacks_see_the_model_in_evaluation_mode_and_leave_no_trace():
    model, batch = network(), examples()
    model.train()
    model[3].eval()  # a mixed state, which must come back as it was
    model(batch.inputs[0])
    model[0].weight.requires_grad_(False)
    model[4].weight.grad = torch.ones_like(model[4].weight)
    flags = [m.training for m in model.modules()]
    needs = [p.requires_grad for p in model.parameters()]
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(5)
    state = torch.get_rng_state()
    moved = fgsm(model, batch, CROSS_ENTROPY, Threat(WIDE, 0.1))
    found = pgd(model, batch, CROSS_ENTROPY, Threat(WIDE, 0.1), generator(), goal=missed(CLASSES))
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model.modules()] == flags
    assert [p.requires_grad for p in model.parameters()] == needs
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(model[4].weight.grad, torch.ones_like(model[4].weight))
    assert model[0].weight.grad is None and not batch.inputs[0].requires_grad
    assert not moved.requires_grad and not found.inputs.requires_grad
    twin = copy.deepcopy(model).eval()
    assert torch.equal(moved, fgsm(twin, batch, CROSS_ENTROPY, Threat(WIDE, 0.1)))
    again = pgd(twin, batch, CROSS_ENTROPY, Threat(WIDE, 0.1), generator(), goal=missed(CLASSES))
    assert torch.equal(found.inputs, again.inputs)


def test_attacks_work_inside_no_grad():
    with torch.no_grad():
        x = fgsm(network(), examples(), CROSS_ENTROPY, Threat(WIDE, 0.1))
    assert (x != examples().inputs[0]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": -0.1}, "momentum must be at least 0"),
        ({"steps": 0}, "at least 1"),
        ({"restarts": 0}, "at least 1"),
        ({"step_size": 0.0}, "must be positive"),
    ],
)
def test_bad_searches_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Search(**options)


def test_what_cannot_be_moved_is_refused():
    ids = Batch((torch.zeros(2, 3, dtype=torch.long),), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="one input of real numbers"):
        fgsm(network(), ids, CROSS_ENTROPY, Threat(WIDE, 0.1))
    mean = lambda m, b, g: CROSS_ENTROPY(m, b, g).mean()
    with pytest.raises(ValueError, match="the loss of each of the 30 examples"):
        fgsm(network(), examples(), mean, Threat(WIDE, 0.1))
