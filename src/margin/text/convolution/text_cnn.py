"""The text CNN (Kim 2014): filters over runs of words and a maximum over the text; a bag of words beside it.

A filter of width k answers to k words in a row, wherever they stand: it detects a k-gram. The mean of word
vectors knows no order at all, and so is the baseline that filters have to beat.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.core.composition import headed

Tokens = Int[Tensor, "batch time"]
Lengths = Int[Tensor, " batch"]
Vectors = Float[Tensor, "batch features"]


def presence(tokens: Tokens, lengths: Lengths | None) -> Float[Tensor, "batch time"]:
    """1 at a text's own tokens, 0 at padding."""
    if lengths is None:
        return torch.ones_like(tokens, dtype=torch.float32)
    return (torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]).float()


class NgramFilters(nn.Module):
    r"""The largest answer of each of m filters over a text, of each of several widths.

    .. math:: c_k = \max_t \mathrm{ReLU}(\langle W_k, E_{t-k+1:t} \rangle + b_k)

    The text is continued by k - 1 zero vectors on both sides, so one of a single word has an answer; t runs
    over the windows that hold a word. What is padded is never read. A text without a word has the answers 0.

    Args:
        vocab_size: V, number of tokens.
        embedding: n, numbers of a token's vector.
        filters: m, filters of each width.
        widths: The widths k, tokens that a filter reads, each at least 1.

    Raises:
        ValueError: A size or width is below 1, or there is no width.

    Reference:
        Kim 2014, Equations 1 to 3; Kalchbrenner, Grefenstette and Blunsom 2014, Section 2.2 (the wide
        convolution).
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embedding: int = 128,
        filters: int = 100,
        widths: Sequence[int] = (3, 4, 5),
    ) -> None:
        super().__init__()
        if min(embedding, filters, *widths, 1) < 1 or not widths:
            raise ValueError(
                "embedding, filters and every width must be at least 1: "
                f"got embedding={embedding}, filters={filters}, widths={tuple(widths)}"
            )
        self.embedding = nn.Embedding(vocab_size, embedding)
        nn.init.uniform_(self.embedding.weight, -0.25, 0.25)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, filters, k) for k in widths)
        self.widths = tuple(widths)
        self.output_size = filters * len(widths)

    def answers(
        self, tokens: Tokens, lengths: Lengths | None = None
    ) -> list[Float[Tensor, "batch m windows"]]:
        """The answers of the filters of each width at each window, 0 at those that hold no token.

        Window t ends at token t.
        """
        present = presence(tokens, lengths)
        x = (self.embedding(tokens) * present[..., None]).mT
        counts = present.sum(1, dtype=torch.int64)
        found = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            after = width - 1
            y = F.relu(convolution(F.pad(x, (after, max(after, int(tokens.shape[1] == 0))))))
            held = torch.arange(y.shape[2], device=y.device) < ((counts + after) * (counts > 0))[:, None]
            found.append(y * held[:, None])
        return found

    def forward(self, tokens: Tokens, lengths: Lengths | None = None) -> Vectors:
        """The largest answer of each filter."""
        return torch.cat([y.amax(2) for y in self.answers(tokens, lengths)], 1)


class MeanVector(nn.Module):
    """The mean of the vectors of a text's tokens, whatever their order; 0 of a text without a token.

    Args:
        vocab_size: V, number of tokens.
        embedding: n, numbers of a token's vector.

    Reference:
        Joulin, Grave, Bojanowski and Mikolov 2017, Section 2 (without its n-grams).
    """

    def __init__(self, vocab_size: int, *, embedding: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding)
        nn.init.uniform_(self.embedding.weight, -0.25, 0.25)
        self.output_size = embedding

    def forward(self, tokens: Tokens, lengths: Lengths | None = None) -> Vectors:
        """The mean vector of each text."""
        present = presence(tokens, lengths)[..., None]
        return (self.embedding(tokens) * present).sum(1) / present.sum(1).clamp_min(1)


class TextHead(nn.Module):
    r"""Class logits or a real number of a text, an affine map of its features.

    The rows of the map are no longer than a norm. Kim projects each to it after a step; here the function
    itself is of the projected row, so that it is the same in training and evaluation and any optimizer keeps
    it.

    Args:
        body: The features of a text, ``output_size`` of them.
        num_classes: Number of logits; 0 reads one real number.
        dropout: Probability with which a feature is dropped in training, in [0, 1).
        max_norm: Largest length of a row of the map; 0 for any.

    Raises:
        ValueError: The dropout is no probability, or the norm is negative.

    Reference:
        Kim 2014, Sections 2.1 and 3.1; Hinton et al. 2012 (the norm).
    """

    def __init__(
        self, body: nn.Module, *, num_classes: int = 0, dropout: float = 0.5, max_norm: float = 3.0
    ) -> None:
        super().__init__()
        if not 0 <= dropout < 1 or max_norm < 0:
            raise ValueError(f"dropout must be in [0, 1), max_norm at least 0: got {dropout}, {max_norm}")
        self.body, self.num_classes = body, num_classes
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(int(body.output_size), num_classes or 1)  # type: ignore[arg-type]
        self.max_norm = max_norm

    def forward(self, tokens: Tokens, lengths: Lengths | None = None) -> Float[Tensor, " batch *classes"]:
        """The logits of each text, or its number."""
        weight = self.head.weight
        if self.max_norm:
            weight = torch.renorm(weight, 2, 0, self.max_norm)
        found = F.linear(self.dropout(self.body(tokens, lengths)), weight, self.head.bias)
        return found if self.num_classes else found[:, 0]


BAG = {"dropout": 0.0}
CLASSES = ("num_classes",)
UNBOUNDED = {"max_norm": 0.0}
FIXED = ("num_classes", "max_norm")
"""What no one chooses of a real number, whose map nothing bounds."""

classifier = headed(NgramFilters, TextHead, "A text CNN to class logits.", dictated=CLASSES)
regressor = headed(
    NgramFilters, TextHead, "A text CNN to one real number.", defaults=UNBOUNDED, without=FIXED
)
bag_classifier = headed(
    MeanVector,
    TextHead,
    "A bag of words to class logits.",
    defaults=BAG | UNBOUNDED,
    dictated=CLASSES,
)
bag_regressor = headed(
    MeanVector, TextHead, "A bag of words to one real number.", defaults=BAG | UNBOUNDED, without=FIXED
)
