"""Minimal-norm attacks against closed forms of linear models, and one step whose length is searched."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust.attacks.gradient import fgsm
from margin.robust.attacks.minimal import _Walk, boundary_attack, deepfool
from margin.robust.attacks.threat_models import Norm, Threat

NORMS: tuple[Norm, ...] = ("linf", "l2", "l1")
DUAL = {"linf": 1, "l2": 2, "l1": torch.inf}
WIDE = Domain(torch.tensor(-1e3), torch.tensor(1e3))


def linear(classes: int = 5, features: int = 4) -> tuple[nn.Module, Batch]:
    """A linear model, with inputs that it has right."""
    torch.manual_seed(3)
    model = nn.Linear(features, classes).double()
    x = torch.randn(30, features, dtype=torch.float64)
    return model, Batch((x,), model(x).argmax(1))


def distances(model: nn.Linear, batch: Batch, norm: Norm, unit: float = 1.0) -> torch.Tensor:
    """min_j (f_y - f_j) / ||w_y - w_j||_q, class by class."""
    scores, y, weight = model(batch.inputs[0]).detach(), batch.targets, model.weight.detach()
    found = []
    for row, label in zip(scores, y.tolist(), strict=True):
        rates = torch.linalg.vector_norm(weight[label] - weight, DUAL[norm], dim=1)
        found.append(min((row[label] - row[j]) / rates[j] for j in range(len(row)) if j != label) / unit)
    return torch.stack(found)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("unit", [None, torch.tensor(2.0)])
def test_of_a_linear_model_one_step_of_deepfool_is_the_least_displacement(norm: Norm, unit) -> None:
    model, batch = linear()
    found = deepfool(model, batch, CLASSES, Threat(WIDE, 100.0, norm, unit), steps=1, overshoot=0.02)
    assert found.broken.all()
    least = distances(model, batch, norm, 1.0 if unit is None else 2.0)
    torch.testing.assert_close(found.distance, 1.02 * least, rtol=1e-9, atol=0)
    assert (model(found.inputs).argmax(1) != batch.targets).all()


@pytest.mark.parametrize("norm", NORMS)
def test_of_a_linear_model_the_boundary_attack_comes_near_the_least_displacement(norm: Norm) -> None:
    model, batch = linear()
    least = distances(model, batch, norm)
    for steps in (1, 5):
        found = boundary_attack(model, batch, CLASSES, Threat(WIDE, 100.0, norm), steps=steps)
        assert (found.distance >= least).all()
        assert (found.distance <= 1.02 * least).all()  # the last halving leaves 1.05 / 2^6


@pytest.mark.parametrize("norm", NORMS)
def test_an_input_is_projected_onto_the_plane_of_another_point(norm: Norm) -> None:
    model, batch = linear()
    walk = _Walk(model, batch, CLASSES, Threat(WIDE, 100.0, norm, torch.tensor(3.0)), 1, 4)
    rows, elsewhere = walk.live(), batch.inputs[0] + 0.7
    y = elsewhere + walk.nearest(rows, elsewhere)
    x = batch.inputs[0] + walk.projected(batch.inputs[0])
    for point in (y, x):  # two classes are equal there, the same two
        scores = model(point)
        own = scores.gather(1, batch.targets[:, None])
        gaps = (scores - own).abs().scatter(1, batch.targets[:, None], torch.inf)
        assert (gaps.amin(1) < 1e-9).all()


def test_the_nearest_point_met_is_kept() -> None:
    model, batch = linear()
    walk = _Walk(model, batch, CLASSES, Threat(WIDE, 100.0, "l2"), 1, 4)
    rows, x = walk.live(), batch.inputs[0]
    step = walk.nearest(rows, x)
    for length in (1.5, 1.1, 1.3):
        assert walk.move(rows, x + length * step, x + length * step).all()
    torch.testing.assert_close(walk.found().distance, 1.1 * distances(model, batch, "l2"))
    torch.testing.assert_close(walk.found().inputs, x + 1.1 * step)


def test_a_step_leans_to_the_input_by_the_share_of_the_ways_to_the_plane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From .9 times 1.05 of the way to the plane .055 are left, of the whole way 1: a = .055 / 1.055 < .1."""
    model, batch = linear()
    points = []
    move = _Walk.move
    monkeypatch.setattr(
        _Walk, "move", lambda walk, rows, y, asked: points.append(y) or move(walk, rows, y, asked)
    )
    threat = Threat(WIDE, 100.0, "l2")
    boundary_attack(model, batch, CLASSES, threat, steps=2)
    delta = _Walk(model, batch, CLASSES, threat, 1, 4)
    delta = delta.nearest(delta.live(), batch.inputs[0])
    left = 1 - 0.9 * 1.05
    a = left / (left + 1)
    along = (1 - a) * (0.9 * 1.05 + 1.05 * left) + a * 1.05
    torch.testing.assert_close(points[0], batch.inputs[0] + 1.05 * delta)
    torch.testing.assert_close(points[1], batch.inputs[0] + along * delta, rtol=1e-9, atol=1e-9)


def test_more_steps_come_nearer() -> None:
    model, batch = curved()
    few, many = (
        boundary_attack(model, batch, CLASSES, Threat(WIDE, 100.0, "l2"), steps=steps).distance
        for steps in (5, 20)
    )
    assert (many <= few * 1.001).double().mean() > 0.97
    assert many.mean() < few.mean()


@pytest.mark.parametrize("norm", NORMS)
def test_within_a_box_the_least_displacement_is_that_of_a_linear_programme(norm: Norm) -> None:
    # two features, the first of which can hardly move: f_1 - f_0 = 4 a + b, so the second must pay
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [4.0, 1.0]]))
    x = torch.tensor([[-0.1, -0.5]], dtype=torch.float64)
    box = Domain(torch.tensor([-0.1, -1.0]), torch.tensor([0.0, 1.0]))
    # from -.9 to 0: a gives .4 at its end, b the other .5
    least = {"linf": 0.5, "l2": (0.1**2 + 0.5**2) ** 0.5, "l1": 0.6}[norm]
    for attack in (deepfool, boundary_attack):
        found = attack(model, Batch((x,), torch.tensor([0])), CLASSES, Threat(box, 10.0, norm))
        assert found.broken.all()
        assert least <= found.distance.item() <= 1.03 * least


def curved() -> tuple[nn.Module, Batch]:
    """A network trained for a little on scanned digits, and the first of them that it has right."""
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    kept = (model(x).argmax(1) == y).nonzero().flatten()[:200]
    return model, Batch((x[kept],), y[kept])


def bisected(model: nn.Module, batch: Batch, norm: Norm) -> torch.Tensor:
    """The least of 200 lengths with which one step of the gradient changes the class; 6 where none does."""
    found = torch.full((len(batch.targets),), 6.0, dtype=torch.float64)
    for eps in torch.linspace(6, 0.03, 200).tolist():
        moved = fgsm(model, batch, risk(CLASSES), Threat(WIDE, eps, norm))
        found = torch.where(model(moved).argmax(1) != batch.targets, eps, found)
    return found


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_it_needs_less_than_one_step_along_the_gradient(norm: Norm) -> None:
    model, batch = curved()
    step = bisected(model, batch, norm)
    assert step.max() < 6
    fool = deepfool(model, batch, CLASSES, Threat(WIDE, 100.0, norm))
    near = boundary_attack(model, batch, CLASSES, Threat(WIDE, 100.0, norm))
    assert fool.broken.all()
    assert near.broken.all()
    assert fool.distance.mean() < step.mean()
    assert near.distance.mean() < fool.distance.mean()
    torch.testing.assert_close(
        near.accuracy(torch.tensor([0.0, 1e3])), torch.tensor([1.0, 0.0], dtype=torch.float64)
    )
    radius = near.distance.median()
    assert near.accuracy(radius[None]).item() == pytest.approx(0.5, abs=0.01)


def test_no_random_point_is_nearer() -> None:
    model, batch = curved()
    found = boundary_attack(model, batch, CLASSES, Threat(WIDE, 100.0, "l2"))
    generator = torch.Generator().manual_seed(0)
    nearer = torch.zeros(len(batch.targets), dtype=torch.bool)
    for _ in range(200):
        step = torch.randn(batch.inputs[0].shape, generator=generator)
        step = step / step.norm(dim=1, keepdim=True) * 0.9 * found.distance[:, None].float()
        nearer |= model(batch.inputs[0] + step).argmax(1) != batch.targets
    assert nearer.double().mean() < 0.1  # where the boundary bends its plane is not the nearest


@pytest.mark.parametrize("attack", [deepfool, boundary_attack])
def test_what_is_wrong_already_stays_and_what_cannot_be_reached_comes_back(attack) -> None:
    model, batch = linear()
    wrong = (batch.targets + 1) % 5
    found = attack(model, batch._replace(targets=wrong), CLASSES, Threat(WIDE, 100.0, "l2"))
    assert found.inputs.equal(batch.inputs[0])
    assert found.distance.eq(0).all()
    for eps in (0.0, 1e-9):
        none = attack(model, batch, CLASSES, Threat(WIDE, eps, "l2"))
        assert none.inputs.equal(batch.inputs[0])  # bit for bit
        assert not none.broken.any()
        assert none.distance.isinf().all()
    with pytest.raises(ValueError, match="steps and rivals must be at least 1"):
        attack(model, batch, CLASSES, Threat(WIDE, 1.0), steps=0)
    with pytest.raises(ValueError, match=r"example 0 has .* outside \[0, 1\]"):
        attack(model, batch, CLASSES, Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), 1.0))


def test_a_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    batch = Batch((torch.randn(12, 3),), torch.arange(12) % 3)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    deepfool(model, batch, CLASSES, Threat(WIDE, 10.0, "l2"))
    assert all(module.training for module in model.modules())
    assert all(before[key].equal(value) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
