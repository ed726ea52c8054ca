"""Convolutional codes: any size of image comes back, and a few images are learned by heart."""

import pytest
import torch
from torch import Generator

from margin.core.types import Batch
from margin.generative.autoencoder.model import conv_autoencoder, restoration_error


@pytest.mark.parametrize(
    ("channels", "size", "depth"),
    [(1, (8, 8), 2), (1, (7, 5), 2), (3, (9, 16), 3), (2, (1, 6), 1), (1, (3, 3), 2)],
)
def test_an_image_of_any_size_comes_back_in_its_size(
    channels: int, size: tuple[int, int], depth: int
) -> None:
    model = conv_autoencoder(channels, size, code=5, width=4, depth=depth)
    x = torch.randn(2, channels, *size)
    assert model.encode(x).shape == (2, 5)
    assert model.reconstruct(x).shape == x.shape
    assert model.decode(torch.zeros(3, 5)).shape == (3, channels, *size)


def test_three_images_are_learned_by_heart() -> None:
    torch.manual_seed(0)
    model = conv_autoencoder(1, (6, 5), code=4, width=8)
    x = torch.randn(3, 1, 6, 5, generator=Generator().manual_seed(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        loss = restoration_error(model, Batch((x,)), Generator()).mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1 * float(x.square().flatten(1).sum(1).mean())


def test_corruption_and_its_refusals() -> None:
    model = conv_autoencoder(1, (6, 5), corruption=0.5)
    x = torch.ones(2, 1, 6, 5)
    assert 0 < float(model.corrupted(x, Generator().manual_seed(0)).mean()) < 1
    with pytest.raises(ValueError, match="code must be at least 1: got 0"):
        conv_autoencoder(1, (6, 5), code=0)
    with pytest.raises(ValueError, match="depth"):
        conv_autoencoder(1, (2, 2), depth=5)
