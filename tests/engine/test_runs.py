"""A run's directory: which files it holds, what its marks name, and in which order they are written."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from margin.core.catalog import models, resolve
from margin.core.options import Training
from margin.data.sets.tiny.texts import classes as tiny_texts
from margin.engine import runs
from margin.engine.checkpoints import load_state
from margin.engine.loop import State
from margin.engine.runs import Run, load
from margin.nn.preprocessed import core_of
from margin.runs.verbs import train


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "r", {"recipe": {"model": "a/b"}, "arguments": {"training": {"lr": 1.0}}})


def at(step: int) -> State:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, float(step))
    return State({"model": model}, step=step)


def weight_of(path: Path) -> float:
    state = at(0)
    load_state(path, state)
    return state.model.weight.item()


def files(run: Run) -> set[str]:
    return {path.name for path in run.path.glob("step-*")}


def test_the_last_and_the_best_checkpoint_are_kept(run: Run) -> None:
    run.save(at(1), best=True)
    run.save(at(2), best=False)
    run.save(at(3), best=False)
    assert files(run) == {"step-00000001.safetensors", "step-00000003.safetensors"}
    assert (weight_of(run.checkpoint("best")), weight_of(run.checkpoint("last"))) == (1.0, 3.0)
    run.save(at(4), best=True)
    assert files(run) == {"step-00000004.safetensors"}
    assert weight_of(run.checkpoint("best")) == 4.0


def test_where_none_is_the_best_the_last_is(run: Run) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint yet"):
        run.checkpoint("best")
    run.save(at(2), best=False)
    assert run.checkpoint("best") == run.checkpoint("last") == run.checkpoint()


def test_a_training_that_goes_on_has_not_ended(run: Run) -> None:
    run.save(at(2), best=True)
    run.end(at(2), "max_steps")
    assert (run.reason, run.checkpoints) == (
        "max_steps",
        {"last": 2, "best": 2, "ended": 2, "reason": "max_steps"},
    )
    run.save(at(3), best=False)
    assert (run.reason, run.checkpoints) == ("", {"last": 3, "best": 2})


def test_the_initial_weights_are_kept_once(run: Run) -> None:
    run.start(at(0))
    run.start(at(7))
    assert weight_of(run.checkpoint("initial")) == 0.0


def test_a_checkpoint_is_whole_before_it_is_marked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.save(at(1), best=True)

    def killed(path: Path, state: State) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "save_state", killed)
    with pytest.raises(KeyboardInterrupt):
        run.save(at(2), best=True)
    assert run.checkpoints == {"last": 1, "best": 1}
    assert weight_of(run.checkpoint("last")) == 1.0


def test_a_checkpoint_is_dropped_only_after_no_mark_names_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.save(at(1), best=True)

    def killed(path: Path, content: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        run.save(at(2), best=True)
    assert run.checkpoints == {"last": 1, "best": 1}
    assert weight_of(run.checkpoint("best")) == 1.0


def test_restoring_forgets_the_rows_after_the_checkpoint(run: Run) -> None:
    for step in (2, 4, 6):
        run.append({"step": step})
    run.save(at(4), best=False)
    again, state = Run(run.path), at(0)
    again.restore(state)
    assert (state.step, state.model.weight.item()) == (4, 4.0)
    assert [row["step"] for row in again.history] == [2, 4]
    again.append({"step": 5})
    assert [row["step"] for row in Run(run.path).history] == [2, 4, 5]


def test_without_a_checkpoint_a_training_begins_again(run: Run) -> None:
    run.append({"step": 2})
    again, state = Run(run.path), at(0)
    again.restore(state)
    assert (state.step, again.history) == (0, [])


def test_a_row_cut_short_is_not_there(run: Run) -> None:
    run.append({"step": 2, "val_loss": 0.5})
    with (run.path / "history.jsonl").open("a") as file:
        file.write('{"step": 4}')  # whole JSON, but the kill came before the end of the line
    assert Run(run.path).history == [{"step": 2, "val_loss": 0.5}]


def test_what_is_not_finite_is_null(run: Run) -> None:
    run.append({"step": 1, "a": float("nan"), "b": float("-inf"), "c": 0.5})
    text = (run.path / "history.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"step": 1, "a": None, "b": None, "c": 0.5}


def test_what_a_kill_left_of_a_directory_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "r.new").mkdir()
    (tmp_path / "r.new" / "old").write_text("")
    run = Run.create(tmp_path / "r", {"recipe": {}})
    assert [path.name for path in run.path.iterdir()] == ["run.yaml"]
    assert not (tmp_path / "r.new").exists()


def test_an_amended_record_keeps_the_rest(tmp_path: Path) -> None:
    entry = models()["classic/hopfield"]
    run = train(entry.name, resolve(entry.tiny)(), training=Training(epochs=1), out=tmp_path / "whole")
    before = run.record
    run.amend({**before["arguments"]["training"], "epochs": 3})
    after = Run(run.path).record
    assert after["arguments"]["training"].pop("epochs") == 3
    assert before["arguments"]["training"].pop("epochs") == 1
    assert after == before


def test_a_directory_without_a_record_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"is no run: it has no run\.yaml"):
        Run(tmp_path)
    (tmp_path / "run.yaml").write_text("a: 1")
    with pytest.raises(ValueError, match="is no record of a training"):
        _ = Run(tmp_path).record


def test_a_state_that_is_restored_is_the_state_that_was_saved(run: Run) -> None:
    state = at(3)
    state.tally = {"loss": torch.tensor(1.5), "steps": 2.0}
    state.seed = 11
    run.save(state, best=False)
    fresh = at(0)
    Run(run.path).restore(fresh)
    assert (fresh.step, fresh.seed, fresh.tally) == (3, 11, {"loss": torch.tensor(1.5), "steps": 2.0})


@pytest.mark.parametrize(
    ("group", "name"),
    [("options", "hidden"), ("options", "dropout"), ("step", "rho"), ("training", "lr")],
)
def test_a_record_without_an_option_takes_no_default_of_today(group: str, name: str, tmp_path: Path) -> None:
    run = train("mlp", "iris", training=Training(epochs=0), rule="sam", out=tmp_path / "r")
    file = run.path / "run.yaml"
    record = yaml.safe_load(file.read_text())
    del record["arguments"][group][name], record["digest"]
    record["recipe"]["options"].pop(name, None)
    file.write_text(yaml.safe_dump(record))
    says = "for the option lr is missing" if group == "training" else f"arguments.{group}.{name} is missing"
    with pytest.raises(ValueError, match=f"run.yaml: .*{says}: restore it or train anew"):
        load(run.path)


def test_an_option_that_is_newer_than_a_record_is_as_it_was_before(tmp_path: Path) -> None:
    """A run of the day before the option: it loads, its record says the value, and it answers as it did."""
    data = tiny_texts()
    options = {"width": 8, "heads": 2, "depth": 1, "stride": 3}
    run = train("bert", data, options, Training(epochs=0, seed=1), out=tmp_path / "r")
    file = run.path / "run.yaml"
    record = yaml.safe_load(file.read_text())
    for part in ("arguments", "recipe"):
        del record[part]["options"]["stride"]
    del record["digest"]
    file.write_text(yaml.safe_dump(record))
    assert Run(run.path).record["recipe"]["options"]["stride"] == 0
    assert Run(run.path).record["arguments"]["options"]["stride"] == 0
    assert core_of(load(run.path)).body.stride == 0
