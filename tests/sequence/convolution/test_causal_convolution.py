"""Causal convolutions: torch's conv1d of a padded sequence, a loop by hand, streams, lengths, causality."""

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from margin.sequence.convolution.causal import CausalConv1d

SHAPES = [(1, 1), (1, 3), (2, 1), (2, 4), (3, 1), (3, 2), (5, 3)]
LENGTHS = torch.tensor([4, 0, 9, 1, 6])


def made(kernel: int, dilation: int, n: int = 3, m: int = 4) -> CausalConv1d:
    torch.manual_seed(0)
    return CausalConv1d(n, m, kernel=kernel, dilation=dilation).double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=Generator().manual_seed(seed))


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_it_is_the_convolution_of_the_sequence_padded_on_the_left(kernel: int, dilation: int) -> None:
    layer, x = made(kernel, dilation), drawn(5, 9, 3)
    padded = F.pad(x.mT, ((kernel - 1) * dilation, 0))
    expected = F.conv1d(padded, layer.weight, layer.bias, dilation=dilation).mT
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=1e-12)
    torch_layer = nn.Conv1d(3, 4, kernel, dilation=dilation).double()
    layer.load_state_dict(torch_layer.state_dict())  # one layout of the weights
    torch.testing.assert_close(layer(x)[0], torch_layer(padded).mT, rtol=0, atol=1e-12)


def test_it_is_the_sum_over_taps_written_out() -> None:
    kernel, dilation = 3, 2
    layer, x = made(kernel, dilation, 2, 2), drawn(1, 8, 2)
    y = layer(x)[0][0].tolist()
    weight, bias, given = layer.weight.tolist(), layer.bias.tolist(), x[0].tolist()
    for t in range(8):
        for o in range(2):
            total = bias[o]
            for j in range(kernel):
                s = t - (kernel - 1 - j) * dilation
                total += sum(weight[o][i][j] * given[s][i] for i in range(2)) if s >= 0 else 0.0
            assert y[t][o] == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_a_stream_gives_what_the_whole_gives(kernel: int, dilation: int) -> None:
    layer, x = made(kernel, dilation), drawn(5, 9, 3)
    for state in (layer.initial(x), (drawn(5, layer.reach, 3, seed=2),)):
        whole, (after,) = layer(x, None, state)
        outputs = []
        for x_t in x.unbind(1):
            y, state = layer.step(x_t, state)
            outputs.append(y)
        torch.testing.assert_close(torch.stack(outputs, 1), whole, rtol=0, atol=1e-12)
        torch.testing.assert_close(state[0], after, rtol=0, atol=0)
    first, state = layer(x[:, :4])
    second, _ = layer(x[:, 4:], None, state)
    torch.testing.assert_close(torch.cat((first, second), 1), layer(x)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
@pytest.mark.parametrize("padding", [3.0, torch.nan])
def test_each_example_is_what_it_is_alone(kernel: int, dilation: int, padding: float) -> None:
    layer, x = made(kernel, dilation), drawn(5, 9, 3)
    for i, length in enumerate(LENGTHS):
        x[i, length:] = padding
    outputs, (state,) = layer(x, LENGTHS)
    outputs.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in layer.parameters())
    for i, length in enumerate(LENGTHS.tolist()):
        alone, (own,) = layer(x[i : i + 1, :length])
        torch.testing.assert_close(outputs[i : i + 1, :length], alone, rtol=0, atol=1e-12)
        assert not outputs[i, length:].any()
        torch.testing.assert_close(state[i : i + 1], own, rtol=0, atol=0)


def test_the_state_is_the_last_inputs_the_oldest_first() -> None:
    layer = made(3, 2, 1, 1)
    x = torch.arange(1.0, 7.0).double()[None, :, None]
    assert layer(x)[1][0].flatten().tolist() == [3.0, 4.0, 5.0, 6.0]
    assert layer(x, torch.tensor([1]))[1][0].flatten().tolist() == [0.0, 0.0, 0.0, 1.0]
    earlier = (torch.tensor([-4.0, -3.0, -2.0, -1.0]).double()[None, :, None],)
    assert layer(x, torch.tensor([1]), earlier)[1][0].flatten().tolist() == [-3.0, -2.0, -1.0, 1.0]
    assert layer(x, torch.tensor([0]), earlier)[1][0].flatten().tolist() == [-4.0, -3.0, -2.0, -1.0]


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_an_output_depends_on_its_taps_and_on_nothing_else(kernel: int, dilation: int) -> None:
    layer, x = made(kernel, dilation), drawn(1, 12, 3).requires_grad_()
    for t in (0, 5, 11):
        (gradient,) = torch.autograd.grad(layer(x)[0][:, t].sum(), x)
        read = {s for s in range(12) if gradient[0, s].any()}
        assert read == {t - j * dilation for j in range(kernel) if t - j * dilation >= 0}
    assert layer.receptive_field == 1 + (kernel - 1) * dilation


def test_no_steps_and_no_examples_are_defined() -> None:
    layer = made(3, 2)
    outputs, (state,) = layer(drawn(2, 0, 3))
    assert outputs.shape == (2, 0, 4)
    assert state.shape == (2, 4, 3)
    assert layer(drawn(0, 5, 3))[0].shape == (0, 5, 4)
    outputs, (state,) = layer(drawn(2, 3, 3), torch.zeros(2, dtype=torch.long))
    assert not outputs.any()
    assert not state.any()


def test_a_bad_option_or_length_is_refused() -> None:
    for kernel, dilation in ((0, 1), (2, 0), (-1, 1)):
        with pytest.raises(ValueError, match=f"at least 1: got {kernel} and {dilation}"):
            CausalConv1d(1, 1, kernel=kernel, dilation=dilation)
    with pytest.raises(ValueError, match=r"lengths must be in 0 \.\. 9"):
        made(2, 1)(drawn(5, 9, 3), LENGTHS + 1)
