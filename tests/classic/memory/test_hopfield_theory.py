"""Cross-talk, the exact law of a bit and its limit, capacities: against sums written out and simulation."""

import math
from fractions import Fraction
from itertools import product

import pytest
import torch
from scipy.linalg import hadamard

from margin.classic.memory.hopfield import correlations
from margin.classic.memory.hopfield_dynamics import asynchronous
from margin.classic.memory.hopfield_theory import (
    critical_load,
    crosstalk,
    exact_recall_capacity,
    fixed_patterns,
    flip_probability,
    flip_probability_limit,
    retrieval_overlap,
)


def patterns_of(seed: int, rows: int, n: int) -> torch.Tensor:
    return 2.0 * torch.randint(0, 2, (rows, n), generator=torch.Generator().manual_seed(seed)) - 1


def test_the_crosstalk_is_the_double_sum() -> None:
    P = patterns_of(0, 4, 6).double()
    C = crosstalk(P)
    for t, i in product(range(4), range(6)):
        terms = [P[r, i] * P[r, j] * P[t, j] for j in range(6) for r in range(4) if j != i and r != t]
        assert C[t, i].item() == pytest.approx(float(sum(terms)) / 6, abs=1e-12)
    field = P @ correlations(P) / 6
    assert torch.allclose(P * 5 / 6 + C, field, atol=1e-12)


def test_the_form_printed_with_the_diagonal_is_off_by_its_share() -> None:
    P = patterns_of(1, 4, 6).double()
    printed = torch.stack([sum(P[r] * (P[r] @ P[t]) for r in range(4) if r != t) for t in range(4)]) / 6
    assert torch.allclose(printed - crosstalk(P), P * 3 / 6)


def test_orthogonal_patterns_have_only_the_crosstalk_of_the_missing_diagonal() -> None:
    n = 16
    P = torch.from_numpy(hadamard(n)).double()[:5]
    # the sum over all j vanishes; leaving out j = i takes away (s - 1) x_ti / n
    assert torch.equal(crosstalk(P) + 4 * P / n, torch.zeros(5, n, dtype=torch.float64))
    assert fixed_patterns(P).all()


@pytest.mark.parametrize("load", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("ties", ["up", "keep"])
def test_the_stable_patterns_are_those_that_a_sweep_keeps(load: float, ties: str) -> None:
    n, lost, kept, tied = 40, 0, 0, 0
    for seed in range(200):
        P = patterns_of(seed, round(load * n), n)
        C = correlations(P)
        found = asynchronous(C, torch.zeros(n), P, ties=ties, max_sweeps=1)
        foreseen = fixed_patterns(P, ties=ties)
        assert torch.equal(found.settled, foreseen)
        lost, kept = lost + int((~foreseen).sum()), kept + int(foreseen.sum())
        tied += int((P @ C == 0).any(1).sum())
    assert kept > 0
    assert lost > 0 or load == 0.05
    assert tied > 0 or load < 0.2


def test_ties_are_on_the_boundary_of_the_criterion() -> None:
    # two patterns that agree in one of two units: the fields are 0
    P = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    assert torch.equal(P @ correlations(P), torch.zeros(2, 2))
    assert fixed_patterns(P, ties="keep").tolist() == [True, True]
    assert fixed_patterns(P, ties="up").tolist() == [True, False]


def test_thresholds_enter_the_criterion() -> None:
    P = patterns_of(3, 3, 20)
    b = torch.zeros(20)
    b[4] = 3 * P[0, 4]  # n b = 60 against a field of at most 57
    C = correlations(P)
    found = asynchronous(C, 20 * b, P, max_sweeps=1)
    assert torch.equal(found.settled, fixed_patterns(P, b))
    assert not torch.equal(found.settled, fixed_patterns(P))


def test_small_crosstalk_is_sufficient_and_not_necessary() -> None:
    sufficient = necessary = 0
    for seed in range(100):
        P = patterns_of(seed, 5, 30)
        small = (crosstalk(P).abs() < 29 / 30 - 1e-6).all(1)
        fixed = fixed_patterns(P)
        assert fixed[small].all()
        sufficient, necessary = sufficient + int(small.sum()), necessary + int((fixed & ~small).sum())
    assert sufficient > 0
    assert necessary > 0


# the law of a bit


@pytest.mark.parametrize(("n", "s"), [(2, 2), (3, 2), (2, 3), (3, 3), (4, 2)])
@pytest.mark.parametrize("ties", ["up", "keep"])
def test_the_law_is_the_count_over_all_patterns(n: int, s: int, ties: str) -> None:
    flips = 0
    for signs in product((-1, 1), repeat=n * s):
        x = [signs[r * n : (r + 1) * n] for r in range(s)]
        h = sum(x[r][0] * x[r][j] * x[0][j] for r in range(s) for j in range(1, n))
        flips += x[0][0] * h < 0 or (h == 0 and x[0][0] < 0 and ties == "up")
    assert flip_probability(n, s, ties=ties) == pytest.approx(float(Fraction(flips, 2 ** (n * s))), abs=1e-14)


@pytest.mark.parametrize(("n", "s", "value"), [(1000, 138, 0.003463), (100, 14, 0.00289)])
def test_known_values_of_the_law(n: int, s: int, value: float) -> None:
    assert flip_probability(n, s) == pytest.approx(value, rel=2e-3)


@pytest.mark.parametrize(("load", "value"), [(0.138, 0.003552), (0.185, 0.01004), (0.14, 0.00376)])
def test_known_values_of_the_limit(load: float, value: float) -> None:
    assert flip_probability_limit(load) == pytest.approx(value, rel=1e-3)


def test_the_form_printed_without_the_normalizer_is_no_probability() -> None:
    load = 0.138
    z = torch.linspace(1, 40, 400_001, dtype=torch.float64)
    density = (-(z**2) / (2 * load)).exp()
    printed = torch.trapezoid(density, z).item()
    assert printed / math.sqrt(2 * math.pi * load) == pytest.approx(flip_probability_limit(load), rel=1e-6)
    assert abs(printed / flip_probability_limit(load) - 1) > 0.05


def test_the_law_tends_to_its_limit() -> None:
    gaps = [abs(flip_probability(n, n // 5) / flip_probability_limit(0.2) - 1) for n in (50, 500, 5000)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.01


def test_one_pattern_never_flips() -> None:
    assert flip_probability(50, 1) == 0.0


@pytest.mark.parametrize(("n", "s", "nets"), [(50, 7, 2000), (200, 28, 400), (1000, 138, 40)])
def test_the_law_holds_in_simulation(n: int, s: int, nets: int) -> None:
    # 4 standard errors over nets: a false alarm in 16,000
    shares = []
    for seed in range(nets):
        P = patterns_of(seed + 10_000 * n, s, n)
        h = (P @ P.T) @ P - s * P
        shares.append(((P * h < 0) | ((h == 0) & (P < 0))).double().mean())
    shares = torch.stack(shares)
    error = float(shares.std()) / math.sqrt(nets)
    assert abs(float(shares.mean()) - flip_probability(n, s)) <= 4 * error
    assert error < flip_probability(n, s) / 10


# capacity


def test_the_capacities_have_the_natural_logarithm() -> None:
    assert exact_recall_capacity(1000) == pytest.approx(1000 / (2 * 6.907755), rel=1e-6)
    assert exact_recall_capacity(1000, every=True) == pytest.approx(36.19, rel=1e-3)
    with pytest.raises(ValueError, match="units must be at least 2: got 1"):
        exact_recall_capacity(1)


def test_exact_recall_breaks_down_between_the_capacities_and_three_tenths() -> None:
    n = 500
    for s, holds in ((round(exact_recall_capacity(n, every=True)), True), (150, False)):
        shares = [fixed_patterns(patterns_of(seed, s, n)).double().mean().item() for seed in range(5)]
        assert min(shares) > 0.95 if holds else max(shares) < 0.05


def test_recall_from_noise_drops_between_loads_of_12_and_16_hundredths() -> None:
    n, overlaps = 1000, {}
    for load in (0.12, 0.16):
        P = patterns_of(7, round(load * n), n)
        flipped = torch.rand((60, n), generator=torch.Generator().manual_seed(0)) < 0.1
        found = asynchronous(correlations(P), torch.zeros(n), torch.where(flipped, -P[:60], P[:60]))
        overlaps[load] = float((found.state * P[:60]).mean())
    assert overlaps[0.12] > 0.93
    assert overlaps[0.16] < 0.7


def test_the_critical_load_and_its_overlap() -> None:
    assert critical_load() == pytest.approx(0.1379, abs=1e-4)
    assert retrieval_overlap(0.9999 * critical_load()) == pytest.approx(0.967, abs=1.5e-3)
    assert retrieval_overlap(1.0001 * critical_load()) == 0.0
    with pytest.raises(ValueError, match="load must be positive: got 0"):
        retrieval_overlap(0.0)


@pytest.mark.parametrize("load", [1e-4, 0.01, 0.05, 0.1, 0.13])
def test_the_overlap_solves_the_mean_field_equations(load: float) -> None:
    # at temperature 0: m = erf(m / sqrt(2 a r)), r = 1 / (1 - C)^2, C = sqrt(2 / (pi a r)) e^(-m^2 / (2 a r))
    m = 1.0
    for _ in range(2000):
        r = 1.0
        for _ in range(200):
            C = math.sqrt(2 / (math.pi * load * r)) * math.exp(-(m**2) / (2 * load * r))
            r = 1 / (1 - C) ** 2
        new = math.erf(m / math.sqrt(2 * load * r))
        if abs(new - m) < 1e-13:
            break
        m = new
    assert retrieval_overlap(load) == pytest.approx(m, abs=1e-8)


@pytest.mark.parametrize(("n", "s"), [(1000, 138), (100, 14), (200, 28)])
def test_the_law_is_nearly_normal_with_one_unit_and_one_pattern_less(n: int, s: int) -> None:
    normal = math.erfc(math.sqrt((n - 1) / (s - 1) / 2)) / 2  # Q(sqrt((n - 1) / (s - 1)))
    assert flip_probability(n, s) == pytest.approx(normal, rel=5e-3)
    assert abs(flip_probability_limit(s / n) - flip_probability(n, s)) > 2 * abs(
        normal - flip_probability(n, s)
    )


def test_no_units_no_patterns_and_no_load_are_refused() -> None:
    for n, s in ((0, 5), (5, 0), (-1, 3)):
        with pytest.raises(ValueError, match=f"units and patterns must be at least 1: got {n} and {s}"):
            flip_probability(n, s)
    for load in (0.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=f"load must be positive: got {load}"):
            flip_probability_limit(load)
