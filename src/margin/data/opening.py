"""Opening a source of data, whatever it is: a name, a path, arrays, a data frame.

:func:`open_data` reads it for a training, :func:`encode` by the record of a finished run.
"""

import gzip
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from margin.catalog import Part, UnknownName, nearest, resolve, sources, supply
from margin.data.examples import Arrays, Data

Form = Literal["data", "name", "table", "arrays", "idx", "pair", "frame"]

READERS: dict[str, str] = {
    "table": "margin.data.tables:read_table",
    "arrays": "margin.data.arrays:read_arrays",
    "idx": "margin.data.idx:read_images",
    "pair": "margin.data.arrays:from_arrays",
    "frame": "margin.data.tables:read_frame",
}
"""What reads each form of source: positional parameters are the source, keyword-only ones its options."""

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
}


def open_data(source: Any, options: Mapping[str, Any]) -> Data:
    """The Data of a source.

    Args:
        source: A name of :func:`margin.catalog.sources`, a path, arrays ``(x, y)``, a DataFrame of polars
            or pandas, or a Data, which is returned as it is.
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
    given = {"path": source, "frame": source}
    if form == "pair":
        given = dict(zip(("x", "y"), source, strict=True))
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
    # By the type's name: asking isinstance would load both libraries.
    if type(source).__name__ == "DataFrame" and type(source).__module__.startswith(("polars", "pandas")):
        return "frame"
    raise ValueError(
        f"data must be a name, a path, arrays (x, y), a DataFrame or a Data: got {type(source).__name__}"
    )


def encode(source: Any, encoding: Mapping[str, Any]) -> Arrays:
    """New data by the recorded encoding of a finished run.

    A file of a table is read by column names; its targets may be absent, and other columns are not
    looked at. Arrays are ``x`` alone or ``(x, y)``. Of a name, of a Data, and of a source with an
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
        return _encode_arrays("arrays", source, None, encoding)
    form = form_of(source)
    if form in ("data", "name"):
        return _encode_data(open_data(source, {}), encoding)
    if form == "pair":
        return _encode_arrays("arrays", source[0], source[1], encoding)
    if form == "table" or form == "frame":
        return _encode_table(source, form, encoding)
    return _encode_file(Path(source), form, encoding)


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
    if path.is_dir() or "ubyte" in path.name:
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


def _encode_table(source: Any, form: Form, encoding: Mapping[str, Any]) -> Arrays:
    from margin.data.delimited import load_table
    from margin.data.frames import to_table
    from margin.data.tables import encode_table

    if encoding["format"] != "table":
        shape = ", ".join(str(size) for size in ("N", *encoding["shape"]))
        raise ValueError(f"{_called(source)}: the run was trained on arrays ({shape}): got a table")
    if form == "frame":
        return encode_table(to_table(source, "table"), encoding)
    return encode_table(load_table(Path(source), encoding["header"]), encoding)


def _encode_file(path: Path, form: Form, encoding: Mapping[str, Any]) -> Arrays:
    """A file of arrays or IDX images; where there is an official test part, that part."""
    from margin.data.arrays import load_arrays
    from margin.data.idx import labels_beside, read_idx, read_pairs

    if form == "arrays":
        found = load_arrays(path)
        part = "_test" if "x_test" in found else ""
        return _encode_arrays(str(path), found[f"x{part}"], found.get(f"y{part}"), encoding)
    if path.is_dir() or labels_beside(path).is_file():
        pairs = read_pairs(path)
        return _encode_arrays(str(path), *pairs.get("test", pairs["train"]), encoding)
    return _encode_arrays(str(path), read_idx(path), None, encoding)


def _encode_arrays(name: str, x: Any, y: Any, encoding: Mapping[str, Any]) -> Arrays:
    from margin.data.arrays import fit_shape, inputs_of, known_targets

    dtype = getattr(torch, encoding["dtype"])
    inputs = fit_shape(inputs_of(x, name), encoding["shape"], name).to(dtype)
    if y is None:
        return Arrays((inputs,))
    targets = known_targets(y, len(inputs), name, encoding["task"], encoding["classes"])
    return Arrays((inputs,), targets.to(dtype) if encoding["task"] == "values" else targets)


def _encode_data(data: Data, encoding: Mapping[str, Any]) -> Arrays:
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
    test = data.splits["test"]
    dtype = getattr(torch, encoding["dtype"])
    targets = test.targets.to(dtype) if encoding["task"] == "values" else test.targets
    return Arrays((test.inputs[0].to(dtype),), targets)
