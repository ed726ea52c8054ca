"""What a source of data is: a name, a path that its ending, prefix or contents tell, or an object.

Files whose ending leaves it open take a prefix: ``series:prices.csv`` is a series, ``prices.csv`` a table.
"""

import gzip
import os
from pathlib import Path
from typing import Any, Literal, cast

from torch.utils.data import DataLoader, Dataset, IterableDataset

from margin.core.catalog import Part, UnknownName, nearest, sources
from margin.data.examples import Data
from margin.data.files.reading import reading, regular

Form = Literal[
    "data",
    "name",
    "table",
    "arrays",
    "idx",
    "folder",
    "image",
    "pair",
    "frame",
    "dataset",
    "stream",
    "sequences",
    "ragged",
    "text",
    "pairs",
    "series",
    "audio",
    "points",
    "graph",
    "graphs",
    "graph_object",
    "graph_objects",
]


READERS: dict[str, str] = {
    "table": "margin.data.formats.tables.tables:read_table",
    "arrays": "margin.data.arrays:read_arrays",
    "idx": "margin.data.formats.images.idx:read_images",
    "folder": "margin.data.formats.images.folders:read_folder",
    "pair": "margin.data.arrays:from_arrays",
    "frame": "margin.data.formats.tables.tables:read_frame",
    "dataset": "margin.data.formats.objects.datasets:read_dataset",
    "stream": "margin.data.formats.objects.streams:read_stream",
    "sequences": "margin.data.formats.sequences.sources:read_sequences",
    "ragged": "margin.data.formats.sequences.sources:from_sequences",
    "text": "margin.data.formats.text.sources:read_text",
    "pairs": "margin.data.formats.text.pairs:read_pairs",
    "series": "margin.data.formats.series.sources:read_series",
    "audio": "margin.data.formats.audio.sources:read_audio",
    "points": "margin.data.formats.points.clouds:read_clouds",
    "graph": "margin.data.formats.graphs.files:read_graph",
    "graphs": "margin.data.formats.graphs.sets:read_graphs",
    "graph_object": "margin.data.formats.graphs.objects:from_graph",
    "graph_objects": "margin.data.formats.graphs.objects:from_graphs",
}
"""What reads each form of source: positional parameters are the source, keyword-only ones its options."""


ENCODERS: dict[str, str] = {
    "table": "margin.data.formats.tables.rows:encode_file",
    "frame": "margin.data.formats.tables.rows:encode_frame",
    "arrays": "margin.data.formats.recorded:encode_file",
    "pair": "margin.data.formats.recorded:encode_pair",
    "idx": "margin.data.formats.recorded:encode_idx",
    "folder": "margin.data.formats.images.folders:encode_images",
    "image": "margin.data.formats.images.folders:encode_images",
    "dataset": "margin.data.formats.objects.datasets:encode_dataset",
    "sequences": "margin.data.formats.sequences.sources:encode_sequences",
    "text": "margin.data.formats.text.sources:encode_text",
    "pairs": "margin.data.formats.text.pairs:encode_pairs",
    "series": "margin.data.formats.series.sources:encode_series",
    "audio": "margin.data.formats.audio.sources:encode_audio",
    "points": "margin.data.formats.points.clouds:encode_clouds",
    "graph": "margin.data.formats.graphs.files:encode_graph",
    "graphs": "margin.data.formats.graphs.sets:encode_graphs",
}
"""What reads new data of each form by a run's record: ``(source, encoding) -> the examples``."""


PREFIXES: tuple[Form, ...] = ("sequences", "text", "pairs", "series", "audio", "points", "graph", "graphs")
"""What a file is read as where its ending leaves it open: ``series:prices.csv``, ``graph:edges.csv``.

A run keeps the form in its record, so new data for it need no prefix.
"""


ENDINGS: dict[str, Form] = {
    ".csv": "table",
    ".tsv": "table",
    ".tab": "table",
    ".txt": "table",
    ".data": "table",
    ".parquet": "table",
    ".pq": "table",
    ".npz": "arrays",
    ".npy": "arrays",
    ".idx": "idx",
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif"), "image"),
    **dict.fromkeys((".tif", ".tiff", ".webp", ".ppm", ".pgm"), "image"),
    ".wav": "audio",
    **dict.fromkeys((".ply", ".xyz"), "points"),
    **dict.fromkeys((".graphml", ".gml", ".gexf", ".net"), "graph"),
}


def form_of(source: Any) -> Form:
    """What a source is; a file is known by its ending, else by its first bytes.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The name is unknown, or nothing reads such a source.
    """
    if isinstance(source, Data):
        return "data"
    if isinstance(source, str | os.PathLike):
        if prefix := prefix_of(source):
            return cast("Form", prefix)
        return "name" if is_name(source) else _form_of_path(Path(source))
    if is_graph(source):
        return "graph_object"
    if isinstance(source, tuple | list) and source and all(map(is_graph, source)):
        return "graph_objects"
    if isinstance(source, tuple | list) and len(source) == 2:
        return "ragged" if _is_ragged(source[0]) else "pair"
    if is_frame(source):
        return "frame"
    if isinstance(source, Dataset | DataLoader):
        items = source.dataset if isinstance(source, DataLoader) else source
        return "stream" if isinstance(items, IterableDataset) else "dataset"
    raise ValueError(
        "data must be a name, a path, arrays (x, y), a DataFrame, a torch Dataset or DataLoader, or a Data: "
        f"got {type(source).__name__}{converted(source)}"
    )


def prefix_of(source: Any) -> str:
    """The word of :data:`PREFIXES` that a source begins with, or "".

    Raises:
        FileNotFoundError: There is nothing at the path behind it.
    """
    word, colon, path = source.partition(":") if isinstance(source, str) else ("", "", "")
    if not colon or word not in PREFIXES or Path(source).exists():
        return ""
    if not Path(path).exists():
        raise FileNotFoundError(f"no such file: {path}")
    return word


def without_prefix(source: Any) -> Any:
    """The path behind a prefix; any other source as it is."""
    return source.partition(":")[2] if prefix_of(source) else source


def whole_path(source: str | os.PathLike[str]) -> str:
    """The absolute path of a source, behind its prefix."""
    prefix = prefix_of(source)
    return f"{prefix}:" * bool(prefix) + str(Path(without_prefix(source)).resolve())


def is_graph(source: Any) -> bool:
    """Whether an object is a graph: of networkx, or what has ``x`` and ``edge_index``; loads nothing."""
    if type(source).__module__.partition(".")[0] == "networkx":
        return True
    return hasattr(source, "edge_index") and hasattr(source, "x")


def _is_ragged(x: Any) -> bool:
    """Whether inputs are a list of arrays of several lengths."""
    arrays = isinstance(x, tuple | list) and all(getattr(item, "ndim", 0) for item in x)
    return arrays and len({len(item) for item in x}) > 1


def is_frame(source: Any) -> bool:
    """Whether an object is a polars or pandas DataFrame; loads neither library."""
    library = type(source).__module__.partition(".")[0]
    return library in ("polars", "pandas") and type(source).__name__ == "DataFrame"


def converted(source: Any) -> str:
    """How a table of another library becomes a DataFrame, as the end of a message; "" where none is known."""
    library = type(source).__module__.partition(".")[0]
    if library == "datasets" and isinstance(source, dict):
        return f"; take one of its parts, as data[{next(iter(source), 'train')!r}].to_pandas()"
    way = next((name for name in ("to_pandas", "to_polars", "toPandas") if hasattr(source, name)), "")
    if not way and library == "polars" and hasattr(source, "collect"):
        way = "collect"
    return f"; give data.{way}(), a DataFrame" if way else ""


def is_name(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a name rather than a path; a name that is neither is refused."""
    path = Path(source)
    if source in sources():
        return True
    if not path.exists() and any(part.name == source for part in sources().values()):
        return True
    if path.exists():
        return False
    if not isinstance(source, str) or path.name != source or _ending(path):
        raise FileNotFoundError(f"no such file: {source}")
    near = ", ".join(nearest(source, sources())) or ", ".join(sources())
    raise UnknownName(f"unknown data set {source!r}, and no file is called so; nearest: {near}")


def part_of(source: str) -> Part:
    """The row of a source by its name, short or whole."""
    return sources().get(source) or next(part for part in sources().values() if part.name == source)


def _ending(path: Path) -> str:
    """The ending that says what is in a file, ``.gz`` apart."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _form_of_path(path: Path) -> Form:
    if path.is_dir():
        return _form_of_folder(path)
    regular(path)
    if "ubyte" in path.name:
        return "idx"
    if form := ENDINGS.get(_ending(path)):
        return form
    start = _start(path)
    if start[:2] == b"\0\0" and len(start) > 3:
        return "idx"
    if b"\0" not in start and not start.startswith(b"PK"):
        return "table"
    raise ValueError(f"{path}: no reader for such a file; known endings: {', '.join(ENDINGS)}, each with .gz")


FOLDERS: tuple[tuple[Form, tuple[str, ...]], ...] = (
    ("idx", ("*ubyte*",)),
    ("audio", ("*.[wW][aA][vV]", "*/*.[wW][aA][vV]")),
    ("graphs", ("*_graph_indicator.txt",)),
    ("graph", ("edges.*",)),
    ("points", ("*.ply", "*/*.ply", "*.xyz", "*/*.xyz")),
)
"""What a folder holds by the files in it; images by class otherwise."""


def _form_of_folder(path: Path) -> Form:
    for form, patterns in FOLDERS:
        if any(True for pattern in patterns for _ in path.glob(pattern)):
            return form
    return "folder"


def _start(path: Path) -> bytes:
    if path.suffix != ".gz":
        with path.open("rb") as file:
            return file.read(1024)
    with reading(path, "a whole gzip file", parsers=("gzip",)), gzip.open(path) as packed:
        return packed.read(1024)
