"""What is drawn of paths, planes, rates and sharpness is what their curves say."""

import math

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.theory.curvature.figures import contours, landscape, paths, rates, slices, stability

T = torch.linspace(0, 1, 5).double()
PATHS = {
    "place on the path": T,
    "loss: straight": T * (1 - T),
    "loss: straight, error": 0.01 + 0 * T,
    "loss: bent": 0.1 * T,
    "loss: bent, error": 0 * T,
    "mistakes: bent": 0 * T,
}
X = torch.linspace(-1, 1, 3).double()
PLANE = {
    "first direction": X,
    "second direction": 2 * X,
    "loss on the plane": (X[:, None] - 1) ** 2 + (X[None] + 1) ** 2 + 0.5,
}
RATES = {
    "learning rate": torch.tensor([0.01, 0.1, 1.0], dtype=torch.float64),
    "loss after the step": torch.tensor([2.0, 1.0, math.inf]).double(),
    "rates found": torch.tensor([0.01, 0.1, 1.0], dtype=torch.float64),
}
SLICES = {
    "distance": X,
    "direction 1": torch.tensor([1.0, 0, 1]).double(),
    "direction 2": torch.tensor([3.0, 0, 3]).double(),
}
EDGE = {
    "step": torch.tensor([1.0, 2, 3]).double(),
    "sharpness": torch.tensor([5.0, 70, 81]).double(),
    "stability limit": torch.tensor([80.0, 80, 80]).double(),
}


def test_paths_are_lines_with_a_band_of_two_errors(finding):
    with drawing() as (_, axes):
        words = paths(axes, finding(curves=PATHS))
        assert [line.get_label() for line in axes.lines] == ["straight", "bent"]
        assert torch.allclose(torch.as_tensor(axes.lines[0].get_ydata()), PATHS["loss: straight"])
        corners = torch.as_tensor(axes.collections[0].get_paths()[0].vertices)
        assert float(corners[:, 1].max()) == pytest.approx(0.27) and float(
            corners[:, 1].min()
        ) == pytest.approx(-0.02)
    assert words.endswith("straight, bent")


def test_a_plane_marks_the_weights_and_the_lowest_place(finding):
    with drawing() as (_, axes):
        words = contours(axes, finding(curves=PLANE))
        marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines]
        # the loss is least at x = 1 of the first direction and the first place, -2, of the second
        assert marks == [(0, 0), (1, -2)]
    assert "from .5 to 8.5" in words


def test_slices_are_thin_lines_and_their_mean(finding):
    with drawing() as (_, axes):
        assert "along 2 random directions" in slices(axes, finding(curves=SLICES))
        assert [line.get_ydata().tolist() for line in axes.lines] == [[1, 0, 1], [3, 0, 3], [2, 0, 2]]
    broken = SLICES | {"direction 2": torch.full((3,), math.nan).double()}
    with drawing() as (_, axes):
        assert landscape(axes, finding(curves=broken)) == ""


def test_a_leap_at_the_end_does_not_flatten_the_fall(finding):
    curves = RATES | {"loss after the step": torch.tensor([2.0, 1.0, 500.0]).double()}
    with drawing() as (_, axes):
        rates(axes, finding(curves=curves))
        assert axes.get_ylim()[1] == 6


def test_rates_are_on_a_logarithmic_axis(finding):
    with drawing() as (_, axes):
        words = rates(axes, finding(curves=RATES))
        assert axes.get_xscale() == "log"
        assert axes.lines[0].get_xdata().tolist() == [0.01, 0.1]  # what is not finite is left out
        assert [float(line.get_xdata()[0]) for line in axes.lines[1:]] == [0.01, 0.1, 1.0]
    assert "each learning rate" in words


def test_sharpness_is_beside_its_limit(finding):
    with drawing() as (_, axes):
        assert "beside the limit" in stability(axes, finding(curves=EDGE))
        assert [line.get_ydata().tolist() for line in axes.lines] == [[80, 80, 80], [5, 70, 81]]


@pytest.mark.parametrize("curves", [PATHS, PLANE, RATES, EDGE])
def test_nothing_is_drawn_of_curves_that_are_absent(finding, curves):
    for name in curves:
        if "error" in name or "bent" in name or "mistakes" in name:
            continue
        some = {key: c for key, c in curves.items() if key != name}
        some = {key: c for key, c in some.items() if not (name == "loss: straight" and "bent" in key)}
        with drawing() as (_, axes):
            assert landscape(axes, finding(curves=some)) == ""


def test_a_flat_plane_or_one_of_no_finite_loss_is_not_drawn(finding):
    for losses in (torch.ones(3, 3).double(), torch.full((3, 3), math.nan).double()):
        with drawing() as (_, axes):
            assert landscape(axes, finding(curves=PLANE | {"loss on the plane": losses})) == ""


@pytest.mark.parametrize("curves", [PATHS, PLANE, SLICES, RATES, EDGE])
def test_a_report_takes_the_drawing_by_the_curves(finding, curves):
    assert plot("margin.theory.curvature.figures:landscape", finding(curves=curves), "p1").startswith("<svg")
