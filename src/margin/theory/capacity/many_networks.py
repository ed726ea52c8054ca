"""Hundreds of small networks trained in one loop: of several widths, seeds and training sets, side by side.

Each is one hidden layer of ReLUs, padded with zeros to the widest: a unit with zeros in and out stays so
under descent and Adam, so each network is what it would be alone. Their matrices are multiplied in one batch.
Belkin et al. (2019) and Nakkiran et al. (2020) train them one after another.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.math.seeds import mix

PURPOSE = 83
"""What is drawn for, among the seeds."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""``(outputs, targets) -> the loss of each network``, of axes (networks, examples, outputs)."""


class Networks(NamedTuple):
    """The weights of the networks, each padded to the widest.

    Args:
        hidden: W, in the units' columns.
        offset: b.
        output: V.
        bias: c.
    """

    hidden: Float[Tensor, "networks dim width"]
    offset: Float[Tensor, "networks 1 width"]
    output: Float[Tensor, "networks width outputs"]
    bias: Float[Tensor, "networks 1 outputs"]

    def __call__(self, x: Float[Tensor, "..."]) -> Float[Tensor, "networks examples outputs"]:
        """The outputs relu(x W + b) V + c at examples that all share, or that each has of its own."""
        if x.ndim == 2:  # one product for all
            dim, (count, _, width) = x.shape[1], self.hidden.shape
            found = x @ self.hidden.permute(1, 0, 2).reshape(dim, count * width)
            before = found.reshape(len(x), count, width).transpose(0, 1) + self.offset
        else:
            before = torch.baddbmm(self.offset, x, self.hidden)
        return torch.baddbmm(self.bias, before.relu(), self.output)

    @property
    def parameters(self) -> int:
        """Numbers of the widest."""
        return sum(part[0].numel() for part in self)


def started(dim: int, widths: Sequence[int], seeds: Sequence[int], outputs: int) -> Networks:
    """Networks as torch.nn.Linear draws them, each by its own seed, padded with zeros.

    Args:
        dim: Numbers of an input.
        widths: Hidden units of each network, at least 1.
        seeds: Of each network.
        outputs: Numbers of an output.

    Raises:
        ValueError: The lists disagree, or a width is below 1.
    """
    if len(widths) != len(seeds) or not widths or min(widths) < 1:
        raise ValueError(f"each network has a width of at least 1 and a seed: got {widths} and {seeds}")
    most, count = max(widths), len(widths)
    found = Networks(
        torch.zeros(count, dim, most),
        torch.zeros(count, 1, most),
        torch.zeros(count, most, outputs),
        torch.zeros(count, 1, outputs),
    )
    for m, (width, seed) in enumerate(zip(widths, seeds, strict=True)):
        generator = Generator().manual_seed(mix(seed, PURPOSE, width))
        for part, rows, fan in (
            (found.hidden[m, :, :width], dim, dim),
            (found.offset[m, :, :width], 1, dim),
            (found.output[m, :width], width, width),
            (found.bias[m], 1, width),
        ):
            drawn = torch.rand(rows, part.shape[1], generator=generator)
            part.copy_((2 * drawn - 1) / math.sqrt(fan))
    return found


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over examples of |output - target|^2, of each network."""
    return (outputs - targets).square().sum(-1).mean(-1)


# eight parameters: those of the training
def descend(
    networks: Networks,
    x: Float[Tensor, "..."],
    targets: Float[Tensor, "..."],
    rows: Sequence[int] | None = None,
    *,
    steps: int,
    batch_size: int,
    lr: float = 1e-3,
    loss: Loss = squared,
) -> Iterator[tuple[int, Networks]]:
    """Train all networks by Adam on batches drawn with replacement; yields after each step.

    Args:
        networks: Where they begin; left as they are.
        x: The examples, (pool, dim), or those of each network, (networks, pool, dim).
        targets: Of each example, (pool, outputs), or of each network too, (networks, pool, outputs).
        rows: How many of the first examples each network has; None: all.
        steps: Of Adam.
        batch_size: Examples a step, drawn by the step alone.
        lr: Learning rate.
        loss: Of each network; what is differentiated is the sum.

    Yields:
        The step, counted from 1, and the networks after it, which the next step overwrites.
    """
    parts = [part.clone().requires_grad_() for part in networks]
    now = Networks(*parts)
    optimizer = torch.optim.Adam(parts, lr=lr, fused=True)
    counts = None if rows is None or len(set(rows)) == 1 else torch.tensor(rows)
    few = x.shape[-2] if rows is None else rows[0]
    for step in range(steps):
        u = torch.rand(batch_size, generator=Generator().manual_seed(mix(step, PURPOSE)), dtype=torch.float64)
        picked = (u * few).long() if counts is None else (u * counts.unsqueeze(1)).long()
        optimizer.zero_grad()
        with torch.enable_grad():
            loss(now(_of(x, picked)), _of(targets, picked)).sum().backward()
        optimizer.step()
        yield step + 1, Networks(*(part.detach() for part in parts))


def _of(pool: Tensor, picked: Int[Tensor, "..."]) -> Tensor:
    """The picked rows of what all networks share, or of what each has of its own."""
    if pool.ndim == 2:
        return pool[picked]
    if picked.ndim == 1:
        return pool[:, picked]
    return pool.gather(1, picked.unsqueeze(-1).expand(-1, -1, pool.shape[-1]))
