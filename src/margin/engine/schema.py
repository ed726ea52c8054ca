"""The schema of a run's files, by which each of them is checked when it is read.

``run.yaml``, ``checkpoints.json``, ``history.jsonl`` and ``metrics.json`` are text that anyone may have
cut, edited or made up. Nothing in them is executed, no alias is followed, size and depth are bounded, and
no memory is allocated by what they say before it is checked. What is wrong is reported with the file, the
key and a remedy.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from margin.core.catalog import completed, find, models, resolve, rules
from margin.core.hints import describe_type, fits
from margin.core.options import Training
from margin.core.user_modules import RECORD as USER_MODEL
from margin.core.user_modules import is_user_model
from margin.data.formats.encodings import disagreement, extents, schemas_of, shown

DEEPEST = 32
"""How deep what a file holds may be nested."""

LARGEST = 2**26
"""Bytes of a file at most: a record with every word of a language is far smaller."""

REMEDY = "restore it or train anew"


def wrong(file: Path, key: str, what: str, remedy: str = REMEDY) -> ValueError:
    """The error of a file that is not what a training wrote."""
    return ValueError(f"{file}: {key} {what}: {remedy}")


LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser of libyaml, where PyYAML was built with it: the same values, an order of magnitude sooner."""


def plain_yaml(text: str) -> Any:
    """What a text of YAML of a bounded depth, without aliases and tags, holds.

    Raises:
        YAMLError: It is damaged, deeper, or has one of these; nothing was built of it.
    """
    depth, too_deep = 0, yaml.YAMLError(f"it is nested deeper than {DEEPEST} levels")
    try:
        for event in yaml.parse(text, LOADER):
            if (
                isinstance(event, yaml.AliasEvent)
                or getattr(event, "anchor", None)
                or getattr(event, "tag", None)
            ):
                raise yaml.YAMLError(f"line {event.start_mark.line + 1} holds an alias, an anchor or a tag")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth + isinstance(event, yaml.ScalarEvent) > DEEPEST:
                raise too_deep
    except yaml.MarkedYAMLError as error:
        if error.context == "while increasing flow level":  # libyaml looks ahead, and has a bound of its own
            raise too_deep from None
        raise
    return yaml.load(text, LOADER)


def text_of(file: Path, largest: float = LARGEST) -> str:
    """The text of a file of a bounded size.

    Raises:
        ValueError: It is larger, or no text.
    """
    if not file.is_file():
        raise wrong(file, "it", "must be a file")
    if file.stat().st_size > largest:
        raise wrong(file, "it", f"must be at most {largest} bytes: got {file.stat().st_size}")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is damaged: byte {error.start} is no text: {REMEDY}") from None


def json_of(file: Path) -> Any:
    """What a file of JSON holds."""
    return parsed(file, text_of(file), "")


def parsed(file: Path, text: str, where: str) -> Any:
    """A text of JSON; ``where`` it stands in the file.

    Raises:
        ValueError: It is damaged.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: {where}is damaged: {error}: {REMEDY}") from None


DIGEST = "digest"
"""The key under which a file keeps the SHA-256 of the rest of it."""

Complaint = Callable[[Any], str]
"""What is wrong with a value, or ""."""


def count(value: Any) -> str:
    """Whether a value is a whole number from 0."""
    return "" if fits(value, int) and value >= 0 else f"must be a whole number from 0: got {shown(value)}"


def recipe(value: Any) -> str:
    """Whether a value is a recipe, in whose spec a value may be one too."""
    for key, hint in {"model": str, "spec": dict[str, Any], "options": dict[str, Any]}.items():
        if not isinstance(value, dict) or not fits(value.get(key), hint):
            return f"must be a recipe {{model, spec, options}} of which {key} is {describe_type(hint)}"
    try:
        is_user_model(value["model"]) or find(models(), value["model"], "model")
    except ValueError:
        return f"names no model that is here: {shown(value['model'])}"
    inner = (one for one in value["spec"].values() if isinstance(one, dict) and "model" in one)
    return next((complaint for one in inner if (complaint := recipe(one))), "")


def training(value: Any) -> str:
    """Whether a value is the resolved options of a training."""
    if not isinstance(value, dict):
        return f"must be a mapping: got {shown(value)}"
    try:
        Training.recorded(value)
    except ValueError as error:
        return f"are not those of a training, for {error}"
    return ""


def rule(value: Any) -> str:
    """Whether a value is the name of a rule, or ""."""
    if not isinstance(value, str):
        return f"must be a word: got {shown(value)}"
    try:
        if value:
            find(rules(), value, "rule")
    except ValueError as error:
        return f"names none that is here: {error}"
    return ""


SCALING = {"kind": Literal["standardize", "identity", "column"], "shape?": extents}
"""What a record keeps of a preprocessing, or of the map from a model's output to the user's units."""

RECORD: dict[str, Any] = {
    "format": Literal[1],
    "recipe": recipe,
    "arguments": {
        "model": str,
        "data": {"source?": str, "options?": dict[str, Any]},
        "options": dict[str, Any],
        "step": dict[str, Any],
        "rule": rule,
        "training": training,
    },
    "preprocess": SCALING,
    "data": {
        "name": str,
        "fingerprint": str,
        "sizes": dict[str, int],
        "encoding": dict[str, Any],
        "notes": list[str],
    },
    "others?": dict[str, str],
    "own?": USER_MODEL,
}
"""What ``run.yaml`` holds; a key that ends in ? may be missing."""

CHECKPOINTS: dict[str, Any] = {"last?": count, "best?": count, "ended?": count, "reason?": str}
"""What ``checkpoints.json`` holds: steps, which name the files, and why the training ended."""

METRICS = dict[str, float | None]
"""What ``metrics.json`` and a row of ``history.jsonl`` hold."""


def read_record(file: Path) -> dict[str, Any]:
    """What ``run.yaml`` holds, checked but for its digest.

    Raises:
        ValueError: It is damaged, or no record of a training.
    """
    try:
        record = plain_yaml(text_of(file))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {str(error).splitlines()[0]}: {REMEDY}") from None
    if not isinstance(record, dict) or "recipe" not in record:
        raise ValueError(f"{file} is no record of a training: {REMEDY}")
    check(record, RECORD, "", file)
    check_plain(record, "", file)
    for key in ("preprocess", "outcome"):
        _check_scaling(record.get(key), key, file)
    _check_encoding(record, file)
    data = record["arguments"]["data"]
    if data:
        check(data, {"source": str, "options": dict[str, Any]}, "arguments.data", file)
    for key in ("model", "options"):
        if record["arguments"][key] != record["recipe"][key]:
            raise wrong(
                file, f"arguments.{key}", f"must be that of the recipe, {shown(record['recipe'][key])}"
            )
    _check_model(record, file)
    return record


def _check_model(record: Mapping[str, Any], file: Path) -> None:
    """Refuse a record without an option of its model or step, which would take today's default in silence.

    Of a user's own module, whose code no record runs before it is used, the step alone is looked at.
    """
    arguments, paths = record["arguments"], {"options": "", "step": ""}
    newer: Mapping[str, Any] = {}
    if is_user_model(arguments["model"]) != ("own" in record):
        raise wrong(file, "own", f"must be there for a module of one's own alone: {arguments['model']}")
    if "own" not in record:
        entry = find(models(), arguments["model"], "model")
        paths, newer = {"options": entry.build, "step": entry.step}, entry.newer
    if arguments["rule"]:
        paths["step"] = find(rules(), arguments["rule"], "rule").step
    for group, path in paths.items():
        known = completed(resolve(path), {}) if path else {}
        later = newer if group == "options" else {}
        if lacking := [name for name in known if name not in arguments[group] and name not in later]:
            raise wrong(file, f"arguments.{group}.{lacking[0]}", "is missing")


def as_of_today(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without its digest, with newer options as it was before them and words as they are today."""
    made = {key: value for key, value in record.items() if key != "digest"}
    if "own" not in made:
        newer = find(models(), made["arguments"]["model"], "model").newer
        for part in ("arguments", "recipe"):
            made[part]["options"] = {**newer, **made[part]["options"]}
    if made["arguments"]["rule"]:
        step = made["arguments"]["step"]
        for option, words in find(rules(), made["arguments"]["rule"], "rule").renamed.items():
            step[option] = words.get(step[option], step[option])
    return made


def _check_scaling(scaling: Any, key: str, file: Path) -> None:
    """Check one of the two maps of a record; of targets in the user's units there is none."""
    if scaling is None and key == "outcome":
        return
    check(scaling, SCALING, key, file)
    if scaling["kind"] != "identity" and "shape" not in scaling:
        raise wrong(file, f"{key}.shape", "is missing")


def _check_encoding(record: Mapping[str, Any], file: Path) -> None:
    """Check how new data are read: key by key, then against the recipe and the preprocessing."""
    encoding, where = record["data"]["encoding"], "data.encoding"
    for schema in schemas_of(encoding):
        check(encoding, schema, where, file)
    key, what = disagreement(encoding, record["recipe"]["spec"], record["preprocess"].get("shape"))
    if key:
        raise wrong(file, f"{where}.{key}", what)


def read_checkpoints(file: Path) -> dict[str, Any]:
    """What ``checkpoints.json`` holds; nothing where it is not there.

    Raises:
        ValueError: It is damaged, or names no checkpoint.
    """
    marks = json_of(file) if file.exists() else {}
    check(marks, CHECKPOINTS, "", file)
    check_digest(file, marks)
    marks.pop(DIGEST, None)
    if unknown := [name for name in marks if f"{name}?" not in CHECKPOINTS]:
        raise wrong(file, unknown[0], "is no mark")
    return marks


def read_metrics(file: Path) -> dict[str, float]:
    """What ``metrics.json`` holds, null as NaN; nothing where it is not there.

    Raises:
        ValueError: It is damaged.
    """
    metrics = json_of(file) if file.exists() else {}
    remedy = f"restore it, or remove it, and margin train --resume {file.parent} judges anew"
    if not isinstance(metrics, dict):
        raise wrong(file, "it", f"must be a mapping: got {shown(metrics)}", remedy)
    for name, value in metrics.items():
        if not fits(value, float | None):
            raise wrong(file, name, f"must be a number: got {shown(value)}", remedy)
    return {name: math.nan if value is None else value for name, value in metrics.items()}


def read_history(file: Path) -> list[dict[str, Any]]:
    """The rows of ``history.jsonl``, whose steps increase; a last line cut short by a kill is not there.

    Raises:
        ValueError: A line is damaged.
    """
    if not file.exists():
        return []
    lines = [line for line in text_of(file, math.inf).splitlines(keepends=True) if line.endswith("\n")]
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        row = parsed(file, line, f"line {number} ")
        check(row, {"step": count}, f"line {number}", file)
        check(row, METRICS, f"line {number}", file)
        if rows and row["step"] <= rows[-1]["step"]:
            before = rows[-1]["step"]
            raise wrong(file, f"line {number}.step", f"must be after {before}: got {row['step']}")
        rows.append(row)
    return rows


# the digest


def digest_of(content: Mapping[str, Any]) -> str:
    """The SHA-256 of what a file holds besides its digest."""
    rest = {key: value for key, value in content.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, default=str).encode()).hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file with its digest."""
    return {**content, DIGEST: digest_of(content)}


def check_digest(file: Path, content: Mapping[str, Any]) -> None:
    """Refuse a file that has changed since it was written; one without a digest is older and is taken.

    Raises:
        ValueError: Its digest is another.
    """
    if DIGEST in content and content[DIGEST] != digest_of(content):
        remedy = f"{REMEDY}, or remove that line if the change is meant"
        raise wrong(file, DIGEST, "is another: the file has changed since it was written", remedy)


# checking


def check(value: Any, schema: Any, key: str, file: Path) -> None:
    """Check a value by a schema: a mapping of keys, a list of the schemas of an item, a complaint, a hint.

    Raises:
        ValueError: It is another; the message names the file and the key.
    """
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            raise wrong(file, key or "it", f"must be a mapping: got {shown(value)}")
        for name, inner in schema.items():
            plain = name.removesuffix("?")
            path = f"{key}.{plain}" if key else plain
            if plain in value:
                check(value[plain], inner, path, file)
            elif plain == name:
                raise wrong(file, path, "is missing")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise wrong(file, key, f"must be a list: got {shown(value)}")
        for place, item in enumerate(value):
            for inner in schema:
                check(item, inner, f"{key}[{place}]", file)
    elif callable(schema) and not isinstance(schema, type) and not hasattr(schema, "__origin__"):
        if complaint := schema(value):
            raise wrong(file, key, complaint)
    elif not fits(value, schema):
        raise wrong(file, key, f"must be {describe_type(schema)}: got {shown(value)}")


def check_plain(value: Any, key: str, file: Path) -> None:
    """Refuse what no training writes: keys that are no words, dates, numbers beyond 64 bits.

    Raises:
        ValueError: There is such a thing.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            path = f"{key}.{name}" if key else str(name)
            if not isinstance(name, str):
                raise wrong(file, path, "must have a word as its name")
            check_plain(item, path, file)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            check_plain(item, f"{key}[{place}]", file)
    elif isinstance(value, int) and abs(value) >= 2**64:
        raise wrong(file, key, "must be a number of at most 64 bits")
    elif not isinstance(value, str | int | float | None):
        raise wrong(file, key, f"must be a number, a word, a list or a mapping: got a {type(value).__name__}")
