"""The formats in which data come: a folder or a file each, whose ``FORMATS`` say how it is known and read.

A new one is a module here with a reader, an encoder of new data and their row (see
:class:`margin.core.catalog.Format`), its name below, and its test.
"""

FAMILIES = (
    "tables",
    "arrays",
    "images",
    "audio",
    "points",
    "graphs",
    "sequences",
    "text",
    "series",
    "objects",
)
"""In the order in which files, folders and objects are tried."""
