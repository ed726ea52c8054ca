"""Graphs as drawings: nodes by the class that is predicted of them, edges by how much is attended to them.

Oversmoothing as colors: a row a depth, a column a node; where all differences are gone, all is grey.

The part of a graph that is drawn: whole where it is small, else the nodes around one, by breadth first.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.frames import FILLS
from margin.figures.svg import INK, MUTED, sized
from margin.geometric.graphs.message_passing import components, steps_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 3.7
"""Inches of the square."""

GAP = 0.6
"""Between components, in units of a node's room."""


def graph(axes: "Axes", finding: Finding) -> str:
    """Components side by side; a ring where a prediction is wrong, thick edges where they are attended to."""
    if not all(f"graph {name}" in finding.curves for name in ("edges", "classes", "labels", "whole")):
        return ""
    edges, classes, labels, whole = (
        finding.curves[f"graph {name}"].detach().cpu() for name in ("edges", "classes", "labels", "whole")
    )
    if not len(classes):
        return ""
    places = layout(edges, len(classes))
    sized(axes, 0.1, 0.35, SIDE + 0.4, SIDE)
    _edges(axes, edges, places, finding.curves.get("graph attention"))
    wrong = (labels >= 0) & (labels != classes)
    size = 110 if len(classes) <= 30 else 42
    present = classes.unique().tolist()
    for index, kind in enumerate(present):
        at = classes == kind
        x, y = places[at].T.tolist()
        axes.scatter(
            x,
            y,
            s=size,
            color=[_color(index)],
            edgecolors=[INK if bad else "none" for bad in wrong[at].tolist()],
            linewidths=1.4,
            zorder=3,
        )
        if len(present) > 1:
            axes.scatter([], [], s=size, color=[_color(index)], label=f"class {kind}")
    axes.set_aspect("equal")
    axes.margins(0.04)
    axes.set_axis_off()
    _legend(axes, bool(wrong.any()), len(present), size)
    total, count = int(whole), int((labels >= 0).sum())
    part = f"{len(classes):,} of {total:,} nodes" if len(classes) < total else f"{total:,} nodes"
    judged = (
        f"; of {count:,} that are judged {int(wrong.sum()):,} are wrong, with a dark ring" if count else ""
    )
    attended = "; edges are as thick as they are attended to" if "graph attention" in finding.curves else ""
    return f"a graph drawn, {part}, by the class predicted{judged}{attended}"


def _color(index: int) -> tuple[float, float, float]:
    red, green, blue = FILLS[index % len(FILLS)]
    return red / 255, green / 255, blue / 255


def _edges(axes: "Axes", edges: Tensor, places: Tensor, attention: Tensor | None) -> None:
    from matplotlib.collections import LineCollection

    if attention is None:
        ends, widths = edges.sort(0).values.unique(dim=1), 0.8
        lines: Any = places[ends.T].numpy()
        axes.add_collection(LineCollection(lines, colors=MUTED, linewidths=widths, alpha=0.6))
        return
    attention = attention.detach().cpu().double()
    # each direction has its own half of the line: it ends at the middle, from the target that attends
    source, target = places[edges[0]], places[edges[1]]
    halves: Any = torch.stack((target, (source + target) / 2), 1).numpy()
    thick = (0.25 + 3.2 * attention).tolist()
    axes.add_collection(LineCollection(halves, colors=MUTED, linewidths=thick, alpha=0.75))


def _legend(axes: "Axes", wrong: bool, kinds: int, size: int) -> None:
    if wrong:
        axes.scatter([], [], s=size, facecolors="none", edgecolors=INK, linewidths=1.4, label="wrong")
    if kinds > 1 or wrong:
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, columnspacing=1.0, handletextpad=0.2
        )


def layout(edges: Tensor, nodes: int) -> Tensor:
    """A place in the plane for each node: components laid out by springs, the largest first, in rows."""
    import networkx as nx  # type: ignore[import-untyped]

    graph: Any = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges.T.tolist())
    parts = sorted(nx.connected_components(graph), key=lambda part: (-len(part), min(part)))
    places = torch.zeros(nodes, 2, dtype=torch.float64)
    width = max(math.sqrt(sum((_room(len(part)) + GAP) ** 2 for part in parts)), _room(len(parts[0])))
    across, down, tallest = 0.0, 0.0, 0.0
    for part in parts:
        members, side = sorted(part), _room(len(part))
        if across and across + side > width * 1.1:
            across, down, tallest = 0.0, down - tallest - GAP, 0.0
        own = _springs(graph.subgraph(members), members) * side
        places[members] = own + torch.tensor([across, down - side])
        across, tallest = across + side + GAP, max(tallest, side)
    return places


def _room(count: int) -> float:
    return math.sqrt(count) if count > 1 else 0.3


def _springs(graph: Any, members: list[int]) -> Tensor:
    """Places in the unit square."""
    import networkx as nx

    if len(members) == 1:
        return torch.full((1, 2), 0.5, dtype=torch.float64)
    found = nx.kamada_kawai_layout(graph)
    if len(members) > 20:  # springs alone tangle, and stresses alone crowd the middle
        found = nx.spring_layout(graph, pos=found, seed=0, iterations=30)
    places = torch.tensor([[*map(float, found[node])] for node in members], dtype=torch.float64)
    low, extent = places.amin(0), places.amax(0) - places.amin(0)
    # places have no scale of their own: a narrow drawing is widened, up to threefold
    return (places - low) / torch.maximum(extent, extent.amax() / 3).clamp_min(1e-9)


WIDTH, ROW = 3.7, 0.26
"""Inches of the picture, and of a row."""


def smoothing(axes: "Axes", finding: Finding) -> str:
    """Each node's difference from the limit, as a color: grey is none."""
    colors, depths = finding.curves.get("smoothing colors"), finding.curves.get("smoothing depths")
    if colors is None or depths is None or not bool(colors.isfinite().all()):
        return ""
    colors, names = colors.detach().cpu(), [str(int(depth)) for depth in depths]
    sized(axes, 0.62, 0.48, WIDTH, max(ROW * len(colors), 0.8))
    axes.imshow(colors.numpy(), aspect="auto", interpolation="nearest")
    every = -(-len(names) // 12)
    axes.set_yticks(range(0, len(names), every), names[::every])
    axes.set_xticks([])
    axes.grid(False)
    axes.set(xlabel=f"{colors.shape[1]} nodes", ylabel="depth")
    last = float((colors[-1] - 0.5).abs().mean() * 2)
    first = float((colors[0] - 0.5).abs().mean() * 2)
    return (
        f"colors of {colors.shape[1]} nodes by depth, {names[0]} to {names[-1]}: grey where nothing but the "
        f"degree is left; the mean color's strength goes from {first:.2f} to {last:.2f}"
    )


MOST = 120
"""Nodes that are drawn at most."""


def shown_nodes(
    edge_index: Int[Tensor, "2 edges"], num_nodes: int, counts: Bool[Tensor, " nodes"]
) -> Int[Tensor, " shown"]:
    """All nodes of a small graph, whole components of a middling one, else the nearest to a node that counts.

    The node in the middle is in the largest component and has as many edges as nine in ten there at most, so
    it is not the hub.
    """
    if num_nodes <= MOST:
        return torch.arange(num_nodes)
    component = components(edge_index, num_nodes)
    sizes = component.bincount()
    if int(sizes.max()) <= MOST:
        whole = component[component.argsort(stable=True)]
        kept = sizes.cumsum(0)[whole] <= MOST
        return component.argsort(stable=True)[kept]
    degree = edge_index[1].bincount(minlength=num_nodes)
    inside = component == int(sizes.argmax())
    inside = inside & counts if bool((inside & counts).any()) else inside
    order = torch.where(inside, degree, -1).argsort(stable=True)[-int(inside.sum()) :]
    middle = order[int(0.9 * (len(order) - 1))]
    steps = steps_to(middle[None], edge_index, num_nodes)[0]
    near = steps.argsort(stable=True)[:MOST]
    return near[steps[near].isfinite()].sort().values


def picture(  # one parameter a curve
    edge_index: Int[Tensor, "2 edges"],
    num_nodes: int,
    classes: Int[Tensor, " nodes"],
    labels: Int[Tensor, " nodes"] | None = None,
    counts: Bool[Tensor, " nodes"] | None = None,
    attention: Float[Tensor, " edges"] | None = None,
) -> dict[str, Tensor]:
    """The curves from which a report draws a graph.

    Args:
        edge_index: Sources and targets.
        num_nodes: M.
        classes: What is predicted of each node.
        labels: What each node is; -1 where it is not known.
        counts: Which nodes are judged: those are drawn with an edge where they are wrong.
        attention: How much each edge's target attends to its source, in [0, 1].
    """
    edge_index = edge_index.cpu()
    judged = torch.ones(num_nodes, dtype=torch.bool) if counts is None else counts.cpu()
    nodes = shown_nodes(edge_index, num_nodes, judged)
    place = torch.full((num_nodes,), -1)
    place[nodes] = torch.arange(len(nodes))
    ends = place[edge_index]
    kept = (ends >= 0).all(0) & (ends[0] != ends[1])
    known = torch.full((num_nodes,), -1) if labels is None else torch.where(judged, labels.cpu(), -1)
    curves = {
        "graph edges": ends[:, kept],
        "graph classes": classes.cpu()[nodes],
        "graph labels": known[nodes],
        "graph whole": torch.tensor(num_nodes),
    }
    return curves if attention is None else curves | {"graph attention": attention.cpu()[kept]}
