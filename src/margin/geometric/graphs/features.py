"""Features of nodes that are mostly 0, as bags of words are: a layer reads the others alone.

Dropping 0 leaves 0, so dropout draws a number for each entry that is not; the law is the same.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.geometric.graphs.kept import kept
from margin.geometric.graphs.sparsity import Pattern, pattern, product
from margin.nn.dropping import Dropout as Dropout

FEW = 0.1
"""Features are read sparsely where at most this share of them is not 0; beyond, a dense product is fast."""


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """The features that are not 0: where they are, node by node, and what they are."""

    where: Pattern
    values: Float[Tensor, " entries"]


Rows = Tensor | Sparse
"""Features of nodes (nodes, features), or those of them that are not 0."""


def given(x: Float[Tensor, "nodes features"]) -> Rows:
    """Features as a model's first layer reads them: sparsely where few are not 0 and none needs a gradient.

    What is found is kept as long as ``x`` lives and stays as it is.
    """
    if x.requires_grad or torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(x):
        return x
    found = kept(_sparse, (x,))
    return x if found is None else found


def _sparse(x: Tensor) -> Sparse | None:
    if x.numel() == 0 or int(torch.count_nonzero(x)) > FEW * x.numel():
        return None
    row, column = x.nonzero(as_tuple=True)  # by row, and in the order of the columns
    return Sparse(pattern(row, column, (x.shape[0], x.shape[1])), x[row, column])


def dense(x: Rows) -> Float[Tensor, "nodes features"]:
    """The features with their zeros."""
    if isinstance(x, Tensor):
        return x
    found = x.values.new_zeros(x.where.shape)
    return found.index_put((x.where.row.long(), x.where.column.long()), x.values)


class FeatureMap(nn.Module):
    r"""The linear map :math:`X W^\top` of features, sparse or not, some of which are dropped in training.

    Args:
        in_features: Numbers of a node.
        out_features: Numbers of a node after it.
        dropout: Probability with which a number of X is dropped in training, in [0, 1).

    Raises:
        ValueError: The dropout is not in [0, 1).

    Reference:
        Glorot and Bengio 2010, Equation 16 (how W begins).
    """

    def __init__(self, in_features: int, out_features: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(out_features, in_features)))
        self.dropout = Dropout(dropout)

    def forward(self, x: Rows) -> Float[Tensor, "nodes outputs"]:
        """The rows times the transposed weight."""
        if isinstance(x, Tensor):
            return F.linear(self.dropout(x), self.weight)
        values = self.dropout(x.values).to(self.weight.dtype)
        # stacked rows: the gradient of a transpose would not be contiguous, as fused optimizers want it
        return product(x.where, values, torch.stack(self.weight.unbind(0), 1))

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"
