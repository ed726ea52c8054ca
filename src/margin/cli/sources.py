"""The options of a data source on the command line: ``--data.*``, with ``--target``, ``--task`` in short."""

from collections.abc import Sequence

from jsonargparse import ArgumentParser

from margin.cli.parsing import bracketed
from margin.core.catalog import data_parameters, user_options
from margin.data.opening import reader_of

SHORT = ("target", "task", "missing", "ignore")
"""Options of a reader that may be written without the prefix ``data.``."""


def data_options(parser: ArgumentParser, source: str) -> None:
    """Add the options of the source's reader, under ``data.``."""
    parser.add_function_arguments(reader_of(source), "data", skip=set(data_parameters(reader_of(source))))


def readable(words: Sequence[str], source: str) -> list[str]:
    """What was typed, with short options spelled out and lists bracketed."""
    reader = reader_of(source)
    known = user_options(reader)
    spelled = []
    for word in words:
        flag, equals, value = word.partition("=")
        short = flag.removeprefix("--")
        if flag.startswith("--") and short in SHORT and short in known:
            word = f"--data.{short}{equals}{value}"
        spelled.append(word)
    return bracketed(spelled, "data", reader)
