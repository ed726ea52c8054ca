"""Contours of a density enclose the shares of its mass that they say; other curves are left alone."""

import math

import pytest
import torch

from margin.figures.svg import drawing
from margin.generative.flow.figures import SHARES, density, levels_of


def curves() -> dict[str, torch.Tensor]:
    x, y = torch.linspace(-4, 4, 81), torch.linspace(-5, 5, 101)
    log_density = -0.5 * (x.square() + y[:, None].square())
    return {"density x": x, "density y": y, "log density": log_density, "density points": torch.randn(500, 2)}


def test_the_levels_are_those_of_a_normal_density():
    """A disc of squared radius -2 log(1 - q) holds the share q; its edge is at log-density log(1 - q)."""
    expected = sorted(math.log(1 - share) for share in SHARES)
    assert levels_of(curves()["log density"].double()) == pytest.approx(expected, abs=0.03)


def test_contours_and_points_are_drawn(finding):
    with drawing() as (_, axes):
        words = density(axes, finding(curves=curves()))
        assert len(axes.collections) == 2
        assert axes.get_xlim() == (-4, 4) and axes.get_ylim() == (-5, 5)
    assert words == "contours around 99%, 90%, 50%, 10% of the mass, and 400 points"


def test_other_curves_are_left_to_others(finding):
    with drawing() as (_, axes):
        assert density(axes, finding(curves={"density x": torch.ones(3)})) == ""
        even = curves() | {"log density": torch.zeros(101, 81)}
        assert density(axes, finding(curves=even)) == ""
