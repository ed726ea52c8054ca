"""Mixup and CutMix against loops over pairs; weights, padding, and what must not leak."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, nn

from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.evaluation import weighted_mean
from margin.engine.loop import risk
from margin.engine.objectives import Box, beta, box_of, interpolated, mixed, partners, pasted


def images(n=6, seed=0):
    generator = Generator().manual_seed(seed)
    x = torch.randn(n, 2, 5, 4, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (n,), generator=generator)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(40, 3)).double()


def seen(objective, net, batch, seed=0):
    """The losses, and the inputs at which the model was asked."""
    inputs = []
    handle = net.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    losses = objective(net, batch, Generator().manual_seed(seed))
    handle.remove()
    return losses, inputs


def drawn(batch, alpha, seed):
    """Lambda and partners as the step draws them: in this order, from its generator."""
    generator = Generator().manual_seed(seed)
    lam = beta(alpha, generator)
    return lam, partners(batch, generator), generator


@pytest.mark.parametrize("seed", range(4))
def test_mixup_is_equation_1_pair_by_pair(seed):
    x, y = images()
    net, batch = model(), Batch((x,), y)
    losses, inputs = seen(mixed(risk(CLASSES), "mixup", 0.7), net, batch, seed)
    lam, partner, _ = drawn(batch, 0.7, seed)
    assert len(inputs) == 1  # the model is asked once
    for i, j in enumerate(partner.tolist()):
        point = lam * x[i] + (1 - lam) * x[j]
        torch.testing.assert_close(inputs[0][i], point)
        log_p = net(point[None]).log_softmax(1)[0]
        torch.testing.assert_close(losses[i], -lam * log_p[y[i]] - (1 - lam) * log_p[y[j]])


@pytest.mark.parametrize("seed", range(8))
def test_cutmix_pastes_a_box_and_lambda_is_the_share_of_pixels_kept(seed):
    x, y = images()
    net, batch = model(), Batch((x,), y)
    losses, inputs = seen(mixed(risk(CLASSES), "cutmix", 1.0), net, batch, seed)
    _, partner, _ = drawn(batch, 1.0, seed)
    for i, j in enumerate(partner.tolist()):
        if i == j:
            continue
        own = (inputs[0][i] == x[i]).all(0)
        assert torch.equal(inputs[0][i][:, ~own], x[j][:, ~own])
        kept = own.double().mean()
        log_p = net(inputs[0][i : i + 1]).log_softmax(1)[0]
        torch.testing.assert_close(losses[i], -kept * log_p[y[i]] - (1 - kept) * log_p[y[j]])


def test_boxes_are_rectangles_of_the_drawn_size_cut_off_at_the_border():
    for seed, lam in itertools.product(range(200), (0.0, 0.3, 0.75, 1.0)):
        box = box_of((7, 4), lam, Generator().manual_seed(seed))
        height, width = round(7 * math.sqrt(1 - lam)), round(4 * math.sqrt(1 - lam))
        assert 0 <= box.top <= box.bottom <= 7 and 0 <= box.left <= box.right <= 4
        if box.top > 0 and box.bottom < 7:
            assert box.bottom - box.top == height
        if box.left > 0 and box.right < 4:
            assert box.right - box.left == width
        assert box.rest == pytest.approx(1 - (box.bottom - box.top) * (box.right - box.left) / 28)
        if lam == 1.0:
            assert box.rest == 1.0
    tops = {box_of((7, 4), 0.9, Generator().manual_seed(seed)).top for seed in range(300)}
    assert tops == set(range(6))  # of side 2 around any row


def test_pasting_copies_the_box_alone():
    x, _ = images()
    made = pasted(x, -x, Box(1, 3, 2, 4, size=(5, 4)))
    inside = torch.zeros(5, 4, dtype=torch.bool)
    inside[1:3, 2:4] = True
    assert torch.equal(made[:, :, inside], -x[:, :, inside])
    assert torch.equal(made[:, :, ~inside], x[:, :, ~inside])


def test_lambda_has_the_moments_of_beta():
    """Mean 1/2, variance 1 / (4 (2 alpha + 1)); 4000 draws, 5 standard errors: fails with p < 1e-5."""
    generator = Generator().manual_seed(0)
    for alpha in (0.2, 1.0, 5.0):
        draws = torch.tensor([beta(alpha, generator) for _ in range(4000)], dtype=torch.float64)
        variance = 1 / (4 * (2 * alpha + 1))
        assert abs(draws.mean() - 0.5) < 5 * math.sqrt(variance / 4000)
        assert abs(draws.var() / variance - 1) < 5 * math.sqrt(2 / 4000)


def test_of_values_the_gradient_is_that_of_the_mixed_target():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)).double()
    x, y = torch.randn(8, 4, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    batch = Batch((x,), y)
    losses = mixed(risk(VALUES), "mixup", 1.0)(net, batch, Generator().manual_seed(3))
    lam, partner, _ = drawn(batch, 1.0, 3)
    at = interpolated(x, x[partner], lam)
    expected = (net(at) - interpolated(y, y[partner], lam)).square()
    gradients = [torch.autograd.grad(loss.mean(), net[0].weight)[0] for loss in (losses, expected)]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(losses - expected, lam * (1 - lam) * (y - y[partner]).square())


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_predictions_are_not_broadcast_against_mixed_targets(kind):
    """pytorch#16045: (4, 1) against (4,) is 4 x 4 pairs to torch, whose loss is 2.5 where 0 is right."""
    values = torch.arange(4.0)
    x = values[:, None, None, None].expand(4, 1, 2, 2).contiguous()

    class Column(nn.Module):
        def forward(self, x):
            return x.mean((1, 2, 3))[:, None]

    with pytest.warns(UserWarning, match="different to the input size"):
        assert F.mse_loss(values[:, None], values).item() == 2.5
    with pytest.raises(ValueError, match=r"one shape: got outputs \(4, 1\), targets \(4,\)"):
        mixed(risk(VALUES), kind)(Column(), Batch((x,), values), Generator())


def test_the_loss_of_a_pair_counts_by_the_weights_of_both():
    x, y = images()
    net = model()
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype=torch.float64)
    batch = Batch((x,), y, weight)
    losses = mixed(risk(CLASSES), "mixup", 1.0)(net, batch, Generator().manual_seed(1))
    lam, partner, _ = drawn(batch, 1.0, 1)
    assert (partner != torch.arange(6)).any()
    terms, counts = 0.0, 0.0
    for i, j in enumerate(partner.tolist()):
        point = (lam * x[i] + (1 - lam) * x[j])[None]
        terms += lam * weight[i] * F.cross_entropy(net(point), y[i : i + 1])
        terms += (1 - lam) * weight[j] * F.cross_entropy(net(point), y[j : j + 1])
        counts += lam * weight[i] + (1 - lam) * weight[j]
    torch.testing.assert_close(weighted_mean(losses, weight), terms / counts)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_a_filler_of_weight_0_leaks_nowhere_be_it_nan(kind):
    x, y = images(6)
    weight = torch.tensor([1.0, 0.0, 2.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    spoiled = x.clone()
    spoiled[weight == 0] = torch.nan
    for seed in range(20):
        net, results = model(), []
        for inputs in (x, spoiled):
            batch = Batch((inputs,), y, weight)
            losses = mixed(risk(CLASSES), kind, 1.0)(net, batch, Generator().manual_seed(seed))
            loss = weighted_mean(losses, weight)
            results.append((loss, torch.autograd.grad(loss, net[1].weight)[0]))
        assert results[0][0].isfinite()
        assert torch.equal(results[0][0], results[1][0])
        partner = partners(Batch((x,), y, weight), Generator().manual_seed(seed))
        assert partner[1] == 1 and partner[4] == 4
        assert sorted(partner.tolist()) == list(range(6))


def test_an_objective_of_another_kind_is_asked_for_both_targets():
    x, y = images()
    net = model()
    plain = risk(CLASSES)
    other = mixed(lambda m, b, g: plain(m, b, g), "mixup", 1.0)
    losses, inputs = seen(other, net, Batch((x,), y))
    assert len(inputs) == 2
    torch.testing.assert_close(
        losses, mixed(plain, "mixup", 1.0)(net, Batch((x,), y), Generator().manual_seed(0))
    )


def test_in_evaluation_mode_nothing_is_mixed():
    x, y = images()
    net = model().eval()
    batch = Batch((x,), y)
    assert torch.equal(
        mixed(risk(CLASSES), "mixup")(net, batch, Generator()), risk(CLASSES)(net, batch, Generator())
    )


def test_draws_are_the_generators_alone():
    x, y = images()
    net, objective = model(), mixed(risk(CLASSES), "cutmix")
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = (objective(net, Batch((x,), y), Generator().manual_seed(s)) for s in (4, 4, 9))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, two) and not torch.equal(one, other)


def test_small_alpha_mixes_nearly_nothing():
    generator = Generator().manual_seed(0)
    draws = [beta(1e-3, generator) for _ in range(200)]
    assert all(math.isfinite(lam) for lam in draws)
    assert sum(1e-6 < lam < 1 - 1e-6 for lam in draws) < 20


def test_what_cannot_be_mixed_is_refused():
    x, y = images()
    for alpha in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="alpha must be positive and finite"):
            mixed(risk(CLASSES), "mixup", alpha)
    net, generator = model(), Generator()
    with pytest.raises(ValueError, match=r"mixup needs real inputs: got torch\.int64"):
        mixed(risk(CLASSES), "mixup")(net, Batch((torch.zeros(6, 3, dtype=torch.long),), y), generator)
    with pytest.raises(ValueError, match=r"cutmix needs one image an example.*got \(6, 40\)"):
        mixed(risk(CLASSES), "cutmix")(net, Batch((x.flatten(1),), y), generator)
    with pytest.raises(ValueError, match=r"one weight an example: got shape \(6, 2\)"):
        mixed(risk(CLASSES), "mixup")(net, Batch((x,), y, torch.ones(6, 2)), generator)
    with pytest.raises(ValueError, match="mixing needs targets"):
        mixed(risk(CLASSES), "mixup")(net, Batch((x,)), generator)
