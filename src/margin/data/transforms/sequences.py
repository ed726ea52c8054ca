"""Changes of sequences along their time axis (Park et al., 2019): moved in time, a stretch left out."""

from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Generator, Tensor

from margin.data.transforms.images import Border, translated

Sequences = Shaped[Tensor, "batch time *features"]


@dataclass(frozen=True, slots=True)
class TimeShift:
    """Translation in time by whole steps, uniform in {-reach .. reach}.

    Args:
        reach: Steps at most.
        border: What comes in from outside.
    """

    reach: int
    border: Border

    def __call__(self, x: Sequences, generator: Generator) -> Sequences:
        """Each sequence with a draw of its own."""
        drawn = torch.randint(2 * self.reach + 1, (len(x),), generator=generator, device=generator.device)
        later = (drawn - self.reach).to(x.device)
        images = x.reshape(len(x), 1, x.shape[1], -1)
        moved = translated(images, later, torch.zeros_like(later), self.border, reach=(self.reach, 0))
        return moved.reshape(x.shape)


@dataclass(frozen=True, slots=True)
class TimeMask:
    """A stretch of background, its length uniform in {0 .. share time}, somewhere in the sequence.

    Args:
        share: Of the time axis, at most.
        background: What the stretch is filled with.

    Reference: Park et al. 2019, "SpecAugment", Section 2 (time masking).
    """

    share: float
    background: float = 0.0

    def __call__(self, x: Sequences, generator: Generator) -> Sequences:
        """Each sequence with a draw of its own."""
        time = x.shape[1]
        longest = int(self.share * time + 1e-9)
        drawn = torch.rand(2, len(x), 1, generator=generator, device=generator.device).to(x.device)
        length = (drawn[0] * (longest + 1)).long()
        start = (drawn[1] * (time - length + 1)).long()
        steps = torch.arange(time, device=x.device)
        left_out = (steps >= start) & (steps < start + length)
        return x.masked_fill(left_out.reshape(len(x), time, *[1] * (x.ndim - 2)), self.background)
