"""Numbers and dates as people write them: read where there is one reading, else refused with what reads them.

Expected values are those that were written down; every remedy of a refusal is set, and reads them.
"""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

import margin
from margin.data.description import describe, lines
from margin.data.formats.tables.tables import read_frame, read_table
from margin.data.formats.tables.written_numbers import unwritten
from margin.data.open import encode, open_data

ROWS = 40
NUMBERS = [round(3.5 + 1.25 * k, 2) for k in range(ROWS)]
DAYS = pd.date_range("2023-01-01", periods=ROWS, freq="31D")


def written(cells: list[str], separator: str = ";", beside: str = "1") -> str:
    rows = (f"{cell}{separator}{beside}{separator}{'pq'[k % 2]}" for k, cell in enumerate(cells))
    return f"a{separator}b{separator}y\n" + "\n".join(rows) + "\n"


def column_of(path: Path, **options) -> tuple[list[float], str]:
    """A column a as the run's record reads it, in the order of the file, and what ``data show`` says."""
    data = read_table(path, target="y", ignore="b", **options)
    return encode(path, data.encoding).inputs[0][:, 0].tolist(), "\n".join(lines(describe(data)))


FORMS = {
    "percent": ("{:.2f} %", "'3.50 %' is read as 3.5 %"),
    "percent without a space": ("{:.2f}%", "'3.50%' is read as 3.5 %"),
    "dollar": ("$ {:.2f}", "'$ 3.50' is read as 3.5 $"),
    "code": ("EUR {:.2f}", "'EUR 3.50' is read as 3.5 EUR"),
    "decimal comma and euro": ("{:.2f} €", "is read as 3.5 €"),
    "exponent": ("{:.4e}", "number"),
    "typographic minus": ("\u2212{:.2f}", "is read as -3.5"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_unit_or_a_typographic_minus_is_no_text(name: str, csv) -> None:
    form, said = FORMS[name]
    cells = [form.format(number) for number in NUMBERS]
    if "comma" in name:
        cells = [cell.replace(".", ",") for cell in cells]
    found, shown = column_of(csv(written(cells)))
    np.testing.assert_allclose(found, np.array(NUMBERS) * (-1 if "minus" in name else 1))
    assert said in shown


@pytest.mark.parametrize("mark", [" ", "\u00a0", "\u202f", "'", "\u2019"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_thousands_that_spaces_and_apostrophes_divide(mark: str, decimal: str, csv) -> None:
    """As CLDR writes them in French, Swedish and Swiss German."""
    numbers = [1000 * number for number in NUMBERS] + [1234567.5]
    cells = [
        f"{number:,.1f}".replace(".", "#").replace(",", mark).replace("#", decimal) for number in numbers
    ]
    found, shown = column_of(csv(written(cells)))
    np.testing.assert_allclose(found, numbers)
    assert "is read as 3500" in shown


def test_one_unit_a_column(csv, refused) -> None:
    cells = [f"{k + 1} %" if k % 3 else f"0.{k + 10}" for k in range(ROWS)]
    with refused("row 3, column 'a'", "must have one unit: got '2 %' beside '0.10'", "--ignore 'a'"):
        column_of(csv(written(cells)))
    assert read_table(csv(written(cells)), target="y", ignore="a").encoding["columns"][0]["name"] == "b"
    with refused("must have one unit: got '€ 2' beside '$ 1'"):
        column_of(csv(written(["$ 1", "€ 2"] * 20)))
    with refused("must have one unit: got '$ 2 %'"):
        column_of(csv(written(["$ 1", "$ 2 %"] * 20)))


def test_new_rows_bear_the_unit_of_the_training(csv, refused, tmp_path: Path) -> None:
    """0.12 is not 12 %: which was meant is asked."""
    data = read_table(csv(written([f"{number} %" for number in NUMBERS])), target="y")
    assert data.encoding["columns"][0]["unit"] == "%"
    new = csv("a;b\n7 %;1\n", "new.csv")
    assert encode(new, data.encoding).inputs[0].tolist() == [[7, 1]]
    for cell in ("0.07", "$ 7"):
        with refused("row 2, column 'a': numbers must be written with %, as those of the training", cell):
            encode(csv(f"a;b\n{cell};1\n", "new.csv"), data.encoding)
    with refused("row 1, column 'a': numbers must be written with %"):
        encode(pl.DataFrame({"a": [0.07], "b": [1]}), data.encoding)
    plain = read_table(csv(written([str(number) for number in NUMBERS])), target="y")
    with refused("row 2, column 'a': '7 %' is not a number"):
        encode(csv("a;b\n7 %;1\n", "new.csv"), plain.encoding)


def test_a_target_with_a_unit_is_values(csv) -> None:
    path = csv("a;y\n" + "".join(f"{k};$ {number}\n" for k, number in enumerate(NUMBERS)))
    data = read_table(path, target="y")
    assert data.encoding["task"] == "values"
    np.testing.assert_allclose(encode(path, data.encoding).targets, NUMBERS)


@pytest.mark.parametrize(
    "cells",
    [
        ["a1", "a2"],
        ["Q1 2", "Q2 3"],
        ["1.2.10", "1.13.10"],
        ["12.01.23x", "13.01.23x"],
        ["1-2", "2-3"],
        ["x %", "y %"],
        ["-", "+"],
    ],
)
def test_names_with_digits_stay_names(cells: list[str], csv) -> None:
    data = read_table(csv(written(cells * 20)), target="y")
    assert data.encoding["columns"][0]["kind"] == "category"
    assert unwritten(pl.Series(cells)) is None


@pytest.mark.parametrize("mark", ["-", "--", "\u2014", "#DIV/0!"])
def test_a_dash_among_numbers_is_a_missing_cell(mark: str, csv, refused) -> None:
    cells = [mark if k % 5 == 0 else str(NUMBERS[k]) for k in range(ROWS)]
    path = csv(written(cells))
    with refused(
        "row 2, column 'a'", f"{mark!r} means a missing value (8 such cells", "set --missing drop, mean"
    ):
        column_of(path)
    found, shown = column_of(path, missing="indicate")
    present = [k for k in range(ROWS) if k % 5]
    np.testing.assert_allclose(np.array(found)[present], np.array(NUMBERS)[present])
    assert f"8 cells are {mark!r}: they are missing" in shown and "8 missing" in shown
    # a class or category of that name stays one, and so it does where the user names what is missing
    assert (
        read_table(csv(written([mark, "+"] * 20)), target="y").encoding["columns"][0]["categories"][0]
        in "+" + mark
    )
    with refused("is not a number"):
        column_of(csv(written([mark, *map(str, NUMBERS)])), missing_values="none")


def thousands() -> str:
    return written([f'"{1 + k},{k:03}"' for k in range(ROWS)], ",")


def test_a_comma_before_three_digits_is_asked_for_and_both_answers_read_it(csv, refused) -> None:
    path = csv(thousands())
    with refused(
        "row 2, column 'a'",
        "got '1,000'; set --data.decimal ',' if that is the decimal mark, '.' if it divides thousands",
    ):
        column_of(path)
    found, shown = column_of(path, decimal=".")
    assert found == [1000 * (1 + k) + k for k in range(ROWS)]
    assert "the commas of 1,000 divide thousands" in shown
    found, shown = column_of(path, decimal=",")
    np.testing.assert_allclose(found, [1 + k + k / 1000 for k in range(ROWS)])
    assert "decimal comma" in shown


def test_a_decimal_point_elsewhere_tells_that_commas_divide_thousands(csv, refused) -> None:
    found, shown = column_of(csv(thousands().replace(",1,", ",1.5,")))
    assert found == [1000 * (1 + k) + k for k in range(ROWS)]
    assert "the commas of 1,000 divide thousands" in shown
    with refused("'0,125' is not a number"):  # nobody writes a thousand as 0,125
        column_of(csv(thousands().replace(",1,", ",1.5,").replace('"9,008"', '"0,125"')))


def test_new_rows_have_the_thousands_of_the_training_alone(csv, refused) -> None:
    told = read_table(csv(thousands()), target="y", decimal=".")
    plain = read_table(csv(written([str(number) for number in NUMBERS], ",")), target="y")
    new = csv('a,b\n"7,000",1\n', "new.csv")
    assert encode(new, told.encoding).inputs[0][0, 0] == 7000
    with refused("row 2, column 'a': '7,000' is not a number"):
        encode(new, plain.encoding)


# dates

DATES = {
    "day first": "%d/%m/%Y",
    "month first": "%m/%d/%Y",
    "points and a clock": "%d.%m.%Y %H:%M",
    "noon": "%m/%d/%Y %I:%M %p",
    "two digits": "%d-%m-%y",
    "month by name": "%d %b %Y",
    "American": "%b %d, %Y",
    "Oracle": "%d-%b-%y",
}


@pytest.mark.parametrize("name", DATES)
def test_dates_whose_order_one_of_them_tells(name: str, csv, refused) -> None:
    """Of 28/06/2023 the day comes first; then it does in 03/04/2023 of the same column."""
    form = DATES[name]
    found, shown = column_of(csv(written([f'"{day.strftime(form)}"' for day in DAYS])))
    np.testing.assert_array_equal(found, (DAYS - pd.Timestamp(0)).days)
    assert "tells" in shown or f"dates are written as {DAYS[0].strftime(form)!r}" in shown
    cells = [f'"{day.strftime(form)}"' for day in DAYS]
    data = read_table(csv(written(cells)), target="y", ignore="b")
    new = csv(f'a\n"{pd.Timestamp("2023-04-03").strftime(form)}"\n', "new.csv")
    assert encode(new, data.encoding).inputs[0][0, 0] == (pd.Timestamp("2023-04-03") - pd.Timestamp(0)).days
    with refused("row 6, column 'a': 'soon' is not a date"):
        column_of(csv(written([*cells[:4], "soon", *cells[5:]])))


MONTHS = {  # Unicode CLDR: wide and abbreviated
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "de short": "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "fr short": "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
}


@pytest.mark.parametrize("name", MONTHS)
def test_months_may_have_german_and_french_names(name: str, csv, refused) -> None:
    first = {"de": "1. ", "fr": "1er "}[name[:2]]

    def form(day: pd.Timestamp) -> str:
        number = first if day.day == 1 else f"{day.day}{'. ' if name[:2] == 'de' else ' '}"
        return f"{number}{MONTHS[name].split()[day.month - 1]} {day.year}"

    cells, expected = [form(day) for day in DAYS], (DAYS - pd.Timestamp(0)).days
    found, shown = column_of(csv(written(cells)))
    np.testing.assert_array_equal(found, expected)
    assert f"dates are written as {cells[0]!r}" in shown
    data = read_table(csv(written(cells)), target="y", ignore="b")
    new = csv(f"a\n{form(pd.Timestamp('2024-12-01'))}\n", "new.csv")
    assert encode(new, data.encoding).inputs[0][0, 0] == (pd.Timestamp("2024-12-01") - pd.Timestamp(0)).days
    with refused("row 6, column 'a': '4. Brumaire 2023' is not a date"):
        column_of(csv(written([*cells[:4], "4. Brumaire 2023", *cells[5:]])))


def test_an_order_that_nothing_tells_is_asked_for_and_both_answers_read_it(csv, refused) -> None:
    days = [pd.Timestamp(2023, 1 + k % 12, 1 + (5 * k) % 11) for k in range(ROWS)]
    path = csv(written([day.strftime("%d/%m/%Y") for day in days]))
    forms = "'%d/%m/%Y' (the day first) or '%m/%d/%Y' (the month first)"
    with refused(
        "row 2, column 'a': day and month must not be mixed up: got '01/01/2023'", forms, "--ignore 'a'"
    ):
        column_of(path)
    found, _ = column_of(path, date_format="%d/%m/%Y")
    assert found == [(day - pd.Timestamp(0)).days for day in days]
    found, _ = column_of(path, date_format="%m/%d/%Y")
    assert found == [(pd.Timestamp(day.year, day.day, day.month) - pd.Timestamp(0)).days for day in days]


def test_two_orders_in_one_column_are_refused(csv, refused) -> None:
    cells = [day.strftime("%d/%m/%Y" if k % 2 else "%m/%d/%Y") for k, day in enumerate(DAYS)]
    with refused("day and month must not be mixed up"):
        column_of(csv(written(cells)))


@pytest.mark.parametrize("other", ["%d/%m/%Y", "%Y-%m-%d 00:00", "%Y/%m/%d", "%d %b %Y"])
def test_two_ways_of_one_column(other: str, csv) -> None:
    cells = [day.strftime("%Y-%m-%d" if k % 2 else other) for k, day in enumerate(DAYS)]
    found, _ = column_of(csv(written(cells)))
    np.testing.assert_array_equal(found, (DAYS - pd.Timestamp(0)).days)


def test_dates_of_digits_are_said_and_read_where_it_is_asked_for(csv, tmp_path: Path) -> None:
    cells = [day.strftime("%Y%m%d") for day in DAYS]
    path, expected = csv(written(cells)), (DAYS - pd.Timestamp(0)).days
    found, shown = column_of(path)
    np.testing.assert_allclose(found, [float(cell) for cell in cells])
    assert "if 20230101 is a date, set --data.date-format '%Y%m%d'" in shown
    found, _ = column_of(path, date_format="%Y%m%d")
    np.testing.assert_array_equal(found, expected)
    frame = pd.read_csv(io.StringIO(written(cells)), sep=";")
    assert frame["a"].dtype.kind == "i"
    data = read_frame(frame, target="y", ignore="b", date_format="%Y%m%d")
    np.testing.assert_array_equal(encode(frame, data.encoding).inputs[0][:, 0], expected)
    for other in ("20231301", "10000101", "2023010"):  # of no month, of no time of ours, of seven digits
        assert "is a date" not in column_of(csv(written([*cells, other])))[1]


# words


def test_yes_in_capitals_is_yes(csv) -> None:
    text = "a,y\n" + "".join(
        f"{['Yes', 'yes', 'NO', 'no'][k % 4]},{['Y', 'y', 'N'][k % 3]}\n" for k in range(60)
    )
    data = read_table(csv(text), target="y")
    assert data.encoding["classes"] == ["n", "y"]
    assert data.encoding["columns"][0]["categories"] == ["no", "yes"]
    assert any("NO, Yes, no, yes are no and yes" in note for note in data.notes)
    new = encode(csv("a,y\nYES,Y\nnO,n\n", "new.csv"), data.encoding)
    assert new.inputs[0].tolist() == [[0, 1], [1, 0]] and new.targets.tolist() == [1, 0]


def test_other_names_that_differ_in_capitals_are_said_and_stay_apart(csv) -> None:
    """Co is cobalt, CO is a poison."""
    data = read_table(csv("a,y\n" + "Co,p\nCO,q\nNi,p\n" * 20), target="y")
    assert data.encoding["columns"][0]["categories"] == ["CO", "Co", "Ni"]
    assert "column 'a': 'CO' and 'Co' differ in capitals alone and are categories apart" in data.notes


# texts


def test_texts_with_a_class_are_tokens_in_a_table_and_in_folders(csv, tmp_path: Path, refused) -> None:
    texts = [f"a {'fine' if k % 2 else 'dull'} film of {k} minutes, number {k}" for k in range(60)]
    labels = ["good" if k % 2 else "bad" for k in range(60)]
    rows = "".join(f'"{text}",{label}\n' for text, label in zip(texts, labels, strict=True))
    with refused("60 different texts", "--data.text 'text'", "text:FILE", "pairs:FILE"):
        read_table(csv("text\n" + "".join(f'"{text}"\n' for text in texts)))
    table = read_table(csv("text,label\n" + rows))
    assert table.encoding["format"] == "texts"
    for k, (text, label) in enumerate(zip(texts, labels, strict=True)):
        (tmp_path / "folder" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / label / f"{k}.txt").write_text(text)
    with refused("a class folder must hold images: got 30 texts", f"is read as texts:{tmp_path / 'folder'}"):
        open_data(tmp_path / "folder", {})
    folders = open_data(f"texts:{tmp_path / 'folder'}", {})
    assert folders.encoding["classes"] == table.encoding["classes"]
    assert folders.spec["vocab_size"] == table.spec["vocab_size"]  # other texts are drawn, as many
    counts = TfidfVectorizer().fit_transform(texts).toarray().astype("float32")
    data = open_data((counts, np.array(labels)), {})
    run = margin.train("logistic_regression", data, training=margin.Training(epochs=20), out=tmp_path / "r")
    assert run.metrics["test_accuracy"] == 1
