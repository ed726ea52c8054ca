r"""Word vectors from counts by descent: the log-bilinear model and GloVe.

.. math:: P(v | w) = \frac{e^{x_w \cdot y_v}}{\sum_u e^{x_w \cdot y_u}}, \qquad
    \sum_{ab} f(C_{ab})\,(x_a \cdot y_b + b_a + c_b - \log C_{ab})^2

The softmax of the first (Mnih and Hinton, 2007) is over the predicted word v: a sum over w with v fixed is no
normalization of P(v | w).
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, Step, descent
from margin.nn.preprocessed import core_of
from margin.text.embeddings.counts import check_window


class LogBilinear(nn.Module):
    """The distribution of a context word v given a word w, P(v | w) = softmax_v(x_w . y_v).

    Fitted to the counts of a text it is skip-gram by maximum likelihood: with n >= V every conditional
    distribution is reached, and x_w . y_v is log P(v | w) up to a number a word w.

    Args:
        vocab_size: V, words of the vocabulary.
        dim: n, numbers a vector.
        window: R, words on either side whose pairs are counted.

    Raises:
        ValueError: The window is below 1.

    Reference:
        Mnih and Hinton 2007, Section 4; Mikolov et al. 2013, Equations 1 and 2.
    """

    def __init__(self, vocab_size: int, *, dim: int = 100, window: int = 5) -> None:
        super().__init__()
        check_window(window)
        self.words = nn.Embedding(vocab_size, dim)
        self.contexts = nn.Embedding(vocab_size, dim)
        for table in (self.words, self.contexts):
            nn.init.normal_(table.weight, std=dim**-0.25 / 2)

    def forward(self, tokens: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch vocab"]:
        """The logits of the context word of each word."""
        return self.words(tokens) @ self.contexts.weight.T


class GloVe(nn.Module):
    """Two vectors and two numbers a word, x_a . y_b + b_a + c_b ~ log C_ab; the word's vector is x_a + y_a.

    Args:
        vocab_size: V, words of the vocabulary.
        dim: Numbers a vector.
        window: R, words on either side; a pair at distance r counts 1 / r.

    Raises:
        ValueError: The window is below 1.

    Reference:
        Pennington, Socher and Manning 2014, Equations 8 and 9, Section 4.2.
    """

    def __init__(self, vocab_size: int, *, dim: int = 100, window: int = 10) -> None:
        super().__init__()
        check_window(window)
        self.words = nn.Embedding(vocab_size, dim)
        self.contexts = nn.Embedding(vocab_size, dim)
        self.word_bias = nn.Parameter(torch.zeros(vocab_size))
        self.context_bias = nn.Parameter(torch.zeros(vocab_size))
        for table in (self.words, self.contexts):
            nn.init.uniform_(table.weight, -0.5 / dim, 0.5 / dim)

    def vectors(self) -> Float[Tensor, "vocab dim"]:
        """The vector of each word, x + y."""
        return self.words.weight + self.contexts.weight

    def forward(self, words: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch dim"]:
        """The vectors of words."""
        return self.words(words) + self.contexts(words)

    def log_counts(self, pairs: Int[Tensor, "batch 2"]) -> Float[Tensor, " batch"]:
        """x_a . y_b + b_a + c_b of each pair."""
        a, b = pairs.unbind(1)
        product = (self.words(a) * self.contexts(b)).sum(1)
        return product + self.word_bias[a] + self.context_bias[b]


def glove_loss(
    log_counts: Float[Tensor, "*pairs"], counts: Float[Tensor, "*pairs"], largest: float, power: float
) -> Float[Tensor, "*pairs"]:
    """f(C) (log_counts - log C)^2 with f(C) = min(1, (C / largest)^power), in squared nats.

    Reference: Pennington, Socher and Manning 2014, Equations 8 and 9.
    """
    return (counts / largest).pow(power).clamp(max=1) * (log_counts - counts.log()).square()


def weighted_least_squares(descend: GradientUpdate, *, largest: float = 100.0, power: float = 0.75) -> Step:
    """Descent on GloVe's weighted squares, of the pairs that are seen.

    Args:
        descend: How a loss moves the parameters.
        largest: The count from which on pairs count alike, > 0.
        power: Of rarer ones, in (0, 1].

    Raises:
        ValueError: An option is out of range.
    """
    if not largest > 0 or not 0 < power <= 1:
        raise ValueError(f"GloVe needs largest > 0 and power in (0, 1]: got {largest} and {power}")

    def objective(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        if batch.targets is None:
            raise ValueError("GloVe needs counts of pairs of words: got none")
        core: Any = core_of(model)
        log_counts = core.log_counts(batch.inputs[0])
        return glove_loss(log_counts, batch.targets.to(log_counts), largest, power)

    return descent(objective, descend)
