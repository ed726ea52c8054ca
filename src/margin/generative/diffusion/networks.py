"""Denoising networks, and the diffusions and flow matchings of rows and of images that they make.

The network of rows is a residual perceptron conditioned on time and class, that of images a U-Net (Ho, Jain
and Abbeel 2020, Appendix B).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from margin.core.composition import headed
from margin.generative.diffusion.flow_matching import flow_matching_with
from margin.generative.diffusion.model import diffusion_with
from margin.nn.unet.network import UNet, time_features

Conditioning = Float[Tensor, "batch embedding"]

FREQUENCIES = (1.5, 3.0, 6.0)
"""Of the sinusoids of a standardized coordinate: a perceptron is slow to learn what varies faster."""


def subdue(layer: nn.Linear) -> None:
    """Let an affine map begin near 0, not at it: else nothing before it would get a gradient."""
    with torch.no_grad():
        layer.weight.mul_(0.01)
        nn.init.zeros_(layer.bias)


class Block(nn.Module):
    """A residual layer h + B silu(A (g * norm(h) + b)), g - 1 and b affine in an embedding e of time, class.

    B begins near 0, and the layer near the identity.

    Args:
        width: Numbers of h.
        embedding: Width of that embedding.
    """

    def __init__(self, width: int, embedding: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.told = nn.Linear(embedding, 2 * width)
        self.A = nn.Linear(width, width)
        self.B = nn.Linear(width, width)
        subdue(self.B)

    def forward(self, h: Float[Tensor, "batch width"], told: Conditioning) -> Float[Tensor, "batch width"]:
        """The layer's output."""
        gain, shift = self.told(told).chunk(2, 1)
        return h + self.B(F.silu(self.A((1 + gain) * self.norm(h) + shift)))


class Denoiser(nn.Module):
    r"""What a network of residual layers predicts at x_t, of the time t and, if there are any, the class.

    .. math:: h^0 = W (x, \sin \omega x, \cos \omega x)_\omega + w, \qquad
        h^l = \mathrm{block}_l(h^{l-1}, e), \qquad f = C\, \mathrm{norm}(h^L) + c

    .. math:: e = \mathrm{silu}(V_2\, \mathrm{silu}(V_1\, \mathrm{sinusoids}(t) + v_1) + v_2 + E_y)

    with the sinusoids of each coordinate at three frequencies.

    C begins near 0 and c at 0: an untrained network predicts almost 0, whose squared error is 1 a number.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        num_classes: Number of classes; the label ``num_classes`` is that of none. 0: no labels are read.
        hidden: Width of the network's layers.
        depth: Number L of its residual layers.
        embedding: Width of the embedding of the time, and the class, even.

    Raises:
        ValueError: A size is out of range.

    Reference:
        Ho, Jain and Abbeel 2020, Appendix B (the time); Ho and Salimans 2021, Section 3.2 (the class and
        the label of none); Tancik et al. 2020, Section 5 (the coordinates); a perceptron, not a U-Net.
    """

    def __init__(
        self,
        in_features: int,
        *,
        num_classes: int = 0,
        hidden: int = 128,
        depth: int = 3,
        embedding: int = 64,
    ) -> None:
        super().__init__()
        if min(in_features, hidden, depth) < 1 or num_classes < 0:
            raise ValueError(
                "in_features, hidden and depth must be at least 1, num_classes at least 0: got "
                f"{in_features}, {hidden}, {depth}, {num_classes}"
            )
        time_features(torch.zeros(1), embedding)  # raises of an odd width
        self.shape, self.embedding = (in_features,), embedding
        self.time = nn.Sequential(nn.Linear(embedding, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.classes = nn.Embedding(num_classes + 1, embedding) if num_classes else None
        self.enter = nn.Linear((1 + 2 * len(FREQUENCIES)) * in_features, hidden)
        self.blocks = nn.ModuleList(Block(hidden, embedding) for _ in range(depth))
        self.norm = nn.LayerNorm(hidden)
        self.leave = nn.Linear(hidden, in_features)
        subdue(self.leave)

    def forward(
        self,
        x: Float[Tensor, "batch dim"],
        t: Float[Tensor, " batch"],
        label: Int64[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        """The prediction for each row.

        Args:
            x: Noisy points.
            t: Their times, from 0 to T.
            label: Their classes, or ``num_classes`` for none; exactly where the network has classes.

        Raises:
            ValueError: A label is lacking, or given to a network without classes.
        """
        if (label is None) != (self.classes is None):
            got = "none" if label is None else "one"
            raise ValueError(f"a label must be given exactly where there are classes: got {got}")
        told = self.time(time_features(t, self.embedding))
        if self.classes is not None:
            told = told + self.classes(label)
        waves = [wave(omega * x) for omega in FREQUENCIES for wave in (torch.sin, torch.cos)]
        told, h = F.silu(told), self.enter(torch.cat((x, *waves), 1))
        for block in self.blocks:
            h = block(h, told)
        return self.leave(self.norm(h))


CLASSES = ("num_classes", "drop")
"""Options of a model with classes alone; there the data dictate the first."""

diffusion = headed(
    Denoiser, diffusion_with, "A chain from rows to noise, and a network that reverses it.", without=CLASSES
)
conditional_diffusion = headed(
    Denoiser,
    diffusion_with,
    "A chain from rows to noise, and a network, conditioned on the class or on none, that reverses it.",
    dictated=CLASSES[:1],
)
image_diffusion = headed(
    UNet, diffusion_with, "A chain from images to noise, and a U-Net that reverses it.", without=CLASSES
)
conditional_image_diffusion = headed(
    UNet,
    diffusion_with,
    "A chain from images to noise, and a U-Net, conditioned on the class or on none, that reverses it.",
    dictated=CLASSES[:1],
)
flow_matching = headed(
    Denoiser, flow_matching_with, "A flow from noise to rows along straight paths.", without=CLASSES
)
conditional_flow_matching = headed(
    Denoiser,
    flow_matching_with,
    "A flow from noise to rows, conditioned on the class or on none, along straight paths.",
    dictated=CLASSES[:1],
)
image_flow_matching = headed(
    UNet, flow_matching_with, "A flow from noise to images along straight paths.", without=CLASSES
)
