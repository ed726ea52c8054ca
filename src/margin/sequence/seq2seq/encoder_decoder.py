"""Encoder-decoders (Cho et al. 2014; Sutskever, Vinyals and Le 2014): one vector holds the whole source."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.engine.evaluation import eval_mode
from margin.nn.decoding import Decoded, State, beam, greedy
from margin.nn.recurrence import check_dropout, check_lengths

Cell = Literal["gru", "lstm"]
CELLS: dict[str, type[nn.GRU | nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}

BEGIN, END = 1, 2
"""The tokens that a target begins after and ends with, as every source of pairs numbers them."""

Source = Int[Tensor, "batch source"]
Lengths = Int[Tensor, " batch"]
Target = Int[Tensor, "batch time"]
Logits = Float[Tensor, "batch time vocab"]


class Encoder(nn.Module):
    r"""The states that a recurrence has while it reads each source: an annotation of every token.

    .. math:: \zeta_j = F(\zeta_{j-1}, E x_j), \qquad \zeta_0 = 0

    In both directions an annotation is that of the reading forward beside that of the reading backward.
    Padding is not read: annotations there are 0, and a source of length 0 has the final state 0.

    Args:
        vocab_size: Tokens of the source.
        embedding: Numbers that stand for a token.
        hidden: m, units of each direction of each layer.
        layers: Recurrences on top of each other.
        cell: The recurrence, torch's nn.GRU or nn.LSTM.
        directions: Whether the source is read forward, or forward and backward.
        dropout: Probability that a number of an embedding, or of a layer read by another, is left out.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embedding: int,
        hidden: int,
        layers: int,
        cell: Cell,
        directions: Literal["forward", "both"],
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.recurrence = CELLS[cell](
            embedding,
            hidden,
            layers,
            batch_first=True,
            dropout=dropout if layers > 1 else 0.0,
            bidirectional=directions == "both",
        )

    def forward(
        self, source: Source, lengths: Lengths | None = None
    ) -> tuple[Float[Tensor, "batch source m"], State]:
        """The annotations, and the final state of each layer and direction, (batch, layers, m), at its end.

        Args:
            source: Tokens, padded to one length with any token.
            lengths: Tokens of each source, from 0; None is all of them.

        Raises:
            ValueError: The lengths disagree with the sources.
        """
        time = source.shape[1]
        if lengths is None:
            lengths = torch.full((len(source),), time, device=source.device)
        check_lengths(lengths, source)
        embedded = self.dropout(self.embedding(source))
        if time == 0:
            embedded = embedded.new_zeros(len(source), 1, embedded.shape[2])
        # packed sequences know no length 0: such a source is read for one step, which is then forgotten
        packed = nn.utils.rnn.pack_padded_sequence(
            embedded, lengths.clamp_min(1).cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, final = self.recurrence(packed)
        annotations, _ = nn.utils.rnn.pad_packed_sequence(
            outputs, batch_first=True, total_length=max(time, 1)
        )
        there = lengths > 0
        annotations = annotations[:, :time] * there[:, None, None]
        states = final if isinstance(final, tuple) else (final,)
        return annotations, tuple(part.transpose(0, 1) * there[:, None, None] for part in states)


class Seq2Seq(nn.Module, ABC):
    r"""A distribution over target sequences given a source sequence, token by token.

    .. math:: p(y \mid x) = \prod_{t} p(y_t \mid y_{<t}, x)

    ``forward`` gives the logits of all factors at once for a known target; ``initial`` and ``step`` give them
    one by one for a target that is being written. Both are the same numbers.
    """

    @abstractmethod
    def forward(self, source: Source, source_lengths: Lengths, target: Target) -> Logits:
        """The logits of the next token after each token of the target."""

    @abstractmethod
    def initial(self, source: Source, source_lengths: Lengths | None = None) -> State:
        """The state before the first token of the target: the source as it was read."""

    @abstractmethod
    def step(self, token: Int[Tensor, " batch"], state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of the token after ``token``, and the new state."""

    def translate(
        self,
        source: Source,
        source_lengths: Lengths | None = None,
        *,
        width: int = 1,
        longest: int = 100,
        length_normalization: float = 0.0,
    ) -> Decoded:
        """The target that decoding finds for each source, in evaluation mode; nothing of the model changes.

        Args:
            source: Tokens, padded to one length.
            source_lengths: Tokens of each source; None is all of them.
            width: 1 decodes greedily, more by a beam of so many.
            longest: Tokens of a target at most, its end included; one that came to no end says so.
            length_normalization: See :func:`margin.nn.decoding.beam`; 0 for the probability itself.

        Raises:
            ValueError: An option is out of range, or the lengths disagree with the sources.
        """
        with torch.no_grad(), eval_mode(self):
            state = self.initial(source, source_lengths)
            first = torch.full((len(source),), BEGIN, device=source.device)
            if width == 1 and length_normalization == 0:
                return greedy(self.step, state, first, end=END, longest=longest)
            return beam(
                self.step,
                state,
                first,
                end=END,
                longest=longest,
                width=width,
                length_normalization=length_normalization,
            )


class EncoderDecoder(Seq2Seq):
    r"""A recurrence that reads the source, and one that begins where it ended and writes the target.

    .. math:: z_0 = \zeta_S, \qquad z_t = F(z_{t-1}, E y_{t-1}), \qquad
        p(y_t \mid y_{<t}, x) = \mathrm{softmax}(W z_t + b)

    y_0 is the token BEGIN. The source reaches the target through zeta_S alone, a vector of fixed size: what
    does not fit in it is lost, the more the longer the source
    (:mod:`margin.sequence.seq2seq.additive_attention`
    removes this).

    Args:
        source_vocab_size: Tokens of the source.
        vocab_size: V, tokens of the target; BEGIN (1) and END (2) are among them.
        cell: "gru" or "lstm", torch's own; of an LSTM the memory cell is handed on too.
        embedding: Numbers that stand for a token.
        hidden: Units of each layer.
        layers: Layers of the encoder and of the decoder.
        dropout: Probability of leaving out a number of an embedding, of a layer read by another, and of z_t.

    Raises:
        ValueError: A size is too small.

    Reference:
        Sutskever, Vinyals and Le 2014, Section 2 (LSTM); Cho et al. 2014, Section 2.2 (GRU; there zeta_S is
        also an input of every step).
    """

    def __init__(
        self,
        source_vocab_size: int,
        vocab_size: int,
        *,
        cell: Cell = "gru",
        embedding: int = 64,
        hidden: int = 128,
        layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(
            source_vocab_size, vocab_size, {"embedding": embedding, "hidden": hidden, "layers": layers}
        )
        self.encoder = Encoder(
            source_vocab_size,
            embedding=embedding,
            hidden=hidden,
            layers=layers,
            cell=cell,
            directions="forward",
            dropout=dropout,
        )
        self.embedding = nn.Embedding(vocab_size, embedding)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.decoder = CELLS[cell](
            embedding, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        self.readout = nn.Linear(hidden, vocab_size)

    def forward(self, source: Source, source_lengths: Lengths, target: Target) -> Logits:
        """The logits of the next token after each token of the target, in one pass over it."""
        return self._written(target, self.initial(source, source_lengths))[0]

    def initial(self, source: Source, source_lengths: Lengths | None = None) -> State:
        """The encoder's final state, (batch, layers, hidden), and of an LSTM its memory cells."""
        return self.encoder(source, source_lengths)[1]

    def step(self, token: Int[Tensor, " batch"], state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of the token after ``token``, and the new state."""
        logits, state = self._written(token[:, None], state)
        return logits[:, 0], state

    def _written(self, target: Tensor, state: State) -> tuple[Tensor, State]:
        check_target(target)
        before = tuple(part.transpose(0, 1).contiguous() for part in state)
        embedded = self.dropout(self.embedding(target))
        z, after = self.decoder(embedded, before if len(before) > 1 else before[0])
        after = after if isinstance(after, tuple) else (after,)
        return self.readout(self.dropout(z)), tuple(part.transpose(0, 1) for part in after)


def check_target(target: Tensor) -> None:
    """Refuse a target without any token: its first is BEGIN."""
    if target.shape[1] == 0:
        raise ValueError(f"a target must hold its first token at least: got shape {tuple(target.shape)}")


def check_sizes(source_vocab_size: int, vocab_size: int, sizes: Mapping[str, int]) -> None:
    """Refuse a size below 1, and a target whose vocabulary lacks BEGIN or END.

    Raises:
        ValueError: A size is too small.
    """
    if source_vocab_size < 1:
        raise ValueError(f"source_vocab_size must be at least 1: got {source_vocab_size}")
    if vocab_size <= END:
        raise ValueError(f"vocab_size must be at least {END + 1}, {END} being the end: got {vocab_size}")
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1: got {size}")
