"""A fan of a forecast and errors by steps ahead are drawn as the curves say; other curves are not."""

import re

import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.sequence.forecast.figures import fan, forecast_and_errors, over_steps_ahead


def test_a_forecast_follows_its_past(finding):
    curves = {"past": torch.tensor([1.0, 2.0, 3.0]), "truth": torch.tensor([4.0, 5.0])}
    curves |= {"forecast": torch.tensor([3.0, 3.5])}
    with drawing() as (_, axes):
        words = fan(axes, finding(curves=curves))
        lines = {line.get_label(): line for line in axes.lines}
        assert lines["read"].get_xdata().tolist() == [-2, -1, 0]
        assert lines["what followed"].get_xdata().tolist() == [1, 2]
        assert lines["forecast"].get_ydata().tolist() == [3.0, 3.5]
        assert not axes.collections
    assert words == "3 rows that were read, then the forecast beside what followed, 2 steps"
    band = {"band low": torch.tensor([2.0, 2.0]), "band high": torch.tensor([4.0, 6.0])}
    with drawing() as (_, axes):
        assert "median and 80 % band" in fan(axes, finding(curves=curves | band))
        assert len(axes.collections) == 1


def test_errors_are_lines_over_the_steps_ahead(finding):
    curves = {"steps ahead": torch.arange(1, 4), "this forecast": torch.tensor([1.0, 2.0, 3.0])}
    curves |= {"last value": torch.tensor([2.0, 3.0, 4.0])}
    with drawing() as (_, axes):
        words = over_steps_ahead(axes, finding(curves=curves))
        assert [line.get_xdata().tolist() for line in axes.lines] == [[1, 2, 3]] * 2
        assert axes.get_ylim()[0] == 0
    assert words == "root mean squared error of this forecast and last value by steps ahead"


def test_steps_ahead_are_whole(finding):
    curves = {"steps ahead": torch.arange(1, 4), "this forecast": torch.tensor([1.0, 2.0, 3.0])}
    ahead = plot("margin.sequence.forecast.figures:skill", finding(curves=curves), "a")
    past = {"past": torch.arange(1.0), "truth": torch.arange(2.0), "forecast": torch.arange(2.0)}
    for svg in (ahead, plot("margin.sequence.forecast.figures:fan", finding(curves=past), "b")):
        ticks = re.findall(r">(−?[\d.]+)</text>", svg.partition("steps ahead</text>")[0])
        assert len(ticks) > 2
        assert all("." not in tick for tick in ticks)


def test_other_curves_are_left_to_others(finding):
    with drawing() as (_, axes):
        assert fan(axes, finding(curves={"past": torch.ones(3)})) == ""
        assert over_steps_ahead(axes, finding(curves={"depth": torch.ones(3)})) == ""


def test_the_report_draws_them(finding):
    curves = {"steps ahead": torch.arange(1, 4), "this forecast": torch.tensor([1.0, 2.0, 3.0])}
    assert "steps ahead" in plot("margin.sequence.forecast.figures:skill", finding(curves=curves), "a")


def test_a_forecast_of_values_is_drawn_over_its_errors(finding):
    fan_of = {"past": torch.tensor([1.0, 2.0, 3.0]), "truth": torch.tensor([4.0, 5.0, 6.0])}
    fan_of |= {"forecast": torch.tensor([3.0, 3.5, 4.0])}
    errors = {"steps ahead": torch.arange(1, 4), "this forecast": torch.tensor([1.0, 2.0, 3.0])}
    errors |= {"last value": torch.tensor([2.0, 3.0, 4.0])}
    with drawing() as (_, axes):
        words = forecast_and_errors(axes, finding(curves=errors | fan_of))
        (below,) = axes.child_axes
        assert {line.get_label() for line in axes.lines} >= {"read", "what followed", "forecast"}
        # the forecast itself is of the errors' length and is none of them
        assert [line.get_ydata().tolist() for line in below.lines] == [[1, 2, 3], [2, 3, 4]]
    assert "the forecast beside what followed, 3 steps; below it, root mean squared error of" in words
    for alone in (errors, fan_of):
        with drawing() as (_, axes):
            assert forecast_and_errors(axes, finding(curves=alone)) == ""
