"""Skip-gram: its windows, its loss, its step against autograd, its optimum, what it learns of two topics."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Generator

from margin.core.options import Training
from margin.data.sets.tiny.sequences import words as topics
from margin.engine.loop import State
from margin.runs.training import finish, prepare
from margin.text.embeddings.counts import Words, cooccurrences
from margin.text.embeddings.skipgram import (
    POWER,
    TILE,
    SkipGram,
    Windows,
    kept_share,
    margins,
    moved,
    negative_sampling,
    skip_gram,
    windows,
)


def drawn(text: torch.Tensor, subsample: float = 0.0, sentence: torch.Tensor | None = None, **options):
    given = {"window": 3, "negatives": 5, "noise": 7} | options
    examples = windows(Words(text, sentence), subsample=subsample, **given)
    return examples, examples.take(torch.arange(len(examples)), Generator().manual_seed(1))


@pytest.fixture
def text() -> torch.Tensor:
    return torch.randint(11, (100,), generator=Generator().manual_seed(0))


def test_a_window_holds_the_nearest_words_on_both_sides(text) -> None:
    _, batch = drawn(text)
    places = batch.inputs[1]
    positive = batch.weight[0, :, :, :TILE]
    assert places.shape == (1, 3, TILE)
    assert torch.equal(places.flatten()[:100], torch.arange(100))
    for tile in range(3):
        for i in range(TILE):
            near = positive[tile, i].nonzero()[:, 0]
            real = tile * TILE + i < 100
            assert len(near) > 0 if real else len(near) == 0
            if real:
                reach = int((near - i).abs().max())
                expected = [
                    j
                    for j in range(i - reach, i + reach + 1)
                    if j != i and 0 <= j < min(TILE, 100 - tile * TILE)
                ]
                assert near.tolist() == expected and reach <= 3


def test_noise_weighs_k_words_a_pair_and_follows_the_counts_to_three_quarters() -> None:
    text = torch.cat([torch.full((n,), k) for k, n in enumerate((1, 16, 81, 0, 256))])
    _, batch = drawn(text[torch.randperm(len(text), generator=Generator().manual_seed(0))], noise=2000)
    positive, noise = batch.weight.split((TILE, 2000), -1)
    torch.testing.assert_close(noise.sum(-1), 5 * positive.sum(-1), rtol=1e-4, atol=0)
    drawn_words = batch.inputs[2].flatten().bincount(minlength=5).double()
    law = torch.tensor([1, 8, 27, 0, 64.0], dtype=torch.float64) / 100  # n^(3/4)
    share = drawn_words / drawn_words.sum()
    assert POWER == 0.75 and drawn_words[3] == 0
    deviation = (law * (1 - law) / drawn_words.sum()).sqrt()
    assert bool(((share - law).abs() <= 4.5 * deviation + 1e-12).all())  # 5 cells: fails 1 time in 3e4


def test_windows_end_with_the_sentence(text) -> None:
    sentence = torch.arange(100) // 7
    _, batch = drawn(text, sentence=sentence)
    own = sentence[batch.inputs[1]]
    apart = own.unsqueeze(-1) != own.unsqueeze(-2)
    assert not bool((batch.weight[..., :TILE] * apart).any())


def test_frequent_words_are_left_out_at_the_published_rate() -> None:
    counts = torch.tensor([10.0, 1000.0, 98990.0], dtype=torch.float64)
    share = kept_share(counts, 1e-3)
    f = 0.98990
    assert share.tolist() == pytest.approx([1, (1e-3 / 0.01) ** 0.5 + 0.1, (1e-3 / f) ** 0.5 + 1e-3 / f])
    assert kept_share(counts, 0).tolist() == [1, 1, 1]
    text = (torch.rand(20000, generator=Generator().manual_seed(0)) < 0.01).long()  # 0 is 99 %
    _, batch = drawn(text, subsample=1e-3)
    real = batch.weight[..., :TILE].sum(-1) > 0
    kept = int((real & (batch.inputs[0].gather(1, batch.inputs[1].flatten(1)).view_as(real) == 0)).sum())
    zeros = int((text == 0).sum())
    expected = zeros * float(kept_share(text.bincount().double(), 1e-3)[0])
    assert abs(kept - expected) < 4.5 * expected**0.5 + 5


def test_a_step_is_autograds_step_on_the_summed_loss(text) -> None:
    examples, batch = drawn(text)
    assert isinstance(examples, Windows)
    torch.manual_seed(0)
    model = SkipGram(11, dim=6, window=3, noise=7).double()
    torch.nn.init.normal_(model.contexts.weight)
    torch.nn.init.normal_(model.words.weight)
    batch = batch._replace(weight=batch.weight.double())
    terms = negative_sampling(model, batch, Generator())
    total = (terms * batch.weight).sum()
    pairs = batch.weight[..., :TILE].sum()
    grads = torch.autograd.grad(total / 6, list(model.parameters()))
    expected = [p.detach() - 1e-3 * g for p, g in zip(model.parameters(), grads, strict=True)]
    kept = batch.inputs[0][0][batch.inputs[1][0]]
    others = torch.cat((kept, batch.inputs[2][0]), -1)
    before = copy.deepcopy(model)
    with torch.no_grad():
        loss = moved((model.words.weight, model.contexts.weight), kept, others, batch.weight[0], 1e-3)
    assert float(loss / pairs) == pytest.approx(float(total.detach() / batch.weight.sum()))
    reported = skip_gram(total_steps=10, lr=1e-9)(State({"model": before}), batch)["loss"]
    assert reported == pytest.approx(float(total.detach() / batch.weight.sum()), rel=1e-6)
    for p, q in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), q)


def test_the_loss_of_noise_is_of_the_reversed_score() -> None:
    """-log sigma(-z) = softplus(z); log(1 - P(D = 0)), as it is sometimes printed, is log sigma(z)."""
    z = torch.linspace(-3, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(1 - z.sigmoid(), (-z).sigmoid())
    scores = torch.stack((z[:1].repeat(1, 1), z[1:2].repeat(1, 1)), -1)[0]
    loss = F.softplus(-margins(scores))
    torch.testing.assert_close(loss, torch.stack((-z[:1].sigmoid().log(), -(-z[1:2]).sigmoid().log()), -1))
    assert not torch.allclose(loss[:, 1], -(1 - (-z[1:2]).sigmoid()).log())


@pytest.mark.parametrize("negatives", [1, 5])
def test_the_optimum_is_the_shifted_pmi(negatives: int) -> None:
    """Exact Newton steps on the expected loss of a full-rank score matrix (Levy and Goldberg 2014)."""
    ids = torch.randint(4, (60,), generator=Generator().manual_seed(0))
    counts = cooccurrences(Words(ids), 2, 4)
    C = counts.dense()
    noise = negatives * C.sum(1, keepdim=True) * C.sum(0) / C.sum()  # k #(w) q(v), q the frequency
    S = torch.zeros_like(C)
    for _ in range(60):
        gradient = -C * (-S).sigmoid() + noise * S.sigmoid()
        S = S - (gradient / ((C + noise) * S.sigmoid() * (-S).sigmoid())).clamp(-1, 1)
    expected = counts.pmi() - torch.tensor(float(negatives), dtype=torch.float64).log()
    found = S[counts.rows, counts.columns]
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    if negatives > 1:  # without the shift, as it is sometimes remembered, it is off by log k
        assert float((found - counts.pmi()).abs().min()) > 1


def test_the_reach_of_a_word_is_drawn_evenly_up_to_the_window() -> None:
    """A pair at distance r counts with probability (R - r + 1) / R: within 5 standard errors."""
    _, batch = drawn(torch.arange(9000), window=4)
    near = batch.weight[:-1, :21, :, :TILE].flatten(0, 1)  # tiles that are full
    for distance in range(1, 6):
        share, p = near.diagonal(distance, 1, 2).flatten(), max(0.0, (5 - distance) / 4)
        assert len(share) > 7000
        assert abs(float(share.mean()) - p) <= 5 * (p * (1 - p) / len(share)) ** 0.5


def test_the_rate_falls_linearly_to_a_250th(text) -> None:
    _, batch = drawn(text)
    moves = []
    for step in (0, 5, 10):
        torch.manual_seed(0)
        model = SkipGram(11, dim=6, window=3, noise=7).double()
        torch.nn.init.normal_(model.contexts.weight)
        before = model.words.weight.detach().clone()
        state = State({"model": model})
        state.step = step
        skip_gram(total_steps=10, lr=1e-3)(state, batch._replace(weight=batch.weight.double()))
        moves.append(model.words.weight.detach() - before)
    torch.testing.assert_close(moves[1], 0.5 * moves[0])
    torch.testing.assert_close(moves[2], 0.004 * moves[0], atol=1e-9, rtol=1e-5)


def test_words_of_a_topic_come_near_each_other(tmp_path) -> None:
    arguments = {"options": {"dim": 8, "subsample": 0.0}, "step": {"lr": 0.1}, "rule": ""}
    job = prepare("text/skipgram", topics(), arguments, Training(epochs=150, seed=0), tmp_path / "run")
    finish(job)
    x = F.normalize(job.state.core.words.weight.detach(), dim=1)
    topic = torch.tensor([len(word) for word in job.data.encoding["vocabulary"]])
    cosine, same = x @ x.T, topic[:, None] == topic
    other = ~torch.eye(len(x), dtype=torch.bool)
    assert cosine[same & other].mean() > cosine[~same].mean() + 0.3


def test_options_under_which_nothing_is_learned_are_refused() -> None:
    for options, said in (
        ({"negatives": 0}, "negatives must be at least 1"),
        ({"window": 0}, "window must be at least 1"),
        ({"window": 48}, "window must be less than 48"),
        ({"subsample": -1.0}, "subsample must be at least 0"),
        ({"noise": 0}, "noise must be at least 1"),
    ):
        with pytest.raises(ValueError, match=said):
            SkipGram(5, **options)
    with pytest.raises(ValueError, match="lr must be positive"):
        skip_gram(10, lr=0.0)
