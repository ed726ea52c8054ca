"""The text of a run's files, of bounded size and depth, and what a message says of what is wrong in it."""

import json
from pathlib import Path
from typing import Any

import yaml

DEEPEST = 32
"""How deep what a file holds may be nested."""

LARGEST = 2**26
"""Bytes of a file at most: a record with every word of a language is far smaller."""

REMEDY = "restore it or train anew"


def wrong(file: Path, key: str, what: str, remedy: str = REMEDY) -> ValueError:
    """The error of a file that is not what a training wrote."""
    return ValueError(f"{file}: {key} {what}: {remedy}")


def shown(value: Any) -> str:
    """A value in a message, cut short."""
    if value is None:
        return "null"
    text = repr(value)[:60]
    return text if len(text) < 60 else f"{text[:56]} ..."


class Plain(yaml.SafeLoader):
    """YAML of a bounded depth, without aliases and tags."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A node, where it is none of these."""
        event = self.peek_event()
        if (
            isinstance(event, yaml.AliasEvent)
            or getattr(event, "anchor", None)
            or getattr(event, "tag", None)
        ):
            raise yaml.YAMLError(f"line {event.start_mark.line + 1} holds an alias, an anchor or a tag")
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"it is nested deeper than {DEEPEST} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


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
