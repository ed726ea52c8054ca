"""Targets of variance 1 inside of a training; losses, metrics and predictions in their own units; float64."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import margin
from margin.core.options import Training
from margin.data.arrays import is_wide, is_wide_target
from margin.data.open import encode, open_data
from margin.runs.inference import predictions
from margin.runs.verbs import resume, train


def prices(count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(count, 3))
    return x, 200_000 + 60_000 * x[:, 0] - 30_000 * x[:, 1] + 2_000 * draw.normal(size=count)


def written(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    rows = [",".join([*(repr(float(v)) for v in row), repr(float(t))]) for row, t in zip(x, y, strict=True)]
    path.write_text("\n".join([",".join([*(f"x{k}" for k in range(x.shape[1])), "y"]), *rows]) + "\n")
    return path


def test_large_targets_are_learned_and_judged_in_their_own_units(tmp_path: Path) -> None:
    path = written(tmp_path / "p.csv", *prices())
    run = train("mlp_regressor", path, training=Training(epochs=30), out=tmp_path / "run")
    part = open_data(path, {}).splits["test"]
    outputs = margin.load(run)(part.inputs[0]).detach()
    error = (outputs - part.targets).square().mean()
    assert run.metrics["test_mse"] == pytest.approx(float(error), rel=1e-5)
    assert 1 - float(error / part.targets.var(correction=0)) > 0.9  # R2; without scaling below -5
    assert predictions(run, path)["value"][:3] == pytest.approx(
        margin.load(run)(encode(path, run.record["data"]["encoding"]).inputs[0][:3]).tolist(), rel=1e-6
    )
    # the history's loss is the squared error too, not that of scaled targets
    assert run.history[-1]["train_loss"] > 1e5
    assert run.record["outcome"] == {"kind": "standardize", "shape": []}


def test_left_as_they_are_targets_are_not_scaled(tmp_path: Path) -> None:
    path = written(tmp_path / "p.csv", *prices())
    options = Training(epochs=2, scale_targets="none")
    run = train("mlp_regressor", path, training=options, out=tmp_path / "run")
    assert run.record["outcome"] is None
    assert run.metrics["test_mse"] > 1e10


def test_scaling_is_equivariant_to_the_unit(tmp_path: Path) -> None:
    """Targets in another unit and from another origin: the same model, to rounding, in these units."""
    x, y = prices()
    x, y = x.astype(np.float32).astype(float), np.round(y)
    files = [written(tmp_path / f"{k}.csv", x, t) for k, t in enumerate((y, 0.5 * y - 8192))]
    options = Training(epochs=5, precision="float64", optimizer="SGD", lr=0.05)
    first, other = (
        train("mlp_regressor", file, training=options, out=tmp_path / f"r{k}") for k, file in enumerate(files)
    )
    ratio = other.metrics["test_mse"] / first.metrics["test_mse"]
    assert ratio == pytest.approx(0.25, rel=1e-6)


def test_a_run_resumes_as_if_unbroken(tmp_path: Path) -> None:
    path = written(tmp_path / "p.csv", *prices(80))
    whole = train("mlp_regressor", path, training=Training(epochs=4), out=tmp_path / "whole")
    part = train("mlp_regressor", path, training=Training(epochs=2), out=tmp_path / "part")
    resumed = resume(part, training=Training(epochs=4))
    assert resumed.metrics == whole.metrics


def test_an_old_record_without_the_map_loads(tmp_path: Path) -> None:
    path = written(tmp_path / "p.csv", *prices(80))
    options = Training(epochs=1, scale_targets="none")
    run = train("mlp_regressor", path, training=options, out=tmp_path / "run")
    file = run.path / "run.yaml"
    kept = [
        line
        for line in file.read_text().splitlines()
        if not re.match("outcome:|digest:| +scale_targets:", line)
    ]
    file.write_text("\n".join(kept) + "\n")
    again = resume(run, training=Training(epochs=2))
    assert again.metrics["test_mse"] > 1e10
    assert again.record["arguments"]["training"]["scale_targets"] == "none"


def test_entries_without_a_squared_error_to_descend_refuse(tmp_path: Path) -> None:
    for name, data in (("linear_regression", "diabetes"), ("mlp", "iris")):
        with pytest.raises(ValueError, match=r"learns no values by gradients .*: leave out scale_targets"):
            train(name, data, training=Training(scale_targets="none"), out=tmp_path / name)


@pytest.mark.parametrize("form", ["csv", "arrays"])
def test_targets_of_seconds_since_1970_are_exact(form: str, tmp_path: Path) -> None:
    """Least squares of y - 1.7e9, by NumPy, is what the error of y must be."""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(200, 2))
    small = 2 * x[:, 0] - x[:, 1] + 1.2 * draw.normal(size=200)
    y = 1.7e9 + small
    data = open_data(written(tmp_path / "t.csv", x, y) if form == "csv" else (x, y), {})
    run = train("linear_regression", data, out=tmp_path / "run")
    train_part, test_part = (data.splits[name] for name in ("train", "test"))
    A, B = (np.c_[p.inputs[0].numpy(), np.ones(len(p))] for p in (train_part, test_part))
    w = np.linalg.lstsq(A, train_part.targets.numpy() - 1.7e9, rcond=None)[0]
    expected = np.mean((B @ w - (test_part.targets.numpy() - 1.7e9)) ** 2)
    assert run.metrics["test_mse"] == pytest.approx(expected, rel=1e-4)
    assert run.record["arguments"]["training"]["precision"] == "float64"


def test_a_feature_of_milliseconds_is_told_apart(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    steps = draw.integers(0, 60, 300)
    rows = "".join(
        f"{1_700_000_000_000 + 1000 * s},{'late' if s > 29 else 'early'}\n" for s in steps.tolist()
    )
    path = tmp_path / "ms.csv"
    path.write_text("ms,y\n" + rows)
    data = open_data(path, {"target": "y"})
    assert data.splits["train"].inputs[0].dtype == torch.float64
    assert any("column 'ms' varies little beside its size" in note for note in data.notes)
    moments = data.preprocess(data.splits["train"].inputs[0])
    assert abs(float(moments.std(correction=0)) - 1) < 1e-6
    run = train("logistic_regression", data, training=Training(epochs=60, lr=0.1), out=tmp_path / "run")
    assert run.metrics["test_accuracy"] > 0.95
    labels = predictions(run, path)["class"]
    right = np.mean([(label == "late") == (s > 29) for label, s in zip(labels, steps.tolist(), strict=True)])
    assert right > 0.95
    arrays = open_data((1_700_000_000_000 + 1000 * steps[:, None], (steps > 29).astype(int)), {})
    assert arrays.splits["train"].inputs[0].dtype == torch.float64
    assert arrays.encoding["wide"]
    with pytest.raises(ValueError, match="set precision float64"):
        train("mlp", data, training=Training(precision="bfloat16"), out=tmp_path / "b")


def test_where_float32_ends() -> None:
    steps = np.arange(100.0)
    deviation = steps.std()
    assert is_wide(steps + 4097 * deviation)
    assert not is_wide(steps + 4000 * deviation)
    assert not is_wide(np.full(9, 1e12))
    assert is_wide_target(steps + 300 * deviation)
    assert not is_wide_target(steps)
    dates = np.array([20200101.0, 20231231.0, 20220615.0])  # odd numbers above 2^24
    assert is_wide_target(dates)
    assert not is_wide_target(dates - 2e7)
