"""Attention over entries: by loops in numpy, its derivatives, safe scores, dropped weights, its memory."""

import math

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.graphs.attention import Attending, attend, attention
from margin.geometric.graphs.message_passing import looped
from margin.geometric.graphs.sparsity import Pattern, pattern

HEADS, WIDTH, NODES = 3, 2, 6


def drawn(edge: bool) -> tuple[Pattern, tuple[Tensor, ...]]:
    g = Generator().manual_seed(0)
    edges = torch.randint(NODES, (2, 12), generator=g)
    where, _ = looped(edges, torch.zeros(12, 0), NODES)
    sizes = [(NODES, HEADS, WIDTH), (NODES, HEADS), (NODES, HEADS), (len(where.column), HEADS)]
    tensors = [torch.randn(size, generator=g).double().requires_grad_() for size in sizes]
    return where, tuple(tensors if edge else tensors[:3])


def of(how: Attending, tensors: tuple[Tensor, ...]) -> Tensor:
    return attend(*tensors[:3], tensors[3] if len(tensors) == 4 else None, how)


def by_hand(how: Attending, tensors: tuple[Tensor, ...]) -> np.ndarray:
    """Node by node and head by head."""
    v, left, right, *edge = (t.detach().numpy() for t in tensors)
    row, column = how.where.row.numpy(), how.where.column.numpy()
    out = np.zeros((NODES, HEADS, WIDTH))
    for i in range(NODES):
        entries = np.flatnonzero(row == i)
        for k in range(HEADS):
            scores = [left[i, k] + right[column[e], k] + (edge[0][e, k] if edge else 0.0) for e in entries]
            powers = [math.exp(s if s > 0 else how.slope * s) for s in scores]
            for e, power in zip(entries, powers, strict=True):
                stays = 1.0 if how.keep is None else float(how.keep[k, e])
                out[i, k] += stays * how.scale * power / sum(powers) * v[column[e], k]
    return out


@pytest.mark.parametrize("edge", [False, True])
@pytest.mark.parametrize("dropping", [False, True])
def test_it_is_its_formula(edge: bool, dropping: bool) -> None:
    where, tensors = drawn(edge)
    keep = torch.rand(HEADS, len(where.column), generator=Generator().manual_seed(1)) > 0.4
    how = Attending(where, 0.1, keep, 1.7) if dropping else Attending(where, 0.1)
    np.testing.assert_allclose(of(how, tensors).detach().numpy(), by_hand(how, tensors), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # of torch itself
@pytest.mark.parametrize("edge", [False, True])
def test_it_has_all_derivatives(edge: bool) -> None:
    where, tensors = drawn(edge)
    keep = torch.rand(HEADS, len(where.column), generator=Generator().manual_seed(1)) > 0.4
    how = Attending(where, keep=keep, scale=1.7)
    assert torch.autograd.gradcheck(lambda *t: of(how, t), tensors, check_forward_ad=True)
    some = tuple(t[..., :1].detach().requires_grad_() if t.ndim == 2 else t[:, :1].detach() for t in tensors)
    one = Attending(where, keep=keep[:1], scale=1.7)
    assert torch.autograd.gradgradcheck(lambda *t: of(one, t), (some[0].requires_grad_(), *some[1:]))


def test_it_can_be_mapped_and_differentiated_by_transforms() -> None:
    where, tensors = drawn(True)
    how = Attending(where)
    many = [torch.stack((t, 2 * t)) for t in tensors]
    found = torch.vmap(lambda *t: of(how, t))(*many)
    torch.testing.assert_close(found[1], of(how, tuple(2 * t for t in tensors)))
    jacobian = torch.func.jacrev(lambda v: of(how, (v, *tensors[1:])))(tensors[0])
    row = torch.autograd.grad(of(how, tensors)[2, 1, 0], tensors[0])[0]
    torch.testing.assert_close(jacobian[2, 1, 0], row)


def test_the_weights_of_a_row_sum_to_1_and_equal_scores_are_a_mean() -> None:
    where, tensors = drawn(True)
    weights = attention(tensors[1], tensors[2], tensors[3], Attending(where))
    sums = torch.zeros(NODES, HEADS).double().index_add(0, where.row, weights)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    flat = [torch.zeros_like(t) for t in tensors[1:]]
    counts = where.starts.diff()[where.row.long()]
    weights = attention(flat[0], flat[1], flat[2], Attending(where))
    torch.testing.assert_close(weights, (1 / counts.double())[:, None].expand(-1, HEADS))


@pytest.mark.parametrize("size", [100.0, 1e4, 1e30])
def test_scores_of_any_size_are_safe(size: float) -> None:
    """Node 0 attends to 0 and 1, whose scores differ by 2 size: 0 takes all. Nodes 1 and 2 are alone."""
    where = pattern(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]), (3, 3))
    v = torch.tensor([[[1.0]], [[5.0]], [[7.0]]], requires_grad=True)
    left, right = torch.zeros(3, 1, requires_grad=True), torch.tensor([[size], [-size], [-size]])
    right.requires_grad_()
    out = attend(v, left, right, None, Attending(where, 1.0))
    assert out[:, 0, 0].tolist() == [1.0, 5.0, 7.0]
    grads = torch.autograd.grad(out.sum(), (v, left, right))
    assert grads[0][:, 0, 0].tolist() == [1.0, 1.0, 1.0]
    assert all(bool(g.isfinite().all()) for g in grads)


def test_a_row_without_entries_gives_0() -> None:
    where = pattern(torch.tensor([0]), torch.tensor([1]), (3, 3))
    v = torch.ones(3, 1, 2, requires_grad=True)
    out = attend(v, torch.zeros(3, 1), torch.zeros(3, 1), None, Attending(where))
    assert out[:, 0, 0].tolist() == [1.0, 0.0, 0.0]
    out.sum().backward()
    assert v.grad is not None
    assert v.grad[:, 0, 0].tolist() == [0.0, 1.0, 0.0]


def test_no_tensor_of_size_entries_x_heads_x_width_is_formed() -> None:
    entries, heads, width = 5000, 4, 64
    g = Generator().manual_seed(0)
    where = pattern(*torch.randint(100, (2, entries), generator=g), (100, 100))
    v = torch.randn(100, heads, width, generator=g).requires_grad_()
    left, right = (torch.randn(100, heads, generator=g).requires_grad_() for _ in range(2))
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and out.layout == torch.strided:
                largest = max(largest, out.numel())
            return out

    with Watch():
        attend(v, left, right, None, Attending(where)).square().sum().backward()
    assert largest <= max(100 * heads * width, entries * heads)
