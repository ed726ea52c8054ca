"""Folders of images with masks: which belong together, which value is which class, windows and tiles."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator

from margin.data.description import describe, lines
from margin.data.formats.images.mask_pairs import drawn, joined, nearest, tiles_of
from margin.data.formats.images.masks import encode_masks, read_masks
from margin.data.open import encode, open_data
from margin.data.splits import Split

ALL = Generator()


def save(path: Path, pixels: np.ndarray, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels.astype(np.uint8))
    if mode == "P":
        image = Image.frombytes("P", image.size, pixels.astype(np.uint8).tobytes())
        image.putpalette([0, 0, 0, 200, 10, 10, 10, 200, 10] + [9] * 759)
    image.save(path)


def folder(
    root: Path,
    *,
    count: int = 8,
    size: tuple[int, int] = (6, 7),
    values: tuple[int, ...] = (0, 255),
    mode=None,
) -> tuple[np.ndarray, np.ndarray]:
    """A folder of images/ and masks/; the pixels of both."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, *size))
    masks = rng.choice(values, (count, *size))
    for k in range(count):
        save(root / "images" / f"{k}.png", images[k])
        save(root / "masks" / f"{k}.png", masks[k], mode)
    return images, masks


def everything(data, part="train"):
    return data.splits[part].take(torch.arange(len(data.splits[part])), Generator().manual_seed(0))


def test_each_image_is_read_with_its_own_mask(tmp_path: Path) -> None:
    images, masks = folder(tmp_path / "cells")
    data = open_data(tmp_path / "cells", {"val": 0.0, "test": 0.0})
    batch = everything(data)
    assert torch.equal(batch.inputs[0][:, 0], torch.tensor(images).float())
    assert torch.equal(batch.targets, torch.tensor(masks == 255).long())
    assert batch.weight is None
    assert data.encoding["classes"] == ["0", "255"]
    assert data.spec == {
        "in_features": 42,
        "num_examples": 8,
        "num_classes": 2,
        "channels": 1,
        "image_size": (6, 7),
    }
    mean = torch.tensor(images).double().mean()
    torch.testing.assert_close(data.preprocess.mean.flatten()[0], mean)


@pytest.mark.parametrize(
    ("images", "masks", "ending"),
    [
        ("image", "label", ""),
        ("imgs", "masks", "_mask"),
        ("images", "labels", "_gt"),
        ("images", "annotations", ""),
    ],
)
def test_folders_and_masks_are_found_by_the_names_that_people_give(
    tmp_path: Path, images: str, masks: str, ending: str
) -> None:
    for k in range(4):
        save(tmp_path / images / f"{k}.jpg", np.full((4, 4), 50))
        save(tmp_path / masks / f"{k}{ending}.png", np.arange(16).reshape(4, 4) % 2)
    assert len(open_data(tmp_path, {"val": 0.0, "test": 0.0}).splits["train"]) == 4


def test_parts_of_the_folder_are_kept_outside_or_inside(tmp_path: Path) -> None:
    for form in ("{part}/{kind}", "{kind}/{part}"):
        root = tmp_path / form[1:5]
        for part, count in (("train", 5), ("test", 2)):
            for k in range(count):
                for kind in ("images", "masks"):
                    place = form.format(part=part, kind=kind)
                    save(root / place / f"{part}{k}.png", np.arange(16).reshape(4, 4) % 2)
        data = open_data(root, {"val": 0.2})
        assert {part: len(found) for part, found in data.splits.items()} == {"train": 4, "val": 1, "test": 2}
        assert data.encoding["split"]["official"]


def test_a_palette_mask_is_read_by_its_indices_and_255_has_no_class(tmp_path: Path) -> None:
    """As VOC writes them. Kills a palette turned to gray first, and 255 as a class of its own."""
    _, masks = folder(tmp_path, values=(0, 1, 2, 255), mode="P")
    data = open_data(tmp_path, {"val": 0.0, "test": 0.0})
    batch = everything(data)
    assert data.encoding["classes"] == ["0", "1", "2"]
    assert torch.equal(batch.weight, torch.tensor(masks != 255).float())
    assert torch.equal(batch.targets, torch.tensor(np.where(masks == 255, 0, masks)).long())
    shown = "\n".join(lines(describe(data)))
    assert "8 images with a mask each, 6 x 7 pixels" in shown
    share = (masks == 255).mean()
    assert f"{share:.1%} of pixels (value 255), which count for nothing" in shown
    labeled = (masks == 1).sum() / (masks != 255).sum()
    assert f"class     '1' {labeled:.1%} of labeled pixels" in shown


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ((0, 255), ["0", "255"]),
        ((0, 128, 255), ["0", "128", "255"]),
        ((0, 1, 255), ["0", "1"]),
        ((3, 7), ["3", "7"]),
        ((0, 5, 12, 255), ["0", "5", "12"]),
    ],
)
def test_255_is_a_class_unless_the_others_are_indices(
    tmp_path: Path, values: tuple[int, ...], classes: list[str]
) -> None:
    folder(tmp_path, values=values)
    assert open_data(tmp_path, {}).encoding["classes"] == classes


def test_an_ignored_value_may_be_said(tmp_path: Path) -> None:
    _, masks = folder(tmp_path, values=(0, 1, 2))
    data = open_data(tmp_path, {"ignore_index": 0, "val": 0.0, "test": 0.0})
    assert data.encoding["classes"] == ["1", "2"]
    assert torch.equal(everything(data).weight, torch.tensor(masks != 0).float())


COLORS = {"sky": (0, 0, 255), "road": (128, 64, 128), "none": (0, 0, 0)}


def colored(root: Path) -> np.ndarray:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (4, 5, 5))
    for k in range(4):
        save(root / "images" / f"{k}.png", rng.integers(0, 256, (5, 5, 3)))
        save(root / "masks" / f"{k}.png", np.array([*COLORS.values()])[labels[k]])
    return labels


@pytest.mark.parametrize("form", ["{r} {g} {b}\t{name}\n", "{name},{r},{g},{b}\n"])
def test_colors_are_classes_by_a_table(tmp_path: Path, form: str) -> None:
    labels = colored(tmp_path)
    rows = [form.format(name=name, r=r, g=g, b=b) for name, (r, g, b) in COLORS.items()]
    heading = "name,r,g,b\n" if form.startswith("{name}") else "# colors\n"
    (tmp_path / "classes.txt").write_text(heading + "".join(rows))
    data = open_data(tmp_path, {"val": 0.0, "test": 0.0})
    assert data.encoding["classes"] == ["sky", "road", "none"]
    assert torch.equal(everything(data).targets, torch.tensor(labels))
    assert everything(data).inputs[0].shape == (4, 3, 5, 5)


def test_colors_without_a_table_are_refused_with_the_colors_found(tmp_path: Path) -> None:
    colored(tmp_path)
    with pytest.raises(
        ValueError, match=r"need a table of classes: got 3 colors, as 0,0,0; 0,0,255; 128,64,128"
    ):
        open_data(tmp_path, {})


def test_names_of_gray_values_come_from_a_file(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "names.txt").write_text("0 membrane\n255 cell\n")
    assert open_data(tmp_path, {"classes": str(tmp_path / "names.txt")}).encoding["classes"] == [
        "membrane",
        "cell",
    ]


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ("0 a\n0 b\n", "must have a value of its own"),
        ("0 a\n1 a\n", "must have a name of its own"),
        ("0 a\n", "two classes at least: got 1"),
        ("0 a\n1 2 b\n", "line 2: a class must be 'value name' or 'red green blue name'"),
        ("1 2 3 a\n300 2 3 b\n", "line 2: a class must be"),
        ("0 a\n1 2 3 b\n", "line 2: a class must be"),
    ],
)
def test_a_table_of_classes_that_says_nothing_clear_is_refused(tmp_path: Path, lines: str, rule: str) -> None:
    folder(tmp_path)
    (tmp_path / "classes.txt").write_text(lines)
    with pytest.raises(ValueError, match=rule):
        open_data(tmp_path, {})


def wrong_size(root: Path) -> None:
    save(root / "masks" / "3.png", np.zeros((6, 8)))


def no_image(root: Path) -> None:
    save(root / "masks" / "17.png", np.zeros((6, 7)))


def no_mask(root: Path) -> None:
    (root / "masks" / "2.png").unlink()


def twice(root: Path) -> None:
    save(root / "masks" / "2.bmp", np.zeros((6, 7)))


def lossy(root: Path) -> None:
    (root / "masks" / "2.png").unlink()
    save(root / "masks" / "2.jpg", np.zeros((6, 7)))


def broken(root: Path) -> None:
    (root / "masks" / "2.png").write_bytes(b"\x89PNG\r\n\x1a\n no more")


def one_class(root: Path) -> None:
    for file in (root / "masks").iterdir():
        save(file, np.zeros((6, 7)))


def mixed(root: Path) -> None:
    for kind in ("images", "masks"):
        save(root / kind / "5.png", np.zeros((9, 5)))


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (
            wrong_size,
            r"3\.png: a mask must have its image's size: got 6 x 8 pixels for 6 x 7 pixels of 3\.png",
        ),
        (no_image, r"17\.png: every mask must have an image of its name: got none"),
        (no_mask, r"2\.png: every image must have a mask of its name in masks: got none"),
        (twice, r"there must be one mask of a name: got 2 of '2'"),
        (lossy, r"2\.jpg: the mask does not decode: JPEG changes values; save masks as PNG"),
        (broken, r"2\.png: the image does not decode"),
        (one_class, r"masks must show 2 to 255 classes: got 1 values"),
        (
            mixed,
            r"5\.png: images must have one size: got 9 x 5 pixels, .*set --data.crop 6,5 .*--data.resize 6,7",
        ),
    ],
)
def test_what_is_wrong_in_a_folder_is_named(tmp_path: Path, spoil, rule: str) -> None:
    folder(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ValueError, match=rule) as error:
        open_data(tmp_path, {})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("memory", ["always", "never"])
def test_windows_are_drawn_in_training_and_tiles_cover_what_is_held_out(tmp_path: Path, memory: str) -> None:
    rng = np.random.default_rng(1)
    for k in range(6):
        size = (5 + k % 3, 7)
        levels = rng.integers(0, 256, size)
        save(tmp_path / "images" / f"{k}.png", levels)
        save(tmp_path / "masks" / f"{k}.png", levels // 128)
    data = open_data(tmp_path, {"crop": (4, 4), "test": 0.5, "val": 0.0, "memory": memory})
    train, test = data.splits["train"], data.splits["test"]
    assert len(train) == 3
    batches = [train.take(torch.arange(3), Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(batches[0].inputs[0], batches[1].inputs[0])
    assert not torch.equal(batches[0].inputs[0], batches[2].inputs[0])
    for batch in batches:
        assert torch.equal(batch.targets, (batch.inputs[0][:, 0] // 128).long())
        assert bool((batch.weight == 1).all())
    batch = everything(data, "test")
    kept = batch.weight > 0
    assert torch.equal(batch.targets[kept], (batch.inputs[0][:, 0] // 128).long()[kept])
    pixels = sum(test.pair(i)[0].numel() for i in range(3))
    assert int(batch.weight.sum()) == pixels  # every pixel once, though tiles overlap
    assert torch.equal(test.groups.unique(), torch.arange(3))
    assert data.encoding["group"]["column"] == "image"


def test_an_image_smaller_than_the_crop_is_filled_up_and_that_counts_for_nothing(tmp_path: Path) -> None:
    folder(tmp_path, size=(3, 3))
    batch = everything(open_data(tmp_path, {"crop": (4, 5), "val": 0.0, "test": 0.0}))
    assert batch.inputs[0].shape == (8, 1, 4, 5)
    assert batch.weight.sum((1, 2)).tolist() == [9.0] * 8


def test_a_window_begins_at_every_place_where_it_lies_inside() -> None:
    """Of 60 draws each of three places is missed with probability (2/3)^60 < 1e-10."""
    seen = {drawn(6, 4, Generator().manual_seed(seed)) for seed in range(60)}
    assert seen == {0, 1, 2}
    assert drawn(3, 4, Generator()) == drawn(4, 4, Generator()) == 0


def test_tiles_put_together_are_the_image() -> None:
    for size in ((1, 1), (4, 4), (5, 9), (8, 3)):
        whole = torch.arange(size[0] * size[1]).reshape(size) + 1
        tiles = tiles_of([size], (4, 4))
        padded = torch.zeros(max(size[0], 4), max(size[1], 4), dtype=whole.dtype)
        padded[: size[0], : size[1]] = whole
        answers = [padded[t : t + 4, left : left + 4] for _, t, left, _, _ in tiles.tolist()]
        assert torch.equal(joined(tiles, answers, size), whole)


def test_tiles_lie_inside_of_an_image_that_is_larger() -> None:
    """Kills a last tile that is filled up in place of being moved inside, where a network sees a border."""
    tiles = tiles_of([(5, 9), (4, 11)], (4, 4))
    for (image, top, left, _, _), (height, width) in zip(
        tiles.tolist(), [[(5, 9), (4, 11)][i] for i in tiles[:, 0].tolist()], strict=True
    ):
        assert top + 4 <= height and left + 4 <= width, image


def test_a_mask_is_turned_as_its_exif_orientation_says(tmp_path: Path) -> None:
    """As an editor saves both. Kills a mask that is read as it is stored, beside an image that is turned."""
    images, masks = folder(tmp_path, size=(6, 6))
    turned = Image.Exif()
    turned[0x0112] = 6  # shown turned by a quarter to the right
    for kind, shown in (("images", images[3]), ("masks", masks[3])):
        stored = Image.fromarray(np.rot90(shown).astype(np.uint8).copy())
        stored.save(tmp_path / kind / "3.png", exif=turned)
    batch = everything(open_data(tmp_path, {"val": 0.0, "test": 0.0}))
    assert torch.equal(batch.inputs[0][:, 0], torch.tensor(images).float())
    assert torch.equal(batch.targets, torch.tensor(masks == 255).long())


def test_labels_are_resized_to_the_nearest_pixel() -> None:
    """Against Pillow's own. Kills a mean of two classes, and a corner in place of a center."""
    labels = torch.randint(5, (7, 9), generator=Generator().manual_seed(0)).to(torch.uint8)
    for size in ((3, 3), (14, 18), (7, 9), (5, 20)):
        peer = Image.fromarray(labels.numpy()).resize(size[::-1], Image.Resampling.NEAREST)
        assert torch.equal(nearest(labels, size), torch.from_numpy(np.asarray(peer).copy()))


def test_new_images_are_read_as_the_runs_own(tmp_path: Path) -> None:
    images, masks = folder(tmp_path / "a")
    encoding = open_data(tmp_path / "a", {}).encoding
    whole = encode(tmp_path / "a", encoding)
    assert torch.equal(whole.targets, torch.tensor(masks == 255).long())
    bare = encode(tmp_path / "a" / "images", encoding)
    assert bare.targets is None
    assert torch.equal(bare.take(torch.arange(8), ALL).inputs[0][:, 0], torch.tensor(images).float())
    one = encode(tmp_path / "a" / "images" / "3.png", encoding)
    assert torch.equal(one.take(torch.arange(1), ALL).inputs[0][0, 0], torch.tensor(images[3]).float())


def test_new_images_of_another_size_or_class_are_refused(tmp_path: Path) -> None:
    folder(tmp_path / "a")
    encoding = open_data(tmp_path / "a", {}).encoding
    folder(tmp_path / "b", size=(6, 8))
    with pytest.raises(
        ValueError, match=r"the run's images are 6 x 7 pixels: got 6 x 8 pixels; .*--data.crop 6,7"
    ):
        encode(tmp_path / "b", encoding)
    folder(tmp_path / "c", values=(0, 7))
    with pytest.raises(
        ValueError, match=r"every pixel must be of a known class, 0 \(0\), 255 \(255\): got 7 in row"
    ):
        encode(tmp_path / "c", encoding)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"crop": (0, 4)}, "crop must be a height and a width of at least 1"),
        ({"resize": (0, 4)}, "resize must be a height and a width, or a shorter side, of at least 1"),
        ({"resize": 0}, "resize must be a height and a width, or a shorter side, of at least 1"),
        ({"channels": 2}, "channels must be 1 or 3: got 2"),
    ],
)
def test_a_size_that_is_none_is_refused(tmp_path: Path, options: dict[str, object], rule: str) -> None:
    folder(tmp_path)
    with pytest.raises(ValueError, match=rule):
        open_data(tmp_path, options)


def test_a_shorter_side_resizes_images_and_masks_alike(tmp_path: Path) -> None:
    """6 x 7 to a shorter side of 3 is 3 x 3 (rounded down); masks by the nearest pixel, as Pillow's."""
    _, masks = folder(tmp_path, values=(0, 1, 2))
    batch = everything(open_data(tmp_path, {"resize": 3, "val": 0.0, "test": 0.0}))
    assert batch.inputs[0].shape == (8, 1, 3, 3)
    for k in range(8):
        image = Image.fromarray(masks[k].astype(np.uint8))
        peer = np.asarray(image.resize((3, 3), Image.Resampling.NEAREST))
        assert torch.equal(batch.targets[k], torch.from_numpy(peer.copy()).long())


def deep_folder(root: Path, most: int) -> np.ndarray:
    """Gray images of 16 bits whose largest level is ``most``."""
    levels = np.linspace(0, most, 12).astype(np.uint16).reshape(3, 4)
    for k in range(4):
        (root / "images").mkdir(parents=True, exist_ok=True)
        (root / "masks").mkdir(exist_ok=True)
        Image.fromarray(levels // (1 + (k > 0))).save(root / f"images/{k}.png")
        save(root / f"masks/{k}.png", np.array([[0, 1, 0, 1]] * 3, np.uint8))
    return levels


@pytest.mark.parametrize(("most", "bits"), [(4095, 12), (4096, 13), (200, 8), (65535, 16)])
def test_levels_of_sixteen_bit_files_are_read_in_the_bits_that_they_use(
    tmp_path: Path, most: int, bits: int
) -> None:
    """12 bits in a file of 16 would be 16 levels of 256: nearly black."""
    levels = deep_folder(tmp_path, most)
    data = read_masks(tmp_path, split=Split(test=0.0, val=0.0))
    assert torch.equal(
        data.splits["train"].pair(0)[0][0].long(), torch.from_numpy(levels.astype(int) >> bits - 8)
    )
    assert data.encoding.get("depth", 16) == bits
    said = f"gray images of 16 bits are of {bits} bits, in files of 16: their levels, up to {2**bits - 1:,}, "
    assert (f"{said}become 0 to 255" in data.notes) == (bits < 16)
    new = encode_masks(tmp_path / "images/1.png", data.encoding)
    assert torch.equal(new.pair(0)[0][0].long(), torch.from_numpy(levels.astype(int) // 2 >> bits - 8))


def test_the_depth_may_be_said_and_larger_levels_are_refused(tmp_path: Path) -> None:
    levels = deep_folder(tmp_path, 4095)
    data = read_masks(tmp_path, depth=16, split=Split(test=0.0, val=0.0))
    assert int(data.splits["train"].pair(0)[0].max()) == 15 and "depth" not in data.encoding
    with pytest.raises(ValueError, match=r"0.png: levels must have 11 bits, .*: got 4095; --data.depth 12"):
        read_masks(tmp_path, depth=11)
    for wrong in (0, 7, 17):
        with pytest.raises(ValueError, match=f"depth must be 8 to 16 bits: got {wrong}"):
            read_masks(tmp_path, depth=wrong)
    encoding = read_masks(tmp_path).encoding
    Image.fromarray(levels * 2).save(tmp_path / "new.png")
    with pytest.raises(ValueError, match="levels must have 12 bits"):
        encode_masks(tmp_path / "new.png", encoding).pair(0)


def test_pairs_that_do_not_decode_are_left_out_where_that_is_asked(tmp_path: Path) -> None:
    deep_folder(tmp_path, 200)
    (tmp_path / "images/1.png").write_bytes(b"no image")
    (tmp_path / "masks/2.png").write_bytes(b"no image")
    data = read_masks(tmp_path, skip_unreadable=True, split=Split(test=0.0, val=0.0))
    assert [image.name for image, _ in data.splits["train"].files] == ["0.png", "3.png"]
    (note,) = [note for note in data.notes if "unreadable" in note]
    assert note.startswith("2 unreadable pairs are left out; the first: ") and "1.png" in note
    for k in (0, 3):
        (tmp_path / f"masks/{k}.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="a part must have an image that can be read"):
        read_masks(tmp_path, skip_unreadable=True)
