"""Arrays in memory and in files: types, shapes, official test parts, and every refusal."""

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from margin.data.formats.arrays.sources import from_arrays, read_arrays
from margin.data.open import encode, open_data

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = np.arange(40) % 2


def test_float64_stays_and_all_else_becomes_float32() -> None:
    assert from_arrays(X, Y).splits["train"].inputs[0].dtype == torch.float64
    assert from_arrays(X, X[:, 0]).splits["train"].targets.dtype == torch.float64
    for other in (np.float16, np.float32, np.int32, np.int64, np.uint8, bool):
        assert from_arrays(X.astype(other), Y).splits["train"].inputs[0].dtype == torch.float32


def test_the_parts_are_the_rows_that_were_given() -> None:
    data = from_arrays(X, np.arange(40.0))
    for part in data.splits.values():
        rows = part.targets.long().numpy()
        np.testing.assert_array_equal(part.inputs[0].numpy(), X[rows])


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("as_numpy", [False, True])
def test_what_the_user_changes_later_does_not_reach_the_data(kind: torch.dtype, as_numpy: bool) -> None:
    x, y = torch.ones(40, 3, dtype=kind), torch.arange(40) % 2
    x_test, y_test = torch.ones(4, 3, dtype=kind), torch.tensor([0, 1, 0, 1])
    given = [t.numpy() if as_numpy else t for t in (x, y, x_test, y_test)]
    data = from_arrays(given[0], given[1], test_arrays=(given[2], given[3]))
    for tensor in (x, y, x_test, y_test):
        tensor.fill_(-7)
    assert all((part.inputs[0] == 1).all() for part in data.splits.values())
    assert data.splits["test"].targets.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("x", [torch.tensor(X), X.tolist(), X.astype(">f8"), np.asfortranarray(X), X[::-1]])
def test_any_array_is_taken(x) -> None:
    assert sum(len(part) for part in from_arrays(x, Y).splits.values()) == 40


@pytest.mark.parametrize(
    ("y", "task", "classes"),
    [
        (Y, "classes", ["0", "1"]),
        (Y.astype(np.uint8), "classes", ["0", "1"]),
        (Y.astype(bool), "classes", ["False", "True"]),
        (np.where(Y, "b", "a"), "classes", ["a", "b"]),
        (np.where(Y, "b", "a").astype(object), "classes", ["a", "b"]),
        (X[:, 0], "values", []),
        (torch.tensor(Y), "classes", ["0", "1"]),
        ([["dog", "cat"][k] for k in Y], "classes", ["cat", "dog"]),
    ],
)
def test_the_type_of_the_targets_says_the_task(y, task: str, classes: list[str]) -> None:
    data = from_arrays(X, y)
    assert data.encoding["task"] == task
    assert data.encoding["classes"] == classes
    assert data.spec.get("num_classes", 0) == len(classes)


def test_names_are_labeled_in_their_order() -> None:
    names = np.array(["dog", "cat"])[Y]
    part = from_arrays(X, names, test=0.0, val=0.0).splits["train"]
    assert part.targets.tolist() == [int(name == "dog") for name in names]


def test_the_task_may_be_said() -> None:
    assert from_arrays(X, Y, task="values").splits["train"].targets.dtype == torch.float64
    assert from_arrays(X, Y.astype(float), task="classes").splits["train"].targets.dtype == torch.int64


def test_images_of_bytes_have_a_domain() -> None:
    pixels = RNG.integers(0, 256, (40, 5, 4), dtype=np.uint8)
    data = from_arrays(pixels, Y)
    assert data.spec["channels"] == 1
    assert data.spec["image_size"] == (5, 4)
    assert data.spec["in_features"] == 20
    assert (data.domain.low, data.domain.high) == (0, 255)
    assert len(data.notes) == 2
    assert from_arrays(pixels.astype(float), Y).domain is None
    assert from_arrays(pixels[:, 0], Y).domain is None
    rgb = from_arrays(RNG.integers(0, 256, (40, 3, 5, 4), dtype=np.uint8), Y)
    assert rgb.spec["channels"] == 3
    assert rgb.preprocess.mean.shape == (3, 1, 1)


def test_a_domain_is_kept_and_checked(refused) -> None:
    data = from_arrays(X, Y, domain=(-10.0, 10.0))
    assert data.domain.low.dtype == torch.float64
    with refused("domain must contain every input: got [0, 1]"):
        from_arrays(X, Y, domain=(0.0, 1.0))
    with refused("low < high: got 1.0, 0.0"):
        from_arrays(X, Y, domain=(1.0, 0.0))


@pytest.mark.parametrize(
    ("x", "y", "options", "texts"),
    [
        (X, Y[:, None], {}, ["targets must have shape (N,): got (40, 1); pass y[:, 0]"]),
        (X, np.zeros((40, 2)), {}, ["targets must have shape (N,): got (40, 2)"]),
        (X, Y[:39], {}, ["one length: got 40 inputs, 39 targets"]),
        (X[:, 0], Y, {}, ["(N, d), (N, H, W) or (N, C, H, W): got (40,); pass x[:, None]"]),
        (np.zeros((40, 1, 2, 2, 2)), Y, {}, ["got (40, 1, 2, 2, 2)"]),
        (np.zeros((40, 8, 9, 3)), Y, {}, ["channels first", "got (40, 8, 9, 3)", "x.transpose(0, 3, 1, 2)"]),
        (np.zeros((0, 3)), np.zeros(0), {}, ["at least one example and one feature: got (0, 3)"]),
        (np.zeros((40, 0)), Y, {}, ["got (40, 0)"]),
        (np.full((40, 3), "a"), Y, {}, ["inputs must be numbers: got text"]),
        (X.astype(complex), Y, {}, ["inputs must be numbers", "complex128"]),
        ([[1.0], [1.0, 2.0]], [0, 1], {}, ["rows of different lengths"]),
        (np.where(np.eye(40, 3, -2), np.nan, X), Y, {}, ["finite: got nan at index (2, 0) (3 in all)"]),
        (np.where(np.eye(40, 3), np.inf, X), Y, {}, ["finite: got inf at index (0, 0)"]),
        (np.full((40, 3), 2**1000, dtype=np.longdouble), Y, {}, ["float32 input must be finite"]),
        (X, np.where(Y, np.nan, 1.0), {}, ["target must be finite: got nan at index 1 (20 in all)"]),
        (X, Y - 1, {}, ["labels must be 0 .. ", "got -1 at index 0 (20 in all)"]),
        (X, Y * 2, {}, ["0 .. K-1, each of them present: got none of 1, largest 2", "--task values"]),
        (X, Y + 1, {}, ["got none of 0, largest 2"]),
        (X[:3], np.array([0, 5, 9]), {}, ["got 3 examples, 10 classes"]),
        (X, Y * 0, {}, ["at least two classes: all 40 examples are of one class"]),
        (X, np.full(40, "a"), {}, ["at least two classes"]),
        (X, np.r_[np.zeros(38, int), 1, 1], {}, ["class '1' has 2 examples"]),
        (X, Y + 0.5, {"task": "classes"}, ["whole numbers: got 0.5 at index 0"]),
        (X, np.where(Y, "b", "a"), {"task": "values"}, ["values must be numbers: got text 'a'"]),
        (X, Y, {"test": 1.5}, ["test must be in [0, 1): got 1.5"]),
    ],
)
def test_mistakes_are_refused(x, y, options, texts, refused) -> None:
    with refused("mine", *texts) if "test" not in options else refused(*texts):
        from_arrays(x, y, name="mine", **options)


def test_an_official_test_part_is_kept(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X, y=Y, X_test=X[:5] + 100, y_test=Y[:5])
    data = read_arrays(tmp_path / "a.npz", val=0.25)
    assert data.name == "a.npz"
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 30, "val": 10, "test": 5}
    assert data.splits["test"].inputs[0].min() > 90
    assert data.preprocess.mean.abs().max() < 1
    assert data.encoding["split"]["official"] is True


def test_files_of_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y, classes=np.array(["no", "yes"]))
    assert read_arrays(tmp_path / "a.npz").encoding["classes"] == ["no", "yes"]
    np.save(tmp_path / "b.npy", X)
    np.save(tmp_path / "b_y.npy", Y)
    in_memory = from_arrays(X, Y)
    assert read_arrays(tmp_path / "b.npy").fingerprint == in_memory.fingerprint
    assert read_arrays(str(tmp_path / "a.npz")).fingerprint == in_memory.fingerprint


def test_wrong_files_are_refused(tmp_path: Path, refused) -> None:
    path = tmp_path / "a.npz"
    with refused("no such file", error=FileNotFoundError):
        read_arrays(path)
    np.savez(path, data=X, y=Y)
    with refused(str(path), "'x' or 'X': got data, y"):
        read_arrays(path)
    np.savez(path, x=X, y=Y, x_test=X)
    with refused("both x_test and y_test"):
        read_arrays(path)
    np.savez(path, x=X, x_test=X, y_test=Y)
    with refused("both x_test and y_test"):
        read_arrays(path)
    np.savez(path, x=X, y=Y, x_test=X[:, :2], y_test=Y)
    with refused("test part", "shape (N, 3): got (40, 2)"):
        read_arrays(path)
    np.savez(path, x=X, y=Y, x_test=X, y_test=Y + 1)
    with refused("test part", "labels must be 0 .. 1: got 2 at index 1 (20 in all)"):
        read_arrays(path)


def test_inputs_without_targets_are_cut_as_those_of_values(tmp_path: Path) -> None:
    """The parts depend on the number of examples alone, so those of values are an independent count."""
    values = from_arrays(X, np.linspace(0, 1, len(X)))
    np.savez(tmp_path / "a.npz", x=X)
    np.save(tmp_path / "b.npy", X)
    np.savez(tmp_path / "c.npz", x=X, y=Y)
    sources = [tmp_path / "a.npz", tmp_path / "b.npy", X, torch.from_numpy(X), (X, None)]
    read = [open_data(source, {}) for source in sources]
    read.append(open_data(tmp_path / "b.npy", {"memory": "never"}))
    read.append(open_data(tmp_path / "c.npz", {"task": "none"}))
    for data in read:
        assert data.encoding["task"] == "none"
        assert "num_classes" not in data.spec
        assert {name: len(part) for name, part in data.splits.items()} == {
            name: len(part) for name, part in values.splits.items()
        }
        for name, part in data.splits.items():
            index = torch.arange(len(part))
            batch = part.take(index, torch.Generator())
            assert batch.targets is None
            assert torch.equal(batch.inputs[0], values.splits[name].take(index, torch.Generator()).inputs[0])
    assert encode((X, Y), read[0].encoding).targets is None  # targets of new data are not looked at
    assert read[0].fingerprint != values.fingerprint


def test_an_official_test_part_without_targets_is_kept(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, x_test=X[:7])
    data = open_data(tmp_path / "a.npz", {})
    assert len(data.splits["test"]) == 7
    assert data.splits["test"].targets is None


class Exploding:
    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle was run')",))


def test_nothing_is_unpickled(tmp_path: Path, refused) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.array([Exploding()], dtype=object), y=Y)
    with refused(
        f"{path}, array 'x': not a file of plain arrays: it holds Python objects, which are never read; save"
    ):
        read_arrays(path)
    path.write_bytes(b"\x80\x04not numpy")
    with refused(f"{path}: not a file of plain arrays: File is not a zip file; save numbers or text with"):
        read_arrays(path)
    path.write_bytes(b"")
    with refused(str(path), "not a file of plain arrays"):
        read_arrays(path)


def test_an_ending_that_lies_is_refused(tmp_path: Path, refused) -> None:
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with refused("the ending is the wrong one"):
        read_arrays(tmp_path / "a.npz")


def peak_over(call: Callable[[], object]) -> int:
    """Bytes by which the resident memory of this process rises at most during a call."""

    def kept(what: str) -> int:
        return 1024 * int(Path("/proc/self/status").read_text().split(f"{what}:")[1].split()[0])

    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = kept("VmRSS")
    call()
    return kept("VmHWM") - before


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is Linux's to say")
def test_a_file_is_read_in_little_more_than_its_parts_take(tmp_path: Path) -> None:
    """Once as it lies in the file and once as its parts, for predictions once, and a little; no copy more."""
    size = 2**26
    x = np.random.default_rng(0).normal(size=(2**15, size // 2**17)).astype(np.float32)
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "a_y.npy", np.arange(len(x)) % 2)
    encoding = read_arrays(tmp_path / "a.npy").encoding
    assert peak_over(lambda: read_arrays(tmp_path / "a.npy")) < 3.5 * size
    assert peak_over(lambda: encode(tmp_path / "a.npy", encoding)) < 1.6 * size
