"""The least-mean-squares rule: a step is torch's, its limit is the shortest solution, it says it diverges."""

import math

import pytest
import torch

from margin.classic.linear.lms import AdaptiveLinear, lms, lms_pass
from margin.core.types import Batch
from margin.engine.loop import NonFiniteError, State


def problem(rows: int = 8, features: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + features)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    return x, torch.randn(rows, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("weighted", [False, True])
def test_each_visit_is_a_step_of_sgd_on_half_the_squared_error(weighted: bool) -> None:
    x, y = problem()
    model = AdaptiveLinear(3).double()
    weight = torch.linspace(0.5, 2, 8).double() if weighted else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    order = torch.tensor([3, 1, 1, 7, 0])
    w, b = lms_pass(model.weight, model.bias, x, y, 0.1, order, weight)
    assert not model.weight.any()  # a function: nothing is moved
    for i in order.tolist():
        optimizer.zero_grad()
        error = (model(x[i : i + 1]) - y[i]).square() / 2
        (error * (weight[i] if weighted else 1)).sum().backward()
        optimizer.step()
    assert torch.allclose(w, model.weight.detach(), atol=1e-12)
    assert torch.allclose(b, model.bias.detach(), atol=1e-12)


def test_with_fewer_rows_than_features_it_tends_to_the_shortest_solution() -> None:
    x, y = problem(4, 9)
    w, b = torch.zeros(9).double(), torch.tensor(0.0).double()
    order = torch.randint(0, 4, (20_000,), generator=torch.Generator().manual_seed(0))
    w, b = lms_pass(w, b, x, y, 0.1, order)
    shortest = torch.linalg.pinv(torch.cat((x, torch.ones(4, 1).double()), 1)) @ y
    assert torch.allclose(torch.cat((w, b[None])), shortest, atol=1e-8)


def test_the_step_visits_every_example_once_in_an_order_that_the_seed_draws() -> None:
    x, y = problem()

    def trained(seed: int) -> torch.Tensor:
        state = State({"model": AdaptiveLinear(3).double()}, seed=seed)
        state.reseed(torch.device("cpu"))
        lms(rate=0.05)(state, Batch((x,), y))
        return state.model.weight.detach()

    assert torch.equal(trained(0), trained(0))
    assert not torch.equal(trained(0), trained(1))
    state = State({"model": AdaptiveLinear(3).double()})
    state.generator.manual_seed(4)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(4))
    lms(rate=0.05)(state, Batch((x,), y))
    w, _ = lms_pass(torch.zeros(3).double(), torch.tensor(0.0).double(), x, y, 0.05, order)
    assert torch.allclose(state.model.weight, w, atol=1e-15)


def test_at_the_default_rate_the_loss_falls_to_that_of_least_squares_and_a_little_more() -> None:
    x, _ = problem(200, 3)
    y = x @ torch.tensor([1.0, -2, 0.5]).double() + 3
    state = State({"model": AdaptiveLinear(3).double()})
    step = lms()
    for _ in range(200):
        metrics = step(state, Batch((x,), y))
    assert float(metrics["loss"]) < 1e-12  # without noise the iterates converge
    assert float(state.model.bias.detach()) == pytest.approx(3, abs=1e-6)


def test_an_example_of_weight_zero_is_not_visited() -> None:
    x, y = problem()
    states = [State({"model": AdaptiveLinear(3).double()}) for _ in range(2)]
    bad = x.clone()
    bad[2] = math.nan
    weight = torch.ones(8).double()
    weight[2] = 0
    kept = torch.arange(8) != 2
    for state, batch in zip(states, (Batch((bad,), y, weight), Batch((x[kept],), y[kept])), strict=True):
        state.generator.manual_seed(0)
        lms(rate=0.1)(state, batch)
    assert torch.equal(states[0].model.weight, states[1].model.weight)


def test_a_rate_that_diverges_is_told_and_nothing_is_moved() -> None:
    x, y = problem(200, 3)
    state = State({"model": AdaptiveLinear(3).double()})
    with pytest.raises(NonFiniteError, match=r"diverged at step 0: a rate below .* got 1e\+06"):
        lms(rate=1e6)(state, Batch((x,), y))
    assert not state.model.weight.any()


@pytest.mark.parametrize("rate", [0.0, -0.1, math.inf, math.nan])
def test_a_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate must be positive and finite"):
        lms(rate=rate)
