"""Generating functions: derivatives at 0 are scipy's moments, products those of independent sums."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from margin.math.calculus.derivatives import integrate
from margin.math.probability import generating_functions as mgf


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


LAWS = [
    (partial(mgf.bernoulli, p=0.3), stats.bernoulli(0.3)),
    (partial(mgf.binomial, n=7, p=0.3), stats.binom(7, 0.3)),
    (partial(mgf.normal, mu=-0.5, variance=2.25), stats.norm(-0.5, 1.5)),
    (partial(mgf.gamma, shape=2.5, scale=0.5), stats.gamma(2.5, scale=0.5)),
    (partial(mgf.poisson, rate=1.7), stats.poisson(1.7)),
]
NAMES = ["bernoulli", "binomial", "normal", "gamma", "poisson"]


@pytest.mark.parametrize(("function", "law"), LAWS, ids=NAMES)
def test_derivatives_at_0_are_the_moments(function, law):
    expected = f64([law.moment(k) for k in range(1, 6)])
    torch.testing.assert_close(mgf.moments(function, 5), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("function", "law"), LAWS, ids=NAMES)
def test_the_value_is_the_mean_of_the_exponential(function, law):
    for t in (-1.3, -0.2, 0.4, 1.1):
        expected = law.expect(lambda x, t=t: np.exp(np.minimum(t * x, 700)))
        assert float(function(f64(t))) == pytest.approx(expected, rel=1e-6)


def test_a_normal_vector_is_normal_along_every_direction():
    mu, S = f64([1.0, -2.0]), f64([[2.0, 0.6], [0.6, 0.5]])
    direction = f64([0.3, -0.7])
    along = mgf.moments(lambda t: mgf.multivariate_normal(t * direction, mu, S), 2)
    mean, variance = float(direction @ mu), float(direction @ S @ direction)
    assert along.tolist() == pytest.approx([mean, variance + mean**2], abs=1e-14)
    steps = f64([-1.5, -0.2, 0.0, 0.9])
    on_the_line = mgf.multivariate_normal(steps[:, None] * direction, mu, S)
    torch.testing.assert_close(on_the_line, mgf.normal(steps, mean, variance), rtol=1e-14, atol=0)
    grid = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert mgf.multivariate_normal(grid, mu, S).shape == (5, 3)


def test_derivatives_at_0_of_a_vectors_function_are_the_mean_and_the_second_moments():
    mu, S = f64([1.0, -2.0, 0.5]), f64([[2.0, 0.6, 0.1], [0.6, 0.5, -0.2], [0.1, -0.2, 1.0]])
    zero = torch.zeros(3, dtype=torch.float64)
    slope = torch.func.grad(mgf.multivariate_normal)(zero, mu, S)
    torch.testing.assert_close(slope, mu, rtol=0, atol=1e-15)
    curvature = torch.func.jacrev(torch.func.grad(mgf.multivariate_normal))(zero, mu, S)
    torch.testing.assert_close(curvature, S + mu[:, None] * mu, rtol=0, atol=1e-14)


def test_gamma_is_infinite_from_one_over_scale_on():
    t = f64([1.9, 2.0, 2.1, -5.0]).requires_grad_()
    value = mgf.gamma(t, shape=2.0, scale=0.5)
    assert value.tolist() == pytest.approx([(1 - 0.95) ** -2, math.inf, math.inf, 3.5**-2])
    (slope,) = torch.autograd.grad(value[3], t)
    assert float(slope[3]) == pytest.approx(2 * 0.5 * 3.5**-3)
    assert not bool(slope.isnan().any())


@pytest.mark.parametrize(
    ("printed", "at_zero"),
    [
        (lambda t: 0.3**t + 0.7 ** (1 - t), 1.7),
        (lambda t: (0.3 * math.e + 0.7 + 0 * t) ** 7, (0.3 * math.e + 0.7) ** 7),
        (lambda t: 1 / (2.5 - 0.5 * t), 0.4),
        (lambda t: (1.7 * (t - 1).exp()).exp(), math.exp(1.7 / math.e)),
    ],
    ids=["bernoulli", "binomial", "gamma, 1/(a-bt)", "poisson, e^(t-1)"],
)
def test_forms_printed_in_many_notes_that_are_not_1_at_0(printed, at_zero):
    with pytest.raises(ValueError, match=f"a moment generating function is 1 at 0: got {at_zero:g}$"):
        mgf.moments(printed, 1)


@pytest.mark.parametrize(
    ("printed", "first", "law"),
    [
        (lambda t: (2.5 / (2.5 + 0.5 * t)) ** 2.5, -0.5, stats.gamma(2.5, scale=0.5)),
        (lambda t: (1.7 * ((-t).exp() - 1)).exp(), -1.7, stats.poisson(1.7)),
    ],
    ids=["gamma, (a/(a+bt))^a", "poisson, e^-t"],
)
def test_forms_printed_in_many_notes_that_give_a_negative_mean(printed, first, law):
    assert mgf.moments(printed, 1).item() == pytest.approx(first, abs=1e-14)
    assert law.mean() > 0


def test_a_certain_outcome_has_moments_too():
    assert mgf.moments(partial(mgf.normal, mu=2.0, variance=0.0), 3).tolist() == pytest.approx([2, 4, 8])
    assert mgf.moments(partial(mgf.poisson, rate=0.0), 3).tolist() == [0, 0, 0]
    assert mgf.moments(lambda t: torch.ones((), dtype=torch.float64), 2).tolist() == [0, 0]


def test_independent_sums_multiply_though_the_laws_differ():
    t = torch.linspace(-1, 1, 21, dtype=torch.float64)
    both = mgf.of_sum([partial(mgf.poisson, rate=0.4), partial(mgf.poisson, rate=1.1)], [1, 1])
    torch.testing.assert_close(both(t), mgf.poisson(t, 1.5), rtol=1e-14, atol=0)
    # not identically distributed, with coefficients: 2 X - 3 Y + B
    mixed = mgf.of_sum(
        [
            partial(mgf.normal, mu=1.0, variance=0.5),
            partial(mgf.normal, mu=-1.0, variance=0.2),
            partial(mgf.bernoulli, p=0.25),
        ],
        [2, -3, 1],
    )
    first, second = mgf.moments(mixed, 2).tolist()
    assert first == pytest.approx(2 + 3 + 0.25, abs=1e-13)
    assert second - first**2 == pytest.approx(4 * 0.5 + 9 * 0.2 + 0.25 * 0.75, abs=1e-12)


def test_a_dependent_pair_violates_the_product():
    t = f64(0.7)
    normal = partial(mgf.normal, mu=0.0, variance=1.0)
    assert float(mgf.of_sum([normal, normal], [1, 1])(t)) == pytest.approx(math.exp(0.49))
    assert float(mgf.normal(t, 0.0, 0.0)) == 1.0  # X + Y = 0 for Y = -X, which has the law of X
    # X = -1 or 1, each with 1/2, and Y = -X: both functions are cosh t, that of the sum is 1
    x = f64([-1.0, 1.0])

    def sign(t):
        return (t[..., None] * x).exp().mean(-1)

    assert float(mgf.of_sum([sign, sign], [1, 1])(t)) == pytest.approx(math.cosh(0.7) ** 2, rel=1e-15)
    assert float((t * (x + -x)).exp().mean()) == 1.0


def test_equal_functions_mean_equal_laws_not_equal_probabilities_of_points():
    # a sum of 5 Bernoulli variables is binomial: equal functions, and equal probabilities of every outcome
    t = torch.linspace(-0.5, 0.5, 9, dtype=torch.float64)
    total = mgf.of_sum([partial(mgf.bernoulli, p=0.3)] * 5, [1] * 5)
    torch.testing.assert_close(total(t), mgf.binomial(t, 5, 0.3))
    convolved = f64([1.0])
    for _ in range(5):
        convolved = torch.cat((0.7 * convolved, f64([0.0]))) + torch.cat((f64([0.0]), 0.3 * convolved))
    assert convolved.tolist() == pytest.approx(stats.binom(5, 0.3).pmf(range(6)).tolist(), abs=1e-15)
    # P(X = t) = P(Y = t) = 0 for all t would make all continuous laws one: these differ
    different = mgf.normal(t, 0.0, 1.0) - mgf.gamma(t, 1.0, 1.0)
    assert float(different.abs().max()) > 0.1


def test_the_log_normal_shares_its_moments_with_another_law_and_has_no_generating_function():
    def lognormal(u):  # the density of log X
        return (-u.square() / 2).exp() / math.sqrt(2 * math.pi)

    def heyde(u):
        return lognormal(u) * (1 + 0.5 * (2 * math.pi * u).sin())

    low, high = f64(-12.0), f64(20.0)
    for k in range(5):
        one = integrate(lambda u, k=k: (k * u).exp() * lognormal(u), low, high, panels=400)
        two = integrate(lambda u, k=k: (k * u).exp() * heyde(u), low, high, panels=400)
        assert float(one) == pytest.approx(math.exp(k * k / 2), rel=1e-9)
        assert float(two) == pytest.approx(math.exp(k * k / 2), rel=1e-9)
    assert float(heyde(f64(0.25)) / lognormal(f64(0.25))) == pytest.approx(1.5)
    # E e^(tX) for t = 0.01 grows without bound with the end of the integral
    partial_means = [
        float(integrate(lambda u: (0.01 * u.exp()).exp() * lognormal(u), low, f64(end), panels=400))
        for end in (8.0, 9.0, 10.0)
    ]
    assert partial_means[1] > 1e5 * partial_means[0] and partial_means[2] > 1e5 * partial_means[1]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda t: mgf.bernoulli(t, 1.1), r"probability must lie in \[0, 1\]: got 1.1"),
        (lambda t: mgf.binomial(t, -1, 0.5), "number of trials must be >= 0: got -1"),
        (lambda t: mgf.normal(t, 0.0, -1.0), "variance must be >= 0: got -1"),
        (lambda t: mgf.gamma(t, 0.0, 1.0), "shape must be > 0: got 0"),
        (lambda t: mgf.gamma(t, 1.0, 0.0), "scale must be > 0: got 0"),
        (lambda t: mgf.poisson(t, math.nan), "rate must be >= 0: got nan"),
        (lambda t: mgf.moments(lambda s: s, 1), "is 1 at 0: got 0"),
        (lambda t: mgf.moments(torch.exp, 0), "order must be >= 1: got 0"),
        (lambda t: mgf.of_sum([torch.exp], [1, 2]), "one coefficient a function: got 2 for 1"),
        (lambda t: mgf.of_sum([], []), "one coefficient a function: got 0 for 0"),
    ],
)
def test_parameters_out_of_range_are_refused(act, message):
    with pytest.raises(ValueError, match=message):
        act(f64(0.1))
