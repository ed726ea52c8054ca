"""Additive attention: its equations written out, its rows, its padding; and that it learns an order."""

import pytest
import torch
from torch.nn import functional as F

from margin.nn.seq2seq import BEGIN, END, Seq2Seq
from margin.sequence.seq2seq.model import (
    AdditiveAttention,
    AttentionSeq2Seq,
    EncoderDecoder,
    additive_scores,
    masked_softmax,
)


def test_the_weights_and_the_context_written_out() -> None:
    """e_ij = v . tanh(W z + U zeta_j), a = softmax over j, c = sum_j a_j zeta_j, with loops."""
    torch.manual_seed(0)
    layer = AdditiveAttention(3, 4, units=5).double()
    z, zeta = torch.randn(2, 3).double(), torch.randn(2, 6, 4).double()
    present = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    context, weights = layer(z, layer.keys(zeta), zeta, present)
    for i in range(2):
        e = {}
        for j in range(6):
            if present[i, j]:
                inside = torch.tanh(layer.query.weight @ z[i] + layer.key.weight @ zeta[i, j])
                e[j] = (layer.v.weight[0] @ inside).exp()
        total = sum(e.values())
        expected = sum((e[j] / total) * zeta[i, j] for j in e)
        torch.testing.assert_close(context[i], expected)
        for j in range(6):
            torch.testing.assert_close(weights[i, j], e[j] / total if j in e else torch.zeros(()).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e30])
def test_rows_sum_to_one_and_padding_has_exactly_nothing(dtype: torch.dtype, scale: float) -> None:
    g = torch.Generator().manual_seed(0)
    scores = scale * torch.randn(50, 9, generator=g, dtype=dtype)
    present = torch.rand(50, 9, generator=g) < 0.6
    present[0], present[1] = False, torch.arange(9) == 4
    weights = masked_softmax(scores, present)
    assert not bool(weights[~present].any())
    some = present.any(1)
    torch.testing.assert_close(weights.sum(1)[some], torch.ones(int(some.sum()), dtype=dtype))
    assert weights[0].tolist() == [0.0] * 9
    assert weights[1, 4] == 1


def test_a_source_without_tokens_has_a_finite_gradient() -> None:
    scores = torch.zeros(2, 3, requires_grad=True)
    masked_softmax(scores, torch.tensor([[False] * 3, [True, False, True]])).square().sum().backward()
    assert scores.grad is not None and bool(scores.grad.isfinite().all())
    assert scores.grad[0].tolist() == [0.0, 0.0, 0.0]


def test_scores_know_no_padding() -> None:
    """What stands at the padding, huge numbers included, changes neither weights nor context."""
    torch.manual_seed(0)
    layer = AdditiveAttention(3, 4).double()
    z, zeta = torch.randn(1, 3).double(), torch.randn(1, 5, 4).double()
    present = torch.tensor([[True, True, True, False, False]])
    short = layer(z, layer.keys(zeta[:, :3]), zeta[:, :3], present[:, :3])
    zeta[:, 3:] = 1e6
    long = layer(z, layer.keys(zeta), zeta, present)
    torch.testing.assert_close(long[0], short[0], rtol=0, atol=1e-15)
    torch.testing.assert_close(long[1][:, :3], short[1], rtol=0, atol=1e-15)


def test_keys_decide_not_their_order() -> None:
    """The weights of permuted annotations are the permuted weights."""
    g = torch.Generator().manual_seed(0)
    query, keys, v = (
        torch.randn(2, 5, generator=g),
        torch.randn(2, 7, 5, generator=g),
        torch.randn(5, generator=g),
    )
    order = torch.randperm(7, generator=g)
    torch.testing.assert_close(
        additive_scores(query, keys[:, order], v), additive_scores(query, keys, v)[:, order]
    )


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_decoder_written_out(cell: str) -> None:
    """z_0 from the backward reading of the first token, then step by step with torch's cells."""
    torch.manual_seed(1)
    model = AttentionSeq2Seq(7, 5, cell=cell, embedding=3, hidden=4, attention=6).double()
    source, target = torch.tensor([[3, 5, 6]]), torch.tensor([[BEGIN, 4, 0]])
    zeta, _ = model.encoder.recurrence(model.encoder.embedding(source))
    z = torch.tanh(model.bridge.weight @ zeta[0, 0, 4:] + model.bridge.bias)[None]
    own = z if cell == "gru" else (z, torch.zeros_like(z))
    logits = model(source, torch.tensor([3]), target)
    for i, token in enumerate(target.unbind(1)):
        z = own if cell == "gru" else own[0]
        e = torch.tanh(z @ model.attention.query.weight.T + zeta[0] @ model.attention.key.weight.T)
        a = (e @ model.attention.v.weight[0]).softmax(0)
        context = (a[:, None] * zeta[0]).sum(0)[None]
        own = model.decoder(torch.cat((model.embedding(token), context), 1), own)
        z = own if cell == "gru" else own[0]
        pairs = model.maxout(torch.cat((z, model.embedding(token), context), 1)).reshape(3, 2)
        torch.testing.assert_close(logits[:, i], model.readout(pairs.amax(1)[None]))
        row = model.alignment(source, torch.tensor([3]), target)[0, i]
        torch.testing.assert_close(row, a)


def trained(kind: type, words: int, answer: str, steps: int) -> tuple[Seq2Seq, torch.Tensor, torch.Tensor]:
    """A small model after descent on random words of one length, and held-out words with their answers."""
    torch.manual_seed(0)
    model = kind(9, 9, embedding=16, hidden=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(0)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        source = torch.randint(4, 9, (count, words), generator=g)
        y = source if answer == "copy" else source.flip(1)
        return source, torch.cat((y, torch.full((count, 1), END)), 1)

    for _ in range(steps):
        source, asked = draw(64)
        shown = torch.cat((torch.full((64, 1), BEGIN), asked[:, :-1]), 1)
        loss = F.cross_entropy(model(source, torch.full((64,), words), shown).flatten(0, 1), asked.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model, *draw(100)


@pytest.mark.parametrize("answer", ["copy", "reverse"])
def test_it_learns_to_read_along_the_diagonal(answer: str) -> None:
    """Copying aligns token i with i, reversing with S - 1 - i; a seed fixed, no draw is left to chance."""
    words = 5
    model, source, asked = trained(AttentionSeq2Seq, words, answer, 150)
    shown = torch.cat((torch.full((100, 1), BEGIN), asked[:, :-1]), 1)
    most = model.alignment(source, torch.full((100,), words), shown)[:, :words].argmax(2)
    expected = torch.arange(words) if answer == "copy" else torch.arange(words).flip(0)
    assert float((most == expected).float().mean()) > 0.95
    found = model.translate(source, torch.full((100,), words), longest=words + 1)
    assert float((found.tokens == asked).all(1).float().mean()) > 0.95


def test_the_bottleneck_learns_short_words() -> None:
    model, source, asked = trained(EncoderDecoder, 3, "reverse", 200)
    found = model.translate(source, torch.full((100,), 3), longest=4)
    assert float((found.tokens == asked).all(1).float().mean()) > 0.95
