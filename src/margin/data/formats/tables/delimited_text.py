"""The text of a table's file: its encoding (Unicode's byte order marks), and the lines above its header.

Spreadsheets write UTF-16 with a byte order mark, a first line ``sep=;``, and titles above the table. Each is
taken for what it is only where it can be nothing else, and is said.
"""

import codecs
import csv
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from margin.data.files.reading import COMPOSED, recoded, unpacked
from margin.data.formats.tables.delimited_form import SEEN, SEPARATORS

_LINES, _TITLES = 50, 10
_SAID = re.compile(r'"?sep=(.)"?')


def text_of(path: Path) -> tuple[bytes, list[str]]:
    """A file's text in UTF-8 and normal form C, unpacked, without byte order mark; what is said of it.

    Raises:
        ValueError: It is no text of Unicode.
    """
    raw, notes = unpacked(path), list[str]()
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            raw, notes = raw.decode("utf-16").encode(), ["the file is UTF-16"]
        except UnicodeDecodeError:
            raise ValueError(
                f"{path}: a table that begins as UTF-16 must be so to its end; save it anew"
            ) from None
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if re.match(rb"\s*<(?:!doctype html|html)", raw, re.IGNORECASE):
        raise ValueError(f"{path}: a table must be delimited text: got a web page; download the file itself")
    try:
        if not raw.isascii() and not unicodedata.is_normalized("NFC", text := raw.decode()):
            raw, notes = unicodedata.normalize("NFC", text).encode(), [*notes, COMPOSED]
    except UnicodeDecodeError as error:
        row = raw.count(b"\n", 0, error.start) + 1
        byte = f"byte {raw[error.start]:02x}"
        raise ValueError(
            f"{path}, row {row}: a table must be UTF-8 text: got {byte}; in Excel save it as CSV UTF-8; "
            f"{recoded(path)}"
        ) from None
    if b"\0" in raw:
        row = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise ValueError(f"{path}, row {row}: a table must be text: got a zero byte")
    return raw, notes


def without_titles(raw: bytes) -> tuple[bytes, str | None, list[str]]:
    """The text with blank lines in place of what stands above its header.

    A first line ``sep=;`` is a spreadsheet's word for the separator. A title is a line of one cell above a
    table of several columns whose header has a name, and no number, for each.

    Returns:
        The text, of as many lines as before; the separator, None where it is not said; what was found.
    """
    lines = raw[:SEEN].decode(errors="ignore").splitlines()[:_LINES]
    said = _SAID.fullmatch(lines[0].rstrip(" ")) if lines else None
    if said:
        return _blanked(raw, 1), said[1], []
    found = [(count, mark) for mark in SEPARATORS if (count := _titles(lines, mark))]
    if not found:
        return raw, None, []
    count = found[0][0]
    title = next(line for line in lines if line.strip()).strip(" ,;\t|")
    return _blanked(raw, count), None, [f"the header is row {count + 1}, below the title {title!r}"]


def _titles(lines: Sequence[str], separator: str) -> int:
    """The number of lines above the header where the first are titles, else 0."""
    records = [
        [cell.strip() for cell in record]
        for record in csv.reader(lines, delimiter=separator, skipinitialspace=True)
    ]
    if len(records) != len(lines) or not records or _filled(records[0]) != [0]:
        return 0
    head = next((k for k, record in enumerate(records) if len(_filled(record)) > 1), 0)
    width = len(records[head])
    named = _filled(records[head]) == list(range(width)) and records[head] not in records[head + 1 :]
    regular = all(len(record) == width for record in records[head:] if record)
    if not head or head > _TITLES or len(records) < head + 2 or not named or not regular:
        return 0
    # a header that lacks names is no title: that is one cell alone, or words, in a table of three columns
    alone = all(len(record) <= 1 for record in records[:head])
    words = width > 2 and all(" " in record[0] for record in records[:head] if _filled(record))
    if any(mark in cell for record in records[:head] for cell in record for mark in SEPARATORS):
        return 0
    return head if (alone or words) and not any(map(_is_number, records[head])) else 0


def _filled(record: Sequence[str]) -> list[int]:
    """The places of the cells that are not empty."""
    return [k for k, cell in enumerate(record) if cell]


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[+-]?[\d.,]*\d[\d.,]*(?:[eE][+-]?\d+)?", cell) is not None


def _blanked(raw: bytes, count: int) -> bytes:
    """The text with its first lines blank."""
    return b"\n" * count + raw.split(b"\n", count)[count]
