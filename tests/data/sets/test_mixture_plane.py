"""Mixtures on a ring and a grid: their means by hand, their spread against the normal law."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest

from margin.core.catalog import sources
from margin.data.open import open_data
from margin.data.sets.mixture_plane import grid, ring


def whole(data) -> tuple[np.ndarray, np.ndarray]:
    parts = data.splits.values()
    x = torch.cat([part.inputs[0] for part in parts]).double().numpy()
    return x, torch.cat([part.targets for part in parts]).numpy()


@pytest.mark.parametrize("source", [ring, grid])
def test_a_set_is_a_function_of_its_options(source) -> None:
    before = torch.get_rng_state()
    data = source(examples=100)
    assert torch.equal(before, torch.get_rng_state())
    assert source(examples=100).fingerprint == data.fingerprint
    assert source(examples=100, seed=1).fingerprint != data.fingerprint
    assert sum(len(part) for part in data.splits.values()) == 100
    assert json.loads(json.dumps(dict(data.encoding))) == dict(data.encoding)
    assert data.domain is None
    box = source(examples=100, domain=(-9.0, 9.0)).domain
    assert (box.low, box.high) == (-9, 9)
    assert data.spec["num_classes"] == len(data.encoding["truth"]["means"])


def test_the_ring_is_that_of_metz() -> None:
    truth = ring().encoding["truth"]
    r = math.sqrt(2)
    by_hand = [(2, 0), (r, r), (0, 2), (-r, r), (-2, 0), (-r, -r), (0, -2), (r, -r)]
    np.testing.assert_allclose(truth["means"], by_hand, atol=1e-12)
    assert truth["std"] == 0.02
    assert truth["weights"] == [1 / 8] * 8


def test_the_grid_has_all_pairs() -> None:
    truth = grid().encoding["truth"]
    found = {tuple(mean) for mean in truth["means"]}
    assert found == {(float(x), float(y)) for x in (-4, -2, 0, 2, 4) for y in (-4, -2, 0, 2, 4)}
    assert truth["means"][1] == [-2, -4]
    assert truth["std"] == 0.05
    assert truth["weights"] == [1 / 25] * 25
    assert sorted(mean[0] for mean in grid(side=2, spacing=3.0).encoding["truth"]["means"]) == [
        -1.5,
        -1.5,
        1.5,
        1.5,
    ]


@pytest.mark.parametrize("data", [ring(examples=4000), grid(examples=5000, seed=3)])
def test_every_component_has_its_law_and_its_share(data) -> None:
    x, y = whole(data)
    truth = data.encoding["truth"]
    means = np.array(truth["means"])
    assert np.bincount(y).tolist() == [len(y) // len(means)] * len(means)
    z = (x - means[y]) / truth["std"]
    # fixed seeds; each p-value of a right law is below 1e-5 once in 100,000
    assert kstest(z.ravel(), "norm").pvalue > 1e-5
    assert kstest((z**2).sum(1), chi2(2).cdf).pvalue > 1e-5


def test_the_sets_have_names() -> None:
    assert {"ring", "grid"} <= set(sources())
    data = open_data("ring", {"modes": 3, "examples": 30, "radius": 1.0, "std": 0.01})
    assert data.spec["num_classes"] == 3


def test_a_wrong_option_is_refused_rule_first(refused) -> None:
    with refused("ring: modes must be at least 2: got 1"):
        ring(modes=1)
    with refused("grid: side must be at least 2: got 1"):
        grid(side=1)
    with refused("ring: radius must be positive and finite: got 0.0"):
        ring(radius=0.0)
    with refused("grid: std must be positive and finite: got nan"):
        grid(std=math.nan)
    with refused("grid: examples must be at least the number of components, 25: got 24"):
        grid(examples=24)
    assert ring(examples=32, modes=8).spec["num_classes"] == 8
