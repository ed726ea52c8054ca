"""The TCN against blocks written with torch's own convolutions; streams, lengths, causality, reach."""

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from margin.sequence.convolution.tcn import TCN, classifier, language, regressor

LENGTHS = torch.tensor([4, 0, 9, 1, 6])


def made(hidden: int = 4, layers: int = 2, kernel: int = 3, n: int = 3) -> TCN:
    torch.manual_seed(0)
    return TCN(n, hidden=hidden, layers=layers, kernel=kernel).double()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=Generator().manual_seed(1))


class Published(nn.Module):
    """The authors' block (locuslab/TCN): symmetric padding, whose right end is chomped off."""

    def __init__(self, n: int, m: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.chomp = (kernel - 1) * dilation
        self.one = weight_norm(nn.Conv1d(n, m, kernel, padding=self.chomp, dilation=dilation))
        self.two = weight_norm(nn.Conv1d(m, m, kernel, padding=self.chomp, dilation=dilation))
        self.down = nn.Conv1d(n, m, 1) if n != m else None

    def forward(self, x: Tensor) -> Tensor:
        z = x
        for layer in (self.one, self.two):
            z = layer(z)
            z = z[..., : z.shape[2] - self.chomp].relu()
        return (z + (x if self.down is None else self.down(x))).relu()


@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_it_is_the_authors_network(kernel: int) -> None:
    model, x = made(layers=3, kernel=kernel), drawn(5, 9, 3)
    expected = x.mT
    for i, block in enumerate(model.blocks):
        theirs = Published(3 if i == 0 else 4, 4, kernel, 2**i).double()
        theirs.one.load_state_dict(block.convolutions[0].state_dict())
        theirs.two.load_state_dict(block.convolutions[1].state_dict())
        if theirs.down is not None:
            theirs.down.weight.data = block.shortcut.weight.data[..., None]
            theirs.down.bias.data = block.shortcut.bias.data
        expected = theirs(expected)
    torch.testing.assert_close(model(x)[0], expected.mT, rtol=0, atol=1e-12)


def test_a_stream_gives_what_the_whole_gives() -> None:
    model, x = made(layers=3), drawn(5, 9, 3)
    whole, after = model(x)
    state, outputs = model.initial(x), []
    for x_t in x.unbind(1):
        y, state = model.step(x_t, state)
        outputs.append(y)
    torch.testing.assert_close(torch.stack(outputs, 1), whole, rtol=0, atol=1e-12)
    for own, other in zip(state, after, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("padding", [7.0, torch.nan])
def test_each_example_is_what_it_is_alone(padding: float) -> None:
    model, x = made(layers=3), drawn(5, 9, 3)
    for i, length in enumerate(LENGTHS):
        x[i, length:] = padding
    outputs, state = model(x, LENGTHS)
    outputs.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
    for i, length in enumerate(LENGTHS.tolist()):
        alone, own = model(x[i : i + 1, :length])
        torch.testing.assert_close(outputs[i : i + 1, :length], alone, rtol=0, atol=1e-12)
        assert not outputs[i, length:].any()
        for one, other in zip(state, own, strict=True):
            torch.testing.assert_close(one[i : i + 1], other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("layers", "kernel"), [(1, 2), (2, 3), (4, 2), (3, 1)])
def test_it_reads_as_far_back_as_it_says_and_nothing_later(layers: int, kernel: int) -> None:
    """The largest lag with a derivative, over 8 draws of 32 units: they are not all shut at once."""
    model = made(hidden=32, layers=layers, kernel=kernel)
    field = 1 + 2 * (kernel - 1) * (2**layers - 1)
    assert model.receptive_field == field
    x = drawn(8, field + 3, 3).requires_grad_()
    t = field
    (gradient,) = torch.autograd.grad(model(x)[0][:, t].sum(), x)
    read = gradient.abs().amax((0, 2))
    assert not read[t + 1 :].any()
    assert not read[: t - field + 1].any()
    assert read[t - field + 1] > 0
    assert read[t] > 0


def test_the_readouts_take_any_length_and_streams_of_tokens() -> None:
    torch.manual_seed(0)
    x = drawn(5, 9, 3)
    for model, shape in ((classifier(3, 4, hidden=5), (5, 4)), (regressor(3, hidden=5), (5,))):
        outputs = model.double()(x, LENGTHS)
        assert outputs.shape == shape
        torch.testing.assert_close(outputs[2:3], model(x[2:3]), rtol=0, atol=1e-12)
        assert torch.equal(outputs[1], model.head.bias.squeeze(0))  # nothing was read
    talk = language(7, hidden=6, layers=2).double()
    tokens = torch.randint(7, (3, 8), generator=Generator().manual_seed(0))
    logits, state = [], talk.initial(tokens)
    for token in tokens.unbind(1):
        y, state = talk.step(token, state)
        logits.append(y)
    torch.testing.assert_close(torch.stack(logits, 1), talk(tokens), rtol=0, atol=1e-12)


def test_dropout_is_for_training_alone() -> None:
    torch.manual_seed(0)
    model = TCN(3, hidden=64, layers=1, dropout=0.5).double()
    x = drawn(2, 9, 3)
    assert not torch.equal(model(x)[0], model(x)[0])
    model.eval()
    assert torch.equal(model(x)[0], model(x)[0])


def test_a_bad_option_is_refused() -> None:
    with pytest.raises(ValueError, match="layers must be at least 1: got 0"):
        TCN(3, layers=0)
    with pytest.raises(ValueError, match="kernel and dilation"):
        TCN(3, kernel=0)
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\): got"):
        TCN(3, dropout=1.5)
