"""The encoder-decoder: a distribution, the same with and without padding, at once and token by token."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from margin.data.formats.text import pair_examples
from margin.nn.seq2seq import BEGIN, END, Seq2Seq
from margin.sequence.seq2seq.model import AttentionSeq2Seq, Encoder, EncoderDecoder

SOURCE, VOCAB = 7, 4
OPTIONS = {"embedding": 6, "hidden": 5}


def build(kind: type, cell: str, **options: object) -> Seq2Seq:
    torch.manual_seed(0)
    return kind(SOURCE, VOCAB, cell=cell, **OPTIONS, **options).double().eval()


def sources(*lengths: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(SOURCE, (len(lengths), max(lengths)), generator=g), torch.tensor(lengths)


EVERY = pytest.mark.parametrize(
    ("kind", "cell"),
    [(kind, cell) for kind in (EncoderDecoder, AttentionSeq2Seq) for cell in ("gru", "lstm")],
)


def test_the_tokens_that_begin_and_end_are_those_of_the_data() -> None:
    assert (BEGIN, END) == (pair_examples.BOS, pair_examples.EOS)


@EVERY
def test_padding_changes_nothing(kind: type, cell: str) -> None:
    """A batch of mixed lengths, 0 included, is its examples alone, whatever stands at the padding."""
    model = build(kind, cell)
    source, lengths = sources(6, 3, 0, 1, 5)
    target = torch.randint(VOCAB, (5, 4), generator=torch.Generator().manual_seed(1))
    together = model(source, lengths, target)
    other = torch.where(torch.arange(6) < lengths[:, None], source, (source + 1) % SOURCE)
    torch.testing.assert_close(model(other, lengths, target), together, rtol=0, atol=0)
    for i, n in enumerate(lengths.tolist()):
        alone = model(source[i : i + 1, :n], lengths[i : i + 1], target[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], rtol=0, atol=1e-10)
        if n:
            every = model(source[i : i + 1, :n], torch.tensor([n]), target[i : i + 1])
            torch.testing.assert_close(every[0], together[i], rtol=0, atol=1e-10)


@EVERY
def test_padding_gets_no_gradient(kind: type, cell: str) -> None:
    model = build(kind, cell)
    source, lengths = torch.tensor([[1, 2, 6, 6], [3, 4, 5, 1], [6, 6, 6, 6]]), torch.tensor([2, 4, 0])
    model(source, lengths, torch.full((3, 2), BEGIN)).square().sum().backward()
    grad = model.encoder.embedding.weight.grad
    assert grad is not None and bool(grad.isfinite().all())
    assert not bool(grad[6].any())  # the token of the padding alone
    assert bool(grad[1].any())


@EVERY
@pytest.mark.parametrize("options", [{}, {"layers": 2}])
def test_step_by_step_is_all_at_once(kind: type, cell: str, options: dict[str, int]) -> None:
    if options and kind is AttentionSeq2Seq:
        options = {"attention": 3}
    model = build(kind, cell, **options)
    source, lengths = sources(4, 0, 2)
    target = torch.randint(VOCAB, (3, 5), generator=torch.Generator().manual_seed(2))
    at_once = model(source, lengths, target)
    state = model.initial(source, lengths)
    for t, token in enumerate(target.unbind(1)):
        logits, state = model.step(token, state)
        torch.testing.assert_close(logits, at_once[:, t], rtol=0, atol=1e-12)


@EVERY
def test_a_logit_reads_no_later_token(kind: type, cell: str) -> None:
    model = build(kind, cell)
    source, lengths = sources(4, 2)
    target = torch.randint(VOCAB, (2, 5), generator=torch.Generator().manual_seed(3))
    for t in range(5):
        later = target.clone()
        later[:, t:] = (later[:, t:] + 1) % VOCAB
        one, other = (model(source, lengths, y) for y in (target, later))
        torch.testing.assert_close(one[:, :t], other[:, :t], rtol=0, atol=0)
        assert not torch.equal(one[:, t], other[:, t])


def log_p(model: Seq2Seq, source: Tensor, lengths: Tensor, sequences: list[tuple[int, ...]]) -> Tensor:
    """log p of each sequence for each source, by teacher forcing of all of them, padded with END."""
    time, count = max(map(len, sequences)), len(sequences)
    asked = torch.tensor([[*y, *[END] * (time - len(y))] for y in sequences])
    shown = torch.cat((torch.full((count, 1), BEGIN), asked[:, :-1]), 1)
    there = torch.arange(time) < torch.tensor([len(y) for y in sequences])[:, None]
    rows = []
    for i in range(len(source)):
        logits = model(source[i : i + 1].expand(count, -1), lengths[i : i + 1].expand(count), shown)
        gained = logits.log_softmax(-1).gather(2, asked[:, :, None])[:, :, 0]
        rows.append((gained * there).sum(1).detach())
    return torch.stack(rows)


@EVERY
def test_the_likelihood_sums_to_one(kind: type, cell: str) -> None:
    """Over all 40 + 81 sequences that end within 4 tokens or come to no end, each by teacher forcing."""
    model, longest = build(kind, cell), 4
    source, lengths = sources(3, 5, 0)
    others = [v for v in range(VOCAB) if v != END]
    outcomes = [(*body, END) for n in range(longest) for body in itertools.product(others, repeat=n)] + list(
        itertools.product(others, repeat=longest)
    )
    assert len(outcomes) == 1 + 3 + 9 + 27 + 81
    assert log_p(model, source, lengths, outcomes).exp().sum(1).tolist() == pytest.approx([1] * 3, abs=1e-12)


@EVERY
def test_a_translation_is_as_probable_as_it_says_and_the_best_there_is(kind: type, cell: str) -> None:
    model, longest = build(kind, cell), 3
    source, lengths = sources(3, 5, 0)
    others = [v for v in range(VOCAB) if v != END]
    found = model.translate(source, lengths, width=VOCAB**longest, longest=longest)
    ended = [(*body, END) for n in range(longest) for body in itertools.product(others, repeat=n)]
    for i, scores in enumerate(log_p(model, source, lengths, ended).tolist()):
        best = max(range(len(ended)), key=scores.__getitem__)
        assert tuple(found.tokens[i, : found.lengths[i]].tolist()) == ended[best]
        assert float(found.log_probability[i]) == pytest.approx(scores[best], abs=1e-10)


@EVERY
@pytest.mark.parametrize("width", [1, 3])
def test_translations_do_not_depend_on_the_batch(kind: type, cell: str, width: int) -> None:
    model = build(kind, cell)
    source, lengths = sources(6, 3, 0, 1)
    together = model.translate(source, lengths, width=width, longest=6)
    for i, n in enumerate(lengths.tolist()):
        alone = model.translate(source[i : i + 1, :n], lengths[i : i + 1], width=width, longest=6)
        count = int(together.lengths[i])
        assert alone.tokens[0].tolist() == together.tokens[i, :count].tolist()


def test_translating_leaves_no_trace() -> None:
    model = build(EncoderDecoder, "gru", dropout=0.5).train()
    before = torch.get_rng_state()
    source, lengths = sources(6, 3)
    one, other = (model.translate(source, lengths, longest=5) for _ in range(2))
    assert torch.equal(one.log_probability, other.log_probability)  # dropout is off
    assert model.training and model.dropout.training
    assert torch.equal(before, torch.get_rng_state())


def test_without_an_end_a_translation_says_so() -> None:
    model = build(EncoderDecoder, "gru")
    with torch.no_grad():
        model.readout.weight.zero_()
        model.readout.bias.copy_(torch.tensor([0.0, 0.0, -50.0, 1.0]))
    source, lengths = sources(2, 3)
    found = model.translate(source, lengths, longest=7)
    assert found.tokens.tolist() == [[3] * 7] * 2
    assert found.ended.tolist() == [False, False]
    with pytest.raises(ValueError, match="width must be at least 1: got 0"):
        model.translate(source, lengths, width=0)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_equations(cell: str) -> None:
    """z_0 = zeta_S, z_t = F(z_{t-1}, E y_{t-1}), logits W z_t + b, cell by cell."""
    model = build(EncoderDecoder, cell)
    source, target = sources(4)[0], torch.tensor([[BEGIN, 3, 0]])
    make = nn.GRUCell if cell == "gru" else nn.LSTMCell
    encoder, decoder = (make(6, 5).double() for _ in range(2))
    for ours, theirs in ((model.encoder.recurrence, encoder), (model.decoder, decoder)):
        theirs.load_state_dict({k.removesuffix("_l0"): v for k, v in ours.state_dict().items()})
    z = torch.zeros(1, 5, dtype=torch.float64)
    z = z if cell == "gru" else (z, z)
    for token in source.unbind(1):
        z = encoder(model.encoder.embedding(token), z)
    for t, token in enumerate(target.unbind(1)):
        z = decoder(model.embedding(token), z)
        expected = model.readout(z if cell == "gru" else z[0])
        torch.testing.assert_close(model(source, torch.tensor([4]), target)[:, t], expected)


def test_annotations_are_those_of_both_directions() -> None:
    """At each token, the forward reading up to it beside the backward reading down to it."""
    torch.manual_seed(0)
    options = {"embedding": 3, "hidden": 4, "layers": 1, "cell": "gru", "dropout": 0.0}
    encoder = Encoder(SOURCE, directions="both", **options).double()
    source, lengths = sources(5, 3, 0)
    annotations, (final,) = encoder(source, lengths)
    for i, n in enumerate(lengths.tolist()):
        assert not bool(annotations[i, n:].any())
        if n:
            outputs, last = encoder.recurrence(encoder.embedding(source[i : i + 1, :n]))
            torch.testing.assert_close(annotations[i, :n], outputs[0])
            torch.testing.assert_close(final[i], last[:, 0])
            torch.testing.assert_close(final[i, 1], annotations[i, 0, 4:])
        else:
            assert not bool(final[i].any())


@EVERY
def test_bad_input_is_refused(kind: type, cell: str) -> None:
    model = build(kind, cell)
    source, _ = sources(3, 3)
    begin = torch.full((2, 1), BEGIN)
    for lengths in ([3, 4], [-1, 2]):
        with pytest.raises(ValueError, match=r"lengths must be in 0 \.\. 3"):
            model(source, torch.tensor(lengths), begin)
    with pytest.raises(ValueError, match="a target must hold its first token at least"):
        model(source, torch.tensor([3, 3]), begin[:, :0])
    for name in ("embedding", "hidden"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1: got 0"):
            kind(SOURCE, VOCAB, **{name: 0})
    for vocab in ((0, VOCAB), (SOURCE, 2)):
        with pytest.raises(ValueError, match="vocab_size must"):
            kind(*vocab)
