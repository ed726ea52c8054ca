"""Folders of image files: a folder a class, ``FOLDER/<class>/<image>``, or images alone, without labels.

With ``FOLDER/train/<class>/<image>`` (or ``FOLDER/train/<image>``) and ``FOLDER/test/...`` or
``FOLDER/val/...`` beside it, the parts are the folder's own and are kept. Hidden files and ``Thumbs.db`` are
not looked at; other files that are no images are left out and counted in a note.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int, UInt8
from torch import Generator, Tensor

from margin.core.types import Batch, Domain
from margin.data.arrays import BYTES, listed
from margin.data.assembly import Schema, cut, spec_of
from margin.data.examples import PARTS_OF_DATA, Arrays, Data
from margin.data.files.reading import renamed
from margin.data.formats.images.image_folder import Listing, list_images
from margin.data.formats.images.images import Header, Size, by, header_of, pixels_of
from margin.data.formats.objects.survey import MOST_BYTES, Memory, room
from margin.data.options import option_groups
from margin.data.preprocess import standardize_levels
from margin.data.splits import Split


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Examples whose pixels are read from their files when they are taken.

    Args:
        paths: The files.
        targets: Their labels, or None.
        channels: 1 or 3.
        resize: Height and width to which each is resampled, or None.
    """

    paths: tuple[Path, ...]
    targets: Int[Tensor, " n"] | None
    channels: int
    resize: Size | None

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``; nothing is drawn."""
        paths = [self.paths[i] for i in index.tolist()]
        pixels = torch.stack([self.decoded(path.read_bytes(), path) for path in paths])
        return Batch((pixels.float(),), None if self.targets is None else self.targets[index])

    def decoded(self, data: bytes, path: Path) -> UInt8[Tensor, "channel h w"]:
        """The pixels of one file."""
        return pixels_of(data, path, channels=self.channels, resize=self.resize)


@option_groups()
def read_folder(
    path: str | os.PathLike[str],
    *,
    resize: tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
    memory: Memory = "auto",
    split: Split = Split(),
) -> Data:
    """Images in class folders, ``FOLDER/<class>/<image>``, or such folders as FOLDER/train and FOLDER/test.

    Images that lie in the folder itself, or in its train and test, have no labels: models whose loss reads
    none train on them.

    Args:
        path: The folder.
        resize: Height and width of every image; needed where their sizes differ.
        channels: 1 for gray or 3 for RGB; by default 1 where the type of every file is gray.
        memory: Whether decoded images are kept in memory (where they take at most 1 GiB, always, never), or
            read when they are taken; both give the same batches.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is a folder of that name.
        val: Share of the validation part; without effect where there is a folder of that name.

    Returns:
        Images (N, C, H, W) in the domain [0, 255].

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: It holds no images, sizes differ, or a file does not decode.
    """
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1 or 3: got {channels}")
    folder = Path(path)
    found = list_images(folder)
    _check_classes(folder, found)
    headers = {file: header_of(file) for files in found.files.values() for file in files}
    size = _size(headers, resize)
    channels = channels or (1 if all(header.gray for header in headers.values()) else 3)
    parts, record = _cut(folder, found, split)
    decoded = len(headers) * channels * size[0] * size[1]
    keep = decoded <= room(memory)
    pictures = {
        part: Pictures(files, torch.tensor(labels) if labels else None, channels, resize)
        for part, (files, labels) in parts.items()
    }
    looked = {part: _look(chosen, keep=keep) for part, chosen in pictures.items()}
    train = looked["train"]
    shape = (channels, *size)
    encoding = Schema(
        format="images",
        task="classes" if found.classes else "none",
        shape=shape,
        dtype=torch.float32,
        classes=found.classes,
        split=record,
        own={"pixels": "bytes", "resize": None if resize is None else list(resize)},
    ).as_json()
    return Data(
        name=folder.name or str(folder),
        splits={part: look.examples for part, look in looked.items()},
        spec=spec_of(shape, len(train.examples), len(found.classes)),
        encoding=encoding,
        preprocess=standardize_levels(train.sums, len(train.examples) * size[0] * size[1]),
        domain=Domain(*torch.tensor(BYTES)),
        fingerprint=_fingerprint(looked, encoding),
        notes=tuple(_notes(found, headers, channels, resize, unkept=0 if keep else decoded)),
    )


def encode_images(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Arrays | Pictures:
    """New images by the record of a finished run: one file, a folder of files, or class folders.

    Where there is a folder ``test``, its images are taken; without class folders there are no targets.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: The run was not trained on images of unsigned bytes, a class is unknown, the sizes differ
            from the run's, or a file does not decode.
    """
    path = Path(source)
    if encoding.get("pixels") != "bytes":
        shape = ", ".join(str(size) for size in ("N", *encoding["shape"]))
        raise ValueError(f"{path}: the run must have been trained on images of bytes: it was on ({shape})")
    found, part = _new_images(path)
    files = found.files[part]
    channels, *size = encoding["shape"]
    resize = None if encoding.get("resize") is None else (size[0], size[1])
    for file in files if resize is None else ():
        if (got := header_of(file).size) != tuple(size):
            raise ValueError(f"{file}: the run's images are {by(size)}: got {by(got)}; resize the image")
    targets = None
    if found.classes and encoding["task"] != "none":
        known = encoding["classes"]
        if strange := [name for name in found.classes if name not in known]:
            folder = files[0].parents[1] / strange[0]
            raise ValueError(f"{folder}: every class must be one of {listed(known)}: got {strange[0]!r}")
        targets = torch.tensor([known.index(found.classes[label]) for label in found.labels[part]])
    pictures = Pictures(files, targets, channels, resize)
    return _look(pictures, keep=len(files) * channels * size[0] * size[1] <= MOST_BYTES).examples


def image_files(source: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The files of the images that :func:`encode_images` reads, in its order.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: There are no images in it, or they lie where they may not.
    """
    found, part = _new_images(Path(source))
    return found.files[part]


def _new_images(path: Path) -> tuple[Listing, str]:
    """A file or folder of new images, and the part of it that is taken."""
    found = list_images(path) if path.is_dir() else Listing({"": (path,)}, {"": ()}, (), ())
    return found, next(part for part in ("test", "val", "", "train") if part in found.files)


def _check_classes(folder: Path, found: Listing) -> None:
    if not found.classes:
        return
    train = found.labels["train" if "train" in found.labels else ""]
    if len(found.classes) < 2:
        raise ValueError(
            f"{folder}: there must be at least two class folders: got {found.classes[0]!r} alone"
        )
    absent = [name for k, name in enumerate(found.classes) if k not in set(train)]
    if absent:
        raise ValueError(f"{folder}: every class must have training images: got none of {absent[0]!r}")


def _size(headers: Mapping[Path, Header], resize: Size | None) -> Size:
    """The size of every image.

    Raises:
        ValueError: Sizes differ, or the wanted size is not positive.
    """
    if resize is not None:
        if min(resize) < 1:
            raise ValueError(f"resize must be a height and a width of at least 1: got {resize}")
        return resize
    (first, header), *rest = headers.items()
    for file, other in rest:
        if other.size != header.size:
            raise ValueError(
                f"{file}: images must have one size: got {by(other.size)}, {first} has {by(header.size)}; "
                f"set --data.resize {header.size[0]},{header.size[1]} (height,width)"
            )
    return header.size


Part = tuple[tuple[Path, ...], tuple[int, ...]]


def _cut(folder: Path, found: Listing, split: Split) -> tuple[dict[str, Part], dict[str, Any]]:
    """Files and labels of each part, and the record of the split; the folder's own parts are kept."""
    own = {part: (found.files[part], found.labels[part]) for part in ("val", "test") if part in found.files}
    files, labels = next((found.files[p], found.labels[p]) for p in ("train", "") if p in found.files)
    targets, task = (torch.tensor(labels), "classes") if labels else (files, "none")
    indices, record = cut(str(folder), targets, task, split, found.classes, own=dict.fromkeys(own))
    parts = own | {
        part: (tuple(files[i] for i in index), tuple(labels[i] for i in index if labels))
        for part, index in ((part, index.tolist()) for part, index in indices.items())
    }
    return {part: parts[part] for part in PARTS_OF_DATA if part in parts}, record


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What one pass over the files of a part shows.

    Args:
        examples: The examples, in memory or not.
        sums: For each channel the sum of its levels and of their squares.
        digest: SHA-256 over the files' bytes and labels.
    """

    examples: Arrays | Pictures
    sums: Int[Tensor, "channel 2"]
    digest: bytes


def _look(pictures: Pictures, *, keep: bool) -> Look:
    """Read and decode every file once, so that a broken one is found before the training."""
    digest, kept = hashlib.sha256(), []
    sums = torch.zeros(pictures.channels, 2, dtype=torch.int64)
    for path in pictures.paths:
        data = path.read_bytes()
        digest.update(hashlib.sha256(data).digest())
        pixels = pictures.decoded(data, path)
        levels = pixels.long().flatten(1)
        sums += torch.stack((levels.sum(1), levels.square().sum(1)), 1)
        if keep:
            kept.append(pixels)
    if pictures.targets is not None:
        digest.update(pictures.targets.numpy().tobytes())
    examples = Arrays((torch.stack(kept),), pictures.targets, dtype=torch.float32) if keep else pictures
    return Look(examples, sums, digest.digest())


def _fingerprint(looked: Mapping[str, Look], encoding: Mapping[str, Any]) -> str:
    """SHA-256 over the bytes of the files of each part, their labels, and how they are read."""
    digest = hashlib.sha256(json.dumps(encoding, sort_keys=True).encode())
    for part, look in looked.items():
        digest.update(part.encode() + look.digest)
    return digest.hexdigest()


def _notes(
    found: Listing, headers: Mapping[Path, Header], channels: int, resize: Size | None, *, unkept: int
) -> Iterator[str]:
    """What was decided; ``unkept`` is the size of decoded images that are not kept in memory."""
    gray = sum(header.gray for header in headers.values())
    how = "gray, one channel" if channels == 1 else "RGB, three channels"
    yield f"images are read as {how}: {gray} of {len(headers)} files are gray"
    if resize is not None:
        changed = sum(header.size != resize for header in headers.values())
        how = f"resized to {by(resize)} by Pillow's antialiased bilinear filter"
        yield f"{changed} of {len(headers)} images are {how}"
    yield from renamed(file.parent.name for files in found.files.values() for file in files)
    if own := [part for part in ("val", "test") if part in found.files]:
        yield f"the folder's own {' and '.join(own)} {'part is' if len(own) == 1 else 'parts are'} kept"
    if found.others:
        count = len(found.others)
        what = "1 file that is no image is" if count == 1 else f"{count} files that are no images are"
        yield f"{what} left out: the first is {found.others[0].name}"
    if unkept:
        yield f"images are read from their files when taken: decoded they take {unkept / 2**30:.3g} GiB"
