"""Records that were cut, turned, robbed of keys or made up end in the right values, or in one line.

A run of a table is used through the command line in this process. What is changed in it may go unnoticed only
where it changes nothing: then the status is 0 and the values are those of the run as it was. All else is
status 2 and one line that names the file. Where the digest is made anew, as one who forges a record would,
a changed value may be taken for what it says, but nothing else may happen.
"""

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from margin.cli import main
from margin.engine.schema import sealed

RANDOM = random.Random(0)
FILES = ("run.yaml", "checkpoints.json", "history.jsonl", "metrics.json")
CASES = 40
"""A file; four of them."""

COMMANDS = {
    "predict": ("predict", "RUN", "d.csv"),
    "resume": ("train", "--resume", "RUN"),
    "repeat": ("train", "--config", "RUN", "--epochs", "0", "--out", "again"),
    "export": ("export", "RUN", "--out", "again.safetensors"),
}
ORDER = ("predict", "resume", "predict", "export", "predict", "repeat", "predict", "predict")
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3.5,
    10**11,
    10**30,
    "",
    "../../etc",
    "x" * 100,
    [],
    [[]],
    {},
    {"model": "mlp", "spec": {}, "options": {}},
    [10**11],
    ["a", 1],
    {"a": {"b": []}},
)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a table of numbers and categories and a finished run of it."""
    place = tmp_path_factory.mktemp("fuzz")
    rows = [f"{i % 7},{'uvw'[i % 3]},{'ab'[i % 2]}" for i in range(60)]
    (place / "d.csv").write_text("\n".join(["x,c,target", *rows]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        words = ("--target", "target", "--task", "classes", "--model.hidden", "3", "--epochs", "2")
        assert main(["train", "mlp", "d.csv", *words, "--out", "whole"]) == 0
        yield place


def answer(capsys: pytest.CaptureFixture[str], name: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command on the changed run."""
    for left in (Path("again.safetensors"), Path("again")):
        if left.exists():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    capsys.readouterr()
    status = main([word.replace("RUN", "changed") for word in COMMANDS[name]])
    told = capsys.readouterr()
    return status, told.out, told.err


def fresh() -> Path:
    shutil.rmtree("changed", ignore_errors=True)
    return Path(shutil.copytree("whole", "changed"))


def paths(tree: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*here, key)
        yield from paths(value, (*here, key))


def turned(content: bytes) -> bytes:
    """Some bits turned."""
    changed = bytearray(content)
    for _ in range(RANDOM.choice((1, 1, 3))):
        changed[RANDOM.randrange(len(changed))] ^= 1 << RANDOM.randrange(8)
    return bytes(changed)


def edited(content: bytes, name: str) -> bytes:
    """A key removed, or its value another, in most cases with a digest that fits."""
    if name == "history.jsonl":
        rows = [json.loads(line) for line in content.decode().splitlines()]
    else:
        rows = [yaml.safe_load(content)]
    row = RANDOM.choice(rows)
    way = RANDOM.choice(list(paths(row)))
    inner = row
    for key in way[:-1]:
        inner = inner[key]
    if RANDOM.random() < 0.4:
        del inner[way[-1]]
    else:
        inner[way[-1]] = RANDOM.choice(STRANGE)
    if RANDOM.random() < 0.8 and "digest" in row and way != ("digest",):
        rows = [sealed(row)]
    if name == "run.yaml":
        return yaml.safe_dump(rows[0], sort_keys=False).encode()
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def changed(content: bytes, name: str, kind: int) -> bytes:
    if kind == 0:
        return content[: RANDOM.randrange(len(content))]
    return turned(content) if kind == 1 else edited(content, name)


def fits(content: bytes) -> bool:
    """Whether a digest was made anew, or there is none: then a change may be taken for what it says."""
    try:
        tree = yaml.safe_load(content)
        return not isinstance(tree, dict) or tree.get("digest") in (None, sealed(tree)["digest"])
    except Exception:  # whatever it is, no digest fits it
        return False


@pytest.mark.parametrize("name", FILES)
def test_a_changed_record_gives_the_right_values_or_one_line(
    name: str, room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh()
    right = {command: answer(capsys, command)[:2] for command in COMMANDS}
    assert {status for status, _ in right.values()} == {0}
    seen = set()
    for case in range(CASES):
        content = (fresh() / name).read_bytes()
        new = changed(content, name, case % 4)
        (Path("changed") / name).write_bytes(new)
        command = ORDER[case // 4 % len(ORDER)]
        status, out, err = answer(capsys, command)
        seen.add(status)
        what = f"{name}, case {case}, {command}: {status} {err[-600:]}"
        if status == 0:
            forged = name in ("history.jsonl", "metrics.json") or command == "repeat" or fits(new)
            assert forged or (status, out) == right[command], what
            assert name != "history.jsonl" or out == right[command][1], what
        else:
            last = err.strip().splitlines()[-1]
            assert status == 2, what
            assert last.startswith("margin: "), what
            assert len(err.strip().splitlines()) == 1 or command == "repeat", what
            assert name in last or command == "repeat" or fits(new), what
        assert "Traceback" not in err, what
    assert seen == {0, 2}


BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
MADE = {
    "an alias bomb": ("run.yaml", lambda text: f"a0: &a0 x\n{BOMB}{text}", "line 1 holds an alias"),
    "nesting": ("run.yaml", lambda text: "recipe: " + "[" * 5000, "nested deeper than 32 levels"),
    "nested marks": ("checkpoints.json", lambda text: "[" * 100_000, "is damaged"),
    "a list of marks": ("checkpoints.json", lambda text: "[1, 2]", "it must be a mapping: got [1, 2]"),
    "another file": (
        "checkpoints.json",
        lambda text: '{"last": "../../whole/step-00000002"}',
        "last must be a whole number from 0: got '../../whole/step-00000002'",
    ),
    "a missing file": (
        "checkpoints.json",
        lambda text: '{"last": 99}',
        "last names step-00000099.safetensors, which is not there",
    ),
    "a row without step": ("history.jsonl", lambda text: '{"val_loss": 1.0}\n', "line 1.step is missing"),
    "a row that is a list": ("history.jsonl", lambda text: "[1]\n", "line 1 must be a mapping: got [1]"),
    "rows twice": ("history.jsonl", lambda text: text + text, "must be after"),
    "metrics in a list": ("metrics.json", lambda text: "[1]", "it must be a mapping: got [1]"),
    "a command": (
        "run.yaml",
        lambda text: text + "evil: !!python/object/apply:os.system ['touch evil']\n",
        "an alias, an anchor or a tag",
    ),
}


@pytest.mark.parametrize("what", MADE)
def test_a_made_up_file_is_named(what: str, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, change, message = MADE[what]
    path = fresh() / name
    path.write_text(change(path.read_text()))
    status, _, err = answer(capsys, "resume")
    assert (status, len(err.strip().splitlines())) == (2, 1)
    assert f"changed/{name}" in err
    assert message in err
    assert "restore it" in err
    assert not Path("evil").exists()


LACKING = {
    "arguments": "",
    "arguments.data": "",
    "arguments.training": "",
    "preprocess": "",
    "data": "",
    "data.encoding": "",
    "data.encoding.columns": "",
    "data.encoding.columns.0.name": "data.encoding.columns[0].name",
    "recipe.options": "",
}
OTHER = {
    "arguments.training.seed": (None, "seed must be a whole number: got null"),
    "arguments.training.precision": ("float8", "precision must be one of float32, float64, bfloat16"),
    "arguments.training.lrr": (1, "there is no option 'lrr'"),
    "arguments.training.epochs": ("many", "epochs must be a whole number: got 'many'"),
    "arguments.rule": ("no/such", "names none that is here"),
    "arguments": ([1], "arguments must be a mapping: got [1]"),
    "preprocess.shape": ([10**11], "must be scaled by [100000000000]: got"),
    "preprocess.kind": ("pickle", "preprocess.kind must be"),
    "data.encoding.dtype": ("load", "data.encoding.dtype must be one of"),
    "data.encoding.classes": (["a"], "data.encoding.classes must be the model's 2: got 1"),
    "data.sizes": ([3], "data.sizes must be names and values"),
    "recipe": ([], "recipe must be a recipe"),
    "recipe.spec.in_features": (10**11, "data.encoding.shape must be the model's 100000000000"),
    "recipe.spec.num_classes": (
        {"model": "feedforward/mlp", "spec": {}, "options": {}},
        "num_classes of the model feedforward/mlp must be a whole number",
    ),
}


def rewritten(path: Path, way: str, value: Any = None, *, gone: bool = False) -> None:
    tree = yaml.safe_load(path.read_text())
    inner: Any = tree
    *front, last = (int(key) if key.isdigit() else key for key in way.split("."))
    for key in front:
        inner = inner[key]
    if gone:
        del inner[last]
    else:
        inner[last] = value
    path.write_text(yaml.safe_dump(sealed(tree), sort_keys=False))


@pytest.mark.parametrize("way", LACKING)
def test_a_key_that_is_missing_is_named(way: str, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewritten(fresh() / "run.yaml", way, gone=True)
    for command in COMMANDS:
        status, _, err = answer(capsys, command)
        assert status == 2
        key = LACKING[way] or way
        says = (
            "of which options is"
            if way == "recipe.options"
            else f"{key} is missing: restore it or train anew"
        )
        assert f"changed/run.yaml: {key}" in err or way == "recipe.options"
        assert says in err


@pytest.mark.parametrize("way", OTHER)
def test_a_value_that_is_another_is_named(way: str, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value, message = OTHER[way]
    rewritten(fresh() / "run.yaml", way, value)
    status, _, err = answer(capsys, "predict")
    assert (status, len(err.strip().splitlines())) == (2, 1)
    assert "changed/run.yaml: " in err
    assert message in err
    assert err.strip().endswith("restore it or train anew")


def test_options_of_an_immense_size_are_refused(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fresh() / "run.yaml"
    rewritten(path, "recipe.options.hidden", [10**11])
    rewritten(path, "arguments.options.hidden", [10**11])
    for command in ("predict", "resume", "export"):
        status, _, err = answer(capsys, command)
        assert status == 2
        assert re.search(r"recipe builds no model: the model must fit into memory: it asks for .* TiB", err)


def test_what_a_user_asks_for_is_refused_in_one_line(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in {
        ("--model.hidden", "99999999999"): "the model must fit into memory: it asks for 1.",
        ("--threads", "100000"): "threads must be at most",
        ("--workers", "100000"): "workers must be at most",
        ("--processes", "100000"): "processes must be at most",
    }.items():
        assert (
            main(["train", "mlp", "d.csv", "--target", "target", "--task", "classes", *words, "--out", "n"])
            == 2
        )
        assert message in capsys.readouterr().err
        assert not Path("n").exists()


def test_a_change_that_is_meant_is_taken_without_the_digest(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fresh() / "run.yaml"
    path.write_text(path.read_text().replace("name: d.csv", "name: e.csv"))
    status, _, err = answer(capsys, "predict")
    assert status == 2
    assert "changed/run.yaml: digest is another: the file has changed since it was written" in err
    path.write_text(path.read_text().partition("digest:")[0])
    assert answer(capsys, "predict")[0] == 0
