"""Records that were cut, turned, robbed of keys or made up end in the right values, or in one line.

Runs of a table, a graph, sequences, images and a text are used through the command line in this process.
What is changed in one may go unnoticed only where it changes nothing: then the status is 0 and the values are
those of the run as it was. All else is status 2 and one line that names the file. Where the digest is made
anew, as one who forges a record would, a changed value may be taken for what it says, and no more.
"""

import json
import random
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from PIL import Image
from safetensors.torch import load

from margin.cli import main
from margin.engine.checkpoints import digest_of
from margin.engine.schema import LOADER, sealed

FILES = ("run.yaml", "checkpoints.json", "history.jsonl", "metrics.json", "WEIGHTS")
"""The records of a run; WEIGHTS is one of its checkpoints."""

CASES = {
    **dict(zip(FILES, (88, 40, 24, 12, 44), strict=True)),
    "audit/findings.json": 36,
}
"""Damages of each record of a table's run; of another run, where the same code reads them, fewer."""

FEWER = dict(zip(FILES, (44, 16, 6, 4, 12), strict=True))

COMMANDS = {
    "predict": ("predict", "RUN", "DATA"),
    "resume": ("train", "--resume", "RUN"),
    "go on": ("train", "--resume", "RUN", "--max_steps", "6"),
    "repeat": ("train", "--config", "RUN", "--epochs", "0", "--out", "again"),
    "export": ("export", "RUN", "--out", "again.safetensors"),
    "compare": ("compare", "RUN", "whole-KIND"),
    "audit": ("audit", "RUN", "--claims", "risk.loss", "--out", "again"),
    "sample": ("sample", "RUN", "-n", "2"),
    "compare audits": ("compare", "RUN/audit", "whole-KIND/audit"),
    "audit again": ("audit", "RUN", "--claims", "risk.loss"),
}
TRAINS = ("repeat", "go on", "audit", "audit again")
"""Commands that say how far they are before they fail."""

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


class Kind(NamedTuple):
    """A run by what is typed: the model and its data with options, the data for predictions."""

    words: str
    data: str
    sampled: bool = False


KINDS = {
    "table": Kind("mlp d.csv --target target --task classes --model.hidden 3", "d.csv"),
    "graph": Kind("gcn graph:e --model.hidden 3", "graph:e"),
    "sequence": Kind("gru sequences:q.npz --model.hidden 3", "sequences:q.npz"),
    "image": Kind("conv_vae i --model.code 2", "i", sampled=True),
    "text": Kind("gru_language text:t.txt --model.hidden 3", "text:t.txt", sampled=True),
}


def write_data() -> None:
    """The data of every run, small."""
    rows = [f"{i % 7},{'uvw'[i % 3]},{'ab'[i % 2]}" for i in range(60)]
    Path("d.csv").write_text("\n".join(["x,c,target", *rows]))
    Path("t.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 60)
    nodes, edges = ["id,a,target"], ["source,target"]
    for k in range(24):
        nodes.append(f"n{k},{k % 5},{['no', 'yes'][k % 2]}")
        edges.append(f"n{k},n{(k + 1) % 24}")
    Path("e").mkdir()
    Path("e/nodes.csv").write_text("\n".join(nodes))
    Path("e/edges.csv").write_text("\n".join(edges))
    rng = np.random.default_rng(0)
    np.savez("q.npz", x=rng.normal(size=(24, 3, 1)), y=np.arange(24) % 2, lengths=np.arange(24) % 3 + 1)
    for k in range(12):
        path = Path("i") / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(path)


def train(kind: str) -> None:
    words = ["train", *KINDS[kind].words.split(), "--max_steps", "4", "--out", f"whole-{kind}"]
    assert main(words) == 0
    assert main(["audit", f"whole-{kind}", "--claims", "risk.loss"]) == 0


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the data of every run, and a finished run of a table."""
    place = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        write_data()
        train("table")
        yield place


def answer(capsys: pytest.CaptureFixture[str], name: str, kind: str = "table") -> tuple[int, str, str]:
    """Status, standard output and standard error of a command on the changed run."""
    for left in (Path("again.safetensors"), Path("again")):
        if left.exists():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    capsys.readouterr()
    named = {"RUN": "changed", "KIND": kind, "DATA": KINDS[kind].data}
    words = [re.sub("RUN|KIND|DATA", lambda found: named[found.group()], word) for word in COMMANDS[name]]
    status = main(words)
    told = capsys.readouterr()
    return status, told.out, told.err


def fresh(kind: str = "table") -> Path:
    shutil.rmtree("changed", ignore_errors=True)
    return Path(shutil.copytree(f"whole-{kind}", "changed"))


RIGHT: dict[tuple[str, str], tuple[int, str]] = {}
"""What a command says of a run as it was."""


def unchanged(capsys: pytest.CaptureFixture[str], name: str, kind: str) -> tuple[int, str]:
    if (name, kind) not in RIGHT:
        fresh(kind)
        RIGHT[name, kind] = answer(capsys, name, kind)[:2]
    return RIGHT[name, kind]


def paths(tree: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*here, key)
        yield from paths(value, (*here, key))


def turned(content: bytes, chance: random.Random) -> bytes:
    """Some bits turned."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 3))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def altered(row: Any, chance: random.Random) -> Any:
    """A key removed, or its value another; the last key of a tree is as likely as all that is in it."""
    way = chance.choice(list(paths(row)))
    inner = row
    for key in way[:-1]:
        inner = inner[key]
    if chance.random() < 0.4:
        del inner[way[-1]]
    else:
        inner[way[-1]] = chance.choice(STRANGE)
    return row


def edited(content: bytes, name: str, chance: random.Random) -> bytes:
    """A key removed, or its value another, in most cases with a digest that fits."""
    if name == "WEIGHTS":
        return edited_weights(content, chance)
    if name == "history.jsonl":
        rows = [json.loads(line) for line in content.decode().splitlines()]
    else:
        rows = [yaml.load(content, LOADER)]
    digest = [row.get("digest") for row in rows]
    place = chance.randrange(len(rows))
    row = rows[place] = altered(rows[place], chance)
    if chance.random() < 0.8 and "digest" in row and row["digest"] == digest[place]:
        rows[place] = sealed(row)
    if name == "run.yaml":
        return yaml.safe_dump(rows[0], sort_keys=False).encode()
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def edited_weights(content: bytes, chance: random.Random) -> bytes:
    """A checkpoint of which the header is another: a tensor's place or shape, or the state around them."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    kept = header["__metadata__"]
    if chance.random() < 0.6:
        kept["state"] = json.dumps(altered(json.loads(kept["state"]), chance))
        if chance.random() < 0.8:
            tensors = {f"/{name}": one for name, one in load(content).items()}
            kept["digest"] = digest_of({name[1:]: one for name, one in tensors.items()}, kept["state"])
    else:
        header = altered(header, chance)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def changed(content: bytes, name: str, kind: int, chance: random.Random) -> bytes:
    new = content
    while new == content:
        if kind == 0:
            new = content[: chance.randrange(len(content))]
        else:
            new = turned(content, chance) if kind == 1 else edited(content, name, chance)
    return new


def fits(content: bytes) -> bool:
    """Whether a digest was made anew, or there is none: then a change may be taken for what it says."""
    try:
        tree = yaml.load(content, LOADER)
        return not isinstance(tree, dict) or tree.get("digest") in (None, sealed(tree)["digest"])
    except Exception:  # whatever it is, no digest fits it
        return False


def fits_weights(content: bytes) -> bool:
    """The same of a checkpoint."""
    try:
        size = int.from_bytes(content[:8], "little")
        kept = json.loads(content[8 : 8 + size])["__metadata__"]
        return kept.get("digest") in (None, digest_of(load(content), kept["state"]))
    except Exception:  # as above
        return False


ALL = [(kind, name) for kind in KINDS for name in (CASES if kind == "table" else FEWER)]


def cases_of(kind: str, name: str) -> int:
    return (CASES if kind == "table" else FEWER)[name]


def test_there_are_cases_enough() -> None:
    assert sum(cases_of(*each) for each in ALL) >= 536, "2,000 with those of the readers"


def commands_of(kind: str, name: str) -> list[str]:
    """The commands that a damage is tried on, those oftenest that read the file."""
    if name == "audit/findings.json":
        return ["compare audits", "audit again", "audit again"]
    if name in ("history.jsonl", "metrics.json"):
        return ["resume", "go on", "predict", "resume", "audit"]
    drawn = ["sample"] * KINDS[kind].sampled
    return ["predict", *drawn, "resume", "compare", "predict", "audit", *drawn, "go on", "export", "repeat"]


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_a_changed_record_gives_the_right_values_or_one_line(
    kind: str, name: str, room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not Path(f"whole-{kind}").exists():
        train(kind)
    used = commands_of(kind, name)
    right = {command: unchanged(capsys, command, kind) for command in dict.fromkeys(used)}
    assert {status for status, _ in right.values()} == {0}
    chance, seen = random.Random(f"{kind} {name}"), list[int]()
    for case in range(cases_of(kind, name)):
        weights = sorted(path.name for path in fresh(kind).glob("step-*.safetensors"))
        file = chance.choice(weights) if name == "WEIGHTS" else name
        content = (Path("changed") / file).read_bytes()
        new = changed(content, name, case % 4, chance)
        (Path("changed") / file).write_bytes(new)
        command = used[case % len(used)]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                status, out, err = answer(capsys, command, kind)
            except BaseException as error:
                raise AssertionError(f"{kind}, {file}, case {case}, {command}") from error
        seen.append(status)
        what = f"{kind}, {file}, case {case}, {command}: {status} {err[-600:]}"
        assert not warned, f"{what}: {warned[0].message}"
        assert "Traceback" not in err, what
        fit = fits_weights(new) if name == "WEIGHTS" else fits(new)
        if status == 0:
            forged = name in ("history.jsonl", "metrics.json") or command == "repeat" or fit
            assert forged or (status, out) == right[command], what
        else:
            told = err.strip().splitlines()
            assert status == 2, what
            assert told[-1].startswith("margin: "), what
            assert len(told) == 1 or command in TRAINS, what
            assert sum(line.startswith("margin: ") for line in told) == 1, what
            assert file in told[-1] or command == "repeat" or fit, what
    assert 2 in seen


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
    tree = yaml.load(path.read_text(), LOADER)
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
    for command in set(COMMANDS) - {"compare audits", "sample"}:  # neither reads the record of such a run
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
