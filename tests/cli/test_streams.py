"""Standard streams that are closed or full, and terminals that are narrow."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from margin.cli import main, usage
from margin.cli.output import bar
from margin.engine.runs import Run

MARGIN = f"{sys.executable} -m margin"
TRAIN = "train logistic_regression iris --epochs 3 --out r"


def shell(command: str, directory: Path) -> subprocess.CompletedProcess:
    return subprocess.run(["sh", "-c", command], cwd=directory, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("behind", ["2>&-", "2>/dev/full"])
def test_a_training_goes_on_without_its_progress(tmp_path: Path, behind: str) -> None:
    done = shell(f"{MARGIN} {TRAIN} {behind}", tmp_path)
    assert done.returncode == 0
    assert done.stdout.endswith("run in r (max_steps)\n")
    assert "steps, " not in done.stdout  # progress is no result
    assert Run(tmp_path / "r").history[-1]["epoch"] == 3


@pytest.mark.parametrize(
    ("behind", "rule"), [(">&-", "standard output must be open"), (">/dev/full", "No space left on device")]
)
def test_a_result_that_cannot_be_told_is_one_line(tmp_path: Path, behind: str, rule: str) -> None:
    done = shell(f"{MARGIN} models {behind}", tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert rule in line


def test_nothing_is_trained_whose_result_could_not_be_told(tmp_path: Path) -> None:
    assert shell(f"{MARGIN} {TRAIN} >&-", tmp_path).returncode == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["models"],
        ["list", "--kind", "rule"],
        ["data"],
        ["train", "--help"],
        ["train", "mlp", "iris", "--help"],
        ["data", "show", "--help"],
        ["audit", "--help"],
    ],
    ids=" ".join,
)
def test_forty_columns_are_enough(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with suppress(SystemExit):  # the parser's, after its help
        main(words)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 40


def test_a_bar_leaves_room_for_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert len(bar(6000, 6000)) < 40
    monkeypatch.setenv("COLUMNS", "100")
    assert bar(5, 10) == f"[{'#' * 15}{'.' * 15}] step 5/10"


def test_wide_enough_nothing_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "  train     train a model on data; leaves a run\n" in usage()


def test_help_of_no_model_is_a_mistake(capsys: pytest.CaptureFixture) -> None:
    assert main(["train", "nosuch", "--help"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "unknown model 'nosuch'" in told.err
