"""Folders of images: class folders, the folder's own parts, in memory or read when taken."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from margin.auditing.subject.subjects import subject_of
from margin.data.description import describe, lines
from margin.data.examples import Arrays, Data, InOrder, Shuffled, evaluation_batch
from margin.data.formats.images.folders import Pictures, encode_images, image_files, read_folder
from margin.data.open import encode, open_data, reader_of
from margin.data.preprocess import fit_standardize, standardize_levels
from margin.data.sampling.loading import Prefetched


def picture(path: Path, seed: int, size: tuple[int, int] = (5, 7), *, color: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    levels = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    Image.fromarray(levels if color else levels[:, :, 0]).save(path)


def fill(folder: Path, counts: dict[str, int], *, start: int = 0, color: bool = False) -> Path:
    for k, (name, count) in enumerate(counts.items()):
        for i in range(count):
            picture(folder / name / f"{i:03d}.png", start + 1000 * k + i, color=color)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path / "pets", {"cat": 20, "dog": 40})


def levels(path: Path) -> list:
    return np.asarray(Image.open(path)).astype(float)[None].tolist()


def test_class_folders_are_classes(folder: Path) -> None:
    data = open_data(folder, {})
    assert data.name == "pets"
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 36, "val": 9, "test": 15}
    assert data.spec == {
        "in_features": 35,
        "num_examples": 36,
        "num_classes": 2,
        "channels": 1,
        "image_size": (5, 7),
    }
    assert data.encoding["classes"] == ["cat", "dog"]
    assert (data.domain.low.item(), data.domain.high.item()) == (0, 255)
    seen = []
    for part in data.splits.values():
        batch = InOrder(part, 100)[0]
        assert batch.inputs[0].dtype == torch.float32
        assert batch.targets.dtype == torch.int64
        seen += list(zip(batch.inputs[0].tolist(), batch.targets.tolist(), strict=True))
    expected = [(levels(path), int(path.parent.name == "dog")) for path in sorted(folder.rglob("*.png"))]
    assert sorted(seen, key=str) == sorted(expected, key=str)
    assert any("60 of 60 files are gray" in note for note in data.notes)


def test_in_memory_or_not_the_batches_are_the_same(folder: Path) -> None:
    held, read = (open_data(folder, {"memory": memory}) for memory in ("always", "never"))
    assert isinstance(held.splits["train"], Arrays)
    assert held.splits["train"].inputs[0].dtype == torch.uint8
    assert isinstance(read.splits["train"], Pictures)
    assert isinstance(open_data(folder, {}).splits["test"], Arrays)
    for step in range(9):
        one, other = (Shuffled(data.splits["train"], 8, seed=3)(step) for data in (held, read))
        assert torch.equal(one.inputs[0], other.inputs[0])
        assert torch.equal(one.targets, other.targets)
    assert held.fingerprint == read.fingerprint
    assert torch.equal(held.preprocess.mean, read.preprocess.mean)
    assert describe(held) | {"notes": []} == describe(read) | {"notes": []}
    assert "read from their files when taken" in " ".join(read.notes)


def test_the_standardization_is_that_of_the_training_pixels(tmp_path: Path) -> None:
    data = open_data(fill(tmp_path / "c", {"a": 9, "b": 9}, color=True), {"memory": "never"})
    train = InOrder(data.splits["train"], 100)[0].inputs[0]
    expected = fit_standardize(train, per="channel")
    torch.testing.assert_close(data.preprocess.mean, expected.mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(data.preprocess.std, expected.std, rtol=1e-12, atol=0)
    assert data.preprocess.mean.shape == (3, 1, 1)


def test_a_constant_channel_becomes_zero() -> None:
    # 4 pixels of 7, 7, 7, 7; and of 1, 3, 1, 3: mean 2, deviation 1
    fitted = standardize_levels(torch.tensor([[28, 4 * 49], [8, 20]]), 4)
    assert fitted.mean.flatten().tolist() == [7, 2]
    assert fitted.std.flatten().tolist() == [1, 1]


def test_the_folders_own_parts_are_kept(tmp_path: Path) -> None:
    for k, (part, count) in enumerate((("train", 20), ("test", 4), ("valid", 6))):
        fill(tmp_path / "p" / part, {"a": count, "b": count}, start=10_000 * k)
    data = open_data(tmp_path / "p", {})
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 40, "val": 12, "test": 8}
    test = InOrder(data.splits["test"], 8)[0]
    assert test.inputs[0].tolist() == [levels(p) for p in sorted((tmp_path / "p/test").rglob("*.png"))]
    assert test.targets.tolist() == [0] * 4 + [1] * 4
    assert "the folder's own val and test parts are kept" in data.notes
    assert "official test part, official val part" in "\n".join(lines(describe(data)))
    shutil.rmtree(tmp_path / "p/valid")
    assert len(open_data(tmp_path / "p", {"val": 0.25}).splits["val"]) == 10
    new = encode(tmp_path / "p", data.encoding)  # of a folder with a test part, that part
    assert torch.equal(new.inputs[0], data.splits["test"].inputs[0])


def test_classes_may_be_called_as_parts_are_beside_others(tmp_path: Path) -> None:
    data = open_data(fill(tmp_path / "v", {"plane": 9, "train": 9}), {})
    assert data.encoding["classes"] == ["plane", "train"]


def test_folders_called_as_parts_alone_are_parts_without_classes(tmp_path: Path) -> None:
    data = open_data(fill(tmp_path / "v", {"test": 4, "train": 9}), {"val": 0.0})
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 9, "test": 4}
    assert data.encoding["task"] == "none"
    assert "the folder's own test part is kept" in data.notes


@pytest.mark.parametrize("memory", ["always", "never"])
def test_a_flat_folder_of_images_has_no_labels(tmp_path: Path, memory: str) -> None:
    for k in range(8):
        picture(tmp_path / "flat" / f"{k}.png", 10 * k)
    data = open_data(tmp_path / "flat", {"memory": memory, "test": 0.25, "val": 0.25})
    parts = [part.take(torch.arange(len(part)), torch.Generator()) for part in data.splits.values()]
    assert [len(batch.inputs[0]) for batch in parts] == [4, 2, 2]
    assert all(batch.targets is None for batch in parts)
    found = sorted(image.flatten().tolist() for batch in parts for image in batch.inputs[0])
    files = sorted((tmp_path / "flat").iterdir())
    assert found == sorted(np.asarray(Image.open(file), float).ravel().tolist() for file in files)
    assert encode(tmp_path / "flat", data.encoding).targets is None


def test_color_decides_the_channels(folder: Path) -> None:
    picture(folder / "cat" / "x.png", 5, color=True)
    data = open_data(folder, {})
    assert data.spec["channels"] == 3
    assert any("60 of 61 files are gray" in note for note in data.notes)
    assert open_data(folder, {"channels": 1}).spec["channels"] == 1


def test_sizes_must_agree_or_be_stated(folder: Path, refused) -> None:
    picture(folder / "dog" / "x.png", 5, (9, 6))
    message = "images must have one size: got 9 x 6 pixels"
    with refused(str(folder / "dog" / "x.png"), message, "5 x 7 pixels", "set --data.resize 5,7"):
        open_data(folder, {})
    data = open_data(folder, {"resize": (4, 3)})
    assert data.spec["image_size"] == (4, 3)
    assert "61 of 61 images are resized to 4 x 3 pixels by Pillow's antialiased bilinear filter" in data.notes
    for wrong in ((0, 3), 0):
        with refused(f"resize must be a height and a width, or a shorter side, of at least 1: got {wrong}"):
            open_data(folder, {"resize": wrong})
    expected = Image.open(folder / "cat" / "000.png").resize((3, 4), Image.Resampling.BILINEAR)
    new = encode(folder / "cat" / "000.png", data.encoding)
    assert new.inputs[0][0, 0].tolist() == np.asarray(expected).tolist()


def test_files_that_are_no_images_are_counted(folder: Path) -> None:
    for name in (".DS_Store", "cat/.hidden.png", "dog/Thumbs.db"):
        (folder / name).write_text("x")
    before = open_data(folder, {})
    (folder / "README.txt").write_text("x")
    (folder / "cat" / "list.csv").write_text("x")
    data = open_data(folder, {})
    assert data.fingerprint == before.fingerprint
    assert "2 files that are no images are left out: the first is README.txt" in data.notes
    assert not any("left out" in note for note in before.notes)


def test_the_fingerprint_sees_bytes_classes_and_reading(folder: Path, tmp_path: Path) -> None:
    first = open_data(folder, {}).fingerprint
    assert open_data(folder, {}).fingerprint == first
    others = {open_data(folder, options).fingerprint for options in ({"channels": 3}, {"resize": (5, 8)})}
    others.add(open_data(folder, {"split_seed": 1}).fingerprint)
    (folder / "cat").rename(folder / "cow")
    others.add(open_data(folder, {}).fingerprint)
    (folder / "cow").rename(folder / "cat")
    assert open_data(folder, {}).fingerprint == first
    picture(folder / "cat" / "000.png", 77)
    others.add(open_data(folder, {}).fingerprint)
    assert len(others | {first}) == 6


def test_the_fingerprint_sees_labels(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        fill(tmp_path / "p" / part, {"a": 4, "b": 4})
    before = open_data(tmp_path / "p", {}).fingerprint
    # the files of the part stay as they are, in the same order
    (tmp_path / "p/test/a/003.png").rename(tmp_path / "p/test/b/-.png")
    assert open_data(tmp_path / "p", {}).fingerprint != before


# new images by a run's record


def test_new_images_are_read_by_the_record(folder: Path, tmp_path: Path, refused) -> None:
    data: Data = open_data(folder, {})
    one = encode(folder / "dog" / "003.png", data.encoding)
    assert one.targets is None
    assert InOrder(one, 5)[0].inputs[0].tolist() == [levels(folder / "dog" / "003.png")]
    flat = encode(folder / "dog", data.encoding)
    assert (len(flat), flat.targets) == (40, None)
    files = image_files(folder / "dog")
    assert [levels(file) for file in files] == InOrder(flat, 40)[0].inputs[0].tolist()
    assert image_files(folder / "dog" / "003.png") == (folder / "dog" / "003.png",)
    assert encode(fill(tmp_path / "n", {"dog": 2}), data.encoding).targets.tolist() == [1, 1]
    strange = fill(tmp_path / "s", {"cat": 1, "eel": 1})
    with refused(f"{strange / 'eel'}: every class must be one of 'cat', 'dog': got 'eel'"):
        encode(strange, data.encoding)
    picture(tmp_path / "n" / "dog" / "y.png", 1, (5, 8))
    with refused("y.png: the run's images are 5 x 7 pixels: got 5 x 8 pixels; resize the image"):
        encode(tmp_path / "n", data.encoding)


@pytest.mark.parametrize("memory", ["always", "never"])
def test_a_module_is_audited_on_real_numbers(folder: Path, memory: str) -> None:
    data = open_data(folder, {"memory": memory})
    subject = subject_of(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(35, 2)), data)
    for part in (subject.test, subject.train):
        assert part[0].inputs[0].dtype == torch.float32
    assert torch.equal(subject.test[0].inputs[0], InOrder(data.splits["test"], 256)[0].inputs[0])


def test_images_fit_a_run_on_arrays_of_bytes(tmp_path: Path, refused) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 5, 7), np.uint8)
    data = open_data((pixels, np.arange(40) % 2), {})
    picture(tmp_path / "a.png", 3)
    assert InOrder(encode(tmp_path / "a.png", data.encoding), 1)[0].inputs[0].tolist() == [
        levels(tmp_path / "a.png")
    ]
    for name in ("digits", "iris"):
        with refused("the run must have been trained on images of bytes: it was on (N, "):
            encode(tmp_path / "a.png", open_data(name, {}).encoding)


def test_a_folder_of_idx_files_stays_one(tmp_path: Path, refused) -> None:
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(b"")
    assert reader_of(tmp_path).__name__ == "read_images"
    assert reader_of(fill(tmp_path / "f", {"a": 1})).__name__ == "read_folder"
    picture(tmp_path / "a.png", 3)
    with refused("a.png: training needs a folder of images: got one image"):
        open_data(tmp_path / "a.png", {})


# photographs as people have them


def photographs(folder: Path) -> Path:
    """Twenty JPEGs of two classes and of several sizes, and one of each oddity."""
    for k in range(20):
        picture(folder / "ab"[k % 2] / f"{k:02d}.jpg", k, (20 + k, 30 - k // 2), color=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    color = Image.fromarray(np.random.default_rng(1).integers(0, 256, (24, 30, 3), np.uint8))
    color.save(folder / "a/turned.jpg", exif=exif)
    color.convert("RGBA").save(folder / "a/alpha.png")
    color.convert("CMYK").save(folder / "a/ink.jpg")
    color.quantize(16).save(folder / "a/palette.png")
    Image.fromarray(np.zeros((24, 30), np.uint16)).save(folder / "b/deep.png")
    color.save(folder / "b/moving.gif", save_all=True, append_images=[color.rotate(180)], duration=50)
    return folder


def test_a_folder_of_everything_is_read_and_said(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "all")
    data = open_data(folder, {"resize": 16, "crop": (12, 16)})
    assert data.spec["image_size"] == (12, 16)
    assert data.spec["channels"] == 3
    assert (data.encoding["resize"], data.encoding["crop"]) == ([16], [12, 16])
    for said in (
        "1 of 26 images is turned as the EXIF orientation says",
        "1 of 26 images is laid on white where transparent",
        "1 of 26 images is converted from CMYK to RGB without a color profile",
        "1 of 26 images is brought from 16 bits a channel to the high 8",
        "1 of 26 images is animated: the first frame is read",
        "26 of 26 images are resized to a shorter side of 16 pixels by Pillow's antialiased bilinear filter "
        "and cropped to the middle 12 x 16 pixels",
    ):
        assert said in data.notes
        assert f"note      {said}" in lines(describe(data))
    new = encode(folder, data.encoding)  # by the record of a run
    assert new.inputs[0].shape == (26, 3, 12, 16)
    one = encode(folder / "a" / "turned.jpg", data.encoding).inputs[0][0]
    turned = np.asarray(Image.open(folder / "a" / "turned.jpg").rotate(-90, expand=True))
    resized = Image.fromarray(turned).resize((16, 20), Image.Resampling.BILINEAR)
    assert np.array_equal(one.numpy(), np.asarray(resized)[4:16].transpose(2, 0, 1))


def test_a_shorter_side_alone_leaves_sizes_that_differ(tmp_path: Path, refused) -> None:
    remedy = "or --data.resize 16 --data.crop 16,16 (shorter side, then the middle)"
    with refused("images must have one size", remedy):
        open_data(photographs(tmp_path / "all"), {"resize": 16})
    with refused("an image must be at least as large as the crop of 25 x 25 pixels", "--data.resize 25"):
        open_data(tmp_path / "all", {"crop": (25, 25)})


@pytest.mark.parametrize("readers", [0, 1, 3])
def test_threads_and_memory_change_no_batch(tmp_path: Path, readers: int) -> None:
    folder, sizes = photographs(tmp_path / "all"), {"resize": 16, "crop": (16, 16)}
    held = open_data(folder, {"memory": "always", "readers": 0, **sizes})
    read = open_data(folder, {"memory": "never", "readers": readers, **sizes})
    assert read.fingerprint == held.fingerprint
    expected = Shuffled(held.splits["train"], 4, seed=3)
    ahead = Prefetched(Shuffled(read.splits["train"], 4, seed=3), 0, 12, ahead=readers > 0)
    for step in (0, 1, 2, 7, 8, 3, 4, 11):  # 7 and 3 are jumps
        one, other = ahead(step), expected(step)
        assert torch.equal(one.inputs[0], other.inputs[0])
        assert torch.equal(one.targets, other.targets)
    ahead.close()
    assert evaluation_batch(read.splits["test"]) == evaluation_batch(held.splits["test"])


def test_an_evaluation_takes_fewer_of_large_images() -> None:
    large = Arrays((torch.empty(2, 3, 224, 224, device="meta"),))
    assert evaluation_batch(large) == 2**23 // (3 * 224 * 224) == 55
    assert evaluation_batch(large, 64) == 64  # never fewer than the training's own
    assert evaluation_batch(Arrays((torch.empty(2, 1, 28, 28, device="meta"),))) == 512


@pytest.mark.parametrize("memory", ["always", "never"])
def test_unreadable_files_are_named_or_counted(tmp_path: Path, memory: str, refused) -> None:
    folder, options = photographs(tmp_path / "all"), {"resize": (8, 8), "memory": memory}
    whole = open_data(folder, options)
    (folder / "a" / "text.jpg").write_text("no image")
    torn = (folder / "b" / "01.jpg").read_bytes()
    (folder / "b" / "torn.jpg").write_bytes(torn[:-30])
    (folder / "b" / "empty.png").write_bytes(b"")
    remedy = "save it anew, or leave it out; --data.skip-unreadable true leaves out every such file"
    with refused(str(folder / "a" / "text.jpg"), "the image does not decode", remedy):
        open_data(folder, options)
    (folder / "a" / "text.jpg").unlink()
    (folder / "b" / "empty.png").unlink()
    with refused(
        str(folder / "b" / "torn.jpg"), "the image does not decode: image file is truncated", remedy
    ):
        open_data(folder, options)
    (folder / "a" / "text.jpg").write_text("no image")
    (folder / "b" / "empty.png").write_bytes(b"")
    data = open_data(folder, {"skip_unreadable": True, **options})
    assert data.fingerprint == whole.fingerprint  # the others are cut as if it were not there
    said = f"3 unreadable files are left out; the first: {folder / 'a' / 'text.jpg'}: the image does not"
    assert any(note.startswith(said) for note in data.notes)
    for part, examples in whole.splits.items():
        one, other = InOrder(examples, 50)[0], InOrder(data.splits[part], 50)[0]
        assert torch.equal(one.inputs[0], other.inputs[0])


def test_a_class_of_unreadable_files_is_refused(tmp_path: Path, refused) -> None:
    folder = fill(tmp_path / "pets", {"cat": 4, "dog": 8})
    for file in (folder / "cat").iterdir():
        file.write_text("no image")
    with refused("every class must have training images: got none of 'cat'"):
        open_data(folder, {"skip_unreadable": True})
    for file in (folder / "dog").iterdir():
        file.write_text("no image")
    with refused("a folder must hold an image that can be read: got 12 files that cannot be read"):
        open_data(folder, {"skip_unreadable": True})


def test_the_record_of_an_earlier_run_is_read(folder: Path) -> None:
    data = open_data(folder, {})
    assert "crop" not in data.encoding  # so the fingerprint of a folder stays what it was
    earlier = {key: value for key, value in data.encoding.items() if key != "resize"}
    assert torch.equal(encode(folder, earlier).inputs[0], encode(folder, data.encoding).inputs[0])


GROWTH = """
import resource, sys
import torch
from margin.data.open import open_data
open_data(sys.argv[2], {"memory": "never"})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = open_data(sys.argv[1], {"memory": "never"})
print(len(data.splits["train"]), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_a_folder_is_looked_at_in_constant_memory(tmp_path: Path) -> None:
    for name, count in (("many", 400), ("few", 20)):
        for k in range(count):
            path = tmp_path / name / "ab"[k % 2] / f"{k}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            coarse = np.random.default_rng(k).integers(0, 256, (28, 28, 3), np.uint8)
            Image.fromarray(coarse).resize((224, 224), Image.Resampling.BILINEAR).save(path)
    words = [sys.executable, "-c", GROWTH, str(tmp_path / "many"), str(tmp_path / "few")]
    found = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert found[0] == "240"
    assert float(found[1]) < 40  # MiB; decoded pixels are 57, fragments of the threads' memory were up to 330


def test_twelve_bits_in_files_of_sixteen_are_read_as_twelve(tmp_path: Path) -> None:
    levels = np.linspace(0, 4095, 20).astype(np.uint16).reshape(4, 5)
    for k in range(8):
        (tmp_path / "ab"[k % 2]).mkdir(exist_ok=True)
        Image.fromarray(levels // (1 + k)).save(tmp_path / "ab"[k % 2] / f"{k}.png")
    data = read_folder(tmp_path)
    highest = max(int(part.inputs[0].max()) for part in data.splits.values())
    assert highest == 255 and data.encoding["depth"] == 12
    assert any(note.startswith("8 of 8 images are of 12 bits, in files of 16") for note in data.notes)
    new = encode_images(tmp_path / "b/1.png", data.encoding)
    assert torch.equal(new.inputs[0][0, 0].long(), torch.from_numpy((levels // 2 >> 4).astype(int)))
    assert read_folder(tmp_path, depth=16).splits["train"].inputs[0].max() < 16
