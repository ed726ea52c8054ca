"""Image files: their size and channels from the header, their pixels as unsigned bytes.

One picture of 8 bits a channel, gray or RGB, is read as it is shown: turned as its EXIF orientation says.
What would have to be guessed (a background behind transparent pixels, how 16 bits become 8, how ink
becomes light) is refused.
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

GRAY = ("1", "L", "LA")
COLOR = ("P", "PA", "RGB", "RGBA", "YCbCr")
TRANSPARENT = ("LA", "PA", "RGBA")

Size = tuple[int, int]
"""Height and width in pixels."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an image file says of its picture before it is decoded.

    Args:
        size: Height and width, as shown.
        gray: Whether all colors that the picture could have are gray.
    """

    size: Size
    gray: bool


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
    with _reading(path), Image.open(path) as image:
        _check(image, path)
        width, height = image.size[::-1] if _is_to_be_turned(image) else image.size
        return Header((height, width), image.mode in GRAY or (image.mode == "P" and _gray_palette(image)))


def pixels_of(data: bytes, path: Path, *, channels: int, resize: Size | None) -> UInt8[Tensor, "channel h w"]:
    """The pixels of a picture.

    Args:
        data: The bytes of the file.
        path: Its name in messages.
        channels: 1 (luma of ITU-R BT.601 where it is in color) or 3.
        resize: Height and width to which it is resampled by an antialiased triangle filter, or None.

    Raises:
        ValueError: The picture does not decode, or is of a kind that is refused.
    """
    with _reading(path), Image.open(BytesIO(data)) as image:
        _check(image, path)
        picture = ImageOps.exif_transpose(image)
        if picture.mode in TRANSPARENT or "transparency" in picture.info:
            alpha = picture.convert("RGBA").getchannel("A")
            if alpha.getextrema()[0] != 255:
                raise ValueError(f"{path}: an image must have no transparent pixel: lay it on a background")
            picture = picture.convert("L" if picture.mode == "LA" else "RGB")
        picture = picture.convert("L" if channels == 1 else "RGB")
        if resize is not None and picture.size != resize[::-1]:
            picture = picture.resize(resize[::-1], Image.Resampling.BILINEAR)
        levels = np.asarray(picture, dtype=np.uint8)
    planes = levels[None] if channels == 1 else levels.transpose(2, 0, 1)
    return torch.from_numpy(planes.copy())


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    regular(path)
    try:
        # What Pillow only warns of, an implausible size, is refused here
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    """Refuse several pictures in a file, too large ones, and what has no one meaning as 8 bits."""
    width, height = image.size
    check_unpacked(path, path.stat().st_size, 4 * width * height, "make it smaller, or leave it out")
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":  # a camera's JPEG with previews behind the picture
        raise ValueError(f"{path}: an image file must hold one picture: got {frames}")
    if image.mode.startswith(("I", "F")) or any(map(_is_deep, image.tile)):
        raise ValueError(f"{path}: an image must have 8 bits a channel: got more; convert it to 8 bits")
    if image.mode not in (*GRAY, *COLOR):
        raise ValueError(f"{path}: an image must be gray or RGB: got {image.mode}; convert it to RGB")


def _is_to_be_turned(image: ImageFile.ImageFile) -> bool:
    """Whether height and width are exchanged when the picture is shown: not where Pillow has done so."""
    if (tags := getattr(image, "tag_v2", None)) is not None:  # of TIFF, Pillow states the size as shown
        width, height = tags.get(ExifTags.Base.ImageWidth), tags.get(ExifTags.Base.ImageLength)
        if (width, height) != image.size:
            return False
    # From 5 on, the orientations exchange the axes.
    return image.getexif().get(ExifTags.Base.Orientation, 1) >= 5


def _is_deep(tile: Any) -> bool:
    """Whether Pillow would drop bits of a tile: it calls a picture of 3 x 16 bits RGB as well."""
    depth = tile[3][1] if tile[0] == "ppm" else 0
    return ";16" in str(tile[3]) or depth > 255


def _gray_palette(image: Image.Image) -> bool:
    colors = np.asarray(image.getpalette("RGB") or [], dtype=np.uint8).reshape(-1, 3)
    return bool((colors == colors[:, :1]).all())
