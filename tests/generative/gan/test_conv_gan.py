"""GANs of images of any size: odd, oblong, of one channel or several."""

import pytest
import torch
from torch import Generator, nn

from margin.generative.gan.model import conditional_conv_gan as conditional_images
from margin.generative.gan.model import conv_gan as images


@pytest.mark.parametrize(("channels", "size"), [(1, (8, 8)), (1, (7, 9)), (3, (5, 12)), (2, (28, 28))])
def test_samples_have_the_images_size_and_range(channels: int, size: tuple[int, int]) -> None:
    model = images(channels, size, noise=4, width=8, features=16)
    x = model.sample(3, generator=Generator().manual_seed(0))
    assert x.shape == (3, channels, *size)
    assert float(x.detach().abs().max()) <= 1
    assert model(x).shape == (3,)
    assert model.interpolate(4, generator=Generator().manual_seed(0)).shape == (4, channels, *size)


def test_no_player_looks_at_the_batch() -> None:
    """A penalty on the slope is of each example alone; so is a sample."""
    model = images(1, (8, 8), noise=4, width=8, features=16).double()
    assert not [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert not [m for m in model.critic.modules() if isinstance(m, nn.GroupNorm)]
    z = model.generator.draw(5, Generator().manual_seed(0))
    x = model.generator(z)
    torch.testing.assert_close(x[:2], model.generator(z[:2]))
    torch.testing.assert_close(model(x)[:2], model(x[:2]))


def test_a_conditional_one_is_told_the_class() -> None:
    model = conditional_images(1, (6, 6), 3, noise=4, width=8, features=16)
    one, other = (model.sample(2, generator=Generator().manual_seed(0), label=k) for k in (0, 1))
    assert one.shape == (2, 1, 6, 6)
    assert not torch.equal(one, other)
    assert model(one).shape == (2,)
