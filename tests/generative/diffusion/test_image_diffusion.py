"""Diffusion of images: what the builders hand on, samples of any size, a training that is seen to work."""

import pytest
import torch
from torch import Generator

from margin.core.catalog import user_options
from margin.generative.diffusion.image_diffusion import conditional_images, images
from margin.nn.unet.network import UNet

SMALL = {"widths": (8, 8), "attention": (1,), "head_width": 4, "groups": 2}


def test_options_reach_the_chain_and_the_network() -> None:
    model = images(
        3, (5, 4), **SMALL, blocks=2, steps=7, beta="cosine", terminal="zero", parametrization="v",
        variance="large", weighting="bound",
    )  # fmt: skip
    assert isinstance(model.network, UNet)
    assert model.shape == (3, 5, 4)
    assert model.schedule.steps == 7
    assert float(model.schedule.alpha_bar[-1]) == 0
    assert (model.parametrization, model.variance, model.weighting) == ("v", "large", "bound")
    assert sum(type(layer).__name__ == "Stage" for layer in model.network.down) == 4
    assert model.network.turn[1].heads == 2
    one = conditional_images(1, (4, 4), 3, **SMALL, drop=0.25)
    assert (one.num_classes, one.network.num_classes, one.drop) == (3, 3, 0.25)
    assert set(user_options(conditional_images)) == {*user_options(images), "drop"}


@pytest.mark.parametrize("size", [(4, 4), (7, 5), (1, 3)])
@pytest.mark.parametrize("channels", [1, 3])
def test_samples_and_bounds_of_images_of_any_size(channels: int, size: tuple[int, int]) -> None:
    """Also of a chain of one step."""
    torch.manual_seed(0)
    for steps in (1, 3):
        model = images(channels, size, **SMALL, steps=steps).eval()
        with torch.no_grad():
            x = model.sample(3, generator=Generator().manual_seed(0))
            bound = model.bound(x, generator=Generator().manual_seed(0), pairs=1)
        assert x.shape == (3, channels, *size)
        assert bound.shape == (3,)
        assert bool(x.isfinite().all() and bound.isfinite().all())


def test_it_learns_a_black_and_a_white_image_and_which_is_which() -> None:
    """After 60 steps every sample has its label's color, to .4 of the way between them.

    A network that is not told the label draws either: 40 right ones have odds of 2^-40.
    """
    torch.manual_seed(0)
    shape = {"widths": (8,), "attention": (), "head_width": 4, "groups": 2}
    model = conditional_images(1, (2, 3), 2, **shape, steps=10, parametrization="x0")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = Generator().manual_seed(0)
    color = 2.0 * (torch.arange(40) % 2) - 1
    x = color.reshape(-1, 1, 1, 1).expand(-1, 1, 2, 3)
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(x, generator, torch.arange(40) % 2).mean().backward()
        optimizer.step()
    with torch.no_grad():
        found = model.sample(40, generator=generator).flatten(1)
        black = model.sample(20, generator=generator, label=0).flatten(1)
    assert float((found.mean(1) - color).abs().max()) < 0.4
    assert float((black.mean(1) + 1).abs().max()) < 0.4


def test_guidance_needs_classes() -> None:
    model = images(1, (4, 4), **SMALL, steps=2)
    with pytest.raises(ValueError, match="need a model trained on classes"):
        model.sample(1, generator=Generator().manual_seed(0), guidance=1.0)


def test_noise_of_a_chain_that_leaves_nothing_cannot_be_predicted() -> None:
    with pytest.raises(ValueError, match="alpha_bar"):
        images(1, (4, 4), **SMALL, terminal="zero", parametrization="eps")
