"""The no-U-turn sampler: laws it must leave as they are, trees by hand, the exact posterior, its options."""

import pytest
import torch
from torch import nn

from margin.bayes.linear.regression import posterior, reduced
from margin.bayes.mcmc.chains import point_at
from margin.bayes.mcmc.diagnostics import effective_sample_size
from margin.bayes.mcmc.learning import hamiltonian_sampling
from margin.bayes.mcmc.no_u_turn import Span, facing, joined, no_u_turn, no_u_turn_transition, turns
from margin.bayes.mcmc.posterior import ChainRegressor
from margin.core.types import Batch
from margin.engine.loop import State, fit

DOUBLE = torch.float64


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def banana(theta: torch.Tensor) -> torch.Tensor:
    """x ~ N(0, 1), y | x ~ N(x^2, 1 / 4)."""
    x, y = theta.unbind(1)
    return x.square() / 2 + 2 * (y - x.square()).square()


def uniform_gap(values: torch.Tensor) -> float:
    """Kolmogorov's distance from the uniform law, in its unit 1 / sqrt(n): above 2.3 once in 20,000 times."""
    n = len(values)
    below = torch.arange(n, dtype=DOUBLE) / n
    sorted_values = values.sort()[0]
    gap = torch.maximum(sorted_values - below, below + 1 / n - sorted_values).max()
    return float(gap) * n**0.5


@pytest.mark.parametrize(("step", "depth"), [(0.4, 10), (0.25, 10), (0.25, 2)])
def test_chains_that_begin_at_draws_of_the_law_stay_draws_of_it(step: float, depth: int) -> None:
    """The ranks of 20,000 chains under the exact conditional laws, and of their joint, are uniform.

    Six transitions, so that an error of one is added up; three distances each fail once in 20,000 times.
    """
    z = torch.randn(20_000, 2, generator=generator(), dtype=DOUBLE)
    start = torch.stack((z[:, 0], z[:, 0].square() + z[:, 1] / 2), 1)
    found = no_u_turn(
        banana,
        start,
        draws=6,
        step=step,
        depth=depth,
        mass=torch.tensor([1.0, 0.5], dtype=DOUBLE),
        generator=generator(1),
    )
    x, y = found.states[-1].unbind(1)
    a, b = torch.special.ndtr(x), torch.special.ndtr(2 * (y - x.square()))
    radius = 1 - (-(x.square() + 4 * (y - x.square()).square()) / 2).exp()
    for ranks in (a, b, radius):
        assert uniform_gap(ranks) < 2.3
    assert 0.4 < float(found.acceptance.mean()) < 0.95


def test_draws_are_the_exact_posterior_of_a_linear_gaussian_model() -> None:
    """200 chains of 30 draws after 10: means to 5 standard errors over chains, covariance to 10 %."""
    x = torch.randn(30, 2, generator=generator(), dtype=DOUBLE)
    x[:, 1] += x[:, 0]
    y = x @ torch.tensor([1.0, -2.0], dtype=DOUBLE) + 0.5 * torch.randn(
        30, generator=generator(), dtype=DOUBLE
    )
    xc, yc = x - x.mean(0), y - y.mean()
    exact = posterior(
        reduced(x, y, torch.ones(30, dtype=DOUBLE)), torch.tensor(0.25).double(), torch.tensor(1.5).double()
    )

    def energy(theta: torch.Tensor) -> torch.Tensor:
        return (yc - theta @ xc.T).square().sum(1) / 0.5 + theta.square().sum(1) / 3

    found = no_u_turn(energy, torch.zeros(200, 2, dtype=DOUBLE), draws=40, step=0.06, generator=generator())
    kept = found.states[10:]
    error = kept.mean(0).std(0) / 200**0.5
    assert bool(((kept.mean((0, 1)) - exact.mean).abs() < 5 * error).all())
    assert torch.allclose(kept.flatten(0, 1).T.cov(), exact.covariance, rtol=0.1, atol=2e-4)
    assert not found.divergent.any()


def test_a_state_of_the_newest_half_always_replaces_one_of_the_same_weight() -> None:
    """Without a force no trajectory turns and all weights are equal: two doublings end 1, 2 or 3 steps away.

    In a line the halves are 2, 3; in two directions 1, 2. Of 8,000 chains each share errs by 0.005.
    """
    start = torch.zeros(8000, 1, dtype=DOUBLE)
    moved = no_u_turn_transition(
        lambda theta: 0 * theta.sum(1),
        point_at(lambda theta: 0 * theta.sum(1), start),
        inverse=torch.full((1,), 4.0, dtype=DOUBLE),
        step=0.5,
        depth=2,
        generator=generator(),
    )
    v = torch.randn(start.shape, generator=generator(), dtype=DOUBLE) / 2
    steps = (moved.at.theta / (0.5 * 4 * v))[:, 0]
    assert torch.allclose(steps, steps.round()) and bool((moved.steps == 3).all())
    shares = torch.stack([(steps.round() == k).double().mean() for k in range(-3, 4)])
    expected = torch.tensor([1, 2, 1, 0, 1, 2, 1], dtype=DOUBLE) / 8
    assert torch.allclose(shares, expected, atol=0.025) and bool((moved.acceptance == 1).all())


def test_a_trajectory_turns_where_its_momenta_do() -> None:
    """By hand, mass 1/2 in the second coordinate; the last pair turns only beside its nearest states."""
    inverse = torch.tensor([1.0, 2.0], dtype=DOUBLE)

    def span(*momenta: tuple[float, float]) -> Span:
        rows = torch.tensor(momenta, dtype=DOUBLE)
        return Span(rows.sum(0)[None], rows[:1], rows[-1:])

    assert not turns(span((1, 0), (1, 1)), inverse)
    assert turns(span((1, 0), (-2, 0)), inverse) and turns(span((2, 0), (-1, 0)), inverse)
    slanted = span((3, 0), (-1, 1.2))
    assert not turns(slanted, inverse) and turns(slanted, torch.ones_like(inverse))
    one, other = span((1, 0), (1, 0)), span((-3, 0), (8, 0))
    whole, turned = joined(one, other, inverse)
    assert torch.equal(whole.total, torch.tensor([[7.0, 0.0]], dtype=DOUBLE)) and turned
    assert not turns(whole, inverse) and turns(Span(*(-x for x in whole)), inverse) == turns(whole, inverse)
    one, other = span((8, 0), (-3, 0)), span((1, 0), (1, 0))
    whole, turned = joined(one, other, inverse)
    assert not turns(whole, inverse) and turned
    backward = facing(torch.tensor([False]), whole)
    assert torch.equal(backward.first, -whole.last) and torch.equal(backward.total, -whole.total)


def test_a_trajectory_is_as_long_as_the_law_is_wide() -> None:
    """Of deviation 20 half a turn is 20 pi / 0.8 = 79 steps: 128 states surely turn, and 8 seldom do."""
    start = 20 * torch.randn(100, 1, generator=generator(), dtype=DOUBLE)
    law = lambda theta: (theta / 20).square().sum(1) / 2
    found = no_u_turn(law, start, draws=10, step=0.8, generator=generator())
    assert float(found.steps.mean()) / 10 > 25 and float(found.steps.max()) / 10 < 127
    assert float(effective_sample_size(found.states)) > 0.2 * 1000  # of steps as a random walk 0.002
    capped = no_u_turn(law, start, draws=3, step=0.1, depth=4, generator=generator())
    assert float((capped.steps == 45).double().mean()) > 0.9 and float(capped.steps.max()) == 45


def test_its_trees_are_those_of_another_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deviations of 1 and 20, a step of 0.8: NUTS of pyro-ppl 1.9.2 takes 26.53 steps, with error 0.86.

    It asks the ends alone, of sums of momenta less half of both. Over 4,000 trajectories ours err by 0.3.
    """
    scale = torch.tensor([1.0, 20.0], dtype=DOUBLE)
    start = torch.randn(200, 2, generator=generator(), dtype=DOUBLE) * scale

    def ends_alone(one: Span, other: Span, inverse: torch.Tensor) -> tuple[Span, torch.Tensor]:
        whole = Span(one.total + other.total, one.first, other.last)
        return whole, turns(whole._replace(total=whole.total - (whole.first + whole.last) / 2), inverse)

    monkeypatch.setattr("margin.bayes.mcmc.no_u_turn.joined", ends_alone)
    found = no_u_turn(
        lambda theta: (theta / scale).square().sum(1) / 2, start, draws=20, step=0.8, generator=generator()
    )
    assert float(found.steps.mean()) / 20 == pytest.approx(26.53, abs=4 * 0.9)


def test_divergent_trajectories_are_counted_and_left() -> None:
    start = torch.ones(4, 2, dtype=DOUBLE)
    found = no_u_turn(lambda t: (t**4).sum(1), start, draws=5, step=50.0, generator=generator())
    assert found.divergent.tolist() == [5.0] * 4 and torch.equal(found.states[-1], start)
    assert found.steps.tolist() == [5.0] * 4 and float(found.acceptance.max()) == 0
    with pytest.raises(ValueError, match=r"step size above 0 and a doubling: got 1\.0 and 0"):
        no_u_turn(lambda t: t.sum(1), start, draws=1, step=1.0, depth=0, generator=generator())


def test_a_training_by_nuts_has_the_exact_posterior_and_says_how_deep_its_trees_are() -> None:
    """32 chains of 50 draws, nearly independent: means to 5 / sqrt(1600) deviations, covariances likewise."""
    i = torch.arange(20.0, dtype=DOUBLE)
    x = torch.stack((i.sin(), (2 * i).cos(), 2 * i.sin() + 3 * (5 * i).cos()), 1)
    y = (x @ torch.tensor([1.0, -2.0, 0.3], dtype=DOUBLE)) + 0.3 * (7 * i).sin()
    y = (y - y.mean()) / y.std(correction=0)
    torch.manual_seed(0)
    model = ChainRegressor(
        lambda: nn.Linear(3, 1, bias=False).double(),
        draws=50,
        chains=32,
        prior_precision=1e-4,
        noise=0.3,
        learn="none",
    )
    told = []
    fit(
        State({"model": model}, seed=0),
        lambda _: Batch((x,), y),
        hamiltonian_sampling(100, sampler="nuts"),
        max_steps=100,
        hooks=(lambda _, metrics: told.append(metrics),),
    )
    V = torch.linalg.inv(x.T @ x / 0.3 + 3e-4 * torch.eye(3, dtype=DOUBLE))
    draws, scale = model.draws.flatten(0, 1), V.diagonal().sqrt()
    assert ((draws.mean(0) - V @ x.T @ y / 0.3) / scale).abs().max() < 5 / 1600**0.5 * 1.5
    off = (draws.T.cov() - V) / torch.outer(scale, scale)
    assert off.abs().max() < 5 * (2 / 1600) ** 0.5 * 1.5 and float(model.divergent.sum()) == 0
    late = told[-50:]
    assert all(1 <= row["leapfrog_steps"] <= 2 ** row["tree_depth"] - 1 for row in late)
    assert {row["tree_depth"] for row in late} <= {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}
    acceptance = sum(row["acceptance"] for row in told[-50:]) / 50
    assert acceptance == pytest.approx(0.8, abs=0.15)


def test_an_option_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="tree_depth must be at least 1: got 0"):
        hamiltonian_sampling(10, sampler="nuts", tree_depth=0)
