"""Schedules and the moving average against their closed forms."""

import math

import pytest
import torch
from torch import nn

from margin.engine.state import State, fit
from margin.engine.wrappers import autocast, averaged, scheduled
from margin.optim.schedules import schedule_of
from margin.types import Batch


def growing(state: State, batch: int) -> dict[str, float]:
    with torch.no_grad():
        state.model.weight += 1
    return {}


def test_the_average_is_the_geometric_sum() -> None:
    modules = {"model": nn.Linear(1, 1, bias=False), "average": nn.Linear(1, 1, bias=False)}
    for module in modules.values():
        nn.init.zeros_(module.weight)
    state = State(modules)
    fit(state, lambda step: step, averaged(growing, 0.9), max_steps=5)
    expected = sum(0.1 * 0.9 ** (5 - k) * k for k in range(1, 6))
    assert abs(state.usable.weight.item() - expected) <= 1e-6
    assert state.usable is modules["average"]


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("constant", lambda u: 1.0),
        ("linear", lambda u: 1 - u),
        ("cosine", lambda u: (1 + math.cos(math.pi * u)) / 2),
    ],
)
def test_a_schedule_multiplies_the_first_rate(name: str, at) -> None:
    model = nn.Linear(1, 1)
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.5)})
    rates = []

    def step(state: State, batch: int) -> dict[str, float]:
        rates.append(state.optimizers[""].param_groups[0]["lr"])
        return {}

    fit(state, lambda k: k, scheduled(step, schedule_of(name, total=10, warmup=4)), max_steps=10)
    warm = [0.5 * k / 4 for k in (1, 2, 3, 4)]
    after = [0.5 * at((k - 4) / 6) for k in range(4, 10)]
    assert all(abs(a - b) <= 1e-12 for a, b in zip(rates, warm + after, strict=True))


def test_autocast_rounds_products_and_returns_float32() -> None:
    model = nn.Linear(64, 1)
    seen = []

    def objective(module: nn.Module, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        out = module(batch.inputs[0])
        seen.append(out.dtype)
        return out.square()[:, 0]

    batch = Batch((torch.randn(5, 64),))
    values = autocast(objective, "cpu")(model, batch, torch.Generator())
    assert seen == [torch.bfloat16]
    assert values.dtype == torch.float32


def test_a_schedule_moves_every_group_of_every_optimizer() -> None:
    one, two = nn.Linear(1, 1), nn.Linear(1, 1)
    groups = [{"params": [one.weight], "lr": 0.5}, {"params": [one.bias], "lr": 0.1}]
    optimizers = {"one": torch.optim.SGD(groups), "two": torch.optim.SGD(two.parameters(), lr=2.0)}
    state = State({"model": nn.ModuleList([one, two])}, optimizers)
    fit(state, lambda step: step, scheduled(lambda s, b: {}, lambda step: 1 / (1 + step)), max_steps=4)
    rates = [group["lr"] for optimizer in optimizers.values() for group in optimizer.param_groups]
    assert rates == [0.125, 0.025, 0.5]  # a quarter at the fourth step


def test_the_average_copies_the_buffers() -> None:
    modules = {"model": nn.BatchNorm1d(2), "average": nn.BatchNorm1d(2)}
    batch = torch.tensor([[1.0, 4.0], [3.0, 8.0]])

    def step(state: State, index: int) -> dict[str, float]:
        state.model(batch)
        return {}

    fit(State(modules), lambda step: step, averaged(step, 0.9), max_steps=2)
    for name, buffer in modules["model"].named_buffers():
        assert torch.equal(modules["average"].get_buffer(name), buffer)
    # momentum 0.1 from 0: (1 - 0.9^2) times the means 2 and 6
    assert torch.allclose(modules["average"].running_mean, torch.tensor([0.38, 1.14]), atol=1e-6)
