"""Tables against pandas' parse, and what is understood of types, targets and missing cells."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from margin.data.description import describe, lines
from margin.data.formats.encodings import feature_names
from margin.data.formats.tables.delimited_columns import Form, columns_of
from margin.data.formats.tables.tables import read_frame, read_table
from margin.data.open import encode, open_data
from margin.data.splits import split_indices


def matrix(frame: pd.DataFrame, columns: list[dict]) -> np.ndarray:
    """The features by pandas, in the order of the record's names."""
    numeric = [c["name"] for c in columns if c["kind"] != "category"]
    dummies = pd.get_dummies(
        frame, columns=[c["name"] for c in columns if c["kind"] == "category"], prefix_sep="="
    )
    dummies[numeric] = dummies[numeric].astype(float)
    return dummies[feature_names(columns)].to_numpy(dtype=np.float64)


def only_train(path: Path, **options):
    data = read_table(path, test=0.0, val=0.0, **options)
    return data, data.splits["train"].inputs[0].numpy(), data.splits["train"].targets.numpy()


def test_tips_as_pandas_reads_them(shared: Path) -> None:
    data, x, y = only_train(shared / "tabular" / "tips.csv", target="tip")
    frame = pd.read_csv(shared / "tabular" / "tips.csv")
    np.testing.assert_allclose(y, frame["tip"], rtol=1e-7)
    np.testing.assert_allclose(x, matrix(frame.drop(columns="tip"), data.encoding["columns"]), rtol=1e-7)
    assert data.encoding["columns"][1]["categories"] == ["Female", "Male"]
    assert data.encoding["task"] == "values"


def test_penguins_without_incomplete_rows(shared: Path) -> None:
    path = shared / "tabular" / "penguins.csv"
    data, x, y = only_train(path, target="species", missing="drop")
    frame = pd.read_csv(path).dropna()
    assert data.encoding["classes"] == ["Adelie", "Chinstrap", "Gentoo"]
    assert [data.encoding["classes"][k] for k in y] == frame["species"].tolist()
    np.testing.assert_allclose(x, matrix(frame.drop(columns="species"), data.encoding["columns"]), rtol=1e-7)
    assert "11 of 344 rows are dropped" in data.notes[0]


@pytest.mark.parametrize("missing", ["mean", "median", "mode"])
def test_titanic_is_filled_from_its_training_part(shared: Path, missing: str) -> None:
    path = shared / "tabular" / "titanic.csv"
    data = read_table(path, target="survived", task="classes", missing=missing, ignore="alive, deck")
    frame = pd.read_csv(path).drop(columns=["alive", "deck"])
    labels = torch.tensor(frame.pop("survived").to_numpy())
    parts = split_indices(891, labels, test=0.25, val=0.15, seed=0)
    train = frame.iloc[parts["train"].numpy()]
    age = {"mean": train["age"].mean(), "median": train["age"].median(), "mode": train["age"].mode()[0]}
    assert age["mean"] != frame["age"].mean()
    record = {column["name"]: column for column in data.encoding["columns"]}
    assert record["age"]["fill"] == pytest.approx(age[missing], rel=1e-12)
    assert record["age"]["missing"] == 177
    assert record["embarked"]["fill"] == "S"
    assert record["adult_male"]["kind"] == "boolean"
    frame["age"] = frame["age"].fillna(age[missing])
    frame["embarked"] = frame["embarked"].fillna("S")
    frame["embark_town"] = frame["embark_town"].fillna("Southampton")
    expected = matrix(frame, data.encoding["columns"])
    for name, index in parts.items():
        np.testing.assert_allclose(data.splits[name].inputs[0].numpy(), expected[index.numpy()], rtol=1e-6)
        assert torch.equal(data.splits[name].targets, labels[index])
    assert data.encoding["ignored"] == ["deck", "alive"]
    assert any("'age': 177 missing cells" in note for note in data.notes)


def test_titanic_with_names_and_tickets(shared: Path, refused) -> None:
    path = shared / "tabular" / "titanic_raw.csv"
    options = {"target": "survived", "task": "classes", "missing": "median"}
    with refused(str(path), "column 'name'", "891 different texts", "set --ignore 'name'"):
        read_table(path, **options)
    data, x, _ = only_train(path, **options, ignore=["name", "ticket", "cabin"])
    fare = feature_names(data.encoding["columns"]).index("fare")
    np.testing.assert_allclose(x[:, fare], pd.read_csv(path)["fare"], rtol=1e-7)


def test_adult_has_no_header_and_question_marks(shared: Path, refused) -> None:
    path = shared / "tabular" / "adult.data.gz"
    with refused("name the target column", "set --data.header none"):
        read_table(path)
    with refused("row 15, column 'column_14': '?' means a missing value (583 such cells"):
        read_table(path, header="none", target="column_15")
    data, x, y = only_train(path, header="none", target="column_15", missing="drop")
    names = [f"column_{k}" for k in range(1, 16)]
    frame = pd.read_csv(path, header=None, names=names, skipinitialspace=True, na_values="?").dropna()
    # UCI's description: 30,162 complete rows.
    assert len(frame) == len(x) == 30162
    assert data.encoding["classes"] == ["<=50K", ">50K"]
    assert [data.encoding["classes"][k] for k in y[:500]] == frame["column_15"].tolist()[:500]
    expected = matrix(frame.drop(columns="column_15"), data.encoding["columns"])
    np.testing.assert_allclose(x, expected, rtol=1e-7)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_dialect_gives_the_same_table(separator, start, end, csv, tmp_path) -> None:
    rows = [
        ["x", "name", "y"],
        *[[f"{k / 8}", f'"a{separator} {"b" if k % 2 else "c"}"', f"{k}.5"] for k in range(20)],
    ]
    text = start + end.join(separator.join(row) for row in rows)
    data, x, y = only_train(csv(text))
    assert x[:, 0].tolist() == [k / 8 for k in range(20)]
    assert [column["name"] for column in data.encoding["columns"]] == ["x", "name"]
    assert data.encoding["columns"][1]["categories"] == [f"a{separator} b", f"a{separator} c"]
    assert y.tolist() == [k + 0.5 for k in range(20)]


@pytest.mark.parametrize("word", ["NaN", "nan", "NA", ""])
@pytest.mark.parametrize(("column", "row"), [("x", 3), ("x", 1500), ("name", 3), ("name", 1500)])
def test_a_missing_cell_far_down_is_missing_too(column: str, row: int, word: str, csv, tmp_path) -> None:
    # the types are those of the first 1,000 rows; NaN is a number to those who read it without the words
    rows = [{"x": f"{k % 7}.5", "name": "ab"[k % 2], "y": "uv"[k % 2]} for k in range(2000)]
    rows[row][column] = word
    path = csv("\n".join(["x,name,y", *(",".join(one.values()) for one in rows)]) + "\n")
    with pytest.raises(ValueError, match=f"row {row + 2}, column '{column}'"):
        read_table(path, target="y")
    kept = read_table(path, target="y", missing="drop")
    assert sum(len(part) for part in kept.splits.values()) == 1999
    found = columns_of(
        path.read_bytes(), ["x", "name", "y"], Form(",", ".", True, ("NaN", "nan", "NA", ""), ())
    )
    assert found["x"].dtype == pl.Float64
    assert not found["x"].is_nan().any()
    assert found["x"].null_count() == (column == "x")


def test_quotes_hold_separators_quotes_and_line_breaks(csv, refused) -> None:
    text = 'a,b,y\n1,"p\nq",0.5\n2,"say ""p"", q",1.5\n\n3,"p\nq",2.5\n'
    data, x, _ = only_train(csv(text))
    assert data.encoding["columns"][1]["categories"] == ["p\nq", 'say "p", q']
    assert x.tolist() == [[1, 1, 0], [2, 0, 1], [3, 1, 0]]
    # The cell of the third row begins in line 6 as an editor counts.
    with refused("row 6, column 'a': the cell is empty"):
        read_table(csv(text.replace("\n3,", "\n,")))


def test_parquet_and_frames_keep_their_types(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "i": list(range(20)),
            "f": [None if k == 3 else k / 2 for k in range(20)],
            "b": [k % 3 == 0 for k in range(20)],
            "s": ["10" if k % 2 else "20" for k in range(20)],
            "label": [k % 2 == 0 for k in range(20)],
        }
    )
    frame.write_parquet(tmp_path / "a.parquet")
    from_file = read_table(tmp_path / "a.parquet", missing="mean")
    # Text that looks like numbers is text where the file says so.
    assert [c["kind"] for c in from_file.encoding["columns"]] == ["number", "number", "boolean", "category"]
    assert from_file.encoding["classes"] == ["False", "True"]
    assert read_frame(frame, missing="mean").fingerprint == from_file.fingerprint
    assert read_frame(as_pandas(frame), missing="mean").fingerprint == (from_file.fingerprint)


def as_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({name: frame[name].to_list() for name in frame.columns})


@pytest.mark.parametrize(
    ("target", "task", "kind", "classes"),
    [
        (["1.5", "2", "3"], None, "values", []),
        (["1.0", "2.0", "2.0"], "classes", "classes", ["1", "2"]),
        (["3", "10", "10"], "classes", "classes", ["3", "10"]),
        (["3", "10", "10"], "values", "values", []),
        (["b", "a", "a"], None, "classes", ["a", "b"]),
        (["true", "False", "TRUE"], None, "classes", ["False", "True"]),
        (["yes", "no", "no"], None, "classes", ["no", "yes"]),
    ],
)
def test_the_target_says_the_task(target, task, kind, classes, csv) -> None:
    rows = "\n".join(f"{k},{value}" for k, value in enumerate(target * 5))
    data = read_table(csv(f"a,y\n{rows}\n"), task=task)
    assert data.encoding["task"] == kind
    assert data.encoding["classes"] == classes
    assert data.notes[0] == "the target is column 'y', since no target was named"


@pytest.mark.parametrize("name", ["target", "label", "class", "Y"])
def test_a_target_of_a_usual_name_need_not_be_named(name: str, csv) -> None:
    rows = "\n".join(f"{k},{k}.5" for k in range(9))
    assert read_table(csv(f"a,{name}\n{rows}\n")).encoding["target"]["name"] == name


def test_indicators_are_not_standardized_and_numbers_are(csv) -> None:
    rows = "\n".join(f"{k},{'p' if k % 3 else 'q'},{k % 2 == 0},{k}.5" for k in range(30))
    data = read_table(csv(f"a,b,c,y\n{rows}\n"))
    x = data.splits["train"].inputs[0]
    seen = data.preprocess(x)
    assert torch.equal(seen[:, 1:], x[:, 1:])
    assert abs(float(seen[:, 0].mean())) < 1e-6
    assert float(seen[:, 0].std(correction=0)) == pytest.approx(1, abs=1e-6)


def test_the_record_is_json_and_says_everything(csv) -> None:
    rows = "\n".join(f"{k},{'p' if k % 3 else ''},{k % 2},x" for k in range(40))
    data = read_table(csv(f"a,b,y,id\n{rows}\n"), task="classes", missing="mode", ignore=["id"], split_seed=3)
    assert json.loads(json.dumps(dict(data.encoding))) == {
        "format": "table",
        "task": "classes",
        "shape": [2],
        "dtype": "float32",
        "classes": ["0", "1"],
        "split": {"test": 0.25, "val": 0.15, "seed": 3, "official": False},
        "columns": [
            {"name": "a", "kind": "number", "fill": data.encoding["columns"][0]["fill"], "missing": 0},
            {"name": "b", "kind": "category", "categories": ["p"], "fill": "p", "missing": 14},
        ],
        "target": {"name": "y", "kind": "number"},
        "missing": "mode",
        "ignored": ["id"],
        "header": "first",
        "separator": None,
        "decimal": ".",
        "missing_values": ["", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A"],
    }
    assert data.name == "file.csv"


def test_a_domain_is_the_users_alone(csv, refused) -> None:
    rows = "\n".join(f"{k},{'p' if k % 3 else 'q'},{k}.5" for k in range(20))
    path = csv(f"a,b,y\n{rows}\n")
    assert read_table(path).domain is None
    data = read_table(path, domain=(0.0, 20.0))
    assert (data.domain.low, data.domain.high) == (0, 20)
    assert any("move categories and 0/1 features as a whole" in note for note in data.notes)
    with refused("domain must contain every input"):
        read_table(path, domain=(0.0, 5.0))


def test_numbers_among_texts_are_noted(csv) -> None:
    rows = "\n".join(f"{'1' if k % 2 else 'p'},{k}.5" for k in range(20))
    data = read_table(csv(f"a,y\n{rows}\n"))
    assert data.encoding["columns"][0]["categories"] == ["1", "p"]
    assert any("'a' holds numbers and text" in note for note in data.notes)


def test_of_equally_frequent_values_the_least_fills(csv) -> None:
    rows = "\n".join(f"{(2, 1, '')[k % 3]},{('q', 'p', '')[k % 3]},{k}.5" for k in range(30))
    data = read_table(csv(f"a,b,y\n{rows}\n"), missing="mode", test=0.0, val=0.0)
    assert [column["fill"] for column in data.encoding["columns"]] == [1.0, "p"]


# a test part of its own

ROWS = "\n".join(f"{k},{'pqr'[k % 3]},{('no', 'yes')[k % 2]}" for k in range(40))


def test_a_file_may_be_the_test_part(csv) -> None:
    path = csv(f"a,b,y\n{ROWS}\n")
    test = csv("y,a,b\nyes,7,q\nno,100,p\n", "test.csv")  # columns are found by name
    data = read_table(path, test_file=str(test), val=0.25)
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 30, "val": 10, "test": 2}
    part = data.splits["test"]
    assert part.inputs[0].tolist() == [[7, 0, 1, 0], [100, 1, 0, 0]]
    assert part.targets.tolist() == [1, 0]
    assert data.encoding["split"] == {"test": None, "val": 0.25, "seed": 0, "official": True}
    assert "the test part is test.csv" in data.notes
    # nothing of the test part reaches the standardization
    train = data.splits["train"].inputs[0][:, 0].double()
    assert data.preprocess.mean[0].item() == pytest.approx(train.mean().item())
    assert train.max() < 40


def test_a_test_file_is_filled_and_dropped_as_the_training_rows_are(csv) -> None:
    path = csv(f"a,b,y\n{ROWS}\n,p,no\n")
    test = csv("a,b,y\n,q,yes\n3,p,no\n", "test.csv")
    dropped = read_table(path, test_file=str(test), missing="drop")
    assert dropped.splits["test"].inputs[0][:, 0].tolist() == [3]
    assert "test.csv: 1 of 2 rows are dropped: a cell is missing" in dropped.notes
    filled = read_table(path, test_file=str(test), missing="mean")
    fill = filled.encoding["columns"][0]["fill"]
    assert filled.splits["test"].inputs[0][:, 0].tolist() == pytest.approx([fill, 3])


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a,b\n1,p\n", ["test.csv: no column 'y'"]),
        ("a,y\n1,no\n", ["test.csv: no column 'b'"]),
        ("a,b,y\n1,s,no\n", ["test.csv, row 2, column 'b'", "one of 'p', 'q', 'r': got 's'"]),
        ("a,b,y\n1,p,maybe\n", ["test.csv, row 2, column 'y'", "one of 'no', 'yes': got 'maybe'"]),
        ("a,b,y\n1,p,no\nx,p,no\n", ["test.csv, row 3, column 'a': 'x' is not a number"]),
    ],
)
def test_a_test_file_that_does_not_fit_is_refused(text: str, texts: list[str], csv, refused) -> None:
    path = csv(f"a,b,y\n{ROWS}\n")
    with refused(*texts):
        read_table(path, test_file=str(csv(text, "test.csv")))
    with refused("no such file: none.csv", error=FileNotFoundError):
        read_table(path, test_file="none.csv")


def test_adult_keeps_its_own_test_part(shared: Path, csv, refused) -> None:
    train, test = (shared / "tabular" / f"adult.{part}.gz" for part in ("data", "test"))
    options = {"header": "none", "target": "column_15", "missing": "mode"}
    with refused("adult.test.gz, row 1, column 'column_15'", "'<=50K', '>50K': got '<=50K.'"):
        read_table(train, **options, test_file=str(test))
    text = gzip.decompress(test.read_bytes()).decode().replace("50K.", "50K")
    data = read_table(train, **options, test_file=str(csv(text, "test.csv")))
    assert {name: len(part) for name, part in data.splits.items()} == {
        "train": 27677,
        "val": 4884,
        "test": 16281,
    }


def test_a_table_without_a_target_is_all_features(tmp_path: Path) -> None:
    """The features are those of pandas.get_dummies, of every column."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=40),
            "kind": rng.choice(["a", "b", "c"], 40),
            "class": rng.integers(0, 2, 40),
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = pd.get_dummies(frame, columns=["kind"], prefix_sep="=", dtype=float)
    for source in (tmp_path / "t.csv", frame, pl.read_csv(tmp_path / "t.csv")):
        data = open_data(source, {"task": "none", "test": 0.0, "val": 0.0})
        assert data.encoding["task"] == "none"
        assert "target" not in data.encoding
        names = feature_names(data.encoding["columns"])
        assert sorted(names) == sorted(expected.columns)
        np.testing.assert_allclose(data.splits["train"].inputs[0], expected[names], rtol=1e-6)
        assert data.splits["train"].targets is None
        again = encode(source, data.encoding)
        assert torch.equal(again.inputs[0], data.splits["train"].inputs[0])
        assert again.targets is None
    unnamed = open_data(frame.drop(columns="class"), {})
    assert unnamed.encoding["task"] == "none"
    assert "no column is the target, since none was named: --target NAME names one" in unnamed.notes
    assert open_data(frame, {"task": "classes"}).encoding["target"]["name"] == "class"
    text = "\n".join(lines(describe(unnamed)))
    assert "target    none" in text


def test_a_test_file_of_a_table_without_a_target(tmp_path: Path) -> None:
    pl.DataFrame({"a": range(20), "b": range(20)}).write_csv(tmp_path / "t.csv")
    (tmp_path / "u.csv").write_text("a,b\n1,2\n,4\n5,6\n")
    data = read_table(tmp_path / "t.csv", test_file=str(tmp_path / "u.csv"), missing="drop")
    assert data.splits["test"].inputs[0].tolist() == [[1, 2], [5, 6]]
    assert data.splits["test"].targets is None
