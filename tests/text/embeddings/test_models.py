"""Vectors from counts: the softmax of the log-bilinear model, GloVe's squares, singular vectors."""

import numpy as np
import pytest
import torch
from torch import Generator

from margin.core.catalog import completed
from margin.core.types import Batch
from margin.engine.loop import State
from margin.text.embeddings.counts import Entries, Words, cooccurrences
from margin.text.embeddings.models import GloVe, LogBilinear, glove_loss, weighted_least_squares
from margin.text.embeddings.spectral import SpectralWords, associations, singular, truncated_svd


@pytest.fixture
def counts():
    ids = torch.cat((torch.randint(6, (80,), generator=Generator().manual_seed(0)), torch.arange(6)))
    return cooccurrences(Words(ids), 2, 6)


def test_the_log_bilinear_model_fits_every_conditional_distribution(counts) -> None:
    """Of dimension V, by LBFGS: P(v | w) is C_wv / C_w, and x . y is log P up to a number a word w."""
    torch.manual_seed(0)
    model = LogBilinear(6, dim=6).double()
    C = counts.dense()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3000, tolerance_grad=1e-12, tolerance_change=0)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = -(C * model(torch.arange(6)).log_softmax(1)).sum() / C.sum()
        value.backward()
        return value

    optimizer.step(loss)
    logits = model(torch.arange(6)).detach()
    P = C / C.sum(1, keepdim=True)
    torch.testing.assert_close(logits.softmax(1), P, atol=2e-5, rtol=0)
    assert logits.softmax(1).sum(1).tolist() == pytest.approx([1] * 6)
    shift = logits - P.log()
    seen = C > 0
    for row, here in zip(shift, seen, strict=True):
        assert float(row[here].max() - row[here].min()) < 1e-3
    # normalized over the conditioning word, as it is sometimes printed, rows of P(v | w) do not sum to 1
    assert float((logits.softmax(0).sum(1) - 1).abs().max()) > 0.01


def test_glove_of_full_rank_reaches_no_loss(counts) -> None:
    """n = V: alternating exact solves are not needed, Newton-like LBFGS ends at log C on every seen pair."""
    torch.manual_seed(0)
    model = GloVe(6, dim=6).double()
    pairs = torch.stack((counts.rows, counts.columns), 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3000, tolerance_grad=1e-14, tolerance_change=0)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = glove_loss(model.log_counts(pairs), counts.values, 100.0, 0.75).sum()
        value.backward()
        return value

    optimizer.step(loss)
    assert float(loss().detach()) < 1e-8
    torch.testing.assert_close(model.log_counts(pairs).detach(), counts.values.log(), atol=1e-3, rtol=0)
    torch.testing.assert_close(model.vectors(), model.words.weight + model.contexts.weight)
    torch.testing.assert_close(model(torch.arange(6)), model.vectors())


def test_gloves_weight_rises_to_1_at_the_largest_count() -> None:
    C = torch.tensor([1.0, 16.0, 100.0, 1000.0], dtype=torch.float64)
    found = glove_loss(C.log() + 2, C, 100.0, 0.75)
    assert found.tolist() == pytest.approx([4 * 0.01**0.75, 4 * 0.16**0.75, 4, 4])
    assert completed(weighted_least_squares, {}) == {"largest": 100.0, "power": 0.75}  # the paper's


@pytest.mark.parametrize("matrix", ["counts", "ppmi"])
def test_all_singular_vectors_give_the_matrix_again_and_decode_their_words(counts, matrix) -> None:
    model = SpectralWords(6, dim=9, matrix=matrix).double()
    examples = Entries(counts)
    truncated_svd()(State({"model": model}), examples.take(torch.arange(len(examples)), Generator()))
    M = associations(counts, matrix).dense()
    torch.testing.assert_close(model.words.weight @ model.contexts.weight.T, M)
    kept = (model.words.weight.norm(dim=1) > 0).nonzero()[:, 0]
    assert model.decode(model(kept)).tolist() == kept.tolist()
    # the eigenvalues have both signs, so that no X X^T is M; exponents 1 / k, as printed once, give another
    values = torch.linalg.eigvalsh(M)
    assert float(values.min()) < 0 < float(values.max())
    assert not torch.allclose(model.words.weight @ model.words.weight.T, M)
    assert sorted(values.abs().tolist(), reverse=True) == pytest.approx(model.spectrum.tolist())
    U = model.words.weight / model.spectrum.sqrt()
    assert not torch.allclose((U * model.spectrum ** (1 / 6)) @ (U * model.spectrum ** (1 / 6)).T, M)


def test_positive_pmi_leaves_out_what_meets_less_than_by_chance(counts) -> None:
    pmi = counts.pmi()
    assert float(pmi.min()) < 0 < float(pmi.max())
    assert torch.equal(associations(counts, "ppmi").values, pmi.where(pmi > 0, 0.0))
    assert torch.equal(associations(counts, "counts").values, counts.values)


def test_lanczos_finds_the_first_singular_vectors_of_a_large_matrix() -> None:
    ids = torch.randint(40, (3000,), generator=Generator().manual_seed(0)) ** 2 % 50
    counts = cooccurrences(Words(ids), 3, 50)
    U, S, V = singular(counts, 5, seed=0)
    expected = np.linalg.svd(counts.dense().numpy(), compute_uv=False)
    assert S.tolist() == pytest.approx(expected[:5].tolist())
    best = counts.dense().square().sum() - S.square().sum()
    torch.testing.assert_close((counts.dense() - (U * S) @ V.T).square().sum(), best)
    again = singular(counts, 5, seed=0)
    assert all(torch.equal(a, b) for a, b in zip((U, S, V), again, strict=True))


def test_the_loss_of_a_decomposition_is_what_is_left_out(counts) -> None:
    model = SpectralWords(6, dim=2, matrix="counts").double()
    batch = Entries(counts).take(torch.arange(len(counts.values)), Generator())
    found = truncated_svd()(State({"model": model}), batch)["loss"]
    M, x, y = counts.dense(), model.words.weight.detach(), model.contexts.weight.detach()
    left = (M - x @ y.T).square().sum() / M.square().sum()
    assert found == pytest.approx(float(left))
    with pytest.raises(ValueError, match="dim must be at least 1"):
        SpectralWords(6, dim=0)
    with pytest.raises(ValueError, match="counts of words must be given"):
        truncated_svd()(State({"model": model}), Batch(batch.inputs))
