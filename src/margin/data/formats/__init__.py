"""The formats in which data come: a folder or a file each, whose ``FORMATS`` say how it is known and read."""

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
