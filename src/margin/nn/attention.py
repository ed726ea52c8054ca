"""Attention and the encoder block of the transformer (Vaswani et al. 2017), for patches and for tokens."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from margin.nn.activations import Activation, activation_of

Sequences = Float[Tensor, "batch time width"]
Mask = Bool[Tensor, "#batch #heads #time source"]
"""True where a query may read a key."""


def in_heads(x: Float[Tensor, "batch time width"], heads: int) -> Float[Tensor, "batch heads time part"]:
    """Vectors cut into as many parts as there are heads."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


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

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        heads: H, a divisor of both widths.
        mask: Which keys a query may read.
        causal: Whether a query reads keys of its own and of earlier places only.
        dropout: Probability with which a weight is set to 0.

    Reference: Vaswani et al. 2017, Section 3.2, Equation 1.
    """
    queries, keys, values = (in_heads(x, heads) for x in (q, k, v))
    mixed = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, dropout_p=dropout, is_causal=causal
    )
    return mixed.transpose(1, 2).flatten(2)


def attention_weights(
    q: Sequences,
    k: Float[Tensor, "batch source width"],
    heads: int,
    *,
    mask: Mask | None = None,
    causal: bool = False,
) -> Float[Tensor, "batch heads time source"]:
    """The weights that :func:`multi_head` gives to values: softmax(Q K^T / sqrt(d)), rows of sum 1.

    The arguments are those of :func:`multi_head`.
    """
    queries, keys = in_heads(q, heads), in_heads(k, heads)
    scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[3])
    if causal:
        later = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(3)


class SelfAttention(nn.Module):
    r"""Multi-head self-attention: queries, keys and values are affine maps of the same vectors.

    .. math:: [Q, K, V] = X W^\top + b, \qquad Y = O\, W_O^\top + b_O

    Args:
        width: Length of a vector.
        heads: Number of heads, a divisor of it.
        causal: Whether a place reads itself and earlier ones only.
        dropout: Probability with which a weight is set to 0 in training; on a CPU any but 0 is several times
            slower.

    Raises:
        ValueError: The heads do not divide the width.

    Reference: Vaswani et al. 2017, Section 3.2.2.
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"heads must divide the width: got width={width}, heads={heads}")
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Sequences, mask: Mask | None = None) -> Sequences:
        """What each place reads of the others, mixed."""
        q, k, v = self.queries_keys_values(x).chunk(3, 2)
        dropout = self.dropout if self.training else 0.0
        return self.output(multi_head(q, k, v, self.heads, mask=mask, causal=self.causal, dropout=dropout))

    def weights(self, x: Sequences, mask: Mask | None = None) -> Float[Tensor, "batch heads time time"]:
        """How much each place reads of each, head by head: rows of sum 1."""
        q, k, _ = self.queries_keys_values(x).chunk(3, 2)
        return attention_weights(q, k, self.heads, mask=mask, causal=self.causal)


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
    ) -> None:
        super().__init__()
        self.norm = norm
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.attention = SelfAttention(width, heads, causal=causal, dropout=attention_dropout)
        self.mlp = feed_forward(width, hidden or 4 * width, activation, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Sequences, mask: Mask | None = None) -> Sequences:
        """The vectors after the block."""
        if self.norm == "after":
            h = self.norm1(x + self.dropout(self.attention(x, mask)))
            return self.norm2(h + self.dropout(self.mlp(h)))
        h = x + self.dropout(self.attention(self.norm1(x), mask))
        return h + self.dropout(self.mlp(self.norm2(h)))
