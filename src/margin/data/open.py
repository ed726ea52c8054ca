"""Opening a source of data, whatever it is: a name, a file, a folder, arrays, a data frame, a dataset.

:func:`open_data` reads it for a training, :func:`encode` by the record of a finished run.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from margin.core.catalog import call_with, data_parameters, formats, resolve
from margin.data.examples import Data, TargetedExamples
from margin.data.files.reading import guarded
from margin.data.source import Source

NO_MATTER = ("memory", "readers")
"""Options of a reader by which the examples are the same: no record needs them."""


def open_data(source: Any, options: Mapping[str, Any]) -> Data:
    """The Data of a source.

    Args:
        source: A name of :func:`margin.core.catalog.sources`, a path (a file of a table, of arrays or of IDX
            images, or a folder of images by class), a path behind the name of a format, arrays ``(x, y)``,
            a DataFrame of polars or pandas, torch's Dataset or DataLoader, a graph or a list of graphs
            (objects with x and edge_index, or networkx's), or a Data, which is returned as it is; or a
            :class:`Source` of one of these.
        options: The keyword-only parameters of what reads it (see :attr:`Source.reader`).

    Returns:
        Data in the user's units.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: An option does not exist, the name is unknown, or the data are wrong.
    """
    source = Source.of(source)
    if source.form == "data":
        if options:
            raise ValueError(f"data that are already read take no options: got {', '.join(options)}")
        return source.given
    reader, named = source.reader, source.form == "name"
    what = f"data set {source.given!r}" if named else f"the reader of {source.called}"
    names = data_parameters(reader)
    parts = source.given if len(names) == 2 else [source.bare]
    given = dict(zip(names, parts, strict=not named))
    if named or not source.is_path:  # what a user's own object raises is the user's to see
        data = call_with(reader, given, options, what)
        read = {name: value for name, value in options.items() if name not in NO_MATTER}
        plain = not named and read and all(map(_is_json, read.values()))
        return replace(data, encoding={**data.encoding, "options": read}) if plain else data
    with guarded(source.given):
        return call_with(reader, given, options, what)


def _is_json(value: Any) -> bool:
    """Whether a record can hold an option as it is."""
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float)


def reader_of(source: Any) -> Callable[..., Data]:
    """The function that reads a source (see :attr:`Source.reader`)."""
    return Source.of(source).reader


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
    source = Source.of(source)
    if not source.is_path:
        return _encode(source, encoding)
    with guarded(source.given):
        return _encode(source, encoding)


def _encode(source: Source, encoding: Mapping[str, Any]) -> TargetedExamples:
    if "format" not in encoding and not isinstance(source.given, Data):
        raise ValueError(
            "the run was trained on a Data made by hand, of which no record says how new data are read: "
            "give it a Data, or call the module of margin.load(RUN)"
        )
    own = formats().get(encoding.get("format", ""))
    if own is not None and own.prefix:
        return _encode_as(own.name, source, encoding)
    if isinstance(source.given, Tensor) or type(source.given).__module__ == "numpy":
        return resolve(formats()["pair"].encoder)((source.given, None), encoding)
    if source.form in ("data", "name"):
        return _encode_data(open_data(source, {}), encoding)
    if encoding.get("format") == "tokens":
        raise ValueError(f"tokens are taken from a set by name: got a {source.form}")
    if source.format is None or not source.format.encoder:
        raise ValueError(
            f"new data must be had by index: got a {source.form}; give its examples as arrays (x, y)"
        )
    return resolve(source.format.encoder)(source.given, encoding)


def _encode_as(form: str, source: Source, encoding: Mapping[str, Any]) -> TargetedExamples:
    """New data in the format in which the run's own were read."""
    if source.prefix and source.prefix != form:
        raise ValueError(f"new data must be read as the run's own were, as {form}: got {source.given}")
    named = isinstance(source.given, str) and not source.prefix and source.is_name
    if isinstance(source.given, Data) or named:
        return _encode_data(open_data(source, {}), encoding)
    return resolve(formats()[form].encoder)(source.bare, encoding)


def _encode_data(data: Data, encoding: Mapping[str, Any]) -> TargetedExamples:
    """The test part of a Data that was read by the same record."""
    for key in ("task", "shape", "classes", "vocabulary", "source_vocabulary"):
        own, other = encoding.get(key), data.encoding.get(key)
        if own != other and "vocabulary" in key:
            raise ValueError(f"{data.name}: its {key} must be the run's: it is another")
        if own != other:
            raise ValueError(f"{data.name}: {key} must be the run's, {own}: got {other}")
    names = [[record["name"] for record in e.get("columns", ())] for e in (encoding, data.encoding)]
    if encoding.get("format") == "table" and names[0] != names[1]:
        raise ValueError(f"{data.name}: the columns must be the run's, {names[0]}: got {names[1]}")
    if "test" not in data.splits:
        raise ValueError(f"{data.name}: it has no test part; the parts are {', '.join(data.splits)}")
    return data.splits["test"]
