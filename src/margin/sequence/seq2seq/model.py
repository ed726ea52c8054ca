"""Encoder-decoders (Cho et al. 2014; Sutskever, Vinyals and Le 2014): one vector holds the whole source.

With additive attention (Bahdanau, Cho and Bengio 2015) each target token reads all of the source anew.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.nn.decoding import State
from margin.nn.recurrence import check_dropout, check_lengths, valid
from margin.nn.seq2seq import (
    AligningSeq2Seq,
    Lengths,
    Logits,
    Seq2Seq,
    Source,
    Target,
    check_sizes,
    check_target,
)

Cell = Literal["gru", "lstm"]
CELLS: dict[str, type[nn.GRU | nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


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


class EncoderDecoder(Seq2Seq):
    r"""A recurrence that reads the source, and one that begins where it ended and writes the target.

    .. math:: z_0 = \zeta_S, \qquad z_t = F(z_{t-1}, E y_{t-1}), \qquad
        p(y_t \mid y_{<t}, x) = \mathrm{softmax}(W z_t + b)

    y_0 is the token BEGIN. The source reaches the target through zeta_S alone, a vector of fixed size: what
    does not fit in it is lost, the more the longer the source
    (:mod:`margin.sequence.seq2seq.model`
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


DECODERS: dict[str, type[nn.GRUCell | nn.LSTMCell]] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}

Weights = Float[Tensor, "batch source"]


def additive_scores(
    query: Float[Tensor, "batch units"], keys: Float[Tensor, "batch source units"], v: Float[Tensor, " units"]
) -> Weights:
    r"""How well each position fits a query: e_j = v^T tanh(q + k_j), with q = W z and k_j = U zeta_j.

    Reference: Bahdanau, Cho and Bengio 2015, Section A.1.2.
    """
    return torch.tanh(query[:, None] + keys) @ v


def masked_softmax(scores: Weights, present: Bool[Tensor, "batch source"]) -> Weights:
    """The softmax over the positions that are present: exactly 0 elsewhere, and 0 everywhere if none is."""
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~present, lowest).softmax(-1) * present


class AdditiveAttention(nn.Module):
    r"""Weights over annotations for a query, and the annotations' mean under them.

    .. math:: e_{ij} = v^\top \tanh(W z_{i-1} + U \zeta_j), \qquad
        a_{ij} = \frac{\exp e_{ij}}{\sum_k \exp e_{ik}}, \qquad c_i = \sum_j a_{ij} \zeta_j

    The sums run over the tokens of the source; padding has the weight 0 exactly. Of a source without tokens
    the context c is 0.

    Args:
        query_size: Numbers of z.
        memory_size: Numbers of an annotation zeta.
        units: Numbers inside the tanh.

    Raises:
        ValueError: There is no unit.

    Reference:
        Bahdanau, Cho and Bengio 2015, Equations 5 and 6, Section A.1.2.
    """

    def __init__(self, query_size: int, memory_size: int, *, units: int = 64) -> None:
        super().__init__()
        if units < 1:
            raise ValueError(f"units must be at least 1: got {units}")
        self.query = nn.Linear(query_size, units, bias=False)
        self.key = nn.Linear(memory_size, units, bias=False)
        self.v = nn.Linear(units, 1, bias=False)

    def keys(self, memory: Float[Tensor, "batch source m"]) -> Float[Tensor, "batch source units"]:
        """U zeta_j of every annotation: it is the same for every query, so it is computed once."""
        return self.key(memory)

    def forward(
        self,
        query: Float[Tensor, "batch q"],
        keys: Float[Tensor, "batch source units"],
        memory: Float[Tensor, "batch source m"],
        present: Bool[Tensor, "batch source"],
    ) -> tuple[Float[Tensor, "batch m"], Weights]:
        """The context c and the weights a of one query an example.

        Args:
            query: z.
            keys: What :meth:`keys` gives of the memory.
            memory: The annotations zeta.
            present: Which of them are no padding.
        """
        weights = masked_softmax(additive_scores(self.query(query), keys, self.v.weight[0]), present)
        return (weights[:, None] @ memory)[:, 0], weights


class AttentionSeq2Seq(AligningSeq2Seq):
    r"""A recurrence that writes the target and before each token looks at all annotations of the source.

    .. math:: z_i = F(z_{i-1}, [E y_{i-1}, c_i]), \qquad p(y_i \mid y_{<i}, x) = \mathrm{softmax}(W_o t_i + b)

    zeta_j are the states of a recurrence over the source in both directions, c_i their mean under the weights
    of :class:`AdditiveAttention`, z_0 = tanh(W_s zeta_1^{backward} + b_s), and t_i the larger one of each of
    two affine maps of (z_i, E y_{i-1}, c_i). The source reaches the target through as many vectors as it has
    tokens.

    Args:
        source_vocab_size: Tokens of the source.
        vocab_size: V, tokens of the target; BEGIN (1) and END (2) are among them.
        cell: "gru" or "lstm", torch's own; an LSTM's memory cell begins at 0.
        embedding: Numbers that stand for a token, and of t_i.
        hidden: Units of the decoder and of each direction of the encoder.
        attention: Units inside the tanh of the attention.
        dropout: Probability of leaving out a number of an embedding and of t_i.

    Raises:
        ValueError: A size is too small.

    Reference:
        Bahdanau, Cho and Bengio 2015, Section 3 and A.2; there t_i reads z_{i-1} in place of z_i (Equation 4
        has z_i).
    """

    def __init__(
        self,
        source_vocab_size: int,
        vocab_size: int,
        *,
        cell: Cell = "gru",
        embedding: int = 64,
        hidden: int = 128,
        attention: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = {"embedding": embedding, "hidden": hidden, "attention": attention}
        check_sizes(source_vocab_size, vocab_size, sizes)
        self.encoder = Encoder(
            source_vocab_size,
            embedding=embedding,
            hidden=hidden,
            layers=1,
            cell=cell,
            directions="both",
            dropout=dropout,
        )
        self.embedding = nn.Embedding(vocab_size, embedding)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.bridge = nn.Linear(hidden, hidden)
        self.attention = AdditiveAttention(hidden, 2 * hidden, units=attention)
        self.decoder = DECODERS[cell](embedding + 2 * hidden, hidden)
        self.maxout = nn.Linear(embedding + 3 * hidden, 2 * embedding)
        self.readout = nn.Linear(embedding, vocab_size)

    def forward(self, source: Source, source_lengths: Lengths, target: Target) -> Logits:
        """The logits of the next token after each token of the target."""
        return self._written(target, self.initial(source, source_lengths))[0]

    def alignment(
        self, source: Source, source_lengths: Lengths | None, target: Target
    ) -> Float[Tensor, "batch time source"]:
        """The weights a_ij with which target token i, the one after ``target[i]``, reads source token j."""
        return self._written(target, self.initial(source, source_lengths))[1]

    def initial(self, source: Source, source_lengths: Lengths | None = None) -> State:
        """The decoder's first state, then what each step reads: keys, annotations, which are there."""
        memory, final = self.encoder(source, source_lengths)
        z = torch.tanh(self.bridge(final[0][:, 1]))
        if source_lengths is None:
            present = torch.ones_like(source, dtype=torch.bool)
        else:
            present = valid(source_lengths, source.shape[1])
        own = (z,) if isinstance(self.decoder, nn.GRUCell) else (z, torch.zeros_like(z))
        return (*own, self.attention.keys(memory), memory, present)

    def step(self, token: Int[Tensor, " batch"], state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of the token after ``token``, and the new state."""
        embedded = self.dropout(self.embedding(token))
        context, _, state = self._moved(embedded, state)
        return self._logits(state[0], embedded, context), state

    def _moved(self, embedded: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """The context, the weights, and the state after one token."""
        *own, keys, memory, present = state
        context, weights = self.attention(own[0], keys, memory, present)
        moved = self.decoder(torch.cat((embedded, context), -1), own[0] if len(own) == 1 else tuple(own))
        return context, weights, (*(moved if len(own) > 1 else (moved,)), keys, memory, present)

    def _logits(self, z: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        t = self.maxout(torch.cat((z, embedded, context), -1)).unflatten(-1, (-1, 2)).amax(-1)
        return self.readout(self.dropout(t))

    def _written(self, target: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """The logits and the weights of all steps; the states are a loop, the logits are not."""
        check_target(target)
        embedded = self.dropout(self.embedding(target))
        states, contexts, rows = [], [], []
        for e in embedded.unbind(1):
            context, weights, state = self._moved(e, state)
            states.append(state[0])
            contexts.append(context)
            rows.append(weights)
        logits = self._logits(torch.stack(states, 1), embedded, torch.stack(contexts, 1))
        return logits, torch.stack(rows, 1)
