"""The chapters: Markdown that is written by hand, a section a claim, from which its page is made.

A chapter opens with what holds it together; each further heading of the second level is ``claim: title``.
Of its Python blocks one that is marked ``broken`` makes a ``subject`` that breaks a premise or the promise,
and one that is marked ``printed`` shows a form that is often printed wrongly; both run at the build.

A chapter ends with its exercise, ``exercise name: title``: a block ``text exercise`` of facts, a
``python stub`` of the function that a student writes, the ``python answer``, and some of ``python wrong: what
is wrong with it``, each a form that is often written.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

ORDER: tuple[str, ...] = (
    *("perceptrons", "memories", "linear_models", "feedforward", "signals", "optimization", "convolution"),
    *("sequences", "attention", "graphs", "generation", "posteriors", "generalization", "robustness"),
    "measurement",
)
"""The chapters in the course's order."""

BLOCK = re.compile(r"^```\w+ (broken|printed|trained|measured)\n(.*?)^```\n?", re.DOTALL | re.MULTILINE)
TASK = re.compile(r"^```\w+ (exercise|stub|answer|wrong: [^\n]+)\n(.*?)^```\n?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """What is written of a claim, or of a model.

    Args:
        title: The theorem's name, or its term of art.
        text: What it says in words and formula, Markdown.
        broken: Code that makes a ``subject`` of which the theorem is unfounded or violated; "" for none.
        printed: Code that prints what a form gives that is often printed wrongly; "" for none.
        trained: Code that makes a ``run`` of the model and an ``audit`` of it; "" for none.
        measured: Names of results of the model, one a line.
    """

    title: str
    text: str
    broken: str = ""
    printed: str = ""
    trained: str = ""
    measured: str = ""


@dataclass(frozen=True, slots=True)
class Exercise:
    """A function for a student to write, of which a theorem says what it must do.

    Args:
        name: The function's name.
        title: Its term of art.
        text: What is asked, Markdown.
        claim: The claim whose theorem it is.
        judge: Path of the function that judges an answer, below :mod:`margin.auditing.exercises`.
        minutes: About how long it takes.
        stub: Code that a student begins with; its docstring states formula, shapes and premises.
        answer: Code that is right.
        wrong: Code of forms that are often written, by what is wrong with each.
    """

    name: str
    title: str
    text: str
    claim: str
    judge: str
    minutes: int
    stub: str
    answer: str
    wrong: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Chapter:
    """A chapter.

    Args:
        name: Its file's name.
        title: Its title.
        text: What holds it together, Markdown.
        sections: What is written of each claim, by its name.
        exercises: Its exercises, by their names.
    """

    name: str
    title: str
    text: str
    sections: Mapping[str, Section]
    exercises: Mapping[str, Exercise]


def chapters() -> list[Chapter]:
    """The chapters in their order."""
    folder = files(__package__).joinpath("chapters")
    return [parsed(name, folder.joinpath(f"{name}.md").read_text(encoding="utf-8")) for name in ORDER]


def exercises() -> Mapping[str, tuple[Exercise, Chapter]]:
    """The exercises by name, each with its chapter, in the order of the course."""
    return {name: (task, chapter) for chapter in chapters() for name, task in chapter.exercises.items()}


def parsed(name: str, text: str) -> Chapter:
    """A chapter from its Markdown.

    Raises:
        ValueError: It has no title, or a section has none, or a claim has two; an exercise lacks a block.
    """
    head, *rest = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, opening = head.partition("\n")
    if not title.startswith("# "):
        raise ValueError(f"a chapter must begin with its title: {name} begins with {title!r}")
    sections: dict[str, Section] = {}
    exercises: dict[str, Exercise] = {}
    for part in rest:
        heading, _, body = part.partition("\n")
        claim, _, called = heading.partition(": ")
        if called and claim.startswith("exercise "):
            own = claim.removeprefix("exercise ")
            exercises[own] = _exercise(own, called.strip(), body)
            continue
        if not called or claim in sections:
            raise ValueError(f"a section must be headed 'claim: title', once: {name} has {heading!r}")
        blocks = dict(BLOCK.findall(body))
        sections[claim] = Section(called.strip(), BLOCK.sub("", body).strip(), **blocks)
    return Chapter(name, title[2:].strip(), opening.strip(), sections, exercises)


def _exercise(name: str, title: str, body: str) -> Exercise:
    """An exercise from the body of its section."""
    blocks = dict(TASK.findall(body))
    facts = dict(line.split(": ", 1) for line in blocks.get("exercise", "").splitlines())
    if set(facts) != {"claim", "judge", "minutes"} or not {"stub", "answer"} < set(blocks):
        raise ValueError(
            "an exercise must have a block of the facts claim, judge and minutes, a stub and an answer: "
            f"{name} has {', '.join([*facts, *blocks])}"
        )
    wrong = {
        kind.removeprefix("wrong: "): code for kind, code in blocks.items() if kind.startswith("wrong: ")
    }
    return Exercise(
        name,
        title,
        TASK.sub("", body).strip(),
        facts["claim"],
        f"margin.auditing.exercises.{facts['judge']}",
        int(facts["minutes"]),
        blocks["stub"],
        blocks["answer"],
        wrong,
    )


def run(block: str) -> dict[str, Any]:
    """The names that a block of a chapter leaves."""
    names: dict[str, Any] = {"__name__": "chapter"}
    exec(compile(block, "chapter", "exec"), names)
    return names
