"""``margin exercise``: the list, a statement, a stub, the verdict on a file, and what is refused."""

import json
from pathlib import Path

import pytest

from margin.auditing.book.chapters import exercises
from margin.cli import main

NAME = "gcn_norm"
TASK = exercises()[NAME][0]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_list_has_one_of_each_chapter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # wide enough that no row is folded
    assert main(["exercise", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len({row["chapter"] for row in rows}) == len(rows) == 15
    assert main(["exercise"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [row["name"] for row in rows]
    assert all(
        row["title"] in line and f"{row['minutes']} min" in line
        for row, line in zip(rows, lines, strict=True)
    )


@pytest.mark.parametrize("name", exercises())
def test_a_statement_fits_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["exercise", name]) == 0
    text = capsys.readouterr().out
    task, chapter = exercises()[name]
    assert max(map(len, text.splitlines())) <= 80
    assert task.stub in text
    for part in (task.title, chapter.title, task.claim, f"{task.minutes} minutes"):
        assert part in " ".join(text.split())


def test_from_the_stub_to_the_verdict(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", NAME, "--out", "mine.py"]) == 0
    assert (here / "mine.py").read_text() == TASK.stub
    assert main(["exercise", NAME, "mine.py"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"margin: {NAME} raised NotImplementedError"
    assert 'mine.py", line' in said[1]
    assert main(["exercise", NAME, "--out", "mine.py"]) == 2  # an answer is not lost
    assert "is there already" in capsys.readouterr().err
    (here / "mine.py").write_text(TASK.answer)
    assert main(["exercise", NAME, "mine.py"]) == 0
    text = capsys.readouterr().out
    assert text.count(" holds") == 1 + 6
    assert "premise, proved: the graph is undirected, without loops" in text


def test_a_wrong_answer_is_status_1_with_where_and_which(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    title, code = next(iter(TASK.wrong.items()))
    (here / "graphs_of_mine.py").write_text(f"print('loaded')\n{code}")
    for place in ("graphs_of_mine.py", f"graphs_of_mine.py:{NAME}", f"graphs_of_mine:{NAME}"):
        assert main(["exercise", NAME, place]) == 1
        text = " ".join(capsys.readouterr().out.split())
        assert "star of 4: got .5 at [1, 0], right is .3536, for A = [[0, 1, 1, 1], [1, 0, 0, 0]," in text
        assert f"Often written, and wrong: {title}." in text
    assert main(["exercise", NAME, "graphs_of_mine.py", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)  # though the file prints
    assert (document["exercise"], document["holds"]) == (NAME, False)
    assert "violated" in json.dumps(document["finding"])


FILES = {
    "spelled.py": (
        "def gcn_nrom(A):\n    return A\n",
        "must define the function gcn_norm: it defines gcn_nrom",
    ),
    "empty.py": ("", "must define the function gcn_norm: it defines none"),
    "broken.py": ("def gcn_norm(A:\n", "broken.py raised SyntaxError"),
    "needy.py": ("import no_such_package\n", "it needs the module 'no_such_package'"),
    "ending.py": ("raise SystemExit(3)\n", "ending.py ended the program by sys.exit(3)"),
    "number.py": ("gcn_norm = 3\n", "must be a function: it is of type int"),
}


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_wrong_is_told(file: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, said = FILES[file]
    (here / file).write_text(text)
    assert main(["exercise", NAME, file]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gcn_nrom",), "no exercise 'gcn_nrom'; nearest: gcn_norm"),
        ((NAME, "none.py"), "no such file: none.py"),
        ((NAME, "answer"), "an answer is a file, gcn_norm.py, or package.module:function: got 'answer'"),
        ((NAME, "no_such_module:f"), "no module 'no_such_module'"),
        ((NAME, "--out", "stub.txt"), "--out must be a .py file: got stub.txt"),
        ((NAME, "--out", "no/stub.py"), "no such folder: no"),
        ((NAME, "a.py", "--out", "b.py"), "leave out one of them"),
        (("--out", "b.py"), "--out is the file of an exercise's stub, and none is named"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exercise", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert said in captured.err


def test_a_neighbor_of_the_file_is_imported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "inner").mkdir()
    (here / "inner" / "my_part_of_it.py").write_text(TASK.answer)
    (here / "inner" / "mine.py").write_text(f"from my_part_of_it import {NAME}\n")
    assert main(["exercise", NAME, "inner/mine.py"]) == 0
    assert "holds" in capsys.readouterr().out
