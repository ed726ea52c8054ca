"""A site of Markdown pages by Sphinx: searchable from the file system, without network, light and dark."""

import io
import re
import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from margin.auditing.book import theorems
from margin.auditing.report.report import styles

CONFIGURATION: Mapping[str, Any] = {
    "project": "margin",
    "author": "The margin developers",
    "copyright": "the margin developers",
    "extensions": ["myst_parser", __name__],
    "html_math_renderer": "mathml",  # browsers set it themselves: no script, no font
    "myst_enable_extensions": ["dollarmath"],
    "myst_heading_anchors": 3,
    "html_theme": "furo",
    "html_title": "margin",
    "html_static_path": ["_static"],
    "html_css_files": ["book.css"],
    "html_show_sourcelink": False,
    "html_show_sphinx": False,
    "pygments_style": "friendly",
    "html_show_search_summary": False,  # a page from a disk may not read another
}


COMMANDS = {
    r"\#": r"\text{#}", r"\dots": r"\ldots", r"\bar": r"\overline", r"\iff": r"\Leftrightarrow",
    r"\textstyle": "", r"\Big": "", r"\big": "",
}  # fmt: skip
"""Commands that docutils does not know, or a browser shows badly, and what stands for them."""

HALVES = re.compile(r"\\(t?frac)\s*(\d)\s*(\d|[A-Za-z]|\{[^{}]*\})")
"""A fraction whose numerator has no braces."""

ACCENT = re.compile(r"\\(hat|tilde|dot|ddot|overline|check)\s*(\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z])(?=\s*[_^])")
"""A letter with an accent that has an index: docutils would set the index below the letter."""


def write_book(out: Path, names: Collection[str], told: Callable[[str], None] = lambda name: None) -> None:
    """Build the book of theorems alone.

    Args:
        out: A folder for the site: new, empty, or of an earlier one.
        names: The claims that have a page.
        told: Is told of each claim before it is put to its demonstration.

    Raises:
        ValueError: The folder holds something else, or Sphinx is not installed, or warns.
    """
    if out.exists() and not (out / ".buildinfo").exists() and any(out.iterdir()):
        raise ValueError(f"a book is written into a new or empty folder: {out} holds something else")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        written = theorems.write(source / "theorems", names, told)
        pages = "\n".join(f"theorems/{chapter}" for chapter in written)
        (source / "index.md").write_text(
            "# What theory promises\n\nEvery theorem here has run: its demonstration is measured and drawn "
            f"when the book is built, by margin {version('margin')}.\n\n"
            f"```{{toctree}}\n:maxdepth: 1\n{pages}\n```\n"
        )
        build(source, out)


def build(source: Path, out: Path, more: Mapping[str, Any] | None = None) -> None:
    """Build a site from a folder of Markdown; a warning is an error.

    Args:
        source: The folder; the style of the book is added to its ``_static``.
        out: Where the pages are written.
        more: Settings of Sphinx beside those of the book, and its further extensions.

    Raises:
        ValueError: Sphinx is not installed, or warns.
    """
    try:
        from sphinx.application import Sphinx
        from sphinx.errors import SphinxError
    except ImportError as missing:
        raise ValueError(f"the book needs Sphinx: pip install 'margin[docs]' ({missing})") from missing
    static = source / "_static"
    static.mkdir(exist_ok=True)
    (static / "book.css").write_text(style())
    more = more or {}
    extensions = [*CONFIGURATION["extensions"], *more.get("extensions", [])]
    settings = {**CONFIGURATION, **more, "extensions": extensions}
    warnings = io.StringIO()
    with tempfile.TemporaryDirectory() as cache:
        try:
            site = Sphinx(
                source, None, out, cache, "html", settings, status=None, warning=warnings, parallel=2
            )
            site.build()
        except SphinxError as error:
            raise ValueError(f"the site was not built: {error}") from error
    if said := warnings.getvalue().strip():
        raise ValueError(f"a page is not as it should be: {said}")


def style() -> str:
    """The style of the book: colors and numbers of the report, in the site's light and dark, and its own."""
    own = files(__package__).joinpath("book.css").read_text("utf-8")
    colors, numbers = styles()
    light, dark = re.findall(r":root \{(.*?)\}", colors, re.DOTALL)
    return (
        f'body {{{light}}}\nbody[data-theme="dark"] {{{dark}}}\n'
        f'@media screen and (prefers-color-scheme: dark) {{ body:not([data-theme="light"]) {{{dark}}} }}\n'
        f"{numbers}{own}"
    )


def setup(app: Any) -> dict[str, bool]:
    """Make Sphinx write formulas as MathML, and in the margin of a page the branch that it lies on.

    For the search, the stem of a word that many pages have is found once.
    """
    from sphinx.search.en import SearchEnglish

    app.add_search_language(type("English", (SearchEnglish,), {"stem": cache(SearchEnglish.stem)}))
    app.connect("html-page-context", own_branch, priority=400)  # before the theme reads it
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def own_branch(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Of the contents beside a page unfold its own branch alone: the whole, on every page, is a square."""
    whole = context["toctree"]
    context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def inline(translator: Any, node: Any) -> None:
    """Write a formula within a line."""
    _write(translator, node, False)


def block(translator: Any, node: Any) -> None:
    """Write a formula on lines of its own, which a narrow screen scrolls."""
    translator.body.append('<div class="formula">')
    _write(translator, node, True)
    translator.body.append("</div>\n")


def _write(translator: Any, node: Any, alone: bool) -> None:
    from docutils.nodes import SkipNode
    from docutils.utils.math import MathError
    from docutils.utils.math.latex2mathml import tex2mathml
    from sphinx.util.logging import getLogger

    try:
        translator.body.append(tex2mathml(legible(node.astext()), as_block=alone))
    except MathError as error:
        getLogger(__name__).warning("%s: %s", error, node.astext(), location=node)
    raise SkipNode


def legible(formula: str) -> str:
    """LaTeX as docutils sets it rightly: an accent with an index, the bar, dots, halves."""
    formula = HALVES.sub(r"\\\1{\2}{\3}", formula)
    for command, known in COMMANDS.items():
        formula = re.sub(rf"{re.escape(command)}(?![A-Za-z])", known.replace("\\", "\\\\"), formula)
    return ACCENT.sub(lambda m: rf"{{\{m[1]}{{{m[2].strip('{}')}}}{{}}}}", formula)
