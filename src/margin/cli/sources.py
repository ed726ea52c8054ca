"""The options of a data source on the command line: ``--data.*``, with ``--target``, ``--task`` in short."""

from collections.abc import Sequence

from jsonargparse import ArgumentParser

from margin.cli.parsing import bracketed
from margin.core.catalog import chosen, dictated
from margin.data.source import Source

SHORT = ("target", "task", "missing", "ignore")
"""Options of a reader that may be written without the prefix ``data.``."""


def data_options(parser: ArgumentParser, source: Source) -> None:
    """Add the options of the source's reader, under ``data.``."""
    parser.add_function_arguments(source.reader, "data", skip=set(dictated(source.reader)))


def readable(words: Sequence[str], source: Source) -> list[str]:
    """What was typed, with short options spelled out and lists bracketed."""
    known = chosen(source.reader)
    spelled = []
    for word in words:
        flag, equals, value = word.partition("=")
        short = flag.removeprefix("--")
        if flag.startswith("--") and short in SHORT and short in known:
            word = f"--data.{short}{equals}{value}"
        spelled.append(word)
    return bracketed(spelled, "data", source.reader)
