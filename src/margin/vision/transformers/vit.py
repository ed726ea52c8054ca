"""The vision transformer (Dosovitskiy et al. 2021): an image as a sequence of patches, read by an encoder."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores
from margin.nn.attention import EncoderBlock

Images = Float[Tensor, "batch channels height width"]
Tokens = Float[Tensor, "batch tokens features"]
Pair = tuple[int, int]

MOST_PATCHES = 64
"""Of an image where no size of a patch is chosen: B/32 has 49 on 224 x 224 pixels."""

SPREAD = 0.02
"""Standard deviation of the initial weights, cut at two of them."""


def sides(image_size: Pair) -> list[int]:
    """The sides of square patches that divide an image, ascending."""
    common = math.gcd(*image_size)
    return [side for side in range(1, common + 1) if common % side == 0]


def patch_of(image_size: Pair, patch: int | Pair | None, *, pad: bool) -> Pair:
    """The height and width of a patch: what is chosen, or the least square that leaves at most 64 patches.

    Args:
        image_size: Height and width of an image.
        patch: A side, a height and a width, or None.
        pad: Whether a patch need not divide the image.

    Raises:
        ValueError: The patch does not divide the image, or none is chosen and none leaves four patches.
    """
    height, width = image_size
    if patch is not None:
        chosen = (patch, patch) if isinstance(patch, int) else patch
        if min(chosen) < 1 or chosen[0] > height or chosen[1] > width:
            raise ValueError(f"patch must fit the image: got {by(chosen)}, the image is {by(image_size)}")
        return chosen if pad else check_patch(image_size, chosen)
    counts = {side: -(-height // side) * -(-width // side) for side in range(1, max(image_size) + 1)}
    fitting = [side for side, count in counts.items() if 4 <= count <= MOST_PATCHES]
    side = next((side for side in fitting if pad or side in sides(image_size)), 0)
    if not side:
        padded = ", or --model.border pad" if fitting else ""
        raise ValueError(
            f"patch must be chosen: no square divides {by(image_size)} into 4 to {MOST_PATCHES} patches; "
            f"set --model.patch HEIGHT,WIDTH{padded}"
        )
    return side, side


def check_patch(image_size: Pair, patch: Pair) -> Pair:
    """The patch, if it divides the image.

    Raises:
        ValueError: It does not; the message lists the sides of squares that do.
    """
    if image_size[0] % patch[0] or image_size[1] % patch[1]:
        work = ", ".join(map(str, sides(image_size)))
        raise ValueError(
            f"patch must divide the image: got {by(patch)}, the image is {by(image_size)}; sides that work: "
            f"{work}; or pad its lower and right border with --model.border pad"
        )
    return patch


def by(size: Pair) -> str:
    """A size in words, height before width."""
    return f"{size[0]} x {size[1]}"


def interpolated(
    positions: Float[Tensor, "1 places width"], old: Pair, new: Pair
) -> Float[Tensor, "1 other_places width"]:
    """Learned positions of a grid, resampled bicubically to another; those of extra tokens stay.

    Args:
        positions: Those of extra tokens first, then the grid's, row by row.
        old: Rows and columns of the grid.
        new: Rows and columns that are wanted.

    Reference: Dosovitskiy et al. 2021, Section 3.2.
    """
    if old == new:
        return positions
    extra, grid = positions.split([positions.shape[1] - math.prod(old), math.prod(old)], 1)
    maps = grid.transpose(1, 2).unflatten(2, old)
    resampled = F.interpolate(maps, size=new, mode="bicubic", align_corners=False)
    return torch.cat((extra, resampled.flatten(2).transpose(1, 2)), 1)


class ViT(nn.Module):
    r"""A transformer's encoder over the patches of an image.

    .. math:: z_0 = [x_{class};\, E x_1;\, \dots;\, E x_N] + P, \qquad z_l = \mathrm{block}_l(z_{l-1}), \qquad
        y = W\, \mathrm{LN}(z_L)_0 + b

    A patch is flattened and mapped by one matrix E: a convolution whose stride is its kernel. The paper's
    sizes are tiny (192, 12, 3: width, depth, heads; Touvron et al. 2021), small (384, 12, 6), base (768, 12,
    12), large (1024, 24, 16) and huge (1280, 32, 16), with patches of 16, 32 or 14 pixels.

    Images of another size than ``image_size`` are taken too; positions are then interpolated.

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        num_classes: Number of logits.
        patch: Side of a patch, or its height and width; by default the least square that divides the image
            into at most 64 patches.
        width: Length of the vector of a patch.
        depth: Number of encoder blocks.
        heads: Heads of the attention, a divisor of the width.
        hidden: Units of a block's perceptron; 0 is 4 times the width.
        pool: What the logits read: a class token that is put before the patches, or the mean of the patches.
        positions: Whether patches know where they are; without, their order plays no part.
        border: Whether a patch that does not divide the image is refused, or zeros are put below and right
            (after standardization: the training pixels' mean).
        dropout: Probability with which an embedding, an output or a unit of a block is set to 0 in training.
        attention_dropout: That of a weight of the attention; on a CPU any but 0 is several times slower.
        eps: What normalizations add to the variance.

    Raises:
        ValueError: The patch does not divide the image, or the heads do not divide the width.

    Reference: Dosovitskiy et al. 2021, Equations 1 to 4 and Table 1.
    """

    # more than 10 parameters: each is a choice of the paper or of published weights
    def __init__(
        self,
        channels: int,
        image_size: Pair,
        num_classes: int,
        *,
        patch: int | Pair | None = None,
        width: int = 128,
        depth: int = 6,
        heads: int = 4,
        hidden: int = 0,
        pool: Literal["class", "mean"] = "class",
        positions: Literal["learned", "none"] = "learned",
        border: Literal["refuse", "pad"] = "refuse",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        if min(width, depth) < 1 or hidden < 0:
            raise ValueError(
                "width and depth must be at least 1, hidden at least 0: "
                f"got width={width}, depth={depth}, hidden={hidden}"
            )
        self.border, self.pool = border, pool
        self.patch = patch_of(image_size, patch, pad=border == "pad")
        self.grid = self.grid_of(image_size)
        self.patches = nn.Conv2d(channels, width, self.patch, self.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width)) if pool == "class" else None
        places = math.prod(self.grid) + (pool == "class")
        self.positions = nn.Parameter(torch.zeros(1, places, width)) if positions == "learned" else None
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                width,
                heads,
                hidden=hidden,
                dropout=dropout,
                attention_dropout=attention_dropout,
                eps=eps,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width, eps)
        self.head = nn.Linear(width, num_classes)
        self._draw()

    def _draw(self) -> None:
        """Weights, positions and the class token normal of deviation 0.02, biases 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=SPREAD, a=-2 * SPREAD, b=2 * SPREAD)
                nn.init.zeros_(module.get_parameter("bias"))
        for one in (self.class_token, self.positions):
            if one is not None:
                nn.init.trunc_normal_(one, std=SPREAD, a=-2 * SPREAD, b=2 * SPREAD)

    def grid_of(self, size: Pair) -> Pair:
        """Rows and columns of the patches of an image.

        Raises:
            ValueError: A patch does not divide the image, and borders are not padded.
        """
        if self.border == "refuse":
            check_patch(size, self.patch)
        return -(-size[0] // self.patch[0]), -(-size[1] // self.patch[1])

    def padded(self, x: Images) -> Float[Tensor, "batch channels padded_height padded_width"]:
        """The images with zeros below and right, up to whole patches.

        Raises:
            ValueError: A patch does not divide them, and borders are not padded.
        """
        rows, columns = self.grid_of((x.shape[2], x.shape[3]))
        below, right = rows * self.patch[0] - x.shape[2], columns * self.patch[1] - x.shape[3]
        return F.pad(x, (0, right, 0, below)) if below or right else x

    def embed(self, x: Images) -> Tokens:
        """The tokens that the first block reads: the class token, patches row by row, positions added."""
        x = self.padded(x)
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        if self.class_token is not None:
            tokens = torch.cat((self.class_token.expand(tokens.shape[0], -1, -1), tokens), 1)
        if self.positions is not None:
            tokens = tokens + interpolated(self.positions, self.grid, self.grid_of((x.shape[2], x.shape[3])))
        return self.dropout(tokens)

    def read(self, tokens: Tokens) -> ClassScores:
        """The logits of what :meth:`embed` gives; the last block computes what they read, and no more."""
        *before, last = self.blocks
        for block in before:
            tokens = block(tokens)
        tokens = last(tokens, first=1 if self.pool == "class" else None)
        return self.head(self.norm(tokens).mean(1))

    def forward(self, x: Images) -> ClassScores:
        """The logits of each image."""
        return self.read(self.embed(x))
