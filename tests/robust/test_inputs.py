"""Sequences of vectors and point clouds are attacked and certified as images are; others are told."""

import math

import pytest
import torch
from torch import nn

from margin.core.catalog import models
from margin.core.findings import Subject, has_real_input, why_not_movable
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust.attacks.apgd import apgd
from margin.robust.attacks.carlini import Descent, carlini_wagner
from margin.robust.attacks.ensemble import cross_entropy
from margin.robust.attacks.gradient import fgsm, missed, moved_input, pgd
from margin.robust.attacks.minimal import boundary_attack, deepfool
from margin.robust.attacks.square import square
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates.certify import ball_of, certified
from margin.robust.certificates.intervals import all_beaten, margin_bounds
from margin.robust.certificates.linear_bounds import crown_margins
from margin.robust.certificates.lipschitz import lipschitz_margins
from margin.robust.sandwich import linf_sandwich
from margin.testing import built, first_batch, tiny_data

WIDE = Domain(torch.tensor(-9.0), torch.tensor(9.0))
NORMS = ("linf", "l2", "l1")


class Weighted(nn.Module):
    """A linear classifier of sequences: each time has its own weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(2, 5, 3))

    def forward(self, x):
        return torch.stack([(x * w).sum((1, 2)) for w in self.weight], 1)


def sequences():
    """Twenty sequences of five vectors, their classes, and their distances from the boundary in each norm."""
    model, x = Weighted(), torch.randn(20, 5, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        out, w = model(x), (model.weight[0] - model.weight[1]).flatten()
    gap, duals = (out[:, 0] - out[:, 1]).abs(), {"linf": 1.0, "l2": 2.0, "l1": math.inf}
    return model, x, out.argmax(1), {n: gap / w.norm(p=order) for n, order in duals.items()}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attack", ["fgsm", "pgd", "apgd", "square"])
def test_sequences_of_vectors_are_broken_beyond_their_distance_and_not_within(attack, norm):
    model, x, y, distances = sequences()
    generator, loss, batch = torch.Generator().manual_seed(0), cross_entropy(CLASSES), Batch((x,), y)
    eps = float(distances[norm].median())
    threat = Threat(WIDE, eps, norm)
    if attack == "fgsm":
        moved = fgsm(model, batch, risk(CLASSES), threat)
    elif attack == "pgd":
        moved = pgd(model, batch, loss, threat, generator, goal=missed(CLASSES)).inputs
    elif attack == "apgd":
        moved = apgd(model, batch, loss, threat, generator, steps=30, goal=missed(CLASSES)).inputs
    else:
        moved = square(model, batch, loss, threat, generator, queries=300, goal=missed(CLASSES)).inputs
    broken = model(moved).argmax(1) != y
    assert moved.shape == x.shape and not broken[distances[norm] > eps * (1 + 1e-5)].any()
    far = {"square": 0.4, "pgd": 0.9}.get(attack, 0.99)
    assert broken[distances[norm] < far * eps].all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attack", [deepfool, boundary_attack, carlini_wagner])
def test_the_nearest_wrong_sequence_lies_at_the_distance(attack, norm):
    if attack is carlini_wagner and norm != "l2":
        pytest.skip("it is written for l2")
    model, x, y, distances = sequences()
    more = {"descent": Descent(steps=200, searches=4)} if attack is carlini_wagner else {}
    found = attack(model, Batch((x,), y), CLASSES, Threat(WIDE, 30.0, norm), **more)
    assert found.broken.all() and (found.distance >= distances[norm] * (1 - 1e-4)).all()
    assert (found.distance <= distances[norm] * 1.1 + 1e-3).all()


@pytest.mark.parametrize("norm", NORMS)
def test_sequences_of_vectors_are_certified_up_to_their_distance(norm):
    model, x, y, distances = sequences()
    eps = float(distances[norm].median())
    threat = Threat(WIDE, eps, norm)
    ball = ball_of(x, threat)
    sure = certified(model, x, y, [threat], units=0).proved[0]
    assert torch.equal(sure, distances[norm] > eps * (1 + 1e-5))
    for below in (
        margin_bounds(model, ball.low, ball.high, y),
        crown_margins(model, ball, y),
        lipschitz_margins(model, ball, y),
    ):
        assert not all_beaten(below, y)[distances[norm] < eps].any()


def test_point_clouds_go_through_the_sandwich():
    entry = models()["geometric/pointnet"]
    data = tiny_data(entry)
    model, batch = built(entry, data).eval(), first_batch(entry, data)
    batch = batch._replace(targets=model(*batch.inputs).argmax(1))
    made = Subject(model=model, test=(batch,), task=CLASSES, objective=risk(CLASSES), domain=WIDE)
    finding = linf_sandwich(made, shares=(0.0, 1e-6, 1e-2))
    assert not finding.failure and finding.low is not None and finding.value[0] == 1
    assert (finding.low <= finding.value + 1e-9).all()


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("geometric/gcn", r"torch\.float32, torch\.int64, torch\.float32, torch\.int64"),
        ("sequence/gru", r"torch\.float32, torch\.int64"),
        ("text/text_cnn", r"torch\.int64, torch\.int64"),
    ],
)
def test_graphs_padded_sequences_and_tokens_are_refused_with_what_they_are(name, kinds):
    entry = models()[name]
    data = tiny_data(entry)
    batch = first_batch(entry, data)
    with pytest.raises(ValueError, match=f"an attack moves one input of real numbers: got {kinds}"):
        moved_input(batch)
    made = Subject(
        model=built(entry, data), test=(batch,), task=CLASSES, objective=risk(CLASSES), domain=WIDE
    )
    assert not has_real_input(made) and why_not_movable(made)
