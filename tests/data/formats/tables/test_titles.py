"""What stands around a table in a file: titles, a word for the separator, empty rows and columns, totals."""

import shutil
import subprocess
from pathlib import Path

import pytest

from margin.data.description import describe, lines
from margin.data.formats.tables.tables import read_table
from margin.data.open import encode

HEAD = "name,size,y"
BODY = [f"{'abc'[k % 3]},{k * k},{'pq'[k % 2]}" for k in range(40)]
PLAIN = "\n".join([HEAD, *BODY]) + "\n"


def rows_of(data) -> dict[str, list[list[float]]]:
    return {part: held.inputs[0].tolist() for part, held in data.splits.items()}


def said(data) -> str:
    return "\n".join(lines(describe(data)))


TITLES = {
    "one line": ("Sales of 2023\n", 2),
    "with a blank line": ("Sales of 2023\n\n", 3),
    "two lines": ("Sales of 2023\nall shops\n\n", 4),
    "filled up by a spreadsheet": ("Sales of 2023,,\n,,\n", 3),
    "a comment": ("# from the till\n", 2),
    "Windows": ("Sales of 2023\r\n\r\n", 3),
}


@pytest.mark.parametrize("name", TITLES)
def test_a_title_above_the_header_is_left_out_and_said(name: str, csv, refused) -> None:
    title, head = TITLES[name]
    text = PLAIN.replace("\n", "\r\n") if name == "Windows" else PLAIN
    data, plain = read_table(csv(title + text)), read_table(csv(PLAIN, "plain.csv"))
    assert rows_of(data) == rows_of(plain)
    assert (
        f"the header is row {head}, below the title {title.split(chr(10))[0].strip(', ' + chr(13))!r}"
        in said(data)
    )
    assert encode(csv(title + text), plain.encoding).inputs[0].shape == (40, 4)
    wrong = title + text.replace("b,1,q", "b,x,q")
    with refused(f"row {head + 2}, column 'size': 'x' is not a number"):  # as an editor counts
        read_table(csv(wrong))
    with refused(f"row {head}: every column must have a name of its own"):
        read_table(csv(title + text.replace("name,", "size,", 1), "twice.csv"))


def test_ten_lines_may_stand_above_the_header_and_no_more(csv, refused) -> None:
    titles = "".join(f"line {k}\n" for k in range(10))
    assert rows_of(read_table(csv(titles + PLAIN))) == rows_of(read_table(csv(PLAIN, "plain.csv")))
    with refused("row 12: every row must have 1 cells"):
        read_table(csv(titles + "line 10\n" + PLAIN))


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("name,,\n" + "ann,1,p\nbob,2,q\n" * 9, "column 2 has no name"),  # no title: the next row is data
        ("ann b,,\n" + "ann,bob,carl\n" * 9, "column 2 has no name"),
        ("a\n1,x\n3,y\n", "row 2: every row must have 1 cells"),
        ("Sales, 2023\n" + PLAIN, "row 2: every row must have 2 cells"),
    ],
)
def test_what_may_be_a_header_is_no_title(text: str, refusal: str, csv, refused) -> None:
    with refused(refusal):
        read_table(csv(text))


def test_a_title_with_a_separator_is_named(csv, refused) -> None:
    with refused("row 2: every row must have 2 cells, as the first has: got 3", "is a title, remove it"):
        read_table(csv("Sales, 2023\n" + PLAIN))
    with pytest.raises(ValueError, match="row 4: every row must have 3 cells") as error:
        read_table(csv(PLAIN.replace("b,1,q\n", "b,1,q\nc,2,3,q\n")))
    assert "is a title" not in str(error.value)


def test_a_file_without_a_header_has_no_title(csv) -> None:
    data = read_table(csv("\n".join(BODY) + "\n"), header="none", target="column_3")
    assert sum(map(len, data.splits.values())) == 40


@pytest.mark.parametrize("mark", [";", "\t", ","])
def test_a_spreadsheets_word_for_the_separator(mark: str, csv) -> None:
    data = read_table(csv(f"sep={mark}\n" + PLAIN.replace(",", mark)))
    assert rows_of(data) == rows_of(read_table(csv(PLAIN, "plain.csv")))


def test_unicode_of_a_spreadsheet(tmp_path: Path, csv, refused) -> None:
    """Excel writes "Unicode text" as UTF-16 with tabs, "CSV UTF-8" with a byte order mark."""
    plain = rows_of(read_table(csv(PLAIN, "plain.csv")))
    data = read_table(csv(PLAIN.replace(",", "\t").encode("utf-16")))
    assert rows_of(data) == plain and "the file is UTF-16" in data.notes
    assert rows_of(read_table(csv("\ufeff" + PLAIN))) == plain
    with refused("a table that begins as UTF-16"):
        read_table(csv(PLAIN.encode("utf-16") + b"\x00"))


def test_the_remedy_of_another_encoding_reads_it(tmp_path: Path, csv) -> None:
    path = csv(PLAIN.replace("a,", "\u00e4,").encode("cp1252"))
    with pytest.raises(ValueError, match="run: iconv") as error:
        read_table(path)
    if shutil.which("iconv") is None:
        pytest.skip("this machine has no iconv")
    subprocess.run(str(error.value).split("run: ")[1], shell=True, check=True, cwd=path.parent)
    data = read_table(path.with_name(f"new-{path.name}"))
    assert data.encoding["columns"][0]["categories"] == ["b", "c", "\u00e4"]


def test_empty_rows_are_no_examples_and_new_ones_are_named(csv, refused) -> None:
    text = PLAIN.replace("b,1,q\n", "b,1,q\n,,\n") + ",,\n , ,\n"
    data = read_table(csv(text))
    assert rows_of(data) == rows_of(read_table(csv(PLAIN, "plain.csv")))
    assert "3 rows without a filled cell are left out" in data.notes
    with refused("row 4, column 'name': the cell is empty"):  # an answer a row
        encode(csv(text), data.encoding)
    typed = read_table(csv("a,b,y\n" + "1,2,p\n,,\n3,4,q\n" * 9))
    assert sum(map(len, typed.splits.values())) == 18
    with refused("row 3, column 'y': the cell is empty (9 such cells"):
        read_table(csv("a,b,y\n" + "1,2,p\n5,,\n3,4,q\n" * 9))


def test_a_separator_at_the_end_of_each_line_makes_no_column(csv, refused) -> None:
    text = PLAIN.replace("\n", ",\n")
    data = read_table(csv(text))
    assert rows_of(data) == rows_of(read_table(csv(PLAIN, "plain.csv")))
    assert "column_4 has neither a name nor a filled cell: it is left out" in data.notes
    with refused("row 1: column 4 has no name; name it in the header, or set --ignore column_4"):
        read_table(csv(text.replace("b,1,q,", "b,1,q,7")))
    assert read_table(csv(text.replace("b,1,q,", "b,1,q,7")), ignore="column_4")


@pytest.mark.parametrize("word", ["Total", "TOTAL:", "Grand total", "sum"])
def test_a_total_is_no_example(word: str, csv, refused) -> None:
    total = sum(k * k for k in range(40))
    for row in (f"{word},{total},", f"{word},{total},p", f"{word},{total / 40},"):
        with refused(f"row 42, column 'name': the row {word!r} sums those above it", "remove it"):
            read_table(csv(PLAIN + row + "\n"))
    assert sum(map(len, read_table(csv(PLAIN + f"{word},{total},\n"), missing="drop").splits.values())) == 40
    assert read_table(csv(PLAIN + f"{word},{total + 1},p\n"))  # it sums nothing
    assert read_table(csv(PLAIN + f"tot,{total},p\n"))


def test_a_second_header_is_named(csv, refused) -> None:
    with refused("row 2, column 'size': 'cm' is not a number", "if row 2 is a second header, remove it"):
        read_table(csv(PLAIN.replace("a,0,p", "text,cm,p", 1)))
    with pytest.raises(ValueError, match="'cm' is not a number") as error:
        read_table(csv(PLAIN.replace("b,1,q", "b,cm,q", 1)))
    assert "second header" not in str(error.value)


def test_a_target_of_one_value_is_said(csv) -> None:
    rows = [f"{k},{k * k % 7},5\n" for k in range(40)]
    said = "the target 'y' has one value in every row: nothing can be learned of it"
    assert said in read_table(csv("a,b,y\n" + "".join(rows)), target="y", task="values").notes
    rows[-1] = rows[-1].replace(",5", ",6")
    assert said not in read_table(csv("a,b,y\n" + "".join(rows), "b.csv"), target="y", task="values").notes


def test_columns_of_one_value_are_said(csv) -> None:
    data = read_table(csv(PLAIN.replace("\n", ",7,x\n").replace(",7,x", ",u,v", 1)), target="y")
    assert "columns 'u', 'v' hold one value each, which tells a model nothing; --ignore u,v" in data.notes
    assert rows_of(
        read_table(csv(PLAIN.replace("\n", ",7,x\n").replace(",7,x", ",u,v", 1)), target="y", ignore="u,v")
    )
    assert not any("one value" in note for note in read_table(csv(PLAIN)).notes)


def test_a_number_with_a_unit_of_letters_is_named(csv, refused) -> None:
    rows = "".join(f"{k * 3} kg,{'pq'[k % 2]}\n" for k in range(60))
    with refused("if they are numbers, write them without 'kg'"):
        read_table(csv("a,y\n" + rows))
    assert read_table(csv("a,y\n" + rows.replace(" kg", ""))).encoding["columns"][0]["kind"] == "number"
