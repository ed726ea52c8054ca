"""Numbers that are names: telephones, zip codes, identifiers are said, and may be read as categories."""

import numpy as np
import polars as pl
import pytest

from margin.data.formats.tables.tables import read_frame, read_table
from margin.data.open import encode

COUNT = 40
SAID = "if these are names, as of places, telephones or people"


def table(csv, name: str, cells) -> object:
    rows = "".join(f"{cell},{k % 7 + 0.5},{'pq'[k % 2]}\n" for k, cell in enumerate(cells))
    return csv(f"{name},x,y\n" + rows)


def distinct(low: int, high: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.arange(low, high, (high - low) // 997))[:COUNT]


def with_spaces(number: int) -> str:
    return f"{number:,}".replace(",", " ")


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("contact", [*map(with_spaces, distinct(500_000_000, 600_000_000))]),  # telephones
        ("customer", [*map(with_spaces, distinct(2_000, 9_000))]),
        ("customer", [*map(str, distinct(100_000, 900_000))]),
        ("customer", [f"K-{k}" for k in range(COUNT)]),  # else 40 features, one a row
        ("zip", [str(8001 + k % 5) for k in range(COUNT)]),  # repeated: the name alone tells
        ("zip_code", [str(8001 + k % 5) for k in range(COUNT)]),
        ("customerID", [str(11 + k % 5) for k in range(COUNT)]),
        ("user id", [str(11 + k % 5) for k in range(COUNT)]),
    ],
)
def test_columns_that_may_be_names_are_said(csv, name: str, cells: list[str]) -> None:
    notes = [note for note in read_table(table(csv, name, cells)).notes if SAID in note]
    assert len(notes) == 1 and notes[0].startswith(f"column {name!r}: ")
    read = f"--data.categories {name}, or " * cells[0].replace(" ", "").isdigit()
    assert notes[0].endswith(f"set {read}--ignore {name}")


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("price", [*map(str, distinct(2_000, 30_000))]),  # of several lengths
        ("price", [*map(str, [*distinct(200_000, 900_000)[:-1], 200_000, 200_000][-COUNT:])]),  # two alike
        ("share", [f"{cell} %" for cell in distinct(2_000, 9_000)]),
        ("height", [f"{cell}.5" for cell in distinct(2_000, 9_000)]),
        ("made", [str(1901 + 37 * k % 101) for k in range(COUNT)]),  # years
        ("width", [str(8001 + k % 5) for k in range(COUNT)]),
        ("did", [str(11 + k % 5) for k in range(COUNT)]),
        ("paid", [str(11 + k % 5) for k in range(COUNT)]),
        ("zipper", [str(11 + k % 5) for k in range(COUNT)]),
    ],
)
def test_numbers_that_count_or_measure_are_not(csv, name: str, cells: list[str]) -> None:
    assert not [note for note in read_table(table(csv, name, cells)).notes if SAID in note]


def test_numbers_are_categories_where_one_says_so(csv, refused) -> None:
    cells = [str((8001, 8400, 3000)[k % 3]) for k in range(COUNT)]
    data = read_table(table(csv, "zip", cells), categories="zip")
    record = data.encoding["columns"][0]
    assert (record["kind"], record["categories"]) == ("category", ["3000", "8001", "8400"])
    assert not [note for note in data.notes if SAID in note]
    new = encode(csv("zip,x\n8400,1\n3000,2\n", "new.csv"), data.encoding)
    assert new.inputs[0].tolist() == [[0, 0, 1, 1], [1, 0, 0, 2]]
    with refused("row 2", "'zip'", "one of '3000', '8001', '8400'", "'8401'"):
        encode(csv("zip,x\n8401,1\n", "new.csv"), data.encoding)
    with refused("no column 'zap'"):
        read_table(table(csv, "zip", cells), categories="zap")


def test_whole_floats_of_a_frame_are_the_categories_of_whole_numbers() -> None:
    zips = [8001.0 if k % 3 else None for k in range(COUNT - 1)] + [3000.0]
    frame = pl.DataFrame({"zip": zips, "x": range(COUNT), "y": ["p", "q"] * (COUNT // 2)})
    data = read_frame(frame, categories=["zip"], missing="indicate")
    assert data.encoding["columns"][0]["categories"] == ["3000", "8001"]
    new = encode(pl.DataFrame({"zip": [3000, 8001], "x": [1, 2]}), data.encoding)
    assert new.inputs[0][:, :3].tolist() == [[1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    "pair", [("ja", "Nein"), ("WAHR", "falsch"), ("oui", "Non"), ("VRAI", "Faux"), ("s\u00ec", "No")]
)
def test_words_for_yes_and_no_in_capitals_are_the_same(csv, pair: tuple[str, str]) -> None:
    written = [word for each in pair for word in (each.lower(), each.upper())]
    data = read_table(table(csv, "member", [written[k % 4] for k in range(COUNT)]))
    assert data.encoding["columns"][0]["categories"] == sorted({word.lower() for word in pair})


@pytest.mark.parametrize(
    ("cells", "mark"),
    [
        ([9999 if k % 10 == 0 else k % 13 for k in range(COUNT)], "9999"),
        ([-999 if k == 7 else k * 0.37 for k in range(COUNT)], "-999"),
        (["9999-12-31" if k % 5 == 0 else f"2023-{k % 12 + 1:02d}-11" for k in range(COUNT)], "9999-12-31"),
        ([f"{99 - k} kg"[:-3] for k in range(COUNT)], ""),  # 99 among 60 .. 98
        ([999 if k % 2 else 500 for k in range(COUNT)], "999"),
        ([100 * (k % 10) + 99 for k in range(COUNT)], ""),
        ([99] * COUNT, ""),
    ],
)
def test_marks_of_a_missing_value_are_said_where_they_stand_apart(csv, cells, mark: str) -> None:
    rows = "".join(f"{cell},{k % 7 + 0.5},{'pq'[k % 2]}\n" for k, cell in enumerate(cells))
    path = csv("v,x,y\n" + rows)
    notes = [note for note in read_table(path).notes if "lies far from all other" in note]
    if not mark:
        assert not notes
        return
    (note,) = notes
    count = [str(cell) for cell in cells].count(mark)
    assert note.startswith(f"column 'v': {mark} ({count} cells)")
    assert note.endswith(f"set --data.missing-values {mark}")
    again = read_table(path, missing_values=mark, missing="indicate")
    assert again.encoding["columns"][0]["missing"] == count
    assert not [each for each in again.notes if "lies far" in each]


@pytest.mark.parametrize(
    "word", ["Summe", "Gesamtsumme:", "Gesamt", "Total g\u00e9n\u00e9ral", "Somme", "Moyenne :", "TOTALE"]
)
def test_a_total_in_another_language_is_refused(csv, refused, word: str) -> None:
    of = (lambda cells: sum(cells) / len(cells)) if word.startswith("Moy") else sum
    cells = [k % 7 + 0.5 for k in range(COUNT)]
    rows = "".join(f"p{k % 3},{cell},{'ab'[k % 2]}\n" for k, cell in enumerate(cells))
    with refused(f"row {COUNT + 2}", f"the row {word!r} sums those above it", "remove it"):
        read_table(csv(f"name,x,y\n{rows}{word},{of(cells)},a\n"))
