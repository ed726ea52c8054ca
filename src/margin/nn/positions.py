"""Positions of tokens, for attention, which knows no order: sinusoidal, learned, rotary."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

BASE = 10_000.0
"""The ratio of the slowest to the fastest frequency is 1 / BASE in the limit (Vaswani et al. 2017)."""


def frequencies(width: int, *, base: float = BASE, device: torch.device | None = None) -> Tensor:
    r"""The angles a step of each pair of coordinates, :math:`w_i = base^{-2i/d}`, in float64.

    Args:
        width: d; an odd one has a last pair of which only the first coordinate is there.
        base: Above 1.
        device: Where they are made.
    """
    even = torch.arange(0, width, 2, dtype=torch.float64, device=device)
    return base ** (-even / max(width, 1))


def sinusoidal(
    places: Int[Tensor, " places"], width: int, *, base: float = BASE
) -> Float[Tensor, "places width"]:
    r"""Sines and cosines of the places, at one frequency a pair of coordinates, in float64.

    .. math:: P_{t,2i} = \sin(t w_i), \qquad P_{t,2i+1} = \cos(t w_i), \qquad w_i = 10000^{-2i/d}

    So P_{t+s} is P_t turned by an angle that depends on s alone in each pair, P_t . P_s depends on t - s
    alone, and of an even width each row has the squared norm d / 2. An odd width leaves out the last cosine.

    Args:
        places: t, from 0.
        width: d, at least 1.
        base: 10000.

    Raises:
        ValueError: The width is below 1.

    Reference: Vaswani et al. 2017, Section 3.5.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1: got {width}")
    angles = places[:, None].double() * frequencies(width, base=base, device=places.device)
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)[:, :width]


def rotated(
    x: Float[Tensor, "*batch time part"], start: int = 0, *, base: float = BASE
) -> Float[Tensor, "*batch time part"]:
    r"""Vectors turned in each pair of coordinates by an angle that grows with their place (RoPE).

    .. math:: \begin{pmatrix} x'_{2i} \\ x'_{2i+1} \end{pmatrix} =
        \begin{pmatrix} \cos t w_i & -\sin t w_i \\ \sin t w_i & \cos t w_i \end{pmatrix}
        \begin{pmatrix} x_{2i} \\ x_{2i+1} \end{pmatrix}

    The product of a turned query and a turned key depends on their distance alone. Angles are computed in
    float64. Llama's weights pair coordinate i with i + d/2 instead: the same up to their order.

    Args:
        x: Queries or keys of the places start, start + 1, ...
        start: Place of the first.
        base: 10000.

    Raises:
        ValueError: The number of coordinates is odd.

    Reference: Su et al. 2021, RoFormer, Equations 14 and 15.
    """
    time, part = x.shape[-2:]
    if part % 2:
        raise ValueError(f"rotary positions need heads of an even width: got {part}")
    places = torch.arange(start, start + time, dtype=torch.float64, device=x.device)
    angles = places[:, None] * frequencies(part, base=base, device=x.device)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class SinusoidalPositions(nn.Module):
    """Token vectors with :func:`sinusoidal` added to each: of any length, without a parameter.

    Args:
        width: Numbers of a vector.
        order: Sines and cosines in turn ("paired"), or all sines before all cosines ("halves").

    Reference: Vaswani et al. 2017, Section 3.5.
    """

    def __init__(self, width: int, *, order: Literal["paired", "halves"] = "paired") -> None:
        super().__init__()
        self.width, self.order = width, order

    def forward(
        self, x: Float[Tensor, "batch time width"], start: int = 0
    ) -> Float[Tensor, "batch time width"]:
        """The vectors of the places start, start + 1, ... with these added."""
        table = sinusoidal(torch.arange(start, start + x.shape[1], device=x.device), self.width)
        if self.order == "halves":
            table = torch.cat((table[:, 0::2], table[:, 1::2]), 1)
        return x + table.to(x.dtype)


class LearnedPositions(nn.Module):
    """Token vectors with a learned vector of its place added to each.

    Args:
        longest: Places that have one, at least 1.
        width: Numbers of a vector.

    Raises:
        ValueError: There is no place; later, a sequence is longer than there are places.

    Reference: Gehring et al. 2017, Section 3.1; Devlin et al. 2019, Section 3.
    """

    def __init__(self, longest: int, width: int) -> None:
        super().__init__()
        if longest < 1:
            raise ValueError(f"longest must be at least 1: got {longest}")
        self.longest = longest
        self.weight = nn.Parameter(torch.empty(longest, width))
        nn.init.normal_(self.weight, std=0.02)

    def forward(
        self, x: Float[Tensor, "batch time width"], start: int = 0
    ) -> Float[Tensor, "batch time width"]:
        """The vectors of the places start, start + 1, ... with these added."""
        end = start + x.shape[1]
        if end > self.longest:
            raise ValueError(f"a text must be no longer than the {self.longest} positions: got {end} tokens")
        return x + self.weight[start:end]
