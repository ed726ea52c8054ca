"""Synthetic sets: what they record as true is found again by an independent method."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import norm
from sklearn.svm import SVC

from margin.data.sets.synthetic import blobs, noisy_linear, separable, spirals, two_moons, xor

SETS = (two_moons, spirals, xor, blobs, separable, noisy_linear)


def whole(data) -> tuple[np.ndarray, np.ndarray]:
    parts = data.splits.values()
    x = torch.cat([part.inputs[0] for part in parts]).double().numpy()
    return x, torch.cat([part.targets for part in parts]).numpy()


@pytest.mark.parametrize("source", SETS)
def test_a_set_is_a_function_of_its_options(source) -> None:
    before = torch.get_rng_state()
    data = source(examples=60)
    assert torch.equal(before, torch.get_rng_state())
    assert source(examples=60).fingerprint == data.fingerprint
    assert source(examples=60, seed=1).fingerprint != data.fingerprint
    assert sum(len(part) for part in data.splits.values()) == 60
    assert json.loads(json.dumps(dict(data.encoding))) == dict(data.encoding)
    assert data.domain is None
    box = source(examples=60, domain=(-20.0, 20.0)).domain
    assert (box.low, box.high) == (-20, 20)


@pytest.mark.parametrize("source", SETS)
def test_a_domain_that_leaves_inputs_out_is_refused(source, refused) -> None:
    with refused("domain must contain every input: got [-0.01, 0.01]"):
        source(examples=60, domain=(-0.01, 0.01))


@pytest.mark.parametrize("noise", [-0.1, math.nan, math.inf])
def test_an_impossible_noise_is_refused(noise: float, refused) -> None:
    with refused("noise must be at least 0 and finite"):
        two_moons(noise=noise)


@pytest.mark.parametrize("features", [1, 2, 7, 30])
@pytest.mark.parametrize(("margin", "bias"), [(0.1, 0.0), (1.5, -2.0)])
def test_the_margin_is_at_least_the_stated_and_attained(features: int, margin: float, bias: float) -> None:
    data = separable(examples=80, features=features, margin=margin, bias=bias, seed=features)
    truth = data.encoding["truth"]
    w = np.array(truth["weight"])
    assert np.linalg.norm(w) == pytest.approx(1, abs=1e-12)
    x, y = whole(data)
    scores = (2 * y - 1) * (x @ w + truth["bias"])
    assert scores.min() == pytest.approx(margin, abs=1e-12)
    assert (scores < margin + 1e-9).sum() == 2
    train = data.splits["train"]
    scores = (2 * train.targets.numpy() - 1) * (train.inputs[0].numpy() @ w + truth["bias"])
    assert scores.min() == pytest.approx(margin, abs=1e-12)
    assert y.mean() == 0.5


@pytest.mark.parametrize("features", [2, 5])
def test_the_recorded_separator_is_that_of_a_hard_margin_machine(features: int) -> None:
    data = separable(examples=100, features=features, margin=0.3, bias=0.7, seed=1)
    train, truth = data.splits["train"], data.encoding["truth"]
    machine = SVC(kernel="linear", C=1e8, tol=1e-8).fit(train.inputs[0].numpy(), train.targets.numpy())
    w = machine.coef_[0]
    assert 1 / np.linalg.norm(w) == pytest.approx(0.3, rel=1e-4)
    np.testing.assert_allclose(w / np.linalg.norm(w), truth["weight"], atol=1e-3)
    assert machine.intercept_[0] / np.linalg.norm(w) == pytest.approx(truth["bias"], abs=1e-3)


def test_no_noise_leaves_the_moons_half_apart() -> None:
    data = two_moons(examples=2000, noise=0.0)
    x, y = whole(data)
    gaps = np.linalg.norm(x[y == 0][:, None] - x[y == 1][None], axis=-1)
    assert gaps.min() == pytest.approx(data.encoding["truth"]["distance"], abs=2e-3)
    assert np.abs(np.linalg.norm(x[y == 0], axis=1) - 1).max() < 1e-6
    assert np.abs(np.linalg.norm(x[y == 1] - [1, 0.5], axis=1) - 1).max() < 1e-6
    assert x[y == 0][:, 1].min() > -1e-6
    assert x[y == 1][:, 1].max() < 0.5 + 1e-6


def test_the_noise_has_the_stated_deviation() -> None:
    clean, noisy = two_moons(examples=4000, noise=0.0), two_moons(examples=4000, noise=0.2)
    difference = noisy.splits["train"].inputs[0] - clean.splits["train"].inputs[0]
    # 4,800 draws: standard error .2 / sqrt(9600) = .002; 5 of them fail once in 2e6.
    assert float(difference.std()) == pytest.approx(0.2, abs=0.0103)


def test_spirals_lie_on_their_curve() -> None:
    data = spirals(examples=300, arms=3, turns=1.25, noise=0.0)
    x, y = whole(data)
    radius, angle = np.hypot(x[:, 0], x[:, 1]), np.arctan2(x[:, 1], x[:, 0])
    arm = (angle / (2 * np.pi) - 1.25 * radius) * 3
    off = (arm - y) - 3 * np.round((arm - y) / 3)
    assert np.abs(off).max() < 1e-5
    assert (radius.min(), radius.max()) == pytest.approx((0.1, 1.0), abs=1e-6)
    assert np.bincount(y).tolist() == [100, 100, 100]


def test_xor_is_labeled_by_its_quadrants() -> None:
    x, y = whole(xor(examples=400))
    assert ((x[:, 0] * x[:, 1] < 0) == y).all()
    quadrants = 2 * (x[:, 0] > 0) + (x[:, 1] > 0)
    assert np.bincount(quadrants).tolist() == [100] * 4
    assert np.abs(x).max() <= 1


def test_no_halfplane_is_right_on_more_than_two_thirds_of_xor() -> None:
    grid = (np.arange(200) + 0.5) / 100 - 1
    x1, x2 = (axis.ravel() for axis in np.meshgrid(grid, grid))
    label = x1 * x2 < 0
    best = 0.0
    for angle in np.linspace(0, np.pi, 73):
        order = np.argsort(x1 * np.cos(angle) + x2 * np.sin(angle))
        right = np.concatenate([[0], np.cumsum(np.where(label[order], 1, -1))])
        right = (right + (~label).sum()) / len(label)
        best = max(best, right.max(), (1 - right).max())
    assert best == pytest.approx(xor().encoding["truth"]["best_halfplane_accuracy"], abs=5e-3)


def test_blobs_are_balls_around_their_centers() -> None:
    data = blobs(examples=9000, classes=5, features=3, radius=3.0, noise=0.5)
    x, y = whole(data)
    centers = np.array(data.encoding["truth"]["centers"])
    assert np.linalg.norm(centers, axis=1) == pytest.approx([3.0] * 5, abs=1e-12)
    for k in range(5):
        # 1,800 draws a class: 5 standard errors of the mean are .059, of the deviation .042.
        assert np.abs(x[y == k].mean(0) - centers[k]).max() < 0.06
        assert np.abs(x[y == k].std(0) - 0.5).max() < 0.045


def test_the_bayes_rule_of_two_blobs_has_the_stated_accuracy() -> None:
    data = blobs(examples=20_000, classes=2, radius=1.0, noise=1.0)
    x, y = whole(data)
    stated = data.encoding["truth"]["bayes_accuracy"]
    assert stated == pytest.approx(norm.cdf(1.0), abs=1e-12)
    centers = np.array(data.encoding["truth"]["centers"])
    nearest = np.linalg.norm(x[:, None] - centers, axis=-1).argmin(1)
    # Standard error sqrt(.84 .16 / 20000) = .0026.
    assert (nearest == y).mean() == pytest.approx(stated, abs=5 * 0.0026)


def test_least_squares_finds_the_known_weights() -> None:
    data = noisy_linear(examples=20_000, features=4, noise=0.5, bias=2.0)
    x, y = whole(data)
    truth = data.encoding["truth"]
    design = np.column_stack([x, np.ones(len(x))])
    solution, residual, *_ = np.linalg.lstsq(design, y)
    # Standard error of a weight: .5 / sqrt(20000) = .0035.
    np.testing.assert_allclose(solution, [*truth["weight"], truth["bias"]], atol=5 * 0.0036)
    assert math.sqrt(residual[0] / len(x)) == pytest.approx(0.5, abs=5 * 0.0025)


@pytest.mark.parametrize("rank", [1, 3])
def test_low_rank_is_exact_and_the_weight_is_the_shortest(rank: int) -> None:
    data = noisy_linear(examples=100, features=6, rank=rank, noise=0.0, bias=0.0)
    x, y = whole(data)
    values = np.linalg.svd(x, compute_uv=False)
    assert values[rank - 1] > 1
    assert values[rank:].max() < 1e-12
    np.testing.assert_allclose(np.linalg.pinv(x) @ y, data.encoding["truth"]["weight"], atol=1e-10)


@pytest.mark.parametrize("rank", [0, 6])
def test_an_impossible_rank_is_refused(rank: int, refused) -> None:
    with refused(f"rank must be in 1 .. features: got rank={rank}, features=5"):
        noisy_linear(rank=rank)


def test_what_is_not_separable_by_a_plane_is_not() -> None:
    """A feasibility program finds the separable set separable and xor not."""

    def feasible(data) -> bool:
        x, y = whole(data)
        sign = 2 * y - 1
        rows = -sign[:, None] * np.column_stack([x, np.ones(len(x))])
        return linprog(
            np.zeros(x.shape[1] + 1), rows, -np.ones(len(x)), bounds=[(None, None)] * (x.shape[1] + 1)
        ).success

    assert feasible(separable(examples=100))
    assert not feasible(xor(examples=100))


@pytest.mark.parametrize(
    ("source", "options", "text"),
    [
        (separable, {"margin": 0.0}, "margin must be positive: got 0.0"),
        (separable, {"features": 0}, "features must be at least 1"),
        (blobs, {"classes": 1}, "classes must be at least 2"),
        (blobs, {"radius": -1.0}, "radius must be positive"),
        (spirals, {"arms": 1}, "arms must be at least 2"),
        (spirals, {"turns": 0.0}, "turns must be positive"),
        (spirals, {"arms": 5, "examples": 4}, "examples must be at least 5"),
        (xor, {"examples": 0}, "examples must be at least 1"),
    ],
)
def test_impossible_options_are_refused(source, options, text, refused) -> None:
    with refused(text):
        source(**options)
