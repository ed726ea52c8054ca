"""Models of every power: none, sums, means, and one that counts triangles, which refinement does not."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.geometric.graphs import expressivity_claims as c
from margin.geometric.graphs.coupling_claims import small_gcn
from margin.geometric.graphs.twin_graphs import both_ways, path_and_star, ring, twins
from margin.geometric.graphs.weisfeiler_leman import refined


class Layer(nn.Module):
    """Neighbors are summed, or averaged, or their triangles are counted besides."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        summed = torch.zeros_like(x).index_add(0, target, x[source])
        if self.how == "mean":
            count = target.bincount(minlength=len(x)).clamp_min(1)
            return summed / count[:, None]
        if self.how == "triangles":
            A = x.new_zeros(len(x), len(x))
            A[target, source] = 1
            return (x + summed) * (1 + (A @ A @ A).diagonal()[:, None])
        return (1.5 * x + summed).sin()


class Model(nn.Module):
    def __init__(self, how: str, *, nodes: bool = False, rounds: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(how) for _ in range(rounds))
        self.nodes = nodes

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index)
        if self.nodes:
            return x
        return torch.stack([part.sum(0) for part in x.split(sizes.tolist())])


def subject(model: nn.Module, graphs=None, targets: Tensor | None = None) -> Subject:
    graphs = graphs or [(both_ways(ring(4)), 4), (both_ways([(0, 1), (1, 2)]), 3)]
    starts = [0]
    for _, count in graphs:
        starts.append(starts[-1] + count)
    edges = torch.cat([e + s for (e, _), s in zip(graphs, starts, strict=False)], 1)
    sizes = torch.tensor([count for _, count in graphs])
    x = torch.ones(starts[-1], 2)
    rows = starts[-1] if model.nodes else len(graphs)
    targets = torch.arange(rows) % 2 if targets is None else targets
    batch = Batch((x, edges, torch.zeros(edges.shape[1], 0), sizes), targets)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("nodes", [True, False])
def test_message_passing_tells_no_twins_apart(how: str, nodes: bool) -> None:
    found = c.bound(subject(Model(how, nodes=nodes)))
    assert found.verdict is Verdict.HOLDS
    assert found.labels == tuple(pair.name for pair in twins())


def test_sums_tell_path_and_star_apart_and_means_do_not() -> None:
    assert "the model tells them apart" in c.bound(subject(Model("sum"))).statement
    assert "the model does not tell them apart" in c.bound(subject(Model("mean"))).statement
    assert c.embedded_apart(subject(Model("mean", nodes=True)), path_and_star()) <= c.ROUNDING
    assert c.embedded_apart(subject(Model("sum", nodes=True)), path_and_star()) > 0.01


def test_a_mean_does_not_tell_one_from_two_and_a_sum_does() -> None:
    """{a} against {a, a}: a node with one neighbor, and one with two, all alike."""
    one, two = both_ways([(0, 1)]), both_ways([(0, 1), (0, 2)])
    inputs = torch.ones(3, 2)
    for how, alike in (("mean", True), ("sum", False)):
        layer = Layer(how)
        assert torch.equal(layer(inputs[:2], one)[0], layer(inputs, two)[0]) == alike


def test_counting_triangles_is_more_and_is_not_message_passing() -> None:
    """A triangle is two steps wide: on a graph where the third node is near, the layer is caught."""
    model = Model("triangles", rounds=1)
    found = c.bound(subject(model))
    worst = dict(zip(found.labels, found.value.tolist(), strict=True))
    assert worst["hexagon, two triangles"] > 0.1
    assert worst["rook, Shrikhande"] == 0.0  # as many triangles at every node
    assert found.verdict is Verdict.VIOLATED


def test_node_models_are_compared_color_by_color() -> None:
    """Nodes of the molecules have several colors: outputs of one color agree, not all outputs."""
    pair = next(pair for pair in twins() if pair.nodes == 10)
    model = subject(Model("sum", nodes=True))
    outputs = c.on_pair(model, pair)
    colors = refined(pair.union, 20).colors
    assert float((outputs - outputs[:1]).abs().max()) > 1e-3
    assert c._spread(outputs, colors) < 1e-12
    assert c._spread(outputs, torch.zeros(20, dtype=torch.int64)) > 1e-3


def test_the_spread_is_from_the_first_of_a_class_either_way() -> None:
    rows = torch.tensor([[1.0], [0.0], [5.0]])
    assert c._spread(rows, torch.tensor([0, 0, 1])) == 1.0
    assert c._spread(-rows, torch.tensor([0, 0, 1])) == 1.0
    assert c._spread(rows, torch.tensor([0, 1, 2])) == 0.0


GRAPHS = [
    (both_ways(ring(6)), 6),
    (both_ways([*ring(3), *ring(3, 3)]), 6),
    (both_ways([(0, 1), (1, 2), (2, 3)]), 4),
    (both_ways([(0, 1), (0, 2), (0, 3)]), 4),
]


def test_classes_of_four_graphs_are_three() -> None:
    coloring, sizes = c.colored([subject(Model("sum"), GRAPHS).test[0].inputs])
    found = c.classes_of(coloring, sizes, nodes=False)
    assert found[0] == found[1]
    assert len(found.unique()) == 3
    whole = c.classes(subject(Model("sum"), GRAPHS))
    assert whole.verdict is Verdict.HOLDS
    assert float(whole.value) == 1.0
    assert float(c.classes(subject(Model("mean"), GRAPHS)).value) == pytest.approx(2 / 3)  # by size alone


def test_a_model_beyond_refinement_has_too_many_answers() -> None:
    found = c.classes(subject(Model("triangles", rounds=2), GRAPHS))
    assert float(found.value) == pytest.approx(4 / 3)
    assert found.verdict is Verdict.VIOLATED


def test_features_and_labels_of_edges_split_classes() -> None:
    base = subject(Model("sum"), GRAPHS[:2])
    x, edges, attr, sizes = base.test[0].inputs
    y = x.clone()
    y[0] = 5
    coloring, _ = c.colored([(y, edges, attr, sizes)])
    assert len(c.classes_of(coloring, sizes, nodes=False).unique()) == 2
    marked = torch.zeros(len(attr), 1)
    marked[0] = 1
    coloring, _ = c.colored([(x, edges, marked, sizes)])
    assert len(c.classes_of(coloring, sizes, nodes=False).unique()) == 2


def test_the_ceiling_is_the_majority_of_each_class() -> None:
    """Hexagon and triangles are one class with both labels: three of four at most."""
    found = c.ceiling(subject(Model("sum"), GRAPHS, torch.tensor([0, 1, 0, 1])))
    assert float(found.high) == 0.75
    assert 0 <= float(found.value) <= 0.75
    assert found.verdict is Verdict.HOLDS
    same = c.ceiling(subject(Model("sum"), GRAPHS, torch.tensor([1, 1, 0, 1])))
    assert float(same.high) == 1.0
    assert same.verdict is Verdict.VACUOUS


def test_a_model_beyond_refinement_breaks_the_ceiling() -> None:
    class Knows(Model):
        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
            rows = super().forward(x, edge_index, edge_attr, sizes)
            return torch.eye(2).to(rows)[torch.tensor([0, 1, 0, 1])] if len(rows) == 4 else rows

    found = c.ceiling(subject(Knows("sum"), GRAPHS, torch.tensor([0, 1, 0, 1])))
    assert float(found.value) == 1.0
    assert found.verdict is Verdict.VIOLATED


def test_weights_and_several_batches_count() -> None:
    base = subject(Model("sum"), GRAPHS, torch.tensor([0, 1, 0, 1]))
    (batch,) = base.test
    weighed = replace(base, test=[batch._replace(weight=torch.tensor([0.0, 1.0, 1.0, 1.0]))])
    assert float(c.ceiling(weighed).high) == 1.0
    twice = replace(base, test=[batch, batch._replace(targets=torch.tensor([0, 0, 0, 1]))])
    assert float(c.ceiling(twice).high) == pytest.approx(7 / 8)


def test_nodes_have_a_ceiling_too() -> None:
    found = c.ceiling(c.demo())
    # all nodes of the ring are one class, the path's ends and middle another two; labels 0 1 2 0 1 2 ...
    assert float(found.high) == pytest.approx((3 + 1 + 1) / 12)
    assert found.verdict is Verdict.HOLDS


def test_refusals() -> None:
    from margin.core.tasks import VALUES

    with pytest.raises(ValueError, match="a classifier: got the task values"):
        c.ceiling(replace(small_gcn(), task=VALUES))


def test_nan_fails() -> None:
    class Nan(Model):
        def forward(self, *inputs: Tensor) -> Tensor:
            return super().forward(*inputs) * torch.nan

    assert c.classes(subject(Nan("sum"))).verdict is Verdict.FAILED
    assert c.bound(subject(Nan("sum"))).verdict is Verdict.FAILED
