"""Square: its schedule and first points, in the ball and the box, better than chance, linear models."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.robust.attacks.gradient import margin_loss, missed
from margin.robust.attacks.square import _moved_mass, bump, share_at, square
from margin.robust.attacks.threat_models import Threat

UNIT = Domain(torch.tensor(0.0), torch.tensor(1.0))


def net(features, hidden=16, classes=3):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes)
    ).eval()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Remembers(nn.Module):
    """A model that keeps what it was asked."""

    def __init__(self, model):
        super().__init__()
        self.model, self.asked = model, []

    def forward(self, x):
        self.asked.append(x.clone())
        return self.model(x)


@pytest.mark.parametrize(
    ("query", "share"),
    [
        (0, 0.8),
        (10, 0.8),
        (11, 0.4),
        (50, 0.4),
        (51, 0.2),
        (200, 0.2),
        (201, 0.1),
        (501, 0.05),
        (1000, 0.05),
        (1001, 0.025),
        (2001, 0.0125),
        (4001, 0.00625),
        (6001, 0.003125),
        (8000, 0.003125),
        (8001, 0.0015625),
    ],
)
def test_the_share_is_halved_after_the_queries_of_the_paper(query, share):
    assert share_at(query, 10_000) == pytest.approx(share, rel=1e-12)
    assert share_at(query // 2, 5_000) == pytest.approx(
        share_at(query // 2 * 2, 10_000), rel=1e-12
    )  # stretched


def test_a_bump_is_nested_rectangles_of_opposite_signs():
    # Of side 3: one row 1 + 1/4 amid 1/4, against two rows of 1/4 with 1 + 1/4; each of length 1, then both.
    first = torch.tensor([[0.25, 1.25, 0.25]]).double()
    second = torch.tensor([[0.25, 0.25, 0.25], [0.25, 1.25, 0.25]]).double()
    expected = torch.cat((first / first.norm(), -second / second.norm()))
    torch.testing.assert_close(bump(3), expected / 2**0.5)
    for side in (1, 2, 5, 7):
        assert bump(side).norm().item() == pytest.approx(1.0)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("shape", [(20,), (1, 4, 5), (3, 7, 7), (2, 5)])
def test_it_stays_in_the_ball_and_beats_as_many_random_points(norm, shape):
    features = torch.Size(shape).numel()
    model, x = net(features), torch.rand(100, *shape, generator=seeded(1))
    batch = Batch((x,), model(x).argmax(1))
    loss, generator, threat = margin_loss(CLASSES), seeded(), Threat(UNIT, 0.2, norm)
    found = square(model, batch, loss, threat, generator, queries=100)
    assert (threat.size(found.inputs, x) <= 0.2 * (1 + 1e-6)).all() and UNIT.contains(found.inputs)
    with torch.no_grad():
        own = loss(model, batch._replace(inputs=(found.inputs,)), generator)
        points = [threat.random_point(x, generator) for _ in range(100)]
        chance = torch.stack([loss(model, batch._replace(inputs=(y,)), generator) for y in points]).amax(0)
    torch.testing.assert_close(own, found.loss)
    base = loss(model, batch, generator).mean()
    assert own.mean() - base > 1.2 * (chance.mean() - base)
    assert norm != "linf" or own.mean() > chance.mean() + 0.2 * chance.std()
    assert (own > chance).double().mean() > 0.8


def test_it_begins_at_vertical_stripes_of_one_sign_a_channel():
    x, model = torch.full((6, 2, 5, 8), 0.5), Remembers(net(80))
    threat, batch = Threat(UNIT, 0.1), Batch((x,), torch.zeros(6, dtype=torch.long))
    found = square(model, batch, margin_loss(CLASSES), threat, seeded(), queries=1)
    moved = found.inputs - x
    torch.testing.assert_close(moved.abs(), torch.full_like(x, 0.1))
    assert torch.equal(moved, moved[:, :, :1].expand_as(moved))
    assert not torch.equal(moved[:, :, :, :1].expand_as(moved), moved)
    assert not torch.equal(moved[:, :1].expand_as(moved), moved)
    vector = square(
        net(8), Batch((x[:, 0, 0],), batch.targets), margin_loss(CLASSES), threat, seeded(), queries=1
    )
    torch.testing.assert_close((vector.inputs - 0.5).abs(), torch.full((6, 8), 0.1))


def test_a_proposal_of_linf_is_a_square_of_one_sign_a_channel_of_the_share_of_the_image():
    x, model = torch.full((50, 2, 10, 10), 0.5), Remembers(nn.Sequential(nn.Flatten(), nn.Linear(200, 2)))
    threat, batch = Threat(UNIT, 0.1), Batch((x,), torch.zeros(50, dtype=torch.long))
    square(model, batch, margin_loss(CLASSES), threat, seeded(), queries=2)
    clean, stripes, second = model.asked  # at query 1 of 2, place 5,000 of 10,000, the share is .8 / 2^7
    assert torch.equal(clean, x)
    differs = (second - stripes).abs() > 1e-6
    side = round((0.8 / 2**7 * 100) ** 0.5)
    assert side == 1 and (differs.flatten(2).sum(2) <= 1).all() and differs.any()
    model.asked.clear()
    square(model, batch, margin_loss(CLASSES), threat, seeded(), queries=10_000 // 50)
    for query, side in ((1, 6), (3, 4), (5, 3)):  # places 50, 150, 250: sqrt of .4, .2, .1 of 100 pixels
        known = model.asked[: query + 1]
        moved = model.asked[query + 1][:, :, :, :, None] - torch.stack(known[1:], -1)
        count = (moved.abs() > 1e-6).flatten(2, 3).sum(2).amin(-1)  # from the nearest point asked before
        assert count.max() <= side**2
        places = (moved.abs() > 1e-6).any(1).flatten(1, 2)
        assert places.any()


def test_in_linf_every_coordinate_stays_at_a_corner_of_the_cube():
    # Mutant: proposals of half the side, which leave coordinates in the middle.
    x, threat = torch.full((20, 1, 6, 6), 0.5), Threat(UNIT, 0.1)
    batch = Batch((x,), torch.zeros(20, dtype=torch.long))
    found = square(net(36), batch, margin_loss(CLASSES), threat, seeded(), queries=30)
    torch.testing.assert_close((found.inputs - x).abs(), torch.full_like(x, 0.1))


@pytest.mark.parametrize(("norm", "rate", "reach"), [("linf", 1.0, 0.95), ("l2", 2.0, 0.7)])
def test_a_linear_model_is_broken_nearly_as_far_as_its_closed_form(norm, rate, reach):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).double()
    with torch.no_grad():
        model[1].bias.copy_(-model[1].weight.sum(1) / 2)  # the boundary goes through the middle
    x = 0.5 + 0.02 * torch.randn(200, 1, 6, 6, generator=seeded(2)).double()
    weight = model[1].weight[0] - model[1].weight[1]
    distance = (model(x)[:, 0] - model(x)[:, 1]).abs() / torch.linalg.vector_norm(weight, rate)
    batch, threat = Batch((x,), model(x).argmax(1)), Threat(UNIT, distance.median().item(), norm)
    found = square(model, batch, margin_loss(CLASSES), threat, seeded(), queries=600, goal=missed(CLASSES))
    assert not (found.broken & (distance > threat.eps)).any()  # nobody breaks what cannot be broken
    near = distance < reach * threat.eps
    assert near.sum() > 20 and (distance > threat.eps).sum() > 20
    assert found.broken[near].all()
    assert torch.equal(missed(CLASSES)(model(found.inputs), batch.targets), found.broken)


def test_in_l2_mass_moves_and_the_length_stays():
    x, model = torch.full((8, 3, 12, 12), 0.5), Remembers(net(432))
    threat, batch = Threat(UNIT, 0.4, "l2"), Batch((x,), torch.zeros(8, dtype=torch.long))
    square(model, batch, margin_loss(CLASSES), threat, seeded(), queries=30, share=0.3)
    for asked in model.asked[1:]:
        torch.testing.assert_close(threat.size(asked, x), torch.full((8,), 0.4).double(), rtol=1e-4, atol=0)
    assert len(model.asked) == 31


def test_an_example_that_falls_leaves_the_batch_and_an_error_is_no_success():
    model = Remembers(net(20))
    x = torch.rand(40, 20, generator=seeded(3))
    y = model.model(x).argmax(1)
    y[:5] = (y[:5] + 1) % 3
    found = square(
        model,
        Batch((x,), y),
        margin_loss(CLASSES),
        Threat(UNIT, 0.1),
        seeded(),
        queries=40,
        goal=missed(CLASSES),
    )
    assert torch.equal(found.inputs[:5], x[:5]) and found.broken[:5].all()
    sizes = [len(asked) for asked in model.asked]
    assert sizes[0] == 40 and sizes[1] == 35 and sizes[-1] < 35
    assert all(a >= b for a, b in pairwise(sizes))


def test_epsilon_0_asks_nothing_and_returns_the_bits():
    x = torch.rand(5, 1, 4, 4, generator=seeded(4))
    y = net(16)(x).argmax(1)
    found = square(net(16), Batch((x,), y), margin_loss(CLASSES), Threat(UNIT, 0.0), seeded(), queries=5)
    assert torch.equal(found.inputs, x) and not found.broken.any()


@pytest.mark.parametrize(("queries", "share"), [(0, 0.8), (10, 0.0), (10, 1.5)])
def test_bad_options_are_refused(queries, share):
    batch = Batch((torch.rand(2, 20),), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="queries must be at least 1, share in"):
        square(
            net(20), batch, margin_loss(CLASSES), Threat(UNIT, 0.1), seeded(), queries=queries, share=share
        )


def test_a_proposal_of_equal_loss_is_kept():
    """Else the last point asked about would differ from the first by one square of the last size alone."""
    model = Remembers(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)))
    with torch.no_grad():
        model.model[1].weight.zero_()
        model.model[1].bias.copy_(torch.tensor([1.0, 0.0]))
    batch = Batch((torch.full((1, 1, 8, 8), 0.5),), torch.tensor([0]))
    square(model, batch, margin_loss(CLASSES), Threat(UNIT, 0.1), seeded(), queries=60)
    side = round((share_at(59, 60, 0.8) * 64) ** 0.5)
    assert (model.asked[-1] != model.asked[1]).sum() > 4 * max(side, 1) ** 2


@pytest.mark.parametrize("channels", [1, 3])
def test_moved_mass_fills_the_ball_whatever_the_channels(channels):
    """What eps leaves over is divided among the channels: with too much the length would exceed eps."""
    draws = torch.Generator().manual_seed(0)
    delta = torch.randn(40, channels, 12, 12, generator=draws, dtype=torch.float64)
    delta = 0.3 * delta / delta.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
    moved = _moved_mass(delta, 0.5, 0.1, draws)
    torch.testing.assert_close(
        moved.flatten(1).norm(dim=1), torch.full((40,), 0.5).double(), rtol=1e-9, atol=0
    )
