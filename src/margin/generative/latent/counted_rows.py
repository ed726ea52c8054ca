"""The rows that a step on all examples learns from, and how much each counts.

An example of weight 2 counts as two, and one of weight 0 as none, as in Seber and Lee (2003), Section 3.10.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from margin.core.types import Batch
from margin.engine.loop import NonFiniteError, State


def counted_rows(state: State, batch: Batch) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, " rows"]]:
    """The examples whose weight is not 0, as the core sees them, in float64, and their weights.

    Raises:
        ValueError: A weight is negative or not finite, or all are 0.
        NonFiniteError: A feature is not finite.
    """
    x = state.features(batch).flatten(1).double()
    weight = torch.ones_like(x[:, 0]) if batch.weight is None else batch.weight.double()
    if not bool((weight.isfinite() & (weight >= 0)).all()) or not bool(weight.any()):
        raise ValueError(
            "weights of examples must be finite, at least 0, and one above: got from "
            f"{float(weight.min()):g} to {float(weight.max()):g}"
        )
    kept = weight > 0
    if bad := (~x.isfinite() & kept[:, None]).nonzero().tolist():
        row, column = bad[0]
        raise NonFiniteError(
            f"features must be finite: got {float(x[row, column])} in row {row} of the batch, "
            f"feature {column}"
        )
    return x[kept], weight[kept]
