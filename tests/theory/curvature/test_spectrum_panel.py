"""What is drawn of a spectral density is what its curves say."""

import math

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.theory.curvature.figures import DECADES, spectrum_density


def curves(scale: float = 1.0) -> dict[str, torch.Tensor]:
    grid = torch.linspace(-2, 8, 101).double()
    density = torch.exp(-grid.square() * 5) * scale
    return {
        "eigenvalue": grid,
        "density": density,
        "density error": density / 10,
        "extreme eigenvalues": torch.tensor([-1.5, 7.25]).double(),
    }


def test_the_density_is_drawn_on_a_logarithmic_axis_with_its_ends_marked(finding) -> None:
    with drawing() as (_, axes):
        words = spectrum_density(axes, finding(curves=curves()))
        assert axes.get_yscale() == "log"
        line = axes.lines[0]
        y = torch.as_tensor(line.get_ydata())
        floor = 10.0**-DECADES
        assert torch.allclose(y, curves()["density"].clamp(min=floor))
        marks = next(c for c in axes.collections if len(c.get_offsets()) == 2)
        assert marks.get_offsets()[:, 0].tolist() == [-1.5, 7.25]
    assert "from -1.5 to 7.25" in words


@pytest.mark.parametrize("name", ["eigenvalue", "density", "extreme eigenvalues"])
def test_nothing_is_drawn_of_curves_that_are_absent_or_not_finite(finding, name: str) -> None:
    with drawing() as (_, axes):
        some = curves()
        del some[name]
        assert spectrum_density(axes, finding(curves=some)) == ""
        assert spectrum_density(axes, finding(curves=curves() | {name: torch.tensor([math.nan])})) == ""
        assert spectrum_density(axes, finding(curves=curves(0.0))) == ""


def test_a_report_takes_the_drawing_by_the_curves(finding) -> None:
    svg = plot("margin.theory.curvature.figures:spectrum_density", finding(curves=curves()), "p1")
    assert "density of the spectrum of the Hessian, from -1.5 to 7.25" in svg.replace("−", "-")
