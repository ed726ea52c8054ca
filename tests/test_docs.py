"""Every block of code in the documentation runs, in the order of its page, from an empty directory.

Blocks of ``python`` are executed, those with a title are files that the reader writes, ``sh`` are
commands, ``toml`` with entry points installs the module of tables it names, ``text`` is only read.
"""

import contextlib
import fnmatch
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from margin.auditing.book.chapters import ORDER, exercises, parsed
from margin.cli import COMMANDS, main
from margin.core import catalog

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
"""They run when the site is built, which a test does."""

PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "results.md")
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory from which modules are imported, with the rows they add taken back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of what a page starts, as here: sums round by their order
    forget_tables()
    yield tmp_path
    forget_tables()


def forget_tables() -> None:
    catalog._modules.cache_clear()
    catalog._table.cache_clear()
    importlib.invalidate_caches()


def run_command(line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[:1] == ["margin"]:
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            status = main(words[1:])
        assert status == 0, f"{line}: status {status}: {told.getvalue()}"
    elif words:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        subprocess.run(["bash", "-c", line], check=True, env=environment, timeout=600)


def check_workflow(text: str) -> None:
    """The steps of a workflow are read as YAML, and the options of margin's commands are theirs."""
    for step in yaml.safe_load(text):
        words = shlex.split(step.get("run", ""))
        if words[:1] == ["margin"]:
            told = io.StringIO()
            with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
                main([words[1], "--help"])
            unknown = [word for word in words if word.startswith("--") and word not in told.getvalue()]
            assert not unknown, f"{step['run']}: {unknown}"


def install(text: str, room: Path) -> None:
    """Stand for ``pip install``: the entry points of a block, as an installed package states them."""
    information = room / "example-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
    rows = re.findall(r'^(\w+) = "(\w+)"$', text, re.MULTILINE)
    assert rows
    assert "[project.entry-points.margin]" in text
    points = "\n".join(f"{name} = {value}" for name, value in rows)
    (information / "entry_points.txt").write_text(f"[{catalog.GROUP}]\n{points}\n")
    forget_tables()


# five to twenty seconds a page: its commands train and audit in earnest, and that they do is what is asked
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, room: Path) -> None:
    names: dict[str, object] = {"__name__": "page"}
    for kind, title, text in BLOCK.findall(page.read_text()):
        if title:
            (room / title).write_text(text)
        elif kind == "python":
            exec(compile(text, page.name, "exec"), names)
        elif kind == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                run_command(line)
        elif kind == "toml":
            install(text, room)
        elif kind == "yaml":
            check_workflow(text)
        else:
            assert kind in ("text", "html"), f"{page.name} has a block of {kind} that nothing runs"


def test_every_command_that_a_page_names_exists() -> None:
    for page in [*PAGES, ROOT / "README.md"]:
        named = set(re.findall(r"^margin (\w+)|`margin (\w+)", page.read_text(), re.MULTILINE))
        assert {one or other for one, other in named} <= set(COMMANDS), page.name


def test_the_page_of_figures_is_the_figures() -> None:
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.page import page
    finally:
        sys.path.remove(str(ROOT))
    assert (ROOT / "docs" / "results.md").read_text() == page()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_is_a_notebook_without_outputs_that_ends_in_what_it_checks(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    texts = ["".join(cell["source"]) for cell in cells]
    assert texts[0].startswith("# ")
    words = sum(
        len(t.split()) for cell, t in zip(cells, texts, strict=True) if cell["cell_type"] == "markdown"
    )
    assert 300 <= words <= 900, f"{words} words are no fifteen minutes"
    assert max(len(cell["source"]) for cell in code) <= 35
    assert cells[-1] is code[-1]
    assert texts[-1].count("assert") >= 5
    assert not re.search(r"http|download|/tmp", "".join("".join(cell["source"]) for cell in code))


def test_every_tutorial_has_its_place_in_the_site() -> None:
    names = re.search(r"^NAMES = \((.*)\)$", (ROOT / "docs" / "tutorials.py").read_text(), re.MULTILINE)
    assert names
    assert sorted(re.findall(r'"(\w+)"', names[1])) == [path.stem for path in NOTEBOOKS]
    for page in ("docs/index.md", "README.md", "docs/course.md"):
        assert "tutorials" in (ROOT / page).read_text()


def test_what_the_page_for_a_course_names_exists() -> None:
    text = (ROOT / "docs" / "course.md").read_text()
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 13
    names = {name.rpartition("/")[2] for name in catalog.models()}
    sources = {name.rpartition("/")[2] for name, part in catalog.parts().items() if part.kind == "source"}
    tasks = exercises()
    for _, models, chapter, command, task in rows:
        assert set(re.findall(r"`(\w+)`", models)) <= names, models
        (target,) = re.findall(r"theorems/(\w+)\.md", chapter)
        assert target in ORDER
        assert tasks.pop(task.strip().strip("`"))[1].name == target
        words = shlex.split(command.strip().strip("`"))
        assert words[:1] == ["margin"]
        assert words[1] in COMMANDS
        if words[1] == "train":
            assert words[2] in names
            assert words[3] in sources
        elif words[1] == "claims":
            assert fnmatch.filter(catalog.claims(), words[2])
    assert not tasks


def test_every_model_has_a_page_in_the_gallery() -> None:
    written = [
        name
        for path in sorted((ROOT / "docs" / "models").glob("*.md"))
        for name, section in parsed(path.stem, path.read_text()).sections.items()
        if "$" in section.text and section.trained
    ]
    assert sorted(written) == sorted(name for name in catalog.models() if ":" not in name)
