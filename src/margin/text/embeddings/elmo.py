r"""ELMo (Peters et al., 2018): words from their characters, read forward and backward, layers mixed.

.. math:: \mathrm{ELMo}_t = \gamma \sum_{j=0}^{L} s_j h_{t,j}, \qquad
    h_{t,j} = [\overrightarrow h_{t,j};\, \overleftarrow h_{t,j}], \quad h_{t,0} = [x_t; x_t],
    \quad s = \mathrm{softmax}(w)

Of 2L + 1 different vectors the two directions of a layer share a weight: there are L + 1 of them. A forward
and a backward language model of L layers share the word vectors x and the softmax.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.tasks import term_loss
from margin.core.types import Batch
from margin.data.formats.text.tokenizers import SPECIAL
from margin.nn.preprocessed import core_of
from margin.nn.recurrence import (
    Lengths,
    check_dropout,
    check_layers,
    reversed_in_time,
    without_padding,
)

PADDING, BEGIN, END = 0, 257, 258
"""What pads a word, begins it and ends it, beside the bytes, which are 1 .. 256."""

LONGEST = 50
"""Characters of a word that are read at most, its begin and its end among them."""


def spelled(words: Sequence[str]) -> Int[Tensor, "words characters"]:
    """The UTF-8 bytes of any strings between a begin and an end, padded; long ones are cut."""
    rows = [[BEGIN, *(byte + 1 for byte in word.encode()[: LONGEST - 2]), END] for word in words]
    made = torch.zeros(len(rows), max(map(len, rows), default=0), dtype=torch.int64)
    for made_row, row in zip(made, rows, strict=True):
        made_row[: len(row)] = torch.tensor(row)
    return made


class CharacterWords(nn.Module):
    """A vector of any string: convolutions over its bytes, the largest value of each filter, an affine map.

    Args:
        width: Numbers of the vector.
        characters: Numbers of a byte's vector.
        filters: Filters of each length.
        lengths: Bytes that a filter reads.

    Reference:
        Kim, Jernite, Sontag and Rush 2016, Section 2.2; Peters et al. 2018, Section 3.4.
    """

    def __init__(self, width: int, *, characters: int, filters: int, lengths: Sequence[int]) -> None:
        super().__init__()
        self.lengths = tuple(lengths)
        self.bytes = nn.Embedding(END + 1, characters, padding_idx=PADDING)
        self.filters = nn.ModuleList([nn.Conv1d(characters, filters, length) for length in lengths])
        self.project = nn.Linear(filters * len(lengths), width)

    def forward(self, spelling: Int[Tensor, "words characters"]) -> Float[Tensor, "words width"]:
        """The vector of each spelling; what pads it plays no part."""
        x = self.bytes(spelling).transpose(1, 2)
        beyond = (spelling == PADDING)[:, None]
        found = []
        for layer, length in zip(self.filters, self.lengths, strict=True):
            y = layer(F.pad(x, (0, length - 1))).relu()
            found.append(y.masked_fill(beyond, 0).amax(2))  # relu is at least 0
        return self.project(torch.cat(found, 1))


class ELMo(nn.Module):
    """Forward and backward LSTMs on words from their characters: L + 1 pairs of vectors of each word.

    Args:
        vocabulary: The words of the training text, in the order of their tokens.
        width: Numbers of a word's vector, and of each direction's state.
        layers: L, layers of each direction.
        characters: Numbers of a byte's vector.
        filters: Filters of each length.
        lengths: Bytes that a filter reads.
        dropout: Probability with which a number between two layers is set to 0 in training.

    Raises:
        ValueError: A size is below 1, the dropout is not in [0, 1), or the tokens are single characters.

    Reference:
        Peters et al. 2018, Sections 3.1 and 3.2, with an affine map in place of highway layers.
    """

    spelling: Tensor

    def __init__(
        self,
        vocabulary: tuple[str, ...],
        *,
        width: int = 128,
        layers: int = 2,
        characters: int = 16,
        filters: int = 32,
        lengths: tuple[int, ...] = (1, 2, 3, 4),
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_layers(width, layers, dropout)
        if not lengths or min((characters, filters, *lengths)) < 1:
            raise ValueError(
                f"characters, filters and lengths must be at least 1: got {characters}, {filters}, {lengths}"
            )
        if not any(len(word) > 1 for word in vocabulary if word not in SPECIAL):
            raise ValueError(
                f"tokens must be words, whose letters are read: got {len(vocabulary):,} characters; set "
                "--data.level words, and for words that come later --data.unknown token --data.min-count 2"
            )
        self.width = width
        # no weight: a body that goes on with other words keeps theirs
        self.register_buffer("spelling", spelled(vocabulary), persistent=False)
        self.words = CharacterWords(width, characters=characters, filters=filters, lengths=lengths)
        self.ahead, self.back = (
            nn.ModuleList([nn.LSTM(width, width, batch_first=True) for _ in range(layers)]) for _ in range(2)
        )
        self.dropout = nn.Dropout(check_dropout(dropout))

    def embedded(self, tokens: Int[Tensor, " *places"]) -> Float[Tensor, " *places width"]:
        """x: the vector of each token's word, each word of the text read once."""
        kinds, place = tokens.unique(return_inverse=True)
        return self.words(self.spelling[kinds])[place]

    def vectors(self) -> Float[Tensor, "vocab width"]:
        """The vector of each word of the vocabulary, without its text."""
        return self.words(self.spelling)

    def read(
        self, x: Float[Tensor, "batch time width"], direction: nn.ModuleList
    ) -> list[Float[Tensor, "batch time width"]]:
        """What each layer of one direction makes of word vectors, in the order in which they are given."""
        found = []
        for layer in direction:
            x, _ = layer(self.dropout(x))
            found.append(x)
        return found

    def both(
        self, x: Float[Tensor, "batch time width"], lengths: Lengths | None = None
    ) -> list[Float[Tensor, "batch time both"]]:
        """h_0 .. h_L of each place, the two directions side by side, 0 at padding."""
        ahead = self.read(x, self.ahead)
        back = self.read(reversed_in_time(x, lengths), self.back)
        pairs = [(x, x), *zip(ahead, (reversed_in_time(y, lengths) for y in back), strict=True)]
        return [without_padding(torch.cat(pair, -1), lengths) for pair in pairs]


class Mix(nn.Module):
    """The learned mixture gamma sum_j s_j h_j of L + 1 layers, s = softmax(w): at first their mean.

    Args:
        layers: L + 1.

    Reference:
        Peters et al. 2018, Equation 1.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    @property
    def shares(self) -> Float[Tensor, " layers"]:
        """The weights s of the layers, which sum to 1."""
        return self.logits.softmax(0)

    def forward(self, layers: Sequence[Float[Tensor, "*places width"]]) -> Float[Tensor, "*places width"]:
        """The mixture at each place."""
        return self.scale * torch.einsum("j,j...->...", self.shares, torch.stack(tuple(layers)))


def both_directions(model: nn.Module, batch: Batch, generator: Generator) -> Float[Tensor, "batch time"]:
    """Half of -log p(next | past) and half of -log p(word | future) of each place, in nats.

    Reference: Peters et al. 2018, Section 3.1 (the sum of both log-likelihoods).
    """
    core: Any = core_of(model)
    tokens, *lengths = batch.inputs
    if batch.targets is None:
        raise ValueError("a language model needs the next words: got none")
    if not lengths and batch.weight is not None:
        place = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
        lengths = [
            (place * batch.weight.bool()).amax(1)
        ]  # a block that overlaps another asks for its end alone
    given = lengths[0] if lengths else None
    whole = torch.cat((tokens, tokens[:, :1] * 0), 1)  # each text with the word after its last one
    end = torch.full_like(tokens[:, :1], tokens.shape[1]) if given is None else given[:, None]
    last = batch.targets.gather(1, (end - 1).clamp(min=0))
    ahead, back = core.both(whole.scatter(1, end, last), given)
    return (term_loss(ahead, batch.targets) + term_loss(back, tokens)) / 2
