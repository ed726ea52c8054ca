"""Attention and the blocks of the transformer (Vaswani et al. 2017), for patches and for tokens."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from margin.nn.activations import Activation as Activation
from margin.nn.activations import activation_of
from margin.nn.positions import rotated

Sequences = Float[Tensor, "batch time width"]
Heads = Float[Tensor, "batch heads time part"]
KeysOrValues = Float[Tensor, "batch heads source part"]
Mask = Bool[Tensor, "#batch #heads #time source"]
"""True where a query may read a key."""


def in_heads(x: Float[Tensor, "batch time width"], heads: int) -> Float[Tensor, "batch heads time part"]:
    """Vectors cut into as many parts as there are heads."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def readable(
    mask: Tensor | None, causal: bool, time: int, source: int, device: torch.device
) -> Tensor | None:
    """Which keys a query may read; None where it may read all.

    Under a causal mask the last query stands at the last key: the queries before it are earlier, and where
    there are more keys than queries, those before all of them were read before (a cache).

    Args:
        mask: A mask broadcastable to (batch, heads, time, source), or None.
        causal: Whether a query reads keys of its own and of earlier places only.
        time: Number of queries.
        source: Number of keys.
        device: Where the causal mask is made.
    """
    if not causal or time == 1:
        return mask
    past = torch.ones(time, source, dtype=torch.bool, device=device).tril(source - time)
    return past if mask is None else mask & past


def attend(
    q: Heads,
    k: KeysOrValues,
    v: Float[Tensor, "batch heads source out"],
    *,
    mask: Mask | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "batch time width"]:
    """What :func:`multi_head` is of queries, keys and values that are cut into heads already."""
    whole = causal and mask is None and q.shape[2] == k.shape[2]  # torch's own causal mask: half the work
    allowed = None if whole else readable(mask, causal, q.shape[2], k.shape[2], q.device)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout, is_causal=whole)
    return mixed.transpose(1, 2).flatten(2)


def multi_head(
    q: Sequences,
    k: Float[Tensor, "batch source width"],
    v: Float[Tensor, "batch source out"],
    heads: int,
    *,
    mask: Mask | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "batch time out"]:
    r"""Scaled dot-product attention of each head on its own part of the vectors, side by side.

    .. math:: O_h = \mathrm{softmax}(Q_h K_h^\top / \sqrt{d_h})\, V_h, \qquad O = [O_1, \dots, O_H]

    A query that may read no key gets 0, with a finite gradient (``nn.MultiheadAttention`` gives NaN).

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        heads: H, a divisor of both widths.
        mask: Which keys a query may read.
        causal: Whether a query reads keys of its own and of earlier places only, see :func:`readable`.
        dropout: Probability with which a weight is set to 0.

    Reference: Vaswani et al. 2017, Section 3.2, Equation 1.
    """
    queries, keys, values = (in_heads(x, heads) for x in (q, k, v))
    return attend(queries, keys, values, mask=mask, causal=causal, dropout=dropout)


def attention_weights(
    q: Sequences,
    k: Float[Tensor, "batch source width"],
    heads: int,
    *,
    mask: Mask | None = None,
    causal: bool = False,
) -> Float[Tensor, "batch heads time source"]:
    """The weights that :func:`multi_head` gives to values: softmax(Q K^T / sqrt(d)), rows of sum 1.

    The row of a query that may read no key is 0. The arguments are those of :func:`multi_head`.
    """
    return weights_of(in_heads(q, heads), in_heads(k, heads), mask, causal)


def weights_of(
    q: Heads, k: KeysOrValues, mask: Mask | None = None, causal: bool = False
) -> Float[Tensor, "batch heads time source"]:
    """What :func:`attention_weights` is of queries and keys that are cut into heads already."""
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    allowed = readable(mask, causal, q.shape[2], k.shape[2], q.device)
    if allowed is None:
        return scores.softmax(3)
    # the lowest number in place of -inf: a row that may read nothing is 0 then, and has a gradient
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(3).masked_fill(~allowed, 0)


def bilinear_scores(
    x: Float[Tensor, "*batch time width"],
    queries: Float[Tensor, "part width"],
    keys: Float[Tensor, "part width"],
) -> Float[Tensor, "*batch time time"]:
    r"""How well each vector, as a query, matches each, as a key: a bilinear form of rank at most q.

    .. math:: S = X U_Q^\top U_K X^\top, \qquad U_Q, U_K \in \mathbb{R}^{q \times d}

    Only the product U_Q^T U_K counts: M^{-T} U_Q and M U_K give the same scores.

    Args:
        x: X, a vector a row.
        queries: U_Q.
        keys: U_K.

    Reference: Vaswani et al. 2017, Section 3.2.1, without the softmax and the factor 1 / sqrt(q).
    """
    return (x @ queries.T) @ (x @ keys.T).transpose(-1, -2)


class KeysValues:
    """Keys and values of the places that were read, to which those of new places are added (a cache).

    Room for all is taken at the beginning, so adding one copies one.

    Args:
        keys: Of the places before, (batch, heads, time, part); time may be 0.
        values: Likewise.
        room: Places that may be added.
    """

    def __init__(self, keys: Heads, values: Heads, room: int = 1) -> None:
        self.count = keys.shape[2]
        self._both = [torch.cat((x, x.new_empty(*x.shape[:2], room, x.shape[3])), 2) for x in (keys, values)]

    def added(self, keys: Heads, values: Heads) -> tuple[KeysOrValues, KeysOrValues]:
        """All keys and values, these behind those before."""
        start, self.count = self.count, self.count + keys.shape[2]
        for kept, new in zip(self._both, (keys, values), strict=True):
            kept[:, :, start : self.count] = new
        return self.all

    @property
    def all(self) -> tuple[KeysOrValues, KeysOrValues]:
        """Keys and values of all places."""
        keys, values = (kept[:, :, : self.count] for kept in self._both)
        return keys, values


def check_heads(width: int, heads: int) -> None:
    """Refuse heads that do not divide the width."""
    if heads < 1 or width % heads:
        raise ValueError(f"heads must divide the width: got width={width}, heads={heads}")


class SelfAttention(nn.Module):
    r"""Multi-head self-attention: queries, keys and values are affine maps of the same vectors.

    .. math:: [Q, K, V] = X W^\top + b, \qquad Y = O\, W_O^\top + b_O

    Args:
        width: Length of a vector.
        heads: Number of heads, a divisor of it.
        causal: Whether a place reads itself and earlier ones only.
        positions: "rotary" turns queries and keys by an angle that grows with their place
            (:func:`margin.nn.positions.rotated`); "none" leaves them.
        dropout: Probability with which a weight is set to 0 in training; on a CPU any but 0 is several times
            slower.

    Raises:
        ValueError: The heads do not divide the width.

    Reference: Vaswani et al. 2017, Section 3.2.2.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        positions: Literal["none", "rotary"] = "none",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads, self.causal, self.positions, self.dropout = heads, causal, positions, dropout
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(
        self, x: Sequences, mask: Mask | None = None, past: KeysValues | None = None, first: int | None = None
    ) -> Float[Tensor, "batch wanted width"]:
        """What each place reads of the others, mixed.

        Args:
            x: The vectors.
            mask: Which places a place may read.
            past: Keys and values of the places before these; those of these are added.
            first: How many places, from the first on, are wanted; None is all. The others are only read.

        Raises:
            ValueError: The first places alone are asked of a causal layer.
        """
        q, k, v = self._in_heads(x, past.count if past else 0)
        if first is not None:
            if self.causal:
                raise ValueError(f"first must be None where attention is causal: got {first}")
            q, mask = q[:, :, :first], mask if mask is None else mask[:, :, :first]
        if past:
            k, v = past.added(k, v)
        dropout = self.dropout if self.training else 0.0
        return self.output(attend(q, k, v, mask=mask, causal=self.causal, dropout=dropout))

    def weights(self, x: Sequences, mask: Mask | None = None) -> Float[Tensor, "batch heads time time"]:
        """How much each place reads of each, head by head: rows of sum 1."""
        q, k, _ = self._in_heads(x, 0)
        return weights_of(q, k, mask, self.causal)

    def _in_heads(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (in_heads(part, self.heads) for part in self.queries_keys_values(x).chunk(3, 2))
        return (rotated(q, start), rotated(k, start), v) if self.positions == "rotary" else (q, k, v)


class CrossAttention(nn.Module):
    r"""Multi-head attention of the vectors of one sequence to those of another.

    .. math:: Q = X W_Q^\top + b_Q, \qquad [K, V] = S W^\top + b, \qquad Y = O\, W_O^\top + b_O

    Args:
        width: Length of a vector that reads.
        heads: Number of heads, a divisor of it.
        source_width: Length of a vector that is read; 0 is the same.
        dropout: Probability with which a weight is set to 0 in training.

    Raises:
        ValueError: The heads do not divide the width.

    Reference: Vaswani et al. 2017, Section 3.2.3.
    """

    def __init__(self, width: int, heads: int, *, source_width: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads, self.dropout = heads, dropout
        self.queries = nn.Linear(width, width)
        self.keys_values = nn.Linear(source_width or width, 2 * width)
        self.output = nn.Linear(width, width)

    def read(self, source: Float[Tensor, "batch source other"]) -> tuple[KeysOrValues, KeysOrValues]:
        """Keys and values of a source: they are the same for every query, so they are computed once."""
        keys, values = (in_heads(part, self.heads) for part in self.keys_values(source).chunk(2, 2))
        return keys, values

    def mix(
        self, x: Sequences, known: tuple[KeysOrValues, KeysOrValues], mask: Mask | None = None
    ) -> Sequences:
        """What each place reads of a source whose keys and values are ``known``."""
        q, dropout = in_heads(self.queries(x), self.heads), self.dropout if self.training else 0.0
        return self.output(attend(q, *known, mask=mask, dropout=dropout))

    def forward(
        self, x: Sequences, source: Float[Tensor, "batch source other"], mask: Mask | None = None
    ) -> Sequences:
        """What each place of x reads of the source, mixed."""
        return self.mix(x, self.read(source), mask)

    def weights(
        self, x: Sequences, source: Float[Tensor, "batch source other"], mask: Mask | None = None
    ) -> Float[Tensor, "batch heads time source"]:
        """How much each place of x reads of each of the source, head by head: rows of sum 1."""
        return weights_of(in_heads(self.queries(x), self.heads), self.read(source)[0], mask)


def feed_forward(width: int, hidden: int, activation: Activation, dropout: float) -> nn.Sequential:
    """The same perceptron with one hidden layer for each place (Vaswani et al. 2017, Equation 2)."""
    return nn.Sequential(
        nn.Linear(width, hidden), activation_of(activation), nn.Dropout(dropout), nn.Linear(hidden, width)
    )


class EncoderBlock(nn.Module):
    r"""Self-attention and a perceptron for each place, each added to what it reads, with normalized vectors.

    .. math::
        \text{before:}\quad & h = x + A(\mathrm{LN}_1 x), & y &= h + M(\mathrm{LN}_2 h) \\
        \text{after:}\quad & h = \mathrm{LN}_1(x + A x), & y &= \mathrm{LN}_2(h + M h)

    Args:
        width: Length of a vector.
        heads: Number of heads of the attention A.
        hidden: Units of the perceptron M; 0 is 4 times the width.
        norm: Whether vectors are normalized before A and M (Xiong et al. 2020) or after the sums, as in the
            paper.
        activation: Of M.
        causal: Whether a place reads itself and earlier ones only, as in a decoder without cross-attention.
        dropout: Probability with which an output of A or M, or a hidden unit of M, is set to 0 in training.
        attention_dropout: That of a weight of the attention.
        eps: What is added to the variance.
        positions: Whether the attention turns queries and keys, see :class:`SelfAttention`.

    Reference: Vaswani et al. 2017, Section 3.1; Xiong et al. 2020 (layer normalization), Figure 1.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        hidden: int = 0,
        norm: Literal["before", "after"] = "before",
        activation: Activation = "gelu",
        causal: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        eps: float = 1e-5,
        positions: Literal["none", "rotary"] = "none",
    ) -> None:
        super().__init__()
        self.norm = norm
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.attention = SelfAttention(
            width, heads, causal=causal, positions=positions, dropout=attention_dropout
        )
        self.mlp = feed_forward(width, hidden or 4 * width, activation, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Sequences, mask: Mask | None = None, past: KeysValues | None = None, first: int | None = None
    ) -> Float[Tensor, "batch wanted width"]:
        """The vectors after the block; the arguments are those of :class:`SelfAttention`."""
        kept = x if first is None else x[:, :first]
        if self.norm == "after":
            h = self.norm1(kept + self.dropout(self.attention(x, mask, past, first)))
            return self.norm2(h + self.dropout(self.mlp(h)))
        h = kept + self.dropout(self.attention(self.norm1(x), mask, past, first))
        return h + self.dropout(self.mlp(self.norm2(h)))


class DecoderBlock(nn.Module):
    r"""Causal self-attention, attention to a source, a perceptron for each place, each added to its input.

    .. math::
        \text{before:}\quad & h = x + A(\mathrm{LN}_1 x), & g &= h + C(\mathrm{LN}_2 h, s), &
        y &= g + M(\mathrm{LN}_3 g) \\
        \text{after:}\quad & h = \mathrm{LN}_1(x + A x), & g &= \mathrm{LN}_2(h + C(h, s)), &
        y &= \mathrm{LN}_3(g + M g)

    Args:
        width: Length of a vector, of the source's too.
        heads: Number of heads of the attentions A and C.
        hidden: Units of the perceptron M; 0 is 4 times the width.
        norm: Whether vectors are normalized before A, C and M or after the sums, as in the paper.
        activation: Of M.
        dropout: Probability with which an output of A, C or M, or a hidden unit of M, is set to 0 in
            training.
        attention_dropout: That of a weight of an attention.
        eps: What is added to the variance.

    Reference: Vaswani et al. 2017, Section 3.1; Xiong et al. 2020 (layer normalization), Figure 1.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        hidden: int = 0,
        norm: Literal["before", "after"] = "before",
        activation: Activation = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width, eps) for _ in range(3))
        self.attention = SelfAttention(width, heads, causal=True, dropout=attention_dropout)
        self.cross = CrossAttention(width, heads, dropout=attention_dropout)
        self.mlp = feed_forward(width, hidden or 4 * width, activation, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Sequences, source: Float[Tensor, "batch source width"], mask: Mask | None = None
    ) -> Sequences:
        """The vectors after the block.

        Args:
            x: The vectors.
            source: What they read beside themselves.
            mask: Which places of the source may be read.
        """
        return self.go_on(x, self.cross.read(source), mask)

    def go_on(
        self,
        x: Sequences,
        known: tuple[KeysOrValues, KeysOrValues],
        mask: Mask | None = None,
        past: KeysValues | None = None,
    ) -> Sequences:
        """The vectors after the block, of a source whose keys and values are known, behind places before."""
        if self.norm == "after":
            h = self.norm1(x + self.dropout(self.attention(x, None, past)))
            g = self.norm2(h + self.dropout(self.cross.mix(h, known, mask)))
            return self.norm3(g + self.dropout(self.mlp(g)))
        h = x + self.dropout(self.attention(self.norm1(x), None, past))
        g = h + self.dropout(self.cross.mix(self.norm2(h), known, mask))
        return g + self.dropout(self.mlp(self.norm3(g)))

    def reading(
        self, x: Sequences, source: Float[Tensor, "batch source width"], mask: Mask | None = None
    ) -> Float[Tensor, "batch heads time source"]:
        """How much each place reads of each of the source, head by head: the weights of C."""
        if self.norm == "after":
            return self.cross.weights(self.norm1(x + self.dropout(self.attention(x))), source, mask)
        h = x + self.dropout(self.attention(self.norm1(x)))
        return self.cross.weights(self.norm2(h), source, mask)
