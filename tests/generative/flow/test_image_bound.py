"""The objective of a flow of images is minus its bound, and depends on the generator alone."""

import torch
from torch import Generator

from margin.core.types import Batch
from margin.generative.flow.image_bound import negative_bound
from margin.generative.flow.realnvp_images import RealNVPImages
from margin.nn.preprocessed import Preprocessed


class Sixteenth(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 16


def test_it_is_minus_the_bound_of_the_features_at_one_draw() -> None:
    torch.manual_seed(0)
    flow = RealNVPImages(1, (4, 4), width=4, levels=17)
    x = torch.randint(17, (3, 1, 4, 4), generator=Generator().manual_seed(0)).float()
    model = Preprocessed(Sixteenth(), flow)
    with torch.no_grad():
        first = negative_bound(model, Batch((x,)), Generator().manual_seed(1))
        assert torch.equal(first, -flow.bound(x / 16, generator=Generator().manual_seed(1)))
        assert not torch.equal(first, negative_bound(model, Batch((x,)), Generator().manual_seed(2)))
