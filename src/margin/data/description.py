"""What was understood of a source, as JSON and as lines of plain text.

It is what ``margin data show`` prints before anything is trained.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import torch
from torch import Tensor

from margin.core.types import shortest
from margin.data.examples import Arrays, Data, InOrder
from margin.data.formats.encodings import width

TARGETS = {
    "tokens": "a token at every place",
    "point_classes": "a class for every point",
    "pixel_classes": "a class for every pixel",
    "tags": "a class for every word",
    "spans": "the first and last token of an answer",
    "series": "the values to come",
}
"""What targets are that are no single number an example."""

_MOST = 12
_BATCH = 256


def describe(data: Data) -> dict[str, Any]:
    """A Data as JSON: parts and their sizes, shape, columns, classes with counts, domain, notes.

    Args:
        data: What a source gave.

    Returns:
        ``name``, ``task``, ``parts`` (examples), ``shape`` (of one input), ``range`` (least and largest
        input), ``columns`` (tables: name, kind, range or counts, missing cells), ``target``, ``classes``
        (name -> part -> count), ``values`` (range, mean and deviation of each part's targets), ``domain``,
        ``spec``, ``split``, ``truth`` (synthetic sets), ``fingerprint``, ``notes``; of sequences, sets and
        graphs their ``kind`` and what is ``about`` them, label and text, in place of ``range``.
    """
    encoding = data.encoding
    result: dict[str, Any] = {
        "name": data.name,
        "task": encoding["task"],
        "parts": {name: len(part) for name, part in data.splits.items()},
        "shape": list(encoding["shape"]),
        "range": _range_of(data),
        "domain": None,
        "spec": {key: list(value) if isinstance(value, tuple) else value for key, value in data.spec.items()},
        "split": dict(encoding["split"]),
        "fingerprint": data.fingerprint,
        "notes": list(data.notes),
    }
    if data.domain is not None:
        result["domain"] = [data.domain.low.min().item(), data.domain.high.max().item()]
    result |= _targets(data)
    if "group" in encoding:
        result["group"] = dict(encoding["group"])
    if encoding["format"] == "table":
        if "target" in encoding:
            result["target"] = encoding["target"]["name"]
        inputs = torch.cat([part.inputs[0] for part in data.splits.values()])
        result["columns"] = _columns(inputs, encoding["columns"])
        result["ignored"] = list(encoding.get("ignored", ()))
    result |= {key: encoding[key] for key in ("kind", "about", "truth") if key in encoding}
    return result


def _range_of(data: Data) -> list[float] | None:
    """The least and largest input; None where the source describes its inputs itself."""
    if "about" in data.encoding:
        return None
    spans = [_span_of(part) for part in data.splits.values()]
    return [min(low for low, _ in spans), max(high for _, high in spans)]


def _targets(data: Data) -> dict[str, Any]:
    """What the targets are, part by part, where each example has one."""
    found = {name: getattr(part, "targets", None) for name, part in data.splits.items()}
    targets = {name: values for name, values in found.items() if values is not None and values.ndim == 1}
    if data.encoding["task"] == "none":
        return {"values": {}}
    if data.encoding["task"] == "classes":
        return {"classes": _classes(targets, data.encoding["classes"])}
    return {"values": {part: _moments(values) for part, values in targets.items() if len(values)}}


def lines(description: Mapping[str, Any]) -> list[str]:
    """The description as lines of plain text, columns aligned.

    Args:
        description: What :func:`describe` returned.

    Returns:
        One string a line, without line breaks.
    """
    split = description["split"]
    parts = ", ".join(f"{part} {count:,}" for part, count in description["parts"].items())
    cut = "official test part" if split["official"] else f"test {split['test']:g}"
    val = "official val part" if split["val"] is None else f"val {split['val']:g}"
    text = [
        description["name"],
        f"examples  {parts}  ({cut}, {val}, seed {split['seed']})",
        *_input_lines(description),
    ]
    if description["domain"] is not None:
        low, high = map(shortest, description["domain"])
        text.append(f"domain    [{low}, {high}]: where an input may be moved")
    target = f" {description['target']!r}," if "target" in description else ""
    if description["task"] == "classes":
        text.append(f"target   {target} {len(description['classes'])} classes")
        text += _class_lines(description["classes"], list(description["parts"]))
    elif description["task"] == "none":
        text.append("target    none: models of the inputs alone train on them")
    elif "about" in description and not description["values"]:
        text.append(f"target    {TARGETS.get(description['task'], description['task'])}")
    else:
        text.append(f"target   {target} values")
        for part, moments in description["values"].items():
            digits = _digits(max(map(abs, moments["range"])), moments["deviation"])
            spread = f"mean {moments['mean']:.{digits}g}, deviation {moments['deviation']:.6g}"
            text.append(f"  {part}: in {_span(moments['range'])}, {spread}")
    if group := description.get("group"):
        counts = ", ".join(f"{part} {count:,}" for part, count in group["counts"].items())
        text.append(f"groups    {counts}: no group of {group['column']!r} lies in two parts")
    text += _column_lines(description.get("columns", ()))
    if description.get("ignored"):
        text.append(f"ignored   {', '.join(description['ignored'])}")
    text += [f"note      {note}" for note in description["notes"]]
    return text


def _input_lines(description: Mapping[str, Any]) -> list[str]:
    if "about" not in description:
        return [f"input     {_shape(description['shape'])}, in {_span(description['range'])}"]
    width = max([9, *(len(label) for label, _ in description["about"])])
    return [f"{label:<{width}} {said}" for label, said in description["about"]]


def _span_of(part: Any) -> list[float]:
    """The least and largest input of a part, in memory or not."""
    if isinstance(part, Arrays):
        return _range(part.inputs[0])
    spans = [_range(batch.inputs[0]) for batch in InOrder(part, _BATCH)]
    return [min(low for low, _ in spans), max(high for _, high in spans)]


def _range(x: Tensor) -> list[float]:
    return [x.min().item(), x.max().item()]


def _moments(values: Tensor) -> dict[str, Any]:
    double = values.double()
    deviation = double.std(correction=0).item()
    return {"range": _range(values), "mean": double.mean().item(), "deviation": deviation}


def _classes(targets: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, dict[str, int]]:
    counts = {part: labels.bincount(minlength=len(names)).tolist() for part, labels in targets.items()}
    return {name: {part: counts[part][k] for part in counts} for k, name in enumerate(names)}


def _columns(inputs: Tensor, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    columns, start = [], 0
    for record in records:
        column = {"name": record["name"], "kind": record["kind"], "missing": record.get("missing", 0)}
        if record["kind"] == "category":
            counts = inputs[:, start : start + len(record["categories"])].sum(0).long().tolist()
            column["categories"] = dict(zip(record["categories"], counts, strict=True))
        elif record["kind"] == "date":
            ends = [date(1970, 1, 1) + timedelta(days=math.floor(day)) for day in _range(inputs[:, start])]
            column["dates"] = f"{ends[0]} .. {ends[1]}: {', '.join(record['parts'])}"
        else:
            column["range"] = _range(inputs[:, start])
        column |= {key: record[key] for key in ("fill", "parts", "indicator") if record.get(key) is not None}
        columns.append(column)
        start += width(record)
    return columns


def _shape(shape: Sequence[int]) -> str:
    if len(shape) == 3:
        channels = "1 channel" if shape[0] == 1 else f"{shape[0]} channels"
        return f"image of {channels}, {shape[1]} x {shape[2]} pixels"
    return f"{shape[0]} features" if shape[0] != 1 else "1 feature"


def _span(ends: Sequence[float]) -> str:
    digits = _digits(max(map(abs, ends)), ends[1] - ends[0])
    return f"[{ends[0]:.{digits}g}, {ends[1]:.{digits}g}]"


def _digits(size: float, spread: float) -> int:
    """Digits that tell numbers of a size apart by a thousandth of their spread, from 6 to 17."""
    apart = math.log10(size / spread) if spread > 0 and size < math.inf else 0.0
    digits = math.ceil(apart) + 3
    whole = math.floor(math.log10(size)) + 1 if digits > 6 and 1 <= size < 1e15 else 0  # no exponent
    return min(17, max(6, digits, whole))


def _class_lines(classes: Mapping[str, Mapping[str, int]], parts: Sequence[str]) -> list[str]:
    shown = list(classes.items())[:_MOST]
    width = max(len(name) for name, _ in shown)
    text = [
        f"  {name:<{width}}  " + ", ".join(f"{part} {counts[part]:,}" for part in parts)
        for name, counts in shown
    ]
    return text if len(classes) <= _MOST else [*text, f"  and {len(classes) - _MOST} more"]


def _column_lines(columns: Sequence[Mapping[str, Any]]) -> list[str]:
    if not columns:
        return []
    longest = max(len(column["name"]) for column in columns)
    text = [f"columns   {len(columns)}"]
    for column in columns:
        if column["kind"] == "category":
            counts = [f"{name} {count:,}" for name, count in column["categories"].items()]
            more = f", and {len(counts) - _MOST} more" if len(counts) > _MOST else ""
            what = ", ".join(counts[:_MOST]) + more
        else:
            what = column.get("dates") or f"in {_span(column['range'])}"
        missing = f", {column['missing']:,} missing" if column["missing"] else ""
        missing += ", which a feature says" * bool(column.get("indicator"))
        text.append(f"  {column['name']:<{longest}}  {column['kind']:<8}  {what}{missing}")
    return text
