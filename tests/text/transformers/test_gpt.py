"""GPT: its size, causality, generation with kept keys and values, texts longer than the positions."""

import pytest
import torch
from torch import Generator

from margin.text.transformers.gpt import GPT, CachedSteps

POSITIONS = ["learned", "sinusoidal", "rotary", "none"]


def build(**options: object) -> GPT:
    torch.manual_seed(0)
    model = GPT(11, 9, **{"width": 16, "depth": 2, "heads": 2, **options}).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(11, shape, generator=Generator().manual_seed(1))


def size(**options: object) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in GPT(50257, 128, **options).parameters())


def test_gpt_2_small_has_its_parameters() -> None:
    small = {"width": 768, "depth": 12, "heads": 12, "places": 1024}
    assert size(**small) == 124_439_808
    assert size(**small, readout="own") == 124_439_808 + 50257 * 768


@pytest.mark.parametrize("positions", POSITIONS)
def test_token_by_token_is_all_at_once(positions: str) -> None:
    model, x = build(positions=positions), tokens(3, 9)
    with torch.no_grad():
        whole, state, rows = model(x), model.initial(x), []
        for token in x.unbind(1):
            before = tuple(part.clone() for part in state)
            logits, new = model.step(token, state)
            assert all(torch.equal(one, other) for one, other in zip(before, state, strict=True))
            rows.append(logits)
            state = new
        torch.testing.assert_close(torch.stack(rows, 1), whole)
        kept = CachedSteps(model, x[:, :4], 9)
        for t in range(4, 9):
            torch.testing.assert_close(kept(x[:, t], ())[0], whole[:, t])


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_prediction_reads_the_past_alone_and_positions_tell_the_order(positions: str) -> None:
    model, x = build(positions=positions), tokens(2, 9)
    later = x.clone()
    later[:, 5:] = (later[:, 5:] + 3) % 11
    one, other = model(x), model(later)
    assert torch.equal(one[:, :5], other[:, :5])
    assert not torch.allclose(one[:, 5], other[:, 5])
    # a causal mask alone tells the order from the second block on
    shallow, swapped = build(positions=positions, depth=1), x[:, [1, 0, *range(2, 9)]]
    assert torch.allclose(shallow(swapped)[:, 2:], shallow(x)[:, 2:]) == (positions == "none")


def test_padding_changes_nothing_and_is_zero() -> None:
    model, x = build(), tokens(3, 9)
    lengths = torch.tensor([9, 4, 0])
    found = model(x, lengths)
    torch.testing.assert_close(found[1, :4], model(x[1:2, :4])[0])
    assert bool((found[1, 4:] == 0).all()) and bool((found[2] == 0).all())


def test_greedy_generation_is_the_argmax_of_the_whole_model() -> None:
    model, x = build(), tokens(1, 3)[0]
    found = model.sample(2, generator=Generator(), prefix=x, length=6, temperature=0)
    text = x.expand(2, -1)
    for _ in range(6):
        text = torch.cat((text, model(text)[:, -1:].argmax(2)), 1)
    assert torch.equal(found, text[:, 3:])
    assert model.sample(2, generator=Generator(), prefix=x).shape == (2, 6)  # as many as have a position
    assert model.sample(2, generator=Generator()).shape == (2, 9)
    assert build(positions="rotary").sample(1, generator=Generator(), prefix=x).shape == (1, 200)


def test_a_longer_text_is_refused_or_read_by_its_last_tokens() -> None:
    model, x = build(), tokens(1, 4)[0]
    with pytest.raises(ValueError, match="no longer than the 9 positions: got 10 tokens"):
        model(tokens(1, 10))
    with pytest.raises(ValueError, match=r"fit the 9 positions: got 4 and 6 tokens; --sample.beyond slide"):
        model.sample(1, generator=Generator(), prefix=x, length=6)
    found = model.sample(1, generator=Generator(), prefix=x, length=12, temperature=0, beyond="slide")
    text = x[None]
    for _ in range(12):
        text = torch.cat((text, model(text[:, -9:])[:, -1:].argmax(2)), 1)
    assert torch.equal(found, text[:, 4:])


@pytest.mark.parametrize("read", [2, 3, 9, 13])
def test_a_sliding_window_is_of_all_positions(read: int) -> None:
    """A model of large weights whose logits differ where one token less is read; the logits themselves."""
    model, x = build(), tokens(2, 20)
    kept = CachedSteps(model, x[:, :read], 20)
    for t in range(read, 20):
        found = kept(x[:, t], ())[0]
        torch.testing.assert_close(found, model(x[:, max(0, t - 8) : t + 1])[:, -1])
        assert t < 9 or not torch.allclose(found, model(x[:, t - 7 : t + 1])[:, -1])


def test_matrices_that_add_to_the_residual_path_are_drawn_smaller() -> None:
    """By the root of their number, 2 a block; within 5 standard errors of a deviation, 1 / sqrt(2 n)."""
    torch.manual_seed(0)
    model = GPT(11, 9, width=64, depth=8, heads=2)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            onto = name.endswith(("attention.output.weight", "mlp.3.weight"))
            wanted = 0.02 / 4 if onto else 0.02
            error = 5 * wanted / (2 * parameter.numel()) ** 0.5
            assert abs(float(parameter.detach().std()) - wanted) < error, name


def test_drawn_frequencies_are_the_models() -> None:
    """Of 20,000 draws each of 121 pairs is within 5.5 standard errors: fails with probability below 1e-5."""
    model = build()
    pairs = model.sample(20_000, generator=Generator().manual_seed(3), length=2)
    first = torch.arange(11)
    p = model(first[:, None])[:, 0].softmax(1) / 11
    found = torch.zeros(11, 11, dtype=torch.float64)
    found.view(-1).scatter_add_(0, pairs[:, 0] * 11 + pairs[:, 1], torch.ones(20_000, dtype=torch.float64))
    error = (p * (1 - p) / 20_000).sqrt()
    assert bool(((found / 20_000 - p).abs() <= 5.5 * error + 1e-4).all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "heads must divide the width"),
        ({"depth": 0}, "must be at least 1"),
        ({"places": 8}, "at least a block of 9 tokens: got 8; set --data.time 8"),
        ({"places": -1}, "hidden and places at least 0"),
        ({"dropout": 1.0}, "dropout must be in"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)
