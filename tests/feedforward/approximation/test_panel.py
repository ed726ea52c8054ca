"""Approximations are drawn as their curves say: function, interpolant, gap, bends, sawtooth, rate."""

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.feedforward.approximation import barron as barron_claims
from margin.feedforward.approximation.figures import MOST_MARKS, approximation
from margin.feedforward.piecewise import error as error_claims
from margin.feedforward.piecewise import linear_claims as piecewise_linear_claims
from margin.feedforward.piecewise import sawtooth as sawtooth_claims
from margin.figures.svg import drawing

X = torch.tensor([0.0, 0.5, 1.0])


def test_an_interpolant_is_drawn_over_its_error(finding) -> None:
    shown = error_claims.by_curvature(error_claims.demo())
    with drawing() as (_, axes):
        words = approximation(axes, shown)
        function, interpolant, knots = axes.lines
        (below,) = axes.child_axes
        assert function.get_ydata().tolist() == shown.curves["function"].tolist()
        assert interpolant.get_ydata().tolist() == shown.curves["interpolant"].tolist()
        assert knots.get_xdata().tolist() == shown.curves["knots"].tolist()
        assert knots.get_ydata().tolist() == pytest.approx(shown.curves["knots"].sin().tolist(), abs=1e-9)
        assert below.lines[0].get_ydata().tolist() == shown.curves["error"].tolist()
    assert words.startswith(
        "a function and its interpolant with 9 knots marked, over their gap, at most .018"
    )


def test_a_network_is_drawn_with_its_bends_if_they_are_few(finding) -> None:
    with drawing() as (_, axes):
        words = approximation(axes, finding(curves={"x": X, "network": X.square(), "knots": X[1:2]}))
        line, dots = axes.lines
        assert (dots.get_xdata().tolist(), dots.get_ydata().tolist()) == ([0.5], [0.25])
        assert line.get_xdata().tolist() == [0.0, 0.5, 1.0]
    assert words == "the network's output, 1 of 1 bends marked"
    many = torch.linspace(0, 1, MOST_MARKS + 1)
    with drawing() as (_, axes):
        words = approximation(axes, finding(curves={"x": X, "network": X, "knots": many}))
        assert len(axes.lines) == 1
    assert words == f"the network's output, 0 of {MOST_MARKS + 1} bends marked"
    with drawing() as (_, axes):
        assert approximation(axes, finding(curves={"x": X, "network": X, "knots": X[:0]}))


def test_a_sawtooth_is_drawn_with_the_band_that_a_near_network_would_keep(finding) -> None:
    saw = torch.tensor([0.0, 1.0, 0.0])
    with drawing() as (_, axes):
        words = approximation(axes, finding(curves={"x": X, "network": 0 * X, "sawtooth": saw}))
        (band,) = axes.collections
        heights = band.get_paths()[0].vertices[:, 1]
        assert (heights.min(), heights.max()) == (-0.5, 1.5)
    assert words == "the network beside a sawtooth of 2 pieces"
    with drawing() as (_, axes):
        words = approximation(axes, finding(curves={"x": X, "network": saw, "sawtooth": saw}))
        assert len(axes.lines) == 1
    assert words == "the network, a sawtooth of 2 pieces"


def test_a_rate_is_drawn_on_logarithms(finding) -> None:
    units = torch.arange(1, 9)
    curves = {"units": units, "mean squared error": 1 / units, "Barron's bound": 2 / units}
    with drawing() as (_, axes):
        words = approximation(axes, finding(curves=curves))
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert [line.get_label() for line in axes.lines] == ["Barron's bound", "greedy net"]
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4", "8"]
    assert words == "the mean squared error of 1 to 8 units beside the bound"


@pytest.mark.parametrize(
    ("ask", "demo", "words"),
    [
        (piecewise_linear_claims.pieces, piecewise_linear_claims.demo, "the network's output, 9 of 9 bends"),
        (sawtooth_claims.count, sawtooth_claims.demo, "the network, a sawtooth of 64 pieces"),
        (
            sawtooth_claims.separation,
            piecewise_linear_claims.demo,
            "the network beside a sawtooth of 16 pieces",
        ),
        (error_claims.by_modulus, error_claims.demo, "a function and its interpolant with 9 knots marked"),
        (barron_claims.greedy_bound, barron_claims.demo, "the mean squared error of 1 to 64 units"),
    ],
)
def test_the_claims_are_drawn(ask, demo, words: str) -> None:
    drawn = plot("margin.feedforward.approximation.figures:approximation", ask(demo()), "plot")
    assert words in drawn.replace("&#x27;", "'")
    assert "nan" not in drawn


def test_other_curves_are_left_to_lines(finding) -> None:
    with drawing() as (_, axes):
        assert approximation(axes, finding(curves={"x": X, "network": X})) == ""
        assert approximation(axes, finding(curves={"x": X[:0], "network": X[:0], "sawtooth": X[:0]})) == ""
