"""The gated average is the scan of its gates and shares, in value and in every derivative."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import ModuleType

import pytest
import torch
from torch import Generator, Tensor
from torch.autograd import gradcheck, gradgradcheck

import margin.nn.scan as module
from margin.nn.recurrence import Recurrence
from margin.sequence.linear import mingru, minlstm
from margin.sequence.linear.mingru import MinGRU, averaged, gated_average, gated_step
from margin.sequence.linear.minlstm import MinLSTM

FORWARD = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"  # torch's own, in forward mode
)


def loop(logits: Tensor, values: Tensor, initial: Tensor) -> Tensor:
    """The definition, step by step."""
    z, states = initial, []
    for s, v in zip(logits.sigmoid().unbind(1), values.unbind(1), strict=True):
        z = s * z + (1 - s) * v
        states.append(z)
    return torch.stack(states, 1)


def drawn(time: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits with both ends among them (gates 0 and 1 to the last digit), values, z_0 and a cotangent."""
    g = Generator().manual_seed(seed)
    logits, values, cotangent = torch.randn(3, 3, time, 5, dtype=torch.float64, generator=g).mul(2).unbind(0)
    logits = torch.where(torch.rand(logits.shape, generator=g) < 0.1, 60.0 * logits.sign(), logits)
    return logits, values, torch.randn(3, 5, dtype=torch.float64, generator=g), cotangent


@pytest.mark.parametrize("cache", [2**21, 3 * 5 * 8 * 3])
@pytest.mark.parametrize("time", [1, 2, 3, 4, 16, 33, 100, 300])
def test_it_is_the_loop(time: int, cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE", cache)
    *given, cotangent = drawn(time)
    given = [x.requires_grad_() for x in given]
    found, expected = gated_average(*given), loop(*given)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    wanted = torch.autograd.grad(expected, given, cotangent)
    torch.testing.assert_close(
        torch.autograd.grad(found, given, cotangent, retain_graph=True), wanted, atol=1e-10, rtol=0
    )
    graphed = torch.autograd.grad(found, given, cotangent, create_graph=True)
    torch.testing.assert_close(graphed, wanted, atol=1e-10, rtol=0)


@FORWARD
@pytest.mark.parametrize("time", [1, 3, 40])
def test_first_and_second_derivatives(time: int) -> None:
    given = [x.requires_grad_() for x in drawn(time)[:3]]
    assert gradcheck(gated_average, given, check_forward_ad=True, fast_mode=time > 1)
    assert gradgradcheck(gated_average, given, fast_mode=time > 1)


def test_a_batch_of_gradients_is_each_of_them() -> None:
    *given, g = drawn(9)
    given = [x.requires_grad_() for x in given]
    states, many = gated_average(*given), torch.stack((g, -g, g.square()))
    found = torch.autograd.grad(states, given, many, retain_graph=True, is_grads_batched=True)
    for i in range(3):
        own = torch.autograd.grad(states, given, many[i], retain_graph=True)
        torch.testing.assert_close(tuple(x[i] for x in found), own)


@FORWARD
def test_transforms() -> None:
    logits, values, initial, _ = drawn(9)
    many = torch.stack((logits, -logits)), torch.stack((values, 2 * values))

    def energy(f, *x: Tensor) -> Tensor:
        return f(*x).square().sum()

    each = torch.func.vmap(torch.func.grad(lambda *x: energy(gated_average, *x), (0, 1, 2)), (0, 0, None))(
        *many, initial
    )
    for i in range(2):
        own = torch.func.grad(lambda *x: energy(loop, *x), (0, 1, 2))(many[0][i], many[1][i], initial)
        torch.testing.assert_close(tuple(x[i] for x in each), own)
    for i in range(3):
        expected = torch.func.jacrev(loop, i)(logits, values, initial)
        torch.testing.assert_close(torch.func.jacfwd(gated_average, i)(logits, values, initial), expected)


def test_ends_of_the_gate_keep_and_renew() -> None:
    _, values, initial, _ = drawn(50)
    kept = gated_average(torch.full_like(values, 1e4), values, initial)
    assert torch.equal(kept, initial[:, None].expand_as(kept))
    assert torch.equal(gated_average(torch.full_like(values, -1e4), values, initial), values)


def test_half_a_share_halves_the_gradient_each_step() -> None:
    """k steps of constant gate s multiply the gradient by s^k, exactly for powers of 2."""
    for s, logit in ((0.5, 0.0), (0.25, -torch.log(torch.tensor(3.0, dtype=torch.float64)))):
        initial = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
        logits = torch.full((1, 40, 1), float(logit), dtype=torch.float64)
        states = gated_average(logits, torch.zeros_like(logits), initial)
        for k in (1, 2, 17, 40):
            (grad,) = torch.autograd.grad(states[0, k - 1, 0], initial, retain_graph=True)
            assert grad.item() == pytest.approx(s**k, rel=1e-12)


def test_lengths_end_each_example_at_its_own_step() -> None:
    logits, values, initial, _ = drawn(7)
    lengths = torch.tensor([4, 0, 7])
    outputs, (state,) = averaged(logits, values, initial, lengths)
    expected = loop(logits, values, initial)
    torch.testing.assert_close(outputs[0, :4], expected[0, :4])
    assert not outputs[0, 4:].any()
    assert not outputs[1].any()
    torch.testing.assert_close(state, torch.stack((expected[0, 3], initial[1], expected[2, 6])))
    empty, (same,) = averaged(logits[:, :0], values[:, :0], initial, None)
    assert empty.shape == (3, 0, 5)
    assert torch.equal(same, initial)


def test_only_what_is_asked_has_a_gradient_and_inputs_stay() -> None:
    given = drawn(40)[:3]
    kept = [x.clone() for x in given]
    for flags in ((True, False, False), (False, True, False), (False, False, True)):
        now = [x.clone().requires_grad_(f) for x, f in zip(given, flags, strict=True)]
        gated_average(*now).sum().backward()
        assert [x.grad is not None for x in now] == list(flags)
        assert all(torch.equal(x.detach(), y) for x, y in zip(now, kept, strict=True))


def test_layouts() -> None:
    logits, values, initial, cotangent = drawn(100)
    expected = loop(logits, values, initial)
    both = torch.cat((logits, values), -1).transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    found = gated_average(*both.chunk(2, -1), initial)
    torch.testing.assert_close(found, expected)
    (one,) = torch.autograd.grad(found, both, cotangent.transpose(0, 1).contiguous().transpose(0, 1))
    other = torch.cat((logits, values), -1).requires_grad_()
    (two,) = torch.autograd.grad(loop(*other.chunk(2, -1), initial), other, cotangent)
    torch.testing.assert_close(one, two)


def test_shapes_that_differ_are_refused() -> None:
    shapes = [((2, 3, 4), (2, 3, 4), (2, 4)), ((2, 3, 5), (2, 3, 4), (2, 4)), ((2, 3, 4), (2, 3, 4), (1, 4))]
    assert gated_average(*(torch.zeros(shape) for shape in shapes[0])).shape == (2, 3, 4)
    for case in shapes[1:]:
        with pytest.raises(ValueError, match=r"one shape \(batch, time, features\)"):
            gated_average(*(torch.zeros(shape) for shape in case))


def test_the_state_goes_on() -> None:
    logits, values, initial, _ = drawn(60)
    whole = gated_average(logits, values, initial)
    for start, end in pairwise((0, 17, 40, 60)):
        before = initial if start == 0 else whole[:, start - 1]
        part = gated_average(logits[:, start:end], values[:, start:end], before)
        torch.testing.assert_close(part, whole[:, start:end])


def test_a_step_is_the_loops_and_keeps_the_types() -> None:
    logits, values, initial, _ = drawn(5)
    expected = loop(logits, values, initial)
    z = initial
    for t in range(5):
        z = gated_step(logits[:, t], values[:, t], z)
        torch.testing.assert_close(z, expected[:, t], atol=1e-14, rtol=0)
    half, single = torch.float16, torch.float32
    for values_type, initial_type, wanted in ((half, half, half), (half, single, single)):
        given = (logits.to(values_type), values.to(values_type), initial.to(initial_type))
        assert gated_average(*given).dtype == wanted
        assert gated_average(*(x[:, :0] if x.ndim == 3 else x for x in given)).dtype == wanted
        assert gated_step(given[0][:, 0], given[1][:, 0], given[2]).dtype == wanted


@pytest.mark.parametrize("compiling", [False, True])
def test_numbers_of_16_bits_are_averaged_in_float32(compiling: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share 0.999 keeps 0.999^1000 = 0.3677 of a state; rounded to bfloat16 it is 1 and keeps all."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    logits = torch.full((1, 1000, 1), 6.90625, dtype=torch.bfloat16)  # log 999 = 6.9068
    start = torch.ones(1, 1, dtype=torch.bfloat16)
    state, expected = start.float(), float((-1000 * (-logits[0, 0, 0].double()).exp().log1p()).exp())
    assert expected == pytest.approx(0.3677, rel=1e-3)
    assert float(gated_average(logits, 0 * logits, start)[0, -1]) == pytest.approx(expected, rel=1 / 256)
    whole = gated_average(logits, 0 * logits, state)
    assert whole.dtype == torch.float32
    assert float(whole[0, -1]) == pytest.approx(expected, rel=1e-4)
    for t in range(1000):
        state = gated_step(logits[:, t], 0 * logits[:, t], state)
    assert float(state) == pytest.approx(expected, rel=1e-4)


def test_gradients_come_in_the_types_of_what_was_given() -> None:
    logits, values, initial, cotangent = (x.to(torch.bfloat16).requires_grad_() for x in drawn(20))
    found = torch.autograd.grad(gated_average(logits, values, initial), (logits, values, initial), cotangent)
    assert {x.dtype for x in found} == {torch.bfloat16}
    exact = [x.detach().double().requires_grad_() for x in (logits, values, initial)]
    expected = torch.autograd.grad(loop(*exact), exact, cotangent.double())
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.double(), y, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("make", [MinGRU, partial(MinGRU, gate="renews"), MinLSTM])
def test_autocast_to_bfloat16_keeps_long_memories_and_streams(make: Callable[..., Recurrence]) -> None:
    torch.manual_seed(0)
    model, x = make(3, hidden=64, memory=500), torch.randn(2, 1000, 3)
    with torch.no_grad():
        exact, _ = model(x)
        with torch.autocast("cpu", torch.bfloat16):
            whole, (after,) = model(x)
            outputs, state = [], model.initial(x)
            for x_t in x.unbind(1):
                y, state = model.step(x_t, state)
                outputs.append(y)
    assert whole.dtype == after.dtype == state[0].dtype == torch.float32
    torch.testing.assert_close(whole, torch.stack(outputs, 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(after, state[0], atol=1e-5, rtol=0)
    assert float((whole - exact).norm() / exact.norm()) < 0.02


@pytest.mark.parametrize("area", [mingru, minlstm])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parameters_of_16_bits_give_outputs_of_16_bits(area: ModuleType, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = area.recurrence(3, hidden=8, layers=2).to(dtype), torch.randn(2, 9, 3).to(dtype)
    whole, _ = model(x)
    y, _ = model.step(x[:, 0], model.initial(x))
    assert whole.dtype == y.dtype == dtype
    torch.testing.assert_close(whole[:, 0], y, atol=0.01, rtol=0.01)
