"""Sizes over depth are drawn as the curves say, on a logarithmic axis, and other curves are not."""

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.theory.signal.figures import over_depth


def curves(**more):
    depth = torch.arange(1, 5).double()
    return {"depth": depth, "now": torch.tensor([1.0, 10.0, 100.0, 1000.0]), **more}


def test_each_curve_is_a_line_over_the_layers(finding):
    start = torch.tensor([1.0, 0.1, 0.01, 0.001])
    with drawing() as (_, axes):
        words = over_depth(axes, finding(curves=curves(**{"at the start": start})))
        assert axes.get_yscale() == "log"
        assert axes.get_xticks().tolist() == [1, 2, 3, 4]
        assert [line.get_label() for line in axes.lines] == ["at the start", "now"]
        assert [line.get_xdata().tolist() for line in axes.lines] == [[1, 2, 3, 4]] * 2
        assert axes.lines[0].get_ydata().tolist() == pytest.approx(start.tolist())
        low, high = axes.get_ylim()
        assert low < 0.001 < 1000 < high
    assert words == "at the start and now over 4 layers, on a logarithmic axis"


def test_where_nothing_passes_no_point_is_drawn(finding):
    with drawing() as (_, axes):
        values = torch.tensor([1.0, 0.0, float("nan"), 2.0])
        over_depth(axes, finding(curves=curves(now=values)))
        assert axes.lines[0].get_xdata().tolist() == [1, 4]
        low, high = axes.get_ylim()
        assert high >= 10 * low  # no axis without a tick
    with drawing() as (_, axes):
        assert over_depth(axes, finding(curves=curves(now=torch.zeros(4)))) == ""


@pytest.mark.parametrize(
    ("layers", "ticks"), [(7, range(1, 8)), (20, range(1, 20, 3)), (100, range(1, 101, 13))]
)
def test_a_tick_is_a_layer(finding, layers, ticks):
    depth = torch.arange(1, layers + 1).double()
    drawn = plot(
        "margin.theory.signal.figures:over_depth", finding(curves={"depth": depth, "now": depth}), "plot"
    )
    assert all(f">{tick}</text>" in drawn for tick in ticks)


def test_one_layer_is_a_dot(finding):
    with drawing() as (_, axes):
        over_depth(axes, finding(curves={"depth": torch.ones(1), "now": torch.tensor([3.0])}))
        assert axes.lines[0].get_marker() == "o"


def test_the_report_draws_it(finding):
    assert 'aria-label="now over 4 layers' in plot(
        "margin.theory.signal.figures:over_depth", finding(curves=curves()), "plot"
    )
    with drawing() as (_, axes):
        assert over_depth(axes, finding(curves={"step": torch.arange(3), "now": torch.ones(3)})) == ""
