"""``python -m margin``."""

from margin.cli import program

program()
