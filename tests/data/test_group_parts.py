"""Splits by group: no group in two parts, shares kept, the record says so."""

import json
from collections import Counter

import numpy as np
import polars as pl
import pytest
import torch

from margin.data.description import describe, lines
from margin.data.formats.arrays.sources import from_arrays, read_arrays
from margin.data.formats.sequences.sources import from_sequences, read_sequences
from margin.data.formats.tables.tables import read_frame, read_table
from margin.data.open import encode
from margin.data.splits import Split, group_parts


def drawn(seed: int, count: int = 400, groups: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(groups, (count,), generator=generator)
    codes = codes.unique(return_inverse=True)[1]
    return codes, torch.randint(3, (count,), generator=generator)


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_a_partition_that_cuts_through_no_group(seed: int) -> None:
    groups, labels = drawn(seed)
    parts = group_parts(groups, labels, Split(seed=seed))
    assert torch.cat(list(parts.values())).sort().values.tolist() == list(range(400))
    of_part = [set(groups[index].tolist()) for index in parts.values()]
    assert not (of_part[0] & of_part[1] or of_part[0] & of_part[2] or of_part[1] & of_part[2])
    for name, share in {"train": 0.6, "val": 0.15, "test": 0.25}.items():
        assert abs(len(parts[name]) / 400 - share) < 0.04  # a group is 2.5 % of the rows
        for k in range(3):
            assert abs(float((labels[parts[name]] == k).sum() / (labels == k).sum()) - share) < 0.08


def test_the_seed_decides_and_repeats() -> None:
    groups, labels = drawn(0)
    first, again, other = (group_parts(groups, labels, Split(seed=s))["test"].tolist() for s in (1, 1, 2))
    assert first == again != other


def test_values_are_split_by_the_number_of_rows() -> None:
    groups, _ = drawn(3)
    parts = group_parts(groups, None, Split(val=0.0, test=0.5))
    assert abs(len(parts["test"]) - 200) <= 10
    assert set(parts) == {"train", "test"}


def test_one_group_a_part_is_enough_and_fewer_are_refused(refused) -> None:
    groups = torch.tensor([0] * 97 + [1] * 2 + [2])
    parts = group_parts(groups, None, Split())
    assert sorted(len(index) for index in parts.values()) == [1, 2, 97]
    with refused("every part (train, val, test) needs a group of its own: there are 2 groups"):
        group_parts(groups.clamp(max=1), None, Split())


def test_a_class_that_lies_in_one_group_must_be_trained_on(refused) -> None:
    groups = torch.arange(10).repeat_interleave(10)
    labels = (groups == 0).long()
    assert 0 in group_parts(groups, labels, Split(val=0.0))["train"].tolist()
    with refused("the training part needs an example of every class: all groups of class '1' are held out"):
        group_parts(groups, labels, Split(test=0.9, val=0.0))


def test_a_table_by_patients(csv, refused, tmp_path) -> None:
    rows = [(f"p{k % 30:02}", k % 7, "xy"[k % 2]) for k in range(300)]
    path = csv("patient,a,y\n" + "".join(f"{p},{a},{y}\n" for p, a, y in rows))
    data = read_table(path, group="patient", target="y")
    assert [column["name"] for column in data.encoding["columns"]] == ["a"]
    kept = data.encoding["group"]
    assert json.loads(json.dumps(kept)) == kept
    assert kept["column"] == "patient"
    assert sum(kept["counts"].values()) == 30
    assert any("no group of 'patient' lies in two parts" in line for line in lines(describe(data)))
    assert len(encode(csv("a\n3\n", "new.csv"), data.encoding)) == 1  # a group is not asked of new rows
    counts = Counter({name: len(part) for name, part in data.splits.items()})
    assert counts["train"] == 10 * kept["counts"]["train"]
    frame = pl.read_csv(path)
    same = read_frame(frame, group="patient", target="y")
    assert same.fingerprint == data.fingerprint
    with refused("the group must be a column beside the target"):
        read_table(path, group="y", target="y")
    with refused("no column 'patients'"):
        read_table(path, group="patients", target="y")
    with refused("row 3, column 'patient': every row needs its group"):
        read_table(csv("patient,a,y\np1,1,x\n,2,y\n" + "p2,1,x\n" * 9), group="patient", target="y")


def test_a_test_file_of_its_own_shares_no_group(csv, refused) -> None:
    head = "patient,a,y\n"
    path = csv(head + "".join(f"p{k % 20:02},{k % 7},{'xy'[k % 2]}\n" for k in range(200)))
    other = csv(head + "07,1,x\n7,2,y\n07,3,x\nq,4,y\n", "other.csv")
    data = read_table(path, group="patient", target="y", test_file=str(other))
    test = data.splits["test"]
    assert test.groups.tolist() == [0, 1, 0, 2]  # 07 and 7 are two patients
    assert data.encoding["group"]["counts"]["test"] == 3
    shared = csv(head + "q,1,x\np07,2,y\np07,3,x\n", "shared.csv")
    with refused("shared.csv, row 3, column 'patient': no group may lie in two parts: 'p07' is in"):
        read_table(path, group="patient", target="y", test_file=str(shared))
    with refused("no column 'patient'"):
        read_table(path, group="patient", target="y", test_file=str(csv("a,y\n1,x\n", "bare.csv")))


def test_a_test_file_keeps_the_names_of_groups_as_they_stand(csv, refused) -> None:
    """A group 1 is the group 1 in a file where another is 2.5: as numbers it would be 1.0."""
    rows = "".join(f"{k % 20},{k % 7},{'xy'[k % 2]}\n" for k in range(199))
    path = csv("patient,a,y\n" + rows + "p,1,x\n")
    other = csv("patient,a,y\n1,1,x\n2.5,2,y\n", "other.csv")
    with refused("other.csv, row 2, column 'patient': no group may lie in two parts: '1' is in"):
        read_table(path, group="patient", target="y", test_file=str(other))


def test_arrays_by_groups(tmp_path, refused) -> None:
    rng = np.random.default_rng(0)
    x, y, groups = rng.normal(size=(300, 2)), np.arange(300) % 2, np.array([f"p{k % 30}" for k in range(300)])
    x[:, 0] = np.arange(300)  # which example it is
    np.savez(tmp_path / "a.npz", x=x, y=y, groups=groups)
    for name, array in (("b", x), ("b_y", y), ("b_groups", groups)):
        np.save(tmp_path / f"{name}.npy", array)
    found = [from_arrays(x, y, groups=groups), read_arrays(tmp_path / "a.npz")]
    found += [read_arrays(tmp_path / "b.npy", memory=memory) for memory in ("always", "never")]
    for data in found:
        parts = {
            name: part.take(torch.arange(len(part)), torch.Generator()).inputs[0][:, 0].long() % 30
            for name, part in data.splits.items()
        }
        assert sorted(g for of_part in parts.values() for g in set(of_part.tolist())) == list(range(30))
        assert data.encoding["group"]["counts"] == {name: len(set(g.tolist())) for name, g in parts.items()}
        for name, part in data.splits.items():
            same = parts[name][:, None] == parts[name]
            assert torch.equal(part.groups[:, None] == part.groups, same)
        assert any("no group of 'groups' lies in two parts" in line for line in lines(describe(data)))
    for wrong in (groups[:-1], x[:, 1], groups[:, None]):
        with refused("arrays: groups must be whole numbers or names, of shape (300,): got"):
            from_arrays(x, y, groups=wrong)
    tested = from_arrays(x, y, groups=groups, test_arrays=(x[:9], y[:9]))
    assert tested.splits["test"].groups is None
    assert any("groups of the official test part are not known" in note for note in tested.notes)


def _sequences(groups: np.ndarray) -> dict[str, np.ndarray]:
    x = np.repeat(np.arange(len(groups), dtype=float), 3).reshape(-1, 3)
    return {"x": x, "y": np.arange(len(groups)) % 2, "groups": groups}


def test_sequences_by_groups(tmp_path, refused) -> None:
    names = np.array([f"p{k % 30}" for k in range(300)])
    held = _sequences(names)
    np.savez(tmp_path / "s.npz", **held)
    np.savez(tmp_path / "t.npz", x=held["x"], y=held["y"], patient=names)
    found = [from_sequences(held["x"], held["y"], groups=names), read_sequences(tmp_path / "s.npz")]
    for data in (*found, read_sequences(tmp_path / "t.npz", group="patient")):
        firsts = {name: part.ragged.padded(torch.arange(len(part)))[0] for name, part in data.splits.items()}
        parts = {name: set((x[:, 0, 0].long() % 30).tolist()) for name, x in firsts.items()}
        assert sorted(g for part in parts.values() for g in part) == list(range(30))  # none lies in two
        assert data.encoding["group"]["counts"] == {name: len(part) for name, part in parts.items()}
        test = firsts["test"][:, 0, 0].long() % 30
        ours = data.splits["test"].groups
        assert torch.equal(ours[:, None] == ours, test[:, None] == test)
    assert data.encoding["group"]["column"] == "patient"
    (tmp_path / "s.tsv").write_text("a\t1\t2\nb\t3\t4\n")
    with refused("s.tsv: groups are read from an .npz: a text of sequences has no 'patient'"):
        read_sequences(tmp_path / "s.tsv", group="patient")


def test_the_array_of_groups_may_have_another_name(tmp_path, refused) -> None:
    x, y, names = np.random.default_rng(0).normal(size=(80, 2)), np.arange(80) % 2, np.arange(80) // 4
    np.savez(tmp_path / "a.npz", x=x, y=y, patient=names)
    for key, array in (("b", x), ("b_y", y), ("b_patient", names)):
        np.save(tmp_path / f"{key}.npy", array)
    counts = [
        read_arrays(tmp_path / name, group="patient").encoding["group"]["counts"]
        for name in ("a.npz", "b.npy")
    ]
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) == 20
    with refused("a.npz: --data.group must name the array", "as groups: got 'site', and the arrays x, y"):
        read_arrays(tmp_path / "a.npz", group="site")
    (note,) = read_arrays(tmp_path / "a.npz").notes
    assert note.startswith("arrays not read: patient; those that are: classes, groups, x, x_test, y, y_test")


def test_a_group_without_a_name_is_refused(tmp_path, refused) -> None:
    """All examples without one would be one large group of which nobody knows anything."""
    names = np.array([f"p{k}" for k in range(40)])
    names[[7, 31]] = ["", " "]
    held = _sequences(names)
    np.savez(tmp_path / "a.npz", **held)
    said = "every example needs its group: the name at index 7 of 'groups' is empty (2 in all); fill it in"
    for read in (read_arrays, read_sequences):
        with refused(f"a.npz: {said}"):
            read(tmp_path / "a.npz")
