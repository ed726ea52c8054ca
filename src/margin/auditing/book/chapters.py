"""The chapters: Markdown that is written by hand, a section a claim, from which its page is made.

A chapter opens with what holds it together; each further heading of the second level is ``claim: title``.
Of its Python blocks one that is marked ``broken`` makes a ``subject`` that breaks a premise or the promise,
and one that is marked ``printed`` shows a form that is often printed wrongly; both run at the build.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

ORDER: tuple[str, ...] = (
    *("perceptrons", "memories", "linear_models", "feedforward", "signals", "optimization", "convolution"),
    *("sequences", "attention", "graphs", "generation", "posteriors", "generalization", "robustness"),
    "measurement",
)
"""The chapters in the course's order."""

BLOCK = re.compile(r"^```\w+ (broken|printed|trained|measured)\n(.*?)^```\n?", re.DOTALL | re.MULTILINE)


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
class Chapter:
    """A chapter.

    Args:
        name: Its file's name.
        title: Its title.
        text: What holds it together, Markdown.
        sections: What is written of each claim, by its name.
    """

    name: str
    title: str
    text: str
    sections: Mapping[str, Section]


def chapters() -> list[Chapter]:
    """The chapters in their order."""
    folder = files(__package__).joinpath("chapters")
    return [parsed(name, folder.joinpath(f"{name}.md").read_text(encoding="utf-8")) for name in ORDER]


def parsed(name: str, text: str) -> Chapter:
    """A chapter from its Markdown.

    Raises:
        ValueError: It has no title, or a section has none, or a claim has two.
    """
    head, *rest = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, opening = head.partition("\n")
    if not title.startswith("# "):
        raise ValueError(f"a chapter must begin with its title: {name} begins with {title!r}")
    sections: dict[str, Section] = {}
    for part in rest:
        heading, _, body = part.partition("\n")
        claim, _, called = heading.partition(": ")
        if not called or claim in sections:
            raise ValueError(f"a section must be headed 'claim: title', once: {name} has {heading!r}")
        blocks = dict(BLOCK.findall(body))
        sections[claim] = Section(called.strip(), BLOCK.sub("", body).strip(), **blocks)
    return Chapter(name, title[2:].strip(), opening.strip(), sections)
