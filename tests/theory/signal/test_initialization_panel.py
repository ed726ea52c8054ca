"""Variance gains are drawn where they lie, with their errors, beside the levels of the schemes."""

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.theory.signal.figures import gains

CURVES = {
    "map": torch.tensor([1.0, 2.0]),
    "at the beginning": torch.tensor([0.5, 2.0]),
    "now": torch.tensor([0.6, 2.5]),
    "Glorot": torch.tensor([1.2, 0.9]),
}


def test_dots_errors_and_levels_are_those_of_the_curves(finding) -> None:
    found = finding(
        value=torch.tensor([0.5, 2.0]), kind="estimate", stderr=torch.tensor([0.05, 0.1]), curves=CURVES
    )
    with drawing() as (_, axes):
        words = gains(axes, found)
        levels = sorted(
            line.get_ydata()[0]
            for line in axes.lines
            if len(line.get_ydata()) == 2 and line.get_linestyle() != "None"
        )
        assert {1 / 3, 1.0, 2.0} <= set(levels)
        dots = {c.get_label(): c.lines[0].get_ydata().tolist() for c in axes.containers}
        assert dots["at the beginning"] == [0.5, 2.0]
        bars = axes.containers[0].lines[2][0].get_segments()
        assert [bar[1][1] - bar[0][1] for bar in bars] == pytest.approx([0.1 * 1.959964, 0.2 * 1.959964])
        assert axes.get_yscale() == "log"
    assert words.startswith("n Var W of 2 affine maps (at the beginning, now)")
    assert "<svg" in plot("margin.theory.signal.figures:gains", found, "p")


def test_curves_of_something_else_and_gains_of_0_are_left_to_others(finding) -> None:
    for curves in ({"map": torch.ones(2)}, {**CURVES, "now": torch.tensor([0.0, 1.0])}):
        with drawing() as (_, axes):
            assert gains(axes, finding(curves=curves)) == ""
