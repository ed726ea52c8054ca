"""EM of mixtures: against scikit-learn, never downhill, floors that bound, starts that spread."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture as Peer
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.sets.mixture_plane import ring
from margin.engine.loop import NonFiniteError, State
from margin.generative.latent.mixture import (
    GaussianMixture,
    Parts,
    beginning,
    centers,
    em_iteration,
    expectation_maximization,
    log_components,
    maximization,
    mean_log_likelihood,
)

KINDS = {"full": "full", "diagonal": "diag", "spherical": "spherical"}


def rows(n: int = 300, d: int = 3) -> Tensor:
    g = Generator().manual_seed(0)
    middles = 2 * torch.randn(4, d, generator=g)
    return (middles[torch.arange(n) % 4] + torch.randn(n, d, generator=g)).double()


def covariances(parts: Parts) -> Tensor:
    L = parts.factors
    return L @ L.mT if L.ndim == 3 else L.square().diag_embed()


@pytest.mark.parametrize("kind", list(KINDS))
def test_fifty_iterations_are_scikit_learns_from_the_same_start(kind: Any) -> None:
    x, k = rows(), 4
    one = torch.ones(len(x)).double()
    start = beginning(x, one, x[:k], covariance=kind, floor=0.0)
    precision = torch.linalg.inv(covariances(start)).numpy()
    given = {"full": precision, "diagonal": precision.diagonal(0, 1, 2), "spherical": precision[:, 0, 0]}
    peer = Peer(
        k,
        covariance_type=KINDS[kind],
        reg_covar=0,
        max_iter=50,
        tol=0,
        weights_init=np.full(k, 1 / k),
        means_init=x[:k].numpy(),
        precisions_init=given[kind],
    )
    with pytest.warns(UserWarning, match="converge"):
        peer.fit(x.numpy())
    parts = start
    for _ in range(50):
        parts = em_iteration(x, one, parts, covariance=kind, floor=0.0)
    assert float(mean_log_likelihood(x, one, parts)) == pytest.approx(peer.score(x.numpy()), abs=1e-9)
    np.testing.assert_allclose(parts.means.numpy(), peer.means_, atol=1e-6)
    np.testing.assert_allclose(parts.log_weights.exp().numpy(), peer.weights_, atol=1e-7)


@pytest.mark.parametrize("floor", [0.0, 0.5])
@pytest.mark.parametrize("kind", list(KINDS))
def test_the_likelihood_never_falls_and_no_variance_is_below_the_floor(kind: Any, floor: float) -> None:
    """Where the floor is added to the covariances instead, it falls: see the next test."""
    x = rows(60, 2)
    weight = 0.5 + torch.rand(60, generator=Generator().manual_seed(1)).double()
    parts = beginning(x, weight, x[:6], covariance=kind, floor=floor)
    values = [float(mean_log_likelihood(x, weight, parts))]
    for _ in range(60):
        parts = em_iteration(x, weight, parts, covariance=kind, floor=floor)
        values.append(float(mean_log_likelihood(x, weight, parts)))
        assert float(torch.linalg.eigvalsh(covariances(parts)).min()) >= floor - 1e-12
    assert min(b - a for a, b in itertools.pairwise(values)) >= -1e-12
    assert values[-1] > values[0] + 0.05
    if floor:
        low = float(torch.linalg.eigvalsh(covariances(parts)).min())
        assert low == pytest.approx(floor, abs=1e-12)  # it binds, or nothing was tried


def test_the_floored_covariance_is_the_likeliest_above_the_floor() -> None:
    x = rows(40, 2) * torch.tensor([3.0, 0.2]).double()
    one = torch.ones(40).double()
    best = maximization(x, one, torch.zeros(40, 1).double(), covariance="full", floor=1.0)
    top = float(mean_log_likelihood(x, one, best))
    spectrum, axes = torch.linalg.eigh(covariances(best)[0])
    assert float(spectrum[0]) == pytest.approx(1.0, abs=1e-12)
    g = Generator().manual_seed(0)
    for _ in range(200):
        turned = torch.linalg.qr(axes + 0.1 * torch.randn(2, 2, generator=g).double()).Q
        moved = (spectrum * (0.3 * torch.randn(2, generator=g).double()).exp()).clamp_min(1.0)
        other = torch.linalg.cholesky((turned * moved) @ turned.T)
        assert float(mean_log_likelihood(x, one, best._replace(factors=other[None]))) <= top + 1e-12
    S = (x - x.mean(0)).T @ (x - x.mean(0)) / 40 + torch.eye(2).double()  # the floor added
    added = best._replace(factors=torch.linalg.cholesky(S)[None])
    assert float(mean_log_likelihood(x, one, added)) < top - 1e-3


def test_a_weight_of_two_is_two_rows() -> None:
    x = rows(20, 2)
    weight = 1.0 + (torch.arange(20) < 5).double()
    twice = torch.cat((x, x[:5]))
    one = torch.ones(25).double()
    a = beginning(x, weight, x[:2], covariance="full", floor=1e-6)
    b = beginning(twice, one, x[:2], covariance="full", floor=1e-6)
    for _ in range(5):
        a = em_iteration(x, weight, a, covariance="full", floor=1e-6)
        b = em_iteration(twice, one, b, covariance="full", floor=1e-6)
    for left, right in zip(a, b, strict=True):
        torch.testing.assert_close(left, right)


def test_a_component_that_no_row_is_near_to_stays_finite() -> None:
    x = rows(40, 2)
    middles = torch.stack((x[0], torch.full((2,), 1e4).double()))
    parts = beginning(x, torch.ones(40).double(), middles, covariance="full", floor=1e-6)
    for _ in range(5):
        parts = em_iteration(x, torch.ones(40).double(), parts, covariance="full", floor=1e-6)
        assert all(bool(part.isfinite().all()) for part in parts)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_component_on_one_point_is_refused_without_a_floor_and_floored_with_one(kind: Any) -> None:
    x = torch.cat((rows(30, 2), torch.full((3, 2), 50.0).double()))
    one = torch.ones(33).double()
    logs = torch.full((33, 2), -torch.inf).double()
    logs[:30, 0] = logs[30:, 1] = 0.0
    with pytest.raises(ValueError, match=r"no\s+bound: got from .* in one; raise --model.floor"):
        maximization(x, one, logs, covariance=kind, floor=0.0)
    parts = maximization(x, one, logs, covariance=kind, floor=1e-6)
    torch.testing.assert_close(covariances(parts)[1], 1e-6 * torch.eye(2).double())
    assert bool(log_components(x, *parts).isfinite().all())


def test_starts_are_distinct_rows_and_far_ones_are_likelier() -> None:
    x = torch.tensor([[0.0]] * 98 + [[1.0], [50.0]]).double()
    one, g = torch.ones(100).double(), Generator().manual_seed(0)
    for start in ("k-means++", "rows"):
        chosen = centers(x, one, 3, start, g)
        assert sorted(chosen.flatten().tolist()) == [0.0, 1.0, 50.0]
        with pytest.raises(ValueError, match="at most the distinct rows, 3: got 4"):
            centers(x, one, 4, start, g)
    # after 0, 50 has 2500 times the chance of 1: both miss it for one seed in 10^5
    assert all(50.0 in centers(x, one, 2, "k-means++", g) for _ in range(20))
    # evenly, 50 is second half of the time: all of 40 for one in 10^12
    assert not all(50.0 in centers(x, one, 2, "rows", g) for _ in range(40))


def test_the_step_begins_once_and_finds_the_ring() -> None:
    data = ring(examples=600, test=0.0, val=0.0)
    x = data.splits["train"].inputs[0].float()
    torch.manual_seed(0)
    state = State(modules={"model": GaussianMixture(2, components=8)})
    state.generator.manual_seed(0)
    step = expectation_maximization()
    losses = []
    for _ in range(12):
        losses.append(float(step(state, Batch((x,)))["loss"]))
    assert all(b <= a + 1e-5 for a, b in itertools.pairwise(losses))
    truth = torch.tensor(data.encoding["truth"]["means"]).float()
    model: Any = state.model
    assert float(torch.cdist(truth, model.means.detach()).amin(1).max()) < 0.1
    before = model.means.clone()
    step(state, Batch((x,)))
    torch.testing.assert_close(model.means, before, atol=1e-3, rtol=0)


def test_more_starts_are_no_less_likely() -> None:
    x = ring(examples=200, test=0.0, val=0.0).splits["train"].inputs[0].float()
    found = []
    for starts in (1, 8):
        state = State(modules={"model": GaussianMixture(2, components=8)})
        state.generator.manual_seed(3)
        found.append(float(expectation_maximization(starts=starts)(state, Batch((x,)))["loss"]))
    assert found[1] <= found[0]


def test_rows_that_are_not_finite_or_do_not_count_are_named() -> None:
    state = State(modules={"model": GaussianMixture(2, components=1)})
    step = expectation_maximization()
    x = rows(10, 2).float()
    x[3, 1] = torch.nan
    with pytest.raises(NonFiniteError, match="got nan in row 3 of the batch, feature 1"):
        step(state, Batch((x,)))
    step(state, Batch((x,), weight=(torch.arange(10) != 3).float()))
    with pytest.raises(ValueError, match="a mixture needs an example of weight above 0: got 10 of weight 0"):
        step(state, Batch((x,), weight=torch.zeros(10)))
    with pytest.raises(ValueError, match="finite and at least 0: got -1 in row 9"):
        step(state, Batch((x,), weight=torch.tensor([1.0] * 9 + [-1.0])))
    options: Any
    for name in ("starts", "iterations"):
        options = {name: 0}
        with pytest.raises(ValueError, match=f"{name} must be at least 1: got 0"):
            expectation_maximization(**options)


@pytest.mark.parametrize(("start", "chance"), [("k-means++", 36 / 37), ("rows", 9 / 10)])
def test_the_weight_of_a_row_is_part_of_its_chance_to_begin_from(start: Any, chance: float) -> None:
    # The first row outweighs all; of the others one weighs 9 at distance 2, one 1 at distance 1.
    x = torch.tensor([[0.0], [2.0], [-1.0]], dtype=torch.float64)
    weight = torch.tensor([1e9, 9.0, 1.0], dtype=torch.float64)
    generator, hits = Generator().manual_seed(0), 0
    for _ in range(1000):
        first, second = centers(x, weight, 2, start, generator)[:, 0].tolist()
        assert first == 0
        hits += second == 2
    # D^2 sampling: 9 x 4 to 1 x 1; without the weights it would be 4 to 1. 5 sd of 1,000 draws.
    assert abs(hits / 1000 - chance) < 5 * (chance * (1 - chance) / 1000) ** 0.5
