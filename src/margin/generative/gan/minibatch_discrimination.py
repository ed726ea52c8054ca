r"""How close an example is to the others of its batch (Salimans et al. 2016): a critic sees a collapse.

.. math:: o_{ib} = \sum_j \exp(-\|M_{ib} - M_{jb}\|_1), \qquad M_i = T f(x_i)

with B kernels b of C numbers each. Identical examples have the largest o, the batch's size.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

MOMENTUM = 0.01
"""Share of the newest batch in what the layer remembers of batches."""


def closeness(M: Float[Tensor, "batch kernels numbers"]) -> Float[Tensor, "batch kernels"]:
    """o_ib = sum_j exp(-||M_ib - M_jb||_1), from 1 (alone) to the size of the batch (all the same).

    The example itself is one of the j, which adds 1 to each.

    Reference: Salimans et al. 2016, Section 3.2.
    """
    return torch.exp(-(M[:, None] - M[None]).abs().sum(-1)).sum(1)


class MinibatchDiscrimination(nn.Module):
    """Features followed by their closeness to the batch's, o / n in (0, 1].

    Divided by the size n of the batch, unlike the source, so that a short last batch is like the others.

    In evaluation mode an example has no batch: its closeness is the mean of those in training, a buffer, and
    what the layer says of it depends on it alone.

    Args:
        features: Numbers of an example.
        kernels: B, numbers that are appended, at least 1.
        numbers: C, numbers that a kernel compares, at least 1.

    Raises:
        ValueError: A size is not positive.

    Reference: Salimans et al. 2016, Section 3.2.
    """

    def __init__(self, features: int, kernels: int, *, numbers: int = 5) -> None:
        super().__init__()
        if min(features, kernels, numbers) < 1:
            raise ValueError(
                f"features, kernels and numbers must be at least 1: got {features}, {kernels}, {numbers}"
            )
        self.shape = (kernels, numbers)
        self.T = nn.Linear(features, kernels * numbers, bias=False)
        self.usual: Tensor
        self.register_buffer("usual", torch.ones(kernels))

    def forward(self, f: Float[Tensor, "batch features"]) -> Float[Tensor, "batch more"]:
        """The features and, after them, their closeness."""
        if self.training:
            o = closeness(self.T(f).unflatten(1, self.shape)) / len(f)
            self.usual.lerp_(o.detach().mean(0).to(self.usual), MOMENTUM)
        else:
            o = self.usual.to(f).expand(len(f), -1)
        return torch.cat((f, o), 1)
