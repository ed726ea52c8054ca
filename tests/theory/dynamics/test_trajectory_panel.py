"""What is drawn of optimizers' paths is what the curves say."""

import math

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.math.convexity.landscapes import landscape
from margin.theory.dynamics.figures import draw, trajectories


def curves():
    x = torch.linspace(-2, 2, 21).double()
    first = torch.tensor([[-1.5, 1.0], [0.5, 0.5], [0.0, 0.0]]).double()
    second = torch.tensor([[-1.5, 1.0], [1e30, -1e30], [math.inf, math.nan]]).double()
    return {
        "surface": x[None] ** 2 + 5 * x[:, None] ** 2,
        "window": torch.tensor([[-2.0, 2.0], [-2.0, 2.0]]).double(),
        "path: first": first,
        "path: second": second,
    }


def test_each_path_is_a_line_until_it_leaves(finding):
    with drawing() as (_, axes):
        words = trajectories(axes, finding(curves=curves()))
        lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
        assert lines["first"] == curves()["path: first"].tolist()
        assert lines["second"] == [[-1.5, 1.0]]
        assert axes.get_xlim() == (-2, 2) and axes.get_ylim() == (-2, 2)
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "second"]
    assert words == "the paths of first, second over the contours of the loss"


@pytest.mark.parametrize("name", ["surface", "window"])
def test_nothing_is_drawn_where_a_curve_is_absent(finding, name):
    some = curves()
    del some[name]
    with drawing() as (_, axes):
        assert trajectories(axes, finding(curves=some)) == ""
        assert trajectories(axes, finding(curves={"surface": curves()["surface"]})) == ""
        lost = curves() | {"window": torch.full((2, 2), math.nan)}
        assert trajectories(axes, finding(curves=lost)) == ""


def test_a_flat_surface_is_drawn_without_contours(finding):
    with drawing() as (_, axes):
        assert trajectories(axes, finding(curves=curves() | {"surface": torch.zeros(5, 5)}))


def test_a_report_takes_the_drawing_by_the_curves(finding):
    assert "the paths of first, second" in plot(
        "margin.theory.dynamics.figures:trajectories", finding(curves=curves()), "p1"
    )


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_written(tmp_path, suffix):
    found = landscape("valley")
    file = draw(found.value, found.start, tmp_path / f"valley.{suffix}", steps=5, title="valley")
    assert file.stat().st_size > 5000


def test_bad_requests_are_refused(tmp_path):
    f = landscape("valley").value
    with pytest.raises(ValueError, match="a start of two coordinates"):
        draw(f, [1.0], tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"must end in .png, .svg or .pdf: got 'a.jpg'"):
        draw(f, [1.0, 1.0], tmp_path / "a.jpg")
    with pytest.raises(ValueError, match="needs an optimizer"):
        draw(f, [1.0, 1.0], tmp_path / "a.png", optimizers={})
