"""What a record says of how new data are read: the schema of ``data.encoding``.

What a format records besides stands in its row (see :class:`margin.core.catalog.Format`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from margin.core.catalog import formats
from margin.core.hints import describe_type, fits


def shown(value: Any) -> str:
    """A value in a message, cut short."""
    if value is None:
        return "null"
    text = repr(value)[:60]
    return text if len(text) < 60 else f"{text[:56]} ..."


DTYPE = Literal["float16", "bfloat16", "float32", "float64", "uint8", "int32", "int64", "complex64", "bool"]
TASK = Literal[
    "classes", "values", "none", "point_classes", "pixel_classes", "tags", "spans", "tokens", "series"
]
FILLS: dict[str, Any] = {
    "number": float | None,
    "category": str | None,
    "boolean": bool | None,
    "date": float | None,
}
"""What a missing cell of a column of each kind is filled with."""


def extents(value: Any) -> str:
    """Whether a value is the shape of a tensor that this machine could address."""
    if not fits(value, list[int]) or len(value) > 16 or any(size < 0 for size in value):
        return f"must be sizes, as [1, 28, 28]: got {shown(value)}"
    most = 2**40
    return (
        "" if math.prod(value) <= most else f"must be a shape of at most {most} entries: got {shown(value)}"
    )


def positive(value: Any) -> str:
    """Whether a value is a whole number from 1 that is no size out of this world."""
    return (
        ""
        if fits(value, int) and 1 <= value < 2**40
        else f"must be a whole number from 1: got {shown(value)}"
    )


def words(value: Any) -> str:
    """Whether a value is a list of words, of which there is one at least, and each once."""
    if not fits(value, list[str]) or not value or len(set(value)) < len(value):
        return f"must be words, each once: got {shown(value)}"
    return ""


def mark(value: Any) -> str:
    """Whether a value is what stands between the cells of a line, or null."""
    plain = isinstance(value, str) and len(value) == 1 and value.isascii() and value not in '"\r\n'
    return "" if value is None or plain else f"must be one character or null: got {shown(value)}"


PLURAL = {"category": "categories", "date": "parts"}
"""What a column of several features records of them, by its kind."""


def width(record: Mapping[str, Any]) -> int:
    """The number of features of a column of a table."""
    return len(record.get(PLURAL.get(record["kind"], ""), "x")) + bool(record.get("indicator"))


def zero_one(record: Mapping[str, Any]) -> list[bool]:
    """Which features of a column are 0 or 1: those of categories, booleans and missing cells."""
    marked = [True] * bool(record.get("indicator"))
    return [record["kind"] in ("category", "boolean")] * (width(record) - len(marked)) + marked


def feature_names(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the features: ``age``, ``sex=female``, ``sold: month``, ``age is missing``, ..."""
    names: list[str] = []
    for record in records:
        own, several = record["name"], PLURAL.get(record["kind"], "")
        mark = {"categories": "=", "parts": ": "}.get(several, "")
        names += [f"{own}{mark}{each}" for each in record[several]] if several else [own]
        names += [f"{own} is missing"] * bool(record.get("indicator"))
    return names


def table_record(encoding: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of how a table was read, {} of other data."""
    return encoding if encoding.get("format") == "table" else {}


def feature_names_of(encoding: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the features of a table, by the record of how it was read; () of other data."""
    return tuple(feature_names(table_record(encoding).get("columns", ())))


def column(value: Mapping[str, Any]) -> str:
    """Whether a column of a table has what its kind needs: categories, parts, a fill value of that kind."""
    for kind, key in PLURAL.items():
        if value["kind"] == kind and (complaint := words(value.get(key))):
            return f"has {key}, which {complaint}"
    for key in ("indicator", "grouped", "folded"):
        if not isinstance(value.get(key, False), bool):
            return f"{key} must be true or false: got {shown(value[key])}"
    for key in ("unit", "form"):
        if not isinstance(value.get(key, ""), str):
            return f"{key} must be text: got {shown(value[key])}"
    if not fits(value.get("fill"), FILLS[value["kind"]]):
        return f"is filled with {describe_type(FILLS[value['kind']])}: got {shown(value['fill'])}"
    return ""


NUMBERED = {"shape": extents, "dtype": DTYPE, "classes": list[str]}
SPLIT = {"test?": float | None, "val?": float | None, "seed?": int, "official?": bool}
ENCODING: dict[str, Any] = {
    "task?": TASK,
    "kind?": str,
    "shape?": extents,
    "dtype?": DTYPE,
    "classes?": list[str | int | float | bool],
    "split?": SPLIT,
    "pixels?": Literal["bytes"],
    "wide?": bool,
    "group?": dict[str, Any],
    "about?": list[list[str]],
    "options?": dict[str, Any],
}
"""What new data are read by, whatever they are; data made by hand need have none of it."""

RULES: dict[str, Any] = {
    "column": column,
    "dtype": DTYPE,
    "extents": extents,
    "mark": mark,
    "positive": positive,
    "words": words,
}
"""What a format's record may name."""


def ruled(record: Any) -> Any:
    """What a format records, its words replaced by the rules that they name."""
    if isinstance(record, Mapping):
        return {key: ruled(inner) for key, inner in record.items()}
    if isinstance(record, list):
        return [ruled(inner) for inner in record]
    return RULES[record] if isinstance(record, str) else record


def schemas_of(encoding: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas that an encoding is checked by, one after the other."""
    yield ENCODING
    if "format" in encoding:
        known = {name: row for name, row in formats().items() if row.record is not None}
        yield {"format": Literal[tuple(known)], "task": TASK, "kind?": str}
        row = known[encoding["format"]]
        yield {**(NUMBERED if row.numbers else {}), **ruled(row.record)}
        yield ruled(row.also.get(encoding["task"], row.also.get("", {})))


def disagreement(encoding: Mapping[str, Any], spec: Mapping[str, Any], scale: Any) -> tuple[str, str]:
    """The first key of an encoding that the model's spec, its preprocessing or another key contradict.

    Args:
        encoding: Checked by its schemas.
        spec: Of the recipe.
        scale: The shape of the preprocessing, or None.

    Returns:
        The key and what is wrong with it; twice "" where all agree.
    """
    for key, held, wanted in _pairs(encoding, spec):
        if held != wanted:
            return key, f"must be the model's {shown(wanted)}: got {shown(held)}"
    shape = encoding.get("shape")
    if (
        scale
        and shape
        and not all(a in (1, b) or b == 0 for a, b in zip(scale[::-1], shape[::-1], strict=False))
    ):
        return "shape", f"must be scaled by {shown(scale)}: got {shown(shape)}"
    return "", ""


def _pairs(encoding: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Each key of which the length or size is known twice: as it stands, and as it must be."""
    form, shape = encoding.get("format", ""), encoding.get("shape", [])
    lengths = {"classes": "num_classes", "vocabulary": "vocab_size", "source_vocabulary": "source_vocab_size"}
    for key, name in lengths.items():
        if encoding.get(key) and fits(spec.get(name), int):
            yield key, len(encoding[key]), spec[name]
    if form == "table":
        columns = encoding["columns"]
        yield "columns", sum(map(width, columns)), math.prod(shape)
    if form == "series":
        yield "shape", shape[1:], [len(encoding["columns"])]
        known = [name for name in encoding["targets"] if name in encoding["columns"]]
        yield "targets", encoding["targets"], known
        for key, value in {"horizon": encoding["horizon"], "num_targets": len(known)}.items():
            yield ("targets" if key != "horizon" else key), value, spec.get(key, value)
    if form in ("graph", "graphs", "points"):
        yield "shape", len(shape), 2
    if "edge_features" in encoding:
        yield "edge_features", encoding["edge_features"], spec.get("edge_features", encoding["edge_features"])
    if "pixels" in encoding:
        yield "shape", len(shape), 3
    for name, size in _sizes(form, shape).items():
        if name in spec and fits(spec[name], int):
            yield "shape", size, spec[name]


def _sizes(form: str, shape: list[int]) -> dict[str, int]:
    """What a spec says of the shape of an example."""
    sizes = {"in_features": math.prod(shape)} if form in ("table", "arrays", "images") else {}
    if len(shape) == 3 and form in ("arrays", "images"):
        sizes["channels"] = shape[0]
    if form in ("graph", "graphs"):
        sizes["node_features"] = shape[-1]
    if form in ("series", "sequences"):
        sizes["input_size"] = shape[-1]
    return sizes
