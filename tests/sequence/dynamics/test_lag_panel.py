"""The gradient by lag is drawn as measured, with its range and its bound."""

import math
import re

import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.sequence.dynamics.figures import by_lag

LAG = torch.arange(1, 5)


def curves(name: str, median: list[float], bound: float = 0.0) -> dict[str, torch.Tensor]:
    norm = torch.tensor(median, dtype=torch.float64)
    found = {f"{name}: median norm": norm, f"{name}: least norm": norm / 2, f"{name}: largest norm": 2 * norm}
    return found | ({f"{name}: bound": bound ** LAG.double()} if bound else {})


def test_norms_are_drawn_by_lag_and_the_bound_dashed(finding) -> None:
    found = finding(curves={"lag": LAG, **curves("r", [0.8, 0.5, math.nan, 1e-3], 0.9)})
    with drawing() as (_, axes):
        words = by_lag(axes, found)
        lines = {line.get_label(): line for line in axes.lines}
        assert lines["r"].get_xydata().tolist() == [[1, 0.8], [2, 0.5], [4, 1e-3]]
        torch.testing.assert_close(
            torch.tensor(lines["bound"].get_xydata()[:, 1]), 0.9 ** LAG.double(), rtol=1e-12, atol=0
        )
        assert axes.get_yscale() == "log"
        low, high = axes.get_ylim()
        assert 1e-4 < low < 1e-3 and high > 1
    assert words == "norm of the gradient over 4 lags of r, dashed the bound"
    assert "<svg" in plot("margin.sequence.dynamics.figures:by_lag", found, "p")


def test_what_is_zero_or_tiny_does_not_stretch_the_axis(finding) -> None:
    found = finding(curves={"lag": LAG, **curves("r", [10.0, 100.0, 1e-200, 0.0])})
    with drawing() as (_, axes):
        assert by_lag(axes, found).endswith("lags of r")
        assert axes.get_ylim()[0] > 1e-20
    nothing = finding(curves={"lag": LAG, **curves("r", [0.0] * 4)})
    with drawing() as (_, axes):
        assert by_lag(axes, nothing) == ""


def test_lags_are_whole(finding) -> None:
    svg = plot(
        "margin.sequence.dynamics.figures:by_lag",
        finding(curves={"lag": LAG, **curves("r", [0.8, 0.5, 0.2, 0.1])}),
        "p",
    )
    ticks = re.findall(r">([\d.]+)</text>", svg.partition("lag (steps)</text>")[0])
    assert ticks == ["1", "2", "3", "4"]


def test_other_curves_are_left_to_others(finding) -> None:
    for other in ({"x": LAG}, {"lag": LAG}, curves("r", [1.0] * 4)):
        with drawing() as (_, axes):
            assert by_lag(axes, finding(curves=other)) == ""
