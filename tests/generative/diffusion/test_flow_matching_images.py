"""Flow matching of images: odd and oblong ones pass, the density is an estimate with fixed noise."""

import torch
from torch import Generator

from margin.generative.diffusion.networks import image_flow_matching as images


def test_images_of_any_size_pass_through() -> None:
    torch.manual_seed(0)
    model = images(1, (5, 3), widths=(4, 4), attention=(), groups=2, head_width=4).eval()
    with torch.no_grad():
        x = model.sample(2, generator=Generator().manual_seed(0), steps=2)
        assert x.shape == (2, 1, 5, 3)
        logs = model.log_density(x, steps=3)
        torch.testing.assert_close(model.log_density(x[1:], steps=3), logs[1:])
    assert logs.shape == (2,)
    assert model.interpolate(3, generator=Generator().manual_seed(0), steps=2).shape == (3, 1, 5, 3)
