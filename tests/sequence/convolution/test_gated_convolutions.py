"""WaveNet's trunk against its formulas written out step by step; streams, lengths, reach."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.sequence.convolution.causal import GatedConvolutions, gated

LENGTHS = torch.tensor([4, 0, 9, 1, 6])


def made(width: int = 3, **options: int) -> GatedConvolutions:
    torch.manual_seed(0)
    return GatedConvolutions(width, **{"skip": 4, "layers": 3} | options).double()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=Generator().manual_seed(1))


def by_hand(model: GatedConvolutions, x: list[list[float]], kernel: int) -> list[list[float]]:
    """Equation 2 and Figure 4 with lists: filter, gate, residual and skip of every layer at every step."""
    width = len(x[0])
    skip = model.skip.weight.tolist()
    y = [list(model.skip.bias.tolist()) for _ in x]
    for number, layer in enumerate(model.layers):
        c = layer.convolution
        weight, bias = c.weight.tolist(), c.bias.tolist()
        after = []
        for t in range(len(x)):
            a = list(bias)
            for o in range(2 * width):
                for j in range(kernel):
                    s = t - (kernel - 1 - j) * c.dilation
                    if s >= 0:
                        a[o] += sum(weight[o][i][j] * x[s][i] for i in range(width))
            z = [math.tanh(a[o]) / (1 + math.exp(-a[width + o])) for o in range(width)]
            for o, row in enumerate(skip):
                y[t][o] += sum(row[number * width + i] * z[i] for i in range(width))
            if number < len(model.layers) - 1:
                back, shift = layer.residual.weight.tolist(), layer.residual.bias.tolist()
                maps = [sum(back[o][i] * z[i] for i in range(width)) + shift[o] for o in range(width)]
                after.append([x[t][o] + maps[o] for o in range(width)])
        x = after
    return y


@pytest.mark.parametrize(
    "options", [{}, {"kernel": 3, "layers": 2}, {"stacks": 2, "layers": 2}, {"kernel": 1}]
)
def test_it_is_the_paper_written_out(options: dict[str, int]) -> None:
    model, x = made(**options), drawn(1, 9, 3)
    expected = by_hand(model, x[0].tolist(), options.get("kernel", 2))
    torch.testing.assert_close(
        model(x)[0][0], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_the_first_half_is_the_filter_the_second_the_gate() -> None:
    a = torch.tensor([2.0, -1.0, 0.0, 50.0])
    expected = torch.tensor([math.tanh(2.0) / 2, math.tanh(-1.0)])
    torch.testing.assert_close(gated(a), expected)


@pytest.mark.parametrize(
    ("layers", "stacks", "kernel", "field"), [(10, 1, 2, 1024), (10, 3, 2, 3070), (4, 2, 3, 61), (3, 1, 1, 1)]
)
def test_its_receptive_field(layers: int, stacks: int, kernel: int, field: int) -> None:
    """1,024 for dilations 1 .. 512 with two taps, as the paper says; the support of the derivative is it."""
    model = made(layers=layers, stacks=stacks, kernel=kernel)
    assert model.receptive_field == field
    x = drawn(1, field + 3, 3).requires_grad_()
    (gradient,) = torch.autograd.grad(model(x)[0][:, field].sum(), x)
    read = gradient[0].abs().amax(1)
    assert not read[field + 1 :].any()
    assert not read[:1].any()
    assert read[1] > 0
    assert read[field] > 0


def test_a_stack_is_repeated_as_a_whole() -> None:
    assert [c.dilation for c in made(layers=3, stacks=2).convolutions] == [1, 2, 4, 1, 2, 4]


@pytest.mark.parametrize("options", [{}, {"kernel": 3}, {"stacks": 2}])
def test_a_stream_gives_what_the_whole_gives(options: dict[str, int]) -> None:
    model, x = made(**options), drawn(5, 9, 3)
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
    model, x = made(), drawn(5, 9, 3)
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


def test_every_parameter_is_learned() -> None:
    model = made()
    model(drawn(2, 9, 3))[0].square().sum().backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not idle


def test_a_bad_option_is_refused() -> None:
    for options in ({"layers": 0}, {"stacks": 0}, {"kernel": 0}):
        with pytest.raises(ValueError, match="layers, stacks and kernel must be at least 1"):
            made(**options)
