r"""Curriculum learning (Bengio, Louradour, Collobert and Weston, 2009): easy examples first.

Examples are ordered by difficulty; at step t batches are drawn from the easiest share g(t) of them, and from
all once g reaches 1. How g grows is the pacing (Hacohen and Weinshall, 2019).
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.types import Batch, Examples
from margin.data.examples import ALL, Share, Shuffled
from margin.math.seeds import mix

Growth = Literal["uniform", "linear", "root", "step", "exponential"]


@dataclass(frozen=True, slots=True)
class Pacing:
    """The share g(t) of the easiest examples that are drawn from, non-decreasing, 1 from step ``steps`` on.

    With r = t / steps and b the share at the start: linear b + (1 - b) r; root sqrt(b^2 + (1 - b^2) r);
    exponential b^(1 - r); step b; uniform 1.

    Args:
        growth: Which of these.
        start: b in (0, 1].
        steps: Steps until all examples are drawn from, >= 0.

    Raises:
        ValueError: One is out of range.

    Reference: Hacohen and Weinshall 2019, "On the power of curriculum learning in training deep networks",
    Section 2 (exponential and single-step pacing; the former here without its stairs); Platanios et al. 2019,
    "Competence-based curriculum learning", Section 3 (linear, root).
    """

    growth: Growth = "linear"
    start: float = 0.2
    steps: float = 0.0

    def __post_init__(self) -> None:
        known = ("uniform", "linear", "root", "step", "exponential")
        if self.growth not in known:
            raise ValueError(f"pacing must be one of {', '.join(known)}: got {self.growth!r}")
        if not 0 < self.start <= 1:
            raise ValueError(f"the share at the start must be in (0, 1]: got {self.start}")
        if not 0 <= self.steps < math.inf:
            raise ValueError(f"steps of a pacing must be at least 0 and finite: got {self.steps}")

    def __call__(self, step: int) -> float:
        """g(step), step counted from 0."""
        if self.growth == "uniform" or step >= self.steps:
            return 1.0
        r, b = step / self.steps, self.start
        if self.growth == "linear":
            return b + (1 - b) * r
        if self.growth == "root":
            return math.sqrt(b**2 + (1 - b**2) * r)
        return float(b ** (1 - r)) if self.growth == "exponential" else b


class Paced:
    """Batches of the easiest share of the examples, as a function of the step.

    While g(t) < 1, a batch is drawn without replacement from the easiest ceil(g n) examples, or from as many
    as a batch has. From then on batches are those of :class:`margin.data.examples.Shuffled`, to the bit.
    An epoch stays as many steps as it takes to see all examples.

    Args:
        examples: What is cut into batches.
        scores: The difficulty of each; equal ones are taken in the data's order.
        batch_size: Examples a batch.
        pacing: g.
        seed: Seed of the orders and of what ``take`` draws.
        share: What this process takes of each batch.

    Raises:
        ValueError: There is not one finite score an example.
    """

    def __init__(
        self,
        examples: Examples,
        scores: Float[Tensor, " n"],
        batch_size: int,
        pacing: Pacing,
        *,
        seed: int,
        share: Share = ALL,
    ) -> None:
        self.plain = Shuffled(examples, batch_size, seed=seed, share=share)
        if scores.shape != (len(examples),):
            raise ValueError(
                f"scores must be one an example, ({len(examples)},): got shape {tuple(scores.shape)}"
            )
        if not bool(scores.isfinite().all()):
            row = int((~scores.isfinite()).int().argmax())
            raise ValueError(f"every score must be finite: got {scores[row].item()} at index {row}")
        self.order = scores.argsort(stable=True)
        self.pacing = pacing
        self.batch_size, self.per_epoch = self.plain.batch_size, self.plain.per_epoch

    def pool(self, step: int) -> Int[Tensor, " easiest"]:
        """The examples from which the batch of ``step`` is drawn, the easiest first."""
        n = len(self.order)
        count = math.ceil(self.pacing(step) * n - 1e-9)  # 0.2 * 15 is a little more than 3
        return self.order[: max(count, self.batch_size)]

    def __call__(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""
        if self.pacing(step) >= 1:
            return self.plain(step)
        pool, share = self.pool(step), self.plain.share
        generator = Generator().manual_seed(mix(self.plain.seed, 4, step))
        index = pool[torch.randperm(len(pool), generator=generator)[: self.batch_size]]
        own = Generator().manual_seed(mix(self.plain.seed, 2, share.rank, step))
        return share.take(self.plain.examples, index, own)


# what a training says of its pacing comes as words
def paced(
    examples: Examples,
    scores: Float[Tensor, " n"],
    batch_size: int,
    *,
    pacing: Growth = "linear",
    start: float = 0.2,
    end: float = 1.0,
    total: int = 0,
    epochs: int = 0,
    seed: int = 0,
    share: Share = ALL,
) -> Paced:
    """Batches of a training that begins with the easy examples.

    Args:
        examples: What is cut into batches.
        scores: The difficulty of each, as its loss under another model.
        batch_size: Examples a batch.
        pacing: How the share of the examples that are drawn from grows.
        start: That share at the start, in (0, 1].
        end: Share of the training, in (0, 1], after which all examples are drawn from.
        total: Steps of the training; 0 takes ``epochs``.
        epochs: Epochs of the training, where ``total`` is 0.
        seed: Seed of the orders and of what ``take`` draws.
        share: What this process takes of each batch.

    Raises:
        ValueError: An option is out of range, or there is not one finite score an example.

    Reference: Hacohen and Weinshall 2019, Section 2.
    """
    if not 0 < end <= 1:
        raise ValueError(f"end must be a share of the training, in (0, 1]: got {end}")
    steps = total or epochs * Shuffled(examples, batch_size, seed=seed).per_epoch
    return Paced(examples, scores, batch_size, Pacing(pacing, start, end * steps), seed=seed, share=share)


def within_classes(scores: Float[Tensor, " n"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The share of the examples of its class that are easier, so that all classes come in at one rate.

    Without it the easiest examples may be of one class alone.

    Reference: Hacohen and Weinshall 2019, Section 2 (each part keeps the classes balanced).
    """
    shares = torch.zeros_like(scores)
    for label in labels.unique():
        members = (labels == label).nonzero()[:, 0]
        ranks = scores[members].argsort(stable=True).argsort()
        shares[members] = ranks.to(scores) / len(members)
    return shares
