"""LeNet-5: its count, its first, linear layer, any image size, and that it learns digits."""

from pathlib import Path

import pytest
import torch

from margin import Training, train
from margin.vision.convnets.lenet5 import LeNet5


def test_it_has_61706_parameters() -> None:
    # 6 (25 + 1), 16 (6 25 + 1), 120 (400 + 1), 84 (120 + 1), 10 (84 + 1)
    assert sum(p.numel() for p in LeNet5(1, 10).parameters()) == 156 + 2416 + 48120 + 10164 + 850 == 61706


def test_any_image_size_and_any_number_of_channels() -> None:
    for channels, side in ((1, 8), (3, 32), (1, 28), (2, 100)):
        assert LeNet5(channels, 7)(torch.randn(2, channels, side, side + 1)).shape == (2, 7)


def test_at_32_pixels_the_first_layer_is_the_identity() -> None:
    model = LeNet5(1, 10)
    x = torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model(x), model.classifier(model.features(x)), atol=1e-6)


def test_constant_images_stay_constant_under_the_first_layer() -> None:
    torch.manual_seed(0)
    model = LeNet5(1, 10).double()
    small = model(torch.full((1, 1, 8, 8), 0.3, dtype=torch.float64))
    large = model(torch.full((1, 1, 32, 32), 0.3, dtype=torch.float64))
    assert torch.allclose(small, large, atol=1e-12)


def test_it_learns_digits(tmp_path: Path) -> None:
    run = train("lenet5", "digits", training=Training(epochs=6), out=tmp_path / "run")
    assert run.metrics["test_accuracy"] >= 0.93


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu"])
@pytest.mark.parametrize("pooling", ["average", "max"])
def test_the_logits_are_the_papers_composition(activation: str, pooling: str) -> None:
    torch.manual_seed(0)
    model = LeNet5(2, 7, activation=activation, pooling=pooling).double()
    x = torch.randn(3, 2, 32, 32, dtype=torch.float64)
    act = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}[activation]
    *weights, last, bias = [parameter.detach() for parameter in model.parameters()]

    def windows(z: torch.Tensor) -> torch.Tensor:
        pairs = z.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))
        return pairs.mean((3, 5)) if pooling == "average" else pairs.amax((3, 5))

    z = x
    for W, b in zip(weights[0:4:2], weights[1:4:2], strict=True):
        patches = z.unfold(2, 5, 1).unfold(3, 5, 1)  # every 5 x 5 window
        z = windows(act(torch.einsum("nchwij,ocij->nohw", patches, W) + b[:, None, None]))
    z = z.flatten(1)
    for W, b in zip(weights[4::2], weights[5::2], strict=True):
        z = act(z @ W.T + b)
    assert torch.allclose(model(x), z @ last.T + bias, rtol=0, atol=1e-10)


def test_no_pixel_of_a_large_image_is_skipped() -> None:
    torch.manual_seed(0)
    model = LeNet5(1, 10).double()
    x = torch.rand(1, 1, 96, 96, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
    assert (gradient != 0).all()
