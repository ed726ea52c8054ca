"""Attacks that were made against one model and are put to another."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.robust.attacks.gradient import Search
from margin.robust.attacks.threat_models import Threat
from margin.robust.attacks.transfer import transfer

WIDE = Domain(torch.tensor(-1e3), torch.tensor(1e3))


def weighing(*rows: tuple[float, float]) -> nn.Module:
    """The classifier of the plane whose scores are the products with the rows."""
    model = nn.Linear(2, len(rows), bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(rows))
    return model


def test_an_attack_moves_the_sources_feature_alone() -> None:
    # the first model reads the first feature, the second the second, the third both
    models = [weighing((0, 0), (1, 0)), weighing((0, 0), (0, 1)), weighing((0, 0), (1, 1))]
    x = torch.tensor([[1.0, 1.0], [2.0, 2.0], [-1.0, -1.0], [-3.0, -3.0]])
    threat, search = Threat(WIDE, 2.5, "l2"), Search(start="clean")
    batch = Batch((x,), torch.tensor([1, 1, 0, 0]))
    found = transfer(models, batch, CLASSES, threat, torch.Generator().manual_seed(0), search=search)
    # 2.5 of one feature turns 1 and 2, and of the sum 2 alone; 2.5 of the sum is 1.77 of each feature
    expected = torch.tensor([[0.75, 0.0, 0.5], [0.0, 0.75, 0.5], [0.5, 0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(found.rates, expected)


def test_what_a_target_had_wrong_does_not_count() -> None:
    model = weighing((0, 0), (1, 0))
    x = torch.tensor([[0.1, 0.0], [5.0, 0.0], [-4.0, 0.0]])  # the last is wrong already
    found = transfer(
        [model],
        Batch((x,), torch.tensor([1, 1, 1])),
        CLASSES,
        Threat(WIDE, 1.0),
        torch.Generator().manual_seed(0),
    )
    assert found.rates.item() == 0.5
    with pytest.raises(ValueError, match="model 0 has none"):
        transfer([model], Batch((x[2:],), torch.tensor([1])), CLASSES, Threat(WIDE, 1.0), torch.Generator())
    with pytest.raises(ValueError, match="at least one model"):
        transfer([], Batch((x,), torch.tensor([1, 1, 1])), CLASSES, Threat(WIDE, 1.0), torch.Generator())


def digits_model(seed: int, width: int, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_of_networks_the_own_attack_is_the_strongest_and_all_beat_noise(norm) -> None:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    models = [digits_model(seed, width, x, y) for seed, width in ((0, 32), (1, 48), (2, 64))]
    threat = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), {"linf": 0.12, "l2": 0.7}[norm], norm)
    found = transfer(models, Batch((x[:300],), y[:300]), CLASSES, threat, torch.Generator().manual_seed(0))
    assert (found.rates.argmax(0) == torch.arange(3)).all()  # of each target the strongest attack is its own
    assert (found.rates > found.noise + 0.2).all()
    assert all(module.training for model in models for module in model.modules())


def test_a_ball_of_radius_0_changes_nothing() -> None:
    model = weighing((0, 0), (1, 0))
    x = torch.tensor([[0.1, 0.0], [5.0, 0.0]])
    found = transfer(
        [model, model], Batch((x,), torch.tensor([1, 1])), CLASSES, Threat(WIDE, 0.0), torch.Generator()
    )
    assert found.rates.eq(0).all()
    assert found.noise.eq(0).all()
