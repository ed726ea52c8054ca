"""Times off the grid, other rates, dates of two readings: named, refused, allowed or resampled by option."""

import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from margin.cli import main
from margin.data.formats.series.clock import Clock
from margin.data.formats.series.sources import Window, encode_series, read_series
from margin.data.formats.series.step import off_grid, on_grid
from margin.data.formats.series.table import load_steps

START = datetime.datetime(2024, 1, 1)


def stamped(path: Path, minutes, form: str = "%Y-%m-%d %H:%M:%S") -> Path:
    """A row at each of so many minutes after the start, whose value is its number."""
    rows = [f"{START + datetime.timedelta(minutes=float(m)):{form}},{k}" for k, m in enumerate(minutes)]
    path.write_text("\n".join(("date,x", *rows)) + "\n")
    return path


MINUTES_THEN_HOURS = [*range(140), *(139 + 60 * k for k in range(1, 200))]
HOURS_THEN_MINUTES = [*(60 * k for k in range(200)), *(60 * 199 + k for k in range(1, 140))]
MOSTLY_MINUTES = [*range(140), *(139 + 60 * k for k in range(1, 20))]


@pytest.mark.parametrize(
    ("minutes", "row", "texts"),
    [
        (MINUTES_THEN_HOURS, 3, ("2024-01-01 00:01:00 is off the grid", "1 minute after", "1 hour is usual")),
        (
            MOSTLY_MINUTES,
            142,
            ("2024-01-01 03:19:00 begins another rate", "1 hour after", "1 minute is usual"),
        ),
        (HOURS_THEN_MINUTES, 202, ("2024-01-09 07:01:00 is off the grid",)),
        ([0, 60, 120, 150, 240, 300], 5, ("2024-01-01 02:30:00 is off the grid", "30 minutes after")),
        ([0, 60, 120, 210, 270, 330], 5, ("2024-01-01 03:30:00 is off the grid", "1.5 hours after")),
    ],
    ids=["minutes, then hours", "mostly minutes", "hours, then minutes", "early", "late"],
)
def test_what_leaves_the_grid_is_refused_with_row_and_stamp(tmp_path, refused, minutes, row, texts) -> None:
    path = stamped(tmp_path / "a.csv", minutes)
    with refused(f"a.csv, row {row}, column 'date': ", "--data.irregular last", "or read", *texts):
        load_steps(path)
    read = load_steps(path, clock=Clock(irregular="read"))
    assert read.values[:, 0].tolist() == list(range(len(minutes)))
    assert any(f"row {row}" in note and "are read one after another" in note for note in read.notes)


def test_resampling_takes_the_last_row_that_is_not_later(tmp_path) -> None:
    minutes = [0, 60, 120, 150, 240, 300, 420, 480]
    steps = load_steps(stamped(tmp_path / "a.csv", minutes), clock=Clock(irregular="last"))
    times = [START + datetime.timedelta(hours=k) for k in range(9)]
    # by hand: at 3:00 the row of 2:30 is the last, at 6:00 that of 5:00
    assert steps.values[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 7]
    assert steps.times == tuple(str(time) for time in times)
    assert any("8 hours" in note or "9 rows of 8" in note for note in steps.notes)


def test_the_rows_of_a_grid_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        times = np.cumsum(rng.integers(1, 5, 30)) * 0.5
        grid = np.arange(times[0], times[-1] + 1e-9, 1.5)
        expected = [max(k for k in range(30) if times[k] <= t) for t in grid]
        assert on_grid(times, 1.5).tolist() == expected


def test_gaps_of_whole_steps_stay_a_note_with_their_row(tmp_path) -> None:
    open_days = [1440 * day for day in range(60) if day % 7 < 6]
    steps = load_steps(stamped(tmp_path / "a.csv", open_days))
    (note,) = steps.notes
    assert "gaps in time" in note
    assert "2024-01-06 00:00:00 to 2024-01-08 00:00:00 (row 8)" in note


def test_clocks_that_are_not_exact_are_on_the_grid() -> None:
    usual = np.full(9, 60.0)
    assert off_grid(usual + 7.0 * (-1) ** np.arange(9), 60.0, calendar=False) is None  # within 12 %
    assert off_grid(np.append(usual, 68.0), 60.0, calendar=False) == (9, "is off the grid of times")
    assert off_grid(np.append(usual, 127.0), 60.0, calendar=False) is None  # a gap of 2, 7 seconds late
    months = np.array([31.0, 29, 31, 30, 31, 59, 365, 31, 30])  # days; a gap of two and one of twelve
    assert off_grid(months, 31.0, calendar=True) is None


HOUR, DAY = 60, 1440
DATES = [START + datetime.timedelta(days=k) for k in range(3000)]
LAST_DAYS = [k for k in range(2999) if DATES[k].month != DATES[k + 1].month]
WEEKDAYS = [k for k in range(2999) if DATES[k].weekday() < 5]
LAST_WEEKDAYS = [a for a, b in pairwise(WEEKDAYS) if DATES[a].month != DATES[b].month]
HONEST = {
    "weekdays": [DAY * k for k in WEEKDAYS],
    "weekdays and holidays": [
        DAY * k for k in WEEKDAYS if (DATES[k].month, DATES[k].day) not in {(1, 1), (12, 25)}
    ],
    "last days of months": [DAY * k for k in LAST_DAYS],
    "last weekdays of months": [DAY * k for k in LAST_WEEKDAYS],
    "hours, one left out each spring": [
        HOUR * k for k in range(24 * 800) if k not in {24 * 90 + 2, 24 * 454 + 2}
    ],
    "days that begin at another hour in summer": [
        DAY * k - HOUR * (90 <= k % 365 < 300) for k in range(1500)
    ],
    "office hours": [HOUR * k for k in range(24 * 300) if 9 <= k % 24 < 17 and k // 24 % 7 < 5],
    "minutes while a market is open": [
        m for m in range(DAY * 20) if 570 <= m % DAY <= 960 and m // DAY % 7 < 5
    ],
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_calendars_are_read_and_their_gaps_said(tmp_path, name) -> None:
    steps = load_steps(stamped(tmp_path / "a.csv", HONEST[name]))
    assert len(steps.values) == len(HONEST[name])
    assert any("gaps in time" in note for note in steps.notes) == (
        name not in {"weekdays", "last days of months", "last weekdays of months"} and "summer" not in name
    )


@pytest.mark.parametrize("lost", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("burst", [False, True])
def test_random_dropouts_of_1_to_5_rows_are_gaps(tmp_path, lost, burst) -> None:
    """A false refusal has probability 1e-4 a series and length; rows are lost everywhere or in a tenth."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        steps = np.where(rng.random(2000) < lost, rng.integers(2, 7, 2000), 1)
        if burst:
            steps[:1800] = 1
        assert off_grid(60.0 * steps, 60.0, calendar=False) is None, seed
    steps = load_steps(stamped(tmp_path / "a.csv", np.cumsum(steps)))
    assert any("gaps in time" in note for note in steps.notes)


@pytest.mark.parametrize("times", [2, 3, 60])
@pytest.mark.parametrize("lost", [0.0, 0.3])
@pytest.mark.parametrize("late", [True, False])
def test_a_change_of_rate_is_refused_also_among_dropouts(times, lost, late) -> None:
    rng = np.random.default_rng(0)
    steps = np.where(rng.random(400) < lost, rng.integers(2, 7, 400), 1)
    slow = np.full(30, times)
    where, how = off_grid(60.0 * (np.r_[steps, slow] if late else np.r_[slow, steps]), 60.0, calendar=False)
    assert how == "begins another rate"
    assert where == (0 if not late else 400 - (steps[-1] == times))


def test_a_run_of_gaps_is_another_rate_where_lost_rows_would_hardly_bring_it() -> None:
    usual = np.ones(100)
    # By hand: 106 steps .1^7 = 1.07e-5 < 1e-4 < 105 .1^5
    assert off_grid(np.r_[usual, [2.0] * 5], 1.0, calendar=False) is None
    assert off_grid(np.r_[usual, [2.0] * 7], 1.0, calendar=False) == (100, "begins another rate")
    # A fifth of the other steps are of the length: p = 21 / 102, and 107 p^7 = 1.7e-3
    fifth = np.tile([1.0, 1, 1, 1, 2], 20)
    assert off_grid(np.r_[fifth, 1, [2.0] * 7], 1.0, calendar=False) is None
    assert off_grid(np.r_[fifth, 1, [2.0] * 10], 1.0, calendar=False) == (101, "begins another rate")


def test_a_lying_stamp_does_not_ask_for_memory(tmp_path, refused) -> None:
    (tmp_path / "a.csv").write_text("t,x\n0,1\n1,2\n2,3\n2.5,3\n3,3\n4,3\n1e15,4\n")
    with refused("a.csv", "must not become more than", "correct the times of column 't'"):
        load_steps(tmp_path / "a.csv", time_column="t", clock=Clock(irregular="last"))


DAY_FIRST, US = "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"


@pytest.mark.parametrize("form", [DAY_FIRST, US, "%d.%m.%Y", "%m-%d-%Y %H:%M:%S"])
def test_a_date_that_has_one_reading_tells_how_the_others_are_written(tmp_path, form) -> None:
    """Of 13/01/2024 the day comes first, and so it does in 12/01/2024."""
    path = stamped(tmp_path / "a.csv", [1440 * k for k in range(40)], form)
    steps = load_steps(path, ahead=1)
    assert steps.time_column == "date" and steps.clock.form == form
    assert steps.step.length == 86_400 and steps.later == (
        (START + datetime.timedelta(days=40)).strftime(form),
    )
    first = "day" if form.startswith("%d") else "month"
    assert any(f"the {first} of a date comes first" in note for note in steps.notes)


def test_a_run_reads_new_dates_of_two_readings_as_its_own(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = read_series(
        stamped(tmp_path / "a.csv", [1440 * k for k in range(60)], "%d/%m/%Y"),
        window=Window(context=8, horizon=2),
    )
    new = stamped(tmp_path / "b.csv", [1440 * k for k in range(9)], "%d/%m/%Y")
    assert encode_series(new, data.encoding).times[-1] == "11/01/2024"


def test_months_of_other_languages_are_read_and_later_ones_are_iso(tmp_path) -> None:
    names = ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli")
    days = [datetime.datetime(2023, 1, 1) + datetime.timedelta(days=k) for k in range(200)]
    rows = "".join(f"{d.day}. {names[d.month - 1]} {d.year};{k}\n" for k, d in enumerate(days))
    path = tmp_path / "a.csv"
    path.write_text("Tag;x\n" + rows)
    steps = load_steps(path, ahead=2)
    assert steps.time_column == "Tag" and str(steps.step) == "1 day"
    assert steps.times[59] == "1. März 2023" and steps.later == ("2023-07-20", "2023-07-21")


@pytest.mark.parametrize("form", [DAY_FIRST, US, "%d.%m.%Y %H:%M", "%m-%d-%Y %H:%M:%S", "%m/%d/%Y %I:%M %p"])
def test_dates_of_two_readings_need_a_word_and_the_refusal_names_it(tmp_path, refused, form) -> None:
    day = 60
    path = stamped(tmp_path / "a.csv", [day * k for k in range(40)], form)
    for options in ({}, {"time_column": "date"}):
        with refused("a.csv", "--data.time-format", f"'{form}'"):
            load_steps(path, **options)
    steps = load_steps(path, clock=Clock(form))
    assert steps.time_column == "date"
    assert steps.step.length == 60 * day
    plain = load_steps(stamped(tmp_path / "b.csv", [day * k for k in range(40)]))
    assert torch.equal(steps.values, plain.values)


def test_a_form_that_is_not_the_files_is_refused(tmp_path, refused) -> None:
    path = stamped(tmp_path / "a.csv", [1440 * k for k in range(40)], "%d/%m/%Y")
    with refused(
        "row 14, column 'date': a time must be written as time_format says, %m/%d/%Y", "'13/01/2024'"
    ):
        load_steps(path, time_column="date", clock=Clock("%m/%d/%Y"))


def test_a_run_reads_new_rows_as_it_read_its_own_and_tells_their_gaps(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    stamped(tmp_path / "a.csv", [60 * k for k in range(200)], DAY_FIRST)
    window = ["--data.context=8", "--data.horizon=2"]
    words = ["train", "linear_forecaster", "series:a.csv", *window, f"--data.time-format={DAY_FIRST}"]
    assert main([*words, "--data.missing=last", "--epochs=1", "--out=run"]) == 0
    minutes = [60 * k for k in range(30) if k != 20]
    text = stamped(tmp_path / "b.csv", minutes, DAY_FIRST).read_text()
    (tmp_path / "b.csv").write_text(text.replace(",5\n", ",\n"))
    capsys.readouterr()
    assert main(["predict", "run", "b.csv"]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert any("gaps in time" in note and "(row 22)" in note for note in notes)
    assert any("1 missing cells get the last value" in note for note in notes)
    stamped(tmp_path / "c.csv", [*range(0, 60 * 20, 60), 60 * 20 - 30, 60 * 21], DAY_FIRST)
    assert main(["predict", "run", "c.csv"]) == 2
    assert "is off the grid of times" in capsys.readouterr().err


def test_a_record_without_a_clock_reads_rows_as_they_come(tmp_path) -> None:
    data = read_series(stamped(tmp_path / "a.csv", [60 * k for k in range(200)]), context=8, horizon=2)
    assert data.encoding["clock"] == ["", "error"]
    old = {key: value for key, value in data.encoding.items() if key != "clock"}
    late = stamped(tmp_path / "b.csv", [*(60 * k for k in range(30)), 60 * 30 + 20])
    assert any("are read one after another" in note for note in encode_series(late, old).notes)


@pytest.mark.parametrize("kept", [0.45, 0.3, 0.15])
@pytest.mark.parametrize("seed", range(3))
def test_a_series_of_which_most_rows_are_lost_keeps_its_step(tmp_path, kept: float, seed: int) -> None:
    """The median step is two hours or more; the shortest is the commonest, as a geometric law has it."""
    rng = np.random.default_rng(seed)
    hours = np.flatnonzero(rng.random(2000) < kept)
    steps = load_steps(stamped(tmp_path / "a.csv", 60 * hours))
    assert float(np.median(np.diff(hours))) > 1
    assert steps.step is not None
    assert str(steps.step) == "1 hour"
    assert any("gaps in time" in note for note in steps.notes)


def test_single_rows_between_do_not_make_another_step(tmp_path, refused) -> None:
    """Half hours that are few lie off the grid of hours, though all steps are whole half hours."""
    with refused("02:30:00 is off the grid", "1 hour is usual"):
        load_steps(stamped(tmp_path / "a.csv", sorted({*range(0, 6000, 60), 150, 1590})))


def test_the_hour_that_daylight_saving_repeats_is_said(tmp_path, refused) -> None:
    """Local time in Berlin from 27 October 2024, 0:00 on: 2:00 to 2:59 comes twice."""
    hours = ["00:00", "01:00", "02:00", "02:00", "03:00"]
    halves = ["01:00", "01:30", "02:00", "02:30", "02:00", "02:30", "03:00"]
    for name, times, text in (
        ("hours", hours, "comes twice"),
        ("halves", halves, "must be in order of time"),
    ):
        path = tmp_path / f"{name}.csv"
        path.write_text("date,x\n" + "".join(f"2024-10-27 {t},{k}\n" for k, t in enumerate(times)))
        with refused(text, "daylight saving", "in UTC, or with their offset"):
            load_steps(path)
    utc = tmp_path / "utc.csv"
    zones = ["00:00:00+02:00", "01:00:00+02:00", "02:00:00+02:00", "02:00:00+01:00", "03:00:00+01:00"]
    utc.write_text("date,x\n" + "".join(f"2024-10-27T{t},{k}\n" for k, t in enumerate(zones)))
    assert str(load_steps(utc).step) == "1 hour"  # the remedy is one
    path = tmp_path / "july.csv"
    path.write_text("date,x\n" + "".join(f"2024-07-28 {t},{k}\n" for k, t in enumerate(hours)))
    with pytest.raises(ValueError, match="comes twice") as july:
        load_steps(path)
    assert "in UTC" not in str(july.value)
    further = tmp_path / "further.csv"  # clocks are put back by one hour, not by one and a half
    times = ["01:30", "02:00", "02:30", "01:00"]
    further.write_text("date,x\n" + "".join(f"2024-10-27 {t},{k}\n" for k, t in enumerate(times)))
    with pytest.raises(ValueError, match="order of time") as fall:
        load_steps(further)
    assert "in UTC" not in str(fall.value)


def written(path: Path, dates: list[str]) -> Path:
    path.write_text("\n".join(["date,x", *(f"{date},{k}" for k, date in enumerate(dates))]))
    return path


MONTHS = [f"{2019 + k // 12}-{k % 12 + 1:02d}" for k in range(48)]


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        ([f"{month}-01" for month in MONTHS], "1 month"),
        ([f"{month}-15" for month in MONTHS[1:]], "1 month"),
        (MONTHS, "1 month"),
        ([str(DATES[k]) for k in LAST_DAYS[:40]], "1 month"),
        ([str(DATES[k]) for k in LAST_WEEKDAYS[:40]], "1 month"),
        ([f"{month}-01" for month in MONTHS[::3]], "1 quarter"),
        ([f"{2000 + k // 4}-{('03-31', '06-30', '09-30', '12-31')[k % 4]}" for k in range(20)], "1 quarter"),
        ([f"{month}-01" for month in MONTHS[::2]], "2 months"),
        ([f"{year}-02-28" for year in range(2010, 2024)], "1 year"),
        ([str(DATES[k]) for k in WEEKDAYS[:90]], "1 business day"),
        ([str(DATES[k]) for k in range(0, 280, 28)], "28 days"),
        ([str(DATES[k]) for k in range(0, 910, 91)], "91 days"),
        ([str(DATES[k]) for k in range(0, 70, 7)], "7 days"),
        ([str(DATES[k]) for k in range(9)], "1 day"),
    ],
)
def test_steps_of_the_calendar_are_its_own_and_no_gaps(dates: list[str], words: str, tmp_path) -> None:
    steps = load_steps(written(tmp_path / "a.csv", [date.split(" ")[0] for date in dates]))
    assert steps.spacing.endswith(f", {words} a row")
    assert steps.notes == ()


def test_gaps_are_counted_by_the_calendar(tmp_path, refused) -> None:
    """A lost February is a gap though it has 28 days; the grid fills it in on the day of its month."""
    lost = [f"{month}-01" for month in MONTHS if month != "2021-02"]
    steps = load_steps(written(tmp_path / "a.csv", lost))
    assert steps.spacing.endswith(", 1 month a row, 1 gap")
    assert "2021-01-01 to 2021-03-01 (row 27)" in steps.notes[0]
    filled = load_steps(tmp_path / "a.csv", clock=Clock(irregular="last"))
    assert len(filled.values) == 48
    assert filled.times[25].startswith("2021-02-01")
    assert filled.values[24:27, 0].tolist() == [24, 24, 25]
    days = [str(DATES[k]).split(" ")[0] for k in WEEKDAYS[:60]]
    steps = load_steps(written(tmp_path / "b.csv", [*days[:20], *days[22:]]))
    assert steps.spacing.endswith(", 1 business day a row, 1 gap")
    filled = load_steps(tmp_path / "b.csv", clock=Clock(irregular="last"))
    assert [time.split(" ")[0] for time in filled.times] == days
    with refused(
        "2022-12-01 is off the grid of times, 2 months after the row before, where 1 quarter is usual"
    ):
        load_steps(written(tmp_path / "c.csv", [*(f"{m}-01" for m in MONTHS[::3]), "2022-12-01"]))


WRITTEN = [
    *("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ", "%Y/%m/%d %H:%M"),
    *("%Y-%m-%dT%H:%M:%S+02:00", "%Y-%m-%d %H:%M:%S-05:00"),
]


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("irregular", ["error", "last"])
def test_times_that_no_row_has_are_written_as_the_rows_are(tmp_path, form, irregular) -> None:
    """The hours after the last, on its own clock: of an offset not those of UTC, and with the offset."""
    hours = [k for k in range(50) if irregular == "error" or k != 20]
    steps = load_steps(
        stamped(tmp_path / "a.csv", [60 * k for k in hours], form), clock=Clock(irregular=irregular), ahead=3
    )
    expected = pd.date_range(START, periods=53, freq="h").strftime(form).tolist()
    assert list(steps.times + steps.later)[-25:] == expected[-25:]


@pytest.mark.parametrize(
    ("freq", "form"),
    [
        ("D", "%d/%m/%Y"),
        ("D", "%d.%m.%y"),
        ("D", "%d-%b-%Y"),
        ("B", "%m/%d/%Y"),
        ("ME", "%d/%m/%Y"),
        ("h", "%d.%m.%Y %H:%M"),
    ],
)
def test_times_ahead_are_written_as_the_user_says(tmp_path, freq, form) -> None:
    stamps = pd.date_range("2023-09-25", periods=43, freq=freq).strftime(form).tolist()
    (tmp_path / "a.csv").write_text("\n".join(["date,x", *(f"{t},{k}" for k, t in enumerate(stamps[:40]))]))
    assert load_steps(tmp_path / "a.csv", clock=Clock(form), ahead=3).later == tuple(stamps[40:])


@pytest.mark.parametrize(
    ("dates", "after"),
    [
        (["2024-01-31", "2024-02-29", "2024-03-29"], "2024-04-30"),  # last weekdays: 31 March is a Sunday
        (["2024-03-29", "2024-04-30", "2024-05-31"], "2024-06-28"),
        (["2024-01-31", "2024-02-29"], "2024-03-31"),  # last days, which are weekdays too
        (["2024-01-01", "2024-01-03", "2024-01-06"], "2024-01-08 12:00:00"),  # its form has no hours
    ],
)
def test_the_time_after_the_last(tmp_path, dates, after) -> None:
    (tmp_path / "a.csv").write_text("\n".join(["date,x", *(f"{date},1" for date in dates)]))
    assert load_steps(tmp_path / "a.csv", clock=Clock(irregular="read"), ahead=1).later == (after,)


@pytest.mark.parametrize("form", ["%Y%m", "%Y/%m", "%Y-%m", "%Y%m%d"])
def test_months_and_days_of_digits_follow_the_calendar(tmp_path, form) -> None:
    """After 200012 comes 200101; numbers that never pass a year are counted."""
    stamps = (
        pd.date_range("2000-03-01", periods=23, freq="D" if "d" in form else "MS").strftime(form).tolist()
    )
    (tmp_path / "a.csv").write_text("\n".join(["date,x", *(f"{t},{k}" for k, t in enumerate(stamps[:20]))]))
    steps = load_steps(tmp_path / "a.csv", ahead=3)
    assert steps.later == tuple(stamps[20:])
    assert not steps.notes
    (tmp_path / "n.csv").write_text("\n".join(["t,x", *(f"{200001 + k},{k}" for k in range(12))]))
    assert load_steps(tmp_path / "n.csv", time_column="t", ahead=1).later == ("200013",)
