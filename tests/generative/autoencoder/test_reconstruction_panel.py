"""Sheets of pictures: their order, their ink, and that a map and its sheet stay inside the figure."""

import torch

from margin.core.findings import Finding
from margin.figures.svg import drawing
from margin.generative.autoencoder.claims import bent_demo, reconstruction, traversal
from margin.generative.autoencoder.figures import height_of, reconstructions, sheet, traversals


def drawn(draw, finding: Finding) -> tuple[str, object]:
    with drawing() as (figure, axes):
        words = draw(axes, finding)
        figure.canvas.draw()
        return words, axes


def with_curves(**curves: torch.Tensor) -> Finding:
    value = torch.tensor([1.0, 3.0, 2.0])
    return Finding(
        statement="", value=value, unit="1", range=(0.0, 9.0), premises=(), reference="", curves=curves
    )


def test_a_sheet_puts_ink_where_values_are_high_and_each_picture_in_its_place() -> None:
    pictures = torch.zeros(2, 3, 1, 4, 4)
    pictures[1, 2] = 1.0
    with drawing() as (_, axes):
        sheet(axes, pictures.double(), ["a", "b"])
        image = axes.images[0].get_array()
        names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["a", "b"]
    assert image.shape == (10, 15, 4)
    assert image[5:9, 10:14, :3].max() == 0.0  # the one dark picture
    assert image[0:4, 0:4, :3].min() == 1.0
    assert image[4, :, 3].max() == 0.0  # a gap shows the page


def test_three_channels_are_colors_and_others_their_mean() -> None:
    red = torch.zeros(1, 1, 3, 2, 2).double()
    red[:, :, 0] = 1.0
    with drawing() as (_, axes):
        sheet(axes, red, ["r"])
        assert axes.images[0].get_array()[0, 0].tolist() == [1.0, 0.0, 0.0, 1.0]
        sheet(axes, torch.rand(1, 2, 2, 3, 3).double(), ["two"])
        assert axes.images[1].get_array().shape == (4, 8, 4)


def test_inputs_that_are_no_pictures_are_strips_and_constant_ones_do_not_divide_by_zero() -> None:
    words, axes = drawn(reconstructions, reconstruction(bent_demo()))
    assert words == "10 inputs over their reconstructions"
    assert axes.images[0].get_array().shape == (4, 40, 4)
    flat = torch.ones(4, 1, 3, 3)
    words, axes = drawn(reconstructions, with_curves(originals=flat, reconstructions=flat))
    assert bool(torch.tensor(axes.images[0].get_array()).isfinite().all())


def test_a_map_of_codes_stands_over_the_sheet_inside_of_the_figure() -> None:
    paths = torch.rand(2, 7, 1, 8, 8)
    found = with_curves(
        traversal=paths, codes=torch.randn(20, 2), **{"labels of codes": torch.arange(20) % 4}
    )
    words, axes = drawn(traversals, found)
    assert "20 codes" in words
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1", "2", "3"]
    (below,) = axes.child_axes
    box = below.get_position()
    assert 0 <= box.y0 < box.y1 < axes.get_position().y0
    assert box.x1 <= axes.get_position().x1 + 1e-6


def test_rows_of_a_traversal_are_named_by_their_coordinates() -> None:
    _, axes = drawn(traversals, with_curves(traversal=torch.rand(3, 7, 1, 4, 4)))
    assert [text.get_text() for text in axes.get_yticklabels()] == ["code 2", "code 3", "code 1"]


def test_nothing_is_drawn_without_the_curves_and_tall_sheets_are_bounded() -> None:
    assert drawn(reconstructions, with_curves())[0] == ""
    assert drawn(traversals, with_curves())[0] == ""
    assert height_of(torch.zeros(50, 2, 1, 8, 8), 5.6) == 7.0
    assert height_of(torch.zeros(2, 4, 1, 8, 16), 4.0) == 1.0
    assert traversal(bent_demo()).curves["traversal"].shape == (2, 7, 3)
