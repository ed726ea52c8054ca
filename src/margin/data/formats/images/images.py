"""Image files as photographs are: their size and kind from the header, their pixels as unsigned bytes.

A picture is read as it is shown: turned as its EXIF orientation says, transparent pixels on white, ink (CMYK)
as light, of 16 bits the high byte, of an animation the first frame. What a header says of these is counted
and told. Levels of 32 bits and real numbers, and files of several pages, have no one meaning and are refused.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError
from torch import Tensor

from margin.data.files.reading import BROKEN, check_unpacked, raised_in, reason_of, regular

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
"""How the name of an image file ends, in small or capital letters."""

GRAY = ("1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N")
COLOR = ("P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "YCbCr", "CMYK")
TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa")

Size = tuple[int, int]
"""Height and width in pixels."""

DEEPEST = 16
"""Bits of a level at most."""

ODDITIES = {
    "turned": "turned as the EXIF orientation says",
    "transparent": "laid on white where transparent",
    "ink": "converted from CMYK to RGB without a color profile",
    "deep": "brought from 16 bits a channel to the high 8",
    "animated": "animated: the first frame is read",
}
"""What a picture may be beside gray or RGB, and how it is read."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an image file says of its picture before it is decoded.

    Args:
        size: Height and width, as shown.
        gray: Whether all colors that the picture could have are gray.
        odd: Which of :data:`ODDITIES` it is.
    """

    size: Size
    gray: bool
    odd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fit:
    """How pictures of several sizes become pictures of one.

    Args:
        resize: Height and width to which each is resampled, or the length of its shorter side alone, which
            keeps its proportions; None keeps its size. Resampled by an antialiased triangle filter.
        crop: Height and width of its middle, which is all that is kept afterwards; None keeps all.
        depth: Bits of a level of a gray picture of 16 bits, as 12 of many cameras and scanners; 8 are kept.
    """

    resize: int | Size | None = None
    crop: Size | None = None
    depth: int = DEEPEST

    def __post_init__(self) -> None:
        sides = (self.resize,) if isinstance(self.resize, int) else self.resize or ()
        if min(sides, default=1) < 1:
            raise ValueError(
                f"resize must be a height and a width, or a shorter side, of at least 1: got {self.resize}"
            )
        if not 8 <= self.depth <= DEEPEST:
            raise ValueError(f"depth must be 8 to {DEEPEST} bits: got {self.depth}")
        if self.crop is not None and min(self.crop) < 1:
            raise ValueError(f"crop must be a height and a width of at least 1: got {self.crop}")

    def scaled(self, size: Size) -> Size:
        """The size of a picture after it is resampled."""
        if not isinstance(self.resize, int):
            return self.resize or size
        short, long = min(size), max(size)
        other = max(1, self.resize * long // short)  # rounded down, as torchvision's Resize
        return (self.resize, other) if size[0] <= size[1] else (other, self.resize)

    def size_of(self, size: Size, path: Path) -> Size:
        """The size that a picture has in the end.

        Raises:
            ValueError: It is smaller than its middle is to be.
        """
        scaled = self.scaled(size)
        if self.crop is None:
            return scaled
        if scaled[0] < self.crop[0] or scaled[1] < self.crop[1]:
            raise ValueError(
                f"{path}: an image must be at least as large as the crop of {by(self.crop)}: "
                f"got {by(scaled)}; set --data.resize {max(self.crop)} (shorter side)"
            )
        return self.crop

    def __call__(self, picture: Image.Image, path: Path) -> Image.Image:
        """The picture, resampled and cropped."""
        width, height = picture.size
        final, scaled = self.size_of((height, width), path), self.scaled((height, width))
        if scaled != (height, width):
            picture = picture.resize(scaled[::-1], Image.Resampling.BILINEAR)
        if final == scaled:
            return picture
        top, left = (round((had - kept) / 2) for had, kept in zip(scaled, final, strict=True))
        return picture.crop((left, top, left + final[1], top + final[0]))

    def words(self) -> str:
        """What is done to pictures of another size."""
        filtered = "by Pillow's antialiased bilinear filter"
        if isinstance(self.resize, int):
            said = f"resized to a shorter side of {self.resize} pixels {filtered}"
        else:
            said = f"resized to {by(self.resize)} {filtered}" if self.resize else ""
        cropped = f"cropped to the middle {by(self.crop)}" if self.crop else ""
        return " and ".join(filter(None, (said, cropped)))


def is_image(path: Path) -> bool:
    """Whether a file's name ends as an image's."""
    return path.suffix.lower() in ENDINGS


def by(size: Sequence[int]) -> str:
    """A size in words, height before width."""
    return f"{size[0]} x {size[1]} pixels"


def header_of(path: Path) -> Header:
    """The size and kind of a picture, from its header.

    Raises:
        ValueError: The file is no image, or of a kind that is refused.
    """
    with _reading(path), quiet(), Image.open(path) as image:
        _check(image, path)
        deep = _is_deep(image)  # before the orientation, for which a PNG is loaded, and forgets its depth
        orientation, exchanged = _orientation(image)
        width, height = image.size[::-1] if exchanged else image.size
        odd = {
            "turned": orientation != 1,
            "transparent": image.mode in TRANSPARENT or "transparency" in image.info,
            "ink": image.mode == "CMYK",
            "deep": deep,
            "animated": getattr(image, "n_frames", 1) > 1 and image.format != "MPO",
        }
        gray = image.mode in (*GRAY, "I") or (image.mode == "P" and _gray_palette(image))
        return Header((height, width), gray, tuple(name for name, so in odd.items() if so))


def depth_of(path: Path) -> int:
    """The bits that the largest level of a gray picture of 16 bits needs, at least 8; 0 where all are 0.

    Raises:
        ValueError: The picture does not decode.
    """
    with _reading(path), Image.open(path) as picture:
        most = int(np.asarray(picture).max()) if picture.mode.startswith("I") else 0
    return max(8, most.bit_length()) if most else 0


def in_depth(depth: int, *, one: bool) -> str:
    """How gray pictures of 16 bits are read whose levels have fewer."""
    are = "is" if one else "are"
    return f"{are} of {depth} bits, in files of 16: their levels, up to {2**depth - 1:,}, become 0 to 255"


def pixels_of(data: bytes, path: Path, *, channels: int, fit: Fit) -> UInt8[Tensor, "channel h w"]:
    """The pixels of a picture; threads may read several at a time.

    Args:
        data: The bytes of the file.
        path: Its name in messages.
        channels: 1 (luma of ITU-R BT.601 where it is in color) or 3.
        fit: Its size.

    Raises:
        ValueError: The picture does not decode, is of a kind that is refused, or smaller than the crop.
    """
    with _reading(path), Image.open(BytesIO(data)) as image:
        _check(image, path)
        picture = ImageOps.exif_transpose(image)
        if picture.mode.startswith("I"):
            deep = np.asarray(picture).astype(np.int64)
            if (most := int(deep.max())) >> fit.depth:
                raise ValueError(
                    f"{path}: levels must have {fit.depth} bits, as the others: got {most}; "
                    f"--data.depth {most.bit_length()} reads all so"
                )
            high = np.where(deep == picture.info.get("transparency", -1), 255, deep >> (fit.depth - 8))
            picture = Image.fromarray(high.astype(np.uint8))
        if picture.mode in TRANSPARENT or "transparency" in picture.info:
            over = picture.convert("RGBA")
            white = Image.new("RGBA", over.size, (255, 255, 255, 255))
            picture = Image.alpha_composite(white, over).convert("RGB" if channels == 3 else "L")
        picture = fit(picture.convert("L" if channels == 1 else "RGB"), path)
        levels = np.asarray(picture, dtype=np.uint8)
    planes = levels[None] if channels == 1 else levels.transpose(2, 0, 1)
    return torch.from_numpy(planes.copy())


@contextmanager
def quiet() -> Iterator[None]:
    """Without what Pillow only warns of; for one thread, as filters of warnings are the process's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    regular(path)
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        raise error if str(error).startswith(str(path)) else _undecodable(path, error) from None
    except Exception as error:  # a broken file makes the decoders raise nearly anything
        if not isinstance(error, BROKEN) and not raised_in(error, ("PIL",)):
            raise
        raise _undecodable(path, error) from None


def _undecodable(path: Path, error: Exception) -> ValueError:
    unknown = "not an image that Pillow can read"
    reason = unknown if isinstance(error, UnidentifiedImageError) else reason_of(error)
    return ValueError(f"{path}: the image does not decode: {reason}; save it anew, or leave it out")


def _check(image: ImageFile.ImageFile, path: Path) -> None:
    """Refuse several pages in a file, too large ones, and what has no one meaning as 8 bits."""
    width, height = image.size
    check_unpacked(path, path.stat().st_size, 4 * width * height, "make it smaller, or leave it out")
    pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    if pages > 1:
        raise ValueError(f"{path}: an image file must hold one picture: got {pages}")
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PPM", "PNG")):
        raise ValueError(f"{path}: an image must have 8 or 16 bits a channel: got more; convert it to 8 bits")
    if image.mode not in (*GRAY, *COLOR, "I"):
        raise ValueError(f"{path}: an image must be gray, RGB or CMYK: got {image.mode}; convert it to RGB")


def _orientation(image: ImageFile.ImageFile) -> tuple[int, bool]:
    """How a camera was held, by EXIF's number, and whether height and width are yet to be exchanged."""
    stated = image.getexif().get(ExifTags.Base.Orientation, 1)
    orientation = stated if stated in range(1, 9) else 1
    if (tags := getattr(image, "tag_v2", None)) is not None:  # of TIFF, Pillow states the size as shown
        width, height = tags.get(ExifTags.Base.ImageWidth), tags.get(ExifTags.Base.ImageLength)
        if (width, height) != image.size:
            return orientation, False
    # From 5 on, the orientations exchange the axes.
    return orientation, orientation >= 5


def _is_deep(image: ImageFile.ImageFile) -> bool:
    """Whether a channel has 16 bits: Pillow calls a picture of 3 x 16 bits RGB as well, and drops the low."""

    def deep(tile: Any) -> bool:
        depth = tile[3][1] if tile[0] == "ppm" else 0
        return ";16" in str(tile[3]) or depth > 255

    return image.mode.startswith("I") or any(map(deep, image.tile))


def _gray_palette(image: Image.Image) -> bool:
    colors = np.asarray(image.getpalette("RGB") or [], dtype=np.uint8).reshape(-1, 3)
    return bool((colors == colors[:, :1]).all())
