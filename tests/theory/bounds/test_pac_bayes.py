"""PAC-Bayes: each form from the first, the exact coverage on finite classes, the divergence by quadrature."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Generator
from torch.distributions import Categorical, Normal, kl_divergence

from margin.theory.bounds.binary_kl import binary_kl, kl_upper
from margin.theory.bounds.pac_bayes import (
    averaged_risk,
    catoni,
    change_of_measure,
    complexity,
    drawn_bound,
    gaussian_kl,
    pac_bayes_kl,
    pac_bayes_quadratic,
    pac_bayes_root,
)

RISKS = torch.linspace(0, 1, 21, dtype=torch.float64)


def test_each_form_solves_its_inequality() -> None:
    """By hand: KL 3, n 200, delta .05: (3 + ln(2 sqrt(200) / .05)) / 200 = .046691; notes print 2 / n."""
    c = (3 + math.log(2 * math.sqrt(200) / 0.05)) / 200
    assert float(complexity(torch.tensor(3.0), 200, 0.05)) == pytest.approx(c)
    r, kl = torch.tensor(0.2, dtype=torch.float64), torch.tensor(3.0)
    assert float(binary_kl(r, pac_bayes_kl(r, kl, 200))) == pytest.approx(c)
    assert float(pac_bayes_root(r, kl, 200)) == pytest.approx(0.2 + math.sqrt(c / 2))
    assert float(pac_bayes_root(r, kl, 200)) < 0.2 + math.sqrt(2 * c) / 1.99  # half of the printed root
    R = float(pac_bayes_quadratic(r, kl, 200))
    assert R - math.sqrt(2 * R * c) == pytest.approx(0.2)  # where Pinsker's refined inequality is equality
    slope, grant = 1.5, (3 + math.log(20)) / 200
    bound = float(catoni(r, kl, 200, slope=slope))
    assert math.log(1 - bound * (1 - math.exp(-slope))) == pytest.approx(-slope * 0.2 - grant)


@pytest.mark.parametrize("kl", [0.0, 1.0, 30.0])
def test_the_form_by_divergence_is_the_tightest(kl: float) -> None:
    tight = pac_bayes_kl(RISKS, torch.tensor(kl), 100)
    assert bool((tight <= pac_bayes_root(RISKS, torch.tensor(kl), 100) + 1e-12).all())
    assert bool((tight <= pac_bayes_quadratic(RISKS, torch.tensor(kl), 100) + 1e-12).all())
    quadratic, root = (f(RISKS[:4], torch.tensor(1.0), 1000) for f in (pac_bayes_quadratic, pac_bayes_root))
    assert bool((quadratic < root).all())  # where both lie below a quarter


def test_the_best_slope_of_the_linear_form_is_the_divergence_without_its_root_of_n() -> None:
    """min over C of Catoni's bound is kl^-1(r, (KL + ln(1/delta)) / n): the variational form of kl."""
    n, kl, r = 400, torch.tensor(2.0), torch.tensor(0.15, dtype=torch.float64)
    best = min(float(catoni(r, kl, n, slope=C)) for C in torch.linspace(0.1, 3, 3000).tolist())
    assert float(binary_kl(r, torch.tensor(best))) == pytest.approx((2 + math.log(20)) / n, rel=1e-4)


def test_the_bound_fails_with_probability_delta_at_most_by_enumeration() -> None:
    """Two classifiers of independent errors, every posterior: the failure is summed over all samples."""
    n, delta, prior = 12, 0.2, torch.tensor([0.3, 0.7], dtype=torch.float64)
    risks = torch.tensor([0.35, 0.55], dtype=torch.float64)
    posteriors = torch.linspace(0, 1, 41, dtype=torch.float64)
    Q = torch.stack((posteriors, 1 - posteriors), 1)
    kl = kl_divergence(Categorical(Q), Categorical(prior.expand(len(Q), 2)))
    failing = {"kl": 0.0, "root": 0.0, "quadratic": 0.0, "catoni": 0.0}
    forms = {"kl": pac_bayes_kl, "root": pac_bayes_root, "quadratic": pac_bayes_quadratic, "catoni": catoni}
    for i in range(n + 1):
        for j in range(n + 1):
            chance = binom.pmf(i, n, 0.35) * binom.pmf(j, n, 0.55)
            seen = Q @ (torch.tensor([i, j], dtype=torch.float64) / n)
            for name, form in forms.items():
                failing[name] += chance * bool((form(seen, kl, n, delta) < Q @ risks - 1e-12).any())
    assert max(failing.values()) <= delta
    assert failing["kl"] > 0  # it is not vacuous: some samples fail


def test_a_few_draws_bound_the_mean_error() -> None:
    errors = torch.tensor([0.1, 0.2, 0.0, 0.1])
    bound = averaged_risk(errors, 10, 0.05)
    assert float(binary_kl(torch.tensor(0.1), bound)) == pytest.approx(math.log(40) / 4, rel=1e-5)
    with pytest.raises(ValueError, match="at least one classifier"):
        averaged_risk(torch.empty(0), 10)


def test_draws_that_err_alike_are_bounded_by_their_spread() -> None:
    """600 draws of 50 rows each, 200 of 25: by NumPy, below what as many coins would leave open."""
    rng = np.random.default_rng(0)
    sizes = np.array([50.0] * 600 + [25.0] * 200)
    errors = rng.binomial(sizes.astype(int), 0.02) / sizes
    bound = float(averaged_risk(torch.tensor(errors), 100, 0.05, sizes=torch.tensor(sizes)))
    scaled, log = errors * sizes / 50, math.log(4 / 0.05)
    beyond = math.sqrt(2 * scaled.var(ddof=1) * log / 800) + 7 * log / (3 * 799)
    mean = (errors * sizes).sum() / sizes.sum()
    assert bound == pytest.approx(mean + beyond * 800 / 700, rel=1e-9)
    assert bound < float(kl_upper(mean, math.log(2 / 0.05) / 700)) - 0.001


def failures(shares: np.ndarray, sizes: np.ndarray, truth: float, delta: float) -> int:
    """On how many of the rows of shares the bound lies below the truth."""
    rows = torch.tensor(shares)
    return sum(float(averaged_risk(row, 100, delta, sizes=torch.tensor(sizes))) < truth for row in rows)


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_the_mean_of_few_draws_is_covered(spread: float) -> None:
    """1,000 times 120 networks of 20 or 10 rows, whose risks differ by network: more than delta + 4 standard
    errors of failures have a probability below 1e-4."""
    rng, delta = np.random.default_rng(1), 0.2
    sizes = np.array([20.0] * 90 + [10.0] * 30)
    risks = 0.1 * (1 + spread * rng.choice([-1, 1], size=(1000, 120)))
    shares = rng.binomial(sizes.astype(int), risks) / sizes
    assert failures(shares, sizes, 0.1, delta) <= binom.ppf(1 - 1e-4, 1000, delta)


def test_the_divergence_of_normal_weights_is_torchs() -> None:
    g = Generator().manual_seed(0)
    m, p = (torch.randn(2, 5, generator=g, dtype=torch.float64) for _ in range(2))
    s, t = (torch.rand(2, 5, generator=g, dtype=torch.float64) + 0.3 for _ in range(2))
    expected = kl_divergence(Normal(m, s), Normal(p, t)).sum(-1)
    torch.testing.assert_close(gaussian_kl(m, s, p, t), expected)
    assert gaussian_kl(m, s, m, s).tolist() == [0.0, 0.0]


def test_the_change_of_measure_is_a_divergence_from_the_tilted_law() -> None:
    g = Generator().manual_seed(1)
    x = torch.randn(30, 6, generator=g, dtype=torch.float64)
    q, p = (torch.randn(30, 6, generator=g, dtype=torch.float64).softmax(1) for _ in range(2))
    tilted = (p.log() + x).softmax(1)
    expected = kl_divergence(Categorical(q), Categorical(tilted))
    torch.testing.assert_close(change_of_measure(x, q, p), expected)
    torch.testing.assert_close(change_of_measure(x, tilted, p), torch.zeros(30).double(), atol=1e-12, rtol=0)
    half = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    none = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    assert float(change_of_measure(x[0, :3], half, none)) == math.inf  # q is not absolutely continuous
    assert math.isfinite(float(change_of_measure(x[0, :3], none, half)))


@pytest.mark.parametrize(
    ("change", "match"),
    [({"risk": 1.2}, r"in \[0, 1\]"), ({"kl": -1.0}, "must be at least 0"), ({"n": 0}, "n must be"),
     ({"delta": 0.0}, "delta must lie"), ({"delta": 1.0}, "delta must lie")],
)  # fmt: skip
@pytest.mark.parametrize("form", [pac_bayes_kl, pac_bayes_root, pac_bayes_quadratic, catoni])
def test_what_the_theorem_does_not_allow_is_refused(form, change, match) -> None:
    given = {"risk": 0.1, "kl": 1.0, "n": 100, "delta": 0.05} | change
    risk, kl = torch.tensor(given["risk"]), torch.tensor(given["kl"])
    with pytest.raises(ValueError, match=match):
        form(risk, kl, given["n"], given["delta"])


def test_a_slope_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="slope must be above 0: got 0"):
        catoni(torch.tensor(0.1), torch.tensor(1.0), 10, slope=0.0)


def test_one_drawn_classifier_fails_with_probability_delta_at_most_by_enumeration() -> None:
    """Two classifiers of dependent errors, Q by the sample; the failure is summed over samples and draws.

    The divergence in place of the ratio would fail more often than its share: the draw from Q may be the
    classifier that Q has raised most.
    """
    n, delta = 12, 0.3
    prior = torch.tensor([0.05, 0.95], dtype=torch.float64)
    risks = (0.4, 0.4)
    failed = {"ratio": 0.0, "divergence": 0.0}
    for i in range(n + 1):
        for j in range(n + 1):
            chance = binom.pmf(i, n, risks[0]) * binom.pmf(j, n, risks[1])
            q = (prior.log() - 3.0 * torch.tensor([i, j])).softmax(0)
            kl = float((q * (q / prior).log()).sum())
            for h, errors in enumerate((i, j)):
                ratio = float((q[h] / prior[h]).log())
                bounds = {
                    "ratio": drawn_bound(errors / n, ratio, n, delta),
                    "divergence": pac_bayes_kl(errors / n, max(kl, 0.0), n, delta),
                }
                for name, bound in bounds.items():
                    failed[name] += chance * float(q[h]) * (float(bound) < risks[h])
    assert failed["ratio"] <= delta
    assert failed["divergence"] >= failed["ratio"]


def test_a_ratio_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="log_ratio must be a number"):
        drawn_bound(0.1, math.nan, 10)
    assert float(drawn_bound(0.1, -5.0, 50)) == float(pac_bayes_kl(0.1, 0.0, 50))
    c = (2 + math.log(2 * math.sqrt(50) / 0.05)) / 50
    assert float(binary_kl(0.1, drawn_bound(0.1, 2.0, 50))) == pytest.approx(c)
