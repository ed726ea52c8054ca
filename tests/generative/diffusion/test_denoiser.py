"""The network of points: shapes, what it is told, independence of rows, its beginning."""

import pytest
import torch

from margin.generative.diffusion.networks import Denoiser
from margin.nn.unet.network import time_features


def network(**options: int) -> Denoiser:
    torch.manual_seed(0)
    made = Denoiser(3, hidden=16, embedding=8, **options)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return made


def test_it_begins_near_0_and_every_weight_learns_from_there() -> None:
    made = Denoiser(3, hidden=16)
    out = made(torch.randn(4, 3), torch.arange(4.0))
    assert float(out.detach().abs().max()) < 0.1
    (out - 1).square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0, name


def test_each_row_is_told_its_own_time_and_class() -> None:
    made, x = network(num_classes=2), torch.randn(4, 3)
    t, label = torch.tensor([1.0, 50.0, 1000.0, 0.0]), torch.tensor([0, 1, 2, 0])
    together = made(x, t, label)
    for i in range(4):
        torch.testing.assert_close(made(x[i : i + 1], t[i : i + 1], label[i : i + 1])[0], together[i])
    assert not torch.allclose(together, made(x, t.flip(0), label))
    assert not torch.allclose(together, made(x, t, label.flip(0)))
    with pytest.raises(IndexError):
        made(x, t, torch.full((4,), 3))


def test_labels_are_given_exactly_where_there_are_classes() -> None:
    x, t, label = torch.zeros(2, 3), torch.ones(2), torch.zeros(2, dtype=torch.long)
    for made, told in ((Denoiser(3, hidden=8), label), (Denoiser(3, hidden=8, num_classes=2), None)):
        with pytest.raises(ValueError, match="exactly where there are classes: got"):
            made(x, t, told)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_its_type_is_its_weights(dtype: torch.dtype) -> None:
    made = network().to(dtype)
    assert made(torch.zeros(2, 3, dtype=dtype), torch.ones(2, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("options", [{"hidden": 0}, {"depth": 0}, {"num_classes": -1}])
def test_sizes_are_positive(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="hidden and depth must be at least 1"):
        Denoiser(2, **options)


def test_time_features_tell_any_two_steps_apart() -> None:
    features = time_features(torch.arange(1001, dtype=torch.float64), 64)
    assert features.shape == (1001, 64)
    distance = torch.cdist(features, features) + 9 * torch.eye(1001)
    assert float(distance.min()) > 0.1
    torch.testing.assert_close(features[0], torch.tensor([1.0] * 32 + [0.0] * 32).double())
