"""Paths over the plane of two weights, and the wells that descent falls into."""

import dataclasses

import pytest
import torch
from torch import nn

from margin.core.catalog import claims
from margin.core.findings import Verdict
from margin.math.convexity.landscapes import landscape, valley
from margin.theory.dynamics.rates import Path
from margin.theory.dynamics.weight_function import basin, customary, demo, paths, reached, surface, window_of


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("start", [-1.5, -0.3, -1e-6, 1e-6, 0.3, 1.5])
def test_the_sign_of_the_start_decides_the_well(start):
    assert basin(start) == pytest.approx(1 if start > 0 else -1, abs=1e-6)


def test_between_the_wells_it_stays():
    assert basin(0.0) == 0
    assert reached(landscape("double_well").value, [-2.0, 2.0], lr=0.05, steps=200).tolist() == pytest.approx(
        [-1, 1]
    )


def test_the_paths_are_those_of_the_named_optimizers_from_one_start():
    finding = paths(demo())
    assert finding.labels == ("gradient descent", "heavy ball", "Nesterov", "Adam")
    assert finding.verdict is Verdict.MEASURED
    x, y = f64(0.5, 1.0, 1.5, 2.0, 2.5), 3 - 2 * f64(0.5, 1.0, 1.5, 2.0, 2.5)
    X = torch.stack((x, torch.ones(5)), 1)
    lr = 1 / (2 * torch.linalg.eigvalsh(X.T @ X / 5)[-1])
    w = torch.zeros(2, dtype=torch.float64)
    for t, point in enumerate(finding.curves["path: gradient descent"]):
        assert torch.allclose(point, w, atol=1e-12), t
        w = w - lr * 2 * X.T @ (X @ w - y) / 5
    ends = [finding.curves[f"path: {name}"][-1] for name in finding.labels]
    losses = [(X @ end - y).square().mean().item() for end in ends]
    assert finding.value.tolist() == pytest.approx(losses, rel=1e-9)
    assert all(torch.equal(finding.curves[f"path: {name}"][0], f64(0.0, 0.0)) for name in finding.labels)


def test_the_surface_has_the_first_weight_along_its_rows():
    window = f64(-1.0, 1.0, 0.0, 4.0).reshape(2, 2)
    seen = surface(lambda w: w[0] + 10 * w[1], window, side=3)
    assert seen.tolist() == [[-1, 0, 1], [19, 20, 21], [39, 40, 41]]


def test_the_window_holds_the_paths_but_not_what_leaves():
    inside = Path(f64(0, 0, 4, 2).reshape(2, 2), f64(1, 0), f64(1, 1))
    away = Path(f64(0, 0, 1e9, -1e9).reshape(2, 2), f64(1, 1e18), f64(1, 1))
    window = window_of({"a": inside, "b": away}, room=0.0)
    assert window.tolist() == [[0, 4], [0, 2]]
    flat = window_of({"a": Path(f64(0, 0, 4, 0).reshape(2, 2), f64(1, 0), f64(1, 1))}, room=0.0)
    assert flat.tolist() == [[0, 4], [-1, 1]]


def test_customary_rates_come_from_the_curvature_at_the_start():
    made = customary(valley(f64(1.0, 8.0)), f64(1.0, 1.0))
    weights = [torch.zeros(2, requires_grad=True)]
    assert made["gradient descent"](weights).param_groups[0]["lr"] == pytest.approx(1 / 8)
    assert customary(lambda x: x.sum(), f64(1.0, 1.0))["heavy ball"](weights).param_groups[0]["lr"] == 0.1


def test_a_model_of_other_than_two_weights_is_not_asked():
    claim = claims()["theory/rates.paths"]
    assert not claim.refusal(demo())
    three = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)).double()
    assert "two weights" in claim.refusal(dataclasses.replace(demo(), model=three))
