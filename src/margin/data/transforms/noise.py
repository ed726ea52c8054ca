"""Noise as augmentation (Sietsma and Dow, 1991): inputs plus a Gaussian draw, or times a random factor."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from margin.core.types import Domain


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """The map x -> x + N(0, (strength spread)^2) coordinate by coordinate, put back into the domain.

    Args:
        strength: Standard deviation in units of ``spread``.
        spread: A number, or one for each coordinate; broadcasts against one input.
        domain: Where an input may lie; None sets no limit beyond that of an integer type.
        most: Largest deviation in units of the standard deviation; inf cuts nothing off.
    """

    strength: float
    spread: float | Tensor = 1.0
    domain: Domain | None = None
    most: float = float("inf")

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        """Each coordinate with a draw of its own."""
        real = real_of(x)
        drawn = torch.randn(x.shape, generator=generator, dtype=real.dtype, device=generator.device)
        spread = self.spread.to(real) if isinstance(self.spread, Tensor) else self.spread
        changed = real + self.strength * spread * drawn.clamp_(-self.most, self.most).to(x.device)
        return like(x, changed if self.domain is None else self.domain.clamp(changed))


@dataclass(frozen=True, slots=True)
class Gain:
    """The map x -> s x, s uniform in [1 - strength, 1 + strength], one factor an example.

    Args:
        strength: In (0, 1).
    """

    strength: float

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        """Each example with a factor of its own."""
        factor = uniform(len(x), 1 - self.strength, 1 + self.strength, x, generator)
        return like(x, real_of(x) * factor.reshape(-1, *[1] * (x.ndim - 1)))


def uniform(count: int, low: float, high: float, x: Tensor, generator: Generator) -> Tensor:
    """Uniform draws in [low, high), in the real type and on the device of x."""
    drawn = torch.rand(count, generator=generator, device=generator.device, dtype=real_of(x[:0]).dtype)
    return (low + (high - low) * drawn).to(x.device)


def real_of(x: Tensor) -> Tensor:
    """A tensor in a real type: as it is, integers in float32."""
    return x if x.is_floating_point() else x.float()


def like(x: Tensor, changed: Tensor) -> Tensor:
    """Changed values in the type of x; in an integer type rounded, and kept within its range."""
    if x.is_floating_point():
        return changed
    info = torch.iinfo(x.dtype)
    return changed.round().clamp(info.min, info.max).to(x.dtype)
