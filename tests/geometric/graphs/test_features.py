"""Features that are mostly 0: read sparsely they give what a dense layer gives, with the same gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from margin.geometric.graphs.node_net import FEW, FeatureMap, Sparse, dense, given


def words(share: float, seed: int = 0) -> Tensor:
    g = Generator().manual_seed(seed)
    x = torch.randn(50, 40, generator=g)
    return x * (torch.rand(50, 40, generator=g) < share)


def test_few_entries_are_read_sparsely_and_many_are_not() -> None:
    x = words(0.05)
    found = given(x)
    assert isinstance(found, Sparse)
    assert torch.equal(dense(found), x)
    assert given(x) is found  # kept
    full = words(0.5)
    assert given(full) is full
    assert given(x.clone().requires_grad_()).requires_grad  # type: ignore[union-attr]


def test_the_boundary_is_the_stated_share() -> None:
    x = torch.zeros(10, 10)
    x.view(-1)[: round(100 * FEW)] = 1.0
    assert isinstance(given(x.clone()), Sparse)
    x.view(-1)[round(100 * FEW)] = 1.0
    assert not isinstance(given(x.clone()), Sparse)
    assert not isinstance(given(torch.zeros(0, 3)), Sparse)


def test_written_into_they_are_read_anew() -> None:
    x = words(0.05)
    layer = FeatureMap(40, 3)
    before = layer(given(x))
    x[0, 0] += 5.0
    torch.testing.assert_close(layer(given(x)), F.linear(x, layer.weight))
    assert not torch.equal(layer(given(x)), before)


def test_sparse_and_dense_agree_with_their_gradients() -> None:
    x, layer = words(0.05).double(), FeatureMap(40, 3).double()
    other = F.linear(x, layer.weight)
    own = layer(given(x))
    torch.testing.assert_close(own, other, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(z.square().sum(), layer.weight)[0] for z in (own, other)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)
    # fused optimizers read memory in order, whatever the strides say
    assert gradients[0].stride() == layer.weight.stride()


def test_dropout_has_the_same_mean_and_variance_sparse_or_dense() -> None:
    """Seeds fixed. Each output is a sum of terms w x k / (1-p): mean W x, variance p/(1-p) sum (w x)^2.

    Over 4,000 draws and 150 outputs the largest of 150 standardized means exceeds 4.8 with probability 2.4e-4
    / 2; the mean ratio of variances has standard error below .004, so .02 is five of them.
    """
    x, p = words(0.05)[:, :40].double(), 0.3
    layer = FeatureMap(40, 3, dropout=p).double()
    layer.train()
    expected = F.linear(x, layer.weight).detach()
    spread = (p / (1 - p) * F.linear(x.square(), layer.weight.square())).detach()
    some = spread > 1e-8
    for rows, seed in ((given(x), 0), (x, 1)):
        torch.manual_seed(seed)
        with torch.no_grad():
            draws = torch.stack([layer(rows) for _ in range(4000)])
        gap = ((draws.mean(0) - expected)[some] / (spread[some] / 4000).sqrt()).abs()
        assert float(gap.max()) < 4.8
        assert float((draws.var(0)[some] / spread[some]).mean()) == pytest.approx(1.0, abs=0.02)


def test_a_transform_reads_densely() -> None:
    x, layer = words(0.05), FeatureMap(40, 3)
    found = torch.vmap(lambda z: layer(given(z)))(x.expand(2, 50, 40))
    torch.testing.assert_close(found[1], F.linear(x, layer.weight))
