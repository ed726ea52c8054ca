"""Masks as files: which image each belongs to, and the class that each of its pixels names.

A mask is a gray or palette image of the size of its image, whose values are classes, or one in color with a
table that says which color is which class. Beside ``images`` its folder is called ``masks``, ``labels`` or
as :data:`MASKS` says, and its name is the image's, possibly with an ending such as ``_mask``.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from margin.data.files.reading import BROKEN, check_unpacked, raised_in, reason_of, text_of
from margin.data.formats.images import IMAGES, MASKS
from margin.data.formats.images.image_folder import PARTS
from margin.data.formats.images.images import Fit, Size, by, header_of, is_image, pixels_of, quiet

ENDING = re.compile(r"[_-](masks?|gt|labels?|seg|segmentation|L)$")
"""What the name of a mask may have behind that of its image."""

TABLES = ("classes.txt", "classes.csv", "label_colors.txt", "class_dict.csv")
"""The names of a file, beside the folders, that says which color or value is which class."""

UNLABELED = 255
"""The value that says "no class" by custom, and the code of such pixels here."""

MOST = 255
"""Classes at most."""

FEW = 64
"""Values below this are indices of classes rather than levels of gray."""

Value = tuple[int, ...]
"""What a pixel of a mask holds: (gray or palette index,) or (red, green, blue)."""


@dataclass(frozen=True, slots=True)
class PairListing:
    """The images of a folder, by part, each with its mask.

    Args:
        images: Those of each part, sorted; the only part of a folder without parts is "".
        masks: The mask of each; () where a part has none.
        others: Files that are neither.
    """

    images: Mapping[str, tuple[Path, ...]]
    masks: Mapping[str, tuple[Path, ...]]
    others: tuple[Path, ...]


def list_pairs(folder: Path) -> PairListing:
    """The images of ``FOLDER/images`` and their masks in ``FOLDER/masks``.

    Parts are folders ``train``, ``val`` and ``test`` of FOLDER, or of both of these.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: A mask is without an image or an image without a mask, or there are none.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no such folder: {folder}")
    parts = {PARTS[sub.name.lower()]: sub for sub in _folders(folder) if sub.name.lower() in PARTS}
    places = {part: _two(sub) for part, sub in parts.items()} if "train" in parts else {"": _two(folder)}
    if "" in places and (images := places[""][0]) is not None:
        inner = {PARTS[sub.name.lower()]: sub for sub in _folders(images) if sub.name.lower() in PARTS}
        masks = places[""][1]
        if "train" in inner and masks is not None:
            places = {part: (sub, _named(masks, (sub.name,))) for part, sub in inner.items()}
    found: dict[str, tuple[Path, ...]] = {}
    paired: dict[str, tuple[Path, ...]] = {}
    others: list[Path] = []
    for part, (images, masks) in places.items():
        if images is None:
            raise ValueError(
                f"{folder}: images and masks must lie in folders, as images/ and masks/: got none"
            )
        files, rest = _files(images)
        if not files:
            raise ValueError(f"{images}: a folder of images must hold one: got none")
        found[part], others = tuple(files), others + rest
        if masks is None:
            paired[part] = ()
            continue
        own, rest = _files(masks)
        others += rest
        paired[part] = _matched(files, own, masks)
    return PairListing(found, paired, tuple(others))


def without_broken(folder: Path, found: PairListing) -> tuple[PairListing, dict[Path, str]]:
    """The pairs whose image and mask both decode, and of the other images why one of them does not.

    Raises:
        ValueError: No pair is left in a part.
    """
    broken: dict[Path, str] = {}
    for part, masks in found.masks.items():
        for image, mask in zip(found.images[part], masks or (None,) * len(found.images[part]), strict=True):
            try:
                pixels_of(image.read_bytes(), image, channels=1, fit=Fit())
                if mask is not None:
                    values_of(mask.read_bytes(), mask)
            except ValueError as error:
                broken[image] = str(error)
        if all(image in broken for image in found.images[part]):
            raise ValueError(
                f"{folder}: a part must have an image that can be read: {broken[found.images[part][0]]}"
            )
    kept = {
        part: [k for k, image in enumerate(images) if image not in broken]
        for part, images in found.images.items()
    }
    return replace(
        found,
        images={part: tuple(found.images[part][k] for k in places) for part, places in kept.items()},
        masks={
            part: tuple(found.masks[part][k] for k in places if found.masks[part])
            for part, places in kept.items()
        },
    ), broken


def _folders(folder: Path) -> list[Path]:
    return [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]


def _named(folder: Path, names: Sequence[str]) -> Path | None:
    return next((one for one in _folders(folder) if one.name.lower() in names), None)


def _two(folder: Path) -> tuple[Path | None, Path | None]:
    return _named(folder, IMAGES), _named(folder, MASKS)


def _files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The images in a folder and its other files, by name; hidden files are not looked at."""
    files = [
        f for f in sorted(folder.iterdir()) if f.is_file() and f.name[0] != "." and f.name != "Thumbs.db"
    ]
    return [f for f in files if is_image(f)], [f for f in files if not is_image(f)]


def _matched(images: Sequence[Path], masks: Sequence[Path], folder: Path) -> tuple[Path, ...]:
    """The mask of each image.

    Raises:
        ValueError: One is missing, belongs to no image, or is not the only one.
    """
    stems = {image.stem for image in images}
    named = [(mask.stem if mask.stem in stems else ENDING.sub("", mask.stem), mask) for mask in masks]
    for which, counted in (
        ("image", Counter(image.stem for image in images)),
        ("mask", Counter(stem for stem, _ in named)),
    ):
        if twice := [stem for stem, count in counted.items() if count > 1]:
            raise ValueError(
                f"{folder}: there must be one {which} of a name: got {counted[twice[0]]} of {twice[0]!r}"
            )
    known = dict(named)
    if strange := [mask for stem, mask in named if stem not in stems]:
        raise ValueError(f"{strange[0]}: every mask must have an image of its name: got none{_more(strange)}")
    if bare := [image for image in images if image.stem not in known]:
        raise ValueError(
            f"{bare[0]}: every image must have a mask of its name in {folder.name}: got none{_more(bare)}"
        )
    return tuple(known[image.stem] for image in images)


def _more(files: Sequence[Path]) -> str:
    return f" ({len(files)} such in all)" if len(files) > 1 else ""


def check_size(image: Path, mask: Path) -> Size:
    """The size of an image, which its mask must have.

    Raises:
        ValueError: The mask has another.
    """
    size, other = header_of(image).size, header_of(mask).size
    if size != other:
        raise ValueError(
            f"{mask}: a mask must have its image's size: got {by(other)} for {by(size)} of {image.name}"
        )
    return size


# what pixels hold


def values_of(data: bytes, path: Path, *, colored: bool = False) -> NDArray[np.int64]:
    """What each pixel of a mask holds, (height, width): a value, or a color as red 65536 + green 256 + blue.

    Args:
        data: The bytes of the file.
        path: Its name in messages.
        colored: Whether the table of classes has colors, so that a palette is one of colors too.

    Raises:
        ValueError: The file does not decode, is compressed with losses, or has transparent pixels.
    """
    try:
        with quiet(), Image.open(BytesIO(data)) as image:
            check_unpacked(
                path, len(data), 8 * image.width * image.height, "make it smaller, or leave it out"
            )
            if image.format in ("JPEG", "MPO"):
                raise ValueError("JPEG changes values; save masks as PNG")
            picture = ImageOps.exif_transpose(image)
            if picture.mode in ("RGBA", "LA", "PA"):
                if picture.getchannel("A").getextrema()[0] != 255:
                    raise ValueError("it has transparent pixels; lay it on a background")
                picture = picture.convert({"LA": "L", "PA": "P"}.get(picture.mode, "RGB"))
            if colored or picture.mode not in ("1", "L", "P", "I", "I;16", "I;16B"):
                picture = picture.convert("RGB")
            pixels = np.asarray(picture).astype(np.int64)
    except Exception as error:  # a broken file makes the decoders raise nearly anything
        if not isinstance(error, (*BROKEN, ValueError)) and not raised_in(error, ("PIL",)):
            raise
        reason = str(error) if isinstance(error, ValueError) else reason_of(error)
        raise ValueError(f"{path}: the mask does not decode: {reason.removeprefix(f'{path}: ')}") from None
    if pixels.ndim == 2:
        return pixels
    if not colored and bool((pixels == pixels[..., :1]).all()):  # gray, saved in three channels
        return pixels[..., 0]
    return pixels @ np.array([65536, 256, 1]) + (1 << 24)  # no gray value is so large


def as_value(code: int) -> Value:
    """A value or a color of :func:`values_of` as a tuple."""
    code = int(code)
    return ((code >> 16) & 255, (code >> 8) & 255, code & 255) if code >> 24 else (code,)


def as_code(value: Sequence[int]) -> int:
    """The inverse of :func:`as_value`."""
    return value[0] if len(value) == 1 else (1 << 24) + (value[0] << 16) + (value[1] << 8) + value[2]


@dataclass(frozen=True, slots=True)
class ClassTable:
    """Which value of a mask is which class.

    Args:
        values: The value or color of each class.
        names: Their names.
        ignored: Values of pixels without a class, which count for nothing.
    """

    values: tuple[Value, ...]
    names: tuple[str, ...]
    ignored: tuple[Value, ...] = ()

    @property
    def colored(self) -> bool:
        """Whether classes are colors."""
        return len(self.values[0]) == 3

    def labels(self, data: bytes, path: Path) -> UInt8[Tensor, "height width"]:
        """The class of each pixel of a mask; :data:`UNLABELED` where it has none.

        Raises:
            ValueError: A pixel holds what is no class; the message says where.
        """
        return self.of(values_of(data, path, colored=self.colored), str(path))

    def of(self, held: NDArray[np.int64], name: str) -> UInt8[Tensor, "height width"]:
        """As :meth:`labels`, of the values that pixels hold.

        Args:
            held: As :func:`values_of` gives them.
            name: What messages call the mask.

        Raises:
            ValueError: A pixel holds what is no class; the message says where.
        """
        known = {as_code(value): k for k, value in enumerate(self.values)}
        known |= {as_code(value): UNLABELED for value in self.ignored}
        found, place = np.unique(held, return_inverse=True)
        if strange := [int(code) for code in found if int(code) not in known]:
            row, column = np.argwhere(held == strange[0])[0]
            names = ", ".join(f"{shown(v)} ({n})" for v, n in zip(self.values, self.names, strict=True))
            raise ValueError(
                f"{name}: every pixel must be of a known class, {names}: got {shown(as_value(strange[0]))} "
                f"in row {row}, column {column}"
            )
        codes = np.array([known[int(code)] for code in found], dtype=np.uint8)
        return torch.from_numpy(codes[place.reshape(held.shape)])


def shown(value: Value) -> str:
    """A value or a color in words: "3", "r,g,b"."""
    return ",".join(map(str, value))


def read_table(path: Path) -> tuple[tuple[Value, ...], tuple[str, ...]]:
    """The classes of a text file: a line each, a value or a color and a name, in either order.

    Raises:
        ValueError: A line is not so, or two classes share a name or a color.
    """
    values: list[Value] = []
    names: list[str] = []
    for number, line in enumerate(text_of(path).splitlines(), 1):
        words = [word for word in re.split(r"[,;\t ]+", line.strip()) if word]
        numbers = tuple(int(word) for word in words if re.fullmatch(r"\d{1,5}", word))
        name = " ".join(word for word in words if not re.fullmatch(r"\d{1,5}", word))
        if not words or line.lstrip().startswith("#") or (number == 1 and not numbers):
            continue  # an empty line, a comment, the heading of a CSV
        wrong = len(numbers) not in (1, 3) or not name or (len(numbers) == 3 and max(numbers) > 255)
        if wrong or (values and len(values[0]) != len(numbers)):
            raise ValueError(
                f"{path}, line {number}: a class must be 'value name' or 'red green blue name', all alike: "
                f"got {line!r}"
            )
        values.append(numbers)
        names.append(name)
    for what, column in (("value", values), ("name", names)):
        if len({*column}) < len(column):
            raise ValueError(f"{path}: every class must have a {what} of its own: got one twice")
    if len(values) < 2:
        raise ValueError(f"{path}: there must be two classes at least: got {len(values)}")
    return tuple(values), tuple(names)


def table_of(
    masks: Sequence[Path],
    given: tuple[tuple[Value, ...], tuple[str, ...]] | None,
    ignore: int | None,
    folder: Path,
) -> ClassTable:
    """The table of classes: as given, else every value that occurs.

    Where the values are indices (below 64, or 0 .. K-1) and 255 besides, 255 says "no class".

    Args:
        masks: The files, looked at where no table is given.
        given: Values and names that a file says.
        ignore: The value of pixels without a class; None: 255 where it is no class.
        folder: What messages name.

    Raises:
        ValueError: Masks are in color without a table, or there are fewer than two classes or too many.
    """
    if given is not None:
        own = (UNLABELED if ignore is None else ignore,)
        spare = (own,) if len(given[0][0]) == 1 and own not in given[0] else ()
        return ClassTable(*given, spare)
    held = sorted({int(code) for mask in masks for code in np.unique(values_of(mask.read_bytes(), mask))})
    if colors := [code for code in held if code >> 24]:
        some = "; ".join(shown(as_value(code)) for code in colors[:4])
        raise ValueError(
            f"{folder}: masks in color need a table of classes: got {len(colors)} colors, as {some}; "
            f"write lines 'red green blue name' to {folder / TABLES[0]}, or to a file named by --data.classes"
        )
    return table_of_values(held, ignore, str(folder))


def table_of_values(held: Sequence[int], ignore: int | None, name: str) -> ClassTable:
    """The table of classes of the values that occur, ascending; see :func:`table_of`.

    Raises:
        ValueError: There are fewer than two classes or too many.
    """
    others = [value for value in held if value != UNLABELED]
    indices = len(others) > 1 and (others[-1] < FEW or others[-1] < len(others))
    if ignore is None and indices and UNLABELED in held:
        ignore = UNLABELED
    values = [value for value in held if value != ignore]
    if not 2 <= len(values) <= MOST:
        hint = "; are these masks of instances, or photographs?" if len(values) > MOST else ""
        raise ValueError(f"{name}: masks must show 2 to {MOST} classes: got {len(values)} values{hint}")
    spare = () if ignore is None else ((ignore,),)
    return ClassTable(tuple((value,) for value in values), tuple(map(str, values)), spare)
