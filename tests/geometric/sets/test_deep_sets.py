"""Deep Sets: invariance, padding, and what a sum knows that a mean and a maximum cannot."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.geometric.sets.deep_sets import DeepSets, classifier, perceptron, regressor
from margin.geometric.sets.equivariance import check_invariant

POOLS = ("sum", "mean", "max")


def drawn(seed: int = 0) -> Tensor:
    return torch.randn(6, 7, 3, generator=Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("pool", POOLS)
@torch.no_grad()
def test_the_order_of_the_elements_has_no_influence(pool: str) -> None:
    torch.manual_seed(0)
    model = classifier(3, 4, pool=pool).double()
    assert check_invariant(model, drawn(), count=10) <= 1e-12
    # killed: a network of the concatenated elements, which is no function of sets
    flat = nn.Sequential(nn.Flatten(1), nn.Linear(21, 4)).double()
    assert check_invariant(flat, drawn(), count=10) > 1e-3


@pytest.mark.parametrize("pool", POOLS)
@torch.no_grad()
def test_padding_has_no_influence(pool: str) -> None:
    torch.manual_seed(0)
    model = regressor(3, pool=pool).double()
    x, sizes = drawn(), torch.tensor([7, 0, 1, 3, 6, 2])
    mask = torch.arange(7) < sizes[:, None]
    x[~mask] = math.nan
    together = model(x, mask)
    assert together.shape == (6,)
    for k, size in enumerate(sizes.tolist()):
        torch.testing.assert_close(model(x[k : k + 1, :size])[0], together[k], rtol=0, atol=1e-12)
    # a mask with holes is legal: elements need not come first
    order = torch.randperm(7, generator=Generator().manual_seed(1))
    torch.testing.assert_close(model(x[:, order], mask[:, order]), together, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pool", POOLS)
@torch.no_grad()
def test_a_set_without_elements_gets_what_rho_makes_of_zero(pool: str) -> None:
    torch.manual_seed(0)
    model = regressor(3, pool=pool, features=5)
    expected = model.rho(torch.zeros(1, 5))
    assert torch.equal(model(torch.zeros(1, 0, 3)), expected)
    assert torch.equal(model(torch.randn(1, 4, 3), torch.zeros(1, 4, dtype=torch.bool)), expected)


class One(nn.Module):
    """phi = 1."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ones_like(x[..., :1])


@torch.no_grad()
def test_the_sum_counts_and_mean_and_maximum_cannot() -> None:
    sets = [torch.randn(1, size, 2) for size in (1, 2, 5)]
    assert [int(DeepSets(One(), nn.Identity())(x)) for x in sets] == [1, 2, 5]
    torch.manual_seed(0)
    for pool in ("mean", "max"):
        model = regressor(2, pool=pool).double()
        x = sets[2].double()
        assert float((model(torch.cat((x, x), 1)) - model(x)).abs()) <= 1e-12
    summing = regressor(2, pool="sum").double()
    assert float((summing(torch.cat((x, x), 1)) - summing(x)).abs()) > 1e-3


@torch.no_grad()
def test_it_is_rho_of_the_sum_of_phi() -> None:
    torch.manual_seed(0)
    model, x = classifier(3, 2).double(), drawn()
    expected = model.rho(torch.stack([sum(model.phi(one) for one in cloud) for cloud in x]))
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-12)


def test_a_gradient_of_each_example_is_taken_in_one_call() -> None:
    model = regressor(3)
    x, mask = torch.randn(4, 5, 3), torch.rand(4, 5, generator=Generator().manual_seed(0)) < 0.7
    weights = dict(model.named_parameters())

    def loss(weights: dict[str, Tensor], x: Tensor, mask: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x[None], mask[None])).sum()

    grads = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, x, mask)
    total = torch.autograd.grad(model(x, mask).sum(), list(weights.values()))
    for name, whole in zip(weights, total, strict=True):
        torch.testing.assert_close(grads[name].sum(0), whole, rtol=1e-4, atol=1e-5)


def test_log_of_exponentials_comes_near_a_maximum_with_one_number() -> None:
    # So failing to fit one function says nothing of what d < M cannot represent (Wagstaff et al. 2019).
    class Exponential(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (20 * x).exp()

    class Logarithm(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return z.log() / 20

    x = torch.rand(1000, 3, 1, generator=Generator().manual_seed(0), dtype=torch.float64)
    error = DeepSets(Exponential(), Logarithm())(x) - x.amax(1)
    assert float(error.min()) >= 0
    assert float(error.max()) <= math.log(3) / 20
    equal = torch.full((1, 3, 1), 0.4, dtype=torch.float64)
    assert float(DeepSets(Exponential(), Logarithm())(equal)) - 0.4 == pytest.approx(math.log(3) / 20)


def test_sizes_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="depth must be at least 0: got -1"):
        regressor(3, depth=-1)
    with pytest.raises(ValueError, match="every width must be at least 1"):
        regressor(3, features=0)
    assert len(perceptron([3, 2], "relu")) == 1
    assert sum(p.numel() for p in classifier(3, 2, depth=0, features=4).parameters()) == 3 * 4 + 4 + 4 * 2 + 2
