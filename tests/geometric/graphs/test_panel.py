"""A graph is drawn at distinct places: its nodes by class, wrong ones ringed, attended edges thick."""

import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import INK, drawing
from margin.geometric.graphs.figures import graph, layout

CURVES = {
    "graph edges": torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 4]]),
    "graph classes": torch.tensor([0, 0, 1, 1, 1, 0]),
    "graph labels": torch.tensor([0, 1, 1, -1, -1, -1]),
    "graph whole": torch.tensor(6),
}


def test_nodes_edges_and_mistakes(finding) -> None:
    from matplotlib.colors import to_rgba

    with drawing() as (_, axes):
        words = graph(axes, finding(curves=CURVES))
        lines, nodes = axes.collections[0], axes.collections[1:]
        assert len(lines.get_segments()) == 3  # both directions are one line
        drawn = [c for c in nodes if len(c.get_offsets())]
        assert [len(c.get_offsets()) for c in drawn] == [3, 3]
        rings = [tuple(edge) == to_rgba(INK) for edge in drawn[0].get_edgecolors()]
        assert rings == [False, True, False]
        legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["class 0", "class 1", "wrong"]
    assert (
        words == "a graph drawn, 6 nodes, by the class predicted; "
        "of 3 that are judged 1 are wrong, with a dark ring"
    )
    assert "<svg" in plot("margin.geometric.graphs.figures:graph", finding(curves=CURVES), "p")


def test_attention_is_thickness_from_the_attending_end(finding) -> None:
    weights = torch.tensor([0.0, 1.0, 0.5, 0.5, 0.25])
    with drawing() as (_, axes):
        words = graph(axes, finding(curves=CURVES | {"graph attention": weights}))
        lines = axes.collections[0]
        widths = lines.get_linewidths()
        places = layout(CURVES["graph edges"], 6)
        assert len(lines.get_segments()) == 5
        assert widths[1] > widths[2] > widths[0]
        start = torch.tensor(lines.get_segments()[0][0])
        torch.testing.assert_close(start, places[1])  # the target of 0 -> 1
    assert words.endswith("edges are as thick as they are attended to")


def test_part_of_a_graph_says_so(finding) -> None:
    with drawing() as (_, axes):
        words = graph(axes, finding(curves=CURVES | {"graph whole": torch.tensor(1234)}))
    assert "6 of 1,234 nodes" in words


def test_places_are_apart_within_and_between_components() -> None:
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [1, 2, 0, 4, 5, 3, 7]])
    places = layout(edges, 10)
    gaps = torch.cdist(places, places) + torch.eye(10)
    assert float(gaps.min()) > 0.05
    boxes = [(places[part].amin(0), places[part].amax(0)) for part in ([0, 1, 2], [3, 4, 5], [6, 7])]
    for i, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[:i]:
            assert bool((low > other_high).any()) or bool((other_low > high).any())
    assert torch.equal(layout(edges, 10), places)


def test_other_curves_are_left_to_others(finding) -> None:
    for curves in ({"x": torch.ones(2)}, CURVES | {"graph classes": torch.zeros(0, dtype=torch.int64)}):
        with drawing() as (_, axes):
            assert graph(axes, finding(curves=curves)) == ""
