"""Pictures of samples: where each image lies by hand, black and white, what has no picture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from margin.data.transforms.sample_sheet import GAP, SIDE, has_picture, image_sheet, write_picture


def test_five_images_stand_in_three_columns_on_white() -> None:
    images = torch.stack([torch.full((1, 2, 4), level) for level in (0.0, 1.0, 0.5, 0.25, 0.75)])
    sheet = image_sheet(images, (0.0, 1.0))
    times = SIDE // 4
    tall, wide = 2 * times, 4 * times
    assert sheet.shape == (1, 2 * (tall + GAP) + GAP, 3 * (wide + GAP) + GAP)
    for i, level in enumerate((0.0, 1.0, 0.5, 0.25, 0.75)):
        top, left = GAP + i // 3 * (tall + GAP), GAP + i % 3 * (wide + GAP)
        assert bool((sheet[0, top : top + tall, left : left + wide] == level).all())
    assert bool((sheet[0, :GAP] == 1).all())
    assert bool((sheet[0, tall + 2 * GAP :, 2 * (wide + GAP) + GAP :] == 1).all())


def test_levels_outside_of_the_span_are_cut() -> None:
    images = torch.tensor([-1.0, 3.0]).reshape(2, 1, 1, 1)
    sheet = image_sheet(images, (0.0, 2.0))
    assert {sheet[0, GAP, GAP].item(), sheet[0, GAP, -GAP - 1].item()} == {0.0, 1.0}


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_holds_the_levels(channels: int, tmp_path: Path) -> None:
    images = torch.linspace(0, 1, channels * 4).reshape(1, channels, 2, 2)
    write_picture(tmp_path / "x.png", images)
    seen = np.asarray(Image.open(tmp_path / "x.png"))
    corner = np.atleast_1d(seen[GAP, GAP])
    assert corner.tolist() == [round(255 * level) for level in images[0, :, 0, 0].tolist()]


def test_points_of_the_plane_are_a_cloud(tmp_path: Path) -> None:
    write_picture(tmp_path / "x.png", torch.randn(50, 2, generator=torch.Generator().manual_seed(0)))
    ink = np.asarray(Image.open(tmp_path / "x.png").convert("RGB"), dtype=int)
    assert (ink[..., 2] - ink[..., 0] > 40).sum() > 50  # blue dots


def test_what_has_a_picture() -> None:
    shapes = {(3, 2): True, (3, 5): False, (3, 1, 4, 4): True, (3, 3, 4, 4): True, (3, 2, 4, 4): False}
    assert {shape: has_picture(torch.zeros(shape)) for shape in shapes} == shapes


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a picture needs finite samples"):
        write_picture(tmp_path / "x.png", torch.full((2, 2), torch.nan))
