"""Batch normalization over the steps of a batch of sequences, without padding (Ioffe and Szegedy 2015)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import Lengths, valid


class StepBatchNorm(nn.Module):
    r"""Each number of a step, less its mean over all steps of all sequences, over its deviation there.

    .. math:: y_{tk} = a_k \frac{x_{tk} - \mu_k}{\sqrt{\sigma_k^2 + \epsilon}} + b_k

    While training, mu and sigma are the batch's, over its T_1 + ... + T_N steps: padding does not count,
    and a step reads the others, later ones included. In evaluation they are the running statistics: a step
    then reads itself alone, so a causal model stays one, and can be streamed.

    Args:
        width: Numbers of each step.

    Reference: Ioffe and Szegedy 2015, Algorithm 1 and Section 3.2 (positions of a map counted as examples).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.over_rows = nn.BatchNorm1d(width)

    def forward(
        self, x: Float[Tensor, "batch *time width"], lengths: Lengths | None = None
    ) -> Float[Tensor, "batch *time width"]:
        """The normalized steps; those at padding have no meaning.

        Args:
            x: Sequences, or a step of each.
            lengths: Steps of each sequence; None is all of them.

        Raises:
            ValueError: It is training and the batch has a single step, which has no deviation.
        """
        if lengths is None or not self.training:
            return self._of_rows(x.flatten(0, -2)).view_as(x)
        here = valid(lengths, x.shape[1])
        return torch.zeros_like(x).masked_scatter(here.unsqueeze(-1), self._of_rows(x[here]))

    def _of_rows(self, rows: Float[Tensor, "steps width"]) -> Float[Tensor, "steps width"]:
        if self.training and len(rows) == 1:
            raise ValueError(
                "batch normalization needs two steps in a batch that is learned from: got 1; set a larger "
                "--batch-size, or --model.norm layer"
            )
        return self.over_rows(rows) if len(rows) else rows
