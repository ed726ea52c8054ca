"""Images to vectors and back: shapes of odd and oblong images, sizes by hand, one row at a time."""

import pytest
import torch

from margin.generative.autoencoder.coders import Downsampling, Upsampling, channel_norm, halvings

SIZES = [(28, 28), (7, 13), (1, 9), (8, 8), (3, 3)]


def test_the_sizes_by_hand() -> None:
    assert halvings((28, 28), 3) == [(28, 28), (14, 14), (7, 7), (4, 4)]
    assert halvings((1, 9), 2) == [(1, 9), (1, 5), (1, 3)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_images_come_back_in_their_size(channels: int, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    down = Downsampling(channels, size, 5, width=4)
    up = Upsampling(5, channels, size, width=4)
    x = torch.randn(3, channels, *size)
    assert down(x).shape == (3, 5)
    assert up(down(x)).shape == x.shape
    torch.testing.assert_close(up(down(x))[1:2], up(down(x[1:2])))
    assert up(down(x[:0])).shape == (0, channels, *size)


def test_every_pixel_is_read_and_written() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 7, 5, requires_grad=True)
    (slope,) = torch.autograd.grad(Downsampling(2, (7, 5), 3, width=4)(x).square().sum(), x)
    assert bool((slope != 0).all())
    z = torch.randn(2, 3)
    images = Upsampling(3, 2, (7, 5), width=4)(z)
    assert bool((images[0] != images[1]).all())


def test_without_normalization_nothing_normalizes() -> None:
    layers = Downsampling(1, (8, 8), 1, normalize=False).modules()
    assert not any(isinstance(layer, torch.nn.GroupNorm) for layer in layers)


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="depth must leave more than one pixel"):
        halvings((4, 4), 4)
    with pytest.raises(ValueError, match="must be at least 1: got"):
        halvings((0, 4), 1)
    for width in (0, -3):
        with pytest.raises(ValueError, match=f"width and outputs must be at least 1: got {width}, 2"):
            Downsampling(1, (8, 8), 2, width=width)
        with pytest.raises(ValueError, match=f"width and inputs must be at least 1: got {width}, 2"):
            Upsampling(2, 1, (8, 8), width=width)
    with pytest.raises(ValueError, match="width and outputs must be at least 1: got 4, 0"):
        Downsampling(1, (8, 8), 0, width=4)


def test_any_width_is_divided_into_groups_of_four_channels_or_more() -> None:
    for width in range(1, 70):
        groups = channel_norm(width).num_groups
        assert groups == 1 or width / groups >= 4
        assert width % groups == 0
    assert [channel_norm(width).num_groups for width in (4, 8, 9, 18, 32)] == [1, 2, 1, 2, 8]
