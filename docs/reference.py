"""The reference: every public name with its signature, shapes and docstring, by Sphinx's autodoc."""

import inspect
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from margin.core.catalog import models, parts, resolve, rules

SETTINGS = {
    "extensions": ["sphinx.ext.autodoc", "sphinx.ext.napoleon", __name__],
    "autodoc_inherit_docstrings": False,  # torch's own say nothing of ours
    "autodoc_member_order": "bysource",
}
"""What Sphinx is told for the sake of these pages."""

FACES = ("margin", "margin.metrics", "margin.sklearn", "margin.testing")
OTHERS = "set_fit_request, set_score_request, set_predict_request"
"""Methods that scikit-learn writes into its estimators."""

LITERAL = re.compile(r"(``.*?``|:\w+:`[^`]*`|\.\. math::[^\n]*(?:\n(?:[ ]+[^\n]*)?)*)", re.DOTALL)
"""What a docstring marks as code or as a link: there nothing is escaped."""


def setup(app: Any) -> dict[str, bool]:
    """Let autodoc read docstrings whose formulas are plain text."""
    app.connect("autodoc-process-docstring", escape, priority=400)  # before their sections are read
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape what reStructuredText would read in a formula: ``*``, ``|`` and a trailing ``_``."""
    pieces = LITERAL.split("\n".join(lines))
    pieces[::2] = [re.sub(r"[*|\\`]|_(?!\w)", r"\\\g<0>", piece) for piece in pieces[::2]]
    lines[:] = "".join(pieces).split("\n")


def write(folder: Path) -> list[str]:
    """Write a page for each face and for each package of the catalog; returns their names."""
    folder.mkdir()
    pages = {face: [f"{face}:{name}" for name in public(face)] for face in FACES}
    for path in dict.fromkeys(named()):
        package = ".".join(path.split(":")[0].split(".")[:2])
        if path.startswith("margin."):
            pages.setdefault(package, []).append(path)
    for name, paths in pages.items():
        directives = "\n".join(filter(None, map(directive, paths)))
        (folder / f"{name}.md").write_text(f"# {name}\n\n```{{eval-rst}}\n{directives}\n```\n")
    return list(pages)


def public(face: str) -> list[str]:
    """The names that a module states, or else defines."""
    module = import_module(face)
    stated = getattr(module, "__all__", None)
    own = [n for n, o in vars(module).items() if n[0] != "_" and getattr(o, "__module__", "") == face]
    return sorted(own if stated is None else stated)


def named() -> Iterable[str]:
    """The dotted paths to which the rows of the catalog point."""
    for entry in models().values():
        yield entry.build
    for rule in rules().values():
        yield rule.step
    for part in parts().values():
        yield part.target


def directive(path: str) -> str:
    """What documents an object: its signature and docstring, of a class with its public methods."""
    found = resolve(path)
    dotted = path.replace(":", ".")
    if inspect.isclass(found):
        return f".. autoclass:: {dotted}\n   :members:\n   :exclude-members: {OTHERS}\n"
    kind = "automethod" if "." in path.partition(":")[2] else "autofunction"
    return f".. {kind}:: {dotted}\n" if callable(found) else ""
