"""How a table is written: separators, decimal marks, missing cells, zeros in front, indices, large ids."""

import csv as library
import gzip
import io
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from margin.data.formats.arrays.sources import from_arrays
from margin.data.formats.tables.delimited import Writing, load_table
from margin.data.formats.tables.delimited_form import decimal_of, separator_of
from margin.data.formats.tables.tables import read_frame, read_table
from margin.data.open import encode, open_data


def classes_of(data) -> list[str]:
    return data.encoding["classes"]


def test_labels_with_leading_zeros_keep_their_characters(csv) -> None:
    names = ["007", "7", "012"]
    path = csv("a,y\n" + "".join(f"{k},{names[k % 3]}\n" for k in range(60)))
    data = read_table(path)
    assert classes_of(data) == ["007", "012", "7"]
    assert "column 'y' holds whole numbers with leading zeros" in " ".join(data.notes)
    new = encode(path, data.encoding)
    assert [classes_of(data)[k] for k in new.targets[:3].tolist()] == names


def test_a_feature_with_leading_zeros_is_text_in_every_reading(csv) -> None:
    codes = ["01", "1", "10"]
    rows = "".join(f"{codes[k % 3]},{'pq'[k % 2]}\n" for k in range(60))
    data = read_table(csv("zip,y\n" + rows))
    assert data.encoding["columns"][0]["categories"] == ["01", "1", "10"]
    # a file of new rows where nothing tells that the column is text
    new = encode(csv("zip\n1\n10\n", "new.csv"), data.encoding)
    assert new.inputs[0].tolist() == [[0, 1, 0], [0, 0, 1]]


def test_categories_that_look_like_numbers_keep_their_characters(csv) -> None:
    rows = "".join(f"{('1.10', '1.1', 'dev')[k % 3]},{'pq'[k % 2]}\n" for k in range(60))
    data = read_table(csv("version,y\n" + rows))
    new = encode(csv("version,z\n1.10,0\n1.1,0\n", "new.csv"), data.encoding)
    assert data.encoding["columns"][0]["categories"] == ["1.1", "1.10", "dev"]
    assert new.inputs[0].tolist() == [[0, 1, 0], [1, 0, 0]]


IDS = [2**53, 2**53 + 1, 2**64 - 1]


def of_ids(tmp_path: Path, form: str):
    labels = [IDS[k % 3] for k in range(60)]
    frame = pl.DataFrame({"a": [float(k) for k in range(60)], "y": pl.Series(labels, dtype=pl.UInt64)})
    if form == "polars":
        return read_frame(frame, task="classes"), frame
    if form == "pandas":
        pandas = pytest.importorskip("pandas")
        made = pandas.DataFrame({"a": frame["a"].to_numpy(), "y": np.array(labels, np.uint64)})
        return read_frame(made, task="classes"), made
    path = tmp_path / f"d.{form}"
    frame.write_csv(path) if form == "csv" else frame.write_parquet(path)
    return read_table(path, task="classes"), path


@pytest.mark.parametrize("form", ["csv", "parquet", "polars", "pandas"])
def test_class_ids_of_any_size_are_exact(form: str, tmp_path: Path) -> None:
    data, source = of_ids(tmp_path, form)
    assert classes_of(data) == [str(i) for i in IDS]
    assert not any("2^53" in note for note in data.notes)  # they are exact: none is rounded
    new = encode(source, data.encoding)
    assert new.targets[:3].tolist() == [0, 1, 2]


def test_class_ids_in_arrays_and_floats_are_refused_by_name(refused, tmp_path: Path) -> None:
    labels = np.array([IDS[k % 3] for k in range(60)], np.uint64)
    with refused("labels must be 0 .. K-1", "18446744073709551615"):
        from_arrays(np.zeros((60, 2)), labels)
    frame = pl.DataFrame({"a": range(60), "y": [float(2**53 + 2 * (k % 2)) for k in range(60)]})
    with refused("row 1, column 'y'", "below 2^53", "9007199254740992"):
        read_frame(frame, task="classes")


def test_a_feature_of_large_whole_numbers_is_noted(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [2**63 + k for k in range(60)], "y": ["p", "q"] * 30})
    assert "column 'id' holds whole numbers of 2^53 and more" in " ".join(read_frame(frame).notes)


@pytest.mark.parametrize("name", ["Unnamed: 0", "__index_level_0__", ""])
def test_an_index_is_named_and_left_out(name: str, csv, tmp_path: Path) -> None:
    rows = "".join(f"{k},{k % 7},{'pq'[k % 2]}\n" for k in range(60))
    path = csv(f"{name},a,y\n{rows}")
    data = read_table(path)
    assert [column["name"] for column in data.encoding["columns"]] == ["a"]
    assert any("is the index of a data frame: it is left out" in note for note in data.notes)
    if name:
        kept = read_table(path, index="keep")
        assert [column["name"] for column in kept.encoding["columns"]] == [name, "a"]
        parquet = tmp_path / "d.parquet"
        pl.read_csv(path).write_parquet(parquet)
        assert [column["name"] for column in read_table(parquet).encoding["columns"]] == ["a"]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("header", ["first", "none"])
def test_semicolons_and_decimal_commas_are_recognized(header: str, mark: str, csv) -> None:
    rows = "".join(f"{k},25;{2 * k},5;{'hi' if k % 2 else 'lo'}\n" for k in range(40))
    path = csv(mark + ("a;b;y\n" if header == "first" else "") + rows)
    target = "y" if header == "first" else "column_3"
    data = read_table(path, target=target, header=header)
    assert classes_of(data) == ["hi", "lo"]
    assert data.encoding["shape"] == [2]
    assert "cells are divided by a semicolon, numbers are written with a decimal comma" in data.notes
    new = encode(path, data.encoding)
    assert new.inputs[0][:3].tolist() == [[0.25, 0.5], [1.25, 2.5], [2.25, 4.5]]


def test_tabs_are_recognized_and_the_form_can_be_said(csv, refused) -> None:
    rows = "".join(f"{k},500\t{'pq'[k % 2]}\n" for k in range(40))
    path = csv("a\ty\n" + rows)
    with refused("written with a point", "set --data.decimal ','"):
        read_table(path)
    data = read_table(path, decimal=",", separator="\t")
    assert data.splits["train"].inputs[0].max() < 40
    with refused("separator and decimal must be two characters"):
        read_table(path, decimal=".", separator=".")
    with refused("separator must be one character"):
        read_table(path, separator="::")


@pytest.mark.parametrize(
    ("text", "separator", "decimal"),
    [
        ("a,b\n1,2\n", ",", "."),
        ("a;b;y\n1,5;2,5;hi\n0,5;1,25;lo\n", ";", ","),
        ("1,5;2,5;hi\n0,5;1,25;lo\n", ";", ","),
        ('a,b\n1,"x;y"\n2,"z;w"\n', ",", "."),
        ("a,b;c\n1,2;3\n4,5;6\n", ";", ","),  # names with commas, decimal commas
        ("a|b\n1.5|x\n", "|", "."),
        ("a;b\n1.5;1,5\n", ";", "."),
        ("a;b\n1,500;x\n", ";", "."),  # thousands or thousandths: nothing tells
        ("a\tb\n1,5\t2\n", "\t", ","),
        ("a;b\n1.234,5;x\n", ";", ","),  # both marks in one number
        ("a;b\n1.234.567;x\n", ";", ","),  # two points
        ("a;b\n1,234.5;x\n", ";", "."),
        ("a;b\n1.234;x\n", ";", "."),
        ("a;b\n1.500;x\n7;x\n80;x\n950;x\n", ";", ","),  # a fraction is 1.5, or the others are 7.000
        ("a;b\n1.500 €;x\n7 €;x\n80 €;x\n950 €;x\n", ";", ","),
        ("a;b\n1.500;7\n2.500;80\n3.500;950\n", ";", "."),  # columns are apart
        ("a;b\n1.500;x\n-1;x\n2.500;x\n99;x\n", ";", "."),  # two may stand for missing values
        ("a;b\n1.501;x\n7;x\n80;x\n950;x\n", ";", "."),  # zeros may have been left out
        ("a;b\n1.500;x\n7;x\n80;x\n950;x\n1500;x\n", ";", "."),  # a thousand without a point
        ("a;b\n1.500;x\n7;x\n80;x\n950;x\n0.125;x\n", ";", "."),
        ("a;b\n1.234,5;1.5\n", ";", "."),  # of two that contradict each other the other is refused
    ],
)
def test_separator_and_decimal_mark(text: str, separator: str, decimal: str) -> None:
    assert separator_of(text) == separator
    assert decimal_of(text, separator)[0] == decimal


def column_of(path, **options) -> tuple[list[float], tuple[str, ...]]:
    """A column a, in the order of the file, and the notes."""
    data = read_table(path, target="y", **options)
    return encode(path, data.encoding).inputs[0][:, 0].tolist(), data.notes


def amounts(cells: list[str], mark: str = ";") -> str:
    return f"a{mark}y\n" + "".join(f"{cell}{mark}{'pq'[k % 2]}\n" for k, cell in enumerate(cells * 10))


@pytest.mark.parametrize(
    ("cells", "mark", "read", "said"),
    [
        (
            ["1.234,5", "999,25", "-2.345.678,5", "7"],
            ";",
            [1234.5, 999.25, -2345678.5, 7],
            "points of 1.234,5",
        ),
        (["1.234.567", "1.000", "12"], ";", [1234567, 1000, 12], "points of 1.234.567"),
        (['"1,234.5"', "999.25", '"1,000"'], ",", [1234.5, 999.25, 1000], "commas of 1,234.5"),
        (["1,234.5", "999.25", "1,000"], ";", [1234.5, 999.25, 1000], "commas of 1,234.5"),
    ],
)
def test_marks_that_divide_thousands(cells: list[str], mark: str, read: list[float], said: str, csv) -> None:
    """In Germany 1.234,5 is what 1,234.5 is in England (CLDR); as a category it would be a name."""
    found, notes = column_of(csv(amounts(cells, mark)))
    assert found[: len(cells)] == read
    assert f"column 'a': the {said} divide thousands" in notes


def test_one_point_before_three_digits_is_said_and_never_a_thousand_by_itself(csv) -> None:
    path = csv(amounts(["1.234", "2.345"]))
    found, notes = column_of(path)
    assert found[:2] == pytest.approx([1.234, 2.345])
    assert any(
        "1.234 is no thousand: if its point divides thousands, set --data.decimal ','" in n for n in notes
    )
    found, notes = column_of(path, decimal=",")
    assert found[:2] == [1234, 2345]
    assert "column 'a': the points of 1.234 divide thousands" in notes
    for sure in (amounts(["1.234", "0.345"]), amounts(["1.234", "2.5"]), amounts(["1.234", "7"], ",")):
        assert not any("thousand" in note for note in column_of(csv(sure))[1])


def test_one_column_tells_that_points_divide_thousands(csv) -> None:
    found, notes = column_of(csv(amounts(["2.000 €", "999 €", "1.500 €", "80 €", "7 €"])))
    assert found[:5] == [2000, 999, 1500, 80, 7]
    assert "column 'a': the points of 2.000 divide thousands" in notes


def test_numbers_written_in_two_ways_are_refused(csv, refused) -> None:
    with refused("row 2, column 'a'", "written with a point", "got '1.234,5'", "set --data.decimal ','"):
        read_table(csv(amounts(["1.234,5", "12.5"])))
    with refused("row 3, column 'a'", "written with a comma", "got '12.5'", "set --data.decimal '.'"):
        read_table(csv(amounts(["1.234,5", "12.5"])), decimal=",")
    with refused("row 2, column 'a'", "written with a point", "got '1.234,5'"):
        read_table(csv(amounts(['"1.234,5"', '"12,5"'], ",")))
    with refused("row 2, column 'a'", "written with a point", "got '1,234'"):
        read_table(csv(amounts(['"1,234"', "7"], ",")))


def test_a_thousand_far_below_decimal_commas_is_one(csv) -> None:
    """After a thousand rows of decimal commas polars takes 1.234 for a fraction."""
    rows = "".join(f"{k % 900},5;{'pq'[k % 2]}\n" for k in range(1500))
    path = csv("a;y\n" + rows + "1.234;p\n")
    assert column_of(path)[0][-1] == 1234


def test_new_rows_that_do_not_tell_their_mark_are_read_as_the_runs(csv) -> None:
    data = read_table(csv(amounts(["1.234,5", "999,25"])))
    new = [
        encode(csv(f"a;y\n{cell};p\n", "new.csv"), data.encoding).inputs[0].item()
        for cell in ("1.234", "1,500", "12.5", "12,5")
    ]
    assert new == [1234, 1.5, 12.5, 12.5]


WORDS = ["NA", "None", "null", "?"]


def test_typed_text_is_what_it_is_in_every_reading(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [WORDS[k % 4] for k in range(80)], "y": [WORDS[k // 20] for k in range(80)]})
    path = tmp_path / "d.parquet"
    frame.write_parquet(path)
    data = read_table(path, test_file=str(path))
    assert data.encoding["columns"][0]["categories"] == sorted(WORDS)
    assert classes_of(data) == sorted(WORDS)
    new = encode(path, data.encoding)
    assert new.targets.tolist() == data.splits["test"].targets.tolist()
    assert [classes_of(data)[k] for k in new.targets[::20].tolist()] == WORDS
    assert new.inputs[0].sum(0).tolist() == [20] * 4
    # the same rows as text: the run says what is missing
    frame.write_csv(tmp_path / "d.csv")
    text = encode(tmp_path / "d.csv", data.encoding)
    assert text.targets.tolist() == new.targets.tolist()


def test_objects_of_json_a_line_are_the_rows_of_a_typed_table(tmp_path: Path, refused) -> None:
    frame = pl.DataFrame(
        {"a": [WORDS[k % 4] for k in range(80)], "b": range(80), "y": [WORDS[k // 20] for k in range(80)]}
    )
    frame.write_parquet(tmp_path / "d.parquet")
    frame.write_ndjson(tmp_path / "d.jsonl")
    (tmp_path / "d.ndjson.gz").write_bytes(gzip.compress((tmp_path / "d.jsonl").read_bytes()))
    wanted = read_table(tmp_path / "d.parquet", target="y")
    for name in ("d.jsonl", "d.ndjson.gz"):
        data = open_data(tmp_path / name, {"target": "y"})
        assert data.fingerprint == wanted.fingerprint and data.encoding == wanted.encoding
    (tmp_path / "e.jsonl").write_text('{"a": 1}\n[2\n')
    with refused("e.jsonl: not a file of JSON with an object a line"):
        read_table(tmp_path / "e.jsonl")


def test_missing_values_are_named(tmp_path: Path, csv, refused) -> None:
    rows = "".join(f"{'-' if k == 3 else k},{('NA', 'no')[k % 2]}\n" for k in range(40))
    path = csv("a,y\n" + rows)
    data = read_table(path, missing_values="-", missing="mean")
    assert classes_of(data) == ["NA", "no"]
    assert data.encoding["columns"][0]["missing"] == 1
    assert len(encode(path, data.encoding)) == 40
    with refused("row 5, column 'a': '-' means a missing value"):
        read_table(path, missing_values="-")
    frame = pl.DataFrame({"a": [-999 if k == 3 else k for k in range(40)], "y": ["p", "-"] * 20})
    found = read_frame(frame, missing_values=["-999"], missing="median")
    assert found.encoding["columns"][0]["missing"] == 1
    assert len(encode(frame, found.encoding)) == 40
    with refused("column 'y'"):
        read_frame(frame, missing_values=["-"])


def rows_by_library(text: str, separator: str) -> list[list[str]]:
    reader = library.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    return [record for record in reader if len(record) > 1 or (record and record[0].strip())]


CELLS = [
    "1",
    "-2.5",
    "+3",
    "007",
    "x",
    "é",
    "a b",
    '"q"',
    '"a, b"',
    '"say ""no"""',
    '"two\nlines"',
    "NA",
    "",
    "1e3",
]


@pytest.mark.parametrize("seed", range(60))
def test_the_fast_reader_reads_what_the_library_reads(seed: int, tmp_path: Path) -> None:
    """Random files, quoted and ragged at the edges: equal to csv of the standard library, cell by cell."""
    draw = random.Random(seed)
    separator, end = draw.choice([",", ";", "\t"]), draw.choice(["\n", "\r\n"])
    kinds = draw.sample(CELLS, draw.choice([2, 4, len(CELLS)]))
    kinds = [cell.replace(",", separator) for cell in kinds]
    lines = ["a" + separator + "b" + separator + "c"]
    lines += [separator.join(draw.choice(kinds) for _ in range(3)) for _ in range(draw.randrange(2, 12))]
    if draw.random() < 0.2:
        lines.insert(2, "")
    text = end.join(lines) + end * draw.choice([0, 1, 3])
    path = tmp_path / "d.csv"
    path.write_bytes(text.encode())
    expected = rows_by_library(text, separator)[1:]
    table = load_table(path, writing=Writing(separator=separator))
    assert [list(row) for row in table.frame.iter_rows()] == expected
    typed = load_table(path, writing=Writing(separator=separator, text=("b",)))
    for name, cells in zip("abc", zip(*expected, strict=True), strict=True):
        column = typed.frame[name]
        if column.dtype == pl.String:
            assert column.to_list() == list(cells)
        else:
            assert name != "b"
            assert column.dtype.is_float() or all("00" not in cell for cell in cells)
            missing = [cell in typed.missing for cell in cells]
            found = [None if gone else float(cell) for gone, cell in zip(missing, cells, strict=True)]
            assert column.to_list() == found
    assert list(typed.rows) == list(table.rows)


def test_ragged_rows_whose_cells_add_up_are_found(csv, refused) -> None:
    with refused("row 3", "must have 3 cells", "got 2"):
        read_table(csv("a,b,y\n1,2,p\n1,2\n1,2,p,4\n" + "1,2,q\n" * 20))


def test_a_cell_is_named_as_it_is_written(csv, refused) -> None:
    rows = "".join(f"{'NA' if k == 20 else k / 8},{'pq'[k % 2]}\n" for k in range(40))
    with refused("row 22, column 'a': 'NA' means a missing value"):
        read_table(csv("a,y\n" + rows))


def test_a_first_row_of_numbers_is_said(csv, refused) -> None:
    rows = "".join(f"{k},5;{k % 3},25;{k % 2}\n" for k in range(20))
    with refused("if the first row is data, set --data.header none"):
        read_table(csv("0,5;0,25;hi\n" + rows))
    named = read_table(csv("0,5;0,25;7\n" + rows), target="7", task="classes")
    assert any("taken for names" in note and "--data.header none" in note for note in named.notes)
    path = csv("0,5;0,25;1\n" + rows)
    whole = read_table(path, header="none", target="column_3", task="classes")
    assert sum(map(len, whole.splits.values())) == 21
    assert not any("taken for names" in note for note in whole.notes)
    years = read_table(csv("2000,2001,y\n" + "1,2,a\n3,4,b\n" * 9), target="y")
    assert not any("taken for names" in note for note in years.notes)


@pytest.mark.parametrize(
    ("head", "target", "said"),
    [
        ("5.1,3,setosa", "setosa", True),  # a fraction
        ("5,3,setosa", "setosa", True),  # a class that comes again
        ("5,3,unseen", "unseen", False),  # as 2000,2001,country
        ("a,b,setosa", "setosa", False),  # no number
    ],
)
def test_a_first_row_of_numbers_and_a_text_is_said(csv, head: str, target: str, said: bool) -> None:
    path = csv(f"{head}\n" + "4.9,3,setosa\n6,2,virginica\n" * 10)
    data = read_table(path, target=target)
    assert any("taken for names" in note and "--data.header none" in note for note in data.notes) == said


def test_a_column_that_counts_the_rows_is_said(csv) -> None:
    rows = [(k + 7, k, k * 2, (k * 5) % 11, "xy"[k % 2]) for k in range(20)]
    data = read_table(csv("id,row,even,a,y\n" + "".join(f"{i},{r},{e},{a},{y}\n" for i, r, e, a, y in rows)))
    said = [note for note in data.notes if "counts the rows" in note]
    assert [note.split("'")[1] for note in said] == ["id", "row"]
    assert all("set --ignore" in note for note in said)
    alone = read_table(csv("x,y\n" + "".join(f"{k},{k % 3}.5\n" for k in range(20))))
    assert not any("counts the rows" in note for note in alone.notes)


def test_a_cell_that_means_missing_names_the_option_that_says_so(csv, refused) -> None:
    rows = "".join(f"{k % 4},{'xy'[k % 2]}\n" for k in range(20))
    words = "'NA' means a missing value; fill it in", "--data.missing-values"
    with refused("row 2, column 'a': ", *words):
        read_table(csv("a,y\nNA,x\n" + rows))
    with refused("row 2, column 'y': ", *words):
        read_table(csv("a,y\n1,NA\n" + rows))
    with pytest.raises(ValueError, match="the cell is empty") as empty:
        read_table(csv("a,y\n,x\n" + rows))
    assert "missing_values" not in str(empty.value)
    assert len(read_table(csv("a,y\n1,NA\n2,NA\n3,NA\n" + rows), missing_values="none").splits) == 3
