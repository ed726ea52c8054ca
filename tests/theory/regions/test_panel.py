"""The picture of linear regions: it is drawn, sized, in words, and only from its own curves."""

import torch

from margin.auditing.report.plots import plot
from margin.core.findings import Finding
from margin.figures.svg import drawing
from margin.theory.regions.claims import demo, in_plane
from margin.theory.regions.figures import regions


def finding(curves):
    return Finding(
        statement="", value=torch.ones(1), unit="1", range=(0, 2), premises=(), reference="", curves=curves
    )


def test_polygons_are_an_image_and_words_say_how_many():
    svg = plot("margin.theory.regions.figures:regions", in_plane(demo()), "one")
    assert "44 polygons of 44 linear regions, by the class decided there" in svg
    assert svg.count("<image") == 1 and len(svg) < 400_000
    assert "along the first two examples" in svg


def test_every_polygon_is_where_the_curves_say():
    curves = {
        "region vertices": torch.tensor([[0, 0], [4096, 0], [4096, 4096], [0, 4096]]),
        "region corners": torch.tensor([0, 1, 2, 0, 2, 3]),
        "region sizes": torch.tensor([3, 3]),
        "region classes": torch.tensor([4, 7]),
        "region numbers": torch.tensor([0, 1]),
        "region window": torch.tensor(0.5),
        "examples": torch.tensor([[0.0, 0.0], [0.4, 0.4], [0.9, 0.9]]),
        "labels": torch.tensor([4, 7, 9]),
    }
    with drawing() as (_, axes):
        words = regions(axes, finding(curves))
        (drawn, *dots) = axes.collections
        paths = [path.vertices[:3].tolist() for path in drawn.get_paths()]
        legend = [text.get_text() for text in axes.get_legend().get_texts()]
        assert axes.get_xlim() == (-0.5, 0.5) == axes.get_ylim()
    assert (
        words == "2 polygons of 2 linear regions in the middle .5 of the square, by the class decided there"
    )
    assert paths == [[[-1, -1], [1, -1], [1, 1]], [[-1, -1], [1, 1], [-1, 1]]]
    assert legend == ["class 4", "class 7"]
    assert len(dots) == 2  # the third example lies outside of what is shown


def test_other_curves_are_left_to_other_drawings():
    with drawing() as (_, axes):
        assert regions(axes, finding({"region vertices": torch.zeros(3, 2)})) == ""
