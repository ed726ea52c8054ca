"""Help: short by default, whole on demand, one spelling of an option everywhere."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

import margin
from margin.cli import main
from margin.cli.help import clipped
from margin.core.options import COMMON, GROUPS, Training

SOURCE = Path(margin.__file__).parent
MOST = 60
"""Lines of a help that fits on a screen."""


def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


def listed(text: str) -> list[str]:
    """The options that a help lists, in order."""
    return re.findall(r"^  (--[\w.-]+)", text, re.MULTILINE)


@pytest.mark.parametrize(
    "names",
    [
        ("mlp", "iris"),
        ("lenet5", "digits"),
        ("lstm", "parity"),
        ("gcn", "cora"),
        ("image_diffusion", "digits"),
    ],
    ids=" ".join,
)
def test_a_models_options_come_first_on_one_screen(
    names: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of(capsys, monkeypatch, "train", *names, "--help")
    assert len(text.splitlines()) <= MOST
    assert max(map(len, text.splitlines())) <= 80
    assert titles_of(text) == ["Model", "Data", "Run", "Training"]
    options = listed(text)
    own = [option for option in options if option.startswith("--model.")]
    assert own
    assert options[: len(own)] == own
    assert options[-len(COMMON) :] == [f"--{name.replace('_', '-')}" for name in COMMON]
    assert all(title in " ".join(text.split()) for title in GROUPS)  # what --help all has more


def titles_of(text: str) -> list[str]:
    """The groups of a help, in order."""
    return re.findall(r"^(\w[\w ]+):$", text, re.MULTILINE)


def test_ten_options_of_all_trainings_are_usual() -> None:
    assert len(COMMON) == len(set(COMMON)) == 10


def test_a_module_of_ones_own_has_the_same_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net_of_mine.py").write_text(
        "from torch import nn\n\n\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self, in_features: int, num_classes: int, *, width: int = 8) -> None:\n"
        "        super().__init__(nn.Linear(in_features, width), nn.ReLU(), nn.Linear(width, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = help_of(capsys, monkeypatch, "train", "net_of_mine:Net", "iris", "--help")
    assert titles_of(text) == ["Model", "Data", "Run", "Training"]
    assert listed(text)[:3] == ["--model.width", "--task", "--objective"]
    whole = help_of(capsys, monkeypatch, "train", "net_of_mine:Net", "iris", "--help", "all")
    assert [title.lower() for title in titles_of(whole)] == ["model", "data", "run", *GROUPS]


def test_the_whole_help_lists_every_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (("--help", "all"), ("--lr", "0.1", "-h", "all")):
        text = help_of(capsys, monkeypatch, "train", "mlp", "iris", *words)
        options = listed(text)
        assert len(options) == len(set(options))
        assert [title.lower() for title in titles_of(text)] == ["model", "data", "run", *GROUPS]
        assert {f"--{field.name.replace('_', '-')}" for field in fields(Training)} < set(options)
        assert "are left as they are (none); losses, metrics" in " ".join(text.split())  # in full


def test_an_option_has_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(field.name for field in fields(Training))


def test_the_options_of_a_rule_are_listed_after_the_models(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of(capsys, monkeypatch, "train", "mlp", "digits", "--rule", "sam", "--help")
    assert (
        text.index("--model.hidden")
        < text.index("Rule sam:")
        < text.index("--rule.rho")
        < text.index("Data:")
    )


def test_an_option_of_one_letter_has_one_hyphen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\n  -n N  " in help_of(capsys, monkeypatch, "sample", "--help")


def test_a_sentence_is_cut_where_a_clause_ends() -> None:
    assert clipped("Batch size: examples a step", 30) == "Batch size: examples a step"
    assert clipped("Batch size: examples a step", 26) == "Batch size"
    assert clipped("Early stopping; by loss; 0 for never", 24) == "Early stopping; by loss"
    assert clipped("Least width, or height", 12) == "Least width"
    assert clipped("Hops (one, two), as 1, 2, ... of a walk", 20) == "Hops (one, two)"
    assert clipped("no end of a clause", 5) == "no end of a clause"


def test_options_are_printed_with_hyphens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (("train", "mlp", "iris"), ("audit",), ("sample",), ("export",), ("data", "get")):
        text = help_of(capsys, monkeypatch, *words, "--help", "all")
        assert not [option for option in listed(text) if "_" in option]
    odd = [
        (path.name, node.value)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"(?<![\w-])--[a-z][a-z.-]*[a-z]_", node.value)
    ]
    assert not odd


@pytest.mark.parametrize("flag", ["--model.input-dropout", "--model.input_dropout"])
def test_either_spelling_is_read(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "mlp", "iris", flag, "0.5", "--max-steps", "0", "--out", "r"]) == 0
    assert margin.Run("r").record["arguments"]["options"]["input_dropout"] == 0.5
