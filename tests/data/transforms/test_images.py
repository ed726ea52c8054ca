"""Each change of images against loops, torch's own operations, and the frequencies of its draws."""

import math

import pytest
import torch
from torch import Generator

from margin.core.types import Batch
from margin.data.transforms.augmentation import augmented, transforms_of
from margin.data.transforms.images import (
    Cutout,
    Elastic,
    Flip,
    Resample,
    Translate,
    deformed,
    resampled,
    translated,
)


def images(n=5, height=6, width=5, seed=0):
    return torch.rand(n, 3, height, width, generator=Generator().manual_seed(seed), dtype=torch.float64) + 1


def by_hand(x, down, right, border, value):
    """Pixel by pixel."""
    height, width = x.shape[1:]
    made = torch.full_like(x, value)
    for i in range(height):
        for j in range(width):
            row, column = i - down, j - right
            if border == "cyclic":
                row, column = row % height, column % width
            elif border == "edge":
                row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
            if 0 <= row < height and 0 <= column < width:
                made[:, i, j] = x[:, row, column]
    return made


@pytest.mark.parametrize("border", ["edge", "background", "cyclic"])
def test_a_translation_moves_every_pixel_to_its_place(border):
    moves = torch.cartesian_prod(torch.arange(-2, 3), torch.arange(-3, 4))
    x = images(len(moves))
    made = translated(x, moves[:, 0], moves[:, 1], border, reach=(2, 3), value=0.5)
    for k, (down, right) in enumerate(moves.tolist()):
        assert torch.equal(made[k], by_hand(x[k], down, right, border, 0.5)), (down, right)


def test_translations_are_uniform_on_the_square_and_the_image_is_among_them():
    """9000 draws on 25 places: 6 standard deviations of a count fail with p < 25 * 2e-9."""
    x = torch.zeros(9000, 1, 7, 7)
    x[:, 0, 3, 3] = 1
    made = Translate(2, "background")(x, Generator().manual_seed(0)).sum(0)[0]
    assert made[1:6, 1:6].sum() == 9000
    assert (made[1:6, 1:6] - 360).abs().max() < 6 * math.sqrt(360 * 24 / 25)


def test_a_flip_exchanges_left_and_right_of_half_the_images():
    x = images(4000)
    made = Flip()(x, Generator().manual_seed(0))
    flipped = (made == x.flip(3)).flatten(1).all(1)
    same = (made == x).flatten(1).all(1)
    assert (flipped ^ same).all()
    assert abs(flipped.double().mean() - 0.5) < 5 * 0.5 / math.sqrt(4000)  # p < 1e-6


def test_quarter_turns_are_those_of_the_grid_counterclockwise():
    x = images(3, 6, 6)
    for k in range(4):
        made = resampled(x, torch.full((3,), k * math.pi / 2, dtype=torch.float64), torch.ones(3).double())
        torch.testing.assert_close(made, x.rot90(k, (2, 3)), rtol=0, atol=1e-12)


def test_on_an_oblong_image_an_angle_stays_an_angle():
    """Of 5 x 9 pixels, the one two above the center goes two to its left; the one two to its right, above."""
    x = torch.zeros(1, 1, 5, 9, dtype=torch.float64)
    x[0, 0, 0, 4] = 1
    made = resampled(x, torch.tensor([math.pi / 2], dtype=torch.float64), torch.ones(1).double())
    assert made[0, 0, 2, 2].item() == pytest.approx(1, abs=1e-9)
    assert made.sum().item() == pytest.approx(1, abs=1e-9)
    x = torch.zeros(1, 1, 5, 9, dtype=torch.float64)
    x[0, 0, 2, 6] = 1
    made = resampled(x, torch.tensor([math.pi / 2], dtype=torch.float64), torch.ones(1).double())
    assert made[0, 0, 0, 4].item() == pytest.approx(1, abs=1e-9)
    assert made.sum().item() == pytest.approx(1, abs=1e-9)


def test_angle_0_and_factor_1_are_the_image_itself():
    x = images()
    made = resampled(x, torch.zeros(5).double(), torch.ones(5).double(), background=0.3)
    torch.testing.assert_close(made, x, rtol=0, atol=1e-14)
    pixels = (x * 100).to(torch.uint8)
    assert torch.equal(resampled(pixels, torch.zeros(5), torch.ones(5)), pixels)


def test_a_factor_of_two_shows_everything_twice_as_large():
    x = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    x[0, 0, 3:5, 3:5] = 1
    made = resampled(x, torch.zeros(1).double(), torch.tensor([2.0]).double())
    assert (made[0, 0, 3:5, 3:5] == 1).all()
    assert made.sum().item() == pytest.approx(16)  # four times the area
    smaller = resampled(x, torch.zeros(1).double(), torch.tensor([0.5]).double())
    assert smaller.sum().item() == pytest.approx(1, abs=0.01)


def test_angles_and_factors_are_drawn_over_their_whole_range():
    size = 65
    x = torch.zeros(300, 1, size, size)
    x[:, 0, 32, 48:60] = 1  # a stroke to the right of the center
    rows, columns = torch.meshgrid(torch.arange(65.0) - 32, torch.arange(65.0) - 32, indexing="ij")

    def mean(made, where):
        return (made[:, 0] * where).sum((1, 2)) / made[:, 0].sum((1, 2))

    made = Resample(degrees=30)(x, Generator().manual_seed(0))
    angles = torch.atan2(-mean(made, rows), mean(made, columns)).rad2deg()
    assert angles.abs().max() < 31 and angles.min() < -27 and angles.max() > 27
    made = Resample(zoom=0.1)(x, Generator().manual_seed(0))
    factors = mean(made, columns) / 21.5
    assert factors.min() > 0.89 and factors.max() < 1.11
    assert factors.min() < 0.91 and factors.max() > 1.09


def test_cutout_covers_one_whole_square_in_every_second_image():
    x = images(2000)
    made = Cutout(3, background=0.0)(x, Generator().manual_seed(0))
    covered = (made == 0).all(1)
    assert torch.equal(covered, (made == 0).any(1))  # every channel at the same place
    counts = covered.sum((1, 2))
    assert set(counts.tolist()) == {0, 9}
    assert abs((counts == 9).double().mean() - 0.5) < 5 * 0.5 / math.sqrt(2000)
    assert torch.equal(made[~covered[:, None].expand_as(made)], x[~covered[:, None].expand_as(x)])
    tops = covered.any(2).int().argmax(1)[counts == 9]
    lefts = covered.any(1).int().argmax(1)[counts == 9]
    assert (covered.any(2).sum(1)[counts == 9] == 3).all()  # three neighboring rows
    assert set(zip(tops.tolist(), lefts.tolist(), strict=True)) == {
        (i, j) for i in range(4) for j in range(3)
    }
    whole = Cutout(5)(images(50, 5, 5), Generator().manual_seed(0))
    assert set((whole == 0).sum((1, 2, 3)).tolist()) == {0, 75}


@pytest.mark.parametrize(
    "words",
    [
        ("flip",),
        ("shift:2",),
        ("crop:2",),
        ("roll:3",),
        ("rotate:90",),
        ("scale:.5",),
        ("elastic:2",),
        ("flip", "noise:.1"),
    ],
)
def test_a_mask_moves_with_its_image(words):
    """The image shows its own classes: wherever a pixel counts, they agree. Kills a mask left behind."""

    class Levels:
        def __len__(self):
            return 40

        def take(self, index, generator):
            labels = torch.randint(2, (40, 8, 8), generator=Generator().manual_seed(0)).repeat_interleave(
                2, 1
            )
            labels = labels.repeat_interleave(2, 2)
            return Batch(((1 + labels[index])[:, None].double(),), labels[index])

    spec = {"channels": 1, "image_size": (16, 16), "background": -5.0}
    changed = augmented(Levels(), transforms_of(words, spec))
    batch = changed.take(torch.arange(40), Generator().manual_seed(1))
    assert batch.targets.dtype == torch.int64
    weight = torch.ones(40, 16, 16) if batch.weight is None else batch.weight
    agree = (batch.inputs[0][:, 0].round() == 1 + batch.targets)[weight > 0]
    outside = batch.inputs[0][:, 0] < -4
    bilinear = any(word.startswith(("rotate", "scale", "elastic")) for word in words)
    assert float(agree.double().mean()) > (
        0.8 if bilinear else 0.999
    )  # bilinear values lie between two classes
    assert not bool(weight[outside].any())
    assert bilinear or bool((weight[~outside] == 1).all())
    assert not torch.equal(batch.targets, Levels().take(torch.arange(40), None).targets)


def test_what_covers_or_blurs_leaves_the_mask():
    class Plain:
        def __len__(self):
            return 3

        def take(self, index, generator):
            return Batch((torch.ones(3, 1, 4, 4),), torch.arange(48).reshape(3, 4, 4) % 3)

    spec = {"channels": 1, "image_size": (4, 4)}
    batch = augmented(Plain(), transforms_of(("cutout:2", "noise:.1"), spec)).take(
        torch.arange(3), Generator()
    )
    assert torch.equal(batch.targets, Plain().take(torch.arange(3), None).targets)
    assert batch.weight is None


def test_a_field_of_displacements_says_where_a_pixel_is_taken():
    """On an image that is linear in its place, bilinear values are exact: x + dx, 10 (y + dy)."""
    rows, columns = torch.arange(7.0).double(), torch.arange(9.0).double()
    x = torch.stack((columns.expand(7, 9), 10 * rows[:, None].expand(7, 9)))[None]
    field = torch.rand(1, 2, 7, 9, generator=Generator().manual_seed(0), dtype=torch.float64) - 0.5
    out = deformed(x, field)[0, :, 1:-1, 1:-1]
    torch.testing.assert_close(out, (x + field * torch.tensor([1.0, 10.0])[:, None, None])[0, :, 1:-1, 1:-1])


def test_an_elastic_deformation_has_gaussian_vectors_at_nine_places_and_is_smooth_between():
    """A corner and the center move by the draw itself. 4,000 draws: a deviation is 3 within 5 stderr, .17."""
    n, size = 4000, 41
    ramp = torch.arange(size).double().expand(n, 1, size, size)  # the value of a pixel is its column
    moved = Elastic(3.0)(ramp, Generator().manual_seed(0))[:, 0] - ramp[:, 0]
    center = moved[:, 20, 20]
    assert abs(float(center.std()) - 3) < 0.17
    assert abs(float(center.mean())) < 0.24
    inner = moved[:, 10:-10, 10:-10]
    assert float((inner.diff(dim=1).abs().amax((1, 2)) < 1.2).double().mean()) > 0.999  # no pixel jumps
    assert float(inner.std((1, 2)).mean()) > 0.5  # it is no translation
    same = Elastic(1e-9)(ramp[:1], Generator().manual_seed(0))
    torch.testing.assert_close(same, ramp[:1], atol=1e-6, rtol=0)
