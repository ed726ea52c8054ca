"""The transformer (Vaswani et al. 2017): an encoder-decoder of attention alone."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.nn.attention import Activation, DecoderBlock, EncoderBlock, KeysValues
from margin.nn.positions import SinusoidalPositions
from margin.nn.recurrence import State, check_dropout, valid
from margin.nn.seq2seq import (
    AligningSeq2Seq,
    Lengths,
    Logits,
    Source,
    Target,
    check_sizes,
    check_target,
)


class Transformer(AligningSeq2Seq):
    r"""An encoder that reads the source, and a decoder that writes the target and reads the last block of it.

    .. math:: \zeta = \mathrm{encoder}(\sqrt d\, E_x[x] + P), \qquad
        z = \mathrm{decoder}(\sqrt d\, E_y[y] + P, \zeta), \qquad
        p(y_t \mid y_{<t}, x) = \mathrm{softmax}(E_y z_t + b)

    P are sinusoidal positions. Every block of the decoder attends to the output of the encoder's *last*
    block. The paper's base size is width 512, depth 6, heads 8, hidden 2048: 44,138,496 weights in its
    blocks, and 2,048 in the two normalizations at the ends where norms come before (44,140,544, as
    ``nn.Transformer``).

    Args:
        source_vocab_size: Tokens of the source.
        vocab_size: Tokens of the target; 1 is the token that begins it, 2 the one that ends it.
        width: d, numbers of a token's vector.
        depth: Blocks of the encoder, and of the decoder.
        heads: Heads of an attention, a divisor of the width.
        hidden: Units of a block's perceptron; 0 is 4 times the width.
        norm: Whether vectors are normalized before attention and perceptron, which trains without a long
            warmup (Xiong et al. 2020), or after the sums, as in the paper.
        activation: Of the perceptrons.
        positions: Sines and cosines in turn, as in the paper, or all sines first ("halves"), as in Marian's
            weights.
        dropout: Probability with which a number of an embedding, an output or a unit is set to 0 in training.

    Raises:
        ValueError: A size is too small, the heads do not divide the width, or the dropout is not in [0, 1).

    Reference: Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser and Polosukhin 2017, Section 3.
    """

    def __init__(
        self,
        source_vocab_size: int,
        vocab_size: int,
        *,
        width: int = 128,
        depth: int = 2,
        heads: int = 4,
        hidden: int = 0,
        norm: Literal["before", "after"] = "before",
        activation: Activation = "relu",
        positions: Literal["paired", "halves"] = "paired",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_sizes(source_vocab_size, vocab_size, {"width": width, "depth": depth})
        self.width, self.heads = width, heads
        self.source_embedding = nn.Embedding(source_vocab_size, width)
        self.embedding = nn.Embedding(vocab_size, width)
        self.positions = SinusoidalPositions(width, order=positions)
        self.dropout = nn.Dropout(check_dropout(dropout))
        options = {"hidden": hidden, "norm": norm, "activation": activation, "dropout": dropout}
        self.encoder = nn.ModuleList(EncoderBlock(width, heads, **options) for _ in range(depth))
        self.decoder = nn.ModuleList(DecoderBlock(width, heads, **options) for _ in range(depth))
        ends = [nn.LayerNorm(width) if norm == "before" else nn.Identity() for _ in range(2)]
        self.encoder_norm, self.decoder_norm = ends
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self._draw()

    def _draw(self) -> None:
        """Matrices as Glorot's, uniform; embeddings of deviation 1 / sqrt(d); biases 0."""
        for name, parameter in self.named_parameters():
            if "embedding" in name:
                nn.init.normal_(parameter, std=self.width**-0.5)
            elif parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, source: Source, source_lengths: Lengths | None, target: Target) -> Logits:
        """The logits of the next token after each token of the target, in one pass over it."""
        memory, mask = self.encode(source, source_lengths)
        y = self._embedded(self.embedding, target)
        for block in self.decoder:
            y = block(y, memory, mask)
        return self._logits(y)

    def encode(
        self, source: Source, source_lengths: Lengths | None = None
    ) -> tuple[Float[Tensor, "batch source width"], Tensor | None]:
        """The last block's vectors of the source, and which of its places may be read; None is all."""
        mask = None if source_lengths is None else valid(source_lengths, source.shape[1])[:, None, None]
        x = self._embedded(self.source_embedding, source)
        for block in self.encoder:
            x = block(x, mask)
        return self.encoder_norm(x), mask

    def alignment(
        self, source: Source, source_lengths: Lengths | None, target: Target
    ) -> Float[Tensor, "batch time source"]:
        """The weights of the last block's attention to the source, the mean over its heads."""
        memory, mask = self.encode(source, source_lengths)
        y = self._embedded(self.embedding, target)
        for block in self.decoder[:-1]:
            y = block(y, memory, mask)
        last = self.decoder[-1]
        return last.reading(y, memory, mask).mean(1)

    def initial(self, source: Source, source_lengths: Lengths | None = None) -> State:
        """Which places of the source there are; then of each block its keys and values, and the target's."""
        memory, mask = self.encode(source, source_lengths)
        present = torch.ones_like(source, dtype=torch.bool) if mask is None else mask[:, 0, 0]
        empty = memory.new_empty(len(source), self.heads, 0, self.width // self.heads)
        parts = [part for block in self.decoder for part in (*block.cross.read(memory), empty, empty)]
        return (present, *parts)

    def step(self, token: Int[Tensor, " batch"], state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of the token after ``token``, and the new state; the old one stays as it was."""
        present, *parts = state
        y = self._embedded(self.embedding, token[:, None], parts[2].shape[2])
        after = [present]
        for k, block in enumerate(self.decoder):
            keys, values, *own = parts[4 * k : 4 * k + 4]
            past = KeysValues(*own)
            y = block.go_on(y, (keys, values), present[:, None, None], past)
            after += [keys, values, *past.all]
        return self._logits(y)[:, 0], tuple(after)

    def _embedded(self, table: nn.Embedding, tokens: Tensor, start: int = 0) -> Tensor:
        if start == 0 and table is self.embedding:
            check_target(tokens)
        return self.dropout(self.positions(table(tokens) * self.width**0.5, start))

    def _logits(self, y: Tensor) -> Tensor:
        return nn.functional.linear(self.decoder_norm(y), self.embedding.weight, self.bias)
