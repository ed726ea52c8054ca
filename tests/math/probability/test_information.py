"""Entropy, divergence and information against scipy, scikit-learn, torch, closed forms and their bounds."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import mutual_info_score
from torch.nn import functional as F

from margin.math.probability.information import (
    cross_entropy,
    divergence,
    entropy,
    gaussian_mutual_information,
    jensen_shannon,
    mutual_information,
)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def laws(batch, outcomes, seed=0):
    g = torch.Generator().manual_seed(seed)
    raw = torch.rand(batch, outcomes, generator=g, dtype=torch.float64) ** 3
    return raw / raw.sum(-1, keepdim=True)


def test_entropy_is_scipys_and_at_most_that_of_the_uniform_law():
    p = laws(200, 7)
    for base in (2, math.e, 10):
        expected = stats.entropy(p.numpy(), base=base, axis=1)
        torch.testing.assert_close(entropy(p, base=base), torch.from_numpy(expected), rtol=1e-13, atol=0)
    assert bool((entropy(p) < math.log(7)).all())
    assert bool((entropy(p) >= 0).all())
    assert float(entropy(torch.full((7,), 1 / 7, dtype=torch.float64))) == pytest.approx(
        math.log(7), abs=1e-15
    )
    assert float(entropy(f64([0.125] * 8), base=2)) == pytest.approx(3, abs=1e-15)


def test_a_certain_outcome_has_entropy_0_and_its_entries_of_0_count_nothing():
    assert float(entropy(torch.tensor([0.0, 1.0, 0.0]))) == 0
    assert float(entropy(torch.tensor([0.5, 0.0, 0.5]), base=2)) == 1


def test_differential_entropy_may_be_negative():
    narrow = torch.distributions.Normal(0.0, f64(0.1)).entropy()
    assert float(narrow) == pytest.approx(0.5 * math.log(2 * math.pi * math.e * 0.01), abs=1e-7)
    assert float(narrow) == pytest.approx(-0.884, abs=5e-4)


def test_cross_entropy_is_entropy_and_divergence_and_least_at_the_law_itself():
    p, q = laws(500, 5), laws(500, 5, seed=1)
    torch.testing.assert_close(cross_entropy(p, q), entropy(p) + divergence(p, q), rtol=0, atol=1e-13)
    assert bool((cross_entropy(p, q) > entropy(p)).all())
    torch.testing.assert_close(cross_entropy(p, p), entropy(p), rtol=0, atol=1e-15)
    expected = stats.entropy(p.numpy(), q.numpy(), base=2, axis=1)
    torch.testing.assert_close(divergence(p, q, base=2), torch.from_numpy(expected), rtol=0, atol=1e-13)
    bits = entropy(p, base=2) + divergence(p, q, base=2)
    torch.testing.assert_close(cross_entropy(p, q, base=2), bits, rtol=0, atol=1e-13)


def test_divergence_is_at_least_0_and_0_only_for_equal_laws():
    p, q = laws(2000, 4), laws(2000, 4, seed=2)
    assert bool((divergence(p, q) > 0).all())
    assert bool((divergence(p, p) == 0).all())
    near = p * 0.999 + 0.001 / 4
    assert bool((divergence(p, near) > 0).all())


def test_the_divergence_printed_as_a_difference_of_entropies_is_negative_somewhere():
    p, q = f64([0.9, 0.1]), f64([0.5, 0.5])
    assert float(entropy(p) - entropy(q)) < 0 < float(divergence(p, q))


def test_divergence_is_not_symmetric():
    p, q = f64([0.5, 0.5]), f64([0.9, 0.1])
    there = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    back = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert float(divergence(p, q)) == pytest.approx(there, abs=1e-15)
    assert float(divergence(q, p)) == pytest.approx(back, abs=1e-15)
    assert abs(there - back) > 0.1


def test_missing_support_is_infinite_and_surplus_support_is_not():
    half, sure = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([1.0, 0.0, 0.0])
    assert float(divergence(half, sure)) == math.inf
    assert float(cross_entropy(half, sure)) == math.inf
    assert float(divergence(sure, half, base=2)) == 1
    assert float(divergence(sure, sure)) == 0


def test_torchs_divergence_takes_the_logarithm_of_the_second_law_first():
    p, q = laws(1, 6), laws(1, 6, seed=3)
    torch.testing.assert_close(divergence(p, q)[0], F.kl_div(q.log(), p, reduction="sum"))
    swapped = F.kl_div(p.log(), q, reduction="sum")
    assert abs(float(swapped - divergence(p, q)[0])) > 1e-3


def test_gradients_of_the_entropies_are_the_formulas():
    p, q = laws(3, 4).requires_grad_(), laws(3, 4, seed=5).requires_grad_()
    (slope,) = torch.autograd.grad(entropy(p).sum(), p)
    torch.testing.assert_close(slope, -p.detach().log() - 1)
    dp, dq = torch.autograd.grad(divergence(p, q).sum(), (p, q))
    torch.testing.assert_close(dp, (p / q).log().detach() + 1)
    torch.testing.assert_close(dq, -(p / q).detach())


def test_mutual_information_is_scikit_learns_on_counts():
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 4, (1000,), generator=g)
    y = (x + torch.randint(0, 3, (1000,), generator=g)) % 5
    counts = torch.zeros(4, 5, dtype=torch.float64)
    counts.index_put_((x, y), torch.ones(1000).double(), accumulate=True)
    expected = mutual_info_score(x.numpy(), y.numpy())
    assert float(mutual_information(counts / 1000)) == pytest.approx(expected, abs=1e-13)


def test_mutual_information_is_symmetric_between_0_and_the_least_entropy():
    joint = laws(300, 12, seed=4).reshape(300, 3, 4)
    found = mutual_information(joint)
    torch.testing.assert_close(found, mutual_information(joint.mT), rtol=0, atol=1e-14)
    one, two = entropy(joint.sum(2)), entropy(joint.sum(1))
    torch.testing.assert_close(found, one + two - entropy(joint.flatten(1)), rtol=0, atol=1e-13)
    assert bool((found > 0).all())
    assert bool((found <= torch.minimum(one, two)).all())
    independent = joint.sum(2, keepdim=True) * joint.sum(1, keepdim=True)
    assert float(mutual_information(independent).abs().max()) < 1e-14
    assert float((mutual_information(joint, base=10) * math.log(10) - found).abs().max()) < 1e-14
    # tight: one variable determines the other
    assert float(mutual_information(torch.eye(4).double() / 4, base=2)) == pytest.approx(2, abs=1e-15)


@pytest.mark.parametrize(("dtype", "rare"), [(torch.float32, 1e-25), (torch.float64, 1e-200)])
def test_information_on_a_rare_outcome_is_finite_though_its_square_underflows(dtype, rare):
    joint = torch.tensor([[rare, 0.0], [0.0, 1.0]], dtype=dtype)
    assert rare**2 < torch.finfo(dtype).tiny
    expected = -float(joint[0, 0]) * math.log(float(joint[0, 0]))  # all of the entropy of either
    assert float(mutual_information(joint)) == pytest.approx(expected, rel=1e-6)


def test_mutual_information_printed_as_entropy_less_divergence_is_wrong():
    joint = f64([[0.4, 0.1], [0.2, 0.3]])
    x, y = joint.sum(1), joint.sum(0)
    assert abs(float(entropy(x) - divergence(x, y) - mutual_information(joint))) > 0.5


@pytest.mark.parametrize("rho", [-0.9, -0.3, 0.0, 0.5, 0.99])
def test_gaussian_information_is_the_difference_of_gaussian_entropies(rho):
    normal = stats.multivariate_normal
    whole = normal(cov=[[1, rho], [rho, 1]]).entropy()
    expected = 2 * stats.norm.entropy() - whole
    found = gaussian_mutual_information(f64(rho))
    assert float(found) == pytest.approx(float(expected), abs=1e-13)
    bits = gaussian_mutual_information(f64(rho), base=2)
    assert float(bits) == pytest.approx(float(expected) / math.log(2), abs=1e-13)


def test_gaussian_information_is_the_limit_of_that_of_fine_tables():
    grid = torch.linspace(-6, 6, 301, dtype=torch.float64)
    x, y = grid[:, None], grid[None, :]
    density = (-(x**2 - 2 * 0.6 * x * y + y**2) / (2 * (1 - 0.36))).exp()
    found = mutual_information(density / density.sum())
    assert float(found) == pytest.approx(-0.5 * math.log(1 - 0.36), abs=1e-6)


def test_variables_that_determine_each_other_have_infinite_information():
    assert gaussian_mutual_information(torch.tensor([1.0, -1.0])).tolist() == [math.inf] * 2


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: entropy(torch.tensor([0.5, 0.6])), "probabilities must sum to 1: got 1.1"),
        (
            lambda: entropy(torch.tensor([0.5, 0.5]), base=1),
            "base of a logarithm must be above 1: got base=1",
        ),
        (lambda: entropy(torch.tensor([0.5, 0.5]), base=math.nan), "base of a logarithm must be above 1"),
        (lambda: divergence(torch.tensor([1.0]), torch.tensor([0.9])), "q must sum to 1: got 0.9"),
        (lambda: cross_entropy(torch.tensor([2.0, -1.0]), torch.tensor([1.0, 0.0])), r"p must be .* got -1"),
        (lambda: mutual_information(torch.full((2, 2), 0.5)), "joint must sum to 1: got 2"),
        (lambda: gaussian_mutual_information(torch.tensor(1.5)), r"in \[-1, 1\]: got 1.5"),
        (lambda: gaussian_mutual_information(torch.tensor(math.nan)), r"in \[-1, 1\]: got nan"),
    ],
)
def test_what_is_no_law_is_refused(act, message):
    with pytest.raises(ValueError, match=message):
        act()


@pytest.mark.parametrize("seed", range(10))
def test_the_jensen_shannon_divergence_is_scipys_squared(seed: int) -> None:
    from scipy.spatial.distance import jensenshannon

    p, q = laws(3, 5, seed), laws(3, 5, seed + 100)
    got = jensen_shannon(p, q)
    np.testing.assert_allclose(got.numpy(), jensenshannon(p.numpy(), q.numpy(), axis=1) ** 2, atol=1e-12)
    torch.testing.assert_close(got, jensen_shannon(q, p))
    torch.testing.assert_close(got, entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2)
    assert bool(((got > 0) & (got < math.log(2))).all())
    torch.testing.assert_close(jensen_shannon(p, q, base=2), got / math.log(2))


def test_the_jensen_shannon_divergence_ends_at_0_and_log_2() -> None:
    p, apart = f64([0.5, 0.5, 0.0]), f64([0.0, 0.0, 1.0])
    assert float(jensen_shannon(p, p)) == 0
    assert float(jensen_shannon(p, apart)) == pytest.approx(math.log(2), abs=1e-15)
    for bad in (2 * p, f64([math.nan, 0.5, 0.5])):
        with pytest.raises(ValueError, match="q must"):
            jensen_shannon(p, bad)
