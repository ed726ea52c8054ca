"""Importance sampling of examples (Zhao and Zhang, 2015): some are drawn more often, and count less."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.types import Batch, Examples
from margin.data.examples import ALL, Share, Shuffled
from margin.math.seeds import mix


@dataclass(frozen=True, slots=True, eq=False)
class Rated:
    """Examples that carry one number more as their last input.

    Args:
        examples: Those that are rated.
        ratio: The number of each.
    """

    examples: Examples
    ratio: Float[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.examples)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``, with their numbers."""
        batch = self.examples.take(index, generator)
        return batch._replace(inputs=(*batch.inputs, self.ratio[index]))


class Sampled:
    """Batches drawn with replacement, example i with probability p_i, as a function of the step.

    The last input of a batch is the ratio 1 / (n p_i), by which
    :func:`margin.engine.objectives.importance_weighted` multiplies the loss: the mean of the products over a
    batch has the mean loss over all examples as its expectation, and so has its gradient.

    Args:
        examples: What is drawn; all of one weight.
        probabilities: p, positive numbers; they are divided by their sum.
        batch_size: Examples a batch.
        seed: Seed of the draws.
        share: What this process takes of each batch.

    Raises:
        ValueError: There is not one positive number an example; what is never drawn cannot be made up for.

    Reference: Zhao and Zhang 2015, "Stochastic optimization with importance sampling for regularized loss
    minimization", Section 2.
    """

    def __init__(
        self,
        examples: Examples,
        probabilities: Float[Tensor, " n"],
        batch_size: int,
        *,
        seed: int,
        share: Share = ALL,
    ) -> None:
        plain = Shuffled(examples, batch_size, seed=seed, share=share)
        p, count = probabilities.double(), len(examples)
        if p.shape != (count,) or not bool((p.isfinite() & (p > 0)).all()):
            least = p.min().item() if p.numel() else float("nan")
            raise ValueError(
                f"probabilities must be positive and finite, one an example, ({count},): "
                f"got shape {tuple(p.shape)}, least {least:g}"
            )
        self.p = p / p.sum()
        self.examples = Rated(examples, (1 / (count * self.p)).to(probabilities.dtype))
        self.batch_size, self.per_epoch = plain.batch_size, plain.per_epoch
        self.seed, self.share = seed, share

    def __call__(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""
        generator = Generator().manual_seed(mix(self.seed, 5, step))
        points = torch.rand(self.batch_size, generator=generator, dtype=torch.float64)
        # torch.multinomial would refuse more than 2^24 examples
        index = torch.searchsorted(self.p.cumsum(0), points).clamp(max=len(self.p) - 1)
        own = Generator().manual_seed(mix(self.seed, 2, self.share.rank, step))
        return self.share.take(self.examples, index, own)
