r"""Skip-gram with negative sampling (Mikolov, Sutskever, Chen, Corrado and Dean, 2013).

.. math:: \ell(w, v) = -\log \sigma(x_w \cdot y_v) - k\, \mathbf E_{u \sim q} \log \sigma(-x_w \cdot y_u),
    \qquad q \propto \mathrm{count}^{3/4}

The window of each word is drawn from 1 .. R and frequent words are left out at random before windows are
laid. The words of a tile of the text are each other's contexts, and share a few words of noise whose losses
are weighted so that their expectation is that of k words a pair: all scores of a tile are one matrix product.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import NonFiniteError, State, Step
from margin.nn.preprocessed import core_of
from margin.text.embeddings.counts import Words, check_window

BLOCK = 1024
"""Words of the text an example has at most."""

TILE = 48
"""Words that are scored together."""

MOVE = 4.0
"""Learning rate times pairs by which a vector is moved at once, at most: the sum of many steps, each as if it
were the first, has no bound."""

POWER = 0.75
"""Of the counts, to which the noise is proportional."""

LAST_RATE = 0.004
"""The learning rate at the end, in parts of the first, as in word2vec (0.0001 of 0.025)."""


def check_sampling(negatives: int, subsample: float, noise: int) -> None:
    """Refuse options under which nothing is learned.

    Raises:
        ValueError: One is out of range.
    """
    if negatives < 1:
        raise ValueError(f"negatives must be at least 1, else vectors only grow: got {negatives}")
    if subsample < 0:
        raise ValueError(f"subsample must be at least 0: got {subsample}")
    if noise < 1:
        raise ValueError(f"noise must be at least 1 word a tile: got {noise}")


def kept_share(counts: Float[Tensor, " words"], subsample: float) -> Float[Tensor, " words"]:
    r"""The probability with which an occurrence of each word is kept, min(1, sqrt(t/f) + t/f).

    That is word2vec's code; the paper prints sqrt(t/f). 1 for t = 0.

    Args:
        counts: Of the words in the text.
        subsample: t, the frequency above which a word is left out at times.

    Reference: Mikolov et al. 2013, Equation 5.
    """
    if subsample == 0:
        return torch.ones_like(counts)
    ratio = subsample * counts.sum() / counts.clamp(min=1)
    return (ratio.sqrt() + ratio).clamp(max=1)


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Examples of successive words, drawn windows and noise: inputs ``(words, places, noise)``.

    ``places`` are those of the words that are kept, in tiles, ``noise`` words drawn for each tile. The weight
    of term (i, j) of a tile is 1 where word j is in the window of word i, and of noise the number of words in
    its window, times k over the words of noise.

    Args:
        words: The text.
        window: R.
        negatives: k.
        kept: The probability with which an occurrence of each word is kept.
        law: The distribution function of the noise, up to a factor.
        noise: Words of noise a tile.
    """

    words: Words
    window: int
    negatives: int
    kept: Float[Tensor, " vocab"]
    law: Float[Tensor, " vocab"]
    noise: int

    @property
    def block(self) -> int:
        """Words an example: 1,024, or all there are."""
        return min(BLOCK, len(self.words.ids))

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        return 16

    def __len__(self) -> int:
        return -(-len(self.words.ids) // self.block)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``; what is kept, windows and noise are drawn."""
        at = (index * self.block)[:, None] + torch.arange(self.block)
        present = at < len(self.words.ids)
        at = at.clamp(max=len(self.words.ids) - 1)
        words = self.words.ids[at]
        kept = (torch.rand(words.shape, generator=generator) < self.kept[words]) & present
        places, real = tiled(kept)
        reach = torch.randint(1, self.window + 1, (*places.shape, 1), generator=generator)
        near = (in_reach() <= reach) & real.unsqueeze(-1) & real.unsqueeze(-2)
        if self.words.sentence is not None:
            own = self.words.sentence[at].gather(1, places.flatten(1)).view_as(places)
            near &= own.unsqueeze(-1) == own.unsqueeze(-2)
        positive = near.float()
        count = positive.sum(-1, keepdim=True) * (self.negatives / self.noise)
        drawn = torch.rand(*places.shape[:2], self.noise, generator=generator)
        noise = torch.searchsorted(self.law, drawn * self.law[-1], right=True).clamp(max=len(self.law) - 1)
        weight = torch.cat((positive, count.expand(*places.shape, self.noise)), -1)
        return Batch((words, places, noise), weight=weight)


def in_reach() -> Int[Tensor, "tile tile"]:
    """The distance of two places of a tile; of one to itself further than any window."""
    place = torch.arange(TILE)
    return (place[:, None] - place).abs() + (place[:, None] == place) * 2**30


def tiled(kept: Tensor) -> tuple[Int[Tensor, "batch tiles tile"], Tensor]:
    """The places that are kept of each example, in tiles filled up with place 0, and which are real."""
    count = kept.sum(1)
    size = max(1, -(-int(count.max()) // TILE)) * TILE
    example, place = kept.nonzero(as_tuple=True)
    first = count.cumsum(0) - count
    places = place.new_zeros(len(kept), size)
    places[example, torch.arange(len(place)) - first[example]] = place
    real = torch.arange(size) < count[:, None]
    return places.view(len(kept), -1, TILE), real.view(len(kept), -1, TILE)


def windows(split: Any, *, window: int, negatives: int, subsample: float, noise: int) -> Windows:
    """A part of the data as words in windows, with noise by the part's own counts.

    Raises:
        ValueError: The part is no text, or has fewer than two words.
    """
    words = Words.of(split)
    if len(words.ids) < 2:
        raise ValueError(f"skip-gram needs at least two words: got {len(words.ids)}")
    counts = words.ids.bincount().double()
    law = counts.pow(POWER).cumsum(0).float()
    kept = kept_share(counts, subsample).float()
    return Windows(words, check_window(window), negatives, kept, law, noise)


class SkipGram(nn.Module):
    r"""Two vectors a word: x_w of a word, y_v of a word in its window; their product scores the pair.

    At the optimum over all functions x . y = pmi(w, v) - log k, where the noise has the frequencies of the
    words; that of a power 3/4 shifts it by a number a context word.

    Args:
        vocab_size: V, words of the vocabulary.
        dim: Numbers a vector.
        window: R, words on either side at most; how many is drawn anew for each word.
        negatives: k, words of noise a pair counts.
        subsample: t, the frequency above which occurrences are left out at random; 0 leaves none out.
        noise: Words of noise drawn for the 48 words of a tile.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Mikolov, Sutskever, Chen, Corrado and Dean 2013, Equations 4 and 5; Levy and Goldberg 2014,
        Section 3.1 (optimum).
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        dim: int = 100,
        window: int = 5,
        negatives: int = 5,
        subsample: float = 1e-3,
        noise: int = 32,
    ) -> None:
        super().__init__()
        if check_window(window) >= TILE:
            raise ValueError(f"window must be less than {TILE} words: got {window}")
        check_sampling(negatives, subsample, noise)
        self.negatives = negatives
        self.words = nn.Embedding(vocab_size, dim)
        self.contexts = nn.Embedding(vocab_size, dim)
        nn.init.uniform_(self.words.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.contexts.weight)

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        places: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Float[Tensor, "batch time dim"]:
        """The vectors of words; what training draws beside them plays no part."""
        return self.words(tokens)

    def pairs(
        self, tokens: Int[Tensor, "batch time"], places: Tensor, noise: Tensor
    ) -> Float[Tensor, "batch tiles tile others"]:
        """The scores x . y of each word of a tile with every word of the tile, then with its noise."""
        kept = tokens.gather(1, places.flatten(1)).view_as(places)
        return self.words(kept) @ self.contexts(torch.cat((kept, noise), -1)).transpose(-1, -2)


def margins(scores: Float[Tensor, "*batch tile others"]) -> Float[Tensor, "*batch tile others"]:
    """The scores with the sign that they should have: as they are of pairs, reversed of noise."""
    tile = scores.shape[-2]
    return torch.cat((scores[..., :tile], -scores[..., tile:]), -1)


def negative_sampling(
    model: nn.Module, batch: Batch, generator: Generator
) -> Float[Tensor, "batch tiles tile others"]:
    """The terms (1 + k) log(1 + exp(-margin)), whose weighted mean is the loss of a pair, in nats.

    Reference: Mikolov et al. 2013, Equation 4.
    """
    core: Any = core_of(model)
    return (1 + core.negatives) * F.softplus(-margins(core.pairs(*batch.inputs)))


def skip_gram(total_steps: int, *, lr: float = 0.05) -> Step:
    """Stochastic gradient descent on the vectors of the words of some tiles, one block after another.

    The gradients of their pairs are summed, as word2vec moves once a pair; the rate falls linearly.

    Args:
        total_steps: Of the training.
        lr: Learning rate at the beginning, of a pair.

    Raises:
        ValueError: The rate is not positive.
    """
    if not lr > 0:
        raise ValueError(f"lr must be positive: got {lr}")

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        core: Any = state.core
        rate = lr * max(LAST_RATE, 1 - state.step / max(1, total_steps))
        tables = core.words.weight, core.contexts.weight
        weight = batch.weight
        if weight is None:
            raise ValueError("skip-gram needs weighted pairs: got none")
        loss = torch.zeros((), dtype=torch.float64)
        for k in range(len(weight)):
            tokens, places, noise = (x[k] for x in batch.inputs)
            kept = tokens[places]
            loss += moved(tables, kept, torch.cat((kept, noise), -1), weight[k], rate)
        mean = loss.item() * (1 + core.negatives) / max(float(weight.sum()), 1.0)
        if not mean < float("inf"):
            raise NonFiniteError(f"loss {mean:g} at step {state.step}, lr {rate:g}: set --step.lr lower")
        return {"loss": mean}

    return step


def moved(
    tables: tuple[Tensor, Tensor], words: Tensor, others: Tensor, weight: Tensor, rate: float
) -> Tensor:
    """Move the vectors of the words of some tiles along the gradient of their summed loss, which is returned.

    Where rate times pairs of a word exceeds :data:`MOVE`, its gradient is scaled down to that.

    Args:
        tables: x and y of all words, changed in place.
        words: (tiles, tile).
        others: (tiles, others): the same and the noise.
        weight: (tiles, tile, others).
        rate: Learning rate of a pair.
    """
    tile, dim = words.shape[1], tables[0].shape[1]
    x, y = tables[0][words], tables[1][others]
    scores = torch.bmm(x, y.transpose(1, 2))
    scores[..., :tile].neg_()
    losses = F.softplus(scores)  # of -margin; its derivative is 1 - exp(-loss)
    slopes = torch.expm1(-losses).neg_().mul_(weight)
    slopes[..., :tile].neg_()
    for table, index, count, change in (
        (tables[0], words, weight.sum(2), torch.bmm(slopes, y)),
        (tables[1], others, weight.sum(1), torch.bmm(slopes.transpose(1, 2), x)),
    ):
        at = index.reshape(-1)
        pairs = count.new_zeros(len(table)).index_add_(0, at, count.reshape(-1))
        share = (MOVE / rate / pairs[at]).clamp_(max=1)
        table.index_add_(0, at, change.reshape(-1, dim).mul_(share[:, None]), alpha=-rate)
    return torch.dot(losses.flatten(), weight.flatten()).double()
