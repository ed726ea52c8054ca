"""Colors by depth: a row a depth, grey at the end, nothing where there is nothing to draw."""

import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.geometric.graphs.figures import smoothing

COLORS = torch.stack((torch.tensor([[1.0, 0.0, 0.5]] * 4), torch.full((4, 3), 0.5)))
CURVES = {"smoothing colors": COLORS, "smoothing depths": torch.tensor([0, 64])}


def test_rows_are_depths_and_words_say_how_grey(finding) -> None:
    with drawing() as (_, axes):
        words = smoothing(axes, finding(curves=CURVES))
        (image,) = axes.images
        torch.testing.assert_close(torch.tensor(image.get_array()), COLORS)
        assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "64"]
    assert "depth, 0 to 64" in words
    assert "from 0.67 to 0.00" in words
    assert "<svg" in plot("margin.geometric.graphs.figures:smoothing", finding(curves=CURVES), "p")


def test_it_comes_before_the_lines_of_the_same_finding(finding) -> None:
    both = CURVES | {"propagations": torch.arange(3.0), "left": torch.tensor([1.0, 0.5, 0.2])}
    assert "grey where" in plot("margin.geometric.graphs.figures:smoothing", finding(curves=both), "p")


def test_other_curves_and_nan_are_left_to_others(finding) -> None:
    for curves in ({"x": torch.ones(2)}, CURVES | {"smoothing colors": COLORS * torch.nan}):
        with drawing() as (_, axes):
            assert smoothing(axes, finding(curves=curves)) == ""
