"""Options of the command line: an unknown one is refused first, by its name, with the nearest that exist."""

import gzip
import json
from pathlib import Path

import pytest

from margin.cli import main
from margin.cli.parsing import _read


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command that ends with status 2."""
    capsys.readouterr()
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    "words",
    [("d.csv", "--data.missing", "last"), ("--data.missing", "last", "d.csv"), ("--data.missing=last",)],
)
def test_an_option_of_reading_is_no_option_of_predict(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its value is not taken for the data set."""
    line = refusal(capsys, "predict", "r", *words)
    assert line == "margin: unknown option --data.missing; nearest: none; see margin predict --help"


@pytest.mark.parametrize("group", ["model", "step", "data"])
def test_a_group_of_options_is_no_option(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((f"--{group}", "foo"), (f"--{group}=foo",)):
        line = refusal(capsys, "train", "mlp", "iris", *words)
        assert line.startswith(f"margin: unknown option --{group}; nearest: --")
        near = line.partition("nearest: ")[2].partition(";")[0].split(", ")
        assert not {"--model", "--step", "--data"} & set(near)


def test_a_rule_is_an_option_beside_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("train", "mlp", "iris", "--rule", "pgd")
    assert "unknown option --rul; nearest: --rule" in refusal(capsys, *words, "--rul", "other")
    assert "unknown option --rule.epz; nearest: --rule.eps" in refusal(capsys, *words, "--rule.epz", "1")


def test_an_entry_of_a_dictionary_belongs_to_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "train",
        "mlp",
        "iris",
        "--max-steps",
        "1",
        "--schedule",
        "step",
        "--schedule-options.every",
        "1",
    )
    assert main([*words, "--out", "r", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == "r"


def test_a_file_that_lacks_its_prefix_is_told_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Read as a table, it has no target; read as a series it needs none."""
    (here / "s.csv").write_text("date,load\n" + "".join(f"2020-01-{day:02},{day}\n" for day in range(1, 21)))
    line = refusal(capsys, "train", "gru:series", "s.csv")
    assert "gru:series needs a series to forecast" in line
    assert line.endswith(": an example of s.csv has 4 features; read a file of them as series:s.csv")
    assert "name the target column: --target NAME; it has: date, load" in refusal(
        capsys, "train", "mlp", "s.csv"
    )
    assert "series:" not in refusal(capsys, "train", "mlp", "s.csv")


PATHS = (
    ("train", "mlp", "iris", "--epochs", "0", "--out", "PATH"),
    ("train", "mlp", "PATH.csv"),
    ("train", "--config", "PATH"),
    ("train", "--resume", "PATH"),
    ("train", "mlp", "iris", "--init-from", "PATH", "--out", "r"),
    ("train", "mlp", "iris", "--curriculum", "PATH", "--out", "r"),
    ("predict", "PATH", "iris"),
    ("export", "PATH"),
    ("sample", "PATH"),
    ("audit", "PATH"),
    ("compare", "PATH", "other"),
    ("data", "show", "PATH"),
    ("data", "show", "digits", "--augment", "flip", "--out", "PATH.png"),
    ("demo", "--out", "PATH"),
)


@pytest.mark.parametrize("words", PATHS, ids=lambda words: " ".join(words))
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("a\0b", r"must hold no null byte, which no path has: got 'a\x00b"),
        ("x" * 300, "each name in it 255: got "),
        ("a/" * 3000, "a path must be at most 4,095 bytes"),
    ],
    ids=["null", "name", "path"],
)
def test_a_path_that_no_file_has_is_one_short_line(
    words: tuple[str, ...], path: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capsys, *(word.replace("PATH", path.rstrip("/")) for word in words))
    assert says in line
    assert len(line) < 200
    assert [*here.iterdir()] == []


@pytest.mark.parametrize("command", [(), ("models",), ("train",), ("train", "mlp", "iris"), ("sample",)])
def test_help_that_is_misspelled_says_how_it_is_written(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capsys, *command, "--help=all")
    assert line == "margin: --help takes its word after a space, as --help all: got --help=all"
    for word in ("-help", "-epochs", "-lr=3"):
        line = refusal(capsys, *command, word)
        assert line.startswith("margin: an option of several letters has two hyphens")
        assert f"got {word}; write -{word}" in line


@pytest.mark.parametrize("ending", ["txt", "txt.gz"])
def test_a_text_is_to_be_read_as_text_first(
    ending: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lines are no table, and as a rule no sequences of numbers; a model of both says both."""
    text = b"la la la, a song\nand its refrain, la\n" * 90
    (here / f"song.{ending}").write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    line = refusal(capsys, "train", "lstm", f"song.{ending}")
    assert line.endswith(
        f"sequence/lstm:tokens needs tokens: read a file of them as text:song.{ending}; "
        f"sequence/lstm needs sequences: read a file of them as sequences:song.{ending}"
    )
    assert "text:" not in refusal(capsys, "train", "mlp", f"song.{ending}")
    assert main(["train", "lstm", f"text:song.{ending}", "--max-steps", "1", "--out", "song"]) == 0


def test_one_number_may_stand_where_several_may() -> None:
    assert _read("64", int | tuple[int, int] | None) == "64"
    assert _read("64,32", int | tuple[int, int] | None) == "[64,32]"
    assert _read("64", tuple[int, ...]) == "[64]"
    assert _read("null", int | tuple[int, int] | None) == "null"
