"""The score-function gradient against closed forms; the form that the notes print fails."""

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal

from margin.math.probability.score_function import score_function_gradient, scores

SAMPLES = 20_000


def normal(mu, x):
    return Normal(mu, 1.0).log_prob(x)


def drawn(mu, seed=0):
    noise = torch.randn(SAMPLES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return mu + noise


@pytest.mark.parametrize("mu", [-1.5, 0.0, 0.7])
@pytest.mark.parametrize("baseline", [0.0, 2.0])
def test_the_gradient_of_the_second_moment_is_2_mu(mu, baseline):
    # Fails by chance with probability 6e-5 a case at 4 standard errors; the seed is fixed.
    theta, x = torch.tensor(mu, dtype=torch.float64), drawn(mu)
    found = score_function_gradient(x.square(), normal, theta, x, baseline=baseline)
    assert abs(float(found.value) - 2 * mu) <= 4 * float(found.stderr)
    assert abs(float(found.score)) <= 4 * float(found.score_stderr)
    assert float(found.score_stderr) == pytest.approx(SAMPLES**-0.5, rel=0.05)  # the information is 1
    assert float(found.stderr) < 0.1


def test_the_stated_error_is_the_spread_of_repeated_estimates():
    theta = torch.tensor(0.7, dtype=torch.float64)
    found = [score_function_gradient(x.square(), normal, theta, x) for x in drawn(0.7).split(200)]
    values = torch.stack([each.value for each in found])
    stated = torch.stack([each.stderr for each in found]).square().mean().sqrt()
    # 100 repetitions: the ratio of deviations lies within 1 -+ 0.4 but with probability below 1e-4
    assert float(values.std() / stated) == pytest.approx(1, abs=0.4)


def test_a_baseline_near_the_mean_makes_the_error_smaller():
    theta, x = torch.tensor(3.0, dtype=torch.float64), drawn(3.0)
    plain = score_function_gradient(x.square(), normal, theta, x)
    better = score_function_gradient(x.square(), normal, theta, x, baseline=10.0)
    assert float(better.stderr) < 0.7 * float(plain.stderr)


def test_a_law_of_several_parameters_over_a_function_without_a_derivative():
    logits = torch.tensor([0.2, -0.5, 1.0], dtype=torch.float64)
    x = torch.multinomial(logits.softmax(0), SAMPLES, True, generator=torch.Generator().manual_seed(1))
    f = torch.tensor([3.0, 0.0, -1.0], dtype=torch.float64)
    found = score_function_gradient(f[x], lambda t, i: Categorical(logits=t).log_prob(i), logits, x)
    p = logits.softmax(0)
    exact = p * (f - p @ f)  # the gradient of sum_i p_i f_i
    assert bool(((found.value - exact).abs() <= 4 * found.stderr).all())
    assert bool((found.score.abs() <= 4 * found.score_stderr).all())


def test_the_score_is_the_derivative_of_the_density_over_the_density():
    theta = torch.tensor(0.3, dtype=torch.float64)
    x = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    found = scores(lambda p, x: Bernoulli(p).log_prob(x), theta, x)
    assert found.tolist() == pytest.approx([-1 / 0.7, 1 / 0.3, 1 / 0.3])


def test_the_score_in_x_is_no_gradient_of_the_expectation():
    # d log p / dx instead of d log p / d mu has the wrong sign for a Gaussian; without f it has mean 0
    theta, x = torch.tensor(0.7, dtype=torch.float64), drawn(0.7)
    in_x = torch.func.vmap(torch.func.grad(lambda x: normal(theta, x)))(x)
    found = score_function_gradient(x.square(), normal, theta, x)
    assert abs(float((x.square() * in_x).mean()) - 1.4) > 20 * float(found.stderr)
    assert abs(float(found.score) - 1.4) > 20 * float(found.stderr)


def test_what_has_no_error_is_refused():
    theta, x = torch.tensor(0.0), torch.zeros(1)
    with pytest.raises(ValueError, match="two samples or more: got 1 values, 1 samples"):
        score_function_gradient(x, normal, theta, x)
    with pytest.raises(ValueError, match="got 2 values, 3 samples"):
        score_function_gradient(torch.zeros(2), normal, theta, torch.zeros(3))
    with pytest.raises(ValueError, match="baseline must be finite: got nan"):
        score_function_gradient(torch.zeros(2), normal, theta, torch.zeros(2), baseline=float("nan"))
