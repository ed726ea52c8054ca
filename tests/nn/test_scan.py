"""The scan is the loop, forward and backward, for any gates, lengths, layouts and segments of time."""

from itertools import product

import pytest
import torch
from torch import Generator, Tensor
from torch.autograd import gradcheck, gradgradcheck

import margin.nn.scan as module
from margin.nn.scan import advance, scan

SMALL = 400
"""Bytes of a segment that make many segments of a few steps each."""


def loop(a: Tensor, b: Tensor, initial: Tensor | None = None) -> Tensor:
    """The definition, step by step, on broadcast gates."""
    a = a.expand(b.shape)
    z = torch.zeros_like(b[:, :0]).sum(1) if initial is None else initial
    states = []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        z = a_t * z + b_t
        states.append(z)
    return torch.stack(states, 1)


def drawn(
    shape: tuple[int, ...], time: int, dtype: torch.dtype, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gates of modulus at most 1 with exact 0 and 1 among them, b, z_0 and a cotangent."""
    g = Generator().manual_seed(seed)
    a = 2 * torch.rand(shape, dtype=torch.float64, generator=g) - 1
    a = torch.where(torch.rand(shape, generator=g) < 0.2, torch.zeros_like(a), a)
    a = torch.where(torch.rand(shape, generator=g) < 0.2, torch.ones_like(a), a).to(dtype)
    if dtype.is_complex:
        phase = 6.28 * torch.rand(shape, dtype=torch.float64, generator=g)
        a = a * torch.polar(torch.ones_like(phase), phase)
    b = torch.randn(3, time, 5, dtype=dtype, generator=g)
    initial = torch.randn(3, 5, dtype=dtype, generator=g)
    return a, b, initial, torch.randn(3, time, 5, dtype=dtype, generator=g)


def compare(a: Tensor, b: Tensor, initial: Tensor | None, cotangent: Tensor) -> None:
    given = [x.detach().clone().requires_grad_() for x in (a, b, initial) if x is not None]
    found, expected = scan(*given), loop(*given)
    wanted = (expected, *torch.autograd.grad(expected, given, cotangent))
    plain = torch.autograd.grad(found, given, cotangent, retain_graph=True)
    graphed = torch.autograd.grad(found, given, cotangent, create_graph=True)
    for got in ((found, *plain), (found, *graphed)):
        for x, y in zip(got, wanted, strict=True):
            torch.testing.assert_close(x, y, atol=1e-10 * max(1.0, float(y.detach().abs().max())), rtol=0)


@pytest.fixture(params=[2**21, SMALL], ids=["one segment", "segments"])
def segmented(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE", request.param)
    return


@pytest.mark.usefixtures("segmented")
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("time", [1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 64, 100, 255, 256, 257, 300])
def test_it_is_the_loop_forward_and_backward(time: int, dtype: torch.dtype) -> None:
    for shape in ((3, time, 5), (time, 5), (5,), (1, time, 5), (3, 1, 5), (1, 1, 5), (time, 1), ()):
        a, b, initial, cotangent = drawn(shape, time, dtype)
        compare(a, b, initial, cotangent)
    compare(a, b, None, cotangent)


def test_it_is_the_loop_at_every_length() -> None:
    for time in range(1, 301):
        compare(*drawn((3, time, 5), time, torch.float64, seed=time))


@pytest.mark.parametrize("gate", [0.0, 1.0, -1.0, 1e-300])
def test_gates_at_their_ends(gate: float) -> None:
    """0 forgets all but the last term, 1 sums, -1 alternates; nothing is divided by a product of gates."""
    _, b, initial, cotangent = drawn((5,), 300, torch.float64)
    for shape in ((5,), (3, 300, 5)):
        a = torch.full(shape, gate, dtype=torch.float64)
        compare(a, b, initial, cotangent)
        if gate == 0.0:
            assert torch.equal(scan(a, b, initial), b)
        if gate == 1.0:
            torch.testing.assert_close(scan(a, b), b.cumsum(1))


def test_a_first_state_of_a_wider_type_widens_the_states() -> None:
    a, b, initial, _ = drawn((3, 40, 5), 40, torch.float64)
    turned = initial * torch.polar(torch.ones_like(initial), initial)
    states = scan(a, b, turned)
    assert states.dtype == torch.complex128
    torch.testing.assert_close(states, loop(a, b, turned), atol=1e-12, rtol=0)
    assert scan(a.float(), b.float(), initial).dtype == torch.float64
    assert scan(a, b.float(), initial.float()).dtype == torch.float64


@pytest.mark.parametrize("time", [1, 2, 40])
def test_what_a_compiler_reads_is_the_loop_too(time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for shape in ((3, time, 5), (time, 5), (5,), (1, time, 5), (3, 1, 5), ()):
        a, b, initial, cotangent = drawn(shape, time, torch.float64)
        compare(a, b, initial, cotangent)
        compare(a, b, None, cotangent)


def test_a_gate_of_zero_cuts_whatever_came_before() -> None:
    """Even where the loop's state was so large that a ratio of products would be infinite."""
    a = torch.full((1, 100, 1), 1e-5, dtype=torch.float64)
    a[:, 50] = 0.0
    b = torch.ones(1, 100, 1, dtype=torch.float64)
    torch.testing.assert_close(
        scan(a, b)[:, 50:],
        loop(a[:, 51:], b[:, 51:], b[:, 50]).new_tensor(0)
        + torch.cat((b[:, 50:51], loop(a[:, 51:], b[:, 51:], b[:, 50])), 1),
    )


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)  # torch, forward mode
@pytest.mark.usefixtures("segmented")
@pytest.mark.parametrize("time", [1, 3, 40])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_first_and_second_derivatives(time: int, dtype: torch.dtype) -> None:
    for shape in ((3, time, 5), (time, 5), (5,)):
        given = [x.requires_grad_() for x in drawn(shape, time, dtype)[:3]]
        fast = time > 1
        assert gradcheck(scan, given, check_forward_ad=True, fast_mode=fast)
        assert gradgradcheck(scan, given, fast_mode=fast)


def test_only_what_is_asked_has_a_gradient() -> None:
    a, b, initial, cotangent = drawn((3, 40, 5), 40, torch.float64)
    for flags in product((False, True), repeat=3):
        given = [x.clone().requires_grad_(f) for x, f in zip((a, b, initial), flags, strict=True)]
        states = scan(*given)
        assert states.requires_grad == any(flags)
        if any(flags):
            states.backward(cotangent)
        assert [x.grad is not None for x in given] == list(flags)


def test_a_real_gate_of_complex_states_has_a_real_gradient() -> None:
    a, b, initial, cotangent = drawn((5,), 40, torch.complex128)
    compare(a.real, b, initial, cotangent)
    compare(a, b, initial.real, cotangent)
    assert scan(a, b.real).dtype == torch.complex128
    assert scan(a.real.float(), b.real).dtype == torch.float64


@pytest.mark.usefixtures("segmented")
def test_the_layout_does_not_matter() -> None:
    a, b, initial, cotangent = drawn((3, 100, 5), 100, torch.float64)
    expected = loop(a, b, initial)
    times_first = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (a, b)]
    features_first = [x.permute(2, 0, 1).contiguous().permute(1, 2, 0) for x in (a, b)]
    strided = [torch.stack((x, x), -1)[..., 0] for x in (a, b)]
    for given in (times_first, features_first, strided):
        assert not given[0].is_contiguous()
        torch.testing.assert_close(scan(*given, initial), expected)
        compare(*given, initial, cotangent.transpose(0, 1).contiguous().transpose(0, 1))
    expanded = b[:1].expand(3, 100, 5)
    torch.testing.assert_close(scan(a, expanded, initial), loop(a, expanded, initial))
    conjugated = scan(a.to(torch.complex128).conj(), b.to(torch.complex128).conj())
    torch.testing.assert_close(conjugated.real, loop(a, b))


def test_inputs_are_as_before() -> None:
    given = drawn((3, 100, 5), 100, torch.float64)[:3]
    kept = [x.clone() for x in given]
    scan(*(x.requires_grad_() for x in given)).sum().backward()
    assert all(torch.equal(x, y) for x, y in zip(given, kept, strict=True))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("time", [1, 16, 33, 100, 300])
def test_it_may_be_solved_in_place_and_backward_in_time(order: int, time: int) -> None:
    a, b, initial, _ = drawn((3, time, 5), time, torch.float64)
    expected = loop(a.flip(1), b.flip(1), initial).flip(1) if order < 0 else loop(a, b, initial)
    out = b.clone()
    last = advance(a, out, initial, out, order)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(last, expected[:, -1 if order > 0 else 0])


@pytest.mark.parametrize("shape", [(3, 0, 5), (0, 4, 5), (3, 4, 0), (0, 0, 0)])
def test_nothing_in_is_nothing_out(shape: tuple[int, int, int]) -> None:
    a, b = torch.ones(shape, requires_grad=True), torch.ones(shape, requires_grad=True)
    initial = torch.ones(shape[0], shape[2], requires_grad=True)
    states = scan(a, b, initial)
    assert states.shape == shape
    states.sum().backward()
    assert a.grad.shape == b.grad.shape == shape
    if shape[1] == 0:
        assert not initial.grad.any()
    assert scan(torch.ones(shape[2]), b).shape == shape


def test_a_step_that_is_not_finite_spoils_no_earlier_one() -> None:
    """Before it the states are the loop's; from it on they are NaN, as in the loop, gates of 0 included."""
    a, b, initial, _ = drawn((3, 300, 5), 300, torch.float64)
    for place, bad in product((0, 15, 16, 17, 150, 299), (float("nan"), float("inf"))):
        spoilt = b.clone()
        spoilt[1, place, 2] = bad
        found, expected = scan(a, spoilt, initial), loop(a, spoilt, initial)
        torch.testing.assert_close(found, expected, equal_nan=True, atol=1e-10, rtol=0)


def test_many_examples_at_once_and_gradients_of_each() -> None:
    a, b, initial, _ = drawn((4, 3, 20, 5), 20, torch.float64)
    b = torch.stack([b, 2 * b, -b, b.square()])

    def energy(f, a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
        return f(a, b, initial).square().sum()

    for dims in ((0, 0, None), (None, 0, None), (0, None, None)):
        given = [
            x if d == 0 else (x[0] if x.ndim == 4 else x) for x, d in zip((a, b, initial), dims, strict=True)
        ]
        each = torch.func.vmap(torch.func.grad(lambda *x: energy(scan, *x), (0, 1, 2)), dims)(*given)
        for i in range(4):
            own = [x[i] if d == 0 else x for x, d in zip(given, dims, strict=True)]
            expected = torch.func.grad(lambda *x: energy(loop, *x), (0, 1, 2))(*own)
            torch.testing.assert_close(tuple(x[i] for x in each), expected)
    shared = torch.func.vmap(lambda b: scan(a[0, 0, 0], b), in_dims=2, out_dims=1)(
        b[0][:, :, None].expand(3, 20, 7, 5)
    )
    torch.testing.assert_close(shared[:, 3], loop(a[0, 0, 0], b[0]))


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("shape", "time"), [((3, 1, 5), 1), ((3, 40, 5), 40), ((5,), 40)])
def test_a_batch_of_gradients_is_each_of_them(
    shape: tuple[int, ...], time: int, dtype: torch.dtype, twice: bool
) -> None:
    """As Newton's method asks for the products of a Hessian with many vectors."""
    a, b, initial, g = drawn(shape, time, dtype)
    many = torch.stack((g, -g, g.square()))
    for x in (a, b, initial):
        x.requires_grad_()
    outputs = scan(a, b, initial)
    if twice:
        (outputs,) = torch.autograd.grad(outputs.square().sum().real, b, create_graph=True)
    found = torch.autograd.grad(outputs, (a, b, initial), many, retain_graph=True, is_grads_batched=True)
    for i in range(3):
        own = torch.autograd.grad(outputs, (a, b, initial), many[i], retain_graph=True)
        torch.testing.assert_close(tuple(x[i] for x in found), own)


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)  # torch, forward mode
def test_jacobians_forward_and_backward_agree() -> None:
    a, b, initial, _ = drawn((5,), 6, torch.float64)
    for i in range(3):
        there = torch.func.jacfwd(scan, i)(a, b, initial)
        back = torch.func.jacrev(scan, i)(a, b, initial)
        torch.testing.assert_close(there, back)
        torch.testing.assert_close(there, torch.func.jacrev(loop, i)(a, b, initial))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_other_types(dtype: torch.dtype) -> None:
    """Gates in [0, 1]: the difference from float64 is the rounding of each step, at most T eps of the sum."""
    g = Generator().manual_seed(0)
    a = torch.rand(3, 100, 5, generator=g, dtype=torch.float64).to(dtype)
    b = torch.rand(3, 100, 5, generator=g, dtype=torch.float64).to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    expected = loop(a.to(wide), b.to(wide))
    found = scan(a, b)
    assert found.dtype == dtype
    eps = torch.finfo(dtype).eps
    assert ((found.to(wide) - expected).abs() <= 100 * eps * expected.abs()).all()


def test_a_step_worth_its_own_operation_is_looped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of operations says which way was taken."""
    a, b, initial, _ = drawn((3, 64, 5), 64, torch.float64)
    calls = []
    real = torch.addcmul
    monkeypatch.setattr(torch, "addcmul", lambda *x, **k: calls.append(1) or real(*x, **k))
    scan(a, b, initial)
    chunked = len(calls)
    calls.clear()
    monkeypatch.setitem(module.WIDE, "cpu", 15)
    scan(a, b, initial)
    assert len(calls) == 64
    assert chunked == 15 + 4 + 16  # a chunk from 0, the four chunks, a chunk from its state


def test_operations_in_a_row_grow_as_the_logarithm_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 2 CHUNK - 1 operations a level, and CHUNK times fewer steps at each; rests of below CHUNK."""
    calls = []
    real = torch.addcmul
    monkeypatch.setattr(torch, "addcmul", lambda *x, **k: calls.append(1) or real(*x, **k))
    monkeypatch.setattr(module, "CACHE", 2**40)
    for levels in range(1, 5):
        time = 2 * 16**levels
        b = torch.ones(1, time, 1)
        scan(torch.full((1,), 0.5), b)
        assert len(calls) == levels * 31 + 2
        calls.clear()


@pytest.mark.parametrize(
    ("a", "initial", "message"),
    [
        ((3, 4, 6), None, r"gates must broadcast to b, \(3, 4, 5\): got \(3, 4, 6\)"),
        ((3, 5), None, r"got \(3, 5\)"),
        ((2, 4, 5), None, r"got \(2, 4, 5\)"),
        ((1, 3, 4, 5), None, r"got \(1, 3, 4, 5\)"),
        ((5,), (5,), r"initial state must have shape \(3, 5\): got \(5,\)"),
        ((5,), (3, 1), r"got \(3, 1\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    a: tuple[int, ...], initial: tuple[int, ...] | None, message: str
) -> None:
    start = None if initial is None else torch.zeros(initial)
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        scan(torch.zeros(a), torch.zeros(3, 4, 5), start)
    assert caught.type is ValueError
