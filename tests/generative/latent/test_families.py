"""The family by its nine names: all resolve, and each makes one toy matrix from its codes."""

import pytest
import torch
from sklearn.datasets import make_swiss_roll
from torch import Generator, Tensor

from margin.core.catalog import parts, resolve
from margin.generative.latent.families import NAMES, fit


def toy() -> Tensor:
    """Forty rows of two parts, each there or not, a little more or less."""
    g = Generator().manual_seed(0)
    there = (torch.arange(40)[:, None] >> torch.arange(2)) & 1
    Z = there * (0.7 + 0.2 * torch.rand(40, 2, generator=g))
    B = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0, 0.2], [0.0, 0.2, 0.0, 1.0, 1.0, 1.0]])
    return (Z @ B / 1.2 + 0.05 * torch.rand(40, 6, generator=g)).double()


BINARY = {"dp", "bp"}
LEFT = {"pca": 0.02, "factor_analysis": 0.02, "nmf": 0.02, "gplvm": 0.02, "lle": 0.4, "isomap": 0.4}
"""Share of the variance that is left, at most: a linear map of two numbers leaves the noise alone."""


@pytest.mark.parametrize("name", NAMES)
def test_every_name_fits_one_toy_matrix(name: str) -> None:
    X = toy()
    found = fit(name, X)
    assert len(found.codes) == 40
    assert found.rows.shape == X.shape
    assert bool(found.codes.isfinite().all())
    left = float((X - found.rows).square().sum() / (X - X.mean(0)).square().sum())
    assert left < LEFT.get(name, 0.6)
    if name in BINARY:
        assert set(found.codes.unique().tolist()) <= {0.0, 1.0}
    if name == "dp":
        assert found.codes.sum(1).tolist() == [1.0] * 40
    if name == "nmf":
        assert float(found.codes.min()) >= 0


def test_there_are_nine_and_another_name_is_refused() -> None:
    assert len(NAMES) == 9
    with pytest.raises(ValueError, match=r"the family has pca, .*: got 'svd'"):
        fit("svd", toy())


def test_the_draws_of_a_fit_leave_the_global_generator() -> None:
    before = torch.get_rng_state()
    first, second = (fit("gplvm", toy()[:10]).codes for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", ["lle", "isomap"])
def test_manifold_methods_unroll_the_swiss_roll(name: str) -> None:
    """The rank correlation of a code with the roll's own parameter."""
    x, t = make_swiss_roll(1000, noise=0.0, random_state=0)
    options = {"n_components": 2, "n_neighbors": 8}
    model = resolve(parts()[f"generative/{name}"].target)(**options)
    codes = torch.from_numpy(model.fit_transform(x))
    ranks = torch.stack([c.argsort().argsort().double() for c in (*codes.T, torch.from_numpy(t))])
    assert float(torch.corrcoef(ranks)[-1, :-1].abs().max()) > 0.95
