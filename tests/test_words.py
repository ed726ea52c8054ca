"""The words of the house are few, each stands for one object, and core speaks of it by that word."""

import ast
import re
from pathlib import Path

import margin
from margin.core.catalog import resolve

CORE = Path(margin.__file__).parent / "core"
PAGE = (Path(__file__).parents[1] / "docs" / "words.md").read_text()
WORDS = re.findall(r"^- \*\*([a-z ]+)\*\* \(`([\w.]+:[\w.]+)`\): (.+)$", PAGE, re.MULTILINE)
MOST = 25


def docstrings() -> str:
    """What core says of itself: every string that stands alone."""
    return "\n".join(
        node.value.value
        for path in CORE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def test_the_words_are_few_and_each_is_one_sentence() -> None:
    assert 0 < len(WORDS) <= MOST
    assert len(WORDS) == PAGE.count("\n- ")
    assert len({word for word, _, _ in WORDS}) == len(WORDS)
    for word, _, sentence in WORDS:
        assert sentence.endswith("."), word
        assert ". " not in sentence, word


def test_core_speaks_of_each_and_the_code_has_it() -> None:
    said = docstrings()
    for word, path, _ in WORDS:
        assert resolve(path) is not None, word
        assert re.split(r"[:.]", path)[-1].lower() == word.replace(" ", "_")
        assert re.search(rf"\b{word}s?\b", said, re.IGNORECASE), f"core does not say {word!r}"
