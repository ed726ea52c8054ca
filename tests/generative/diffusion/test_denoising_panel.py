"""The denoising film, frame by frame: points over scores, pictures in rows, nothing of what is neither."""

import torch

from margin.figures.svg import drawing
from margin.generative.diffusion.figures import film

TIMES = torch.tensor([9.0, 4.0, 0.0])


def test_points_are_drawn_at_each_time_with_arrows_where_there_is_noise(finding) -> None:
    points = torch.randn(3, 20, 2, generator=torch.Generator().manual_seed(0))
    grid = torch.cartesian_prod(torch.tensor([-1.0, 1.0]), torch.tensor([-1.0, 1.0]))
    found = finding(
        curves={"film": points, "film times": TIMES, "grid": grid, "scores": -grid.expand(2, 4, 2)}
    )
    with drawing() as (_, axes):
        words = film(axes, found)
        frames = axes.child_axes
        assert [frame.get_title() for frame in frames] == ["t = 9", "t = 4", "t = 0"]
        for frame, own in zip(frames, points, strict=True):
            torch.testing.assert_close(torch.tensor(frame.lines[0].get_xydata()), own.double())
        assert [len(frame.collections) for frame in frames] == [1, 1, 0]
    assert words == "20 samples at 3 times from noise to data, with arrows along the score"


def test_pictures_are_drawn_in_rows_of_any_shape(finding) -> None:
    found = finding(curves={"film": torch.rand(3, 6, 1, 5, 3), "film times": TIMES})
    with drawing() as (_, axes):
        assert film(axes, found) == "4 samples at 3 times from noise to data"
        assert len(axes.child_axes) == 12


def test_what_is_no_film_is_left_to_others(finding) -> None:
    with drawing() as (_, axes):
        assert film(axes, finding(curves={"x": torch.ones(3)})) == ""
        for shown in (torch.rand(3, 6, 7), torch.full((3, 6, 2), float("nan"))):
            assert film(axes, finding(curves={"film": shown, "film times": TIMES})) == ""
