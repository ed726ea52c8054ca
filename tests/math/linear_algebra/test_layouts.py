"""Layouts against jacrev and its transpose; the order of a chain; passes forward and in reverse."""

from itertools import pairwise

import pytest
import torch

from margin.math.linear_algebra.layouts import accumulation_passes, chain, converted, derivative

# torch's first use of forward accumulation compiles decompositions by a function that it deprecates itself
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def map_of(A):
    return lambda x: (A @ x).sin()


@pytest.mark.parametrize("layout", ["numerator", "denominator"])
@pytest.mark.parametrize(("n", "m"), [(4, 3), (3, 4), (5, 1), (1, 5)])
def test_a_derivative_has_the_shape_of_its_layout_and_is_jacrev_or_its_transpose(n, m, layout):
    A, x = randn(m, n), randn(n, seed=1)
    jacobian = torch.func.jacrev(map_of(A))(x)
    found = derivative(map_of(A), x, layout)
    assert found.shape == ((m, n) if layout == "numerator" else (n, m))
    torch.testing.assert_close(found, jacobian if layout == "numerator" else jacobian.mT)
    torch.testing.assert_close(jacobian, (A @ x).cos()[:, None] * A)


def test_converting_there_and_back_is_the_identity():
    J = randn(3, 4)
    assert torch.equal(converted(converted(J, "numerator", "denominator"), "denominator", "numerator"), J)
    assert torch.equal(converted(J, "denominator", "denominator"), J)
    assert torch.equal(converted(J, "denominator", "numerator"), J.mT)


@pytest.mark.parametrize("layout", ["numerator", "denominator"])
def test_the_chain_of_three_maps_is_multiplied_in_the_order_of_its_layout(layout):
    sizes = (4, 5, 3, 2)
    maps = [map_of(randn(b, a, seed=a)) for a, b in pairwise(sizes)]
    x, points = randn(4, seed=9), []
    value = x
    for each in maps:
        points.append(value)
        value = each(value)
    parts = [derivative(f, point, layout) for f, point in zip(maps, points, strict=True)]
    whole = derivative(lambda x: maps[2](maps[1](maps[0](x))), x, layout)
    torch.testing.assert_close(chain(parts, layout), whole, rtol=1e-12, atol=1e-12)
    by_hand = parts[0] @ parts[1] @ parts[2] if layout == "denominator" else parts[2] @ parts[1] @ parts[0]
    torch.testing.assert_close(chain(parts, layout), by_hand, rtol=1e-12, atol=1e-12)


def test_for_square_maps_the_order_of_the_other_layout_is_wrong():
    first, then = map_of(randn(3, 3)), map_of(randn(3, 3, seed=1))
    x = randn(3, seed=2)
    parts = [derivative(first, x), derivative(then, first(x))]
    right = derivative(lambda x: then(first(x)), x)
    assert not torch.allclose(parts[0] @ parts[1], right, rtol=0.1)
    torch.testing.assert_close(chain(parts), right)


@pytest.mark.parametrize(("n", "m"), [(6, 2), (2, 6)])
def test_a_full_jacobian_takes_n_forward_or_m_reverse_passes(n, m):
    A, x = randn(m, n), randn(n, seed=1)
    f = map_of(A)
    passes = accumulation_passes(n, m)
    columns = [torch.func.jvp(f, (x,), (e,))[1] for e in torch.eye(n, dtype=torch.float64)]
    _, pull = torch.func.vjp(f, x)
    rows = [pull(e)[0] for e in torch.eye(m, dtype=torch.float64)]
    assert (len(columns), len(rows)) == passes == (n, m)
    torch.testing.assert_close(torch.stack(columns, 1), torch.stack(rows))
    torch.testing.assert_close(torch.func.jacfwd(f)(x), torch.func.jacrev(f)(x))
    # one pass fewer leaves a rank short
    assert torch.linalg.matrix_rank(torch.stack(columns[:-1], 1)) <= n - 1


def test_the_derivative_is_computed_by_the_cheaper_direction(monkeypatch):
    asked = []
    for name in ("jacfwd", "jacrev"):
        real = getattr(torch.func, name)
        monkeypatch.setattr(torch.func, name, lambda f, real=real, name=name: asked.append(name) or real(f))
    derivative(map_of(randn(1, 50)), randn(50))
    derivative(map_of(randn(50, 1)), randn(1))
    assert asked == ["jacrev", "jacfwd"]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"map 2 must take what map 1 gives: .* \(3, 4\) and \(2, 5\)"):
        chain([randn(3, 4), randn(2, 5)])
    with pytest.raises(ValueError, match="must have a derivative: got none"):
        chain([])
    with pytest.raises(ValueError, match=r"a vector to a vector: got outputs of shape \(\)"):
        derivative(torch.sum, randn(3))
    with pytest.raises(ValueError, match="inputs and outputs: got 0 and 3"):
        accumulation_passes(0, 3)
