"""Sets and clouds from arrays, lists and folders; new ones by a run's record; what is wrong is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from margin.data.formats.points.clouds import cloud_files, encode_clouds, from_clouds, read_clouds, sets_from
from margin.data.formats.points.sets import Sets
from margin.data.open import encode, open_data


def cloud(seed: int, size: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(size, 3)) * 3 + 1


def folder(path: Path, count: int = 8, *, parts: tuple[str, ...] = ("",), ending: str = ".xyz") -> Path:
    for part in parts:
        for label, name in enumerate(("ball", "cube")):
            place = path / part / name
            place.mkdir(parents=True)
            for k in range(count):
                points = cloud(100 * label + k)
                if ending == ".npy":
                    np.save(place / f"{k}.npy", points)
                else:
                    np.savetxt(place / f"{k}.xyz", points)
    return path


def test_a_list_of_arrays_of_several_sizes(refused: Callable) -> None:
    x = [cloud(k, k % 3) for k in range(20)]
    data = from_clouds(x, [k % 2 for k in range(20)])
    assert isinstance(data.splits["train"], Sets)
    assert data.spec["most_points"] == 2
    found = sets_from(x, None, "sets")
    assert found.sizes.tolist() == [k % 3 for k in range(20)]
    assert found.elements.dtype == torch.float64
    with refused("sets, set 2: every element must have 3 numbers, as in set 0: got 2"):
        sets_from([cloud(0), cloud(1), np.ones((4, 2))], None, "sets")
    with refused("sets, set 1: a set must be numbers of shape (elements, numbers): got (3,)"):
        sets_from([cloud(0), np.ones(3)], None, "sets")
    broken = cloud(1)
    broken[2, 1] = np.nan
    with refused("sets, set 1: every number must be finite: got nan at index (2, 1)"):
        sets_from([cloud(0), broken], None, "sets")
    with refused("there must be at least one set"):
        sets_from([], None, "sets")


def test_one_array_with_and_without_a_mask(refused: Callable) -> None:
    x = np.stack([cloud(k, 4) for k in range(20)]).astype(np.float32)
    mask = np.arange(4) < (np.arange(20) % 5)[:, None]
    data = from_clouds(x, np.arange(20) % 2)
    assert data.splits["train"].inputs[0].shape == (12, 4, 3)
    masked = sets_from(x, mask, "sets")
    assert masked.sizes.tolist() == mask.sum(1).tolist()
    assert torch.equal(masked.elements, torch.from_numpy(x[mask]))
    with refused("a mask must be true or false of shape (20, 4)"):
        sets_from(x, mask[:, :3], "sets")
    with refused("true or false"):
        sets_from(x, mask.astype(int), "sets")
    with refused("a mask belongs to one array"):
        sets_from([*x], mask, "sets")
    with refused("shape (sets, elements, numbers): got (20, 4)"):
        sets_from(x[..., 0], None, "sets")


@pytest.mark.parametrize("ending", [".xyz", ".npy"])
def test_class_folders(ending: str, tmp_path: Path) -> None:
    data = open_data(f"points:{folder(tmp_path / 'clouds', ending=ending)}", {})
    assert data.encoding["classes"] == ["ball", "cube"]
    assert data.encoding["scale"] == "sphere"
    assert {part: len(one) for part, one in data.splits.items()} == {"train": 10, "val": 2, "test": 4}
    x = data.splits["train"].inputs[0]
    assert x.norm(dim=-1).amax(1).tolist() == pytest.approx([1.0] * 10, abs=1e-6)
    plain = read_clouds(tmp_path / "clouds", scale="none", points=5)
    assert plain.spec["points"] == 5


def test_folders_of_parts_are_kept(tmp_path: Path) -> None:
    root = folder(tmp_path / "clouds", 4, parts=("train", "test"))
    data = read_clouds(root, val=0.25)
    assert {part: len(one) for part, one in data.splits.items()} == {"train": 6, "val": 2, "test": 8}
    new = encode_clouds(root, data.encoding)
    assert len(new) == 8
    assert torch.equal(new.inputs[0], data.splits["test"].inputs[0])
    assert torch.equal(new.targets, data.splits["test"].targets)
    assert len(cloud_files(root)) == 8


def test_arrays_in_a_file(tmp_path: Path, refused: Callable) -> None:
    path = tmp_path / "a.npz"
    x, y = np.stack([cloud(k, 4) for k in range(20)]), np.arange(20) % 2
    np.savez(path, x=x, y=y, classes=["no", "yes"], test=np.arange(20) >= 16)
    data = open_data(f"points:{path}", {})
    assert {part: len(one) for part, one in data.splits.items()} == {"train": 14, "val": 2, "test": 4}
    assert data.encoding["classes"] == ["no", "yes"]
    new = encode(f"points:{path}", data.encoding)
    assert torch.equal(new.inputs[0], data.splits["test"].inputs[0])
    assert new.targets.tolist() == [0, 1, 0, 1]
    np.savez(path, x=x.reshape(80, 3), sizes=[k % 2 * 8 for k in range(20)], y=y)
    ragged = read_clouds(path)
    assert ragged.spec["most_points"] == 8
    np.savez(path, x=x.reshape(80, 3), sizes=[4] * 19, y=y)
    with refused("add up to 80 elements"):
        read_clouds(path)
    np.savez(path, x=x, mask=np.zeros((20, 4), bool), y=y)
    with refused("a set must hold an element: all 20 are empty"):
        read_clouds(path)
    np.savez(path, x=x)
    with refused("training needs an array y"):
        read_clouds(path)
    np.savez(path, z=x)
    with refused("sets must be an array 'x': got z"):
        read_clouds(path)
    np.savez(path, x=x, y=y, test=np.arange(20))
    with refused("test must be true or false"):
        read_clouds(path)


def test_wrong_folders(tmp_path: Path, refused: Callable) -> None:
    with refused("no such file", error=FileNotFoundError):
        read_clouds(tmp_path / "nowhere.npz")
    root = folder(tmp_path / "clouds", 2)
    (root / "ball" / "0.xyz").write_text("1 2\n")
    with refused("every point must have 2 numbers, as in 0.xyz: got 3"):
        read_clouds(root)
    (root / "ball" / "0.xyz").write_text("1 2 nan\n")
    with refused("0.xyz: every number must be finite in single precision: point 0"):
        read_clouds(root)
    (tmp_path / "flat").mkdir()
    with refused("must hold files .ply, .xyz, .npy"):
        read_clouds(tmp_path / "flat")
    np.savetxt(tmp_path / "flat" / "a.xyz", cloud(0))
    with refused("training needs class folders"):
        read_clouds(tmp_path / "flat")
    with refused("got one file"):
        read_clouds(tmp_path / "flat" / "a.xyz")


def test_new_clouds_by_the_record(tmp_path: Path, refused: Callable) -> None:
    record = read_clouds(folder(tmp_path / "clouds")).encoding
    (tmp_path / "flat").mkdir()
    np.savetxt(tmp_path / "flat" / "a.xyz", cloud(0))
    one = encode(str(tmp_path / "flat" / "a.xyz"), record)
    assert one.inputs[0].shape == (1, 8, 3)
    assert one.targets is None
    assert encode_clouds(tmp_path / "flat", record).targets is None
    pair: tuple[Any, Any] = (np.stack([cloud(1)]), [1])
    assert encode(pair, record).targets.tolist() == [1]
    assert encode(np.stack([cloud(1)]), record).targets is None
    (tmp_path / "other" / "cone").mkdir(parents=True)
    np.savetxt(tmp_path / "other" / "cone" / "a.xyz", cloud(0))
    with refused("every class must be one of 'ball', 'cube': got the folder 'cone'"):
        encode_clouds(tmp_path / "other", record)
