"""Semantic segmentation as data: a folder of images with a folder of masks, a class for every pixel."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from margin.core.types import Domain
from margin.data.arrays import BYTES
from margin.data.assembly import Schema, cut, spec_of
from margin.data.examples import PARTS_OF_DATA, Data
from margin.data.files.reading import regular
from margin.data.formats.images import MASKS
from margin.data.formats.images.folders import deepest
from margin.data.formats.images.images import DEEPEST, Fit, Size, by, header_of, in_depth, is_image
from margin.data.formats.images.mask_files import (
    TABLES,
    ClassTable,
    PairListing,
    Value,
    check_size,
    list_pairs,
    read_table,
    shown,
    table_of,
    without_broken,
)
from margin.data.formats.images.mask_pairs import Pair, Pairs, Reading, tiles_of
from margin.data.formats.objects.survey import Memory, room
from margin.data.options import option_groups
from margin.data.preprocess import standardize_levels
from margin.data.splits import Split

Files = tuple[tuple[Path, Path | None], ...]
Masked = tuple[tuple[Path, Path], ...]


@option_groups()
def read_masks(  # more than 7 parameters: they are the options of the source
    path: str | os.PathLike[str],
    *,
    resize: int | tuple[int, int] | None = None,
    crop: tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
    classes: str = "",
    ignore_index: int | None = None,
    depth: int | None = None,
    memory: Memory = "auto",
    skip_unreadable: bool = False,
    split: Split = Split(),
) -> Data:
    """Images in ``FOLDER/images`` with masks of the same names in ``FOLDER/masks``.

    With ``FOLDER/train/images`` and ``FOLDER/train/masks``, and such folders of ``val`` or ``test``, the
    parts are the folder's own. A mask is a gray or palette image whose values are classes, or in color with a
    table of classes.

    Args:
        path: The folder.
        resize: Height and width of every image, or its shorter side; masks take the nearest pixel, so that no
            class is mixed.
        crop: Height and width of an example, for images of several sizes: a window drawn at random in
            training, tiles that cover the image in evaluation and prediction.
        channels: 1 for gray or 3 for RGB; by default 1 where the type of every file is gray.
        classes: A text file with a line a class, "value name" or "red green blue name"; classes.txt in the
            folder if not given, else every value is a class.
        ignore_index: The value of pixels without a class; 255 where the others are 0, 1, 2, ...
        depth: Bits of a level in gray images of 16 bits, 8 to 16; by default what the largest level of all
            needs, so that images of 12 bits are not nearly black.
        memory: Whether decoded images are kept in memory (where they take at most 1 GiB, always, never), or
            read when they are taken; both give the same batches.
        skip_unreadable: Whether an image that does not decode, or whose mask does not, is left out with it
            and counted, in place of an error.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is a folder of that name.
        val: Share of the validation part; without effect where there is a folder of that name.

    Returns:
        Images (N, C, H, W) in the domain [0, 255] with classes (N, H, W).

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: A mask is missing, has another size or holds what is no class, sizes differ, or a file
            does not decode.
    """
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1 or 3: got {channels}")
    fit = Fit(resize, crop, DEEPEST if depth is None else depth)  # which refuses a size that is none
    folder = Path(path)
    found = list_pairs(folder)
    found, broken = without_broken(folder, found) if skip_unreadable else (found, {})
    parts, record = _parts(folder, found, split)
    pairs = [pair for files in parts.values() for pair in files]
    sizes = {image: fit.scaled(check_size(image, mask)) for image, mask in pairs}
    size = crop or _one_size(sizes)
    headers = {image: header_of(image) for image, _ in pairs}
    gray = sum(header.gray for header in headers.values())
    table = table_of([mask for _, mask in pairs], _given(folder, classes), ignore_index, folder)
    reading = Reading(
        table,
        channels or (1 if gray == len(pairs) else 3),
        resize,
        deepest(headers) if depth is None else depth,
    )
    pixels = sum(h * w for h, w in sizes.values())
    looked = _looked(parts, reading, size, crop, keep=pixels * (reading.channels + 1) <= room(memory))
    data = mask_data(folder.name or str(folder), looked, record, crop)
    return replace(data, notes=(*data.notes, *_notes(found, reading, gray, len(pairs), broken)))


def mask_data(
    name: str, looked: Mapping[str, "Look"], record: Mapping[str, Any], crop: Size | None = None
) -> Data:
    """The Data of images with masks.

    Args:
        name: What messages call it.
        looked: The examples of each part, and what a pass over them showed.
        record: Of the split.
        crop: Height and width of a window, where examples are cut.
    """
    train = looked["train"]
    reading, size = train.pairs.reading, train.pairs.size
    shape = (reading.channels, *size)
    own: dict[str, Any] = {
        "pixels": "bytes",
        "resize": list(reading.resize) if isinstance(reading.resize, tuple) else reading.resize,
        "crop": None if crop is None else list(crop),
        **({"depth": reading.depth} if reading.depth < DEEPEST else {}),
        "values": [list(value) for value in reading.table.values],
        "ignored": [list(value) for value in reading.table.ignored],
        "about": _about(looked, crop),
    }
    if crop is not None:
        counts = {part: len(look.pairs.files) for part, look in looked.items()}
        own["group"] = {"column": "image", "counts": counts}
    encoding = Schema(
        format="masks",
        task="pixel_classes",
        shape=shape,
        dtype=torch.float32,
        classes=reading.table.names,
        split=record,
        own=own,
    ).as_json()
    digest = hashlib.sha256(json.dumps(encoding, sort_keys=True).encode())
    for part, look in looked.items():
        digest.update(part.encode() + look.digest)
    return Data(
        name=name,
        splits={part: look.pairs for part, look in looked.items()},
        spec=spec_of(shape, len(train.pairs), len(reading.table.names)),
        encoding=encoding,
        preprocess=standardize_levels(train.sums, train.pixels),
        domain=Domain(*torch.tensor(BYTES)),
        fingerprint=digest.hexdigest(),
    )


def encode_masks(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Pairs:
    """New images by the record of a run: one file, a folder of images, or images with masks.

    Where there is a folder ``test``, its images are taken. Images of a run with a crop are cut into tiles.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: A mask holds a class that the run does not know, sizes differ from the run's, or a file
            does not decode.
    """
    files = _new_files(Path(source))
    channels, *own = encoding["shape"]
    size = (own[0], own[1])
    kept = encoding["resize"]
    resize = (kept[0], kept[1]) if isinstance(kept, list) else kept
    table = ClassTable(
        tuple(tuple(value) for value in encoding["values"]),
        tuple(encoding["classes"]),
        tuple(tuple(value) for value in encoding["ignored"]),
    )
    for image, mask in files:
        if mask is not None:
            check_size(image, mask)
        if encoding["crop"] is None and (got := Fit(resize).scaled(header_of(image).size)) != size:
            raise ValueError(
                f"{image}: the run's images are {by(size)}: got {by(got)}; resize the image, or train with "
                f"--data.crop {size[0]},{size[1]}"
            )
    crop = None if encoding["crop"] is None else size
    reading = Reading(table, channels, resize, encoding.get("depth", DEEPEST))
    look = _looked({"test": files}, reading, size, crop, keep=False)["test"]
    return look.pairs


def mask_images(source: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The images that :func:`encode_masks` reads, in its order."""
    return tuple(image for image, _ in _new_files(Path(source)))


def _new_files(path: Path) -> Files:
    """A file or folder of new images, with their masks where there are some."""
    if not path.is_dir():
        return ((regular(path), None),)
    if own := [file for file in sorted(path.iterdir()) if file.is_file() and is_image(file)]:
        return tuple((file, None) for file in own)
    found = list_pairs(path)
    part = next(part for part in ("test", "val", "", "train") if part in found.images)
    masks = found.masks[part] or (None,) * len(found.images[part])
    return tuple(zip(found.images[part], masks, strict=True))


def _parts(folder: Path, found: PairListing, split: Split) -> tuple[dict[str, Masked], dict[str, Any]]:
    """The files of each part, and the record of the split; the folder's own parts are kept."""
    pairs = {
        part: tuple(zip(images, found.masks[part], strict=True))
        for part, images in found.images.items()
        if found.masks[part]
    }
    main = "train" if "train" in found.images else ""
    if main not in pairs:
        raise ValueError(
            f"{folder}: training needs masks beside the images, in {' or '.join(MASKS)}: got none"
        )
    own = {part: pairs[part] for part in ("val", "test") if part in pairs}
    indices, record = cut(str(folder), pairs[main], "none", split, own=dict.fromkeys(own))
    parts = own | {part: tuple(pairs[main][i] for i in index.tolist()) for part, index in indices.items()}
    return {part: parts[part] for part in PARTS_OF_DATA if part in parts}, record


def _one_size(sizes: Mapping[Path, Size]) -> Size:
    """The size of every image.

    Raises:
        ValueError: Sizes differ; the message names what can be done.
    """
    (first, size), *rest = sizes.items()
    for file, other in rest:
        if other != size:
            least = [min(axis) for axis in zip(*sizes.values(), strict=True)]
            raise ValueError(
                f"{file}: images must have one size: got {by(other)}, {first} has {by(size)}; set "
                f"--data.crop {least[0]},{least[1]} (height,width) for windows, or --data.resize "
                f"{size[0]},{size[1]}"
            )
    return size


def _given(folder: Path, classes: str) -> tuple[tuple[Value, ...], tuple[str, ...]] | None:
    """The classes that a file says: the one that is named, else the folder's own, if it has one."""
    if classes:
        return read_table(Path(classes))
    own = next((folder / name for name in TABLES if (folder / name).is_file()), None)
    return None if own is None else read_table(own)


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What one pass over the images and masks of a part shows.

    Args:
        pairs: The examples.
        sums: For each channel the sum of its levels and of their squares.
        pixels: Pixels of a channel.
        counts: Pixels of each class, and those without one.
        sizes: How often each size occurs.
        digest: SHA-256 over pixels and classes.
    """

    pairs: Pairs
    sums: Int[Tensor, "channel 2"]
    pixels: int
    counts: Int[Tensor, " classes_and_none"]
    sizes: Mapping[Size, int]
    digest: bytes


def _looked(
    parts: Mapping[str, Files], reading: Reading, size: Size, crop: Size | None, *, keep: bool
) -> dict[str, Look]:
    """Read and decode every file once, so that a broken one is found before the training."""
    found = {}
    for part, files in parts.items():
        pairs = Pairs(files, reading, (), size, ignores=bool(crop or reading.table.ignored))
        found[part] = look_at(pairs, tiled=crop is not None and part != "train", keep=keep)
    return found


def look_at(pairs: Pairs, *, tiled: bool = False, keep: bool = False) -> Look:
    """One pass over images and masks.

    Args:
        pairs: One example an image.
        tiled: Whether each image becomes tiles.
        keep: Whether pixels are kept in memory.
    """
    reading, digest = pairs.reading, hashlib.sha256()
    kept: list[Pair] = []
    sizes: Counter[Size] = Counter()
    sums = torch.zeros(reading.channels, 2, dtype=torch.int64)
    classes = len(reading.table.names)
    counts = torch.zeros(classes + 1, dtype=torch.int64)
    for i in range(len(pairs)):
        pixels, labels = pairs.pair(i)
        levels = pixels.long().flatten(1)
        sums += torch.stack((levels.sum(1), levels.square().sum(1)), 1)
        sizes[(pixels.shape[1], pixels.shape[2])] += 1
        digest.update(pixels.numpy().tobytes())
        if labels is not None:
            counts += labels.long().clamp(max=classes).flatten().bincount(minlength=classes + 1)
            digest.update(labels.numpy().tobytes())
        if keep:
            kept.append((pixels, labels))
    every = [size for size, count in sizes.items() for _ in range(count)]
    tiles = None
    if tiled:
        every = [(pixels.shape[1], pixels.shape[2]) for pixels, _ in map(pairs.pair, range(len(pairs)))]
        tiles = tiles_of(every, pairs.size)
    labeled = all(mask is not None for _, mask in pairs.files)
    pairs = replace(pairs, kept=tuple(kept) or pairs.kept, tiles=tiles, labeled=labeled)
    return Look(pairs, sums, sum(h * w for h, w in sizes.elements()), counts, sizes, digest.digest())


def _about(looked: Mapping[str, Look], crop: Size | None) -> list[list[str]]:
    """What images and masks are, and the share of each class, for a reader."""
    reading = looked["train"].pairs.reading
    sizes: Counter[Size] = Counter()
    for look in looked.values():
        sizes.update(look.sizes)
    (low, _), *rest = sorted(sizes.items())
    size = by(low) if not rest else f"{by(low)} to {by(rest[-1][0])}, {len(sizes)} sizes"
    lines = [["pairs", f"{sum(sizes.values()):,} images with a mask each, {size}"]]
    if crop is not None:
        how = "a window drawn in training, tiles that cover the image in evaluation and prediction"
        lines.append(["crop", f"{by(crop)}: {how}"])
    totals = torch.stack([look.counts for look in looked.values()]).sum(0)
    shares = (totals[:-1].double() / totals[:-1].sum()).tolist()
    names = zip(reading.table.names, reading.table.values, shares, strict=True)
    lines += [
        ["class", f"{name!r} {share:.1%} of labeled pixels" + f" ({shown(value)})" * (shown(value) != name)]
        for name, value, share in names
    ]
    if reading.table.ignored:
        share = float(totals[-1] / totals.sum())
        values = "; ".join(map(shown, reading.table.ignored))
        lines.append(["no class", f"{share:.1%} of pixels (value {values}), which count for nothing"])
    return lines


def _notes(
    found: PairListing, reading: Reading, gray: int, count: int, broken: Mapping[Path, str]
) -> Iterator[str]:
    """What was decided."""
    how = "gray, one channel" if reading.channels == 1 else "RGB, three channels"
    yield f"images are read as {how}: {gray} of {count} files are gray"
    if reading.table.names == tuple(shown(value) for value in reading.table.values):
        yield f"the values of masks are taken for classes; {TABLES[0]}, lines 'value name', would name them"
    if reading.depth < DEEPEST:
        yield f"gray images of 16 bits {in_depth(reading.depth, one=False)}"
    if broken:
        are, first = "pair is" if len(broken) == 1 else "pairs are", next(iter(broken.values()))
        yield f"{len(broken)} unreadable {are} left out; the first: {first}"
    if reading.resize is not None:
        yield f"images are {Fit(reading.resize).words()}, masks to the nearest pixel"
    if bare := [part for part, masks in found.masks.items() if not masks]:
        yield f"the images of {', '.join(bare)} have no masks and are left out"
    if found.others:
        first = found.others[0].name
        yield f"{len(found.others)} files that are no images are left out: the first is {first}"
