"""Times that fall, come twice or leave gaps, cells that are missing: named by row, column and time."""

from pathlib import Path

import pytest

from margin.data.formats.series.table import load_steps


def write(path, text):
    path.write_text(text)
    return path


def days(path, *lines):
    return write(path, "\n".join(("date,x,y", *lines)) + "\n")


FINE = ("2020-01-01,1,10", "2020-01-02,2,20", "2020-01-03,3,30", "2020-01-04,4,40")


def test_rows_are_numbers_in_order_of_time(tmp_path):
    steps = load_steps(days(tmp_path / "a.csv", *FINE))
    assert steps.values.tolist() == [[1, 10], [2, 20], [3, 30], [4, 40]]
    assert steps.columns == ("x", "y")
    assert steps.spacing == "2020-01-01 to 2020-01-04, 1 day a row"


def test_a_missing_cell_is_named_by_row_column_and_time(tmp_path, refused):
    file = days(tmp_path / "a.csv", FINE[0], "2020-01-02,,20", *FINE[2:])
    with refused(
        "a.csv, row 3",
        "'x'",
        "2020-01-02",
        "fill it in, train with --data.missing last, or train with --data.ignore 'x'",
    ):
        load_steps(file)
    steps = load_steps(file, missing="last")
    assert steps.values[:, 0].tolist() == [1, 1, 3, 4]
    assert any("1 missing" in note for note in steps.notes)


def test_nothing_stands_before_the_first_value(tmp_path, refused):
    with refused("row 2", "'x'", "first value"):
        load_steps(days(tmp_path / "a.csv", "2020-01-01,NaN,10", *FINE[1:]), missing="last")


def test_times_that_fall_or_come_twice_are_refused(tmp_path, refused):
    with refused("row 4", "order of time", "2020-01-02", "2020-01-03"):
        load_steps(days(tmp_path / "a.csv", FINE[0], FINE[2], FINE[1], FINE[3]))
    with refused("row 3", "2020-01-01", "comes twice", "train with --data.time-column", "--data.ignore"):
        load_steps(days(tmp_path / "b.csv", FINE[0], *FINE))


def test_the_newest_row_may_be_the_first(tmp_path, refused):
    steps = load_steps(days(tmp_path / "a.csv", *FINE[::-1]), ahead=1)
    assert steps.values.tolist() == [[1, 10], [2, 20], [3, 30], [4, 40]]
    assert steps.times == ("2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04")
    assert steps.later == ("2020-01-05",)
    assert "the newest row is the first: rows are read from the last one up" in steps.notes
    with refused("row 3, column 'x'", "2020-01-03"):  # rows keep the numbers of the file
        load_steps(days(tmp_path / "b.csv", FINE[3], "2020-01-03,,30", FINE[1], FINE[0]))
    with refused("comes twice"):
        load_steps(days(tmp_path / "c.csv", FINE[3], FINE[2], FINE[2], FINE[0]))


def test_several_series_in_one_file_and_a_clock_in_another_column_are_told(tmp_path, refused):
    with refused("row 6", "if another series begins here, give each a file, or a column, of its own"):
        load_steps(days(tmp_path / "a.csv", *FINE, *FINE))
    later = [f"2020-01-0{k},{k},1" for k in (5, 4)]
    with pytest.raises(ValueError, match=r"row 7, .*sort them$"):
        load_steps(days(tmp_path / "b.csv", *FINE, *later))
    with refused("if the clock stands in another column, write both in one"):
        load_steps(write(tmp_path / "c.csv", "date,clock,x\n2020-01-01,1,5\n2020-01-01,2,6\n"))


def test_dates_are_times_whatever_the_column_is_called(tmp_path, refused):
    file = write(tmp_path / "a.csv", "Stichtag,x\n2020-01-01,5\n2020-01-02,6\n2020-01-03,7\n")
    assert load_steps(file).time_column == "Stichtag"
    assert load_steps(file).columns == ("x",)
    both = write(tmp_path / "b.csv", "born,date,x\n1990-01-01,2020-01-01,5\n1991-01-01,2020-01-02,6\n")
    with refused("column 'born'", "a series must be numbers"):
        load_steps(both)
    assert load_steps(both, ignore="born").time_column == "date"


def test_a_time_that_is_none_is_named_by_its_row(tmp_path, refused):
    with refused("row 4, column 'date'", "a time must be a date", "got '2020-13-03'"):
        load_steps(days(tmp_path / "a.csv", *FINE[:2], "2020-13-03,3,30", FINE[3]))
    dates = [f"{k}.01.2020" for k in range(12, 31)]
    rows = "".join(f"{date},{k}\n" for k, date in enumerate([*dates, "31.01.20"]))
    with refused("row 21, column 'when'", "must be written as the others, %d.%m.%Y", "got '31.01.20'"):
        load_steps(write(tmp_path / "b.csv", "when,x\n" + rows), time_column="when")
    zones = [f"2020-01-01T0{k}:00:00{'Z' * (k < 3)},{k}" for k in range(6)]
    with refused("row 5", "all times must have their offset from UTC, or none", "'2020-01-01T03:00:00'"):
        load_steps(write(tmp_path / "c.csv", "\n".join(["time,x", *zones]) + "\n"))


def test_a_time_that_is_no_number_is_refused(tmp_path, refused):
    file = write(tmp_path / "a.csv", "t,x\n1,5\nnan,6\n3,7\n")
    with refused("a.csv, row 3", "'t'", "a time must be a date"):
        load_steps(file, time_column="t")


def test_gaps_are_named(tmp_path):
    steps = load_steps(days(tmp_path / "a.csv", *FINE, "2020-01-09,5,50", "2020-01-10,6,60"))
    assert any("2020-01-04 to 2020-01-09" in note for note in steps.notes)
    assert steps.spacing.endswith("1 gap")


def test_months_are_no_gaps(tmp_path):
    lines = [f"2020-{month:02d},{month}" for month in range(1, 13)]
    steps = load_steps(write(tmp_path / "a.csv", "\n".join(("month,x", *lines)) + "\n"))
    assert steps.notes == ()
    digits = [f"2020{month:02d}01,{month}" for month in range(1, 13)]
    steps = load_steps(write(tmp_path / "b.csv", "\n".join(("date,x", *digits)) + "\n"))
    assert steps.notes == ()
    assert steps.spacing.endswith(", 1 month a row")


def test_a_column_of_times_can_be_named_or_left_out(tmp_path, refused):
    file = write(tmp_path / "a.csv", "when,x\n1,5\n2,6\n3,7\n")
    assert load_steps(file).columns == ("when", "x")
    assert load_steps(file, time_column="when").columns == ("x",)
    assert load_steps(file, ignore="when").columns == ("x",)
    with refused("no column 'then'"):
        load_steps(file, time_column="then")
    with refused("no column 'then'"):
        load_steps(file, ignore="then")
    with refused("none is left"):
        load_steps(file, time_column="when", ignore="x")


def test_a_year_that_repeats_may_be_left_out(tmp_path):
    file = write(tmp_path / "a.csv", "year,x\n2000,5\n2000,6\n2001,7\n")
    with pytest.raises(ValueError, match="comes twice"):
        load_steps(file)
    assert load_steps(file, ignore="year").time_column is None


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "1e300",
            "got 1e300; correct the cell, leave it empty and train with --data.missing last, or train ",
        ),
        (
            "x",
            "'x' is not a number, and 11 of the column's 12 values are; correct the cell, leave it empty",
        ),
    ],
)
def test_a_wrong_cell_is_refused_with_the_options_of_a_series(cell, message, tmp_path, refused):
    lines = [f"2020-01-{day:02d},{day},{cell if day == 5 else day}" for day in range(1, 13)]
    file = days(tmp_path / "a.csv", *lines)
    with refused("a.csv, row 6, column 'y'", message, "train with --data.missing last", "--data.ignore 'y'"):
        load_steps(file)


def test_new_rows_are_refused_without_options_that_a_run_does_not_take(tmp_path):
    file = days(tmp_path / "a.csv", FINE[0], "2020-01-02,1e300,20")
    with pytest.raises(ValueError, match=r"row 3, column 'x': .*: got 1e300; correct the cell$"):
        load_steps(file, wanted={"x": {}, "y": {}})


def test_a_column_without_a_cell_is_refused_with_the_options_of_a_series(tmp_path, refused):
    file = days(tmp_path / "a.csv", "2020-01-01,,10", "2020-01-02,,20")
    with refused("column 'x': every cell is missing; train with --data.ignore 'x'"):
        load_steps(file)


def test_text_is_no_series(tmp_path, refused):
    file = write(tmp_path / "a.csv", "x,kind\n1,red\n2,blue\n")
    with refused("'kind'", "'red'", "--data.ignore"):
        load_steps(file)
    with refused("row 3", "a time must be", "'later'"):
        load_steps(write(tmp_path / "b.csv", "t,x\n1,5\nlater,6\n"), time_column="t")


def test_parquet_with_dates_is_read(tmp_path):
    import datetime

    import polars as pl

    frame = pl.DataFrame({"date": [datetime.date(2020, 1, k) for k in (1, 2, 3)], "x": [1.0, 2.0, 3.0]})
    frame.write_parquet(tmp_path / "a.parquet")
    steps = load_steps(tmp_path / "a.parquet")
    assert steps.columns == ("x",)
    assert "1 day a row" in steps.spacing


@pytest.mark.parametrize(
    "form", ["{}T00:00:00.250000", "{} 00:00:00.25", "{}T00:00:00Z", "{}T00:00:00+02:00"]
)
def test_times_may_have_parts_of_seconds_and_a_zone(tmp_path: Path, form: str) -> None:
    rows = [f"{form.format(f'2020-01-0{k}')},{k}" for k in (1, 2, 3)]
    (tmp_path / "x.csv").write_text("\n".join(["time,a", *rows]))
    steps = load_steps(tmp_path / "x.csv")
    assert steps.time_column == "time"
    assert str(steps.step) == "1 day"


def test_numbers_with_a_unit_are_read_with_it_and_refused_without(tmp_path, refused):
    lines = [f"2020-01-0{k},{k}.5 %,{k}'000" for k in range(1, 5)]
    steps = load_steps(days(tmp_path / "a.csv", *lines))
    assert steps.values.tolist() == [[k + 0.5, 1000 * k] for k in range(1, 5)]
    assert steps.written == {"x": {"unit": "%"}}
    again = load_steps(tmp_path / "a.csv", wanted={"x": {}, "y": {}} | dict(steps.written))
    assert again.values.tolist() == steps.values.tolist()
    with refused("row 2, column 'x'", "must be written with %", "'1'"):
        load_steps(days(tmp_path / "b.csv", *FINE), wanted={"x": {}, "y": {}} | dict(steps.written))


def test_thousands_stay_divided_by_the_comma_that_the_training_told(tmp_path):
    """In new rows no number tells that 1,500 is no 1.5."""
    lines = [f'2020-01-0{k},"{k},500","{k},250.5"' for k in range(1, 5)]
    steps = load_steps(days(tmp_path / "a.csv", *lines))
    new = days(tmp_path / "b.csv", '2020-01-01,"1,500",2', '2020-01-02,"7,500",2')
    assert load_steps(new, wanted={"x": {}, "y": {}} | dict(steps.written)).values[:, 0].tolist() == [
        1500,
        7500,
    ]
