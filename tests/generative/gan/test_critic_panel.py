"""The critic's numbers are drawn as two histograms that each sum to 1."""

import math

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.generative.gan.figures import critics


def test_both_are_drawn_over_one_range(finding) -> None:
    curves = {
        "critic: data": torch.tensor([0.0, 1.0, 1.0, 4.0]),
        "critic: samples": torch.tensor([-4.0, -4.0, math.nan]),
    }
    found = finding(curves=curves)
    with drawing() as (_, axes):
        assert "distributed" in critics(axes, found)
        steps = {patch.get_label(): patch.get_data() for patch in axes.patches if patch.get_label()}
        assert set(steps) == {"held-out examples", "samples"}
        for values, edges, _ in steps.values():
            assert float(values.sum()) == pytest.approx(1.0)
            assert (float(edges[0]), float(edges[-1])) == (-4.0, 4.0)
        assert float(steps["samples"][0][0]) == pytest.approx(1.0)
    assert "<svg" in plot("margin.generative.gan.figures:critics", found, "p")


def test_numbers_that_are_all_the_same_are_drawn_too(finding) -> None:
    same = finding(curves={"critic: data": torch.ones(3), "critic: samples": torch.ones(2)})
    with drawing() as (_, axes):
        assert critics(axes, same)
        low, high = axes.get_xlim()
        assert low < 1 < high


def test_without_the_curves_nothing_is_drawn(finding) -> None:
    none = torch.full((2,), math.nan)
    for curves in ({}, {"critic: data": torch.ones(3)}, {"critic: data": none, "critic: samples": none}):
        with drawing() as (_, axes):
            assert critics(axes, finding(curves=curves)) == ""
