"""``margin exercise [NAME [ANSWER]]``: the exercises of the book, one by one, and a verdict on an answer."""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from margin.auditing.book.chapters import Chapter, Exercise, exercises
from margin.cli.output import Output
from margin.cli.tables import columns, folded, painted, width
from margin.core.catalog import nearest

PAGE = 80
"""Columns of a statement."""


def show_exercise(name: str = "", answer: str = "", *, out: str = "") -> Output:
    """List the exercises of the book, print one, or judge an answer to it.

    Args:
        name: Which exercise; a list of all if not given.
        answer: Your answer: a file with a function of the exercise's name, or package.module:function.
        out: Output file of a stub to begin with, a .py.
    """
    table = exercises()
    if out and not name:
        raise ValueError(f"--out is the file of an exercise's stub, and none is named: give one beside {out}")
    if not name:
        rows = [_facts(task, chapter) for task, chapter in table.values()]
        cells = [(row["name"], f"{row['minutes']} min", row["chapter"], row["title"]) for row in rows]
        return Output(rows, columns(cells, ("bold", "dim")))
    if name not in table:
        near = ", ".join(nearest(name, table)) or "none"
        raise ValueError(f"no exercise {name!r}; nearest: {near}; margin exercise lists all")
    task, chapter = table[name]
    if answer:
        if out:
            raise ValueError("--out is the file of a stub, and an answer is judged: leave out one of them")
        return judged(name, answer)
    document = {**_facts(task, chapter), "text": task.text, "stub": task.stub}
    if not out:
        return Output(document, statement(task, chapter))
    written(task.stub, Path(out))
    return Output({**document, "file": out}, f"{out}\nmargin exercise {name} {out} judges it")


def _facts(task: Exercise, chapter: Chapter) -> dict[str, Any]:
    return {
        "name": task.name,
        "title": task.title,
        "chapter": chapter.title,
        "claim": task.claim,
        "minutes": task.minutes,
    }


def statement(task: Exercise, chapter: Chapter) -> str:
    """An exercise as it is printed: what is asked, the function's stub, what to type next."""
    room = min(PAGE, width() or PAGE)
    facts = f"{chapter.title}, {task.minutes} minutes; the theorem: margin claims {task.claim}"
    paragraphs = [" ".join(part.split()) for part in task.text.split("\n\n")]
    shown = [line for part in (facts, *paragraphs) for line in [*folded(part, room), ""]]
    ends = [
        "To write these lines into a file, and to judge what you have made of them:",
        f"  margin exercise {task.name} --out FILE.py",
        f"  margin exercise {task.name} FILE.py",
    ]
    return "\n".join([painted(f"{task.name}: {task.title}", "bold"), "", *shown, task.stub, *ends])


def written(stub: str, file: Path) -> None:
    """Write a stub into a new file.

    Raises:
        FileExistsError: The file is there already.
        FileNotFoundError: Its folder is not.
        ValueError: It is no file of Python.
    """
    if file.suffix != ".py":
        raise ValueError(f"--out must be a .py file: got {file}")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"no such folder: {file.parent}")
    if file.exists():
        raise FileExistsError(f"--out must be a new file, lest an answer is lost: {file} is there already")
    file.write_text(stub, encoding="utf-8")


def judged(name: str, place: str) -> Output:
    """The verdict on an answer: status 0 where every case holds, else 1."""
    function = answer_at(place, name)
    from margin.auditing.exercises.judging import exercise as judge
    from margin.auditing.report.table import rows
    from margin.auditing.report.terminal import STYLES

    finding = judge(name, function)
    cells = [("case", "promised", "measured", "verdict")]
    shown = rows(name, finding, most=len(finding.labels))
    cells += [(row.label, row.promised, row.measured, row.verdict) for row in shown]
    text = columns(cells, ("", "", "", {str(verdict): style for verdict, style in STYLES.items()}), lead=1)
    room = min(PAGE, width() or PAGE)
    premises = dict.fromkeys(f"premise, {one.status}: {one.text}" for one in finding.premises)
    told = [line for text in finding.remarks for line in ["", *folded(text, room)]]
    rests = [line for text in premises for line in folded(text, room)]
    holds = str(finding.verdict) == "holds"
    last = f"{name} {'holds' if holds else 'does not hold'}: {finding.reference}"
    document = {"exercise": name, "holds": holds, "finding": finding.as_json()}
    return Output(document, "\n".join([text, *told, "", *rests, *folded(last, room)]), int(not holds))


def answer_at(place: str, name: str) -> Callable[..., Any]:
    """The function at ``file.py``, of the exercise's name, at ``file.py:function`` or ``module:function``.

    Raises:
        BuilderError: The code raises, or Python cannot read it.
        FileNotFoundError: There is no such file.
        ValueError: There is no such function.
    """
    from margin.core.user_modules import named_object

    found = re.fullmatch(r"(.*\.py)(?::(\w+))?", place)
    if not found and ":" not in place:
        raise ValueError(f"an answer is a file, {name}.py, or package.module:function: got {place!r}")
    function = _of_file(Path(found[1]), found[2] or name) if found else named_object(place)
    if not callable(function):
        raise ValueError(f"{place} must be a function: it is of type {type(function).__name__}")
    return function


def _of_file(file: Path, name: str) -> Any:
    from margin.core.user_modules import reported

    if not file.is_file():
        raise FileNotFoundError(f"no such file: {file}")
    if (folder := str(file.resolve().parent)) not in sys.path:
        sys.path.insert(0, folder)  # an answer may import its neighbors
    spec = importlib.util.spec_from_file_location("answer", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} cannot be read as a module")
    module = importlib.util.module_from_spec(spec)
    try:
        with reported(str(file)):
            spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{file} could not be imported: it needs the module {error.name!r}") from error
    if not hasattr(module, name):
        here = [n for n, value in vars(module).items() if getattr(value, "__module__", "") == "answer"]
        raise ValueError(f"{file} must define the function {name}: it defines {', '.join(here) or 'none'}")
    return getattr(module, name)
