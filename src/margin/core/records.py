"""A finding as JSON values, and back to the bit.

What follows from the rest, verdicts and intervals, is written for those who read the JSON alone; who reads a
finding back computes it anew, and refuses a record that says otherwise.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from margin.core.findings import Finding, Kind, Premise, Scope, Status
from margin.core.hints import describe_type, fits

TYPES = {
    name: getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16"),
        *("int64", "int32", "int16", "int8", "uint8", "bool"),
    )
}
"""The types of tensors by name; the first is meant where nothing is said."""

FIELDS: dict[str, Any] = {
    "statement": str,
    "unit": str,
    "range": tuple[float | str, float | str],
    "kind": Kind,
    "sample": str,
    "scope": Scope,
    "tolerance": float,
    "failure": str,
    "reference": str,
    "remarks": tuple[str, ...],
    "labels": tuple[str, ...],
}
"""The fields that hold no tensor."""

PREMISE = {"text": str, "status": Status, "evidence": str}
NUMBERS = {str(x): x for x in (math.nan, math.inf, -math.inf)}


def record_of(found: Finding) -> dict[str, Any]:
    """The finding as JSON values, the verdict included; non-finite numbers become strings.

    ``reach`` is the verdict's interval and ``interval`` the printed one; ``stated`` has what both are
    computed from, and the types of the tensors that are not of float64.
    """
    shown = None if found.stderr is None and found.interval is None else _pair(found.shown)
    types = {name: str(x.dtype).removeprefix("torch.") for name, x in tensors_of(found).items()}
    return {
        "statement": found.statement,
        "value": _json(found.value),
        "unit": found.unit,
        "range": [_number(end) for end in found.range],
        "kind": found.kind,
        "stderr": _json(found.stderr),
        "interval": shown,
        "reach": _pair(found.verdict_interval),
        "stated": {
            "interval": _pair(found.interval),
            "printed": _pair(found.printed),
            "types": {name: kind for name, kind in types.items() if kind != "float64"},
        },
        "sample": found.sample,
        "low": _json(found.low),
        "high": _json(found.high),
        "scope": found.scope,
        "tolerance": found.tolerance,
        "failure": found.failure,
        "premises": [{"text": p.text, "status": p.status, "evidence": p.evidence} for p in found.premises],
        "reference": found.reference,
        "remarks": list(found.remarks),
        "labels": list(found.labels),
        "bracket": _pair(found.sandwich),
        "curves": {name: _json(curve) for name, curve in found.curves.items()},
        "verdict": str(found.verdict),
        "verdicts": [str(verdict) for verdict in found.verdicts],
    }


def finding_of_record(record: Mapping[str, Any]) -> Finding:
    """The finding that :func:`record_of` wrote, to the bit, on the CPU.

    Raises:
        ValueError: The record is damaged, or what follows from it is another than it says.
    """
    _check(record)
    try:
        found = _read(record)
        again = record_of(found)
    except (LookupError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        # shapes and numbers that do not fit each other are found where they are used
        what = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"is no finding: {what}") from None
    for key in {**again, **record}:
        if again.get(key) != record.get(key) or (key in again) != (key in record):
            raise ValueError(f"is no finding: {key} does not follow from the rest")
    return found


def _check(record: Mapping[str, Any]) -> None:
    """Refuse fields that are missing or of another type, before anything is computed of them."""
    if not isinstance(record, dict):
        raise ValueError("must be a finding, a mapping")
    if missing := [key for key in (*FIELDS, "value", "stated", "premises", "curves") if key not in record]:
        raise ValueError(f"is no finding: {missing[0]} is missing")
    for key, hint in FIELDS.items():
        value = record[key]
        if not fits(tuple(value) if isinstance(value, list) else value, hint):
            raise ValueError(f"is no finding: {key} must be {describe_type(hint)}")
    premises: list[Any] = record["premises"] if isinstance(record["premises"], list) else [None]
    for premise in premises:
        whole = isinstance(premise, dict) and premise.keys() == PREMISE.keys()
        if not (whole and all(fits(premise[key], hint) for key, hint in PREMISE.items())):
            raise ValueError("is no finding: premises must be texts with status and evidence")
    stated: Any = record["stated"]
    if not (isinstance(stated, dict) and isinstance(record["curves"], dict)):
        raise ValueError("is no finding: stated and curves must be mappings")
    types: Any = stated.get("types")
    if not fits(types, dict[str, str]) or not set(types.values()) <= TYPES.keys():
        raise ValueError(f"is no finding: stated.types must be among {', '.join(TYPES)}")


def _read(record: Mapping[str, Any]) -> Finding:
    stated = record["stated"]

    def tensor(name: str, value: Any) -> Tensor:
        return torch.tensor(_read_numbers(value), dtype=TYPES[stated["types"].get(name, "float64")])

    def maybe(name: str) -> Tensor | None:
        return None if record[name] is None else tensor(name, record[name])

    def pair(name: str, value: Any) -> tuple[Tensor, Tensor] | None:
        if value is None:
            return None
        below, above = value
        return tensor(f"{name}.0", below), tensor(f"{name}.1", above)

    value, sandwich = tensor("value", record["value"]), pair("bracket", record["bracket"])
    for end in sandwich or ():
        end.expand_as(value)  # a requirement compares them element by element
    plain: dict[str, Any] = {
        key: tuple(record[key]) if isinstance(record[key], list) else record[key] for key in FIELDS
    }
    plain["range"] = tuple(_read_numbers(record["range"]))
    return Finding(
        **plain,
        value=value,
        premises=tuple(Premise(**premise) for premise in record["premises"]),
        stderr=maybe("stderr"),
        interval=pair("interval", stated["interval"]),
        printed=pair("printed", stated["printed"]),
        low=maybe("low"),
        high=maybe("high"),
        sandwich=sandwich,
        curves={name: tensor(f"curves.{name}", curve) for name, curve in record["curves"].items()},
    )


def tensors_of(found: Finding) -> dict[str, Tensor]:
    """Every tensor by its place in the record."""
    named = {"value": found.value, "stderr": found.stderr, "low": found.low, "high": found.high}
    pairs = {"interval": found.interval, "printed": found.printed, "bracket": found.sandwich}
    named |= {f"{name}.{i}": end for name, pair in pairs.items() for i, end in enumerate(pair or ())}
    named |= {f"curves.{name}": curve for name, curve in found.curves.items()}
    return {name: x for name, x in named.items() if x is not None}


def _read_numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_read_numbers(item) for item in value]
    return NUMBERS[value] if isinstance(value, str) else value


def _number(x: float) -> float | str:
    return x if math.isfinite(x) else str(x)


def _pair(ends: tuple[Tensor, Tensor] | None) -> list[Any] | None:
    return None if ends is None else [_json(end) for end in ends]


def _json(tensor: Tensor | None) -> Any:
    return None if tensor is None else _plain(tensor.detach().cpu().tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _number(value) if isinstance(value, float) else value
