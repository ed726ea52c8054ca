"""LeNet-5 (LeCun, Bottou, Bengio and Haffner 1998): two convolutions, two poolings, three dense layers."""

from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores

SIDE = 32
ACTIVATIONS = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "relu": nn.ReLU}
POOLINGS = {"average": nn.AvgPool2d, "max": nn.MaxPool2d}


class LeNet5(nn.Module):
    """A convolutional network on 32 x 32 images, fed through a linear map that brings any image there.

    Bilinear interpolation, the first layer, has non-negative weights that sum to 1, so attacks and
    bounds act on the user's own pixels. Convolution of 6 and 16 maps with 5 x 5 filters, each
    followed by an activation and 2 x 2 pooling; dense layers of 120 and 84 units and the logits.

    Deviations from the paper, as is common: the second convolution reads all six maps (the paper's
    Table 1 connects them sparsely), pooling has no coefficients, the last layer is affine instead of
    radial basis functions. With one channel and ten classes: 61,706 parameters.

    Args:
        channels: Channels of an image.
        num_classes: Number of logits.
        activation: Pointwise function after convolutions and dense layers.
        pooling: How 2 x 2 windows are summarized.

    Reference:
        LeCun, Bottou, Bengio and Haffner 1998, Section II.B.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        *,
        activation: Literal["tanh", "sigmoid", "relu"] = "tanh",
        pooling: Literal["average", "max"] = "average",
    ) -> None:
        super().__init__()
        act, pool = ACTIVATIONS[activation], POOLINGS[pooling]
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5), act(), pool(2), nn.Conv2d(6, 16, 5), act(), pool(2)
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(400, 120), act(), nn.Linear(120, 84), act(), nn.Linear(84, num_classes)
        )

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> ClassScores:
        """The logits of each image."""
        x = F.interpolate(x, size=(SIDE, SIDE), mode="bilinear", align_corners=False, antialias=True)
        return self.classifier(self.features(x))
