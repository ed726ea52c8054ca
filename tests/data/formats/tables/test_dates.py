"""Dates as features, against the parts that pandas takes of them, and missing cells that are features too."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.impute import MissingIndicator, SimpleImputer

from margin.data.description import describe, lines
from margin.data.formats.encodings import feature_names
from margin.data.formats.tables.dates import PARTS, calendar, shown
from margin.data.formats.tables.tables import read_table
from margin.data.open import encode, open_data

TIMES = pd.date_range("2019-11-25 06:30", periods=60, freq="17h")


def table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    count = len(TIMES)
    return pd.DataFrame(
        {
            "sold": TIMES,
            "age": np.where(rng.random(count) < 0.2, np.nan, rng.normal(40, 9, count)),
            "cabin": rng.choice(["A", "B", None], count),
            "fare": rng.normal(size=count),
            "y": rng.choice(["p", "q"], count),
        }
    )


def features(data, part: str = "train") -> pd.DataFrame:
    return pd.DataFrame(
        data.splits[part].inputs[0].double().numpy(), columns=feature_names(data.encoding["columns"])
    )


def only_train(source, **options):
    return open_data(source, {"test": 0.0, "val": 0.0, "target": "y", **options})


def parts(times: pd.Series) -> pd.DataFrame:
    clock = times.dt
    return pd.DataFrame(
        {
            "sold: days since 1970": (times - pd.Timestamp(0)) / pd.Timedelta(days=1),
            "sold: year": clock.year,
            "sold: month": clock.month,
            "sold: day of month": clock.day,
            "sold: weekday": clock.day_of_week + 1,
            "sold: hour": clock.hour + clock.minute / 60 + clock.second / 3600,
        }
    )


CLOCKS = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S"]
ZONED = ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S+02:00", "%Y-%m-%d %H:%M:%S-0500", "%Y-%m-%dT%H:%M+02:00"]


@pytest.mark.parametrize("form", [*CLOCKS, *ZONED])
def test_a_date_becomes_the_numbers_of_the_calendar(tmp_path: Path, form: str) -> None:
    frame = table()[["sold", "y"]]
    frame.assign(sold=TIMES.strftime(form)).to_csv(tmp_path / "t.csv", index=False)
    found = features(only_train(tmp_path / "t.csv"))
    expected = parts(frame["sold"])
    assert list(found) == list(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-6)


def test_every_kind_of_table_reads_the_same_dates(tmp_path: Path) -> None:
    frame = table()[["sold", "y"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    typed = pl.read_csv(tmp_path / "t.csv", try_parse_dates=True)
    typed.write_parquet(tmp_path / "t.parquet")
    zoned = typed.with_columns(pl.col("sold").dt.replace_time_zone("Asia/Tokyo"))
    own = frame.assign(sold=frame["sold"].dt.tz_localize("Asia/Tokyo"))
    own.to_csv(tmp_path / "zoned.csv", index=False)
    base = only_train(tmp_path / "t.csv")
    for source in (frame, typed, tmp_path / "t.parquet", zoned, own, tmp_path / "zoned.csv"):
        data = only_train(source)
        assert data.encoding["columns"] == base.encoding["columns"]
        assert torch.equal(data.splits["train"].inputs[0], base.splits["train"].inputs[0])
        assert torch.equal(encode(source, base.encoding).inputs[0], base.splits["train"].inputs[0])


def test_what_never_varies_in_training_is_no_feature() -> None:
    """Without a clock there is no hour; of one year no year, which new rows would move far."""
    days = pd.date_range("2020-02-27", periods=40, freq="D")
    data = only_train(pd.DataFrame({"sold": days, "y": ["p", "q"] * 20}))
    expected = parts(pd.Series(days))[
        ["sold: days since 1970", "sold: month", "sold: day of month", "sold: weekday"]
    ]
    found = features(data)
    assert list(found) == list(expected)
    np.testing.assert_allclose(found, expected)
    assert "days since 1970, month, day of month, weekday" in "\n".join(lines(describe(data)))
    assert "2020-02-27 .. 2020-04-06" in "\n".join(lines(describe(data)))


def test_what_is_no_date_is_said_with_its_row(tmp_path: Path, refused) -> None:
    frame = table()[["sold", "y"]].astype(str)
    frame.loc[4, "sold"] = "soon"
    frame.to_csv(tmp_path / "t.csv", index=False)
    with refused(
        "row 6, column 'sold': 'soon' is not a date as 2016-07-01, and 59 of the column's 60 values are"
    ):
        read_table(tmp_path / "t.csv", target="y")
    days = frame.assign(sold=TIMES.strftime("%Y/%m/%d"))
    days.loc[4, "sold"] = "soon"
    days.to_csv(tmp_path / "t.csv", index=False)
    with refused("row 6, column 'sold': 'soon' is not a date"):
        read_table(tmp_path / "t.csv", target="y")
    data = only_train(table()[["sold", "y"]])
    with refused("row 1, column 'sold': 'soon' is not a date"):
        encode(pl.DataFrame({"sold": ["soon"]}), data.encoding)


def test_missing_cells_are_features_as_scikit_learn_and_pandas_make_them(tmp_path: Path) -> None:
    """The mean is the training part's; a category has a column for its missing cells, and no other."""
    frame = table().drop(columns="sold")
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = only_train(tmp_path / "t.csv", missing="indicate", test=0.25)
    age = frame[["age"]].to_numpy()
    dummies = pd.get_dummies(frame["cabin"], dummy_na=True, dtype=float)
    whole = only_train(tmp_path / "t.csv", missing="indicate")
    found = features(whole)
    assert list(found) == ["age", "age is missing", "cabin=A", "cabin=B", "cabin is missing", "fare"]
    imputed = SimpleImputer(strategy="mean").fit_transform(age)[:, 0]
    np.testing.assert_allclose(found["age"], imputed, rtol=1e-6)
    np.testing.assert_array_equal(found["age is missing"], MissingIndicator().fit_transform(age)[:, 0])
    np.testing.assert_array_equal(found[["cabin=A", "cabin=B", "cabin is missing"]], dummies)
    np.testing.assert_allclose(found["fare"], frame["fare"], rtol=1e-6)
    mean = data.encoding["columns"][0]["fill"]
    train = features(data)
    kept = train["age"][train["age is missing"] == 0]
    assert mean == pytest.approx(kept.mean(), rel=1e-6)
    assert mean != pytest.approx(np.nanmean(age), rel=1e-6)
    # 0/1 features stay as they are: mean 0, deviation 1 of the map in front of the model
    marks = torch.tensor([name.endswith("is missing") or "=" in name for name in found])
    assert (whole.preprocess.mean == 0).equal(marks)
    assert (whole.preprocess.std == 1).equal(marks)
    note = "column 'cabin': 22 missing cells get a feature of their own, 'cabin is missing'"
    assert any(note in one for one in whole.notes) == (frame["cabin"].isna().sum() == 22)


def test_new_rows_may_lack_cells_where_the_training_did() -> None:
    frame = table()
    data = only_train(frame, missing="indicate")
    again = encode(frame, data.encoding).inputs[0]
    assert torch.equal(again, data.splits["train"].inputs[0])
    gone = frame.head(3).assign(age=np.nan, cabin=None, sold=pd.NaT, fare=np.nan)
    gone["sold"] = gone["sold"].astype("datetime64[us]")
    row = pd.DataFrame(encode(gone, data.encoding).inputs[0].numpy(), columns=list(features(data))).iloc[0]
    assert (row["age is missing"], row["cabin is missing"], row["cabin=A"], row["cabin=B"]) == (1, 1, 0, 0)
    assert row["fare"] == pytest.approx(frame["fare"].mean(), rel=1e-5)  # it lacked none: the mean alone
    assert row["sold: days since 1970"] == pytest.approx(parts(frame["sold"]).iloc[:, 0].mean(), rel=1e-6)


def test_numbers_in_a_column_of_objects_are_numbers(refused) -> None:
    """As rows of mixed types leave them, and as databases give them; of times apart none is a category."""
    exact = [Decimal("1.5"), Decimal("2.25"), None] * 20
    frame = pd.DataFrame(
        {
            "a": exact,
            "b": pd.Series([np.int64(3), np.float32(4.5), 5] * 20, dtype=object),
            "c": pd.Series([np.bool_(True), np.bool_(False)] * 30, dtype=object),
            "y": ["p", "q"] * 30,
        }
    )
    data = only_train(frame, missing="indicate")
    assert [record["kind"] for record in data.encoding["columns"]] == ["number", "number", "boolean"]
    found = features(data)
    np.testing.assert_array_equal(found["a"], np.where(frame["a"].isna(), 1.875, frame["a"].astype(float)))
    np.testing.assert_array_equal(found["b"], [3, 4.5, 5] * 20)
    np.testing.assert_array_equal(found["c"], [1, 0] * 30)
    with refused("column 'd'", "got Duration"):
        only_train(frame.assign(d=pd.to_timedelta([1, 2] * 30, "h")))


def test_parts_of_a_date_are_those_that_vary_in_training_alone() -> None:
    """An hour that only a held-out row has is no feature: it would be constant where a model learns."""
    rows = pd.DataFrame(
        {"sold": pd.date_range("2020-02-27", periods=40), "k": range(40), "y": ["p", "q"] * 20}
    )
    split = {"test": 0.5, "val": 0.0, "target": "y"}
    held = int(open_data(rows, split).splits["test"].inputs[0][0, -1])
    rows.loc[held, "sold"] += pd.Timedelta(hours=5)
    data = open_data(rows, split)
    assert held in data.splits["test"].inputs[0][:, -1]
    assert "hour" not in data.encoding["columns"][0]["parts"]


def test_zero_fills_a_cell_and_a_category_that_training_had_whole_gets_its_mode() -> None:
    frame = pd.DataFrame(
        {
            "a": [-1.0, 1.0, np.nan, 0.0] * 10,
            "b": [False, False, None, True] * 10,
            "c": ["u", "v", "v", "v"] * 10,
            "y": ["p", "q"] * 20,
        }
    )
    found = features(only_train(frame, missing="indicate"))
    np.testing.assert_array_equal(found["a"], [-1, 1, 0, 0] * 10)
    np.testing.assert_array_equal(found["b"], [0, 0, 0, 1] * 10)
    data = only_train(frame, missing="indicate")
    new = pl.DataFrame(
        {"a": [None], "b": [None], "c": [None]}, schema={"a": pl.Float64, "b": pl.Boolean, "c": pl.String}
    )
    row = dict(zip(found, encode(new, data.encoding).inputs[0][0].tolist(), strict=True))
    assert (row["c=u"], row["c=v"], row["a is missing"], row["b is missing"]) == (0, 1, 1, 1)


def test_a_missing_date_has_no_numbers() -> None:
    found = calendar(np.array([np.nan, 0.5]), PARTS)
    assert np.isnan(found[0]).all()
    np.testing.assert_array_equal(found[1], [0.5, 1970, 1, 1, 4, 12])  # 1 January 1970 was a Thursday


def test_a_date_in_words() -> None:
    assert [shown(0.0), shown(18262.5)] == ["1970-01-01", "2020-01-01 12:00:00"]


def test_days_that_come_first_are_read_where_it_is_said(tmp_path: Path, refused) -> None:
    """Of 3 April and 4 March the user says which it is; new rows and a test part are read the same way."""
    frame = table()[["sold", "y"]]
    text = frame.assign(sold=TIMES.strftime("%d/%m/%Y %H:%M"))
    text.to_csv(tmp_path / "t.csv", index=False)
    base = features(only_train(frame))
    for source in (tmp_path / "t.csv", text, pl.from_dicts(text.to_dict("records"))):
        data = only_train(source, date_format="%d/%m/%Y %H:%M")
        np.testing.assert_array_equal(features(data), base)
        np.testing.assert_array_equal(encode(source, data.encoding).inputs[0].double().numpy(), base)
    own = read_table(
        tmp_path / "t.csv",
        target="y",
        date_format="%d/%m/%Y %H:%M",
        test_file=str(tmp_path / "t.csv"),
        val=0.0,
    )
    np.testing.assert_array_equal(features(own, "test"), base)
    with refused("row 2, column 'sold': '2020.01.02' is not a date, as %d/%m/%Y %H:%M"):
        (tmp_path / "new.csv").write_text("sold\n2020.01.02\n")
        encode(tmp_path / "new.csv", data.encoding)
    (tmp_path / "new.csv").write_text("sold\n2020-01-02\n")  # ISO 8601 has one reading
    assert encode(tmp_path / "new.csv", data.encoding).inputs[0][0, 0] == 18263
    with refused("date_format must be how a column writes dates: got '%Y'"):
        only_train(table().drop(columns=["sold", "age", "cabin"]), date_format="%Y")


def test_a_form_is_that_of_every_date_and_years_have_the_digits_that_it_says(tmp_path: Path, refused) -> None:
    days = pd.date_range("2023-01-01", periods=40)
    two = pd.DataFrame({"a": days.strftime("%d/%m/%Y"), "b": days.strftime("%Y-%m-%d"), "y": ["p", "q"] * 20})
    read = features(only_train(two, date_format="%d/%m/%Y")).to_numpy()  # ISO 8601 beside it has one reading
    np.testing.assert_array_equal(read[:, : read.shape[1] // 2], read[:, read.shape[1] // 2 :])
    with refused("column 'b'", "as date_format says, %Y.%m.%d: got '2023-01-01'"):
        only_train(two.assign(a=days.strftime("%Y.%m.%d")), date_format="%Y.%m.%d")
    short = pd.DataFrame({"a": days.strftime("%d/%m/%y"), "y": ["p", "q"] * 20})
    with refused("as date_format says, %d/%m/%Y: got '01/01/23'", "--data.date-format '%d/%m/%y'"):
        only_train(short, date_format="%d/%m/%Y")  # which reads 23 as the year 23
    assert only_train(short, date_format="%d/%m/%y").encoding["columns"][0]["kind"] == "date"
