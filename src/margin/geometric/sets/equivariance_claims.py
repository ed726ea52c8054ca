"""Sets and graphs have no order: models of them do not see in which order they are written down.

Zaheer et al. (2017) for sets; Bronstein et al. (2021) for graphs: f(PX, P A P^T) = P f(X, A), or f(X, A).
"""

import math
from collections.abc import Iterator
from itertools import permutations

import torch
from jaxtyping import Int
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, in_double, sample_examples
from margin.engine.loop import risk
from margin.geometric.graphs.layers import exact_inputs, first_inputs, is_graph, is_node_model
from margin.geometric.sets.equivariance import (
    Act,
    Inputs,
    equivariance_error,
    on_edges,
    on_rows,
    permuting,
    same,
)
from margin.math.groups.groups import axioms
from margin.math.groups.permutations import composed, drawn, inverse

ROUNDING = 1e-9
"""In float64, relative to the largest output, or to 1: sums are taken in another order."""

COUNT = 3
"""Permutations of each kind that are drawn."""

EXAMPLES = 512
"""Sets, or nodes, of the held-out batches that are reordered, about."""


def renumbered(pi: Int[Tensor, " nodes"], order: Int[Tensor, " graphs"], *, nodes: bool) -> Act:
    """Nodes get other places in the list, and graphs in the batch: node m is what pi(m) was.

    Args:
        pi: Of all nodes; those of a graph stay together.
        order: Graph k is what ``order[k]`` was.
        nodes: Whether the output has a row a node, or a row a graph.
    """
    place = inverse(pi)

    def act(inputs: Inputs) -> Inputs:
        x, edge_index, edge_attr, sizes = inputs
        return x[pi], place[edge_index], edge_attr, sizes[order]

    return Act(act, lambda output: output[pi if nodes else order])


def within_graphs(sizes: Int[Tensor, " graphs"], generator: Generator) -> Int[Tensor, " nodes"]:
    """A permutation of all nodes that keeps each in its graph's block."""
    key = torch.rand(int(sizes.sum()), generator=generator, dtype=torch.float64)
    return (torch.repeat_interleave(sizes) + key).argsort()


def of_blocks(sizes: Int[Tensor, " graphs"], order: Int[Tensor, " graphs"]) -> Int[Tensor, " nodes"]:
    """The permutation of all nodes that lists graphs in another order, each one's nodes as they were."""
    blocks = torch.arange(int(sizes.sum())).split(sizes.tolist())
    return torch.cat([blocks[k] for k in order.tolist()]) if len(order) else order


def graph_acts(inputs: Inputs, *, nodes: bool, seed: int) -> dict[str, list[Act]]:
    """What leaves a batch of graphs the same: numbers of nodes, the list of edges, the order of graphs."""
    _, edge_index, _, sizes = (each.cpu() for each in inputs)
    generator, still = Generator().manual_seed(seed), torch.arange(len(sizes))
    repeats = range(COUNT)
    acts = {
        "nodes renumbered": [
            renumbered(within_graphs(sizes, generator), still, nodes=nodes) for _ in repeats
        ],
        "edges listed in another order": [
            Act(on_edges(drawn(edge_index.shape[1], generator)), same) for _ in repeats
        ],
    }
    if len(sizes) > 1:
        orders = [drawn(len(sizes), generator) for _ in repeats]
        acts["graphs in another order"] = [
            renumbered(of_blocks(sizes, order), order, nodes=nodes) for order in orders
        ]
    return acts


def set_acts(inputs: Inputs, output: Tensor, *, seed: int) -> dict[str, list[Act]]:
    """The elements of every set of a batch change places; an output with an axis of elements follows."""
    generator = Generator().manual_seed(seed)
    x = inputs[0]
    follows = output.ndim == 3 and output.shape[:2] == x.shape[:2]
    pis = [drawn(x.shape[1], generator) for _ in range(COUNT)]
    return {"elements in another order": [Act(on_rows(pi), permuting(pi) if follows else same) for pi in pis]}


@torch.no_grad()
def equivariance(subject: Subject, *, seed: int = 2017) -> Finding:
    """How far the outputs are from following the order in which a set or graph is written down, in float64.

    Args:
        subject: A model of sets or graphs; it is asked on whole held-out batches, drawn at random.
        seed: Seed of the permutations.
    """
    model = in_double(subject.model)
    batches = sample_examples(subject.test, EXAMPLES, whole_batches=True).batches
    rows, finite, graphs = list[list[float]](), True, is_graph(subject)
    follows = graphs and is_node_model(subject)
    with eval_mode(model):
        for batch in batches:
            inputs = exact_inputs(batch)
            output = model(*inputs)
            finite = finite and bool(output.isfinite().all())
            follows = follows if graphs else output.ndim == 3
            acts = (
                graph_acts(inputs, nodes=follows, seed=seed)
                if graphs
                else set_acts(inputs, output, seed=seed)
            )
            rows.append([equivariance_error(model, inputs, each) for each in acts.values()])
    does = "follows" if follows else "does not depend on"
    where = f"{len(batches)} of {len(subject.test)} held-out batches"
    return Finding(
        statement=f"The output {does} the order in which elements, nodes and edges are listed: the largest "
        f"difference over {COUNT} drawn orders of each kind of {where}, in parts of the largest output (or "
        "of 1).",
        value=torch.tensor(rows, dtype=torch.float64).amax(0),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING,
        labels=tuple(acts),
        failure="" if finite else "an output is not finite",
        reference="Zaheer et al. 2017, Properties 1 and 2 of Section 2.1; Bronstein et al. 2021, Section 4.1",
    )


def group_axioms(subject: Subject, *, seed: int = 0) -> Finding:
    """How many axioms of a group, and of its action, reorderings of the subject's own inputs break.

    The permutations of three things are tried exhaustively; that reordering by one, then by another, is
    reordering by their product is tried on the first held-out sets, or on the features of the nodes.

    Args:
        subject: A model of sets or graphs.
        seed: Seed of the permutations of the inputs.
    """
    elements = list(permutations(range(3)))
    found = axioms(elements, lambda a, b: tuple(a[i] for i in b))
    broken = [bool(found.closure), bool(found.associativity), not found.identity, bool(found.inverses)]
    x = first_inputs(subject)[0]
    generator = Generator().manual_seed(seed)
    wrong = []
    for first, then in _pairs(x.shape[-2], generator):
        (once,) = on_rows(composed(first, then))((x,))
        (twice,) = on_rows(then)(on_rows(first)((x,)))
        (back,) = on_rows(inverse(first))(on_rows(first)((x,)))
        wrong += [not torch.equal(once, twice), not torch.equal(back, x)]
    return Finding(
        statement="Reorderings are a group that acts on the inputs: broken axioms of the permutations of "
        f"three things, and of the action on the held-out inputs with {COUNT} pairs of permutations.",
        value=torch.tensor([float(sum(broken)), float(sum(wrong))], dtype=torch.float64),
        unit="axioms",
        range=(0.0, math.inf),
        equals=0.0,
        labels=("group", "action"),
    )


def _pairs(size: int, generator: Generator) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(COUNT):
        yield drawn(size, generator), drawn(size, generator)


class _SumOfElements(nn.Module):
    """The smallest model of sets: each element through a layer, their sum through another."""

    reads_sets = True

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 4)
        self.outer = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Logits (B, 3); an element whose mask is False is not there."""
        inner = self.inner(x).tanh() * mask[..., None]
        logits: Tensor = self.outer(inner.sum(1))
        return logits


def demo() -> Subject:
    """A sum over the elements of sets of up to five."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = _SumOfElements()
        x = torch.randn(6, 5, 2)
    mask = torch.arange(5) < torch.arange(6)[:, None]
    batch = Batch((x, mask), torch.arange(6) % 3)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
