"""Samples are drawn beside data: points over each other, images in rows; other curves are left alone."""

import numpy as np
import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.generative.quality.figures import colors, sample_images, sample_points


def test_points_are_drawn_over_the_data(finding) -> None:
    curves = {"sample points": torch.rand(7, 2), "held-out points": torch.rand(5, 2)}
    with drawing() as (_, axes):
        words = sample_points(axes, finding(curves=curves))
        drawn = {one.get_label(): one.get_offsets() for one in axes.collections}
    assert words == "7 samples over 5 held-out examples"
    np.testing.assert_allclose(drawn["samples"], curves["sample points"], rtol=1e-6)
    np.testing.assert_allclose(drawn["held-out examples"], curves["held-out points"], rtol=1e-6)


def test_images_are_in_rows_in_the_datas_gray(finding) -> None:
    data = torch.linspace(0, 16, 2 * 12).reshape(2, 1, 3, 4)
    samples = torch.full((8, 1, 3, 4), 8.0)
    samples[0], samples[1] = -5, 99
    for other in ("held-out images", "nearest training images"):
        with drawing() as (_, axes):
            words = sample_images(axes, finding(curves={"sample images": samples, other: data}))
            pictures = axes.images
            assert words == f"8 samples above 2 {other}"
            assert [p.get_array().shape for p in pictures] == [(3, 4, 3)] * 10
            assert [float(pictures[i].get_array().mean()) for i in range(3)] == [0, 1, 0.5]
            boxes = [p.get_extent() for p in pictures]
            # wider than high, and the seventh begins the second row
            assert boxes[0][1] - boxes[0][0] > boxes[0][2] - boxes[0][3] > 0
            assert boxes[6][0] == boxes[0][0]
            assert boxes[6][3] > boxes[0][3]
            assert boxes[8][3] > boxes[6][3]
            assert axes.get_ylim()[0] > boxes[9][2]


def test_three_channels_are_colors_and_others_gray() -> None:
    image = torch.rand(3, 4, 5)
    assert torch.equal(colors(image), image.permute(1, 2, 0))
    assert colors(image[:1]).shape == (4, 5, 3)
    assert torch.equal(colors(image[:1])[:, :, 2], image[0])


def test_other_curves_are_left_to_others(finding) -> None:
    with drawing() as (_, axes):
        assert sample_points(axes, finding(curves={"sample points": torch.ones(3, 2)})) == ""
        assert sample_images(axes, finding(curves={"sample images": torch.ones(3, 1, 2, 2)})) == ""
    shown = plot(
        "margin.generative.quality.figures:samples",
        finding(curves={"sample points": torch.rand(3, 2), "held-out points": torch.rand(3, 2)}),
        "a",
    )
    assert "3 samples over 3 held-out" in shown
