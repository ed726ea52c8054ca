"""The Lanczos process and Hutchinson's estimator against dense matrices and closed forms."""

import math

import pytest
import torch
from torch import Generator

from margin.theory.curvature.hutchinson import hutchinson_trace
from margin.theory.curvature.lanczos import (
    FEWEST,
    extreme_eigenvalues,
    krylov,
    missed_distance,
    random_direction,
    ritz_pairs,
)


def symmetric(spectrum, seed=0, dtype=torch.float64):
    generator = Generator().manual_seed(seed)
    d = torch.as_tensor(spectrum, dtype=torch.float64)
    Q, _ = torch.linalg.qr(torch.randn(len(d), len(d), generator=generator, dtype=torch.float64))
    A = Q @ torch.diag(d) @ Q.T
    return ((A + A.T) / 2).to(dtype)


def ends_of(A, **options):
    return extreme_eigenvalues(lambda v: A @ v, random_direction(len(A), dtype=A.dtype), **options)


def test_the_indefinite_spectrum_3_minus_3_and_a_tenth():
    # Power iteration never settles here: two eigenvalues have the largest magnitude.
    found = ends_of(symmetric([3.0, -3.0, 0.1]))
    assert found.values.tolist() == pytest.approx([3, -3], abs=1e-12)
    assert found.converged and found.missed == 0
    assert found.iterations <= 3


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_both_ends_are_the_dense_ones(seed, tol):
    generator = Generator().manual_seed(seed)
    A = torch.randn(80, 80, generator=generator, dtype=torch.float64)
    A = A + A.T
    exact = torch.linalg.eigvalsh(A)
    found = ends_of(A, tol=tol)
    assert found.converged
    scale = exact.abs().max()
    assert bool((found.residuals <= tol * scale).all())
    error = (found.values - exact[[-1, 0]]).abs()
    assert bool((error <= found.residuals + 1e-12).all())
    # Ritz values lie inside the spectrum.
    assert found.values[0] <= exact[-1] + 1e-12 and found.values[1] >= exact[0] - 1e-12


def test_an_eigenvalue_lies_within_the_residual_of_every_ritz_pair():
    A = symmetric(torch.linspace(-1, 4, 40))
    exact = torch.linalg.eigvalsh(A)
    basis = torch.empty(9, 40, dtype=torch.float64)
    basis[0] = random_direction(40)
    basis[0] /= basis[0].norm()
    alphas, betas = zip(*krylov(lambda v: A @ v, basis), strict=True)
    values, vectors, residuals = ritz_pairs(alphas, betas)
    y = vectors.T @ basis[:8]
    torch.testing.assert_close((y @ A - values[:, None] * y).norm(dim=1), residuals, rtol=1e-9, atol=1e-12)
    assert bool(((values[:, None] - exact).abs().amin(1) <= residuals + 1e-12).all())


def test_the_basis_stays_orthonormal_long_after_the_ends_have_converged():
    A = symmetric(
        torch.cat((torch.linspace(0, 1, 290), torch.tensor([50.0] * 5 + [100, 200, 300, 400, 500])))
    )
    for dtype, atol in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
        basis = torch.empty(81, 300, dtype=dtype)
        basis[0] = random_direction(300, dtype=dtype)
        basis[0] /= basis[0].norm()
        list(krylov(A.to(dtype).mv, basis))
        torch.testing.assert_close(basis @ basis.T, torch.eye(81, dtype=dtype), rtol=0, atol=atol)


def test_a_small_negative_end_hidden_under_a_large_positive_one_is_found():
    # The start is nearly all bulk (eigenvalue 0): its Rayleigh quotient is a Ritz value of residual below
    # the tolerance from the second step, and no end.
    spectrum = torch.zeros(3000)
    spectrum[:12] = torch.tensor([100.0, 1, 1, 1, 1, 1, 1, 1, 1, 1, -3, -2])
    start = random_direction(3000)
    d = spectrum.double()
    found = extreme_eigenvalues(lambda v: d * v, start)
    assert found.values.tolist() == pytest.approx([100, -3], abs=0.1)
    assert found.iterations <= FEWEST


def test_one_end_alone_costs_fewer_steps():
    d = torch.cat((torch.linspace(-0.5, 0.5, 2000, dtype=torch.float64), torch.tensor([10.0, 20.0]).double()))
    start = random_direction(2002)
    one = extreme_eigenvalues(lambda v: d * v, start, ends=("largest",))
    both = extreme_eigenvalues(lambda v: d * v, start)
    assert one.values.tolist() == pytest.approx([20], abs=0.02)
    assert one.iterations < both.iterations


@pytest.mark.parametrize("c", [0.0, 2.5, -1.0])
@pytest.mark.parametrize("dim", [1, 2, 50])
def test_a_multiple_of_the_identity(c, dim):
    found = extreme_eigenvalues(lambda v: c * v, random_direction(dim))
    assert found.values.tolist() == pytest.approx([c, c], abs=1e-12)
    assert found.converged and bool(found.residuals.isfinite().all())


def test_weights_are_first_components_squared_and_integrate_the_start():
    # Gauss quadrature: sum w f(theta) = v' f(A) v for polynomials up to degree 2k - 1.
    A = symmetric(torch.linspace(-2, 3, 60))
    v = random_direction(60)
    found = extreme_eigenvalues(lambda x: A @ x, v, tol=1e-12, max_iterations=10)
    v = v / v.norm()
    assert found.weights.sum().item() == pytest.approx(1, abs=1e-12)
    for power in (1, 2, 7, 19):
        moment = v @ torch.linalg.matrix_power(A, power) @ v
        assert (found.weights * found.ritz**power).sum().item() == pytest.approx(moment.item(), rel=1e-9)


def test_too_few_iterations_are_said_not_to_converge():
    found = ends_of(symmetric(torch.linspace(0, 1, 200)), tol=1e-6, max_iterations=5)
    assert not found.converged
    assert found.iterations == 5
    assert bool((found.residuals > 1e-6).any())


def test_a_tolerance_below_the_products_rounding_is_not_reached():
    A = symmetric(torch.linspace(-1, 1, 60), dtype=torch.float32)
    assert not ends_of(A, tol=1e-12).converged
    assert ends_of(A, tol=1e-4).converged


def test_a_product_that_is_not_finite_gives_nan_and_no_convergence():
    for bad in (math.nan, math.inf):
        found = extreme_eigenvalues(lambda v, bad=bad: v * bad, random_direction(4))
        assert not found.converged and bool(found.values.isnan().all())


def test_options_out_of_range_are_refused():
    v = random_direction(3)
    for options in ({"tol": 0.0}, {"max_iterations": 0}, {"ends": ()}):
        with pytest.raises(ValueError, match="tol must be above 0"):
            extreme_eigenvalues(lambda x: x, v, **options)
    with pytest.raises(ValueError, match="other than 0"):
        extreme_eigenvalues(lambda x: x, torch.zeros(3))


def test_the_distance_missed_is_the_inverse_of_the_failure_bound():
    n, k, spread, probability = 10_000, 60, 7.0, 1e-3
    distance = missed_distance(spread, n, k, probability=probability)
    epsilon = distance / (spread + 2 * distance)  # the spectrum may be wider by the distance at both ends
    bound = 1.648 * math.sqrt(n) * math.exp(-math.sqrt(epsilon) * (2 * k - 1))
    assert bound == pytest.approx(probability / 2, rel=1e-9)
    assert missed_distance(spread, n, 3) == math.inf
    assert missed_distance(spread, 50, 50) == 0


def test_the_trace_of_a_diagonal_matrix_is_exact_and_else_within_its_error():
    d = torch.tensor([3.0, -3.0, 0.1], dtype=torch.float64)
    value, stderr, _ = hutchinson_trace(lambda v: d * v, 3, Generator().manual_seed(0))
    assert value.item() == pytest.approx(0.1, abs=1e-12) and stderr.item() < 1e-12
    A = symmetric(torch.linspace(-1, 5, 50))
    value, stderr, forms = hutchinson_trace(lambda v: A @ v, 50, Generator().manual_seed(0), probes=4000)
    # Probability of 4 standard errors: 6e-5.
    assert abs(value.item() - 100) <= 4 * stderr.item()
    variance = 2 * (A.square().sum() - A.diagonal().square().sum())
    # Relative error of a variance from 4,000 nearly normal forms: 2.2 %.
    assert forms.var().item() == pytest.approx(variance.item(), rel=0.1)
    assert stderr.item() == pytest.approx(math.sqrt(variance / 4000), rel=0.05)


def test_one_probe_has_no_error():
    with pytest.raises(ValueError, match="two probes: got 1"):
        hutchinson_trace(lambda v: v, 3, Generator(), probes=1)


def test_a_start_that_is_half_random_doubles_the_chance_of_a_miss():
    half = missed_distance(5.0, 1000, 30, probability=1e-4, share=0.5)
    assert half == missed_distance(5.0, 1000, 30, probability=0.5e-4)
    assert half > missed_distance(5.0, 1000, 30, probability=1e-4)


def test_the_residual_is_that_of_a_fresh_product():
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(80, 80, generator=generator, dtype=torch.float64)
    A = A + A.T
    eigenvalues = torch.linalg.eigvalsh(A)
    for steps in (5, 15, 40):
        found = extreme_eigenvalues(lambda v: A @ v, random_direction(80), tol=1e-12, max_iterations=steps)
        # an eigenvalue lies within the residual of each value, converged or not
        for value, residual in zip(found.values, found.residuals, strict=True):
            assert (eigenvalues - value).abs().min() <= residual + 1e-12
        assert len(found.ritz) == steps
