"""Chains of a network's weights: energy, adaptation, the exact posterior of a linear model, divergences."""

import math

import pytest
import torch
from torch import nn

import margin
from margin.bayes.mcmc.adaptation import Adaptation, first_step
from margin.bayes.mcmc.chains import Moved, Point, point_at, transition
from margin.bayes.mcmc.learning import (
    STABLE,
    _counted,
    curvature_of,
    energy_of,
    hamiltonian_sampling,
    langevin_sampling,
    taken,
)
from margin.bayes.mcmc.posterior import ChainClassifier, ChainRegressor
from margin.core.options import Training
from margin.core.types import Batch
from margin.engine.loop import NonFiniteError, State, fit
from margin.runs.inference import predictions
from margin.sklearn import MarginRegressor

DOUBLE = torch.float64


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def rows(count: int = 12) -> torch.Tensor:
    i = torch.arange(float(count), dtype=DOUBLE)
    return torch.stack((i.sin(), (2 * i).cos(), i / 12 - 0.5), 1)


def linear() -> nn.Module:
    return nn.Linear(3, 1, bias=False).double()


def test_the_energy_is_the_negative_log_joint_density() -> None:
    """Up to a constant: differences of two positions, by torch's distributions."""
    x, y = rows(), rows()[:, 0] + 0.1
    weight = torch.ones(12, dtype=DOUBLE)
    weight[3] = 2
    model = ChainRegressor(
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).double(), prior_precision=0.7
    )
    theta = torch.randn(4, 12, generator=generator(), dtype=DOUBLE)

    def density(row: torch.Tensor) -> float:
        W, b, v, c = row[:6].reshape(2, 3), row[6:8], row[8:10], row[10]
        mean = (x @ W.T + b) @ v + c
        normal = torch.distributions.Normal
        found = (weight * normal(mean, row[11].exp().sqrt()).log_prob(y)).sum()
        for values, precision in ((W, 0.7 * 3), (b, 0.7), (v, 0.7 * 2), (c, 0.7)):
            found = found + normal(0 * values, precision**-0.5).log_prob(values).sum()
        center = torch.tensor(math.log(0.1), dtype=DOUBLE)
        return float(found + normal(center, torch.tensor(2.0, dtype=DOUBLE)).log_prob(row[11]))

    energy = energy_of(model, x, y, weight)(theta)
    expected = torch.tensor([-density(row) for row in theta], dtype=DOUBLE)
    assert torch.allclose(energy - energy[0], expected - expected[0])


def test_the_energy_of_classes_and_the_share_of_a_batch() -> None:
    x, y, weight = rows(), torch.arange(12) % 3, torch.ones(12, dtype=DOUBLE)
    model = ChainClassifier(lambda: nn.Linear(3, 3).double(), 3)
    theta = torch.randn(4, 12, generator=generator(), dtype=DOUBLE)
    whole = energy_of(model, x, y, weight)
    halves = [energy_of(model, x[s], y[s], weight[s], 0.5) for s in (slice(0, 6), slice(6, 12))]
    assert torch.allclose((halves[0](theta) + halves[1](theta)) / 2, whole(theta))
    W, b = theta[0, :9].reshape(3, 3), theta[0, 9:]
    loss = torch.nn.functional.cross_entropy(x @ W.T + b, y, reduction="sum")
    prior = (3 * W.square().sum() + b.square().sum()) / 2
    assert float(whole(theta)[0]) == pytest.approx(float(loss + prior))


def narrow(theta: torch.Tensor) -> torch.Tensor:
    """Independent Gaussians of deviations 0.01, 1 and 3."""
    return (theta / torch.tensor([0.01, 1.0, 3.0], dtype=DOUBLE)).square().sum(1) / 2


def test_the_first_step_is_of_the_size_of_the_narrowest_deviation() -> None:
    at = point_at(narrow, torch.zeros(8, 3, dtype=DOUBLE))
    step = first_step(narrow, at, torch.ones(3, dtype=DOUBLE), generator())
    assert 0.002 < step < 0.08
    wide = first_step(lambda t: narrow(t / 1000), at, torch.ones(3, dtype=DOUBLE), generator())
    assert 2 < wide < 80


def test_dual_averaging_brings_the_acceptance_to_its_target() -> None:
    """Of 8 chains and 200 proposals the mean acceptance's deviation is below 0.02.

    Averaged steps are somewhat too cautious: acceptance is concave in them.
    """
    for target, least, most in ((0.6, 0.55, 0.8), (0.9, 0.88, 0.97)):
        at, found, draw = point_at(narrow, torch.zeros(8, 3, dtype=DOUBLE)), Adaptation(3), generator()
        found.begin(first_step(narrow, at, found.inverse, draw))
        accepted = []
        for i in range(400):
            moved = transition(
                narrow, at, inverse=found.inverse, step=found.step(i < 200), steps=10, generator=draw
            )
            at = moved.at
            if i < 200:
                found.update(float(moved.acceptance.mean()), target)
            else:
                accepted.append(float(moved.acceptance.mean()))
        assert least < sum(accepted) / 200 < most


def test_two_updates_of_dual_averaging_by_hand() -> None:
    """Hoffman and Gelman 2014, Equation 6: the iterates are drawn toward ten times the first step."""
    found = Adaptation(1)
    found.begin(0.3)
    found.update(0.5, 0.8)
    first = math.log(3) - 1 / 0.05 * 0.3 / 11
    assert float(found.log_step) == pytest.approx(first) == pytest.approx(float(found.log_mean))
    found.update(1.0, 0.8)
    error = 0.3 / 11 * (1 - 1 / 12) - 0.2 / 12
    second, share = math.log(3) - 2**0.5 / 0.05 * error, 2**-0.75
    assert float(found.log_step) == pytest.approx(second)
    assert float(found.log_mean) == pytest.approx(share * second + (1 - share) * first)


def test_masses_are_inverse_variances_shrunk_as_stan_does() -> None:
    found, x = Adaptation(2), rows()[:, :2] * torch.tensor([1.0, 10.0], dtype=DOUBLE)
    for part in x.split(4):
        found.observe(part)
    found.take_masses()
    assert torch.allclose(found.inverse, 12 / 17 * x.var(0) + 1e-3 * 5 / 17)
    fresh = Adaptation(2)
    fresh.take_masses()
    assert torch.equal(fresh.inverse, torch.ones(2, dtype=DOUBLE))


def sampled(model: nn.Module, step, x: torch.Tensor, y: torch.Tensor, steps: int) -> nn.Module:
    fit(State({"model": model}, seed=0), lambda _: Batch((x,), y), step(steps), max_steps=steps)
    return model.eval()


def exact(
    x: torch.Tensor, y: torch.Tensor, noise: float, precision: float
) -> tuple[torch.Tensor, torch.Tensor]:
    V = torch.linalg.inv(x.T @ x / noise + precision * torch.eye(3, dtype=DOUBLE))
    return V @ x.T @ y / noise, V


# ten seconds: a posterior's covariance takes thousands of draws
def test_hamiltonian_chains_have_the_exact_posterior_of_a_linear_model() -> None:
    """4 chains of 600 draws, nearly independent: means to 5 / sqrt(2400) deviations, covariances likewise."""
    x = rows(20)
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=DOUBLE) + 0.3 * (7 * torch.arange(20.0, dtype=DOUBLE)).sin()
    y = (y - y.mean()) / y.std(correction=0)
    torch.manual_seed(0)
    model = ChainRegressor(linear, draws=600, prior_precision=0.2, noise=0.3, learn="none")
    model = sampled(model, lambda n: hamiltonian_sampling(n, leapfrog_steps=6), x, y, 1200)
    mean, V = exact(x, y, 0.3, 0.6)
    draws = model.draws.flatten(0, 1)
    scale = V.diagonal().sqrt()
    assert int(model.taken) == 600 and float(model.divergent.sum()) == 0
    assert ((draws.mean(0) - mean) / scale).abs().max() < 5 / 2400**0.5 * 1.5
    off = (draws.T.cov() - V) / torch.outer(scale, scale)
    assert off.abs().max() < 5 * (2 / 2400) ** 0.5 * 1.5
    law = model.predictive(x[:4])
    variance = (x[:4] @ V * x[:4]).sum(1) + 0.3
    assert torch.allclose(law.variance, variance, rtol=0.05) and torch.allclose(law.mean, model(x[:4]))


@pytest.mark.parametrize(("friction", "variance"), [(0.0, 4 / 3), (0.3, None)])
def test_langevin_chains_have_the_variance_of_their_step_size(
    friction: float, variance: float | None
) -> None:
    """One weight of posterior precision 1: 1 / (1 - eps / 4) = 4/3; with momentum that of its recursion.

    500 chains of 40 draws, ten passes apart: the deviation of a variance is below 2 %, five below 10 %.
    """
    x, y = torch.ones(2, 1, dtype=DOUBLE) * 0.5**0.5, torch.tensor([1.0, -1.0], dtype=DOUBLE)
    model = ChainRegressor(
        lambda: nn.Linear(1, 1, bias=False).double(),
        chains=500,
        draws=40,
        prior_precision=0.5,
        noise=2.0,
        learn="none",
    )
    step = 1.0
    model = sampled(
        model, lambda n: langevin_sampling(n, step_size=2 * step, friction=friction, batch_size=2), x, y, 400
    )
    if variance is None:  # z = (theta, v) moves by A z + noise b: the fixed point of S = A S A' + b b'
        A = torch.tensor([[1 - step / 2, 1 - friction], [-step / 2, 1 - friction]], dtype=DOUBLE)
        b = torch.full((2,), (friction * step) ** 0.5, dtype=DOUBLE)
        S = torch.zeros(2, 2, dtype=DOUBLE)
        for _ in range(2000):
            S = A @ S @ A.T + torch.outer(b, b)
        variance = float(S[0, 0])
    draws = model.draws[:, :, 0]
    assert abs(variance - 1) > 0.15 and float(draws.var()) == pytest.approx(variance, rel=0.1)
    assert float(draws.mean().abs()) < 5 * (variance / 4000) ** 0.5


def one_weight(chains: int, draws: int) -> ChainRegressor:
    """Of inputs 1 and noise 2 each row adds 1/2 to the posterior's precision, which begins at 1/2."""
    return ChainRegressor(
        lambda: nn.Linear(1, 1, bias=False).double(), chains=chains, draws=draws, prior_precision=0.5,
        noise=2.0, learn="none",
    )  # fmt: skip


def test_a_batch_stands_for_all_rows() -> None:
    """Two equal rows, one a step: the gradients are those of both, of precision 3/2 and not 1.

    500 chains of 20 draws: a variance errs by 1.5 %, five are 7 %; of precision 1 it is 39 % more.
    """
    x, y = torch.ones(2, 1, dtype=DOUBLE), torch.zeros(2, dtype=DOUBLE)
    model = sampled(
        one_weight(500, 20), lambda n: langevin_sampling(n, step_size=1.0, batch_size=1), x, y, 100
    )
    assert float(model.draws.var()) == pytest.approx(1 / (1.5 * (1 - 0.5 * 1.5 / 4)), rel=0.07)


@pytest.mark.parametrize("make", [langevin_sampling, hamiltonian_sampling])
def test_nothing_of_the_warm_up_is_kept(make) -> None:
    x, y = torch.ones(2, 1, dtype=DOUBLE), torch.zeros(2, dtype=DOUBLE)
    model = one_weight(3, 5)
    state, step = State({"model": model}, seed=0), make(60)
    fit(state, lambda _: Batch((x,), y), step, max_steps=30)
    assert int(model.taken) == 0
    fit(state, lambda _: Batch((x,), y), step, max_steps=60)
    assert int(model.taken) == 5 and torch.equal(model.draws[-1], model.positions)


def test_the_curvature_of_a_quadratic_is_its_matrix() -> None:
    """Of a diagonal one a single probe is exact; else a probe errs by 1/2, the mean of 4,800 by 0.7 %."""
    theta = torch.randn(3, 4, generator=generator(), dtype=DOUBLE)
    scale = torch.tensor([1.0, 40.0, 0.3, 5.0], dtype=DOUBLE)
    inverse, largest = curvature_of(lambda t: (scale * t.square()).sum(1) / 2, theta, generator())
    assert torch.allclose(inverse, 1 / scale, rtol=1e-5) and float(largest) == pytest.approx(1, rel=1e-5)
    R = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=DOUBLE)
    H = torch.outer(torch.tensor([1.0, 30.0]).double(), torch.tensor([1.0, 30.0]).double()) * R
    begin = torch.zeros(400, 2, dtype=DOUBLE)
    inverse, largest = curvature_of(lambda t: (t @ H * t).sum(1) / 2, begin, generator())
    assert torch.allclose(inverse * torch.tensor([1.0, 900.0]).double(), torch.ones(2).double(), rtol=0.04)
    assert float(largest) == pytest.approx(1.5, rel=0.04)


@pytest.mark.parametrize("friction", [0.0, 0.3])
def test_the_default_step_mixes_on_features_of_any_scale(friction: float) -> None:
    """Standard deviations of 1, 1,000 and 0.01: a step for the first alone would blow up, or never move.

    100 chains of 20 draws, nearly independent: a variance errs by 3.2 % in one deviation.
    """
    x = rows(20) * torch.tensor([1.0, 1000.0, 0.01], dtype=DOUBLE)
    y = (rows(20) @ torch.tensor([1.0, -2.0, 0.5], dtype=DOUBLE)).tanh()
    y = (y - y.mean()) / y.std(correction=0)
    torch.manual_seed(0)
    model = ChainRegressor(linear, chains=100, draws=20, prior_precision=1e-6, noise=0.3, learn="none")
    factory = lambda n: langevin_sampling(n, friction=friction, batch_size=20)
    model = sampled(model, factory, x, y, 600)
    mean, V = exact(x, y, 0.3, 3e-6)
    draws, scale = model.draws.flatten(0, 1), V.diagonal().sqrt()
    assert ((draws.mean(0) - mean) / scale).abs().max() < 5 / 2000**0.5 * 1.5
    ratio = draws.var(0) / scale.square()
    assert float(ratio.min()) > 0.84 and float(ratio.max()) < 1.16 / (1 - STABLE / 4)


def test_draws_are_spaced_evenly_after_the_warm_up() -> None:
    model = ChainClassifier(lambda: nn.Linear(3, 2), 2, draws=4)
    kept = []
    for step in range(10):
        model.positions.fill_(step)
        before = int(model.taken)
        taken(model, step + 1, 10)
        kept += [step] if int(model.taken) > before else []
    assert kept == [2, 4, 7, 9] and model.draws[:, 0, 0].tolist() == [2, 4, 7, 9]
    few = ChainClassifier(lambda: nn.Linear(3, 2), 2, draws=9)
    for step in range(3):
        taken(few, step + 1, 3)
    assert int(few.taken) == 3


def test_a_chain_that_diverged_is_reported_and_not_averaged() -> None:
    model = ChainRegressor(linear, chains=3, draws=5, learn="none").double()
    model.draws.copy_(torch.randn(5, 3, 3, generator=generator(), dtype=DOUBLE))
    model.draws[:, 1] = 1e6
    model.taken.fill_(5)
    model.proposals.fill_(20)
    model.divergent.copy_(torch.tensor([0.0, 15.0, 2.0]))
    assert model.mixing().tolist() == [True, False, True]
    expected = torch.einsum("dcp,bp->dcb", model.draws[:, [0, 2]], rows()).flatten(0, 1).mean(0)
    assert torch.allclose(model.eval()(rows()), expected)
    model.divergent.fill_(20)
    with pytest.raises(ValueError, match="every chain diverged: no draw is of the posterior"):
        model(rows())


def test_chains_that_all_diverge_are_given_up_with_what_helps() -> None:
    model = ChainClassifier(lambda: nn.Linear(3, 2), 2, chains=2)
    lost = Moved(None, torch.zeros(2), torch.ones(2, dtype=torch.bool), torch.ones(2))
    for _ in range(9):
        _counted(model, lost)
    with pytest.raises(NonFiniteError, match=r"every chain diverged: .*--epochs.*--model\.prior-precision"):
        _counted(model, lost)


def test_an_energy_that_is_no_number_diverges_and_is_rejected() -> None:
    def wall(theta: torch.Tensor) -> torch.Tensor:
        return torch.where(theta[:, 0] > 0.5, torch.nan, narrow(theta))

    at = point_at(wall, torch.tensor([[0.4999, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=DOUBLE))
    assert isinstance(at, Point)
    found = [
        transition(
            wall,
            at,
            inverse=torch.ones(3, dtype=DOUBLE),
            step=0.5,
            steps=1,
            generator=generator().manual_seed(s),
        )
        for s in range(20)
    ]
    assert any(bool(moved.divergent[0]) for moved in found)
    for moved in found:
        assert bool(moved.at.theta.isfinite().all())
        assert bool((moved.at.theta == at.theta).all(1)[moved.divergent].all())


def test_langevin_steps_that_blow_up_stop_the_training() -> None:
    x, y = rows(), rows()[:, 0]
    model = ChainRegressor(linear, learn="none", noise=1e-3)
    with pytest.raises(NonFiniteError, match=r"a chain diverged: choose a smaller --step\.step-size"):
        sampled(model, lambda n: langevin_sampling(n, step_size=1e4, batch_size=4), x, y, 200)


# nine seconds: from the command line to scikit-learn's face, chains in earnest
@pytest.mark.parametrize("name", ["hmc", "sgld"])
def test_train_predict_estimate(name: str, tmp_path) -> None:
    x = torch.linspace(-2, 2, 60, dtype=DOUBLE)
    y = 5 + 3 * x + 0.5 * (40 * x).sin()
    path = tmp_path / "line.csv"
    path.write_text("\n".join(["x,y", *(f"{a},{b}" for a, b in zip(x.tolist(), y.tolist(), strict=True))]))
    data = margin.open_source(str(path), {"target": "y"})
    options = {"base_options": {"hidden": [4]}, "draws": 20, "chains": 3}
    run = margin.train(name, data, options, Training(epochs=80), out=tmp_path / "run")
    assert run.record["recipe"]["model"] == f"bayes/{name}:values"
    assert run.checkpoint("best") == run.checkpoint("last") or int(margin.load(run).model.taken) == 20
    columns = predictions(run, path)
    assert list(columns) == ["value", "std", "low 95%", "high 95%"]
    fitted = MarginRegressor(name, options=options, epochs=80, random_state=0).fit(
        x[:, None].numpy(), y.numpy()
    )
    value, deviation = fitted.predict(x[:, None].numpy(), return_std=True)
    assert deviation.shape == value.shape and (deviation > 0).all()
    if name == "hmc":
        assert fitted.score(x[:, None].numpy(), y.numpy()) > 0.9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ChainRegressor(linear, chains=1), "chains must be at least 2: got 1"),
        (lambda: ChainRegressor(linear, draws=0), "draws must be at least 1: got 0"),
        (
            lambda: ChainRegressor(linear, prior_precision=0.0),
            "prior_precision must be positive and finite: got 0",
        ),
        (lambda: ChainRegressor(linear, noise=0.0), "noise must be positive and finite: got 0"),
        (lambda: ChainClassifier(lambda: nn.Sequential(nn.BatchNorm1d(3)), 3), "got BatchNorm1d"),
        (lambda: hamiltonian_sampling(10, leapfrog_steps=0), "leapfrog_steps must be at least 1: got 0"),
        (lambda: hamiltonian_sampling(10, target=1.0), r"target must be in \(0, 1\): got 1"),
        (lambda: langevin_sampling(10, step_size=0.0), "step_size must be positive: got 0"),
        (lambda: langevin_sampling(10, friction=1.0), r"friction must be in \[0, 1\): got 1"),
    ],
)
def test_options_out_of_range_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
