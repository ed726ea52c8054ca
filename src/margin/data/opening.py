"""Opening a source of data, whatever it is: a name, a file, a folder, arrays, a data frame, a dataset.

:func:`open_data` reads it for a training, :func:`encode` by the record of a finished run.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from margin.core.catalog import call_with, data_parameters, resolve
from margin.data.examples import Data, TargetedExamples
from margin.data.files.reading import guarded
from margin.data.forms import (
    ENCODERS,
    PREFIXES,
    READERS,
    form_of,
    is_name,
    part_of,
    prefix_of,
    without_prefix,
)


def open_data(source: Any, options: Mapping[str, Any]) -> Data:
    """The Data of a source.

    Args:
        source: A name of :func:`margin.core.catalog.sources`, a path (a file of a table, of arrays or of IDX
            images, or a folder of images by class), a path behind one of :data:`PREFIXES`, arrays ``(x, y)``,
            a DataFrame of polars or pandas, torch's Dataset or DataLoader, a graph or a list of graphs
            (objects with x and edge_index, or networkx's), or a Data, which is returned as it is.
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
    parts = source if form in ("pair", "ragged") else [without_prefix(source)]
    given = dict(zip(data_parameters(reader), parts, strict=form != "name"))
    if form == "name" or not isinstance(
        source, str | os.PathLike
    ):  # what a user's own object raises is the user's to see
        return call_with(reader, given, options, what)
    with guarded(source):
        return call_with(reader, given, options, what)


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
    return resolve(part_of(source).target if form == "name" else READERS[form])


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
    if not isinstance(source, str | os.PathLike):
        return _encode(source, encoding)
    with guarded(source):
        return _encode(source, encoding)


def _encode(source: Any, encoding: Mapping[str, Any]) -> TargetedExamples:
    if encoding["format"] in PREFIXES:
        return _encode_as(encoding["format"], source, encoding)
    if isinstance(source, Tensor) or type(source).__module__ == "numpy":
        return resolve(ENCODERS["pair"])((source, None), encoding)
    form = form_of(source)
    if form in ("data", "name"):
        return _encode_data(open_data(source, {}), encoding)
    if encoding["format"] == "tokens":
        raise ValueError(f"tokens are taken from a set by name: got a {form}")
    if form not in ENCODERS:
        raise ValueError(f"new data must be had by index: got a {form}; give its examples as arrays (x, y)")
    return resolve(ENCODERS[form])(source, encoding)


def _encode_as(form: str, source: Any, encoding: Mapping[str, Any]) -> TargetedExamples:
    """New data in the form in which the run's own were read."""
    prefix = prefix_of(source)
    if prefix and prefix != form:
        raise ValueError(f"new data must be read as the run's own were, as {form}: got {source}")
    if isinstance(source, Data) or (isinstance(source, str) and not prefix and is_name(source)):
        return _encode_data(open_data(source, {}), encoding)
    return resolve(ENCODERS[form])(without_prefix(source), encoding)


def _called(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else type(source).__name__


def _encode_data(data: Data, encoding: Mapping[str, Any]) -> TargetedExamples:
    """The test part of a Data that was read by the same record."""
    for key in ("task", "shape", "classes", "vocabulary", "source_vocabulary"):
        own, other = encoding.get(key), data.encoding.get(key)
        if own != other and "vocabulary" in key:
            raise ValueError(f"{data.name}: its {key} must be the run's: it is another")
        if own != other:
            raise ValueError(f"{data.name}: {key} must be the run's, {own}: got {other}")
    names = [[record["name"] for record in e.get("columns", ())] for e in (encoding, data.encoding)]
    if encoding["format"] == "table" and names[0] != names[1]:
        raise ValueError(f"{data.name}: the columns must be the run's, {names[0]}: got {names[1]}")
    if "test" not in data.splits:
        raise ValueError(f"{data.name}: it has no test part; the parts are {', '.join(data.splits)}")
    return data.splits["test"]
