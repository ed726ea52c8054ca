"""A flow told the class: a density for each class, whose mean is the density of a row."""

import pytest
import torch
from torch import Generator, Tensor

from margin.generative.flow.realnvp import ConditionalRealNVP, conditional_realnvp


def begun(classes: int = 3, features: int = 2) -> ConditionalRealNVP:
    torch.manual_seed(0)
    flow = conditional_realnvp(features, classes, layers=4, hidden=(8,)).double()
    with torch.no_grad():
        for network in flow.couplings.networks:
            network[-1].weight.mul_(8)  # type: ignore[index,union-attr]
    return flow


def drawn(count: int, dim: int = 2) -> Tensor:
    return torch.randn(count, dim, generator=Generator().manual_seed(1), dtype=torch.float64)


@torch.no_grad()
def test_each_class_has_a_density_of_its_own_and_a_row_their_mean() -> None:
    flow, x = begun(), drawn(7)
    given = torch.stack([flow.log_prob_given(x, torch.full((7,), c)) for c in range(3)])
    assert float((given[0] - given[1]).abs().min()) > 1e-3
    torch.testing.assert_close(flow(x), given.exp().mean(0).log())
    mixed = flow.log_prob_given(x[:3], torch.tensor([2, 0, 1]))
    torch.testing.assert_close(mixed, torch.stack((given[2, 0], given[0, 1], given[1, 2])))


@torch.no_grad()
def test_each_density_integrates_to_1_and_its_samples_come_back() -> None:
    flow = begun()
    middle = (torch.arange(320, dtype=torch.float64) + 0.5) / 10 - 16
    points = torch.cartesian_prod(middle, middle)
    for c in range(3):
        labels = torch.full((len(points),), c)
        assert float(flow.log_prob_given(points, labels).exp().sum() / 100) == pytest.approx(1.0, abs=5e-3)
    z, labels = drawn(9), torch.arange(9) % 3
    x = flow.inverse_given(z, labels)
    back, _ = flow.couplings(x, torch.eye(3, dtype=x.dtype)[labels])
    torch.testing.assert_close(back, z, atol=1e-10, rtol=0)


@torch.no_grad()
def test_samples_are_of_the_class_that_is_asked_or_of_all_in_turn() -> None:
    flow = begun()
    turn = flow.sample(7, generator=Generator().manual_seed(0))
    for c in range(3):
        same = (flow.sample(7, generator=Generator().manual_seed(0), label=c) == turn).all(1)
        assert same.tolist() == [i % 3 == c for i in range(7)]
    path = flow.interpolate(5, generator=Generator().manual_seed(0), label=2)
    ends = flow.sample(2, generator=Generator().manual_seed(0), label=2)
    torch.testing.assert_close(path[[0, -1]], ends)
    for label in (-1, 3):
        with pytest.raises(ValueError, match=r"label must be from 0 to 2: got"):
            flow.sample(1, generator=Generator(), label=label)


@torch.no_grad()
def test_one_class_is_the_plain_density() -> None:
    flow, x = begun(classes=1), drawn(4)
    torch.testing.assert_close(flow(x), flow.log_prob_given(x, torch.zeros(4, dtype=torch.long)))
