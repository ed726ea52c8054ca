"""MNIST-1D is the authors' own set: expected values are those of their package mnist1d 0.0.2.post1."""

import hashlib

import numpy as np
import pytest
import torch

from margin.data.sets.mnist1d import mnist1d, recipe


def test_the_examples_are_those_of_the_authors_package() -> None:
    x, y = recipe()
    assert x.shape == (5000, 40)
    assert x[0, :4] == pytest.approx([-0.33200567, -0.47191037, -0.77869708, -1.00974083], abs=5e-9)
    assert x[-1, -3:] == pytest.approx([0.65987565, 0.87773435, 1.19315184], abs=5e-9)
    assert x[:4000].sum() == pytest.approx(-51.78746787509559, abs=1e-8)
    sums = [87.38487322, -71.00862754, -45.39563556, 154.20983122]
    assert x[:4000].sum(0)[::13] == pytest.approx(sums, abs=5e-8)
    assert y[:12].tolist() == [2, 6, 4, 5, 6, 6, 6, 0, 3, 1, 6, 9]
    assert y[4000:4005].tolist() == [2, 6, 3, 9, 4]
    assert np.bincount(y).tolist() == [500] * 10


def test_the_last_thousand_are_the_test_part() -> None:
    data = mnist1d()
    assert {part: len(rows) for part, rows in data.splits.items()} == {
        "train": 3400,
        "val": 600,
        "test": 1000,
    }
    x, y = recipe()
    test = data.splits["test"]
    assert torch.equal(test.ragged.steps.reshape(1000, 40), torch.from_numpy(x[4000:]).float())
    assert test.targets.tolist() == y[4000:].tolist()
    assert data.spec["time"] == 40
    assert data.encoding["split"]["official"]


def test_another_seed_is_another_set() -> None:
    digest = [hashlib.sha256(recipe(seed)[0].tobytes()).hexdigest() for seed in (42, 42, 43)]
    assert digest[0] == digest[1] != digest[2]
