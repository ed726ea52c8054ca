"""What is drawn of a recall, of components and of a halfspace is what the curves say."""

import re

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.classic.factors.figures import components
from margin.classic.memory.figures import recall
from margin.classic.perceptron.figures import halfspace
from margin.figures.svg import drawing


def curves_of_recall(frames: int) -> dict[str, torch.Tensor]:
    states = torch.randn(frames, 3, 4, generator=torch.Generator().manual_seed(0)).sign()
    return {
        "step": torch.arange(5),
        "energy": torch.tensor([0.0, -1.0, -2.0, -2.5, -3.0]),
        "stimulus": states[0],
        "trajectory": states,
        "retrieved": states[-1],
        "memory": states[-1],
    }


@pytest.mark.parametrize(("frames", "shown"), [(1, 3), (2, 3), (3, 4), (40, 7)])
def test_a_recall_shows_stimulus_way_memory_and_energy(finding, frames: int, shown: int) -> None:
    with drawing() as (figure, axes):
        words = recall(axes, finding(curves=curves_of_recall(frames)))
        *pictures, energy = figure.axes[0].child_axes
        assert len(pictures) == shown
        titles = [picture.get_title() for picture in pictures]
        assert titles == ["stimulus", *[""] * (shown - 3), "retrieved", "stored"]
        assert energy.lines[0].get_ydata().tolist() == [0.0, -1.0, -2.0, -2.5, -3.0]
        first, last = (pictures[i].images[0].get_array() for i in (0, -2))
        states = curves_of_recall(frames)["trajectory"]
        # equal cells have equal colors, unequal ones have not
        same = (states[0] == states[-1]).numpy()
        assert ((abs(first - last).sum(-1) < 1e-12) == same).all()
    assert "falls by 3" in words


def test_components_are_pictures_or_rows_of_cells(finding) -> None:
    pictures = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    spectrum = torch.arange(16.0, 0, -1)
    with drawing() as (figure, axes):
        components(axes, finding(curves={"components": pictures, "spectrum": spectrum}))
        *shown, bars = figure.axes[0].child_axes
        assert [panel.images[0].get_array().shape[:2] for panel in shown] == [(4, 4)] * 3
        assert [bar.get_height() for bar in bars.patches] == spectrum.tolist()
    with drawing() as (figure, axes):
        components(axes, finding(curves={"components": torch.tensor([[1.0, 0.0, -1.0]])}))
        (row,) = figure.axes[0].child_axes
        cells = row.images[0].get_array()[0]
    # the largest value, nothing and the smallest: ink, paper, the other color
    assert cells[0].tolist() == pytest.approx([0x2B / 255, 0x5F / 255, 0x8F / 255])
    assert cells[1].tolist() == pytest.approx([0xF2 / 255, 0xF2 / 255, 0xEE / 255])
    assert cells[2].tolist() == pytest.approx([0xB0 / 255, 0x71 / 255, 0x1A / 255])


def test_a_halfspace_is_its_points_boundary_and_parallels(finding) -> None:
    ends = torch.tensor([[0.0, -1.0], [0.0, 1.0]])
    curves = {
        "points": torch.tensor([[-1.0, 0.0], [1.0, 0.0], [2.0, 0.5]]),
        "labels": torch.tensor([0, 1, 1]),
        "boundary": ends,
        "margin": torch.stack((ends + torch.tensor([1.0, 0.0]), ends - torch.tensor([1.0, 0.0]))),
    }
    with drawing() as (_, axes):
        halfspace(axes, finding(curves=curves))
        below, above = axes.collections
        assert below.get_offsets().tolist() == [[-1.0, 0.0]]
        assert above.get_offsets().tolist() == [[1.0, 0.0], [2.0, 0.5]]
        assert [line.get_xdata().tolist() for line in axes.lines] == [[0, 0], [1, 1], [-1, -1]]
        width, height = (abs(b - a) for a, b in (axes.get_xlim(), axes.get_ylim()))
        assert width == pytest.approx(height)  # a right angle is seen as one


def test_a_drawing_without_its_curves_is_lines(finding) -> None:
    drawn = plot("margin.classic.memory.figures:recall", finding(curves=curves_of_recall(4)), "plot")
    assert re.search('aria-label="5 states from the stimulus', drawn)
    assert plot(
        "margin.classic.memory.figures:recall", finding(curves={"stimulus": torch.ones(3)}), "plot"
    ).count("curves: stimulus")
    with drawing() as (_, axes):
        for draw in (recall, components, halfspace):
            assert draw(axes, finding(curves={"energy": torch.ones(3)})) == ""
