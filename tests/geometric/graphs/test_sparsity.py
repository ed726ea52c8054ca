"""Sparse products against dense matrices, with all their derivatives, and where there is nothing to sum."""

import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.graphs import sparsity
from margin.geometric.graphs.sparsity import Pattern, inner, pattern, product


def drawn(
    rows: int, columns: int, entries: int, seed: int = 0
) -> tuple[Pattern, Tensor, Tensor, Tensor, Tensor]:
    """A pattern with places that occur twice, values in the order of the list, the dense matrix, x and g."""
    g = Generator().manual_seed(seed)
    row, column = (torch.randint(size, (entries,), generator=g) for size in (rows, columns))
    values = torch.randn(entries, dtype=torch.float64, generator=g)
    A = torch.zeros(rows, columns, dtype=torch.float64).index_put((row, column), values, accumulate=True)
    x = torch.randn(columns, 3, dtype=torch.float64, generator=g)
    return pattern(row, column, (rows, columns)), values, A, x, torch.randn(rows, 3, generator=g).double()


@pytest.mark.parametrize(("rows", "columns", "entries"), [(7, 5, 30), (5, 7, 4), (1, 1, 3), (40, 3, 10)])
def test_it_is_the_dense_product(rows: int, columns: int, entries: int) -> None:
    where, values, A, x, g = drawn(rows, columns, entries)
    own = values[where.order.long()]
    torch.testing.assert_close(product(where, own, x), A @ x, rtol=0, atol=1e-13)
    torch.testing.assert_close(product(where.turned, own[where.turn.long()], g), A.T @ g, rtol=0, atol=1e-13)
    once = (g @ x.T)[where.row.long(), where.column.long()]
    torch.testing.assert_close(inner(where, g, x), once, rtol=0, atol=1e-13)


def test_the_pattern_turned_twice_is_itself() -> None:
    where = drawn(6, 4, 20)[0]
    again = where.turned.turned
    assert again.shape == where.shape
    for name in ("column", "starts", "order", "turn", "turned_row", "turned_starts", "row"):
        assert torch.equal(getattr(again, name), getattr(where, name)), name


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # of torch itself
def test_it_has_all_derivatives() -> None:
    where, values, _, x, _ = drawn(4, 5, 9)
    own, x = values[where.order.long()].requires_grad_(), x.requires_grad_()

    def f(w: Tensor, z: Tensor) -> Tensor:
        return product(where, w, z)

    assert torch.autograd.gradcheck(f, (own, x), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, (own, x))
    hessian = torch.func.jacrev(torch.func.jacrev(lambda z: f(own, z).square().sum()))(x)
    A = f(own, torch.eye(5, dtype=torch.float64)).detach()
    expected = torch.einsum("ij,ab->iajb", 2 * A.T @ A, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(hessian, expected, rtol=0, atol=1e-12)


def test_the_first_derivative_is_that_of_the_plain_sum_with_places_that_occur_twice() -> None:
    where, values, _, x, g = drawn(3, 2, 12)
    own, x = values[where.order.long()].requires_grad_(), x.requires_grad_()
    fast = torch.autograd.grad((product(where, own, x) * g).sum(), (own, x))
    plain = torch.autograd.grad((sparsity.plain_product(where, own, x) * g).sum(), (own, x))
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


def test_it_can_be_mapped_over_either_argument() -> None:
    where, values, A, x, _ = drawn(4, 5, 9)
    own = values[where.order.long()]
    many = torch.stack((x, 2 * x, -x))
    torch.testing.assert_close(torch.vmap(lambda z: product(where, own, z))(many), A @ many)
    weights = torch.stack((own, 3 * own))
    both = torch.vmap(lambda w, z: product(where, w, z))(weights, many[:2])
    torch.testing.assert_close(both, torch.stack((A @ x, 6 * A @ x)))


@pytest.mark.parametrize(("rows", "columns", "width"), [(3, 2, 4), (0, 0, 4), (3, 2, 0), (0, 2, 1)])
def test_without_entries_it_is_0(rows: int, columns: int, width: int) -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    where = pattern(nothing, nothing, (rows, columns))
    x = torch.ones(columns, width, requires_grad=True)
    found = product(where, torch.zeros(0, requires_grad=True), x)
    assert found.shape == (rows, width)
    assert not found.any()
    found.sum().backward()
    assert x.grad is not None
    assert not x.grad.any()


def test_it_follows_the_type(recwarn: pytest.WarningsRecorder) -> None:
    where, values, A, x, _ = drawn(4, 5, 9)
    own = values[where.order.long()]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        w, z = own.to(dtype).requires_grad_(), x.to(dtype).requires_grad_()
        found = product(where, w, z)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), A @ x, rtol=0, atol=tolerance)
        found.float().sum().backward()
        assert w.grad is not None
        assert w.grad.dtype == dtype
    assert not recwarn.list


def test_no_tensor_of_size_entries_x_width_is_formed() -> None:
    """2,000 entries of 60 x 60 and 500 columns: the largest tensor of a step is x itself."""
    entries, width = 2000, 500
    g = Generator().manual_seed(0)
    where = pattern(*torch.randint(60, (2, entries), generator=g), (60, 60))
    w, x = torch.randn(entries, generator=g).requires_grad_(), torch.randn(60, width, generator=g)
    x.requires_grad_()
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and out.layout == torch.strided:
                largest = max(largest, out.numel())
            return out

    with Watch():
        product(where, w, x).square().sum().backward()
    assert largest <= 60 * width


def test_more_than_32_bits_can_count_is_refused() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    with pytest.raises(ValueError, match="at most 2147483647 rows"):
        pattern(nothing, nothing, (2**31, 1))
