"""Opening a source of data, whatever it is: a name, a file, a folder, arrays, a data frame, a dataset.

:func:`open_data` reads it for a training, :func:`encode` by the record of a finished run.
"""

import gzip
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from margin.catalog import Part, UnknownName, dictated, nearest, resolve, sources, supply
from margin.data.examples import Data, TargetedExamples

Form = Literal[
    "data", "name", "table", "arrays", "idx", "folder", "image", "pair", "frame", "dataset", "stream"
]

READERS: dict[str, str] = {
    "table": "margin.data.tables:read_table",
    "arrays": "margin.data.arrays:read_arrays",
    "idx": "margin.data.idx:read_images",
    "folder": "margin.data.folders:read_folder",
    "pair": "margin.data.arrays:from_arrays",
    "frame": "margin.data.tables:read_frame",
    "dataset": "margin.data.datasets:read_dataset",
    "stream": "margin.data.streams:read_stream",
}
"""What reads each form of source: positional parameters are the source, keyword-only ones its options."""

ENCODERS: dict[str, str] = {
    "table": "margin.data.rows:encode_file",
    "frame": "margin.data.rows:encode_frame",
    "arrays": "margin.data.recorded:encode_file",
    "pair": "margin.data.recorded:encode_pair",
    "idx": "margin.data.recorded:encode_idx",
    "folder": "margin.data.folders:encode_images",
    "image": "margin.data.folders:encode_images",
    "dataset": "margin.data.datasets:encode_dataset",
}
"""What reads new data of each form by a run's record: ``(source, encoding) -> the examples``."""

ENDINGS: dict[str, Form] = {
    ".csv": "table",
    ".tsv": "table",
    ".tab": "table",
    ".txt": "table",
    ".data": "table",
    ".parquet": "table",
    ".pq": "table",
    ".npz": "arrays",
    ".npy": "arrays",
    ".idx": "idx",
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif"), "image"),
    **dict.fromkeys((".tif", ".tiff", ".webp", ".ppm", ".pgm"), "image"),
}


def open_data(source: Any, options: Mapping[str, Any]) -> Data:
    """The Data of a source.

    Args:
        source: A name of :func:`margin.catalog.sources`, a path (a file of a table, of arrays or of IDX
            images, or a folder of images by class), arrays ``(x, y)``, a DataFrame of polars or pandas,
            torch's Dataset or DataLoader, or a Data, which is returned as it is.
        options: The keyword-only parameters of what reads it (see :func:`reader_of`).

    Returns:
        Data in the user's units.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: An option does not exist, the name is unknown, or the data are wrong.
    """
    form = form_of(source)
    if form == "data":
        if options:
            raise ValueError(f"data that are already read take no options: got {', '.join(options)}")
        return source
    reader = reader_of(source)
    what = f"data set {source!r}" if form == "name" else f"the reader of {_called(source)}"
    parts = source if form == "pair" else [source]
    given = dict(zip(dictated(reader), parts, strict=form != "name"))
    return supply(reader, given, options, what)


def reader_of(source: Any) -> Callable[..., Data]:
    """The function that reads a source; its keyword-only parameters are the source's options.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The name is unknown, or nothing reads such a source.
    """
    form = form_of(source)
    if form == "data":
        raise ValueError("data that are already read have no reader")
    if form == "image":
        raise ValueError(f"{source}: training needs a folder with class folders of images: got one image")
    return resolve(_part(source).target if form == "name" else READERS[form])


def form_of(source: Any) -> Form:
    """What a source is; a file is known by its ending, else by its first bytes.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The name is unknown, or nothing reads such a source.
    """
    if isinstance(source, Data):
        return "data"
    if isinstance(source, str | os.PathLike):
        return "name" if _is_name(source) else _form_of_path(Path(source))
    if isinstance(source, tuple | list) and len(source) == 2:
        return "pair"
    if is_frame(source):
        return "frame"
    if isinstance(source, Dataset | DataLoader):
        items = source.dataset if isinstance(source, DataLoader) else source
        return "stream" if isinstance(items, IterableDataset) else "dataset"
    raise ValueError(
        "data must be a name, a path, arrays (x, y), a DataFrame, a torch Dataset or DataLoader, or a Data: "
        f"got {type(source).__name__}"
    )


def is_frame(source: Any) -> bool:
    """Whether an object is a polars or pandas DataFrame; loads neither library."""
    library = type(source).__module__.partition(".")[0]
    return library in ("polars", "pandas") and type(source).__name__ == "DataFrame"


def encode(source: Any, encoding: Mapping[str, Any]) -> TargetedExamples:
    """New data by the recorded encoding of a finished run.

    A file of a table is read by column names; its targets may be absent, and other columns are not
    looked at. Arrays are ``x`` alone or ``(x, y)``. Images are one file, or a folder with or without class
    folders. Of a name, of a Data, and of a source with an
    official test part, the test part is taken.

    Args:
        source: As for :func:`open_data`, or inputs alone.
        encoding: The run's record.

    Returns:
        The examples in the user's units; targets are None where there are none.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The data do not fit the record: a column is missing, a category or class is unknown,
            the shape differs.
    """
    if isinstance(source, Tensor) or type(source).__module__ == "numpy":
        return resolve(ENCODERS["pair"])((source, None), encoding)
    form = form_of(source)
    if form in ("data", "name"):
        return _encode_data(open_data(source, {}), encoding)
    if form not in ENCODERS:
        raise ValueError(f"new data must be had by index: got a {form}; give its examples as arrays (x, y)")
    return resolve(ENCODERS[form])(source, encoding)


def _is_name(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a name rather than a path; a name that is neither is refused."""
    path = Path(source)
    if source in sources():
        return True
    if not path.exists() and any(part.name == source for part in sources().values()):
        return True
    if path.exists():
        return False
    if not isinstance(source, str) or path.name != source or _ending(path):
        raise FileNotFoundError(f"no such file: {source}")
    near = ", ".join(nearest(source, sources())) or ", ".join(sources())
    raise UnknownName(f"unknown data set {source!r}, and no file is called so; nearest: {near}")


def _part(source: str) -> Part:
    return sources().get(source) or next(part for part in sources().values() if part.name == source)


def _ending(path: Path) -> str:
    """The ending that says what is in a file, ``.gz`` apart."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _form_of_path(path: Path) -> Form:
    if path.is_dir():
        return "idx" if any(path.glob("*ubyte*")) else "folder"
    if "ubyte" in path.name:
        return "idx"
    if form := ENDINGS.get(_ending(path)):
        return form
    start = _start(path)
    if start[:2] == b"\0\0" and len(start) > 3:
        return "idx"
    if b"\0" not in start and not start.startswith(b"PK"):
        return "table"
    raise ValueError(f"{path}: no reader for such a file; known endings: {', '.join(ENDINGS)}, each with .gz")


def _start(path: Path) -> bytes:
    if path.suffix != ".gz":
        with path.open("rb") as file:
            return file.read(1024)
    try:
        with gzip.open(path) as packed:
            return packed.read(1024)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a whole gzip file: {error}") from None


def _called(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else type(source).__name__


def _encode_data(data: Data, encoding: Mapping[str, Any]) -> TargetedExamples:
    """The test part of a Data that was read by the same record."""
    for key in ("task", "shape", "classes"):
        if data.encoding.get(key) != encoding[key]:
            raise ValueError(
                f"{data.name}: {key} must be the run's, {encoding[key]}: got {data.encoding.get(key)}"
            )
    names = [[record["name"] for record in e.get("columns", ())] for e in (encoding, data.encoding)]
    if encoding["format"] == "table" and names[0] != names[1]:
        raise ValueError(f"{data.name}: the columns must be the run's, {names[0]}: got {names[1]}")
    if "test" not in data.splits:
        raise ValueError(f"{data.name}: it has no test part; the parts are {', '.join(data.splits)}")
    return data.splits["test"]
