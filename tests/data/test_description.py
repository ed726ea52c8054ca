"""What is said of a source agrees with a count made apart, and is JSON."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from margin.data.description import describe, lines
from margin.data.formats.tables.tables import read_table
from margin.data.open import open_data


def test_titanic_is_described_as_pandas_counts_it(shared: Path) -> None:
    path = shared / "tabular" / "titanic.csv"
    options = {"target": "survived", "task": "classes", "missing": "median", "ignore": "deck,alive"}
    found = describe(open_data(path, options))
    frame = pd.read_csv(path)
    assert json.loads(json.dumps(found)) == found
    assert found["parts"] == {"train": 535, "val": 133, "test": 223}
    counts = {name: sum(parts.values()) for name, parts in found["classes"].items()}
    assert counts == {"0": 549, "1": 342}
    columns = {column["name"]: column for column in found["columns"]}
    for name, column in columns.items():
        assert column["missing"] == frame[name].isna().sum()
        if column["kind"] == "number":
            assert column["range"] == pytest.approx([frame[name].min(), frame[name].max()])
        if column["kind"] == "category" and not column["missing"]:
            assert column["categories"] == frame[name].value_counts().to_dict()
    assert found["ignored"] == ["deck", "alive"]
    assert found["target"] == "survived"
    text = "\n".join(lines(found))
    for part in (
        "train 535",
        "'survived'",
        "female 314, male 577",
        "177 missing",
        "seed 0",
        "ignored   deck",
    ):
        assert part in text


@pytest.mark.parametrize("name", ["digits", "iris", "diabetes", "noisy-linear", "two-moons"])
def test_every_kind_is_json_and_lines(name: str) -> None:
    data = open_data(name, {})
    found = describe(data)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for line in lines(found):
        assert "\n" not in line
        assert len(line) < 200
    for part, arrays in data.splits.items():
        assert found["parts"][part] == len(arrays)
        if found["task"] == "classes":
            expected = np.bincount(arrays.targets.numpy()).tolist()
            assert [counts[part] for counts in found["classes"].values()] == expected
        else:
            values = arrays.targets.double().numpy()
            assert found["values"][part]["mean"] == pytest.approx(values.mean())
            assert found["values"][part]["deviation"] == pytest.approx(values.std())


def test_images_say_their_pixels_and_domain() -> None:
    text = lines(describe(open_data("digits", {})))
    assert "input     image of 1 channel, 8 x 8 pixels, in [0, 16]" in text
    assert any(line.startswith("domain    [0, 16]") for line in text)


def test_many_classes_are_cut_short() -> None:
    data = open_data((np.arange(200.0)[:, None], np.arange(200) % 20), {})
    text = lines(describe(data))
    assert "  and 8 more" in text


def test_a_range_is_written_in_digits_that_tell_its_ends_apart(tmp_path: Path) -> None:
    rows = [(1_700_000_000_000 + 1000 * k, k % 5, 1.7e9 + k / 4) for k in range(40)]
    path = tmp_path / "a.csv"
    path.write_text("when,small,y\n" + "".join(f"{w},{s},{y}\n" for w, s, y in rows))
    data = read_table(path, target="y", task="values")
    text = "\n".join(lines(describe(data)))
    assert "in [1700000000000, 1700000039000]" in text
    assert "in [0, 4]" in text
    first, last = re.search(r"train: in \[(\S+), (\S+)\]", text).groups()
    train = data.splits["train"].targets
    assert abs(float(first) - float(train.min())) < 0.05
    assert abs(float(last) - float(train.max())) < 0.05
    mean = re.search(r"train: .*mean (\S+),", text).group(1)
    assert abs(float(mean) - float(train.double().mean())) < 0.05


@pytest.mark.parametrize("ends", [(-0.1, 1.0000001), (1 / 3, 16777217.0), (0.0, 16.0), (-1e-9, 1e300)])
def test_a_domain_reads_back_to_the_same_numbers(ends: tuple[float, float]) -> None:
    text = next(line for line in lines({**SHOWN, "domain": list(ends)}) if line.startswith("domain"))
    low, high = re.fullmatch(r"domain    \[(\S+), (\S+)\]: where an input may be moved", text).groups()
    assert (float(low), float(high)) == ends
    assert text.startswith("domain    [0, 16]") or ends != (0.0, 16.0)


SHOWN = describe(open_data("iris", {}))


def test_an_end_of_a_domain_that_is_nearly_its_input_is_told_from_it() -> None:
    x = np.linspace(0, 1.0000002, 20, dtype=np.float32)[:, None]
    with pytest.raises(ValueError, match=r"got \[0, 1\], .* in \[.*1\.000000"):
        open_data((x, np.arange(20) % 2), {"domain": (0.0, 1.0)})
