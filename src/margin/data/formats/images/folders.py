"""Folders of image files: a folder a class, ``FOLDER/<class>/<image>``, or images alone, without labels.

With ``FOLDER/train/<class>/<image>`` (or ``FOLDER/train/<image>``) and ``FOLDER/test/...`` or
``FOLDER/val/...`` beside it, the parts are the folder's own and are kept. Hidden files and ``Thumbs.db`` are
not looked at; other files that are no images are left out and counted in a note.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Int, UInt8
from torch import Generator, Tensor

from margin.core.types import Batch, Domain
from margin.data.arrays import BYTES, listed
from margin.data.assembly import Schema, cut, spec_of
from margin.data.examples import PARTS_OF_DATA, Arrays, Data, evaluated_at_once
from margin.data.files.reading import renamed
from margin.data.formats.images.image_folder import Listing, list_images
from margin.data.formats.images.images import (
    DEEPEST,
    ODDITIES,
    Fit,
    Header,
    Size,
    by,
    depth_of,
    header_of,
    in_depth,
    pixels_of,
    quiet,
)
from margin.data.formats.objects.survey import MOST_BYTES, Memory, room
from margin.data.options import option_groups
from margin.data.preprocess import standardize_levels
from margin.data.splits import Split

READERS = 2
"""Threads that decode images: Pillow lets go of Python's lock while it does."""

Given = TypeVar("Given")
Found = TypeVar("Found")


def in_threads(function: Callable[[Given], Found], items: Iterable[Given], readers: int) -> Iterator[Found]:
    """What a function makes of each item, in order; by as many threads, or in this one where they are 0."""
    if readers == 0:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(readers) as pool:
        yield from pool.map(function, items)


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Examples whose pixels are read from their files when they are taken.

    Args:
        paths: The files.
        targets: Their labels, or None.
        channels: 1 or 3.
        fit: How they become of one size.
        size: That height and width.
        readers: Threads that decode the images of a batch; where there are any, batches are made ahead.
    """

    paths: tuple[Path, ...]
    targets: Int[Tensor, " n"] | None
    channels: int
    fit: Fit
    size: Size
    readers: int = READERS

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        return evaluated_at_once(self.channels * self.size[0] * self.size[1])

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``; nothing is drawn."""
        paths = [self.paths[i] for i in index.tolist()]
        pixels = torch.stack(list(in_threads(self.read, paths, self.readers)))
        return Batch((pixels.float(),), None if self.targets is None else self.targets[index])

    def read(self, path: Path) -> UInt8[Tensor, "channel h w"]:
        """The pixels of one file."""
        return pixels_of(path.read_bytes(), path, channels=self.channels, fit=self.fit)


# more than 7 parameters and 40 lines: each is a choice about files, and every part of the data is made here
@option_groups()
def read_folder(
    path: str | os.PathLike[str],
    *,
    resize: int | tuple[int, int] | None = None,
    crop: tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
    depth: int | None = None,
    memory: Memory = "auto",
    skip_unreadable: bool = False,
    readers: int = READERS,
    split: Split = Split(),
) -> Data:
    """Images in class folders, ``FOLDER/<class>/<image>``, or such folders as FOLDER/train and FOLDER/test.

    Images that lie in the folder itself, or in its train and test, have no labels: models whose loss reads
    none train on them.

    Args:
        path: The folder.
        resize: Height and width of every image, or the length of its shorter side, which keeps its
            proportions; needed where their sizes differ.
        crop: Height and width of the middle that is kept of every image after it is resized.
        channels: 1 for gray or 3 for RGB; by default 1 where the type of every file is gray.
        depth: Bits of a level in gray files of 16 bits, 8 to 16; by default what the largest level of all
            needs, so that images of 12 bits are not nearly black.
        memory: Whether decoded images are kept in memory (where they take at most 1 GiB, always, never), or
            read when they are taken; both give the same batches.
        skip_unreadable: Whether files that do not decode are left out and counted, in place of an error.
        readers: Threads that decode images, and read batches ahead of the training where they are not kept
            in memory; 0 decodes in the training's own. Any number gives the same batches.
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
    if readers < 0:
        raise ValueError(f"readers must be at least 0: got {readers}")
    folder, fit = Path(path), Fit(resize, crop, DEEPEST if depth is None else depth)
    found = list_images(folder)
    _check_classes(folder, found)
    files = [file for part in found.files.values() for file in part]
    headers, broken = _readable(header_of, files, 0, skip_unreadable)
    size = _size(headers, fit)
    if depth is None:
        fit = replace(fit, depth=deepest(headers))
    channels = channels or (1 if all(header.gray for header in headers.values()) else 3)
    decoded = len(headers) * channels * size[0] * size[1]
    keep = decoded <= room(memory)
    looks, torn = _readable(_looking(channels, fit, keep=keep), headers, readers, skip_unreadable)
    found = found.without(broken := broken | torn)
    _check_classes(folder, found)
    parts, record = _cut(folder, found, split)
    shape = (channels, *size)
    encoding = Schema(
        format="images",
        task="classes" if found.classes else "none",
        shape=shape,
        dtype=torch.float32,
        classes=found.classes,
        split=record,
        own={"pixels": "bytes", **_record_of(fit)},
    ).as_json()
    train = parts["train"][0]
    sums = torch.tensor([looks[file].sums for file in train]).sum(0)
    digests = {part: _digest(files, labels, looks) for part, (files, labels) in parts.items()}
    splits: dict[str, Arrays | Pictures] = {}
    for part, (chosen, labels) in parts.items():
        pictures = Pictures(chosen, torch.tensor(labels) if labels else None, channels, fit, size, readers)
        splits[part] = _kept(pictures, looks) if keep else pictures
    return Data(
        name=folder.name or str(folder),
        splits=splits,
        spec=spec_of(shape, len(train), len(found.classes)),
        encoding=encoding,
        preprocess=standardize_levels(sums, len(train) * size[0] * size[1]),
        domain=Domain(*torch.tensor(BYTES)),
        fingerprint=_fingerprint(digests, encoding),
        notes=(
            *_notes(found, {file: headers[file] for file in looks}, channels, fit),
            *_left_out(found, broken, 0 if keep else decoded),
        ),
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
    fit = _fit_of(encoding)
    for file in files if not isinstance(fit.resize, tuple) else ():
        if (got := fit.size_of(header_of(file).size, file)) != tuple(size):
            raise ValueError(f"{file}: the run's images are {by(size)}: got {by(got)}; resize the image")
    targets = None
    if found.classes and encoding["task"] != "none":
        known = encoding["classes"]
        if strange := [name for name in found.classes if name not in known]:
            folder = files[0].parents[1] / strange[0]
            raise ValueError(f"{folder}: every class must be one of {listed(known)}: got {strange[0]!r}")
        targets = torch.tensor([known.index(found.classes[label]) for label in found.labels[part]])
    pictures = Pictures(files, targets, channels, fit, (size[0], size[1]))
    keep = len(files) * channels * size[0] * size[1] <= MOST_BYTES
    looks, _ = _readable(_looking(channels, fit, keep=keep), files, READERS)
    return _kept(pictures, looks) if keep else pictures


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
            f"{folder}: there must be at least two class folders: got {found.classes[0]!r} alone; images "
            "without labels lie in the folder itself"
        )
    absent = [name for k, name in enumerate(found.classes) if k not in set(train)]
    if absent:
        raise ValueError(f"{folder}: every class must have training images: got none of {absent[0]!r}")


def _size(headers: Mapping[Path, Header], fit: Fit) -> Size:
    """The size of every image.

    Raises:
        ValueError: Sizes differ.
    """
    (first, size), *rest = ((file, fit.size_of(header.size, file)) for file, header in headers.items())
    for file, other in rest:
        if other != size:
            short = fit.resize if isinstance(fit.resize, int) else min(size)
            raise ValueError(
                f"{file}: images must have one size: got {by(other)}, {first} has {by(size)}; "
                f"set --data.resize {size[0]},{size[1]} (height,width), or --data.resize {short} "
                f"--data.crop {short},{short} (shorter side, then the middle)"
            )
    return size


def _record_of(fit: Fit) -> dict[str, Any]:
    """What a record says of the sizes; a crop only where there is one, as of earlier runs."""
    resize = [fit.resize] if isinstance(fit.resize, int) else fit.resize and list(fit.resize)
    depth = {"depth": fit.depth} if fit.depth < DEEPEST else {}
    return {"resize": resize, **({"crop": list(fit.crop)} if fit.crop else {}), **depth}


def deepest(headers: Mapping[Path, Header]) -> int:
    """The bits that the largest level of all gray pictures of 16 bits needs; 16 where there are none."""
    bits = []
    for file in (file for file, header in headers.items() if header.gray and "deep" in header.odd):
        try:
            bits.append(depth_of(file))
        except ValueError:
            continue  # it is decoded again, and then refused or left out
    return max(bits, default=0) or DEEPEST


def _fit_of(encoding: Mapping[str, Any]) -> Fit:
    resize, crop = encoding.get("resize"), encoding.get("crop")
    if resize is not None:
        resize = resize[0] if len(resize) == 1 else (resize[0], resize[1])
    return Fit(resize, None if crop is None else (crop[0], crop[1]), encoding.get("depth", DEEPEST))


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


class Look(NamedTuple):
    """What one look at a file shows.

    Args:
        digest: SHA-256 of its bytes.
        sums: For each channel the sum of its levels and of their squares.
        pixels: Its pixels, where they are kept.
    """

    digest: bytes
    sums: list[list[int]]
    pixels: UInt8[Tensor, "channel h w"] | None


def _looking(channels: int, fit: Fit, *, keep: bool) -> Callable[[Path], Look]:
    """What reads and decodes a file, so that a broken one is found before the training."""

    def look(path: Path) -> Look:
        data = path.read_bytes()
        pixels = pixels_of(data, path, channels=channels, fit=fit)
        levels = pixels.long().flatten(1)
        # numbers of Python: small tensors that stay, between large ones that go, tear the memory of threads
        sums = torch.stack((levels.sum(1), levels.square().sum(1)), 1).tolist()
        return Look(hashlib.sha256(data).digest(), sums, pixels if keep else None)

    return look


def _readable(
    function: Callable[[Path], Found], files: Iterable[Path], readers: int, skip: bool | None = None
) -> tuple[dict[Path, Found], dict[Path, str]]:
    """What a function finds of each file, and why it finds nothing of the others, where these are skipped.

    Args:
        function: Given a file.
        files: All of them.
        readers: Threads.
        skip: Whether a file that cannot be read is skipped; None where there is no such choice.

    Raises:
        ValueError: A file cannot be read and is not skipped.
    """

    def attempt(file: Path) -> Found | ValueError:
        try:
            return function(file)
        except ValueError as error:
            return error

    found, broken, files = dict[Path, Found](), dict[Path, str](), list(files)
    with quiet():
        for file, one in zip(files, in_threads(attempt, files, readers), strict=True):
            if not isinstance(one, ValueError):
                found[file] = one
            elif skip:
                broken[file] = str(one)
            elif skip is None:
                raise one
            else:
                raise ValueError(f"{one}; --data.skip-unreadable true leaves out every such file")
    if files and not found:
        where = os.path.commonpath([file.parent for file in files])
        raise ValueError(
            f"{where}: a folder must hold an image that can be read: "
            f"got {len(files)} files that cannot be read"
        )
    return found, broken


def _kept(pictures: Pictures, looks: Mapping[Path, Look]) -> Arrays:
    """The examples in memory."""
    pixels = [pixels for path in pictures.paths if (pixels := looks[path].pixels) is not None]
    return Arrays((torch.stack(pixels),), pictures.targets, dtype=torch.float32)


def _digest(files: Sequence[Path], labels: Sequence[int], looks: Mapping[Path, Look]) -> bytes:
    """SHA-256 over the bytes of the files of a part and their labels."""
    digest = hashlib.sha256(b"".join(looks[file].digest for file in files))
    if labels:
        digest.update(torch.tensor(labels).numpy().tobytes())
    return digest.digest()


def _fingerprint(digests: Mapping[str, bytes], encoding: Mapping[str, Any]) -> str:
    """SHA-256 over the bytes of the files of each part, their labels, and how they are read."""
    digest = hashlib.sha256(json.dumps(encoding, sort_keys=True).encode())
    for part, own in digests.items():
        digest.update(part.encode() + own)
    return digest.hexdigest()


def _notes(found: Listing, headers: Mapping[Path, Header], channels: int, fit: Fit) -> Iterator[str]:
    """How the images are read."""
    gray = sum(header.gray for header in headers.values())
    how = "gray, one channel" if channels == 1 else "RGB, three channels"
    yield f"images are read as {how}: {gray} of {len(headers)} files are gray"
    for kind, said in ODDITIES.items():
        count = sum(kind in header.odd for header in headers.values())
        if count and kind == "deep" and fit.depth < DEEPEST:
            yield f"{count} of {len(headers)} images {in_depth(fit.depth, one=count == 1)}"
        elif count:
            yield f"{count} of {len(headers)} images {'is' if count == 1 else 'are'} {said}"
    if words := fit.words():
        changed = sum(fit.size_of(header.size, file) != header.size for file, header in headers.items())
        yield f"{changed} of {len(headers)} images are {words}"
    yield from renamed(file.parent.name for files in found.files.values() for file in files)
    if own := [part for part in ("val", "test") if part in found.files]:
        yield f"the folder's own {' and '.join(own)} {'part is' if len(own) == 1 else 'parts are'} kept"


def _left_out(found: Listing, broken: Mapping[Path, str], unkept: int) -> Iterator[str]:
    """What is not read; ``unkept`` is the size of decoded images that are not kept in memory."""
    if found.others:
        count = len(found.others)
        what = "1 file that is no image is" if count == 1 else f"{count} files that are no images are"
        yield f"{what} left out: the first is {found.others[0].name}"
    if broken:
        are, first = "file is" if len(broken) == 1 else "files are", next(iter(broken.values()))
        yield f"{len(broken)} unreadable {are} left out; the first: {first}"
    if unkept:
        yield f"images are read from their files when taken: decoded they take {unkept / 2**30:.3g} GiB"
