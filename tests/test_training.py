"""A training of its own accord: it stops, and stays stopped; its best weights are those of the best row."""

import json
from pathlib import Path

import pytest
import torch

import margin
from margin import Run, Training, load
from margin.data.opening import open_data
from margin.training import finish, reopen

PATIENT = Training(epochs=200, lr=0.05, patience=3, batch_size=16, evaluate_every=4)


def test_patience_stops_and_a_resumption_does_not_go_on(tmp_path: Path) -> None:
    run = margin.train("mlp", "iris", training=PATIENT, out=tmp_path / "r")
    assert run.reason == "no better val_loss in 3 evaluations"
    losses = [row["val_loss"] for row in run.history]
    assert losses.index(min(losses)) == len(losses) - 4
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    assert margin.resume(run).reason == run.reason
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_a_kill_before_the_judgement_loses_nothing(tmp_path: Path) -> None:
    run = margin.train("mlp", "iris", training=PATIENT, out=tmp_path / "r")
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    (run.path / "metrics.json").unlink()
    finish(reopen(run.path, None, Training()))
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_the_best_weights_are_those_of_the_smallest_validation_loss(tmp_path: Path) -> None:
    run = margin.train("mlp", "iris", training=PATIENT, out=tmp_path / "r")
    best = min(run.history, key=lambda row: row["val_loss"])
    assert run.marks["best"] == best["step"]
    part = open_data("iris", {}).splits["val"]
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(load(run)(part.inputs[0]), part.targets).item()
    assert abs(loss - best["val_loss"]) <= 1e-6
    assert abs(run.metrics["val_loss"] - best["val_loss"]) <= 1e-6


def test_a_loss_that_is_not_finite_is_never_the_best(tmp_path: Path) -> None:
    run = margin.train("mlp", "iris", training=Training(epochs=3), out=tmp_path / "r")
    from margin.engine.hooks import is_best

    rows = [{"val_loss": value} for value in (None, 0.5, float("nan"), None, 0.4)]
    assert [is_best(rows[: i + 1], "val_loss") for i in range(5)] == [False, True, False, False, True]
    assert json.loads((run.path / "checkpoints.json").read_text())["reason"] == "max_steps"


def test_arrays_in_memory_train_resume_and_audit(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 3, generator=generator)
    y = (x[:, 0] > 0).long()
    run = margin.train("mlp", (x, y), training=Training(epochs=2), out=tmp_path / "r")
    longer = margin.resume(run, (x, y), Training(epochs=4))
    whole = margin.train("mlp", (x, y), training=Training(epochs=4), out=tmp_path / "whole")
    one, other = (load(r, "last").state_dict() for r in (longer, whole))
    assert all(torch.equal(one[name], other[name]) for name in one)
    audit = margin.audit(Run(tmp_path / "r"), (x[:50], y[:50]), claims="theory/risk.accuracy")
    right = (load(longer)(x[:50]).argmax(1) == y[:50]).double().mean()
    assert abs(float(audit.answers[0].finding.value) - right.item()) <= 1e-6


def test_what_a_run_under_way_cannot_follow_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    run = margin.train("mlp", "iris", training=Training(epochs=1), out=tmp_path / "r")
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    changes = [
        {"lr": 0.5},
        {"optimizer": "SGD"},
        {"precision": "float64"},
        {"average": 0.9},
        {"batch_size": 4},
        {"seed": 3},
    ]
    for change in changes:
        (name,) = change
        with pytest.raises(ValueError, match=f"a resumed run keeps its {name}"):
            margin.resume(run, training=Training(epochs=2, **change))
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_lbfgs_moves_once_a_step(tmp_path: Path) -> None:
    training = Training(optimizer="LBFGS", optimizer_options={"max_iter": 20})
    with pytest.raises(ValueError, match="max_iter must be 1"):
        margin.train("mlp", "iris", training=training, out=tmp_path / "r")
    run = margin.train(
        "mlp",
        "iris",
        training=Training(optimizer="LBFGS", lr=0.5, batch_size="all", epochs=30),
        out=tmp_path / "s",
    )
    assert run.metrics["val_accuracy"] >= 0.8


def test_a_longer_training_is_judged_anew_even_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = margin.train("mlp", "iris", training=Training(epochs=1), out=tmp_path / "r")
    first = run.metrics
    with monkeypatch.context() as patch:
        patch.setattr(Run, "judge", lambda self, metrics: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            margin.resume(run, training=Training(epochs=4))
    assert Run(run.path).metrics == {}
    judged = margin.resume(run.path).metrics
    assert judged["test_loss"] < first["test_loss"]


def refusing(state: object, metrics: object) -> str | None:
    raise ValueError("not with this")


def test_a_training_that_is_refused_at_its_first_step_leaves_its_name_free(tmp_path: Path) -> None:
    """Pixels from 0 to 16 are no probabilities, which the first loss sees."""
    options, out = {"decoder": "bernoulli"}, tmp_path / "r"
    with pytest.raises(ValueError, match="scale"):
        margin.train("vae", "digits", options, Training(max_steps=1, scale="none"), out=out)
    assert not out.exists()
    margin.train("vae", "digits", options, Training(max_steps=1, scale="unit"), out=out)


def test_a_training_that_breaks_later_keeps_its_directory(tmp_path: Path) -> None:
    from margin.training import open_source, prepare

    arguments = {"options": {}, "step": {}, "rule": ""}
    data = open_source("iris", {})
    job = prepare("mlp", data, arguments, Training(max_steps=3), tmp_path / "r")
    with pytest.raises(ValueError, match="not with this"):
        finish(job, hooks=[refusing])
    assert (tmp_path / "r" / "initial.safetensors").exists()
