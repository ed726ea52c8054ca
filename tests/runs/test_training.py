"""A training of its own accord: it stops, and stays stopped; its best weights are those of the best row."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import margin
from margin import Run, Training, load
from margin.core.catalog import find, models
from margin.data.examples import Arrays, Data
from margin.data.files.writing import DiskFullError
from margin.data.open import open_data
from margin.engine import evaluation
from margin.engine.plan import long_enough
from margin.runs.training import finish, prepare, reopen
from margin.testing import check_same_run

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
    assert run.checkpoints["best"] == best["step"]
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
        patch.setattr(Run, "record_metrics", lambda self, metrics: (_ for _ in ()).throw(KeyboardInterrupt))
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
    from margin.runs.training import open_source, prepare

    arguments = {"options": {}, "step": {}, "rule": ""}
    data = open_source("iris", {})
    job = prepare("mlp", data, arguments, Training(max_steps=3), tmp_path / "r")
    with pytest.raises(ValueError, match="not with this"):
        finish(job, hooks=[refusing])
    assert (tmp_path / "r" / "initial.safetensors").exists()


def test_the_loss_of_a_row_is_the_mean_over_all_examples(tmp_path: Path) -> None:
    """97 rows in batches of 90 and 7 under weights that hardly move, by one piece and by several."""
    x = torch.randn(97, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = open_data((x, (x[:, 0] > 0).long()), {"val": 0.0, "test": 0.0})
    for pieces in (1, 4):
        training = Training(
            epochs=2, lr=1e-12, batch_size=90, precision="float64", accumulate=pieces, scale="none"
        )
        run = margin.train("mlp", data, {"hidden": [4]}, training, out=tmp_path / f"r{pieces}")
        part = data.splits["train"]
        assert len(part) == 97
        with torch.no_grad():
            whole = torch.nn.functional.cross_entropy(load(run, "initial")(part.inputs[0]), part.targets)
        losses = [row["train_loss"] for row in run.history]
        assert losses == pytest.approx([whole.item()] * 2, rel=1e-9)


def test_a_run_that_is_training_is_refused_and_not_called_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "r"
    told: list[str] = []

    def look(state, metrics) -> None:
        if state.step == 3:
            told.append(Run(path).reason)
            for again in (
                lambda: margin.resume(path),
                lambda: margin.train("mlp", "iris", training=Training(max_steps=1), out=path),
            ):
                with pytest.raises(OSError) as caught:
                    again()
                told.append(str(caught.value))

    arguments = {"options": {}, "step": {}, "rule": ""}
    training = Training(max_steps=6, evaluate_every=2)
    finish(prepare("mlp", margin.open_source("iris", {}), arguments, training, path), hooks=[look])
    who = f"process {os.getpid()} on "
    assert told[0].startswith(f"still training: {who}")
    assert told[1].startswith(f"{path} is being trained by {who}")
    assert told[2].startswith(f"{path} is being trained by {who}")
    assert told[2].endswith("choose another out")
    assert [row["step"] for row in Run(path).history] == [2, 4, 6]
    assert Run(path).reason == "max_steps"
    assert not (path / "lock").exists()
    (path / "lock").write_text('{"process": 1, "host": "h", "since": "s"}')  # as a kill leaves it
    assert Run(path).reason == "max_steps"
    assert margin.resume(path, training=Training(max_steps=8)).checkpoints["last"] == 8


@pytest.mark.parametrize("calls", [2, 5])
def test_ctrl_c_in_an_evaluation_leaves_it_and_a_resumption_makes_up_for_it(
    tmp_path: Path, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2: inside the first evaluation, of three batches; 5: inside the second, after the last step."""
    x = torch.randn(2600, 4, generator=torch.Generator().manual_seed(0))
    data = open_data((x, (x[:, 0] > 0).long()), {"val": 0.5, "test": 0.0})
    training = Training(max_steps=8, evaluate_every=4, batch_size=50, patience=0)
    whole = margin.train("mlp", data, training=training, out=tmp_path / "whole")
    seen: list[int] = []
    measured = evaluation.terms_of

    def terms(*arguments):
        seen.append(1)
        if len(seen) == calls:
            signal.raise_signal(signal.SIGINT)
        return measured(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "terms_of", terms)
        with pytest.raises(KeyboardInterrupt, match=r"saved after \d of 8 steps: go on with"):
            margin.train("mlp", data, training=training, out=tmp_path / "r")
    assert len(seen) == calls  # no batch more
    cut = Run(tmp_path / "r")
    assert (cut.reason, cut.checkpoints["last"]) == ("interrupted", 4 if calls == 2 else 8)
    assert len(cut.history) == (0 if calls == 2 else 1)
    check_same_run(whole, margin.resume(cut, data))


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_a_training_begins_with_weights_of_a_compiled_or_parallel_module(
    tmp_path: Path, prefix: str, ending: str
) -> None:
    first = margin.train("mlp", "iris", training=Training(max_steps=2, seed=1), out=tmp_path / "first")
    state = {f"{prefix}{name}": tensor for name, tensor in load(first, "last").model.state_dict().items()}
    path = tmp_path / f"w{ending}"
    save_file(state, path) if ending == ".safetensors" else torch.save(state, path)
    arguments = {"options": {}, "step": {}, "rule": ""}
    training = Training(max_steps=1, init_from=str(path))
    job = prepare("mlp", margin.open_source("iris", {}), arguments, training, tmp_path / "second")
    assert any("are read without" in note for note in job.notes)
    begun = job.state.core.state_dict()
    assert all(torch.equal(begun[name.removeprefix(prefix)], tensor) for name, tensor in state.items())


def test_a_full_disk_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill_up(state, metrics) -> None:
        if state.step == 5:
            monkeypatch.setattr(os, "fsync", full)

    arguments = {"options": {}, "step": {}, "rule": ""}
    training = Training(max_steps=9, evaluate_every=2)
    job = prepare("mlp", margin.open_source("iris", {}), arguments, training, tmp_path / "r")
    with pytest.raises(DiskFullError) as caught:
        finish(job, hooks=[fill_up])
    told = str(caught.value)
    assert re.search(r"no room for .*step-00000006\.safetensors: No space left.*; free at least \d", told)
    assert told.endswith(f"then go on with margin train --resume {tmp_path / 'r'}")
    assert not list((tmp_path / "r").glob("*.new"))
    with pytest.raises(DiskFullError):
        prepare("mlp", margin.open_source("iris", {}), arguments, training, tmp_path / "q")
    assert [path.name for path in tmp_path.iterdir()] == ["r"]  # no half of a run
    monkeypatch.undo()
    done = margin.resume(tmp_path / "r")
    assert [row["step"] for row in done.history] == [2, 4, 6, 8, 9]


BLOCKED = """
import subprocess, sys, tempfile, torch, jsonargparse  # these know how to do without by themselves
import multiprocessing.resource_tracker, torch.distributed
for name in ("fcntl", "pwd", "grp", "resource", "termios", "msvcrt"):
    sys.modules[name] = None
class Msvcrt:
    LK_NBLCK = 2
    def locking(self, descriptor, mode, count): pass
sys.modules["msvcrt"] = Msvcrt()
from margin.cli import main
sys.exit(main(["train", "logistic_regression", "iris", "--epochs", "2", "--out", sys.argv[1]]))
"""


def test_a_training_needs_no_module_of_posix_alone(tmp_path: Path) -> None:
    words = [sys.executable, "-c", BLOCKED, str(tmp_path / "r")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plain = margin.train("logistic_regression", "iris", training=Training(epochs=2), out=tmp_path / "plain")
    assert Run(tmp_path / "r").metrics == plain.metrics


def test_a_first_step_on_trial_leaves_no_trace(tmp_path: Path) -> None:
    """Dropout and batch normalization would show it: they draw, and keep what they have seen."""
    options, out = {"dropout": 0.5, "norm": "batch"}, tmp_path
    torch.manual_seed(3)
    plain = margin.train("mlp", "iris", options, Training(max_steps=6), out=out / "a")
    drawn = torch.rand(2)
    torch.manual_seed(3)
    tried = margin.train("mlp", "iris", options, Training(max_steps=6, until={"loss": -1.0}), out=out / "b")
    assert torch.equal(torch.rand(2), drawn)
    for mark in ("initial", "last"):
        assert plain.checkpoint(mark).name == tried.checkpoint(mark).name
        first, second = load(plain, mark).state_dict(), load(tried, mark).state_dict()
        assert all(torch.equal(first[name], second[name]) for name in first)
    same = [[row["train_loss"] for row in run.history] for run in (plain, tried)]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("examples", "given", "epochs"),
    [
        (64, {}, 300),  # a step an epoch
        (65, {}, 150),
        (154, {}, 100),
        (896, {}, 22),  # 14 steps an epoch: 21 epochs are 294
        (960, {}, None),  # 15 steps: the 20 epochs of the defaults are 300
        (154, {"batch_size": 32}, 60),
        (154, {"batch_size": "all"}, 300),
        (154, {"epochs": 20}, 20),
        (154, {"max_steps": 7}, None),
    ],
)
def test_few_examples_have_epochs_enough_for_the_least_steps(
    examples: int, given: dict, epochs: object
) -> None:
    """Twenty epochs of 154 photographs are 60 steps of LeNet-5, which has not learned by then."""
    data = Data(name="d", splits={"train": Arrays((torch.zeros(examples, 1),))}, spec={})
    training, said = long_enough(find(models(), "lenet5", "model"), data, Training(**given))
    assert training.epochs == epochs
    assert len(said) == (epochs is not None and "epochs" not in given)
    plain = find(models(), "logistic_regression", "model")
    assert long_enough(plain, data, Training(**given)) == (Training(**given), ())
