"""IBP training against the formulas by hand, Gaussian augmentation against its moments."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, nn

from margin.core.tasks import BINARY, CLASSES, SCORES
from margin.core.types import Batch, Domain
from margin.engine.loop import GradientUpdate, State, descent, fit, risk
from margin.robust.attacks.threat_models import Threat
from margin.robust.training.certified import (
    Bounded,
    certified_accuracy,
    grown,
    ibp,
    noisy,
    noisy_accuracy,
    smoothing,
)

WIDE = Domain(torch.tensor(-10.0), torch.tensor(10.0))
OBJECTIVE = risk(CLASSES)


def batch_of(features=5, classes=3, count=12, seed=0):
    generator = Generator().manual_seed(seed)
    x = torch.randn(count, features, generator=generator, dtype=torch.float64)
    return Batch((x,), torch.randint(0, classes, (count,), generator=generator))


def two_layers():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).double()


def by_hand(model, x, y, low, high):
    """mu, r through the first layer and the ReLU, then the rows of X."""
    first, last = model[0], model[2]
    center, radius = (low + high) / 2, (high - low) / 2
    middle, reach = center @ first.weight.T + first.bias, radius @ first.weight.abs().T
    low, high = (middle - reach).relu(), (middle + reach).relu()
    center, radius = (low + high) / 2, (high - low) / 2
    rows = last.weight[None] - last.weight[y][:, None]
    shift = last.bias[None] - last.bias[y][:, None]
    return torch.einsum("nkd,nd->nk", rows, center) + torch.einsum("nkd,nd->nk", rows.abs(), radius) + shift


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_the_loss_and_its_gradient_are_those_of_the_formula(share):
    """The bounds of the outputs without the merged rows are wider: the test fails on them."""
    model, batch, eps, kappa = two_layers(), batch_of(), 0.4, 0.3
    x, y = batch.inputs[0], batch.targets
    bounded = Bounded(OBJECTIVE, CLASSES, Threat(WIDE, eps), kappa)
    bounded.share = share
    loss = bounded(model, batch, Generator())
    worst = by_hand(model, x, y, x - share * eps, x + share * eps)
    robust = (1 - kappa) * share
    expected = (1 - robust) * F.cross_entropy(model(x), y, reduction="none")
    expected = expected + robust * F.cross_entropy(worst, y, reduction="none")
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(
        torch.autograd.grad(loss.sum(), list(model.parameters())),
        torch.autograd.grad(expected.sum(), list(model.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_the_domain_cuts_the_box():
    model, batch = two_layers(), batch_of()
    unit = Domain(torch.tensor(-0.5), torch.tensor(0.5))
    x = batch.inputs[0].clamp(-0.5, 0.5)
    bounded = Bounded(OBJECTIVE, CLASSES, Threat(unit, 0.4), 0.0)
    worst = bounded.worst_logits(model, Batch((x,), batch.targets))
    expected = by_hand(model, x, batch.targets, (x - 0.4).clamp(min=-0.5), (x + 0.4).clamp(max=0.5))
    torch.testing.assert_close(worst, expected)


def test_no_point_of_the_ball_has_worse_logits():
    model, batch, eps = two_layers(), batch_of(count=4), 0.3
    x, y = batch.inputs[0], batch.targets
    worst = Bounded(OBJECTIVE, CLASSES, Threat(WIDE, eps), 0.0).worst_logits(model, batch)
    points = x + eps * (2 * torch.rand(5000, *x.shape, generator=Generator().manual_seed(0)).double() - 1)
    logits = model(points)
    differences = logits - logits.gather(2, y.expand(5000, -1)[..., None])
    assert (differences <= worst + 1e-12).all()
    assert (worst.gather(1, y[:, None]) == 0).all()


def test_of_one_logit_the_worst_end_of_its_interval_counts():
    model = nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)).double()
    batch = batch_of(classes=2)
    loss = Bounded(risk(BINARY), BINARY, Threat(WIDE, 0.2), 0.0)(model, batch, Generator())
    sign = 2 * batch.targets - 1
    margin = sign * model(*batch.inputs) - 0.2 * model[0].weight.abs().sum()
    torch.testing.assert_close(loss, F.softplus(-margin))


def test_bounds_are_of_the_model_in_evaluation_mode_and_statistics_are_counted_once():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)
    ).double()
    model[1].running_var.fill_(4.0)
    evaluated, batch = copy.deepcopy(model).eval(), batch_of()
    bounded = Bounded(OBJECTIVE, CLASSES, Threat(WIDE, 0.1), 0.0)
    torch.testing.assert_close(
        bounded.worst_logits(model, batch), bounded.worst_logits(evaluated, batch), rtol=0, atol=0
    )
    loss = Bounded(OBJECTIVE, CLASSES, Threat(WIDE, 0.1), 0.5)(model, batch, Generator())
    loss.sum().backward()
    assert model[1].num_batches_tracked == 1
    assert all(module.training for module in model.modules())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_eps_grows_after_the_warm_up_to_the_end_of_the_ramp():
    shares = [grown(step, 100, 0.1, 0.4) for step in (0, 9, 10, 20, 30, 49, 50, 99)]
    assert shares == pytest.approx([0, 0, 0, 0.25, 0.5, 0.975, 1, 1])
    assert [grown(step, 100, 0.1, 0.0) for step in (9, 10)] == [0.0, 1.0]
    seen = []
    state = State({"model": two_layers()})
    state.optimizers[""] = torch.optim.SGD(state.model.parameters(), lr=0.01)
    step = ibp(OBJECTIVE, GradientUpdate(), WIDE, CLASSES, 10, eps=0.4, warmup=0.2, ramp=0.4)
    fit(state, lambda _: batch_of(), step, max_steps=10, hooks=[lambda _, m: seen.append(m["eps"]) and None])
    assert seen == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4])


def test_what_ibp_cannot_train_is_refused_by_name():
    arguments = (OBJECTIVE, GradientUpdate(), WIDE)
    with pytest.raises(ValueError, match=r"kappa must be in \[0, 1\]: got 2"):
        ibp(*arguments, CLASSES, 10, kappa=2.0)
    with pytest.raises(ValueError, match=r"together at most 1: got 0\.6 and 0\.5"):
        ibp(*arguments, CLASSES, 10, warmup=0.6, ramp=0.5)
    with pytest.raises(ValueError, match="IBP needs class probabilities: the task 'scores' states none"):
        ibp(*arguments, SCORES, 10)
    bounded = Bounded(OBJECTIVE, CLASSES, Threat(WIDE, 0.1), 0.5)
    with pytest.raises(ValueError, match="IBP needs one class label an example"):
        bounded.worst_logits(two_layers(), Batch(batch_of().inputs))
    curved = nn.Sequential(nn.Linear(5, 3), nn.Softsign()).double()
    curved[1].forward = torch.fft.fft
    with pytest.raises(ValueError, match="no interval rule"):
        bounded.worst_logits(curved, batch_of())


def test_certified_accuracy_is_that_of_the_closed_form_on_a_linear_model():
    torch.manual_seed(0)
    model, batch, eps = nn.Linear(5, 3).double(), batch_of(count=80), 0.05
    x, y = batch.inputs[0], batch.targets
    rows = model.weight[y][:, None] - model.weight[None]
    margins = (
        torch.einsum("nkd,nd->nk", rows, x) + model.bias[y][:, None] - model.bias - eps * rows.abs().sum(2)
    )
    right = margins.scatter(1, y[:, None], math.inf).amin(1) > 0
    found = certified_accuracy(WIDE, CLASSES, eps=eps)(model, [batch])
    assert found["certified_accuracy"] == pytest.approx(float(right.double().mean()))
    assert 0 < found["certified_accuracy"] <= found["pgd_accuracy"] < 1


def test_noise_has_the_given_deviation_and_is_drawn_anew():
    x = torch.full((400, 50), 3.0)
    seen = []

    def watched(model, batch, generator):
        seen.append(batch.inputs[0] - x)
        return model(batch.inputs[0]).sum(1)

    model = nn.Linear(50, 2)
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=1e-9)})
    fit(state, lambda _: Batch((x,)), smoothing(watched, GradientUpdate(), sigma=0.5), max_steps=2)
    first, second = seen
    assert not torch.equal(first, second)
    for noise in seen:
        # 20,000 draws: the standard errors are 0.0035 and 0.0025
        assert abs(noise.mean()) < 0.015
        assert abs(noise.std() - 0.5) < 0.0125
    fit(
        State({"model": model}, state.optimizers),
        lambda _: Batch((x,)),
        smoothing(watched, GradientUpdate(), sigma=0.5),
        max_steps=1,
    )
    assert torch.equal(seen[2], first)


def test_without_noise_it_is_plain_descent():
    ends = []
    for step in (smoothing(OBJECTIVE, GradientUpdate(), sigma=0.0), descent(OBJECTIVE, GradientUpdate())):
        model = two_layers()
        state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.1)})
        fit(state, lambda _: batch_of(), step, max_steps=3)
        ends.append(model[0].weight)
    assert torch.equal(*ends)


def test_noise_is_refused_where_it_makes_no_sense():
    with pytest.raises(ValueError, match="sigma must be at least 0 and finite: got -1"):
        smoothing(OBJECTIVE, GradientUpdate(), sigma=-1.0)
    tokens = Batch((torch.zeros(2, 3, dtype=torch.long),), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"noise needs an input of real numbers: got torch\.int64"):
        noisy(OBJECTIVE, 0.1)(two_layers(), tokens, Generator())


def test_accuracy_under_noise_is_the_normal_probability():
    """On a linear model of two classes: Phi(margin / (sigma ||w||)), here the same for every example."""
    model = nn.Linear(4, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0, 0, 0], [1.0, 2.0, 0.0, 2.0]]))
    x = torch.zeros(256, 4, dtype=torch.float64)
    x[:, 0] = 1.5
    found = noisy_accuracy(CLASSES, sigma=1.0)(model, [Batch((x,), torch.ones(256, dtype=torch.long))])
    truth = 0.5 * (1 + math.erf(0.5 / math.sqrt(2)))
    # 4 standard errors of 256 draws
    assert abs(found["noisy_accuracy"] - truth) < 4 * math.sqrt(truth * (1 - truth) / 256)
