"""The formats in which data come: a folder or a file each, whose ``FORMATS`` say how it is known and read.

A new one is a module of a folder here with a reader, an encoder of new data, their row in the folder's table
(see :class:`margin.core.catalog.Format`), its test, and a sample among those that are damaged on purpose.
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
