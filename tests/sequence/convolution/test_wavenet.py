"""WaveNet: the shift, causality to the sample, generation by either way, frequencies of what is drawn."""

import pytest
import torch
from torch import Generator, Tensor

from margin.sequence.convolution.wavenet import WaveNet

LENGTHS = torch.tensor([4, 0, 9, 1, 6])


def made(vocab_size: int = 7, **options: int) -> WaveNet:
    torch.manual_seed(0)
    return WaveNet(vocab_size, **{"width": 4, "skip": 5, "layers": 3} | options).double()


def sharp(model: WaveNet) -> WaveNet:
    """The same with weights so large that what is predicted depends on what was read."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(7, shape, generator=Generator().manual_seed(seed))


def test_by_default_it_reads_1024_samples() -> None:
    assert WaveNet(256).trunk.receptive_field == 1024


def test_the_prediction_of_a_token_reads_no_token_from_it_on() -> None:
    """The paper's x_{<t}: the logits at t are of token t + 1, and read tokens t - R + 1 .. t alone."""
    model, tokens = made(), drawn(1, 20)
    vectors: list[Tensor] = []
    model.embedding.register_forward_hook(lambda module, given, out: vectors.append(out))
    logits = model(tokens)
    for predicted in (1, 9, 19):  # the token that is predicted, from the logits one before
        (gradient,) = torch.autograd.grad(logits[:, predicted - 1].sum(), vectors[0], retain_graph=True)
        read = {s for s in range(20) if gradient[0, s].any()}
        assert read == set(range(max(0, predicted - 8), predicted))


def test_it_trains_to_say_what_comes_next() -> None:
    """Of a row 0 1 2 0 1 2 .. the next token is certain: the loss goes to 0."""
    torch.manual_seed(0)
    model = WaveNet(3, width=8, skip=8, layers=2)
    row = torch.arange(31) % 3
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(model(row[None, :-1])[0], row[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.01
    said = model.sample(2, generator=Generator().manual_seed(0), length=9, prefix=row[:4], temperature=0)
    assert said.tolist() == [[1, 2, 0, 1, 2, 0, 1, 2, 0]] * 2


def test_each_example_is_what_it_is_alone() -> None:
    model, tokens = made(), drawn(5, 9)
    logits = model(tokens, LENGTHS)
    for i, length in enumerate(LENGTHS.tolist()):
        alone = model(tokens[i : i + 1, :length])
        torch.testing.assert_close(logits[i : i + 1, :length], alone, rtol=0, atol=1e-12)
        assert not logits[i, length:].any()


def test_a_stream_gives_what_the_whole_gives_and_leaves_its_state_alone() -> None:
    model, tokens = made(kernel=3), drawn(4, 12)
    expected, state = model(tokens), model.initial(tokens)
    for t, token in enumerate(tokens.unbind(1)):
        before = [part.clone() for part in state]
        old = state
        logits, state = model.step(token, state)
        torch.testing.assert_close(logits, expected[:, t], rtol=0, atol=1e-12)
        assert all(torch.equal(one, other) for one, other in zip(old, before, strict=True))


@pytest.mark.parametrize("prefix", [None, [3], [1, 2, 6, 0, 5]])
def test_generation_is_that_of_the_whole_network_run_again_for_each_token(prefix: list[int] | None) -> None:
    model = sharp(made(layers=4))
    given = None if prefix is None else torch.tensor(prefix)
    got = model.sample(3, generator=Generator().manual_seed(5), length=40, prefix=given)
    row = torch.tensor([3] if prefix is None else prefix).expand(3, -1)  # the middle of 7 levels is 3
    first, generator = row.shape[1], Generator().manual_seed(5)
    with torch.no_grad():
        for _ in range(40):
            p = model(row[:, -16:])[:, -1].softmax(-1)  # the receptive field is 16
            row = torch.cat((row, torch.multinomial(p, 1, generator=generator)), 1)
    assert torch.equal(got, row[:, first:])


def test_what_is_drawn_has_the_frequencies_of_the_model() -> None:
    """Pairs of tokens, 20,000 draws: Pearson's statistic of 49 cells is above 99 with probability 2e-5."""
    model = sharp(made())
    got = model.sample(20_000, generator=Generator().manual_seed(0), length=2)
    with torch.no_grad():
        first = model(torch.tensor([[3]]))[0, -1].softmax(-1)
        second = model(torch.stack((torch.full((7,), 3), torch.arange(7)), 1))[:, -1].softmax(-1)
    expected = 20_000 * first[:, None] * second
    counts = torch.bincount(got[:, 0] * 7 + got[:, 1], minlength=49).view(7, 7)
    assert ((counts - expected).square() / expected).sum() < 99


def test_sampling_leaves_no_trace_and_refuses_bad_counts() -> None:
    model = made()
    before = torch.get_rng_state()
    assert model.sample(2, generator=Generator().manual_seed(0), length=0).shape == (2, 0)
    model.sample(1, generator=Generator().manual_seed(0), length=3, top_k=1)
    assert torch.equal(torch.get_rng_state(), before)
    for count, length in ((0, 5), (1, -1)):
        with pytest.raises(ValueError, match=f"got {count} and {length}"):
            model.sample(count, generator=Generator(), length=length)
