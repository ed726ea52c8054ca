"""A table's mistakes: one line with file, row, column, value, remedy (ludwig 807, 1143, 201, 104)."""

import gzip
from pathlib import Path

import polars as pl
import pytest

from margin.data.formats.tables.tables import read_frame, read_table
from margin.data.splits import split_indices

GOOD = "a,b,y\n" + "\n".join(f"{k},{k / 2},{'p' if k % 2 else 'q'}" for k in range(30)) + "\n"
"""Row 2 is ``0,0.0,q``, row 31 ``29,14.5,p``."""


def changed(row: int, cells: str) -> str:
    lines = GOOD.splitlines()
    lines[row - 1] = cells
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "options", "texts"),
    [
        ("", {}, ["the file is empty"]),
        ("\n \n", {}, ["the file is empty"]),
        ("a,b,y\n", {}, ["has a header but no rows"]),
        ("a,b,y", {}, ["has a header but no rows"]),
        (GOOD, {"target": "Y2"}, ["no column 'Y2'", "nearest: y"]),
        (GOOD, {"target": "zzzz"}, ["no column 'zzzz'", "it has: a, b, y"]),
        (GOOD.replace("y", "1"), {}, ["name the target column; it has: a, b, 1", "set --data.header none"]),
        (GOOD.replace("a,b,y", "class,b,y"), {}, ["name the target column", "class, y may be it"]),
        (GOOD, {"target": "y", "task": "none"}, ["--task none takes no target: got 'y'"]),
        (GOOD, {"ignore": "c"}, ["no column 'c'"]),
        (GOOD, {"ignore": "y"}, ["the target column cannot be ignored"]),
        (GOOD, {"ignore": "a,b"}, ["a column beside the target 'y'"]),
        (changed(7, ",2.5,p"), {}, ["row 7, column 'a': the cell is empty", "set --missing drop, mean"]),
        (changed(7, "NaN,2.5,p"), {}, ["row 7, column 'a': 'NaN' means a missing value"]),
        (changed(7, "5,NA,p"), {}, ["row 7, column 'b': 'NA' means a missing value"]),
        (changed(7, "5,?,p"), {}, ["row 7, column 'b': '?' means a missing value"]),
        (changed(7, "5, ,p"), {}, ["row 7, column 'b': the cell is empty"]),
        (changed(7, '5,"",p'), {}, ["row 7, column 'b': the cell is empty"]),
        (changed(7, "5,2.5,"), {}, ["row 7, column 'y'", "set --missing drop"]),
        (changed(7, "5,2.5,"), {"missing": "mean"}, ["row 7, column 'y'", "set --missing drop"]),
        (changed(7, "5,abc,p"), {}, ["row 7, column 'b': 'abc' is not a number", "29 of the column's 30"]),
        (changed(31, "5,2.5.1,p"), {}, ["row 31, column 'b': '2.5.1' is not a number"]),
        (changed(7, "5,inf,p"), {}, ["row 7, column 'b': values must be finite", "got inf"]),
        (changed(7, "5,-1e999,p"), {}, ["row 7, column 'b': values must be finite", "got -1e999"]),
        (
            changed(7, "5,1e300,p"),
            {},
            ["row 7, column 'b': values must be finite and at most 3.4e+38: got 1e300"],
        ),
        (changed(7, "5,2.5"), {}, ["row 7: every row must have 3 cells", "got 2"]),
        (changed(7, "5,2.5,p,7"), {}, ["row 7: every row must have 3 cells", "got 4"]),
        (changed(7, "5,2.5,p,"), {}, ["row 7: every row must have 3 cells", "got 4"]),
        (changed(7, '5,"2.5,p'), {}, ["row 7: the quotes of a cell are not closed"]),
        (changed(7, '5,"2"5,p'), {}, ["row 7: the quotes of a cell are not closed"]),
        (GOOD.replace(",p", ",q"), {}, ["at least two classes: all 30 examples are of one class"]),
        (changed(2, "0,0.0,r"), {}, ["class 'r' has 1 example,", "set --data.val 0"]),
        ("a,y\n1,p\n2,q\n", {}, ["class 'p' has 1 example,"]),
        ("a,b,a,y\n1,2,3,p\n", {}, ["row 1", "'a' names columns 1, 3", "--data.header none"]),
        (GOOD, {"task": "values"}, ["target 'y'", "values must be numbers: got category cells"]),
        (
            GOOD,
            {"target": "a"},
            ["whole numbers may be classes or values: set --task classes or --task values"],
        ),
        (GOOD, {"target": "b", "task": "classes"}, ["row 3, column 'b'", "got 0.5", "set --task values"]),
        (GOOD.replace(".", ","), {}, ["every row must have 3 cells"]),
        (
            "a;y\n" + "1,500;p\n2,500;q\n" * 9,
            {},
            ["row 2, column 'a'", "written with a point", "got '1,500'", "set --data.decimal ','"],
        ),
        (changed(2, "0,\0,q"), {}, ["row 2: a table must be text: got a zero byte"]),
        (
            "c,y\n" + ",p\n,q\n" * 9,
            {"missing": "mean"},
            ["column 'c': every cell is missing; set --ignore 'c'"],
        ),
        ("c,d,y\n" + "1,,p\n,1,q\n" * 9, {"missing": "drop"}, ["--missing drop leaves no row"]),
        ("a,y\n1,1.5\n", {}, ["every part (train, val, test) needs an example: there are 1 example"]),
    ],
)
def test_a_mistake_is_one_line(text: str, options: dict, texts: list[str], csv, refused) -> None:
    path = csv(text)
    with refused(str(path), *texts):
        read_table(path, **options)


def test_two_hundred_numbers_and_one_word_are_not_two_hundred_categories(csv, refused) -> None:
    cells = [f"{k}.25" for k in range(199)] + ["abc"]
    path = csv("a,y\n" + "\n".join(f"{cell},{k}.5" for k, cell in enumerate(cells)))
    with refused("row 201, column 'a': 'abc' is not a number, and 199 of the column's 200 values are"):
        read_table(path)


def test_the_boundary_between_a_mistake_and_a_category(csv, refused) -> None:
    """Nine numbers in ten cells are a numeric column, eight are not; empty cells do not count."""
    for texts, is_number in ((1, True), (2, False)):
        cells = ["w"] * texts + [str(k % 3) for k in range(10 - texts)] + [""] * 5
        path = csv("a,y\n" + "\n".join(f"{cell},{k}.5" for k, cell in enumerate(cells)))
        if is_number:
            with refused("'w' is not a number, and 9 of the column's 10 values are"):
                read_table(path, missing="mode")
        else:
            assert read_table(path, missing="mode").encoding["columns"][0]["kind"] == "category"


def test_the_first_missing_cell_of_the_file_is_named(csv, refused) -> None:
    with refused("row 5, column 'b'"):
        read_table(csv(changed(7, ",2.5,p").replace("3,1.5,p", "3,,p")))


def test_files_that_are_no_tables(tmp_path: Path, csv, refused) -> None:
    with refused("no such file", error=FileNotFoundError):
        read_table(tmp_path / "none.csv")
    with refused("row 3: a table must be UTF-8 text: got byte e9"):
        read_table(csv("a,y\n1,p\n2,caf\u00e9\n".encode("latin-1")))
    with refused("not a whole gzip file"):
        read_table(csv(gzip.compress(GOOD.encode())[:-10], "a.csv.gz"))
    with refused("not a Parquet file"):
        read_table(csv(GOOD, "a.parquet"))
    pl.DataFrame({"a": [], "y": []}).write_parquet(tmp_path / "b.parquet")
    with refused("has columns but no rows"):
        read_table(tmp_path / "b.parquet")


def test_an_unnamed_column_can_be_ignored(csv) -> None:
    rows = "\n".join(f"{k},{k % 5},{k}.5" for k in range(20))
    data = read_table(csv(f",a,y\n{rows}\n"), ignore="column_1")
    assert [column["name"] for column in data.encoding["columns"]] == ["a"]


def test_an_unnamed_column_is_refused_otherwise(csv, refused) -> None:
    rows = "\n".join(f"{k * k},{k % 5},{k}.5" for k in range(20))
    with refused("column 1 has no name", "set --ignore column_1"):
        read_table(csv(f",a,y\n{rows}\n"))


def test_typed_columns_that_no_model_takes(refused) -> None:
    from datetime import time

    frame = pl.DataFrame({"d": [time(k) for k in range(20)], "y": [k / 2 for k in range(20)]})
    with refused("column 'd': cells must be numbers, text, booleans or dates: got Time; set --ignore 'd'"):
        read_frame(frame)
    with refused("row 3, column 'a'", "values must be finite", "got inf"):
        read_frame(pl.DataFrame({"a": [1.0, 2.0, float("inf")], "y": [1.5, 2.5, 3.5]}))
    with refused("row 3, column 'a': nan means a missing value"):
        read_frame(pl.DataFrame({"a": [1.0, 2.0, float("nan")], "y": [1.5, 2.5, 3.5]}))
    with refused("the table has no rows"):
        read_frame(pl.DataFrame({"a": [], "y": []}))


def test_no_training_row_to_fill_from(csv, refused) -> None:
    held_out = int(split_indices(30, None, test=0.25, val=0.15, seed=0)["test"][0])
    rows = "\n".join(f"{'1.5' if k == held_out else ''},{k}.5" for k in range(30))
    with refused("column 'a': no training row has a value to fill in; set --ignore 'a'"):
        read_table(csv(f"a,y\n{rows}"), missing="mean")
