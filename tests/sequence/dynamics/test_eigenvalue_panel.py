"""Eigenvalues are drawn where they lie, beside the unit circle and where they began."""

import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.sequence.dynamics.figures import eigenvalues

NOW = {"real part now": torch.tensor([0.5, 0.0]), "imaginary part now": torch.tensor([0.0, -2.0])}
BEGUN = {
    "real part at the beginning": torch.tensor([0.3]),
    "imaginary part at the beginning": torch.tensor([0.1]),
}


def test_dots_are_the_eigenvalues_and_the_circle_is_the_unit_circle(finding) -> None:
    found = finding(curves=NOW | BEGUN)
    with drawing() as (_, axes):
        words = eigenvalues(axes, found)
        lines = {line.get_label(): line for line in axes.lines}
        assert lines["now"].get_xydata().tolist() == [[0.5, 0.0], [0.0, -2.0]]
        torch.testing.assert_close(
            torch.tensor(lines["at the beginning"].get_xydata()), torch.tensor([[0.3, 0.1]]).double()
        )
        circle = torch.tensor(lines["unit circle"].get_xydata())
        torch.testing.assert_close(circle.norm(dim=1), torch.ones(200).double(), rtol=0, atol=1e-6)
        assert axes.get_xlim() == axes.get_ylim()
        assert axes.get_xlim()[1] > 2
    assert words.startswith("2 eigenvalues in the complex plane")
    assert "modulus .5 to 2" in words
    assert "<svg" in plot("margin.sequence.dynamics.figures:eigenvalues", found, "p")


def test_the_beginning_may_be_unknown_and_other_curves_are_left_to_others(finding) -> None:
    with drawing() as (_, axes):
        assert eigenvalues(axes, finding(curves=NOW)).endswith("; now")
    for curves in ({"x": torch.ones(2)}, {name: curve * torch.nan for name, curve in NOW.items()}):
        with drawing() as (_, axes):
            assert eigenvalues(axes, finding(curves=curves)) == ""
