"""The continuous Hopfield network (Ramsauer et al. 2021): its update is attention to stored patterns."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.memory.associative_memory import check_finite, keep, room_for


def continuous_energy(
    patterns: Float[Tensor, "patterns units"], x: Float[Tensor, "probes units"], beta: float
) -> Float[Tensor, " probes"]:
    r"""The energy that the update never raises.

    .. math:: E(\xi) = -\tfrac1\beta \log \sum_t e^{\beta x_t \cdot \xi} + \tfrac12 |\xi|^2
              + \tfrac1\beta \log s + \tfrac12 M^2, \quad M = \max_t |x_t|

    The constants make it at least 0.

    Args:
        patterns: s stored patterns, one a row.
        x: States.
        beta: Inverse temperature, positive.

    Reference: Ramsauer et al. 2021, Equation 2.
    """
    lse = (beta * x @ patterns.T).logsumexp(1) / beta
    largest = patterns.square().sum(1).max()
    return -lse + x.square().sum(1) / 2 + math.log(len(patterns)) / beta + largest / 2


def continuous_update(
    patterns: Float[Tensor, "patterns units"], x: Float[Tensor, "probes units"], beta: float
) -> Float[Tensor, "probes units"]:
    r"""One update, the mean of the patterns under the softmax of their products with the state.

    .. math:: \xi' = X^\top \mathrm{softmax}(\beta X \xi)

    Args:
        patterns: Stored patterns X, one a row.
        x: States.
        beta: Inverse temperature.

    Reference: Ramsauer et al. 2021, Equation 3.
    """
    return (beta * x @ patterns.T).softmax(1) @ patterns


def separations(patterns: Float[Tensor, "patterns units"]) -> Float[Tensor, " patterns"]:
    """How far each pattern is from the others: Delta_t = x_t . x_t - max_{r != t} x_t . x_r.

    Reference: Ramsauer et al. 2021, Definition 2.
    """
    products = patterns @ patterns.T
    return products.diagonal() - products.clone().fill_diagonal_(-torch.inf).amax(1)


class ModernHopfield(nn.Module):
    """The continuous Hopfield network: a probe moves to a mean of the stored patterns, weighted by likeness.

    One update is attention of one head with the probe as query and the stored patterns as keys and values,
    none of them projected, so torch's kernel does it.

    Args:
        in_features: Number of units; an input of more axes is flattened.
        num_examples: Number of training examples.
        num_patterns: How many of them are stored at most, the first.
        beta: Inverse temperature, positive: a large one retrieves single patterns, a small one their mean.
        updates: How often the state is updated.

    Raises:
        ValueError: An option is out of range, or an input is not finite.

    Reference:
        Ramsauer et al. 2021, Equations 2 and 3.
    """

    patterns: Tensor
    stored: Tensor

    def __init__(
        self,
        in_features: int,
        num_examples: int,
        *,
        num_patterns: int = 1000,
        beta: float = 1.0,
        updates: int = 1,
    ) -> None:
        super().__init__()
        if not 0 < beta < math.inf or updates < 1:
            raise ValueError(f"beta must be positive, updates at least 1: got beta={beta}, updates={updates}")
        self.beta, self.updates = beta, updates
        self.register_buffer("patterns", torch.zeros(room_for(num_patterns, num_examples), in_features))
        self.register_buffer("stored", torch.zeros((), dtype=torch.long))

    def read(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch units"]:
        """Inputs in the model's units, flattened: the states are real."""
        x = x.flatten(1)
        if not torch.compiler.is_exporting():  # a program cannot raise
            check_finite(x)
        return x

    def store(self, x: Float[Tensor, " batch *features"], preprocess: Callable[[Tensor], Tensor]) -> None:
        """Add patterns, given in the user's units."""
        keep(self, self.read(preprocess(x)))

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch units"]:
        """The state after ``updates`` updates from each input, in the model's units."""
        state = self.read(x)
        held = torch.arange(len(self.patterns), device=x.device) < self.stored
        patterns = self.patterns.to(x.dtype)[None, None]
        for _ in range(self.updates):
            state = F.scaled_dot_product_attention(
                state[None, None], patterns, patterns, attn_mask=held[None, None, None], scale=self.beta
            )[0, 0]
        return state
