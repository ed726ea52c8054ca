r"""Label propagation (Zhu and Ghahramani 2002): a node's class is that of the labels a walk meets first.

.. math:: F_i = \sum_j \frac{a_{ij}}{\sum_k a_{ik}} F_j \quad \text{where no label is known}, \qquad F_i = y_i
    \quad \text{where one is}

F_ik is the probability that of all labels a random walk from i, against the edges, meets one k first. Nothing
is learned and no feature is read: what a graph network gains is seen beside it.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step
from margin.geometric.graphs.sparsity import EdgeWeight, product, shares


class LabelPropagation(nn.Module):
    """Scores F of every node of one graph, of whose nodes it knows some labels.

    A walk ends where no edge leads on; a node from which no label is reached has the scores 0.

    Args:
        num_classes: K.
        num_examples: Number of nodes whose label is known.
        sweeps: Iterations at most; they end where no score rises by more than the tolerance.
        tolerance: Of a score.
        edge_weight: Whether every edge weighs 1, or as much as its first feature.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Zhu and Ghahramani 2002, Section 2.2; Zhu, Ghahramani and Lafferty 2003, Section 2 (the walk).
    """

    numbers_nodes = True
    """It keeps the labels of nodes by their numbers: renumbered, it is another model."""

    nodes: Tensor
    labels: Tensor
    size: Tensor

    def __init__(
        self,
        num_classes: int,
        num_examples: int,
        *,
        sweeps: int = 1000,
        tolerance: float = 1e-6,
        edge_weight: EdgeWeight = "none",
    ) -> None:
        super().__init__()
        if sweeps < 1 or not tolerance >= 0:
            raise ValueError(f"sweeps must be at least 1, tolerance at least 0: got {sweeps}, {tolerance}")
        if edge_weight not in ("none", "first"):
            raise ValueError(f"edge_weight must be none or first: got {edge_weight!r}")
        self.num_classes, self.sweeps, self.tolerance = num_classes, sweeps, tolerance
        self.edge_weight: EdgeWeight = edge_weight
        self.register_buffer("nodes", torch.full((num_examples,), -1))
        self.register_buffer("labels", torch.zeros(num_examples, dtype=torch.int64))
        self.register_buffer("size", torch.zeros((), dtype=torch.int64))

    def forward(
        self,
        x: Float[Tensor, "nodes features"],
        edge_index: Int[Tensor, "2 edges"],
        edge_attr: Float[Tensor, "edges edge_width"],
        sizes: Int[Tensor, " graphs"],
    ) -> Float[Tensor, "nodes classes"]:
        """The scores of every node, at least 0 and of sum at most 1.

        Raises:
            ValueError: The graph has another number of nodes than that whose labels are known.
        """
        known = self.nodes[self.nodes >= 0]
        if len(known) and len(x) != int(self.size):
            raise ValueError(
                f"label propagation knows labels of one graph, of {int(self.size)} nodes: got one of {len(x)}"
            )
        where, share = shares(edge_index, edge_attr, len(x), self.edge_weight)
        truth = x.new_zeros(len(x), self.num_classes)
        truth[known, self.labels[: len(known)]] = 1.0
        scores, share = truth, share.to(x.dtype)
        for _ in range(self.sweeps):
            before, scores = scores, product(where, share, scores)
            scores[known] = truth[known]
            if bool((scores - before <= self.tolerance).all()):
                break
        return scores


def label_propagation() -> Step:
    """One step: the model remembers the labels of the training nodes."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        if batch.targets is None:
            raise ValueError("label propagation needs labels: the training nodes have none")
        model: Any = state.core
        counts = torch.ones(len(batch.targets)) if batch.weight is None else batch.weight
        known = counts.nonzero()[:, 0]
        model.nodes.fill_(-1)[: len(known)] = known
        model.labels.zero_()[: len(known)] = batch.targets[known]
        model.size.fill_(len(batch.targets))
        scores = state.model(*batch.inputs)
        wrong = scores[known].argmax(1) != batch.targets[known]
        return {"loss": wrong.to(scores.dtype).mean()}

    return step
