"""Carlini & Wagner's attack: the closed form of linear models, in the box, nearer than DeepFool."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.robust.attacks.carlini import Descent, carlini_wagner
from margin.robust.attacks.features import Features
from margin.robust.attacks.gradient import missed
from margin.robust.attacks.linear_models import dual_length
from margin.robust.attacks.minimal import deepfool
from margin.robust.attacks.threat_models import Threat

SHORT = Descent(steps=80, searches=6, lr=0.005, constant=3e-2)
STEP = 0.005 * 4  # of a coordinate of the box below


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def threat(low=-4.0, high=4.0, eps=1e3, **options):
    return Threat(Domain(torch.tensor(low), torch.tensor(high)), eps, "l2", **options)


def linear(count=40, classes=4):
    torch.manual_seed(0)
    model = nn.Linear(8, classes, bias=False).double()
    x = 0.3 * torch.randn(count, 8, generator=seeded(1)).double()
    scores = model(x).detach()
    y = scores.argmax(1)
    slopes = dual_length(model.weight[y][:, None] - model.weight, "l2")
    gaps = (scores.gather(1, y[:, None]) - scores) / slopes
    return model, Batch((x,), y), gaps.scatter(1, y[:, None], torch.inf).amin(1).detach()


@pytest.mark.parametrize("width", [4.0, 40.0])
def test_of_a_linear_model_it_finds_the_distance_of_the_nearest_hyperplane(width):
    # The constants are meant in the longest side, so a wider box with wider data is the same problem.
    # Of two classes: of several the search may end at another plane than the nearest.
    model, batch, distance = linear(classes=2)
    scale = width / 4
    with torch.no_grad():
        model.weight /= scale
    scaled = Batch((batch.inputs[0] * scale,), batch.targets)
    found = carlini_wagner(model, scaled, CLASSES, threat(-width, width), descent=SHORT)
    assert found.broken.all()
    ratio = found.distance / (distance * scale)
    assert (ratio > 1 - 1e-9).all() and ratio.max() < 1.01
    assert missed(CLASSES)(model(found.inputs), batch.targets).all()
    torch.testing.assert_close(found.distance, (found.inputs - scaled.inputs[0]).norm(dim=1))


def test_from_the_walls_it_finds_the_least_perturbation_within_the_box():
    """Of black and white pixels: gap / ||w||, w of those alone that can move downhill, which is inwards.

    A start a two-hundredth of the side from each wall weighs only on what is nearer than that. Mutants: a
    start at .999999 of the way to a wall, where tanh is flat and nothing is found; points that are not drawn
    back.
    """
    torch.manual_seed(0)
    model = nn.Linear(12, 2, bias=False).double()
    x = (torch.rand(30, 12, generator=seeded(3)) < 0.5).double()
    y = model(x).argmax(1)
    with torch.no_grad():
        slope = model.weight[1 - y] - model.weight[y]
        gap = (slope * x).sum(1).neg()
    inward = slope * ((slope > 0) == (x == 0))
    distance = gap / inward.norm(dim=1)
    step = inward * (gap / inward.square().sum(1))[:, None]
    lone = step.abs().amax(1) < 0.9  # the other wall is not met
    assert (lone & (distance > 0.15)).sum() > 20
    descent = Descent(steps=200, searches=7, constant=1e-2)
    found = carlini_wagner(model, Batch((x,), y), CLASSES, threat(0.0, 1.0), descent=descent)
    ratio = found.distance / distance
    assert (ratio[lone] > 1 - 1e-6).all() and ratio[lone].max() < 1.2
    assert ratio[lone & (distance > 0.15)].max() < 1.01
    assert found.inputs.min() >= 0 and found.inputs.max() <= 1


def test_adams_first_steps_which_overshoot_tell_nothing_of_the_weight():
    """Inputs less than a step from the boundary. Mutant: any step's success counts for the weight."""
    model, batch, distance = linear(classes=2)
    found = carlini_wagner(model, batch, CLASSES, threat(), descent=Descent(steps=100, searches=7))
    near = distance < 0.01 * 8 / 2 * 8**0.5
    assert near.sum() >= 5 and (found.distance / distance)[near].max() < 1.01


def test_it_stays_in_the_box_also_from_its_walls():
    model, batch, _ = linear()
    x = (3 * batch.inputs[0]).clamp(-1, 1)
    batch = Batch((x,), model(x).argmax(1))
    assert ((x == 1) | (x == -1)).any(1).sum() > 30
    found = carlini_wagner(model, batch, CLASSES, threat(-1.0, 1.0), descent=SHORT)
    assert found.inputs.abs().max() <= 1 and found.broken.double().mean() > 0.5
    lone = carlini_wagner(
        model, batch, CLASSES, threat(-1.0, 1.0, features=Features(torch.arange(8) < 5)), descent=SHORT
    )
    assert torch.equal(lone.inputs[:, :5], x[:, :5])
    assert lone.broken.any() and lone.distance[lone.broken].mean() > found.distance[lone.broken].mean()


def test_it_is_not_farther_than_deepfool_on_average():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    x = torch.randn(50, 8, generator=seeded(2))
    batch = Batch((x,), model(x).argmax(1))
    ours = carlini_wagner(model, batch, CLASSES, threat(), descent=SHORT)
    other = deepfool(model, batch, CLASSES, threat())
    both = ours.broken & other.broken
    assert both.sum() > 40 and ours.distance[both].mean() < other.distance[both].mean()


def test_errors_stay_the_radius_hides_what_lies_beyond_and_confidence_goes_further():
    model, batch, distance = linear()
    labels = batch.targets.clone()
    labels[:4] = (labels[:4] + 1) % 4
    wrong = Batch(batch.inputs, labels)
    found = carlini_wagner(model, wrong, CLASSES, threat(eps=distance.median().item()), descent=SHORT)
    assert torch.equal(found.inputs[:4], batch.inputs[0][:4]) and (found.distance[:4] == 0).all()
    beyond = distance[4:] > distance.median()
    assert (
        not found.broken[4:][beyond].any()
        and found.broken[4:][distance[4:] < distance.median() - 2 * STEP].all()
    )
    assert torch.equal(found.inputs[4:][beyond], batch.inputs[0][4:][beyond])
    sure = carlini_wagner(model, batch, CLASSES, threat(), descent=replace(SHORT, confidence=0.5))
    scores = model(sure.inputs)
    own = scores.gather(1, batch.targets[:, None])[:, 0]
    assert (scores.scatter(1, batch.targets[:, None], -torch.inf).amax(1) - own >= 0.5)[sure.broken].all()
    assert (sure.distance > distance).all()


def test_a_softmax_is_seen_through():
    model, batch, distance = linear()
    sharp = nn.Sequential(model, nn.Softmax(1))
    with torch.no_grad():
        model.weight *= 30
    found = carlini_wagner(sharp, batch, CLASSES, threat(), descent=SHORT)
    assert found.broken.double().mean() > 0.9
    assert (found.distance / distance)[found.broken].median() < 1.05


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"searches": 0}, {"constant": 0.0}, {"lr": 0.0}, {"confidence": -1.0}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        Descent(**options)


def test_what_it_cannot_do_is_refused():
    model, batch, _ = linear()
    for other in (
        Threat(Domain(torch.tensor(-4.0), torch.tensor(4.0)), 1.0, "linf"),
        threat(high=float("inf")),
    ):
        with pytest.raises(ValueError, match="needs the norm l2 and a bounded domain"):
            carlini_wagner(model, batch, CLASSES, other)
