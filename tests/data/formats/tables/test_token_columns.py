"""Columns of whole numbers that are tokens: read as names, never as amounts, however the file writes them."""

import json

import numpy as np
import polars as pl
import pytest
import torch

from margin.data.open import encode, open_data

CELLS = [[3, 17, 5], [17, 3], [5, 5, 17, 3]] * 20
LABELS = ["a", "b", "c"] * 20


def files(folder):
    """The same rows, written in every way that a table has."""
    rows = list(zip(CELLS, LABELS, strict=True))
    for name, mark, ends in (
        ("space", " ", ("", "")),
        ("list", ", ", ("[", "]")),
        ("tuple", ",", ("(", ")")),
    ):
        lines = [f'"{ends[0]}{mark.join(map(str, cell))}{ends[1]}";{label}' for cell, label in rows]
        (folder / f"{name}.csv").write_text("\n".join(["ids;label", *lines]) + "\n")
    lines = [json.dumps({"ids": cell, "label": label}) for cell, label in rows]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    frame = pl.DataFrame({"ids": CELLS, "label": LABELS})
    frame.with_columns(frame["ids"].cast(pl.List(pl.UInt16))).write_parquet(folder / "rows.parquet")
    return [folder / name for name in ("space.csv", "list.csv", "tuple.csv", "rows.jsonl", "rows.parquet")]


def numbers(part, vocabulary):
    """The tokens of a part as the numbers that they were."""
    batch = part.take(torch.arange(len(part)), torch.Generator())
    return [
        [int(vocabulary[k]) for k in row[:length]]
        for row, length in zip(batch.inputs[0].tolist(), batch.inputs[1].tolist(), strict=True)
    ]


def test_tokens_are_the_numbers_that_the_file_writes(tmp_path):
    wanted = sorted(CELLS)
    for path in files(tmp_path):
        data = open_data(str(path), {"tokens": "ids"})
        assert data.encoding["kind"] == "texts"
        found = [row for part in data.splits.values() for row in numbers(part, data.spec["vocabulary"])]
        assert sorted(found) == wanted, path.name
        assert data.encoding["columns"] == [{"name": "ids", "kind": "tokens"}]
        assert any("whole numbers of column 'ids' are read as tokens" in note for note in data.notes)


def test_new_rows_are_read_by_the_record_whatever_their_file(tmp_path):
    paths = files(tmp_path)
    data = open_data(str(paths[0]), {"tokens": "ids"})
    for path in paths[1:]:
        new = encode(str(path), data.encoding)
        assert numbers(new, data.spec["vocabulary"]) == CELLS
        assert new.targets.tolist() == [0, 1, 2] * 20


@pytest.mark.parametrize("cell", ["[3, -1]", "[3.5, 1]", "three 4", "3 x"])
def test_what_is_no_whole_number_is_named_with_its_row(tmp_path, cell):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["ids;label", *['"1 2";a', '"2 1";b'] * 10, f'"{cell}";a']) + "\n")
    with pytest.raises(ValueError, match=r"row 22, column 'ids'.*tokens must be whole numbers from 0 on"):
        open_data(str(path), {"tokens": "ids"})
    fractions = pl.DataFrame({"ids": [[1.5, 2.0]] * 20, "label": ["a", "b"] * 10})
    with pytest.raises(ValueError, match="tokens must be whole numbers"):
        open_data(fractions, {"tokens": "ids", "target": "label"})


def test_unnamed_they_are_refused_with_the_option_that_reads_them(tmp_path):
    g = torch.Generator().manual_seed(0)
    cells = torch.randint(100, (120, 5), generator=g).tolist()
    frame = pl.DataFrame({"ids": cells, "label": ["a", "b"] * 60})
    frame.write_parquet(tmp_path / "t.parquet")
    text = frame.with_columns(pl.Series("ids", [str(cell) for cell in cells]))
    text.write_csv(tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(ValueError, match=r"--data.tokens 'ids'"):
            open_data(str(tmp_path / name), {})
    with pytest.raises(ValueError, match=r"if these are tokens, set --data.tokens 'ids'"):
        open_data(str(tmp_path / "t.parquet"), {"text": "ids"})
    with pytest.raises(ValueError, match=r"--data.text ids, --data.tokens ids"):
        open_data(str(tmp_path / "t.csv"), {"text": "ids", "tokens": "ids"})
    with pytest.raises(ValueError, match="no column 'id'"):
        open_data(str(tmp_path / "t.csv"), {"tokens": "id"})
    with pytest.raises(ValueError, match="must be a column beside the target: got 'label'"):
        open_data(str(tmp_path / "t.csv"), {"tokens": "label"})


def test_arrays_of_whole_numbers_are_tokens_where_they_are_read_as_texts(tmp_path):
    longest = max(map(len, CELLS))
    padded = np.array([cell + [0] * (longest - len(cell)) for cell in CELLS])
    lengths, y = np.array(list(map(len, CELLS))), np.array(LABELS)
    np.savez(tmp_path / "padded.npz", x=padded, y=y, lengths=lengths)
    np.savez(tmp_path / "flat.npz", x=np.concatenate(CELLS), y=y, lengths=lengths)
    for name in ("padded.npz", "flat.npz"):
        data = open_data(f"texts:{tmp_path / name}", {})
        found = [row for part in data.splits.values() for row in numbers(part, data.spec["vocabulary"])]
        assert sorted(found) == sorted(CELLS), name
        new = encode(str(tmp_path / "flat.npz"), data.encoding)
        assert numbers(new, data.spec["vocabulary"]) == CELLS
        assert new.targets.tolist() == [0, 1, 2] * 20


def test_groups_and_an_official_part_of_token_arrays_are_kept(tmp_path):
    x, y = np.arange(60).reshape(20, 3) % 7, np.arange(20) % 2
    np.savez(tmp_path / "g.npz", x=x, y=y, groups=np.arange(20) // 2)
    data = open_data(f"texts:{tmp_path / 'g.npz'}", {"min_count": 1})
    groups = sum(int(part.groups.max()) + 1 for part in data.splits.values())
    assert data.encoding["group"]["column"] == "groups" and groups == 10  # a group in two parts counts twice
    np.savez(tmp_path / "o.npz", x=x, y=y, x_test=x[:4, ::-1], y_test=y[:4])
    kept = open_data(f"texts:{tmp_path / 'o.npz'}", {"min_count": 1})
    assert numbers(kept.splits["test"], kept.spec["vocabulary"]) == x[:4, ::-1].tolist()


@pytest.mark.parametrize("wrong", [-1.0, 0.5, 2.0**24])
def test_arrays_that_hold_no_tokens_are_refused(tmp_path, wrong):
    x = np.ones((20, 3))
    x[4, 1] = wrong
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(20) % 2)
    with pytest.raises(ValueError, match="tokens must be whole numbers"):
        open_data(f"texts:{tmp_path / 'x.npz'}", {})


def test_no_rule_cuts_numbers(tmp_path):
    path = files(tmp_path)[0]
    with pytest.raises(ValueError, match=r"whole numbers are tokens as they are.*level characters"):
        open_data(str(path), {"tokens": "ids", "level": "characters"})


def test_whole_numbers_of_arrays_are_amounts_and_it_is_said(tmp_path):
    x, y = np.random.default_rng(0).integers(0, 50, (40, 5)), np.arange(40) % 2
    np.save(tmp_path / "x.npy", x)
    said = [
        any("read as amounts" in note for note in data.notes)
        for data in (
            open_data(str(tmp_path / "x.npy"), {}),
            open_data((x, y), {}),
            open_data((torch.from_numpy(x), y), {}),
            open_data((x.astype(np.float32), y), {}),
            open_data((x.astype(np.uint8), y), {}),
            open_data((x - 25, y), {}),
            open_data((x // 25, y), {}),
        )
    ]
    assert said == [True, True, True, False, False, False, False]
