"""Images with masks as arrays: what is taken for a mask, its classes, 255, new ones as the run's own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

import margin
from margin import Training
from margin.data.formats.arrays.sources import encode_pair, from_arrays, read_arrays
from margin.data.splits import Split
from margin.runs.masks import predicted_masks

NONE = Split(test=0.0, val=0.0)


def images(count: int = 6, channels: int = 1) -> np.ndarray:
    return np.random.default_rng(0).random((count, channels, 5, 7)).astype(np.float32)


def masks(count: int = 6) -> np.ndarray:
    """Three classes; no two images alike."""
    return np.random.default_rng(1).integers(0, 3, (count, 5, 7))


def test_targets_with_rows_and_columns_are_a_class_for_each_pixel() -> None:
    x, y = images(), masks()
    data = from_arrays(x, y, split=NONE)
    train = data.splits["train"]
    assert data.encoding["task"] == "pixel_classes" and data.encoding["classes"] == ["0", "1", "2"]
    assert data.spec["num_classes"] == 3 and data.spec["image_size"] == (5, 7)
    assert torch.equal(train.targets, torch.from_numpy(y)) and train.weight is None
    assert torch.equal(train.inputs[0], torch.from_numpy(x))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (images()[:, 0], masks()),
        (images(), masks()[:, None]),
        (images(), torch.from_numpy(masks())),
        (images(channels=3), masks().astype(float)),
        (images(), masks() == 1),
    ],
)
def test_masks_come_in_the_forms_that_people_have(x, y) -> None:
    train = from_arrays(x, y, split=NONE).splits["train"]
    assert torch.equal(train.targets, torch.as_tensor(np.asarray(y)).reshape(6, 5, 7).long())


def test_parts_hold_images_with_their_own_masks(tmp_path: Path) -> None:
    x = masks().astype(np.float32)[:, None]  # an image shows its mask
    for data in (
        from_arrays(x, masks(), split=Split(test=1 / 3, val=1 / 4)),
        from_arrays(x[:4], masks()[:4], test_arrays=(x[4:], masks()[4:]), split=Split(val=0.25)),
    ):
        assert len(data.splits) == 3
        for part in data.splits.values():
            assert torch.equal(part.inputs[0][:, 0].long(), part.targets)


def test_255_is_no_class_beside_indices_and_a_class_without() -> None:
    y = masks()
    y[0, 2] = 255
    train = from_arrays(images(), y, split=NONE).splits["train"]
    assert train.weight[0, 2].sum() == 0 and train.weight.sum() == 6 * 35 - 7
    assert train.targets.max() == 2
    both = from_arrays(images(), 255 * (masks() > 0), split=NONE)
    assert both.encoding["classes"] == ["0", "255"] and both.splits["train"].weight is None
    assert torch.equal(both.splits["train"].targets, torch.from_numpy(masks() > 0).long())


def test_an_npz_of_images_and_masks_is_read_with_its_names_and_test_part(tmp_path: Path) -> None:
    names = np.array(["ground", "road", "house"])
    path = tmp_path / "a.npz"
    np.savez(path, x=images(), y=masks(), x_test=images(2), y_test=masks(2), classes=names)
    data = read_arrays(path)
    assert data.encoding["classes"] == list(names)
    assert torch.equal(data.splits["test"].targets, torch.from_numpy(masks(2)))
    np.savez(path, x=images(), y=masks(), classes=names[:2])
    with pytest.raises(ValueError, match="every class needs a name: got 2 for 3"):
        read_arrays(path)


@pytest.mark.parametrize(
    ("y", "rule"),
    [
        (masks()[:, :4], r"masks must have the shape of their images, \(6, 5, 7\): got \(6, 4, 7\)"),
        (masks()[:5], r"\(6, 5, 7\): got \(5, 5, 7\)"),
        (masks() + 0.5, "masks must hold classes, whole numbers from 0: got other float64"),
        (masks() - 1, "masks must hold classes, whole numbers from 0"),
        (np.zeros((6, 5, 7), int), "masks must show 2 to 255 classes: got 1 values"),
        (np.zeros((6, 2, 5, 7), int), r"\(6, 5, 7\): got \(6, 2, 5, 7\)"),
    ],
)
def test_what_is_no_mask_is_refused(y, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        from_arrays(images(), y, split=NONE)


def test_new_masks_are_read_by_the_values_of_the_run() -> None:
    encoding = from_arrays(images(), 10 * masks() + 5, split=NONE).encoding
    new = encode_pair((images(2), np.full((2, 5, 7), 25)), encoding)
    assert torch.equal(new.targets, torch.full((2, 5, 7), 2))
    assert encode_pair((images(2), None), encoding).targets is None
    wrong = np.full((2, 5, 7), 25)
    wrong[1, 2, 3] = 7
    rule = r"mask 1: every pixel must be of a known class, .*: got 7 in row 2, column 3"
    with pytest.raises(ValueError, match=rule):
        encode_pair((images(2), wrong), encoding)


def test_a_network_is_trained_audited_and_predicts_on_arrays(tmp_path: Path) -> None:
    x, y = images(8), masks(8)
    y[:, 0] = 255
    training = Training(max_steps=1, threads=1)
    run = margin.train("unet", (x, y), {"width": 2, "levels": 2}, training, out=tmp_path / "run")
    found = list(predicted_masks(run, (x[:2], None)))
    model = margin.load(run).eval()
    assert [one.name for one in found] == ["0", "1"]
    expected = model(torch.from_numpy(x[:2])).argmax(-1)
    assert all(torch.equal(one.labels, labels) for one, labels in zip(found, expected, strict=True))
    x = 1 - x  # none that it was trained on
    audit = margin.audit(run, (x, y), claims="risk.accuracy")
    batch = encode_pair((x, y), run.record["data"]["encoding"]).take(torch.arange(8), Generator())
    right = (model(batch.inputs[0]).argmax(-1) == batch.targets).float() * batch.weight
    value = float(audit.findings["theory/risk.accuracy"].value)
    assert value == pytest.approx(float(right.sum() / batch.weight.sum()))
