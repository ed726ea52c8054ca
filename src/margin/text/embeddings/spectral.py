r"""Word vectors from counts by a truncated singular value decomposition of PMI (Levy and Goldberg, 2014).

.. math:: M \approx U_k S_k V_k^T, \qquad x_a = e_a^T U_k S_k^{1/2}
"""

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step
from margin.math.seeds import mix
from margin.text.embeddings.counts import Counts, check_window, counts_in

Association = Literal["ppmi", "counts"]
"""What is decomposed: max(0, PMI), or counts."""


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

    spectrum: Tensor

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
