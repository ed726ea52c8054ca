"""Laplace's approximation end to end: from a name or a run, predictions, scikit-learn's face, messages."""

from pathlib import Path

import numpy as np
import pytest
import torch

import margin
from margin.core.options import Training
from margin.nn.predictive import predictive_of
from margin.runs.inference import predictions
from margin.runs.training import prepare
from margin.sklearn import MarginClassifier, MarginRegressor


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (160, 2)) * [1, 100]
    y = 50 + 10 * np.sin(x[:, 0]) + rng.normal(size=160)
    path = tmp_path_factory.mktemp("laplace") / "waves.csv"
    path.write_text("\n".join(["near,far,height", *(f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True))]))
    return path


@pytest.fixture(scope="module")
def base(table: Path):
    data = margin.open_source(str(table), {"target": "height"})
    training = Training(epochs=150, lr=1e-2, seed=0)
    return margin.train("mlp", data, {"hidden": [16]}, training, out=table.parent / "base")


def test_train_predict_audit(table: Path, tmp_path: Path) -> None:
    data = margin.open_source(str(table), {"target": "height"})
    run = margin.train(
        "laplace", data, {"base_options": {"hidden": [16]}, "structure": "full"}, out=tmp_path / "run"
    )
    assert run.record["recipe"]["model"] == "bayes/laplace:values"
    last = run.history[-1]
    assert 0.7 < last["train_noise"] < 1.4 and 5 < last["train_determined"] < 65
    columns = predictions(run, table)
    value, _, low, high = (np.array(columns[name]) for name in ("value", "std", "low 95%", "high 95%"))
    heights = np.loadtxt(table, delimiter=",", skiprows=1)[:, 2]
    assert 0.88 < np.mean((low <= heights) & (heights <= high)) <= 1
    assert np.mean((value - heights) ** 2) < 2
    found = margin.audit(run, claims=["theory/predictive.*"]).findings
    assert found["theory/predictive.coverage"].value[3] > 0.8


@pytest.mark.parametrize("structure", ["full", "kron", "diag", "last"])
def test_around_a_finished_run_values_stay_what_they_were(
    base, table: Path, tmp_path: Path, structure
) -> None:
    data = margin.open_source(str(table), {"target": "height"})
    options = {"base": str(base.path), "structure": structure}
    run = margin.train("laplace", data, options, out=tmp_path / "run")
    model, other = margin.load(run), margin.load(base).double()
    x = torch.tensor(np.loadtxt(table, delimiter=",", skiprows=1)[:20, :2])
    assert torch.allclose(model(x), other(x), rtol=1e-5)
    law = predictive_of(model, x)
    assert torch.allclose(law.mean, model(x), rtol=1e-6)
    # in the unit of the heights: 1, and more where a structure counts too many weights as determined
    assert 0.8 < float(run.history[-1]["train_noise"]) < {"full": 1.3, "last": 1.3}.get(structure, 2.5)
    assert bool((law.variance.sqrt() > float(run.history[-1]["train_noise"])).all())


def test_a_run_is_loaded_where_its_base_is_gone(base, table: Path, tmp_path: Path) -> None:
    data = margin.open_source(str(table), {"target": "height"})
    copy = tmp_path / "moved"
    base.path.rename(copy)
    try:
        run = margin.train("laplace", data, {"base": str(copy)}, out=tmp_path / "run")
    finally:
        copy.rename(base.path)
    assert margin.load(run)(torch.zeros(2, 2, dtype=torch.float64)).shape == (2,)


@pytest.mark.parametrize("model", ["laplace", "hmc"])
def test_a_base_that_held_out_other_rows_is_refused_with_the_split_that_fits(
    base, table: Path, tmp_path: Path, model: str
) -> None:
    other = margin.open_source(str(table), {"target": "height", "split_seed": 3, "val": 0.2})
    with pytest.raises(ValueError, match=r"give val 0.15 split_seed 0 "):
        margin.train(model, other, {"base": str(base.path)}, out=tmp_path / "run")
    arrays = np.loadtxt(table, delimiter=",", skiprows=1)
    with pytest.raises(ValueError, match="must have learned from these data"):
        margin.train(model, (arrays[:, :2], arrays[:, 2]), {"base": str(base.path)}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_base_whose_rows_have_changed_since_is_refused(base, table: Path, tmp_path: Path) -> None:
    before = table.read_text()
    table.write_text(before + "\n1.0,2.0,3.0")
    try:
        data = margin.open_source(str(table), {"target": "height"})
        with pytest.raises(ValueError, match=r"they have changed since it was trained$"):
            margin.train("laplace", data, {"base": str(base.path)}, out=tmp_path / "run")
    finally:
        table.write_text(before)


def test_auto_is_full_where_it_is_small_says_so_and_a_record_of_kron_stays_kron(
    base, table: Path, tmp_path: Path
) -> None:
    data = margin.open_source(str(table), {"target": "height"})
    arguments = {"options": {"base": str(base.path)}, "step": {}, "rule": ""}
    job = prepare("laplace", data, arguments, Training(), tmp_path / "auto")
    told = [note for note in job.notes if "structure" in note]
    assert told == ["structure full: the curvature of 65 weights takes 132 KiB while it is fitted"]
    assert job.state.core.structure == "full"
    kron = margin.train("laplace", data, {"base": str(base.path), "structure": "kron"}, out=tmp_path / "kron")
    assert margin.load(kron).model.structure == "kron"


def test_the_estimators_state_deviations_and_probabilities(table: Path) -> None:
    data = np.loadtxt(table, delimiter=",", skiprows=1)
    options = {"base_options": {"hidden": [16]}}
    fitted = MarginRegressor("bayes/laplace", options=options, random_state=0).fit(data[:, :2], data[:, 2])
    _, deviation = fitted.predict(data[:20, :2], return_std=True)
    assert 0.7 < deviation.mean() < 2
    far = np.array([[60.0, 0.0]])  # ten times as far from the middle as any example
    assert fitted.predict(far, return_std=True)[1] > 2 * deviation.max()
    labels = data[:, 2] > 50
    classes = MarginClassifier("bayes/laplace", options=options, random_state=0).fit(data[:, :2], labels)
    assert classes.score(data[:, :2], labels) > 0.9
    assert np.allclose(classes.predict_proba(data[:, :2]).sum(1), 1)


def test_a_base_that_does_not_fit_is_refused(base, table: Path, tmp_path: Path) -> None:
    data = margin.open_source(str(table), {"target": "height"})
    for options, message in (
        ({"base": "nowhere/run"}, "the base must be a model or the directory of a run"),
        ({"base": str(base.path), "base_options": {"hidden": [3]}}, "has its own"),
        ({"prior_precision": 0.0}, "prior_precision must be positive and finite: got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            margin.train("laplace", data, options, out=tmp_path / "run")
    with pytest.raises(ValueError, match="a model by name, whose weights are drawn"):
        margin.train("ensemble", data, {"base": str(base.path)}, out=tmp_path / "run")
    near = margin.open_source(str(table), {"target": "height", "ignore": ["far"]})
    with pytest.raises(ValueError, match="has in_features 2: the data have 1"):
        margin.train("laplace", near, {"base": str(base.path)}, out=tmp_path / "run")
