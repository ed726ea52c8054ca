"""What a source of data is: a name, a path that its ending, prefix or contents tell, or an object.

Files whose ending leaves it open take a prefix: ``series:prices.csv`` is a series, ``prices.csv`` a table.
"""

import gzip
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from margin.core.catalog import Format, Part, UnknownName, formats, nearest, resolve, sources


@dataclass(frozen=True, eq=False)
class Source:
    """Data as they are given; what they are is found out once, when it is asked for.

    Args:
        given: A name of :func:`margin.core.catalog.sources`, a path, possibly behind a prefix, or an object.
    """

    given: Any

    @classmethod
    def of(cls, given: Any) -> "Source":
        """The source that something is; of a source itself."""
        return given if isinstance(given, Source) else cls(given)

    @property
    def is_path(self) -> bool:
        """Whether it is text or a path: not an object."""
        return isinstance(self.given, str | os.PathLike)

    @cached_property
    def prefix(self) -> str:
        """The format that the source begins with, or "".

        Raises:
            FileNotFoundError: There is nothing at the path behind it.
        """
        word, colon, path = self.given.partition(":") if isinstance(self.given, str) else ("", "", "")
        if not colon or word not in prefixes() or Path(self.given).exists():
            return ""
        if not Path(path).exists():
            raise FileNotFoundError(f"no such file: {path}")
        return word

    @cached_property
    def bare(self) -> Any:
        """The path behind a prefix; any other source as it is."""
        return self.given.partition(":")[2] if self.prefix else self.given

    @property
    def place(self) -> str:
        """The absolute path, behind its prefix."""
        return f"{self.prefix}:" * bool(self.prefix) + str(Path(self.bare).resolve())

    @property
    def called(self) -> str:
        """What a message calls it."""
        return str(self.given) if self.is_path else type(self.given).__name__

    @cached_property
    def is_name(self) -> bool:
        """Whether it is a name rather than a path.

        Raises:
            FileNotFoundError: It is neither.
            UnknownName: It is neither, and looks like a name.
        """
        path = Path(self.given)
        if self.given in sources():
            return True
        if not path.exists() and any(part.name == self.given for part in sources().values()):
            return True
        if path.exists():
            return False
        if not isinstance(self.given, str) or path.name != self.given or _ending(path):
            raise FileNotFoundError(f"no such file: {self.given}{_elsewhere(str(self.given))}")
        near = ", ".join(nearest(self.given, sources())) or ", ".join(sources())
        raise UnknownName(f"unknown data set {self.given!r}, and no file is called so; nearest: {near}")

    @cached_property
    def form(self) -> str:
        """The name of its format; "data" of data that are read already, "name" of a set by name.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The name is unknown, or nothing reads such a source.
        """
        if is_data(self.given):
            return "data"
        if self.is_path:
            if self.prefix:
                return self.prefix
            return "name" if self.is_name else _form_of_path(Path(self.given))
        for row in formats().values():
            if row.known and resolve(row.known)(self.given):
                return row.name
        raise ValueError(
            "data must be a name, a path, an array x, arrays (x, y), a DataFrame, a torch Dataset or "
            f"DataLoader, or a Data: got {type(self.given).__name__}{converted(self.given)}"
        )

    @property
    def format(self) -> Format | None:
        """Its format; None of a name and of data."""
        return formats().get(self.form)

    @cached_property
    def reader(self) -> Callable[..., Any]:
        """The function that reads it; its keyword-only parameters are the source's options.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The name is unknown, or nothing reads such a source.
        """
        if self.form == "data":
            raise ValueError("data that are already read have no reader")
        if self.format is None:
            return _with_randomization(resolve(_part_of(self.given).target))
        if not self.format.reader:
            raise ValueError(f"{self.given}: {self.format.refusal}")
        return _with_randomization(resolve(self.format.reader))


def _with_randomization(reader: Callable[..., Any]) -> Callable[..., Any]:
    # by name: what loads torch waits until there is something to read
    found: Callable[..., Any] = resolve("margin.data.transforms.randomization:randomizable")(reader)
    return found


def prefixes() -> tuple[str, ...]:
    """What a file is read as where its ending leaves it open: ``series:prices.csv``, ``graph:edges.csv``.

    A run keeps the format in its record, so new data for it need no prefix.
    """
    return tuple(row.name for row in formats().values() if row.prefix)


def endings() -> dict[str, str]:
    """The format of each ending of a file."""
    return {ending: row.name for row in formats().values() for ending in row.endings}


# objects in memory, known without loading the libraries that they are of


def is_data(source: Any) -> bool:
    """Whether an object is a Data; none is there before its module is loaded."""
    examples = sys.modules.get("margin.data.examples")
    return examples is not None and isinstance(source, examples.Data)


def is_graph(source: Any) -> bool:
    """Whether an object is a graph: of networkx, or what has ``x`` and ``edge_index``."""
    if type(source).__module__.partition(".")[0] == "networkx":
        return True
    return hasattr(source, "edge_index") and hasattr(source, "x")


def are_graphs(source: Any) -> bool:
    """Whether an object is a list of graphs, one at least."""
    return isinstance(source, tuple | list) and bool(source) and all(map(is_graph, source))


def is_pair(source: Any) -> bool:
    """Whether an object is a pair of inputs and targets, the inputs one array."""
    pair = isinstance(source, tuple | list) and len(source) == 2 and not are_graphs(source)
    return pair and source[1] is not None and not _is_ragged(source[0]) and not _of_strings(source)


def _of_strings(source: Any) -> bool:
    return are_documents(source) or is_texts(source) or is_tagged(source)


def is_texts(source: Any) -> bool:
    """Whether an object is a pair of texts and targets."""
    pair = isinstance(source, tuple | list) and len(source) == 2 and source[1] is not None
    if not pair or isinstance(source[0], str) or not hasattr(source[0], "__iter__"):
        return False
    return getattr(source[0], "ndim", 1) == 1 and isinstance(next(iter(source[0]), None), str)


def is_tagged(source: Any) -> bool:
    """Whether an object is a pair of lists of words and their tags."""
    pair = isinstance(source, tuple | list) and len(source) == 2 and source[1] is not None
    return pair and all(
        isinstance(part, tuple | list)
        and bool(part)
        and all(isinstance(row, tuple | list) and all(isinstance(x, str) for x in row) for row in part)
        for part in source
    )


def are_documents(source: Any) -> bool:
    """Whether an object is a list of texts."""
    return isinstance(source, list) and bool(source) and all(isinstance(text, str) for text in source)


def is_array(source: Any) -> bool:
    """Whether an object is inputs alone: an array or a tensor, or a pair of one and None."""
    pair = isinstance(source, tuple | list) and len(source) == 2 and source[1] is None
    x = source[0] if pair else source
    return type(x).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(x, "ndim")


def is_ragged(source: Any) -> bool:
    """Whether an object is a pair of inputs and targets, the inputs arrays of several lengths."""
    pair = isinstance(source, tuple | list) and len(source) == 2 and not are_graphs(source)
    return pair and _is_ragged(source[0])


def _is_ragged(x: Any) -> bool:
    arrays = isinstance(x, tuple | list) and all(getattr(item, "ndim", 0) for item in x)
    return arrays and len({len(item) for item in x}) > 1


def is_frame(source: Any) -> bool:
    """Whether an object is a polars or pandas DataFrame."""
    library = type(source).__module__.partition(".")[0]
    return library in ("polars", "pandas") and type(source).__name__ == "DataFrame"


def is_dataset(source: Any) -> bool:
    """Whether an object is torch's Dataset with an index, or a DataLoader of one."""
    from torch.utils.data import DataLoader, Dataset

    return isinstance(source, Dataset | DataLoader) and not is_stream(source)


def is_stream(source: Any) -> bool:
    """Whether an object is torch's IterableDataset, or a DataLoader of one."""
    from torch.utils.data import DataLoader, IterableDataset

    return isinstance(source.dataset if isinstance(source, DataLoader) else source, IterableDataset)


def converted(source: Any) -> str:
    """How a table of another library becomes a DataFrame, as the end of a message; "" where none is known."""
    library = type(source).__module__.partition(".")[0]
    if library == "datasets" and isinstance(source, dict):
        return f"; take one of its parts, as data[{next(iter(source), 'train')!r}].to_pandas()"
    way = next((name for name in ("to_pandas", "to_polars", "toPandas") if hasattr(source, name)), "")
    if not way and library == "polars" and hasattr(source, "collect"):
        way = "collect"
    return f"; give data.{way}(), a DataFrame" if way else ""


# names and files


def _part_of(name: str) -> Part:
    """The row of a source by its name, short or whole."""
    return sources().get(name) or next(part for part in sources().values() if part.name == name)


FOREIGN = {
    "xlsx xlsm xls ods numbers": "save the sheet as CSV (in Excel as CSV UTF-8)",
    "zip 7z rar tar tgz bz2 xz": "unpack it, and name what was in it",
    "json": "write it as CSV or Parquet: pandas.read_json(FILE).to_csv(NEW, index=False)",
    "pkl pickle joblib": "no pickle is read, which may run anything: write arrays as .npz, a table as CSV",
    "feather arrow": "write it as Parquet: pandas.read_feather(FILE).to_parquet(NEW)",
    "h5 hdf5 mat": "write its arrays as .npz: numpy.savez(NEW, x=..., y=...)",
}
"""What is done about files that nothing here reads, by their endings."""


def _elsewhere(given: str) -> str:
    """Where a file that is not there may be, as the end of a message."""
    if re.match("[a-z]+://", given):
        return "; download it first"
    folder = Path(given).parent
    there = [path.name for path in islice(folder.iterdir(), 1000)] if folder.is_dir() else []
    near = nearest(Path(given).name, there, 1, alike=0.7)
    return f"; nearest: {folder / near[0]}" if near else ""


def _ending(path: Path) -> str:
    """The ending that says what is in a file, ``.gz`` apart."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _form_of_path(path: Path) -> str:
    """The format of a file by its ending, else by its first bytes; of a folder by the files in it."""
    from margin.data.files.reading import regular  # with numpy, which no message about a name needs

    if path.is_dir():
        found = (row.name for row in formats().values() if any(_holds(path, each) for each in row.holds))
        return next(found, "folder")
    regular(path)
    if "ubyte" in path.name:
        return "idx"
    if form := endings().get(_ending(path)):
        return form
    kind = _ending(path).removeprefix(".")
    if remedy := next((how for kinds, how in FOREIGN.items() if kind in kinds.split()), ""):
        raise ValueError(f"{path}: no reader for such a file: {remedy}")
    start = _start(path)
    if start[:2] == b"\0\0" and len(start) > 3:
        return "idx"
    if b"\0" not in start and not start.startswith(b"PK"):
        return "table"
    raise ValueError(
        f"{path}: no reader for such a file; known endings: {', '.join(endings())}, each with .gz"
    )


def _holds(folder: Path, pattern: str) -> bool:
    """Whether a folder holds a file of a pattern; of several with " + " between them, one of each."""
    return all(any(folder.glob(one)) for one in pattern.split(" + "))


def _start(path: Path) -> bytes:
    from margin.data.files.reading import reading

    if path.suffix != ".gz":
        with path.open("rb") as file:
            return file.read(1024)
    with reading(path, "a whole gzip file", parsers=("gzip",)), gzip.open(path) as packed:
        return packed.read(1024)
