"""The scan of z_t = a_t z_{t-1} + b_t (Blelloch 1990): linear recurrences without a step's overhead a step.

Two steps compose to one, (a_2, b_2) o (a_1, b_1) = (a_2 a_1, a_2 b_1 + b_2), and o is associative. So time is
cut into chunks of :data:`CHUNK` steps, and all chunks advance together: first each from 0, keeping only its
last state and the product of its gates; those are a recurrence over the chunks, solved the same way; then
each chunk once more, from the state it is entered with. That is 3 multiplications a step and
3 CHUNK log_CHUNK T operations in a row, in exact arithmetic the loop's result. Nothing is divided by a
product of gates and no logarithm is taken, so gates may be 0, 1, negative or complex.

Of the designs tried (chunks, doubling, an up- and down-sweep, logarithms of sums, FFT, the loop in place,
torch.compile, torch's associative_scan; ``docs/results/sequence/scan_designs.json``) this is the fastest that
is right for all gates. On a CPU it goes by segments of time that fit in the cache. While torch.compile or
torch.export reads it, it is the doubling of Hillis and Steele (1986) instead, all partial compositions in
ceil(log2 T) steps: the same function up to rounding.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Inexact
from torch import Tensor
from torch.autograd import Function

Elements = tuple[Tensor, ...]
Combine = Callable[[Elements, Elements], Elements]


def compose(later: Elements, earlier: Elements) -> Elements:
    r"""Two steps of z -> a z + b as one: :math:`(a_2, b_2) \circ (a_1, b_1) = (a_2 a_1, a_2 b_1 + b_2)`.

    It is associative, exactly in real arithmetic, and not commutative.

    Reference: Blelloch 1990, Section 1.4; Martin and Cundy 2018, Section 2.2.
    """
    (a2, b2), (a1, b1) = later, earlier
    return a2 * a1, a2 * b1 + b2


def doublings(combine: Combine, elements: Elements) -> Iterator[Elements]:
    r"""The elements after each doubling: first each with the 1 before it, then with 2, 4, ..

    After step k element t is the composition of the 2^k last ones up to t, so after ceil(log2 T) steps all
    are :math:`e_t \circ \dots \circ e_1`. Work is O(T log T); each step is one operation on all of time.

    Args:
        combine: ``(later, earlier) -> one``, associative; it acts on elements of one shape.
        elements: Tensors whose time axis is 1.

    Reference: Hillis and Steele 1986, Section "All Partial Sums of an Array".
    """
    time, reach = elements[0].shape[1], 1
    while reach < time:
        joined = combine(tuple(e[:, reach:] for e in elements), tuple(e[:, :-reach] for e in elements))
        elements = tuple(torch.cat((e[:, :reach], j), 1) for e, j in zip(elements, joined, strict=True))
        yield elements
        reach *= 2


def doubling(
    a: Inexact[Tensor, "batch time features"],
    b: Inexact[Tensor, "batch time features"],
    initial: Inexact[Tensor, "batch features"],
) -> Inexact[Tensor, "batch time features"]:
    """The states of z_t = a_t z_{t-1} + b_t by doubling.

    It is a short graph of plain operations, which compilers and exporters can read; run as it is, it moves
    O(T log T) numbers through memory.

    Args:
        a: The gates.
        b: What is added at each step.
        initial: z_0.
    """
    states = torch.cat((b[:, :1] + a[:, :1] * initial[:, None], b[:, 1:]), 1)
    elements: Elements = (a, states)
    for doubled in doublings(compose, elements):
        elements = doubled
    return elements[1]


CHUNK = 16
"""Steps of a chunk."""

CACHE = 2**21
"""Bytes of b in a segment of time on a CPU; elsewhere a segment is all of time."""

WIDE = {"cpu": 2**14}
"""Elements of one step from which on a step is worth an operation of its own, by kind of device."""
WIDEST = 2**20


def scan(
    a: Inexact[Tensor, "*gates"],
    b: Inexact[Tensor, "batch time features"],
    initial: Inexact[Tensor, "*state"] | None = None,
) -> Inexact[Tensor, "batch time features"]:
    r"""The states z_1 .. z_T of a diagonal linear recurrence, differentiable in a, b and z_0 at will.

    .. math:: z_t = a_t \odot z_{t-1} + b_t, \qquad
        \frac{\partial L}{\partial b_t} = g_t = \frac{\partial L}{\partial z_t} + \bar a_{t+1} \odot g_{t+1},
        \qquad \frac{\partial L}{\partial a_t} = g_t \odot \bar z_{t-1}

    The gradient is one scan backwards in time. Beyond a, b, z and their gradients memory is taken for one
    segment or, on an accelerator, for 1/7 of b. Where gates exceed 1 in modulus the product of a chunk's may
    overflow: a state that the loop keeps at 0 is then NaN, and so is a gradient that the loop keeps finite,
    as that of an early state by what comes after it, which is 0 (gates of 300 in float32, 16 to a chunk).

    Args:
        a: The gates, real or complex: (batch, time, features) or what broadcasts to it, such as
            (time, features) or, for gates that do not change, (features,).
        b: What is added at each step; time may be 0.
        initial: z_0, (batch, features); None is 0.

    Returns:
        z_1 .. z_T, in the promoted type of the arguments.

    Raises:
        ValueError: The gates do not broadcast to the shape of b, or z_0 is not one state an example.

    Reference:
        Blelloch 1990, Section 1.4 (recurrence equations); Martin and Cundy 2018, Section 2.
    """
    batch, time, features = b.shape
    gates = a.reshape((1,) * (3 - a.ndim) + a.shape)
    if gates.ndim > 3 or any(n not in (1, full) for n, full in zip(gates.shape, b.shape, strict=True)):
        raise ValueError(f"gates must broadcast to b, {tuple(b.shape)}: got {tuple(a.shape)}")
    if initial is not None and initial.shape != (batch, features):
        raise ValueError(f"the initial state must have shape {(batch, features)}: got {tuple(initial.shape)}")
    start = b.new_zeros(batch, features) if initial is None else initial
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), start.dtype)
    gates, b, start = gates.to(dtype).expand(-1, -1, features), b.to(dtype), start.to(dtype)
    if torch.compiler.is_compiling():  # a graph of T steps would take minutes to compile
        return doubling(gates.expand(batch, time, -1), b, start)
    if time == 0:
        return b + gates[:, :1] * start[:, None]  # no states, and gradients of 0
    states: Tensor = _Scan.apply(gates, b, start)
    return states


def advance(a: Tensor, b: Tensor, z: Tensor, out: Tensor, order: int = 1) -> Tensor:
    """Write the states of a recurrence to ``out``, one segment of time after the other; the last state.

    No gradient is recorded. ``out`` may be b.

    Args:
        a: Gates of shape (batch or 1, time or 1, features).
        b: What is added, (batch, time, features).
        z: The state before the first step, (batch, features).
        out: Where the states go, of b's shape.
        order: 1 is forward in time; -1 is backward, z_t = a_t z_{t+1} + b_t.
    """
    for part in segments(b, order):
        z = _solve(_during(a, part), b[:, part], z, out[:, part], order)
    return z


def segments(b: Tensor, order: int = 1) -> Iterator[slice]:
    """The segments of time that fit in the cache, the first to be solved first."""
    time, step = b.shape[1], max(1, b.shape[0] * b.shape[2] * b.element_size())
    length = max(1, CACHE // step) if b.device.type == "cpu" else max(1, time)
    for start in range(0, time, length)[::order]:
        yield slice(start, min(start + length, time))


def _during(a: Tensor, part: slice) -> Tensor:
    return a if a.shape[1] == 1 else a[:, part]


def _solve(a: Tensor, b: Tensor, z: Tensor, out: Tensor, order: int) -> Tensor:
    batch, time, features = b.shape
    count = time // CHUNK
    if count < 2 or batch * features >= WIDE.get(b.device.type, WIDEST):
        return _loop(a, b, z, out, order)
    gates, added, states = (_chunks(x, count, order) for x in (a, b, out))
    last, product = added[0].clone(), gates[0].clone()
    for a_t, b_t in zip(gates[1:], added[1:], strict=True):
        torch.addcmul(b_t, a_t, last, out=last)
        product.mul_(a_t)
    between = b.new_empty(batch, count + 1, features)
    between[:, 0 if order > 0 else -1] = z
    entered, left = (between[:, :-1], between[:, 1:])[::order]
    z = _solve(product, last, z, left, order)
    for a_t, b_t, z_t in zip(gates, added, states, strict=True):
        entered = torch.addcmul(b_t, a_t, entered, out=z_t)
    rest = slice(count * CHUNK, time) if order > 0 else slice(0, time - count * CHUNK)
    return _loop(_during(a, rest), b[:, rest], z, out[:, rest], order)


def _loop(a: Tensor, b: Tensor, z: Tensor, out: Tensor, order: int) -> Tensor:
    for a_t, b_t, z_t in zip(*(_steps(x, b.shape[1], order) for x in (a, b, out)), strict=True):
        z = torch.addcmul(b_t, a_t, z, out=z_t)
    return z


def _steps(x: Tensor, time: int, order: int) -> tuple[Tensor, ...]:
    return x.unbind(1)[::order] if x.shape[1] == time else (x[:, 0],) * time


def _chunks(x: Tensor, count: int, order: int) -> tuple[Tensor, ...]:
    """Step 1 of all whole chunks, step 2 of all, ...: each (batch, chunks, features), views of x."""
    if x.shape[1] == 1:  # constant gates: one chunk's product is every chunk's
        return (x,) * CHUNK
    whole = count * CHUNK
    x = x[:, :whole] if order > 0 else x[:, x.shape[1] - whole :]
    return x.unflatten(1, (count, CHUNK)).unbind(2)[::order]


class _Scan(Function):
    """The states of gates (batch or 1, time or 1, features), b (batch, time, features) and z_0."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
        states = torch.empty_like(b, memory_format=torch.contiguous_format)
        advance(a, b, initial, states)
        return states

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        a, _, initial = inputs
        ctx.save_for_backward(a, initial, output)
        ctx.save_for_forward(a, initial, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, initial, states = ctx.saved_tensors
        if not (torch.is_grad_enabled() or mapped(grad)):
            return _gradients(a, initial, states, grad)
        g = adjoint(a, grad)
        by_gates = g * shifted(states, initial).conj()
        return by_gates.sum_to_size(a.shape), g, a[:, 0].conj() * g[:, 0]

    @staticmethod
    def jvp(ctx: Any, a_dot: Tensor | None, b_dot: Tensor | None, initial_dot: Tensor | None) -> Tensor:
        a, initial, states = ctx.saved_tensors
        moved = torch.zeros_like(states) if b_dot is None else b_dot
        if a_dot is not None:
            moved = moved + a_dot * shifted(states, initial)
        return scan(a, moved, initial_dot)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        a, b, initial = (one_axis(x, dim, info.batch_size) for x, dim in zip(inputs, dims, strict=True))
        a = a.expand(-1, b.shape[1], -1, -1)
        states: Tensor = _Scan.apply(*(x.flatten(0, 1) for x in (a, b, initial)))
        return states.unflatten(0, (info.batch_size, -1)), 0


def one_axis(x: Tensor, dim: int | None, count: int) -> Tensor:
    """What vmap hands over, with the mapped axis in front."""
    return x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)


def mapped(grad: Tensor) -> bool:
    """Whether a gradient is a batch of gradients in the guise of one, which nothing may write to in place."""
    kinds = torch._C._functorch
    return bool(kinds.is_batchedtensor(grad) or kinds.is_legacy_batchedtensor(grad))


def shifted(states: Tensor, initial: Tensor) -> Tensor:
    """z_0 .. z_{T-1}, given z_1 .. z_T and z_0."""
    return torch.cat((initial[:, None], states[:, :-1]), 1)


def adjoint(a: Tensor, grad: Tensor) -> Tensor:
    """g_t = grad_t + conj(a_{t+1}) g_{t+1}, the gradient by b, so that it can be differentiated again."""
    if a.shape[1] > 1:
        a = torch.cat((a[:, 1:], torch.zeros_like(a[:, :1])), 1)
    gates, added, start = a.conj().resolve_conj().flip(1), grad.flip(1), torch.zeros_like(grad[:, 0])
    if torch._C._functorch.is_legacy_batchedtensor(
        grad
    ):  # of is_grads_batched: it knows plain operations alone
        return doubling(gates.expand(grad.shape), added, start).flip(1) if grad.shape[1] > 1 else grad
    states: Tensor = _Scan.apply(gates, added, start)
    return states.flip(1)


def adjoint_segment(a: Tensor, grad: Tensor, coming: Tensor, out: Tensor) -> Tensor:
    """Write g_t of one segment of time to ``out``, in place; what it hands to the segment before it.

    Args:
        a: The segment's gates, conjugated.
        grad: dL/dz_t in the segment.
        coming: conj(a_t) g_t of the first step after the segment, 0 after the last.
        out: Where g goes.
    """
    torch.add(grad[:, -1], coming, out=out[:, -1])
    _solve(_during(a, slice(1, None)), grad[:, :-1], out[:, -1], out[:, :-1], -1)
    return a[:, 0] * out[:, 0]


def _gradients(a: Tensor, initial: Tensor, states: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by gates, b and z_0, one segment after the other while it is in the cache."""
    g, conj, coming = torch.empty_like(states), a.conj().resolve_conj(), torch.zeros_like(initial)
    by_gates = torch.zeros_like(a, memory_format=torch.contiguous_format)
    for part in segments(states, -1):
        coming = adjoint_segment(_during(conj, part), grad[:, part], coming, g[:, part])
        before = shifted(states[:, part], states[:, part.start - 1] if part.start else initial).conj()
        if a.shape == states.shape:
            torch.mul(g[:, part], before, out=by_gates[:, part])
        else:
            here = _during(by_gates, part)
            here += (g[:, part] * before).sum_to_size(here.shape)
    return by_gates, g, coming
