r"""Word vectors from counts: the log-bilinear model, GloVe, and PMI with a truncated SVD.

.. math:: P(v | w) = \frac{e^{x_w \cdot y_v}}{\sum_u e^{x_w \cdot y_u}}, \qquad
    \sum_{ab} f(C_{ab})\,(x_a \cdot y_b + b_a + c_b - \log C_{ab})^2, \qquad M \approx U_k S_k V_k^T

The softmax of the first (Mnih and Hinton, 2007) is over the predicted word v: a sum over w with v fixed is no
normalization of P(v | w).
"""

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import GradientUpdate, State, Step, descent
from margin.math.seeds import mix
from margin.nn.preprocessed import core_of
from margin.text.embeddings.counts import Counts, check_window, counts_in

Association = Literal["ppmi", "counts"]


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


class SpectralWords(nn.Module):
    """Word vectors from the singular vectors of positive PMI, or of counts: x_a = e_a^T U_k S_k^{1/2}.

    (U S^{1/2}) (V S^{1/2})^T is the matrix of rank k that is nearest to M. A symmetric M with negative
    eigenvalues is no Gram matrix: its singular values are their absolute values, and signs stand in V.

    Args:
        vocab_size: V, words of the vocabulary.
        dim: k, singular vectors; the whole matrix is decomposed where it has no more.
        window: R, words on either side whose pairs are counted.
        matrix: M: max(0, PMI), or the counts as they are.

    Raises:
        ValueError: The window is below 1, or dim is not in 1 .. V.

    Reference:
        Levy and Goldberg 2014, Section 4 (SVD of shifted PPMI); Eckart and Young 1936.
    """

    def __init__(
        self, vocab_size: int, *, dim: int = 100, window: int = 5, matrix: Association = "ppmi"
    ) -> None:
        super().__init__()
        check_window(window)
        if matrix not in ("ppmi", "counts"):
            raise ValueError(f"matrix must be 'ppmi' or 'counts': got {matrix!r}")
        if dim < 1:
            raise ValueError(f"dim must be at least 1: got {dim}")
        self.matrix: Association = matrix
        rank = min(dim, vocab_size)
        self.words = nn.Embedding(vocab_size, rank)
        self.contexts = nn.Embedding(vocab_size, rank)
        self.register_buffer("spectrum", torch.zeros(rank))

    def forward(self, words: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch dim"]:
        """The vectors of words."""
        return self.words(words)

    def decode(self, vectors: Float[Tensor, "batch dim"]) -> Int[Tensor, " batch"]:
        """The word of each vector: x S^{-1/2} = e^T U is nearest to its row of U."""
        scale = self.spectrum.where(self.spectrum > 0, torch.inf).rsqrt()
        return torch.cdist(vectors * scale, self.words.weight * scale).argmin(1)


def associations(counts: Counts, matrix: Association) -> Counts:
    """The matrix M that is decomposed: the counts, or their positive PMI."""
    if matrix == "counts":
        return counts
    return Counts(counts.rows, counts.columns, counts.pmi().clamp(min=0), counts.size)


def singular(M: Counts, rank: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """The first singular vectors and values of a matrix, the largest first: U, S, V.

    Args:
        M: The matrix.
        rank: k.
        seed: Of the vector with which Lanczos' iteration begins.
    """
    if 3 * rank >= M.size:
        U, S, Vh = torch.linalg.svd(M.dense())
        return U[:, :rank], S[:rank], Vh[:rank].T
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import svds

    entries = (M.values.numpy(), (M.rows.numpy(), M.columns.numpy()))
    start = torch.randn(M.size, generator=Generator().manual_seed(mix(seed, 5)), dtype=torch.float64)
    U, S, Vh = svds(csr_array(entries, shape=(M.size, M.size)), k=rank, v0=start.numpy())
    order = S.argsort()[::-1].copy()
    return tuple(torch.from_numpy(x) for x in (U[:, order], S[order], Vh[order].T.copy()))  # type: ignore[return-value]


def truncated_svd() -> Step:
    """One exact solve on all counts: the truncated singular value decomposition of the matrix M."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        core: Any = state.core
        M = associations(counts_in(batch, core.words.num_embeddings), core.matrix)
        U, S, V = singular(M, len(core.spectrum), state.seed)
        sign = U.gather(0, U.abs().argmax(0, keepdim=True)).sign()  # a solver leaves it open
        core.words.weight.copy_(U * sign * S.sqrt())
        core.contexts.weight.copy_(V * sign * S.sqrt())
        core.spectrum.copy_(S)
        total = M.values.square().sum()
        return {"loss": float((total - S.square().sum()).clamp(min=0) / total)}

    return step
