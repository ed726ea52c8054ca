"""Steps from rings against the whole network, through every wrap of every ring."""

import pytest
import torch
from torch import Generator, Tensor

from margin.sequence.convolution import wavenet
from margin.sequence.convolution.causal import GatedConvolutions
from margin.sequence.convolution.wavenet import CachedSteps

OPTIONS = [
    {"layers": 5},
    {"layers": 3, "kernel": 3},
    {"layers": 3, "kernel": 4, "stacks": 2},
    {"layers": 2, "kernel": 1},
    {"layers": 1},
]


def made(**options: int) -> GatedConvolutions:
    torch.manual_seed(0)
    return GatedConvolutions(3, skip=4, **options).double()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=Generator().manual_seed(1))


def streamed(steps: CachedSteps, x: Tensor) -> Tensor:
    return torch.stack([steps(x_t) for x_t in x.unbind(1)], 1)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("table", [7, 1024])
def test_steps_are_the_whole_network(
    options: dict[str, int], table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of places are renewed in the middle of rings too: 7 shares no factor with their sizes."""
    monkeypatch.setattr(wavenet, "TABLE", table)
    model, x = made(**options), drawn(2, 100, 3)
    expected = model(x)[0]
    torch.testing.assert_close(
        streamed(CachedSteps(model, model.initial(x)), x), expected, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("options", OPTIONS)
def test_they_go_on_from_any_state_and_leave_it_as_it_was(options: dict[str, int]) -> None:
    model, x = made(**options), drawn(2, 60, 3)
    expected = model(x)[0]
    for first in (1, 5, 37):
        _, state = model(x[:, :first])
        before = [part.clone() for part in state]
        got = streamed(CachedSteps(model, state), x[:, first:])
        torch.testing.assert_close(got, expected[:, first:], rtol=0, atol=1e-10)
        assert all(torch.equal(one, other) for one, other in zip(state, before, strict=True))


def test_the_receptive_field_of_1024_is_kept() -> None:
    model, x = made(layers=10), drawn(1, 1100, 3)
    expected = model(x)[0]
    got = streamed(CachedSteps(model, model.initial(x)), x)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    x[:, 0] += 10
    moved = streamed(CachedSteps(model, model.initial(x)), x)
    assert (moved[:, 1023] - got[:, 1023]).abs().max() > 1e-12
    assert torch.equal(moved[:, 1024:], got[:, 1024:])


def test_an_output_is_not_overwritten_by_the_next() -> None:
    model, x = made(layers=3), drawn(2, 4, 3)
    steps = CachedSteps(model, model.initial(x))
    first = steps(x[:, 0])
    kept = first.clone()
    steps(x[:, 1])
    assert torch.equal(first, kept)


def test_it_holds_the_weights_of_its_moment_without_gradients() -> None:
    model, x = made(layers=3), drawn(2, 30, 3)
    expected = model(x)[0].detach()
    steps = CachedSteps(model, model.initial(x))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    got = streamed(steps, x)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    assert not got.requires_grad
