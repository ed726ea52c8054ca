"""Images with a class for every pixel as examples: whole, cropped at random, or cut into tiles."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int, Integer, UInt8
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.formats.images.images import DEEPEST, Fit, Size, pixels_of
from margin.data.formats.images.mask_files import UNLABELED, ClassTable

Pair = tuple[UInt8[Tensor, "channel h w"], UInt8[Tensor, "h w"] | None]
"""The pixels of an image, and the class of each; None where it is not known."""

PIXELS = 2**19
"""Pixels of a batch of an evaluation, about: a network holds hundreds of numbers of each."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the files of images and masks become pixels and classes.

    Args:
        table: Which value is which class.
        channels: 1 or 3.
        resize: Height and width, or the shorter side, to which each is resampled, masks by the nearest pixel;
            None: as it is.
        depth: Bits of a level of a gray image of 16 bits.
    """

    table: ClassTable
    channels: int
    resize: int | Size | None = None
    depth: int = DEEPEST

    @property
    def fit(self) -> Fit:
        """How images become of one size and of 8 bits."""
        return Fit(self.resize, depth=self.depth)

    def read(self, image: Path, mask: Path | None) -> Pair:
        """The pixels of an image and its mask."""
        pixels = pixels_of(image.read_bytes(), image, channels=self.channels, fit=self.fit)
        if mask is None:
            return pixels, None
        classes = self.table.labels(mask.read_bytes(), mask)
        return pixels, nearest(classes, (pixels.shape[1], pixels.shape[2]))


def nearest(labels: Integer[Tensor, "h w"], size: Size) -> Integer[Tensor, "new_h new_w"]:
    """Labels at another size: each pixel takes that of the nearest, which no two classes mix."""
    if tuple(labels.shape) == size:
        return labels
    rows, columns = (
        (torch.arange(new) + 0.5) * old / new for old, new in zip(labels.shape, size, strict=True)
    )
    return labels[rows.long()[:, None], columns.long()]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Images and masks as examples; pixels are bytes until they are taken.

    Args:
        files: The image and the mask of each, or None.
        reading: How files are read.
        kept: The pixels of each, where they are kept in memory.
        size: Of an example.
        tiles: Of each example its image, its first row and column, and the first row and column that no tile
            before it holds; None: an example is an image, of which a window is drawn where it is larger.
        labeled: Whether there are masks.
        ignores: Whether a pixel may be without a class: then every pixel has a weight.
    """

    files: tuple[tuple[Path, Path | None], ...]
    reading: Reading
    kept: tuple[Pair, ...]
    size: Size
    tiles: Int[Tensor, "examples 5"] | None = None
    labeled: bool = True
    ignores: bool = False

    def __len__(self) -> int:
        return len(self.files or self.kept) if self.tiles is None else len(self.tiles)

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        return max(1, PIXELS // (self.size[0] * self.size[1]))

    @property
    def groups(self) -> Int[Tensor, " examples"] | None:
        """The image of each tile: errors are over images."""
        return None if self.tiles is None else self.tiles[:, 0]

    @property
    def targets(self) -> Int[Tensor, "examples h w"] | None:
        """The classes of all pixels of all examples; None where they are not known."""
        return (
            self.take(torch.arange(len(self)), Generator().manual_seed(0)).targets if self.labeled else None
        )

    @property
    def weight(self) -> Float[Tensor, "examples h w"] | None:
        """What each pixel weighs; None where all have a class."""
        return self.take(torch.arange(len(self)), Generator().manual_seed(0)).weight if self.ignores else None

    def pair(self, i: int) -> Pair:
        """The pixels of image ``i`` and its mask."""
        return self.kept[i] if self.kept else self.reading.read(*self.files[i])

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``; where windows are drawn, by ``generator``."""
        x = torch.zeros(len(index), self.reading.channels, *self.size)
        codes = torch.full((len(index), *self.size), UNLABELED)
        for k, i in enumerate(index.tolist()):
            image, top, left, own_row, own_column = (
                (i, 0, 0, 0, 0) if self.tiles is None else self.tiles[i].tolist()
            )
            pixels, labels = self.pair(image)
            if self.tiles is None and tuple(pixels.shape[1:]) != self.size:
                top, left = (
                    drawn(*sizes, generator) for sizes in zip(pixels.shape[1:], self.size, strict=True)
                )
                own_row, own_column = top, left
            window = pixels[:, top : top + self.size[0], left : left + self.size[1]]
            x[k, :, : window.shape[1], : window.shape[2]] = window
            if labels is not None:
                own = labels[own_row : top + self.size[0], own_column : left + self.size[1]]
                row, column = own_row - top, own_column - left
                codes[k, row : row + own.shape[0], column : column + own.shape[1]] = own
        if not self.labeled:
            return Batch((x,))
        known = codes != UNLABELED
        return Batch((x,), torch.where(known, codes, 0), known.float() if self.ignores else None)


def drawn(have: int, want: int, generator: Generator) -> int:
    """Where a window begins, uniform among the places where it lies inside; 0 where it is no smaller."""
    return int(torch.randint(have - want + 1, (), generator=generator)) if have > want else 0


def tiles_of(sizes: Sequence[Size], size: Size) -> Int[Tensor, "tiles 5"]:
    """Tiles that cover images, the last of each row and column moved inside: see :attr:`Pairs.tiles`."""
    found = []
    for image, (height, width) in enumerate(sizes):
        for row in range(0, height, size[0]):
            for column in range(0, width, size[1]):
                top, left = max(min(row, height - size[0]), 0), max(min(column, width - size[1]), 0)
                found.append((image, top, left, row, column))
    return torch.tensor(found)


def joined(tiles: Int[Tensor, "tiles 5"], answers: Sequence[Tensor], size: Size) -> Tensor:
    """What was answered to the tiles of one image, put together: (height, width) of its size."""
    whole = answers[0].new_zeros(size)
    for (_, top, left, row, column), answer in zip(tiles.tolist(), answers, strict=True):
        own = answer[row - top : size[0] - top, column - left : size[1] - left]
        whole[row : row + own.shape[0], column : column + own.shape[1]] = own
    return whole
