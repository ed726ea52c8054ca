"""The picture of a graph's spectrum: what it draws, and what it leaves to others."""

from dataclasses import replace
from itertools import pairwise

import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.geometric.spectral.figures import BINS, graph_spectrum
from margin.geometric.spectral.filter_claims import demo, passed
from margin.geometric.spectral.laplacian_claims import frequency


def test_bars_and_energies_are_drawn() -> None:
    finding = frequency(demo())
    with drawing() as (_, axes):
        shown = graph_spectrum(axes, finding)
        assert (
            shown
            == "16 eigenvalues of a graph from 0 to 2; energy of features, energy of outputs, "
            "energy of labels"
            or shown.startswith("16 eigenvalues of a graph from")
        )
        assert len(axes.patches) == BINS
        assert abs(sum(bar.get_height() for bar in axes.patches) - 1) < 1e-6
        lines = [line for line in axes.lines if len(line.get_xdata())]
        assert len(lines) == 3
        for line in lines:
            y = line.get_ydata()
            assert abs(float(y[-1]) - 1) < 1e-9  # all energy is somewhere
            assert all(a <= b + 1e-12 for a, b in pairwise(y))
    assert "<svg" in plot("margin.geometric.spectral.figures:graph_spectrum", finding, "a")


def test_responses_are_drawn_in_parts_of_the_largest() -> None:
    finding = passed(demo())
    with drawing() as (_, axes):
        assert "response of layers.0, response of layers.1" in graph_spectrum(axes, finding)
        lines = [line for line in axes.lines if len(line.get_xdata())]
        assert [abs(float(max(line.get_ydata())) - 1) < 1e-9 for line in lines] == [True, True]


def test_what_is_no_spectrum_is_left_to_others() -> None:
    finding = frequency(demo())
    for curves in (
        {},
        {"graph eigenvalue": torch.zeros(0)},
        {"graph eigenvalue": torch.zeros(3)},
        {"graph eigenvalue": torch.zeros(3), "energy of x": torch.full((3,), torch.nan)},
    ):
        with drawing() as (_, axes):
            assert graph_spectrum(axes, replace(finding, curves=curves)) == ""
            assert not axes.patches
