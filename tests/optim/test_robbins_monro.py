"""The conditions on rates: by the exponent, and what they mean in a simulation."""

import numpy as np
import pytest

from margin.optim.robbins_monro import robbins_monro
from margin.optim.schedules import SCHEDULES, schedule_of


@pytest.mark.parametrize(
    ("p", "diverge", "converge"),
    [
        (0.4, True, False),
        (0.5, True, False),  # the sum of 1/t is infinite
        (0.75, True, True),
        (1, True, True),
        (1.1, False, True),
    ],
)
def test_powers(p, diverge, converge):
    found = robbins_monro("power", {"p": p})
    assert found == (diverge, converge)
    assert found.met == (diverge and converge)


@pytest.mark.parametrize("p", [0.25, 0.6, 1.3])
def test_powers_by_their_partial_sums(p):
    # Cauchy's condensation: the sum over t in (2^k, 2^(k+1)] grows or stays exactly if the series diverges
    found, factor = (
        robbins_monro("power", {"p": p}),
        schedule_of("power", total=1, warmup=0, options={"p": p}),
    )
    rates = np.array([factor(t) for t in range(2**14)])

    def grows(terms):
        return terms[2**13 :].sum() >= 0.99 * terms[2**12 : 2**13].sum()

    assert (grows(rates), not grows(rates**2)) == found


def test_the_other_schedules():
    found = {
        name: robbins_monro(
            name, {"exponential": {"factor": 0.9}, "step": {"every": 9}, "power": {"p": 1}}.get(name)
        )
        for name in SCHEDULES
    }
    assert [name for name, conditions in found.items() if conditions.met] == ["power"]
    assert found["constant"] == found["inverse_sqrt"] == (True, False)
    assert found["step"] == found["exponential"] == found["cosine"] == found["linear"] == (False, True)
    assert robbins_monro("exponential", {"factor": 1}) == robbins_monro("step", {"every": 2, "factor": 1})
    assert robbins_monro("exponential", {"factor": 1}) == (True, False)


def test_what_is_no_schedule_is_refused():
    with pytest.raises(ValueError, match="unknown schedule 'plateau'"):
        robbins_monro("plateau")
    with pytest.raises(ValueError, match="the schedule power needs p"):
        robbins_monro("power")


def test_a_noisy_descent_converges_exactly_where_both_hold():
    """x <- x - a_t (x + z) from 100, a_t = 0.3 t^-p, T = 60,000.

    p = 0.75: the start is forgotten, the rest has variance about a_T / 2, standard deviation 0.006.
    p = 1.1: the rates sum to at most 0.3 zeta(1.1) = 3.2, so 4 of the 100 are left at least.
    constant: the variance stays a / (2 - a) = 0.18; the mean of 20,000 squares strays by 0.005.
    Chances of failure below 1e-9.
    """
    rng = np.random.default_rng(0)

    def end(p):
        factor = schedule_of("power", total=1, warmup=0, options={"p": p})
        x, path = 100.0, []
        for t, z in enumerate(rng.standard_normal(60_000)):
            x -= 0.3 * factor(t) * (x + z)
            path.append(x)
        return np.array(path)

    assert abs(end(0.75)[-1]) <= 0.05
    assert end(1.1)[-1] > 2
    assert abs((end(0.0)[-20_000:] ** 2).mean() - 0.3 / 1.7) <= 0.04
