"""BERT (Devlin et al. 2019): an encoder that reads a text from both sides, and what is read off it."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.core.composition import headed
from margin.nn.attention import Activation, EncoderBlock
from margin.nn.positions import LearnedPositions
from margin.nn.recurrence import Lengths, check_dropout, check_lengths, mean, valid

SPREAD = 0.02
"""Standard deviation of the initial weights."""

Texts = Int[Tensor, "batch time"]
Pool = Literal["first", "mean"]


class Bert(nn.Module):
    r"""The vectors that a transformer's encoder gives to the tokens of a text, each having read all others.

    .. math:: z^0 = \mathrm{LN}(E[w] + P + S[s]), \qquad z^l = \mathrm{block}_l(z^{l-1})

    P are learned positions, S a vector of each of two segments; blocks are normalized after their sums and
    have GELUs. Base is width 768, depth 12, heads 12, large 1024, 24, 16.

    Args:
        vocab_size: Number of tokens.
        longest: Tokens of the longest training text.
        width: Numbers of a token's vector.
        depth: Number of blocks.
        heads: Heads of the attention, a divisor of the width.
        hidden: Units of a block's perceptron; 0 is 4 times the width.
        places: Places that have a position, at least ``longest`` without a stride.
        stride: Sliding window over texts longer than the places: tokens from the begin of one window to the
            next. Each begins with the question, or the first token; a token's vector is that of the window in
            which it has most context on both sides, the first token's and the question's are the mean of
            those of all windows. 0 refuses such texts.
        activation: Of the perceptrons.
        dropout: Probability with which a number of an embedding, an output or a unit is set to 0 in training.
        eps: What normalizations add to the variance.

    Raises:
        ValueError: A size is too small, or the heads do not divide the width.

    Reference: Devlin, Chang, Lee and Toutanova 2019, Section 3 and Figure 2.
    """

    # 11 parameters: the sizes of the paper, and what becomes of texts longer than the places
    def __init__(
        self,
        vocab_size: int,
        longest: int,
        *,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        hidden: int = 0,
        places: int = 512,
        stride: int = 0,
        activation: Activation = "gelu",
        dropout: float = 0.1,
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        if min(vocab_size, width, depth) < 1 or hidden < 0:
            raise ValueError(
                "vocab_size, width and depth must be at least 1, hidden at least 0: "
                f"got {vocab_size}, {width}, {depth}, {hidden}"
            )
        if not 0 <= stride < places:
            raise ValueError(f"stride must be at least 0 and less than the {places} places: got {stride}")
        if places < longest and not stride:
            raise ValueError(
                f"texts must be no longer than the {places} positions: the longest has {longest} tokens; cut "
                f"them by --data.longest {places}, read them in windows by --model.stride {places // 2}, or "
                f"give --model.places {longest}"
            )
        self.output_size, self.places, self.stride = width, places, stride
        self.embedding = nn.Embedding(vocab_size, width)
        self.positions = LearnedPositions(places, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.blocks = nn.ModuleList(
            EncoderBlock(
                width, heads, hidden=hidden, norm="after", activation=activation, dropout=dropout, eps=eps
            )
            for _ in range(depth)
        )
        drawn_normal(self)

    def forward(
        self, tokens: Texts, lengths: Lengths | None = None, segments: Texts | None = None
    ) -> Float[Tensor, "batch time width"]:
        """The vectors of the last block; padding is not read, and what stands there has no meaning.

        Args:
            tokens: Texts, padded to one length with any token.
            lengths: Tokens of each text; None is all of them.
            segments: 0 or 1 for each token; None is 0.

        Raises:
            ValueError: The lengths disagree with the texts, or a text is longer than there are positions.
        """
        if self.stride and tokens.shape[1] > self.places:
            return in_windows(self, tokens, lengths, segments)
        mask = None
        if lengths is not None:
            check_lengths(lengths, tokens)
            if bool((lengths < tokens.shape[1]).any()):
                mask = valid(lengths, tokens.shape[1])[:, None, None]
        z = self.positions(self.embedding(tokens))
        z = z + (self.segments.weight[0] if segments is None else self.segments(segments))
        z = self.dropout(self.norm(z))
        for block in self.blocks:
            z = block(z, mask)
        return z


def in_windows(
    body: Bert, tokens: Texts, lengths: Lengths | None, segments: Texts | None
) -> Float[Tensor, "batch time width"]:
    """The vectors of texts longer than a body's places, read in windows that overlap.

    Args:
        body: The encoder, whose ``stride`` is the tokens from one window to the next.
        tokens: Texts, padded to one length with any token.
        lengths: Tokens of each text; None is all of them.
        segments: 0 or 1 for each token; None is 0.

    Raises:
        ValueError: The windows leave out a token: the stride is more than what is left beside the question.

    Reference: Devlin et al. 2019's code for SQuAD (doc_stride and "max context", whose ties go by the length
        of the windows; here to the earlier one).
    """
    time, room, stride = tokens.shape[1], body.places, body.stride
    ends = torch.full_like(tokens[:, 0], time) if lengths is None else lengths
    first = torch.minimum(_begins(tokens, segments), ends)
    widest = int(torch.where(ends > room, first, 0).max())
    if widest + stride > room:
        raise ValueError(
            f"stride must be at most the {room - widest} places beside a question of {widest} tokens: "
            f"got {stride}"
        )
    place, where = (torch.arange(size, device=tokens.device) for size in (room, time))
    out = torch.zeros((), dtype=body.embedding.weight.dtype, device=tokens.device)
    out = out.expand(*tokens.shape, body.output_size)
    most, windows = torch.full_like(tokens, -1), torch.zeros_like(ends)
    for k in range(1 + max(0, -(-int((ends - room).max()) // stride))):
        more = torch.ones_like(ends, dtype=torch.bool) if k == 0 else ends - (k - 1) * stride > room
        left = torch.where(more, (ends - k * stride).clamp(max=room), 0)
        head = place < first[:, None]
        at = torch.where(head, place, place + k * stride).clamp_max(time - 1)
        own = None if segments is None else segments.gather(1, at)
        z = body(tokens.gather(1, at), left.clamp_min(1), own)
        context = torch.minimum(place - first[:, None], left[:, None] - 1 - place)
        best = (place < left[:, None]) & ~head & (context > most.gather(1, at))
        rows, places = best.nonzero(as_tuple=True)
        out = out.index_put((rows, at[rows, places]), z[rows, places])
        most = most.index_put((rows, at[rows, places]), context[rows, places])
        shared = (head & more[:, None]).nonzero(as_tuple=True)
        out, windows = out.index_put(shared, z[shared], accumulate=True), windows + more
    return out / torch.where(where < first[:, None], windows[:, None], 1)[:, :, None]


def _begins(tokens: Texts, segments: Texts | None) -> Int[Tensor, " batch"]:
    """How many tokens begin each window of a text: those before its segment 1, or the first."""
    one = torch.ones_like(tokens[:, 0])
    if segments is None:
        return one
    return torch.where((segments == 1).any(1), (segments == 0).cumprod(1).sum(1), one).clamp_min(1)


def drawn_normal(module: nn.Module) -> None:
    """Draw matrices and embeddings normal of deviation 0.02, biases 0; gains stay 1."""
    for name, parameter in module.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=SPREAD)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def pooled(z: Tensor, lengths: Tensor | None, pool: Pool) -> Float[Tensor, "batch width"]:
    """The vector of the first token, [CLS], or the mean over the tokens of a text."""
    return z[:, 0] if pool == "first" else mean(z, lengths)


class TextHead(nn.Module):
    r"""Class logits or a real number of a text, :math:`W \tanh(V z_1 + c) + b`, z_1 the vector of [CLS].

    Args:
        body: The encoder.
        num_classes: Number of logits; 0 reads one real number.
        pool: What is read: the first token, or the mean over the tokens.
        dropout: Probability with which a number of what is read is set to 0 in training.

    Reference: Devlin et al. 2019, Section 4.1 (a real number: its STS-B).
    """

    def __init__(
        self, body: Bert, *, num_classes: int = 0, pool: Pool = "first", dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.body, self.pool, self.num_classes = body, pool, num_classes
        self.pooler = nn.Linear(body.output_size, body.output_size)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.head = nn.Linear(body.output_size, num_classes or 1)
        for layer in (self.pooler, self.head):
            drawn_normal(layer)

    def forward(
        self, tokens: Texts, lengths: Lengths | None = None, segments: Texts | None = None
    ) -> Float[Tensor, " batch *classes"]:
        """The logits of each text, or its number."""
        z = pooled(self.body(tokens, lengths, segments), lengths, self.pool)
        found = self.head(self.dropout(torch.tanh(self.pooler(z))))
        return found if self.num_classes else found[:, 0]


class TokenClassifier(nn.Module):
    """Class logits of each token, an affine map of its vector: tags of words.

    Args:
        body: The encoder.
        num_classes: Number of logits.
        dropout: Probability with which a number of a vector is set to 0 in training.

    Reference: Devlin et al. 2019, Section 5.3.
    """

    def __init__(self, body: Bert, num_classes: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.body = body
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.head = nn.Linear(body.output_size, num_classes)
        drawn_normal(self.head)

    def forward(
        self, tokens: Texts, lengths: Lengths | None = None, segments: Texts | None = None
    ) -> Float[Tensor, "batch time classes"]:
        """The logits of each token."""
        return self.head(self.dropout(self.body(tokens, lengths, segments)))


class SpanReader(nn.Module):
    """The logits of each token's being the first and the last of the answer to a question.

    The question, segment 0 where there are two, holds no answer: it gets the lowest number, as padding does.

    Args:
        body: The encoder.
        dropout: Probability with which a number of a vector is set to 0 in training.

    Reference: Devlin et al. 2019, Section 4.2.
    """

    def __init__(self, body: Bert, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.body = body
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.head = nn.Linear(body.output_size, 2)
        drawn_normal(self.head)

    def forward(
        self, tokens: Texts, lengths: Lengths | None = None, segments: Texts | None = None
    ) -> Float[Tensor, "batch 2 time"]:
        """The logits of each token's being the first, and of its being the last."""
        logits = self.head(self.dropout(self.body(tokens, lengths, segments))).transpose(1, 2)
        allowed = torch.ones_like(tokens, dtype=torch.bool)
        if lengths is not None:
            allowed = valid(lengths, tokens.shape[1])
        if segments is not None:
            allowed = allowed & (segments == 1)
        return logits.masked_fill(~allowed[:, None], torch.finfo(logits.dtype).min)


class MaskedModel(nn.Module):
    r"""The distribution of each token of a text, some of it hidden, and whether its second part follows.

    .. math:: p(w_t \mid \tilde w) = \mathrm{softmax}(E\, \mathrm{LN}(\phi(V z_t + c)) + b), \qquad
        p(\mathrm{apart} \mid \tilde w) = \mathrm{softmax}(U \tanh(V' z_1 + c') + b')

    phi is the GELU and E the table of token vectors.

    Args:
        body: The encoder.

    Reference: Devlin et al. 2019, Section 3.1 and Appendix A.2.
    """

    def __init__(self, body: Bert) -> None:
        super().__init__()
        width = body.output_size
        self.body = body
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width, body.norm.eps)
        self.bias = nn.Parameter(torch.zeros(body.embedding.num_embeddings))
        self.pooler, self.next = nn.Linear(width, width), nn.Linear(width, 2)
        for layer in (self.transform, self.pooler, self.next):
            drawn_normal(layer)

    def forward(
        self, tokens: Texts, lengths: Lengths | None = None, segments: Texts | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """The logits of every token; at the first, [CLS], of 0, the second part follows, and 1, it does not.

        There all others are the lowest number, so that one cross-entropy reads both.
        """
        z = self.body(tokens, lengths, segments)
        first = nn.functional.pad(self.follows(z), (0, len(self.bias) - 2), value=torch.finfo(z.dtype).min)
        return torch.cat((first[:, None], self.words(z[:, 1:])), 1)

    def words(self, z: Float[Tensor, "*terms width"]) -> Float[Tensor, "*terms vocab"]:
        """The logits of the tokens that have these vectors."""
        hidden = self.transform_norm(nn.functional.gelu(self.transform(z)))
        return nn.functional.linear(hidden, self.body.embedding.weight, self.bias)

    def follows(self, z: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch 2"]:
        """The logits of the second part's following, and not following, the first."""
        return self.next(torch.tanh(self.pooler(z[:, 0])))


classifier = headed(
    Bert, TextHead, "An encoder over the tokens of a text, to class logits.", dictated=("num_classes",)
)
regressor = headed(
    Bert, TextHead, "An encoder over the tokens of a text, to one real number.", without=("num_classes",)
)
tagger = headed(Bert, TokenClassifier, "An encoder over the tokens of a text, to class logits of each.")
reader = headed(Bert, SpanReader, "An encoder over a question and a text, to the ends of the answer.")
masked = headed(
    Bert, MaskedModel, "An encoder over the tokens of a text, to the distribution of hidden ones."
)
