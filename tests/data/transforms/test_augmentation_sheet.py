"""The sheet shows each sample as it is, under each transform, and under all of them."""

import pytest
import torch
from matplotlib.image import imread

from margin.data.examples import Arrays
from margin.data.transforms.augmentation_sheet import DRAWINGS, augmentation_sheet

SPECS = {
    "images": ({"channels": 1, "image_size": (4, 4)}, (1, 4, 4), ["flip", "noise:.1"]),
    "color": ({"channels": 3, "image_size": (4, 4)}, (3, 4, 4), ["rotate:20"]),
    "sequences": ({"time": 12}, (12, 2), ["drop:.5", "shift:3"]),
    "single": ({"time": 12}, (12,), ["scale:.5"]),
    "points": ({"points": 20}, (20, 3), ["rotate:90"]),
    "vectors": ({"in_features": 5}, (5,), ["noise:.3"]),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_sheet_of_every_kind_of_inputs_is_a_picture(tmp_path, name):
    spec, shape, words = SPECS[name]
    x = torch.rand(7, *shape, generator=torch.Generator().manual_seed(0))
    path = augmentation_sheet(Arrays((x,), torch.arange(7)), words, spec, tmp_path / "sheet.png", count=3)
    pixels = imread(path)
    assert pixels.ndim == 3 and pixels.shape[0] > 100 and pixels.shape[1] > 200
    assert pixels[..., :3].std() > 0.01


def test_the_rows_are_the_samples_and_what_the_transforms_make_of_them(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setitem(DRAWINGS, "images", lambda axes, sample, span: drawn.append((sample, span)))
    x, spec = torch.rand(9, 1, 4, 4), {"channels": 1, "image_size": (4, 4)}
    augmentation_sheet(Arrays((x,)), ["flip", "roll:1"], spec, tmp_path / "sheet.png", count=3)
    rows = torch.stack([sample for sample, _ in drawn]).reshape(4, 3, 1, 4, 4)  # as it is, flip, roll, both
    chosen = x[[0, 4, 8]].double()
    assert torch.equal(rows[0], chosen)
    mirrored = (rows[1] == chosen.flip(3)).flatten(1).all(1)
    assert (mirrored | (rows[1] == chosen).flatten(1).all(1)).all()
    assert torch.equal(rows.flatten(2).sort(2).values, rows[:1].flatten(2).sort(2).values.expand(4, 3, 16))
    assert drawn[0][1] == (chosen.min().item(), chosen.max().item())


def test_the_picture_is_a_function_of_the_seed(tmp_path):
    x, spec = torch.rand(5, 1, 4, 4), {"channels": 1, "image_size": (4, 4)}
    made = [
        augmentation_sheet(
            Arrays((x,)), ["noise:1"], spec, tmp_path / f"{i}.png", count=2, seed=seed
        ).read_bytes()
        for i, seed in enumerate((0, 0, 1))
    ]
    assert made[0] == made[1] != made[2]


def test_bad_words_and_counts_are_refused(tmp_path):
    x, spec = torch.rand(5, 4), {"in_features": 4}
    with pytest.raises(ValueError, match="flip changes images: these are vectors"):
        augmentation_sheet(Arrays((x,)), ["flip"], spec, tmp_path / "sheet.png")
    with pytest.raises(ValueError, match="got 5, of which 0 are to be shown"):
        augmentation_sheet(Arrays((x,)), ["noise:1"], spec, tmp_path / "sheet.png", count=0)
    assert not list(tmp_path.iterdir())
