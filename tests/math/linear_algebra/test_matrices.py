"""Facts of matrices: completed squares, Woodbury's identity, definiteness, kernels, traces, ranks, phases."""

import math
from itertools import product

import pytest
import torch
from torch import nn

from margin.math.linear_algebra.matrices import (
    complete_square,
    definiteness,
    leading_minors,
    least_gram_eigenvalue,
    principal_minors,
    solve_low_rank,
)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def symmetric(n, seed=0):
    A = randn(n, n, seed=seed)
    return (A + A.mT) / 2


# completing the square


@pytest.mark.parametrize("seed", range(5))
def test_a_completed_square_is_the_quadratic_function(seed):
    M, b, x = symmetric(4, seed), randn(4, seed=seed + 10), randn(50, 4, seed=seed + 20)
    assert definiteness(M) == "indefinite"  # of these five all are: no minimum is needed
    center, constant = complete_square(M, b)
    left = ((x @ M) * x).sum(1) - 2 * x @ b
    right = (((x - center) @ M) * (x - center)).sum(1) + constant
    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def test_a_square_is_not_completed_without_symmetry_or_an_inverse():
    M, b, x = randn(3, 3), randn(3, seed=1), randn(3, seed=2)
    with pytest.raises(ValueError, match=r"symmetric and finite: got .* at \(0, 1\), .* at \(1, 0\)"):
        complete_square(M, b)
    center = torch.linalg.solve(M, b)  # the formula all the same
    gap = (x @ M @ x - 2 * b @ x) - ((x - center) @ M @ (x - center) - b @ center)
    assert abs(float(gap)) > 0.1
    with pytest.raises(ValueError, match="M must be invertible"):
        complete_square(torch.ones(2, 2).double(), f64([1.0, 2.0]))


# low rank


@pytest.mark.parametrize(("n", "k"), [(30, 1), (50, 3), (40, 40), (5, 8)])
def test_a_low_rank_solve_is_torchs_on_the_whole_matrix(n, k):
    diagonal, U, V = randn(n).abs() + 0.5, randn(n, k, seed=1), randn(k, n, seed=2)
    b = randn(n, 2, seed=3)
    whole = torch.diag(diagonal) + U @ V
    torch.testing.assert_close(
        solve_low_rank(diagonal, U, V, b), torch.linalg.solve(whole, b), rtol=1e-8, atol=1e-8
    )


def test_woodburys_identity_and_the_push_through():
    n, k = 12, 3
    U, V = randn(n, k, seed=1), randn(k, n, seed=2)
    eye, small = torch.eye(n, dtype=torch.float64), torch.eye(k, dtype=torch.float64)
    inverse = torch.linalg.inv(eye + U @ V)
    identity = eye - U @ torch.linalg.inv(small + V @ U) @ V
    torch.testing.assert_close(identity, inverse, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(solve_low_rank(eye.sum(0), U, V, eye), inverse, rtol=1e-10, atol=1e-10)
    push = solve_low_rank(eye.sum(0), U, V, U)
    torch.testing.assert_close(push, U @ torch.linalg.inv(small + V @ U), rtol=1e-10, atol=1e-10)


def test_a_low_rank_solve_never_builds_the_whole_matrix():
    n = 200_000  # the whole matrix would take 320 GB
    U = randn(n, 2) / 100
    x = solve_low_rank(torch.ones(n).double(), U, U.mT, U[:, :1])
    torch.testing.assert_close(x + U @ (U.mT @ x), U[:, :1], rtol=0, atol=1e-12)


def test_a_singular_matrix_is_refused():
    u = f64([[1.0], [0.0], [0.0]])
    ones, b = torch.ones(3).double(), torch.ones(3, 1).double()
    with pytest.raises(ValueError, match=r"I \+ V D\^-1 U must be invertible"):
        solve_low_rank(ones, u, -u.mT, b)
    with pytest.raises(ValueError, match=r"I \+ V D\^-1 U must be finite: got nan"):
        solve_low_rank(ones, u, -u.mT * math.nan, b)
    with pytest.raises(ValueError, match="diagonal must have no 0: got one at 1"):
        solve_low_rank(f64([1.0, 0.0, 2.0]), u, u.mT, b)


# definiteness


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ([2.0, 1.0], "positive definite"),
        ([1.0, 0.0], "positive semidefinite"),
        ([-2.0, -1.0], "negative definite"),
        ([0.0, -1.0], "negative semidefinite"),
        ([0.0, 0.0], "zero"),
        ([1.0, -1.0], "indefinite"),
        ([1.0, 0.0, -1.0], "indefinite"),
        ([5.0], "positive definite"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kind_of_a_matrix_is_that_of_its_spectrum(entries, kind, dtype):
    n = len(entries)
    Q = torch.linalg.qr(randn(n, n, seed=n))[0]
    A = (Q @ torch.diag(f64(entries)) @ Q.mT).to(dtype)
    assert definiteness((A + A.mT) / 2) == kind


def test_rounding_decides_no_definiteness():
    x = randn(20, 3)
    assert definiteness(x @ x.mT) == "positive semidefinite"  # rank 3 of 20
    assert definiteness((x @ x.mT).float()) == "positive semidefinite"
    assert definiteness(x.mT @ x) == "positive definite"
    shift = 1e-3 * torch.eye(20, dtype=torch.float64)
    assert definiteness(x @ x.mT + shift) == "positive definite"
    assert definiteness(x @ x.mT - shift) == "indefinite"


def all_kinds():
    """Every symmetric matrix of order 3 with entries of -1, 0 and 1."""
    for a, b, c, d, e, f in product((-1.0, 0.0, 1.0), repeat=6):
        yield f64([[a, b, c], [b, d, e], [c, e, f]])


def factorizes(A):
    factor, info = torch.linalg.cholesky_ex(A)
    if not int(info):
        torch.testing.assert_close(factor @ factor.mT, A, rtol=0, atol=1e-14)
    return not int(info)


def test_sylvesters_criterion_on_every_small_matrix():
    seen = set()
    # no eigenvalue but 0 is within 1e-6 of 0: |product of the others| is an integer, and each is at most 3
    shift = 1e-6 * torch.eye(3, dtype=torch.float64)
    for A in all_kinds():
        kind, leading, minors = definiteness(A), leading_minors(A), principal_minors(A)
        seen.add(kind)
        signs = torch.tensor([-1.0, 1.0, -1.0], dtype=torch.float64)
        assert bool((leading > 1e-9).all()) == (kind == "positive definite")
        assert bool((leading * signs > 1e-9).all()) == (kind == "negative definite")
        semidefinite = kind in ("positive definite", "positive semidefinite", "zero")
        assert bool((minors >= -1e-9).all()) == semidefinite
        assert factorizes(A - shift) == (kind == "positive definite")
        assert factorizes(A + shift) == semidefinite
        if semidefinite:
            assert float(A.trace()) >= 0
            assert float(torch.linalg.det(A)) >= -1e-12
    assert len(seen) == 6


def test_the_criterion_printed_with_leading_minors_at_least_0_passes_an_indefinite_matrix():
    A = f64([[0.0, 0.0], [0.0, -1.0]])
    assert bool((leading_minors(A) >= 0).all())
    assert definiteness(A) == "negative semidefinite"
    assert principal_minors(A).min() == -1
    B = f64([[0.0, 0.0], [0.0, 1.0]])
    assert bool((leading_minors(B) >= 0).all())
    assert definiteness(B) == "positive semidefinite"
    # x = 0 gives x^T A x = 0 for every matrix: "> 0 for all x" would make none positive definite
    assert definiteness(torch.eye(2)) == "positive definite"


def test_the_cholesky_factor_of_a_positive_definite_matrix_is_unique():
    R = randn(4, 4).tril()
    R = R * R.diagonal().sign()
    torch.testing.assert_close(torch.linalg.cholesky(R @ R.mT), R)
    semi = f64([[0.0, 0.0], [0.0, 1.0]])
    for c in (0.0, 0.6):  # two factors L with a diagonal >= 0 and L L^T = diag(0, 1)
        L = f64([[0.0, 0.0], [c, math.sqrt(1 - c * c)]])
        torch.testing.assert_close(L @ L.mT, semi)


def test_minors_are_counted_and_their_order_is_limited():
    assert principal_minors(torch.diag(f64([2.0, 3.0, 5.0]))).tolist() == pytest.approx(
        [2, 3, 5, 6, 10, 15, 30]
    )
    assert leading_minors(torch.diag(f64([2.0, 3.0, 5.0]))).tolist() == pytest.approx([2, 6, 30])
    with pytest.raises(ValueError, match="order must be at most 16: got 17; use the eigenvalues"):
        principal_minors(torch.eye(17))


@pytest.mark.parametrize("act", [definiteness, leading_minors, principal_minors])
def test_only_a_symmetric_finite_matrix_has_a_kind(act):
    with pytest.raises(ValueError, match=r"symmetric and finite: got 1 at \(0, 1\), 2 at \(1, 0\)"):
        act(f64([[1.0, 1.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match=r"symmetric and finite: got nan at \(1, 1\)"):
        act(f64([[1.0, 0.0], [0.0, math.nan]]))
    with pytest.raises(ValueError, match=r"symmetric and finite: got inf at \(0, 0\)"):
        act(f64([[math.inf, 0.0], [0.0, 1.0]]))


def test_a_matrix_without_rows_has_no_kind():
    with pytest.raises(ValueError, match="must have a row"):
        definiteness(torch.zeros(0, 0))


# kernels


def linear(x, y):
    return x @ y.mT


def rbf(x, y):
    return (-torch.cdist(x, y).square() / 2).exp()


def arc_cosine(x, y):
    """The kernel of an infinitely wide ReLU layer with standard normal weights (Cho and Saul 2009, n = 1)."""
    lengths = x.norm(dim=1)[:, None] * y.norm(dim=1)
    angle = (linear(x, y) / lengths).clamp(-1, 1).arccos()
    return lengths * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)


def tangent(x, y):
    """The empirical tangent kernel of a small network."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    parameters = {name: value.detach() for name, value in net.named_parameters()}

    def gradient(point):
        found = torch.func.grad(lambda p: torch.func.functional_call(net, p, (point,))[0])(parameters)
        return torch.cat([g.flatten() for g in found.values()])

    return torch.stack([gradient(p) for p in x]) @ torch.stack([gradient(p) for p in y]).mT


KERNELS = {"linear": linear, "rbf": rbf, "nngp": arc_cosine, "ntk": tangent}


@pytest.mark.parametrize("name", KERNELS)
def test_gram_matrices_of_kernels_have_no_negative_eigenvalue(name):
    for seed in range(3):
        assert float(least_gram_eigenvalue(KERNELS[name], randn(25, 3, seed=seed))) >= -1e-10


def test_sums_and_products_of_kernels_are_kernels():
    x = randn(25, 3)
    for one, two in ((linear, rbf), (rbf, arc_cosine), (linear, arc_cosine)):
        assert float(least_gram_eigenvalue(lambda a, b, f=one, g=two: f(a, b) + g(a, b), x)) >= -1e-10
        assert float(least_gram_eigenvalue(lambda a, b, f=one, g=two: f(a, b) * g(a, b), x)) >= -1e-10
        difference = least_gram_eigenvalue(lambda a, b, f=one, g=two: f(a, b) - 2 * g(a, b), x)
        assert float(difference) < -1e-3  # a difference is none


def test_minus_the_squared_distance_is_no_kernel():
    x = randn(10, 3)
    assert float(least_gram_eigenvalue(lambda a, b: -torch.cdist(a, b).square(), x)) < -0.5
    # two points already: the matrix [[0, -1], [-1, 0]] has the eigenvalues -1 and 1
    two = f64([[0.0], [1.0]])
    assert float(least_gram_eigenvalue(lambda a, b: -torch.cdist(a, b).square(), two)) == pytest.approx(-1)


def test_kernels_in_single_precision_are_symmetric_to_its_own_rounding():
    x = randn(60, 3).float()
    single = torch.tensor([[1.0, 1.0], [1.0 + 2**-23, 1.0]])  # as far from symmetric as rounding leaves it
    assert float(least_gram_eigenvalue(lambda a, b: single, x[:2])) == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="must be symmetric"):
        least_gram_eigenvalue(lambda a, b: single.double(), x[:2])
    assert float(least_gram_eigenvalue(rbf, x)) > -1e-6


def test_a_kernel_is_symmetric_and_a_matrix_of_zeros_is_one():
    with pytest.raises(ValueError, match="must be symmetric"):
        least_gram_eigenvalue(lambda a, b: a[:, :1] + 2 * b[:, :1].mT, randn(4, 3))
    assert float(least_gram_eigenvalue(lambda a, b: 0 * a @ b.mT, randn(4, 3))) == 0


# traces, norms, ranks, phases: torch's


def test_the_trace_is_linear_and_does_not_see_a_cyclic_shift():
    A, B, C = randn(3, 4), randn(4, 5, seed=1), randn(5, 3, seed=2)
    torch.testing.assert_close((A @ B @ C).trace(), (B @ C @ A).trace())
    torch.testing.assert_close((A @ B @ C).trace(), (C @ A @ B).trace())
    D, E, G = randn(3, 3, seed=3), randn(3, 3, seed=4), randn(3, 3, seed=5)
    assert abs(float((D @ E @ G).trace() - (D @ G @ E).trace())) > 0.1  # another order is another number
    torch.testing.assert_close((2.5 * D + E).trace(), 2.5 * D.trace() + E.trace())


def test_three_formulas_of_the_frobenius_norm_and_its_invariance():
    A = randn(5, 3)
    norm = torch.linalg.matrix_norm(A)
    torch.testing.assert_close(norm.square(), (A.mT @ A).trace())
    torch.testing.assert_close(norm.square(), torch.linalg.svdvals(A).square().sum())
    torch.testing.assert_close(norm.square(), A.square().sum())
    Q, R = torch.linalg.qr(randn(5, 5, seed=1))[0], torch.linalg.qr(randn(3, 3, seed=2))[0]
    torch.testing.assert_close(torch.linalg.matrix_norm(Q @ A @ R), norm)
    assert abs(float(torch.linalg.matrix_norm(Q) - norm)) > 0.1  # |Q| is sqrt(5), whatever A is


def test_the_rank_of_a_product_is_at_most_the_least_rank():
    rank = torch.linalg.matrix_rank
    for seed in range(10):
        A, B = randn(6, 2, seed=seed) @ randn(2, 5, seed=seed + 10), randn(5, 7, seed=seed + 20)
        assert (int(rank(A)), int(rank(B)), int(rank(A @ B))) == (2, 5, 2)
    strict = f64([[1.0, 0.0], [0.0, 0.0]]), f64([[0.0, 0.0], [0.0, 1.0]])
    assert [int(rank(M)) for M in (*strict, strict[0] @ strict[1])] == [1, 1, 0]


def test_polar_form_is_a_round_trip_and_products_multiply_lengths_and_add_phases():
    z = torch.complex(randn(50), randn(50, seed=1))
    w = torch.complex(randn(50, seed=2), randn(50, seed=3))
    torch.testing.assert_close(torch.polar(z.abs(), z.angle()), z)
    torch.testing.assert_close(z.abs(), torch.hypot(z.real, z.imag))
    torch.testing.assert_close(z, z.abs() * (1j * z.angle()).exp())
    torch.testing.assert_close((z * w).abs(), z.abs() * w.abs())
    phase = (z * w).angle() - z.angle() - w.angle()
    turns = phase / (2 * math.pi)
    torch.testing.assert_close(turns, turns.round(), rtol=0, atol=1e-14)
    assert bool((turns.round() != 0).any())  # modulo a turn, not without
