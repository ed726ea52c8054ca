"""Gaussian algebra against scipy, torch's distributions, finite differences and the ratio of densities."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import MultivariateNormal, kl_divergence

from margin.math.probability.gaussian import (
    Gaussian,
    affine,
    conditional,
    covariance_log_likelihood,
    covariance_score,
    independent_sum,
    marginal,
    maximum_likelihood,
    second_moment,
)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def spd(dim, seed=0):
    root = torch.randn(dim, dim + 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return root @ root.mT / dim


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def law(dim, seed=0):
    return Gaussian(randn(dim, seed=seed + 50), spd(dim, seed))


# density


def test_torchs_density_is_scipys_and_has_the_root_in_its_normalizer():
    g, x = law(3), randn(20, 3, seed=9)
    found = MultivariateNormal(g.mean, g.covariance).log_prob(x)
    expected = stats.multivariate_normal(g.mean.numpy(), g.covariance.numpy()).logpdf(x.numpy())
    torch.testing.assert_close(found, torch.from_numpy(expected))
    quadratic = ((x - g.mean) * torch.linalg.solve(g.covariance, (x - g.mean).mT).mT).sum(1)
    det = torch.linalg.det(g.covariance)
    torch.testing.assert_close(found.exp(), (-quadratic / 2).exp() / ((2 * math.pi) ** 3 * det).sqrt())
    rootless = (-quadratic / 2).exp() / ((2 * math.pi) ** 3 * det)  # as some notes print it
    assert bool(((rootless / found.exp() - 1).abs() > 0.1).all())


# maximum likelihood


def test_the_fit_is_the_mean_and_the_covariance_divided_by_n():
    x = randn(30, 4, seed=1)
    g = maximum_likelihood(x)
    torch.testing.assert_close(g.mean, torch.from_numpy(x.numpy().mean(0)))
    torch.testing.assert_close(g.covariance, torch.from_numpy(np.cov(x.numpy().T, bias=True)))


def test_the_likelihood_is_stationary_at_the_fit_and_less_elsewhere():
    x = randn(30, 3, seed=2) @ spd(3)
    g = maximum_likelihood(x)
    mean, covariance = g.mean.clone().requires_grad_(), g.covariance.clone().requires_grad_()
    best = MultivariateNormal(mean, covariance).log_prob(x).sum()
    slopes = torch.autograd.grad(best, (mean, covariance))
    best = best.detach()
    assert max(float(slope.abs().max()) for slope in slopes) < 1e-10
    for seed in range(100):
        other = MultivariateNormal(
            g.mean + 0.1 * randn(3, seed=seed), g.covariance @ torch.linalg.matrix_exp(_symmetric(seed, g))
        )
        assert float(other.log_prob(x).sum()) < float(best)
    unbiased = MultivariateNormal(g.mean, g.covariance * 30 / 29)
    assert float(unbiased.log_prob(x).sum()) < float(best)


def _symmetric(seed, g):
    """A small step S^-1 B that keeps S exp(S^-1 B) symmetric, for symmetric B."""
    step = randn(3, 3, seed=seed) * 0.02
    return torch.linalg.solve(g.covariance, (step + step.mT) / 2)


def test_covariance_likelihood_is_the_density_of_the_sample():
    x, A = randn(25, 3, seed=4), spd(3, 5)
    expected = stats.multivariate_normal(np.zeros(3), A.numpy()).logpdf(x.numpy()).sum()
    assert float(covariance_log_likelihood(second_moment(x), A, 25)) == pytest.approx(expected, rel=1e-13)


def test_covariance_likelihood_is_largest_at_the_second_moment():
    x = randn(25, 3, seed=4) @ spd(3, 2)
    S = second_moment(x)
    best = float(covariance_log_likelihood(S, S, 25))
    assert all(float(covariance_log_likelihood(S, spd(3, seed), 25)) < best for seed in range(100))
    assert all(float(covariance_log_likelihood(S, S * c, 25)) < best for c in (0.98, 0.999, 1.001, 1.02))


def test_covariance_likelihood_printed_with_the_sign_of_the_determinant_turned_has_no_maximum():
    S = spd(3)

    def printed(A):
        return -12.5 * (torch.linalg.solve(A, S).trace() - A.logdet() + 3 * math.log(2 * math.pi))

    values = [float(printed(S * scale)) for scale in (1, 10, 100, 1000, 1e4)]
    assert all(later > earlier + 50 for earlier, later in pairwise(values))


def test_gradients_are_those_of_finite_differences():
    S, A = spd(3, 1), spd(3, 2)
    general = A + 0.1 * randn(3, 3, seed=3)  # not symmetric: the transposes show

    def differences(f, at):
        h, slope = 1e-6, torch.zeros_like(at)
        for i in range(3):
            for j in range(3):
                step = torch.zeros_like(at)
                step[i, j] = h
                slope[i, j] = (f(at + step) - f(at - step)) / (2 * h)
        return slope

    inverse = torch.linalg.inv(general)
    misfit = differences(lambda B: torch.linalg.solve(B, S.mT).trace(), general)
    torch.testing.assert_close(misfit, -(inverse @ S @ inverse).mT, rtol=1e-6, atol=1e-8)
    assert float((misfit + inverse @ S).abs().max()) > 0.1  # -A^-1 S, as some notes print it
    log_det = differences(torch.logdet, general)
    torch.testing.assert_close(log_det, inverse.mT, rtol=1e-6, atol=1e-8)
    # the score, with A symmetric, entry by entry
    whole = differences(
        lambda B: -20 / 2 * (torch.linalg.solve(B, S).trace() + B.logdet() + 3 * math.log(2 * math.pi)), A
    )
    torch.testing.assert_close(covariance_score(S, A, 20), whole, rtol=1e-6, atol=1e-7)
    assert float(covariance_score(S, S, 20).abs().max()) < 1e-11


# maps and sums


def test_affine_maps_and_sums_of_independent_vectors():
    g, h = law(3, 1), law(3, 2)
    M, b = randn(2, 3, seed=3), randn(2, seed=4)
    moved = affine(g, M, b)
    # the density of an invertible map by change of variables
    A, shift, x = randn(3, 3, seed=5), randn(3, seed=6), randn(10, 3, seed=7)
    image = affine(g, A, shift)
    found = MultivariateNormal(image.mean, image.covariance).log_prob(x @ A.mT + shift)
    expected = MultivariateNormal(g.mean, g.covariance).log_prob(x) - torch.linalg.slogdet(A)[1]
    torch.testing.assert_close(found, expected)
    # a sum is an affine map of the pair, with covariance diag(S, T)
    pair = Gaussian(torch.cat((g.mean, h.mean)), torch.block_diag(g.covariance, h.covariance))
    both = affine(pair, torch.eye(3, dtype=torch.float64).repeat(1, 2), torch.zeros(3, dtype=torch.float64))
    total = independent_sum(g, h)
    torch.testing.assert_close(total.mean, both.mean)
    torch.testing.assert_close(total.covariance, both.covariance)
    assert moved.covariance.shape == (2, 2)
    torch.testing.assert_close(moved.mean, M @ g.mean + b)


def test_without_independence_covariances_do_not_add():
    one = torch.eye(1, dtype=torch.float64)
    x = Gaussian(torch.zeros(1, dtype=torch.float64), one)
    assert independent_sum(x, x).covariance.item() == 2
    # Y = -X has the same law, the pair the covariance [[1, -1], [-1, 1]], and the sum is 0
    pair = Gaussian(torch.zeros(2, dtype=torch.float64), f64([[1.0, -1.0], [-1.0, 1.0]]))
    total = affine(pair, f64([[1.0, 1.0]]), f64([0.0]))
    assert total.covariance.item() == 0


# blocks


@pytest.mark.parametrize("known", [[0], [3, 1], [4, 0, 2, 1]])
def test_a_conditional_is_the_ratio_of_densities(known):
    g, x = law(5, 7), randn(6, 5, seed=8)
    rest = [i for i in range(5) if i not in known]
    mean, covariance = conditional(g, known, x[:, known])
    part = marginal(g, known)
    ratio = MultivariateNormal(g.mean, g.covariance).log_prob(x) - MultivariateNormal(
        part.mean, part.covariance
    ).log_prob(x[:, known])
    torch.testing.assert_close(MultivariateNormal(mean, covariance).log_prob(x[:, rest]), ratio)
    assert float(torch.linalg.eigvalsh(covariance)[0]) > 0
    torch.testing.assert_close(covariance, torch.linalg.inv(torch.linalg.inv(g.covariance)[rest][:, rest]))


def test_marginals_are_entries_in_the_order_asked():
    g = law(4)
    m = marginal(g, [2, 0])
    assert m.mean.tolist() == [g.mean[2].item(), g.mean[0].item()]
    assert m.covariance[0, 1].item() == g.covariance[2, 0].item()
    x = MultivariateNormal(g.mean, g.covariance).sample(())  # its law needs no more than its entries
    projected = affine(g, torch.eye(4, dtype=torch.float64)[[2, 0]], torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(projected.covariance, m.covariance)
    assert x.shape == (4,)


def test_the_off_diagonal_block_is_no_square_matrix_to_be_definite():
    g = law(5, 3)
    cross = g.covariance[[0, 1]][:, [2, 3, 4]]
    assert cross.shape == (2, 3)
    torch.testing.assert_close(cross, g.covariance[[2, 3, 4]][:, [0, 1]].mT)


def test_what_is_known_exactly_leaves_a_perfectly_correlated_coordinate_no_variance():
    g = Gaussian(f64([0.0, 1.0]), f64([[4.0, 2.0], [2.0, 1.0]]))
    mean, covariance = conditional(g, [1], f64([3.0]))
    assert mean.tolist() == pytest.approx([4.0])
    assert covariance.item() == pytest.approx(0, abs=1e-15)


def test_single_precision_keeps_its_type_and_loses_no_more_than_rounding():
    g = Gaussian(f64([0.0, 0.0]), f64([[1.0, 0.9999], [0.9999, 1.0]]))
    single = Gaussian(g.mean.float(), g.covariance.float())
    mean, covariance = conditional(single, [1], torch.tensor([2.0]))
    assert mean.dtype == covariance.dtype == torch.float32
    exact = 1 - float(single.covariance[0, 1].double()) ** 2
    assert covariance.item() == pytest.approx(exact, rel=1e-6)


# entropy and divergence: torch's


def hand_kl(p, q):
    d = len(p.mean)
    shift = q.mean - p.mean
    terms = (
        q.covariance.logdet()
        - p.covariance.logdet()
        - d
        + torch.linalg.solve(q.covariance, p.covariance).trace()
        + shift @ torch.linalg.solve(q.covariance, shift)
    )
    return terms / 2


def normal(g):
    return MultivariateNormal(g.mean, g.covariance)


def test_torchs_entropy_and_divergence_are_the_formulas():
    p, q = law(4, 1), law(4, 2)
    entropy = 2 * math.log(2 * math.pi * math.e) + p.covariance.logdet() / 2
    torch.testing.assert_close(normal(p).entropy(), entropy)
    torch.testing.assert_close(kl_divergence(normal(p), normal(q)), hand_kl(p, q))
    assert float(kl_divergence(normal(p), normal(p))) == pytest.approx(0, abs=1e-13)
    unit = torch.eye(10, dtype=torch.float64)
    shifted = kl_divergence(MultivariateNormal(unit.sum(0), unit), MultivariateNormal(0 * unit[0], unit))
    assert float(shifted) == pytest.approx(5.0, abs=1e-13)  # summed over coordinates, not averaged


def test_divergence_and_entropy_are_what_sampling_estimates():
    p, q = law(3, 1), law(3, 2)
    torch.manual_seed(0)
    x = normal(p).sample((20_000,))
    ratio = normal(p).log_prob(x) - normal(q).log_prob(x)
    # 4 standard errors: each missed by 1 seed in 16,000
    assert (
        abs(float(ratio.mean() - kl_divergence(normal(p), normal(q)))) < 4 * float(ratio.std()) / 20_000**0.5
    )
    length = -normal(p).log_prob(x)
    assert abs(float(length.mean() - normal(p).entropy())) < 4 * float(length.std()) / 20_000**0.5


def test_divergence_does_not_see_invertible_affine_maps():
    p, q, A, b = law(3, 1), law(3, 2), randn(3, 3, seed=4), randn(3, seed=5)
    moved = kl_divergence(normal(affine(p, A, b)), normal(affine(q, A, b)))
    torch.testing.assert_close(moved, kl_divergence(normal(p), normal(q)))


def test_of_all_laws_of_a_covariance_the_gaussian_has_the_most_entropy():
    # others of variance 1; differential entropies by scipy
    gaussian = stats.norm.entropy()
    others = [
        stats.uniform(-math.sqrt(3), 2 * math.sqrt(3)),
        stats.laplace(scale=1 / math.sqrt(2)),
        stats.logistic(scale=math.sqrt(3) / math.pi),
        stats.expon(),
        stats.t(5, scale=math.sqrt(3 / 5)),
    ]
    for law_ in others:
        assert law_.var() == pytest.approx(1)
        assert law_.entropy() < gaussian - 0.01
    # uniform on the cube with the covariance S: a linear image of the unit cube
    S = spd(3, 8)
    volume = 3 * math.log(2 * math.sqrt(3)) + float(S.logdet()) / 2
    assert volume < float(MultivariateNormal(torch.zeros(3).double(), S).entropy())


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: maximum_likelihood(torch.zeros(0, 3)), "needs a sample: got 0 rows"),
        (lambda: second_moment(torch.zeros(0, 3)), "a second moment needs a sample: got 0 rows"),
        (lambda: independent_sum(law(2), law(3)), "one dimension: got 2 and 3"),
        (lambda: marginal(law(3), []), r"in 0 to 2, each once, at least one: got \[\]"),
        (lambda: marginal(law(3), [3]), r"in 0 to 2, .* got \[3\]"),
        (lambda: marginal(law(3), [-1]), r"in 0 to 2, .* got \[-1\]"),
        (lambda: marginal(law(3), [1, 1]), r"in 0 to 2, .* got \[1, 1\]"),
        (lambda: conditional(law(2), [0, 1], randn(2)), "not all 2, with a value each: got 2 known"),
        (lambda: conditional(law(3), [0], randn(2)), "got 1 known, 2 values"),
        (
            lambda: conditional(Gaussian(randn(3), torch.ones(3, 3).double()), [0, 1], randn(2)),
            "covariance of the known coordinates must be positive definite: the minor of order 2",
        ),
        (
            lambda: covariance_log_likelihood(spd(2), f64([[1.0, 2.0], [2.0, 1.0]]), 5),
            "A must be positive definite: the minor of order 2",
        ),
        (lambda: covariance_score(spd(2), f64([[0.0, 0.0], [0.0, 1.0]]), 5), "A must be positive definite"),
    ],
)
def test_what_is_no_gaussian_is_refused(act, message):
    with pytest.raises(ValueError, match=message):
        act()
