"""Every row trains, is killed and resumed, and leaves to the byte what the straight training leaves.

The kill is an exception that nothing of ours catches, raised after a step or in place of a rename; what lies
in the directory at that moment is what a kill -9 leaves, and a test holds that nothing is written after it.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from margin.cli import main
from margin.cli.train import Words, options_of, parser_of
from margin.core.catalog import Entry, Rule, data_parameters, models, resolve, rules
from margin.core.options import HOUSE, Schedule, Training
from margin.data.examples import Domain
from margin.data.source import Source
from margin.engine.hooks import Evaluating
from margin.engine.plan import cut_of
from margin.engine.runs import Run
from margin.runs.training import finish, prepare, reopen
from margin.runs.verbs import train
from margin.testing import check_same_run
from smaller import SMALLER

PLAIN = {"options": {}, "step": {}, "rule": ""}


class Killed(BaseException):
    """As abrupt as anything in one process can be."""


def files(directory: Path) -> dict[str, bytes]:
    """What lies in a run, without its lock: that is of the process, which lives on here."""
    found = (p for p in directory.rglob("*") if p.is_file() and p.name != "lock")
    return {str(p.relative_to(directory)): p.read_bytes() for p in found}


@contextmanager
def rename_that_kills(number: int) -> Iterator[None]:
    """The ``number``-th file that would be put in its place from here on is not; 0 leaves all."""
    replace, left = Path.replace, [number]

    def replacing(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return replace(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replacing)
        yield


def killed(begin: Callable[[], Any], *, step: int = 0, rename: int = 0) -> Path:
    """The directory of a training that was killed after a step, or at a rename."""
    job, left = begin(), []

    def kill(state: Any, metrics: Any) -> None:
        if state.step == step:
            left.append(files(job.run.path))
            raise Killed

    with pytest.raises(Killed), rename_that_kills(rename):
        finish(job, hooks=[kill])
    assert not left or left[0] == files(job.run.path)
    assert not (job.run.path / "metrics.json").exists()
    return job.run.path


def check(
    name: str,
    data: Any,
    training: Training,
    directory: Path,
    arguments: Mapping[str, Any] = PLAIN,
) -> Run:
    """One kill and one resume equal the straight run; which kill it is, is a function of the row's name."""

    def begin(place: str) -> Any:
        return prepare(name, data, arguments, training, directory / place)

    whole = finish(begin("whole"))
    number = zlib.crc32(f"{name} {arguments['rule']} {training.as_json()}".encode())
    steps = int(whole.checkpoints["ended"])
    kill = {"rename": 1 + number // 2 % 4} if number % 2 or steps == 1 else {"step": max(1, steps // 2)}
    path = killed(lambda: begin("killed"), **kill)
    resumed = finish(reopen(path, data, Training()))
    for left in path.glob("*.new"):
        left.unlink()
    check_same_run(whole, resumed)
    assert resumed.record["arguments"] == whole.record["arguments"]
    assert resumed.reason == whole.reason
    before = files(path)
    assert finish(reopen(path, data, Training())).reason == whole.reason
    assert files(path) == before
    return whole


# every entry, its budget in epochs, whatever its default is


def halves(entry: Entry, data: Any) -> dict[str, Any]:
    """A batch size that makes two steps an epoch, where an entry's own takes not all at once."""
    if entry.whole or entry.defaults.get("batch_size") == "all":
        return {"epochs": 5}
    return {"epochs": 2, "batch_size": max(1, -(-len(cut_of(entry, {})(data.splits["train"])) // 2))}


def off(entry: Entry) -> dict[str, Any]:
    """The entry's own defaults that can be switched off, off."""
    empty = {"until": {}, "optimizer_options": {}, "patience": 0}
    return {name: value for name, value in empty.items() if entry.defaults.get(name)}


def tiny(name: str) -> Any:
    return resolve(models()[name].tiny)()


FEW_PASSES = {"epochs": 20, "rounds": 2}
FEWER = {"bayes/laplace": FEW_PASSES, "bayes/laplace:values": FEW_PASSES}
"""Steps that train a network whole, whose defaults keep their contracts in test_tables."""


@pytest.mark.parametrize("entry", models().values(), ids=lambda e: e.name)
def test_an_entry_in_epochs(entry: Entry, tmp_path: Path) -> None:
    data = resolve(entry.tiny)()
    training = Training(seed=2, evaluate_every=2, **halves(entry, data), **off(entry))
    own = {"options": SMALLER.get(entry.name, {}), "step": FEWER.get(entry.name, {})}
    whole = check(entry.name, data, training, tmp_path, PLAIN | own)
    recorded = whole.record["arguments"]["training"]
    assert recorded["max_steps"] is None
    assert {name: recorded[name] for name in off(entry)} == off(entry)


# every rule, on the first entry that can take it

HOSTS = ("feedforward/mlp", "sequence/gru")
OWN_HOST = {"vision/dice_loss": ("vision/unet", {"width": 4, "levels": 1})}
"""Hosts, with their options, of rules that ask for another task."""

SHORTER = {
    "engine/entropy_sgd": {"inner": 3},
    "engine/lottery_ticket": {"rounds": 1, "fraction": 0.5},
    "robust/pgd": {"eps": 0.1, "steps": 2},
    "sequence/truncated_bptt": {"window": 3},
}
"""Options by which a rule does what it does within six steps; a new rule is tried with its defaults."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run to learn from, to be ordered by, to begin with."""
    place = tmp_path_factory.mktemp("other") / "run"
    return str(train("mlp", tiny(HOSTS[0]), SMALL, Training(max_steps=2), out=place).path)


SMALL = {"hidden": [4]}


# up to eight seconds: a training is run whole, broken, and gone on with
@pytest.mark.parametrize("rule", rules().values(), ids=lambda r: r.name)
def test_a_rule_in_epochs(rule: Rule, other: str, tmp_path: Path) -> None:
    asks = data_parameters(resolve(rule.step))
    teacher = {"teacher": other} if "teacher" in asks else {}
    first = (HOSTS[1], {"hidden": 4}) if "model" in asks else (HOSTS[0], SMALL)
    host, options = OWN_HOST.get(rule.name, first)
    data = tiny(host)
    if "domain" in asks:
        data = replace(data, domain=Domain(torch.tensor(-9.0), torch.tensor(9.0)))
    arguments = {"options": options, "step": SHORTER.get(rule.name, {}), "rule": rule.name}
    training = Training(seed=1, evaluate_every=2, **teacher, **halves(models()[host], data) | {"epochs": 3})
    check(host, data, training, tmp_path, arguments)


# every option of a training

SCHEDULES = {"step": {"every": 2, "factor": 0.5}, "exponential": {"factor": 0.9}, "power": {"p": 0.5}}
ONE = {"epochs": 3, "evaluate_every": 2, "seed": 1}
CASES: dict[str, dict[str, Any]] = {
    **{
        f"schedule {name}": {"schedule": name, "schedule_options": SCHEDULES.get(name, {})}
        for name in get_args(Schedule)
    },
    "warmup": {"warmup": 4},
    "clip": {"clip": 0.1},
    "accumulate": {"accumulate": 3},
    "average": {"average": 0.9},
    "average_start": {"average": "mean", "average_start": 2},
    "augment": {"augment": ["noise:0.1"]},
    "mix, mix_alpha": {"mix": "mixup", "mix_alpha": 0.5},
    "label_smoothing": {"label_smoothing": 0.1},
    "confusion": {"confusion": [[0.9, 0.1], [0.2, 0.8]]},
    "class_weight": {"class_weight": "balanced"},
    **{
        f"pacing {name}": {"curriculum": "OTHER", "pacing": name, "pacing_start": 0.5, "pacing_end": 0.9}
        for name in ("linear", "root", "step", "exponential")
    },
    "init": {"init": "orthogonal"},
    "init_scale": {"init": "normal", "init_scale": 0.1},
    "init_from": {"init_from": "OTHER"},
    "freeze": {"freeze": ["layers.1"]},
    "optimizer": {"optimizer": "SGD", "optimizer_options": {"momentum": 0.9}, "lr": 0.1},
    "layer_decay, decay_norms": {"layer_decay": 0.5, "decay_norms": True},
    "scale": {"scale": "none"},
    "scale_targets": {"scale_targets": "none"},
    "precision": {"precision": "float64"},
    "precision bfloat16": {"precision": "bfloat16"},
    "track": {"track": ["activations"]},
    "batch_size": {"batch_size": "all", "epochs": 6},
    "epochs, max_steps": {"max_steps": 5},
    "max_steps": {"epochs": None, "max_steps": 5},
    "until": {"until": {"loss": 0.5}, "max_steps": 60, "lr": 0.05},
    "until nothing": {"until": {}},
    "patience": {"patience": 1, "evaluate_every": 1, "lr": 5.0, "max_steps": 8},
    "evaluate_every": {"evaluate_every": None},
    "checkpoint_every": {"checkpoint_every": 1, "evaluate_every": 5},
    "threads, device": {"threads": 1, "device": "cpu"},
}
ELSEWHERE = {
    "teacher": "with its rule, above",
    "compile": "tests/unhooked",
    "processes": "tests/engine/parallel/test_processes.py",
    "strategy": "tests/engine/parallel/test_processes.py",
    "workers": "tests/data/sampling/test_loading.py",
    "log": "tests/engine/test_recorders.py, tests/runs/test_filming.py: seconds are not equal to the byte",
}


def test_every_option_has_its_case() -> None:
    used = {name for case in (ONE, *CASES.values()) for name in case}
    assert {field.name for field in fields(Training)} == used | set(ELSEWHERE)


@pytest.mark.parametrize("case", CASES)
def test_an_option(case: str, other: str, tmp_path: Path) -> None:
    given = {name: other if value == "OTHER" else value for name, value in CASES[case].items()}
    host = "feedforward/mlp:values" if case == "scale_targets" else HOSTS[0]
    data = tiny(host)
    size = {"batch_size": -(-len(data.splits["train"]) // 2)}
    training = Training(**{**ONE, **size, **given})
    whole = check(host, data, training, tmp_path, {**PLAIN, "options": SMALL})
    if case in ("until", "patience"):
        assert whole.reason != "max_steps"


# every way to state a budget, on an entry of each kind of default

KINDS = {
    "epochs": "feedforward/mlp",
    "max_steps": "generative/gan",
    "until": "classic/perceptron",
    "patience": "sequence/gru",
    "optimizer_options": "classic/logistic_regression",
}
BUDGETS: dict[str, dict[str, Any]] = {
    "epochs": {"epochs": 2},
    "max_steps": {"max_steps": 4},
    "both": {"epochs": 9, "max_steps": 4},
    "switched off": {"epochs": 2, "until": {}, "patience": 0},
    "one evaluation": {"epochs": 2, "evaluate_every": 100},
}


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_of_another_kind(kind: str, budget: str, tmp_path: Path) -> None:
    entry = models()[KINDS[kind]]
    assert kind == "epochs" or kind in entry.defaults
    data = tiny(entry.name)
    size = {name: value for name, value in halves(entry, data).items() if name == "batch_size"}
    whole = check(entry.name, data, Training(**BUDGETS[budget], **size), tmp_path)
    recorded = whole.record["arguments"]["training"]
    assert recorded["max_steps"] == BUDGETS[budget].get("max_steps")


# the command line


def emptied(entry: Entry) -> Training:
    """A training of the entry in which everything is null or empty that can be."""
    resolved = Training().over(entry.defaults)
    empty = {"until": {}, "optimizer_options": {}, "schedule_options": {}, "max_steps": None}
    return Training.recorded(
        {
            **resolved.as_json(),
            **empty,
            **{f.name: None for f in fields(Training) if getattr(HOUSE, f.name) is None},
        }
    )


@pytest.mark.parametrize("entry", models().values(), ids=lambda e: e.name)
def test_what_a_record_says_is_what_the_command_line_takes(entry: Entry) -> None:
    before = emptied(entry)
    base = {
        "model": entry.name,
        "data": {"source": "iris", "options": {}},
        "options": {},
        "step": {},
        "rule": "",
        "training": before.as_json(),
    }

    parser = parser_of(entry.name, Source("iris"), "")

    def read(*words: str) -> Training:
        recorded = Training.recorded(base["training"])
        return options_of(parser, Words(entry.name, "iris", "", "", "", words), base).training.changing(
            recorded
        )

    assert read() == before
    longer = read("--epochs", "7")
    assert (longer.epochs, longer.max_steps) == (7, None)
    base["training"] = {**before.as_json(), "max_steps": 9}
    assert (read().max_steps, read("--epochs", "7").max_steps) == (9, None)


def test_a_training_by_the_command_line_goes_on_in_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model whose default are 10,000 steps, trained for two epochs of two steps."""
    monkeypatch.chdir(tmp_path)
    words = ["train", "gan", "two-moons", "--epochs", "2", "--checkpoint-every", "1", "--out"]
    assert main([*words, "whole"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Evaluating, "__call__", dies_at(3))
        with pytest.raises(Killed):
            main([*words, "part"])
    assert Run("part").checkpoints == {"last": 2}
    assert main(["train", "--resume", "part"]) == 0
    check_same_run(Run("whole"), Run("part"))
    before = files(tmp_path / "part")
    capsys.readouterr()
    assert main(["train", "--resume", "part"]) == 0
    assert "part is finished after 4 steps (max_steps): nothing is changed" in capsys.readouterr().err
    assert main(["train", "--resume", "part", "--epochs", "1"]) == 0
    assert files(tmp_path / "part") == before
    assert main(["train", "--config", "part/run.yaml", "--out", "again"]) == 0
    check_same_run(Run("whole"), Run("again"))
    assert main(["train", "--resume", "again", "--epochs", "3"]) == 0
    assert Run("again").checkpoints["ended"] == 6


def dies_at(step: int) -> Callable[..., None]:
    plain = Evaluating.__call__

    def dying(self: Evaluating, state: Any, metrics: Any) -> None:
        if state.step == step:
            raise Killed
        plain(self, state, metrics)

    return dying


# a run that ended of its own accord

EARLY: dict[str, tuple[dict[str, Any], str]] = {
    "patience": ({"patience": 1, "evaluate_every": 1, "lr": 5.0, "max_steps": 40}, "no better val_loss"),
    "until": ({"until": {"loss": 0.69}, "max_steps": 40, "lr": 0.01}, "loss"),
}
CHANGED: dict[str, dict[str, Any]] = {
    "patience": {"patience": 30},
    "until": {"until": {"loss": 0.0}},
    "switched off": {"patience": 0, "until": {}},
}


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("early", EARLY)
def test_a_run_that_ended_early_goes_on_where_what_ended_it_changes(
    early: str, change: str, tmp_path: Path
) -> None:
    given, why = EARLY[early]
    data = tiny(HOSTS[0])
    run = train(HOSTS[0], data, SMALL, Training(seed=1, **given), out=tmp_path / "r")
    ended = run.checkpoints["ended"]
    assert why in run.reason
    assert ended < 40
    before = files(run.path)
    for other in ({"checkpoint_every": 3}, {"epochs": 50}, {"max_steps": 60}):  # no more steps than it wanted
        assert finish(reopen(run.path, data, Training(**other))).checkpoints["ended"] == ended
    assert before["checkpoints.json"] == files(run.path)["checkpoints.json"]
    after = finish(reopen(run.path, data, Training(**CHANGED[change])))
    assert after.checkpoints["ended"] > ended
    if change != "switched off":
        return
    whole = train(HOSTS[0], data, SMALL, Training(seed=1, **given | CHANGED[change]), out=tmp_path / "w")
    check_same_run(whole, after)


def test_epochs_take_the_place_of_recorded_steps(tmp_path: Path) -> None:
    run = train(
        "gan", tiny("generative/gan"), training=Training(max_steps=2, batch_size="all"), out=tmp_path / "r"
    )
    resumed = finish(reopen(run.path, tiny("generative/gan"), Training(epochs=5)))
    assert resumed.checkpoints["ended"] == 5
    assert resumed.record["arguments"]["training"]["max_steps"] is None


def test_what_was_left_to_a_default_is_recorded(tmp_path: Path) -> None:
    """The options of model and step as they were, whatever a later version's defaults are."""
    run = train("gan", tiny("generative/gan"), training=Training(max_steps=1), out=tmp_path / "r")
    arguments = run.record["arguments"]
    assert arguments["options"]["activation"] == "relu"
    assert arguments["options"] == run.record["recipe"]["options"]
    assert arguments["step"]["objective"] == "nonsaturating"
