r"""Message passing (Gilmer et al. 2017): every layer of a graph network that looks at neighbors is one.

.. math:: x_i' = \phi\Bigl(x_i, \bigoplus_{j \in N(i)} \psi(x_i, x_j, e_{ij})\Bigr)
"""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.geometric.graphs.aggregation import How, aggregate

Psi = Callable[[Tensor, Tensor, Tensor], Tensor]
Phi = Callable[[Tensor, Tensor], Tensor]


class MessagePassing(nn.Module):
    """A layer of message passing with functions of one's own.

    A node without incoming edges aggregates 0. k layers make a node's row a function of the nodes from which
    it is reached in at most k edges, and of no other.

    Args:
        psi: ``(x_i, x_j, e_ij) -> message``, for all edges at once, a row each: the row of the target, of the
            source, and of the edge, of width 0 where edges carry nothing.
        phi: ``(x_i, aggregate) -> new row``, for all nodes at once.
        how: The sum, the mean, or the largest value of each coordinate of the messages.

    Raises:
        ValueError: ``how`` is none of these.

    Reference:
        Gilmer, Schoenholz, Riley, Vinyals and Dahl 2017, Equations 1 and 2 (sum); Bronstein et al. 2021,
        Section 5.3.
    """

    def __init__(self, psi: Psi, phi: Phi, *, how: How = "sum") -> None:
        super().__init__()
        if how not in ("sum", "mean", "max"):
            raise ValueError(f"how must be sum, mean or max: got {how!r}")
        self.psi, self.phi, self.how = psi, phi, how

    def forward(
        self,
        x: Float[Tensor, "nodes features"],
        edge_index: Int[Tensor, "2 edges"],
        edge_attr: Float[Tensor, "edges width"],
    ) -> Float[Tensor, "nodes outputs"]:
        """The new row of each node."""
        source, target = edge_index
        messages = self.psi(x.index_select(0, target), x.index_select(0, source), edge_attr)
        return self.phi(x, aggregate(messages, target, len(x), self.how))
