"""What a terminal shows: tables of its width, in color, whole words; a pipe gets plain rows, one a line."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from margin.cli import main
from margin.cli.output import line
from margin.cli.tables import columns, fitted
from margin.core import catalog

COLOR = re.compile(r"\x1b\[[\d;]*m")


def in_terminal(words: list[str], width: int, directory: Path, **more: str) -> str:
    """What ``margin`` writes to a terminal of that width, its progress and its result."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    program = subprocess.Popen(
        [sys.executable, "-m", "margin", *words],
        cwd=directory,
        env={**env, "TERM": "xterm-256color", **more},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    told = b""
    try:
        while part := os.read(master, 65536):
            told += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(master)
    assert program.wait(60) == 0, told.decode()
    return told.decode().replace("\r\n", "\n")


def lines_of(text: str) -> list[str]:
    """The lines as they stood on the terminal: without colors, each state of one that was written over."""
    return re.split(r"\n|\r\x1b\[2K", COLOR.sub("", text))


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", ["models", "list", "data"])
def test_a_table_takes_the_terminals_width(command: str, width: int, tmp_path: Path) -> None:
    told = in_terminal([command], width, tmp_path)
    lines = lines_of(told)
    assert max(map(len, lines)) <= width
    table = {"models": catalog.models(), "list": catalog.parts(), "data": catalog.sources()}[command]
    rows = {name: row for name, row in table.items() if ":" not in name}  # a body stands for its heads
    words = set(" ".join(lines).split())
    assert {*rows} <= words  # no name is cut
    assert all(set(row.summary.split()) <= words for row in rows.values())
    assert COLOR.search(told)


def test_colors_are_the_users_choice(tmp_path: Path) -> None:
    for choice in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert not COLOR.search(in_terminal(["data"], 80, tmp_path, **choice))


def test_a_pipe_gets_a_row_a_line_without_colors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["data"]) == 0
    told = capsys.readouterr().out
    assert not COLOR.search(told)
    assert [row.split()[0] for row in told.splitlines()] == [
        name.removeprefix("data/") for name in catalog.sources()
    ]


# six seconds: two trainings, an audit and a comparison as one types them
def test_runs_are_compared_and_trained_in_eighty_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "logistic_regression", "iris", "--epochs", "2", "--out", "first", "--lr", "0.1"]
    assert max(map(len, lines_of(in_terminal(words, 80, tmp_path)))) <= 80
    assert main([*words[:-3], str(tmp_path / "second"), *words[-2:]]) == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    capsys.readouterr()
    assert main(["compare", "first", "second"]) == 0
    narrow, wide = in_terminal(["compare", "first", "second"], 60, tmp_path), capsys.readouterr().out
    for width, told in ((60, narrow), (80, wide)):
        lines = lines_of(told)
        assert max(map(len, lines)) <= width
        assert any(re.search(r"accuracy +\.?\d\S* \+- \S+ +[+-]\S+ \[\S+, \S+\]$", row) for row in lines)


ROWS = [
    ("perceptron", "a halfspace learned by its mistakes until none is left"),
    ("svm", "one of largest margin"),
]
HEADED = [("run", "metric", "mean"), ("a", "accuracy", ".9 +- .01"), ("a", "loss", ".3 +- .02")]
WHOLE = """\
perceptron  a halfspace learned by its mistakes until none is left
svm         one of largest margin"""
FOLDED = """\
perceptron  a halfspace learned by its mistakes
            until none is left
svm         one of largest margin"""
STACKED = """\
perceptron
    a halfspace learned by its mistakes until none
    is left
svm
    one of largest margin"""


@pytest.mark.parametrize(("width", "expected"), [(66, WHOLE), (52, FOLDED), (51, STACKED)])
def test_the_last_cell_is_folded_below_itself_or_the_others(
    width: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert columns(ROWS) == expected


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (24, "run  metric    mean\na    accuracy  .9 +- .01\na    loss      .3 +- .02"),
        (21, "  metric    mean\na\n  accuracy  .9 +- .01\n  loss      .3 +- .02"),
        (20, "a\n  metric: accuracy\n  mean: .9 +- .01\n  metric: loss\n  mean: .3 +- .02"),
    ],
)
def test_a_table_with_a_header_keeps_its_cells_whole(
    width: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert columns(HEADED, lead=1) == expected


def test_what_is_folded_stands_below_the_second_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert fitted("  --out DIR  a directory that must not exist") == (
        "  --out DIR  a directory that\n             must not exist"
    )
    assert fitted("prose of more than thirty columns") == "prose of more than thirty\ncolumns"


def test_a_row_of_the_history_loses_its_speed_before_its_losses() -> None:
    row = {"step": 5, "epoch": 1.0, "train_loss": 0.25, "val_loss": 0.5, "examples_per_second": 1234.0}
    whole = "step  5/10  epoch 1  train_loss 0.25  val_loss 0.5  1,234 examples/s"
    assert line(row, 10) == line(row, 10, len(whole)) == whole
    assert line(row, 10, len(whole) - 1) == whole.removesuffix("  1,234 examples/s")
    assert line(row, 10, 36) == "step  5/10  epoch 1  train_loss 0.25"
    assert line(row, 10, 12) == line(row, 10, 3) == "step  5/10"  # the step is never left out


@pytest.mark.parametrize("words", [[], ["--version"], ["models", "--help"]], ids=" ".join)
def test_help_that_is_cut_short_is_no_error(words: list[str], tmp_path: Path) -> None:
    command = f"{sys.executable} -m margin {' '.join(words)} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
