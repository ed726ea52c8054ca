"""Windows of a series against slices by hand: parts in time, no training row of another part, bad options."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from margin.data.formats.series.sources import borders, encode_series, from_series, read_series
from margin.data.formats.series.windows import Windows
from margin.data.splits import Split


def count(rows=50, columns=2):
    """Row t is (t, 100 + t, ...): a value says its row and column."""
    return torch.arange(float(rows))[:, None] + 100 * torch.arange(float(columns))


def rows_read(windows):
    batch = windows.take(torch.arange(len(windows)), torch.Generator())
    return batch.inputs[0][:, :, 0], batch.targets[:, :, 0]


def test_a_window_is_a_context_and_what_follows_it():
    data = from_series(count(), context=5, horizon=3, test=0.2, val=0.2)
    past, ahead = rows_read(data.splits["train"])
    for k in range(len(past)):
        assert past[k].tolist() == list(range(k, k + 5))
        assert ahead[k].tolist() == list(range(k + 5, k + 8))
    assert len(past) == 30 - 5 - 3 + 1


def test_no_training_window_reads_another_part_and_held_out_contexts_reach_back():
    data = from_series(count(), context=5, horizon=3)
    ends = {"train": (0, 30), "val": (30, 40), "test": (40, 50)}
    for part, (first, end) in ends.items():
        past, ahead = rows_read(data.splits[part])
        assert ahead.min() == max(first, 5)
        assert ahead.max() == end - 1
        assert past.min() == max(first, 5) - 5


def test_every_part_is_every_so_many_rows():
    data = from_series(count(), context=5, horizon=3, stride=4)
    assert data.splits["train"].origins.tolist() == [5, 9, 13, 17, 21, 25]
    assert data.splits["test"].origins.tolist() == [40, 44]


def test_only_training_rows_tell_the_scale():
    x = count()
    x[30:] += 1e6
    data = from_series(x, context=5, horizon=3, target="column_2")
    assert data.preprocess.mean.tolist() == [14.5, 114.5]
    std = float(np.arange(30).std())
    assert data.spec["target_scale"] == [(1, 114.5, pytest.approx(std))]


def test_targets_are_the_columns_asked_for():
    data = from_series(count(columns=3), context=5, horizon=2, target="column_3, column_1")
    batch = data.splits["train"].take(torch.tensor([0]), torch.Generator())
    assert batch.inputs[0].shape == (1, 5, 3)
    assert batch.targets.tolist() == [[[205.0, 5.0], [206.0, 6.0]]]
    assert torch.equal(data.splits["train"].targets[:1], batch.targets)


def test_windows_are_views_of_one_series():
    data = from_series(count(), context=5, horizon=3)
    stores = {part.values.data_ptr() for part in data.splits.values()}
    assert len(stores) == 1


def test_parts_are_cut_where_the_shares_say():
    assert borders(14_400, Split(test=0.2, val=0.2)) == {
        "train": (0, 8640),
        "val": (8640, 11520),
        "test": (11520, 14400),
    }
    assert borders(10, Split(test=0.25, val=0)) == {"train": (0, 8), "test": (8, 10)}  # 7.5 is rounded up


def table(path, rows=60, *, start=0):
    lines = ["date,a,b", *(f"{2000 + start + k},{k},{2 * k}" for k in range(rows))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_is_read_in_order_and_its_times_are_no_feature(tmp_path):
    data = read_series(table(tmp_path / "x.csv"), context=5, horizon=3, target="b")
    assert data.encoding["columns"] == ["a", "b"]
    assert data.encoding["time_column"] == "date"
    assert data.spec["input_size"] == 2
    assert data.spec["num_targets"] == 1
    assert data.encoding["about"][1] == ["time", "2000 to 2059, 1 a row"]
    json.dumps([data.encoding, data.spec])


def test_the_record_reads_new_rows_and_foretells_after_the_last(tmp_path):
    data = read_series(table(tmp_path / "x.csv"), context=5, horizon=3, target="b")
    record = json.loads(json.dumps(data.encoding))
    new = encode_series(table(tmp_path / "new.csv", 8, start=100), record)
    assert len(new) == 1
    assert new.targets[0, :, 0].tolist() == [10, 12, 14]
    last = encode_series(table(tmp_path / "last.csv", 7, start=100), record)
    assert last.targets is None
    batch = last.take(torch.tensor([0]), torch.Generator())
    assert batch.targets is None
    assert batch.inputs[0][0, :, 0].tolist() == [2, 3, 4, 5, 6]
    with pytest.raises(ValueError, match="reads 5 rows: got 4"):
        encode_series(table(tmp_path / "short.csv", 4), record)


def dated(path, first, step, rows=60):
    """Rows of two columns, one every ``step`` from ``first`` on."""
    times = np.datetime64(first) + np.arange(rows) * np.timedelta64(*step)
    lines = [f"{str(time).replace('T', ' ')},{t}" for t, time in enumerate(times)]
    path.write_text("\n".join(["date,a", *lines]))
    return path


def test_new_rows_are_as_far_apart_as_those_of_the_run(tmp_path, refused):
    daily = read_series(dated(tmp_path / "x.csv", "2020-01-01", (1, "D")), context=5, horizon=3).encoding
    assert daily["step"] == [86_400.0, True]
    hourly = dated(tmp_path / "hourly.csv", "2021-01-01T00:00:00", (1, "h"))
    with refused("hourly.csv", "column 'date'", "as far apart as", "trained on, 1 day: got 1 hour a row"):
        encode_series(hourly, daily)
    weekly = dated(tmp_path / "weekly.csv", "2021-01-01", (7, "D"))
    with refused("trained on, 1 day: got 7 days a row"):
        encode_series(weekly, daily)
    with refused("trained on, 1 day: got 1 a row"):
        encode_series(table(tmp_path / "counted.csv").replace(tmp_path / "n.csv"), daily | {"columns": ["a"]})
    same = dated(tmp_path / "same.csv", "2021-01-01T12:00:00", (24 * 60, "m"), rows=8)
    assert len(encode_series(same, daily)) == 1
    gaps = same.read_text().splitlines()
    (tmp_path / "gaps.csv").write_text("\n".join([*gaps[:4], *gaps[6:]]))
    assert encode_series(tmp_path / "gaps.csv", daily).targets is None
    old = {key: value for key, value in daily.items() if key != "step"}
    assert len(encode_series(hourly, old)) == 53


def test_months_are_one_step_whatever_their_days(tmp_path):
    def monthly(name, first, rows):
        months = (np.datetime64(first) + np.arange(rows)).astype("datetime64[D]")
        (tmp_path / name).write_text("\n".join(["date,a", *(f"{m},{k}" for k, m in enumerate(months))]))
        return tmp_path / name

    record = read_series(monthly("x.csv", "2000-01", 60), context=2, horizon=1).encoding
    assert record["step"] == [365.2425 / 12 * 86_400, True]
    assert encode_series(monthly("february.csv", "2021-02", 2), record).targets is None  # 28 days


def test_after_the_windows_whose_end_is_known_comes_the_one_whose_end_is_not(tmp_path):
    data = read_series(table(tmp_path / "x.csv"), context=5, horizon=3, target="b")
    new = encode_series(table(tmp_path / "new.csv", 10, start=100), data.encoding)
    ahead = new.ahead()
    assert [len(new), len(ahead)] == [3, 4]
    assert new.targets is not None
    assert ahead.targets is None
    assert ahead.take(torch.tensor([3]), torch.Generator()).inputs[0][0, :, 0].tolist() == [5, 6, 7, 8, 9]
    assert new.rows["after"] == [year for year in ("2104", "2105", "2106") for _ in range(3)]
    assert ahead.rows["after"][9:] == ["2109"] * 3
    assert ahead.rows["time"][9:] == ["2110", "2111", "2112"]  # no row of the file
    assert ahead.rows["column"] == ["b"] * 12
    assert ahead.ahead().rows == ahead.rows
    assert data.splits["train"].rows["after"][:4] == ["2004", "2004", "2004", "2005"]
    counted = from_series(count(), context=5, horizon=2).splits["train"].rows
    assert counted["after"][:5] == [5, 5, 5, 5, 6]  # rows are counted from 1
    assert counted["time"][:5] == [6, 6, 7, 7, 7]  # the last of the second window
    assert counted["column"][:3] == ["column_1", "column_2", "column_1"]


def test_only_so_many_rows_are_used(tmp_path, refused):
    data = read_series(table(tmp_path / "x.csv"), context=5, horizon=3, rows=50)
    assert data.splits["test"].origins.tolist()[-1] == 47
    for wrong in (0, 61):
        with refused("rows must be in 1 .. 60"):
            read_series(tmp_path / "x.csv", rows=wrong)


@pytest.mark.parametrize("option", ["context", "horizon", "stride"])
def test_options_below_one_are_refused(option, refused):
    with refused(f"{option} must be at least 1"):
        from_series(count(), **{"context": 5, "horizon": 3, option: 0})


def test_wrong_series_are_refused(refused):
    bad = count()
    bad[7, 1] = float("nan")
    with refused("nan", "time 7", "column_2"):
        from_series(bad, context=5, horizon=3)
    with refused("train", "context"):
        from_series(count(), context=40, horizon=3)
    with refused("no column 'c'", "column_1"):
        from_series(count(), context=5, horizon=3, target="c")
    with refused("different columns"):
        from_series(count(), context=5, horizon=3, target=["column_1", "column_1"])
    with refused("(T,) or (T, n)"):
        from_series(torch.zeros(2, 3, 4))


def test_equal_windows_have_one_fingerprint_and_others_another():
    first = from_series(count(), context=5, horizon=3).fingerprint
    assert first == from_series(count(), context=5, horizon=3).fingerprint
    others = [
        from_series(count(), context=6, horizon=3).fingerprint,
        from_series(count(), context=5, horizon=2).fingerprint,
        from_series(count(), context=5, horizon=3, target="column_1").fingerprint,
        from_series(count() + 1, context=5, horizon=3).fingerprint,
    ]
    assert len({first, *others}) == 5


def test_an_evaluation_holds_few_long_windows():
    long = Windows(torch.zeros(9000, 300), torch.arange(8000, 8500), 8000, 1, (0,))
    assert long.evaluation_batch == 6


SEASONS = {
    "h": (24, "day"),
    "30min": (48, "day"),
    "12h": (2, "day"),
    "5h": (1, ""),
    "7min": (1440, "week"),
    "D": (7, "week"),
    "B": (5, "week"),
    "W": (52, "year"),
    "MS": (12, "year"),
    "ME": (12, "year"),
    "QS": (4, "year"),
    "YS": (1, ""),
}
"""Rows of a season, by pandas' name of the step."""


@pytest.mark.parametrize("freq", SEASONS)
def test_the_season_and_the_times_ahead_are_the_calendars(tmp_path, freq):
    """The times to come are those of pandas' own calendar, the season that of Hyndman and Athanasopoulos."""
    times = pd.date_range("2021-01-31", periods=70, freq=freq)
    midnight = bool((times == times.normalize()).all())
    form = "%Y-%m-%d" if midnight else "%Y-%m-%d %H:%M:%S"
    rows = [f"{time},{k}" for k, time in enumerate(times[:60].strftime(form))]
    (tmp_path / "x.csv").write_text("\n".join(["date,a", *rows]))
    data = read_series(tmp_path / "x.csv", context=6, horizon=3)
    rows_a_season, cycle = SEASONS[freq]
    assert data.spec["season"] == rows_a_season
    about = dict(data.encoding["about"])["season"]
    assert about.startswith(f"{rows_a_season} rows, a {cycle}:" if cycle else "none known")
    new = encode_series(tmp_path / "x.csv", data.encoding).ahead()
    assert new.rows["time"][-3:] == list(times[60:63].strftime(form))
    assert new.season == rows_a_season


def test_the_month_ends_of_a_short_month_stay_month_ends(tmp_path):
    """From 29 February the next is 31 March: the day of the month is that of the longest."""
    times = pd.date_range("2019-03-31", periods=12, freq="ME").strftime("%Y-%m-%d")
    (tmp_path / "x.csv").write_text("\n".join(["date,a", *(f"{time},1" for time in times)]))
    data = read_series(tmp_path / "x.csv", context=2, horizon=2, test=0.4, val=0.0)
    ahead = encode_series(tmp_path / "x.csv", data.encoding).ahead()
    assert ahead.rows["time"][-2:] == ["2020-03-31", "2020-04-30"]


def test_a_number_that_counts_the_rows_has_no_season(tmp_path):
    data = read_series(table(tmp_path / "x.csv"), context=5, horizon=3, time_column="date")
    assert data.spec["season"] == 1


def test_the_first_rows_of_a_file_are_followed_by_its_others(tmp_path) -> None:
    """Of 20 hours of 24 the forecast is of the 21st, not of the hour after the file's last."""
    stamps = [f"2024-01-01 {k:02}:00:00" for k in range(24)]
    (tmp_path / "x.csv").write_text("\n".join(["time,a", *(f"{t},{k}" for k, t in enumerate(stamps))]))
    data = read_series(tmp_path / "x.csv", context=4, horizon=1, rows=20)
    assert data.splits["train"].times[20] == stamps[20]
