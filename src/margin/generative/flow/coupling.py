"""Coupling layers (Dinh et al. 2014, 2017): half of the numbers move, as a network of the other half says."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.activations import Activation
from margin.nn.dense import dense

Rows = Float[Tensor, "batch features"]
Context = Float[Tensor, "batch context"]
PerRow = Float[Tensor, " batch"]

PIECE = 4096
"""Rows that are mapped at once where no gradient is asked: what lies between then stays in the cache."""

BEGIN = 0.1
"""Factor of the last layer of each network at the beginning: every map is then near the identity."""


@runtime_checkable
class Monotone(Protocol):
    """An increasing map of each number by itself, and its inverse, from a network's raw outputs."""

    @property
    def count(self) -> int:
        """Raw outputs that one number needs."""
        ...

    def forward(self, x: Rows, raw: Tensor) -> tuple[Rows, Rows]:
        """The images of the numbers, and the logarithms of the derivatives."""
        ...

    def inverse(self, y: Rows, raw: Tensor) -> Rows:
        """The numbers of which these are the images."""
        ...


@dataclass(frozen=True, slots=True)
class Affine:
    """The map y = x exp(s) + t, where s = limit tanh(the raw output).

    Args:
        limit: Largest |s|, positive.

    Raises:
        ValueError: The limit is not positive.

    Reference: Dinh, Sohl-Dickstein and Bengio 2017, Equations 4 to 8 and Section 4.1, where the factor of the
        tanh is learned.
    """

    limit: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.limit < math.inf:
            raise ValueError(f"max_log_scale must be positive: got {self.limit:g}")

    @property
    def count(self) -> int:
        """Raw outputs that one number needs: those of s, then those of t."""
        return 2

    def forward(self, x: Float[Tensor, "*n"], raw: Tensor) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """The images and the log-derivatives; raw has twice the channels of x (axis 1), s before t."""
        s, t = raw.chunk(2, 1)
        s = self.limit * torch.tanh(s)
        return torch.addcmul(t, x, s.exp()), s

    def inverse(self, y: Float[Tensor, "*n"], raw: Tensor) -> Float[Tensor, "*n"]:
        """The numbers of which these are the images: (y - t) exp(-s)."""
        s, t = raw.chunk(2, 1)
        return (y - t) * torch.exp(-self.limit * torch.tanh(s))


class Couplings(nn.Module):
    r"""A chain of couplings of two halves that change roles from one to the next.

    .. math:: (a, b) \mapsto (a, g(b; N_1(a))) \mapsto (g(a; N_2(b)), b) \mapsto \dots

    with g increasing in each number, so the Jacobian is triangular in each step and its log-determinant is
    the sum of the log-derivatives. The halves are cut once and joined once.

    Args:
        in_features: Numbers of a row, at least 2; the first half is the smaller of two that are unequal.
        context: Numbers that every network sees besides.
        monotone: g.
        layers: Couplings, at least 2: fewer leave a half as it is.
        hidden: Widths of the layers of each network.
        activation: Between the layers of a network.

    Raises:
        ValueError: There are fewer than two features or layers.

    Reference: Dinh, Sohl-Dickstein and Bengio 2017, Sections 3.2 to 3.5, Equations 6 and 7; the beginning is
        Kingma and Dhariwal 2018, Section 3.3, short of their 0, where most weights had no gradient.
    """

    def __init__(
        self,
        in_features: int,
        context: int,
        *,
        monotone: Monotone,
        layers: int,
        hidden: tuple[int, ...],
        activation: Activation,
    ) -> None:
        super().__init__()
        if in_features < 2:
            raise ValueError(f"a coupling moves half of the features by the other: got {in_features} feature")
        if layers < 2:
            raise ValueError(f"layers must be at least 2, that both halves move: got {layers}")
        self.monotone = monotone
        self.sizes = (in_features // 2, in_features - in_features // 2)
        pairs = (self.sizes, self.sizes[::-1])
        networks = [
            dense(fixed + context, hidden, monotone.count * moved, activation)
            for fixed, moved in (pairs[i % 2] for i in range(layers))
        ]
        self.networks = nn.ModuleList(networks)
        for module in self.networks.modules():
            if isinstance(module, nn.ReLU):
                # of an affine map's output, which no gradient needs: a fifth of the time
                module.inplace = True
        with torch.no_grad():  # a chain that begins near the identity keeps the tails of its density
            for network in networks:
                for parameter in network[-1].parameters():
                    parameter.mul_(BEGIN)

    def forward(self, x: Rows, context: Context | None = None) -> tuple[Rows, PerRow]:
        """The image of each row, and the log-determinant of the Jacobian there."""
        fixed, moved = x.split(self.sizes, 1)
        totals = [torch.zeros_like(moved), torch.zeros_like(fixed)]  # a half each: rows are summed once
        for i, network in enumerate(self.networks):
            moved, logs = self.monotone.forward(moved, network(_joined(fixed, context)))
            totals[i % 2] = totals[i % 2] + logs
            fixed, moved = moved, fixed
        return self._restored(fixed, moved), totals[0].sum(1) + totals[1].sum(1)

    def inverse(self, z: Rows, context: Context | None = None) -> Rows:
        """The row of which each is the image."""
        odd = len(self.networks) % 2 == 1
        first, second = z.split(self.sizes, 1)
        fixed, moved = (second, first) if odd else (first, second)
        for network in reversed(self.networks):
            fixed, moved = moved, fixed
            moved = self.monotone.inverse(moved, network(_joined(fixed, context)))
        return torch.cat((fixed, moved), 1)

    def _restored(self, fixed: Tensor, moved: Tensor) -> Tensor:
        odd = len(self.networks) % 2 == 1
        return torch.cat((moved, fixed) if odd else (fixed, moved), 1)


def _joined(fixed: Tensor, context: Tensor | None) -> Tensor:
    return fixed if context is None else torch.cat((fixed, context), 1)


def standard_normal(z: Float[Tensor, " batch *features"]) -> PerRow:
    """Log N(z; 0, I) of each row, in nats."""
    flat = z.flatten(1)
    return -0.5 * (flat.square().sum(1) + flat.shape[1] * math.log(2 * math.pi))


def in_pieces(function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """A function of rows, a piece of them at a time where no gradient is asked and there are many."""
    if torch.is_grad_enabled() or len(rows[0]) <= PIECE:
        return function(*rows)
    return torch.cat([function(*piece) for piece in zip(*(x.split(PIECE) for x in rows), strict=True)])
