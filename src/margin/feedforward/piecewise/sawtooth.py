"""The tent map composed with itself (Telgarsky 2015): 2^L teeth' sides by L layers of two ReLUs."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.feedforward.piecewise.pieces import Pieces

DEEPEST = 50
"""Beyond, the slope 2^L of a tooth is more than what float64 tells apart in [0, 1]."""


class Sawtooth(nn.Module):
    r"""The L-fold composition of the tent map, as a network of one input with L hidden layers of two ReLUs.

    .. math:: t(x) = 2 (x)_+ - 4 (x - \tfrac12)_+, \qquad t_L = t \circ \dots \circ t

    On [0, 1] it goes up and down between 0 and 1 in 2^L pieces of slope 2^L and -2^L, turning at j / 2^L.
    Every weight is a power of 2, so up to rounding of the input nothing is rounded.

    Args:
        depth: L, from 1 to 50.

    Raises:
        ValueError: The depth is out of range.

    Reference:
        Telgarsky 2015; Montufar, Pascanu, Cho and Bengio 2014 (folding).
    """

    def __init__(self, *, depth: int = 6) -> None:
        super().__init__()
        if not 1 <= depth <= DEEPEST:
            raise ValueError(f"depth must be from 1 to {DEEPEST}: got {depth}")
        self.depth = depth
        first, last = nn.Linear(1, 2), nn.Linear(2, 1)
        middle = [nn.Linear(2, 2) for _ in range(depth - 1)]
        half = torch.tensor([0.0, -0.5])
        with torch.no_grad():
            for layer in (first, *middle):
                layer.bias.copy_(half)
            first.weight.fill_(1.0)
            for layer in middle:
                layer.weight.copy_(torch.tensor([[2.0, -4.0], [2.0, -4.0]]))
            last.weight.copy_(torch.tensor([[2.0, -4.0]]))
            last.bias.zero_()
        self.layers = nn.Sequential(
            *(part for layer in (first, *middle) for part in (layer, nn.ReLU())), last
        )

    def forward(self, x: Float[Tensor, "batch 1"]) -> Float[Tensor, " batch"]:
        """The height of the sawtooth at each x."""
        return self.layers(x).flatten()


def teeth(depth: int, low: float = 0.0, high: float = 1.0) -> Pieces:
    """The sawtooth of 2^L pieces between 0 and 1, moved to [low, high], by its formula, not by the network.

    Beyond the ends it goes on as at the ends.

    Args:
        depth: L, at least 0; 0 is the one piece from 0 at low to 1 at high.
        low: Where it begins, at height 0.
        high: Where it ends.

    Raises:
        ValueError: The depth is negative or above 20, or the interval is empty.
    """
    if not 0 <= depth <= 20 or not low < high:
        raise ValueError(f"a sawtooth needs depth in 0 .. 20 and low < high: got {depth}, {low:g}, {high:g}")
    count = 2**depth
    ends = torch.arange(count + 1, dtype=torch.float64) / count
    x = low + (high - low) * ends
    sign = 1.0 - 2.0 * (torch.arange(count) % 2).double()
    slopes = sign * count / (high - low)
    start = (torch.arange(count) % 2).double()
    return Pieces(x[1:-1], slopes[:, None], (start - slopes * x[:-1])[:, None])


def fewest_pieces(depth: int) -> int:
    r"""The fewest pieces of a function that is nearer than 1/2 to the sawtooth everywhere on [0, 1]: 2^L.

    At the 2^L + 1 points j / 2^L the sawtooth is 0 and 1 in turn. A function g nearer than 1/2 is below 1/2
    at the former and above at the latter, so g - 1/2 changes its sign 2^L times, and an affine piece changes
    it once at most. A hidden layer of m ReLUs has m + 1 pieces: it needs m >= 2^L - 1.

    Args:
        depth: L, at least 1.

    Raises:
        ValueError: The depth is below 1.

    Reference: Telgarsky 2015 and 2016, Theorem 1.1 (for the mean of the absolute error).
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1: got {depth}")
    return 2**depth


HALF = 0.5
"""How near to the sawtooth no function of fewer pieces gets, uniformly; the constant 1/2 gets there."""
