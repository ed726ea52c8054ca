"""Batches of examples of similar length, as a function of the step, and the padding that batches cost.

Every pass is shuffled and cut into pools; each pool is sorted by length and cut into batches, whose order is
shuffled again. Within a pool a batch holds neighbors in length, between pools chance decides.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.core.types import Batch, Examples
from margin.data.examples import ALL, Share, Shuffled
from margin.math.seeds import mix

POOL = 32
"""Batches a pool, at most."""

POOLS = 2
"""Pools a pass, at least: with one alone the batches of every pass would be the same."""


class BySimilarLength:
    """Shuffled batches in which examples of similar length come together.

    A batch is a function of (examples, batch size, seed, step), every example comes once a pass, and a
    remainder of one joins another batch, as with :class:`margin.data.examples.Shuffled`. With one batch a
    pass, the order is the data's own.

    Args:
        examples: What is cut into batches.
        lengths: The length of each example.
        batch_size: Examples a batch.
        seed: Seed of the orders and of what ``take`` draws.
        share: What this process takes of each batch.

    Raises:
        ValueError: There is not one length an example, or as :class:`margin.data.examples.Shuffled`.
    """

    def __init__(
        self,
        examples: Examples,
        lengths: Int[Tensor, " examples"],
        batch_size: int,
        *,
        seed: int,
        share: Share = ALL,
    ) -> None:
        plain = Shuffled(examples, batch_size, seed=seed, share=share)
        if len(lengths) != len(examples):
            raise ValueError(
                f"lengths must be one an example: got {len(lengths)} lengths, {len(examples)} examples"
            )
        self.examples = examples
        self.lengths = lengths
        self.batch_size = plain.batch_size
        self.per_epoch = plain.per_epoch
        self.seed = seed
        self.share = share
        self._batches: tuple[int, Sequence[Tensor]] | None = None

    def __call__(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""
        epoch, position = divmod(step, self.per_epoch)
        if self._batches is None or self._batches[0] != epoch:
            self._batches = (epoch, self.indices(epoch))
        generator = Generator().manual_seed(mix(self.seed, 2, self.share.rank, step))
        return self.share.take(self.examples, self._batches[1][position], generator)

    def indices(self, epoch: int) -> list[Int[Tensor, " _batch"]]:
        """The examples of each batch of a pass."""
        count = len(self.examples)
        if self.per_epoch == 1:
            return [torch.arange(count)]
        generator = Generator().manual_seed(mix(self.seed, 1, epoch))
        order = torch.randperm(count, generator=generator)
        pool = min(POOL, -(-self.per_epoch // POOLS)) * self.batch_size
        near = torch.cat([part[self.lengths[part].argsort(stable=True)] for part in order.split(pool)])
        cuts = torch.arange(1, self.per_epoch) * self.batch_size
        batches = near.tensor_split(cuts)
        return [batches[k] for k in torch.randperm(self.per_epoch, generator=generator)]


def padding(batches: Sequence[Int[Tensor, " _batch"]], *lengths: Int[Tensor, " examples"]) -> float:
    """The share of padding among all steps of padded batches: 1 - sum of lengths / sum of size times longest.

    Args:
        batches: The examples of each batch.
        lengths: The length of each example; of pairs, of each side, which is padded on its own.

    Returns:
        A share in [0, 1); 0 where there is no step at all.
    """
    held = sum(len(batch) * int(side[batch].max()) for batch in batches for side in lengths)
    true = sum(int(side[batch].sum()) for batch in batches for side in lengths)
    return 1 - true / held if held else 0.0


def padding_line(
    lengths: Int[Tensor, " examples"], *sides: Int[Tensor, " examples"], batch_size: int = 32
) -> str:
    """What padding costs in batches of one size, shuffled and by similar length, in words.

    Args:
        lengths: What similar length goes by.
        sides: What is padded; the lengths themselves if not given.
        batch_size: Examples a batch.
    """
    size = min(batch_size, len(lengths))
    plain = torch.randperm(len(lengths), generator=Generator().manual_seed(0)).split(size)
    near = BySimilarLength(_Count(len(lengths)), lengths, size, seed=0).indices(0)
    shuffled, similar = (padding(batches, *(sides or (lengths,))) for batches in (plain, near))
    return f"{shuffled:.0%} of the steps in shuffled batches of {size}, {similar:.0%} by similar length"


class _Count:
    """Examples of which nothing but their number is asked."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def take(self, index: Tensor, generator: Generator) -> Batch:
        """The indices themselves."""
        return Batch((index,))
