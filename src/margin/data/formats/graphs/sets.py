"""Sets of graphs in files as data: what becomes a feature, what a target, which graphs are held out."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.data.examples import Data
from margin.data.formats.graphs.graphs import Graph
from margin.data.formats.graphs.objects import encode_objects
from margin.data.formats.graphs.parts import Graphs
from margin.data.formats.graphs.set_data import RawGraphs, graph_set_data, new_graphs
from margin.data.formats.graphs.set_files import Found, load_graphs, numbers_of
from margin.data.options import option_groups
from margin.data.splits import Split, TaskName

Degree = Literal["none", "one_hot"]


@option_groups()
def read_graphs(
    path: str | os.PathLike[str],
    *,
    task: TaskName | None = None,
    degree: Degree = "none",
    fold: int | None = None,
    split: Split = Split(),
) -> Data:
    """Graphs with a target each: a TU-format folder, or a text file of graphs, or a folder with one.

    Node labels become one 0/1 feature for each that occurs, attributes stand before them; where there is
    neither, every node has the feature 1. Labels of graphs become classes in ascending order.

    Args:
        path: The folder or the file.
        task: Whether targets are classes or values, where the file's name does not say.
        degree: Whether a node's degree becomes 0/1 features too, one for each degree up to the largest.
        fold: Of a folder with ``10fold_idx``, the fold (1 .. 10) whose graphs are the test part.
        split: Test and validation part, seed.
        test: Share of the test part; without effect with a fold.

    Returns:
        Data in the user's units.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A line cannot be read; the message names file and line.
    """
    path = Path(path)
    found = load_graphs(path)
    if found.targets is None:
        raise ValueError(f"{path}: training needs a target for each graph: there is no file of graph labels")
    task = task or ("values" if found.values else "classes")
    record = _record_of(found, degree)
    targets, classes = found.targets, tuple[str, ...]()
    if task == "classes":
        kinds, targets = np.unique(found.targets, return_inverse=True)
        classes = tuple(_word(kind) for kind in kinds)
    raw = RawGraphs(
        name=path.name,
        graph=_graph(found, record),
        targets=targets,
        task=task,
        classes=classes,
        official={} if fold is None else _fold(path, fold, len(found.sizes)),
        encoding={"graphs": record},
        notes=tuple(_notes(found, fold)),
    )
    return graph_set_data(raw, split)


def encode_graphs(source: Any, encoding: Mapping[str, Any]) -> Graphs:
    """The graphs of files or in memory by the record of a finished run; without targets where there are none.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A node label or a class is unknown, or a line cannot be read.
    """
    if not isinstance(source, str | os.PathLike):
        return encode_objects(source, encoding)
    if "graphs" not in encoding:
        raise ValueError(f"{source}: the run was not trained on files of graphs")
    found = load_graphs(Path(source))
    targets: Any = found.targets
    if targets is not None and encoding["task"] == "classes":
        targets = np.array([_word(label) for label in targets])
    return new_graphs(_graph(found, encoding["graphs"]), targets, encoding, str(source))


def _record_of(found: Found, degree: Degree) -> dict[str, Any]:
    """What the encoding keeps: the labels that occur, and the largest degree."""
    record: dict[str, Any] = {"tags": None, "edge_tags": None, "largest_degree": None}
    if found.tags is not None:
        record["tags"] = np.unique(found.tags).tolist()
    if found.edge_tags is not None:
        record["edge_tags"] = np.unique(found.edge_tags).tolist()
    if degree == "one_hot":
        record["largest_degree"] = int(_degrees(found).max(initial=0))
    return record


def _degrees(found: Found) -> NDArray[np.int64]:
    return np.bincount(found.edge_index[1], minlength=int(found.sizes.sum()))


def _graph(found: Found, record: Mapping[str, Any]) -> Graph:
    """The graphs with their features: attributes, labels one-hot, degrees one-hot; else 1."""
    blocks = [found.attributes]
    if record["tags"] is not None:
        blocks.append(_one_hot(found.tags, record["tags"], f"{found.name}: node"))
    if record["largest_degree"] is not None:
        # A degree beyond the largest of training counts as that: there is no feature of its own.
        degrees = np.minimum(_degrees(found), record["largest_degree"])
        blocks.append(_one_hot(degrees, range(record["largest_degree"] + 1), f"{found.name}: node"))
    nodes = int(found.sizes.sum())
    if sum(block.shape[1] for block in blocks) == 0:
        blocks = [np.ones((nodes, 1))]
    carried = [found.edge_attributes]
    if record["edge_tags"] is not None:
        carried.append(_one_hot(found.edge_tags, record["edge_tags"], f"{found.name}: edge"))
    try:
        return Graph(
            torch.from_numpy(np.concatenate(blocks, 1)).float(),
            torch.from_numpy(np.ascontiguousarray(found.edge_index)),
            torch.from_numpy(np.concatenate(carried, 1)).float(),
            torch.from_numpy(found.sizes),
        )
    except ValueError as error:
        raise ValueError(f"{found.name}: {error}") from None


def _one_hot(labels: NDArray[np.int64] | None, known: Any, what: str) -> NDArray[np.float64]:
    if labels is None:
        raise ValueError(f"{what}s must have labels, as the run's have: there are none")
    kinds = np.asarray(known)
    places = np.searchsorted(kinds, labels).clip(max=len(kinds) - 1)
    wrong = np.flatnonzero(kinds[places] != labels)
    if len(wrong):
        raise ValueError(
            f"{what} {wrong[0]} has label {labels[wrong[0]]}: the run knows {', '.join(map(str, kinds))}"
        )
    return np.eye(len(kinds))[places]


def _fold(path: Path, fold: int, count: int) -> dict[str, Tensor]:
    """The parts of a fold: training and test graphs, by number from 0."""
    folder = (path if path.is_dir() else path.parent) / "10fold_idx"
    if not 1 <= fold <= 10:
        raise ValueError(f"fold must be in 1 .. 10: got {fold}")
    parts = {}
    for part in ("train", "test"):
        index = numbers_of(folder / f"{part}_idx-{fold}.txt", np.int64)[:, 0]
        if len(index) == 0 or not 0 <= index.min() <= index.max() < count:
            raise ValueError(f"{folder / part}_idx-{fold}.txt must name graphs 0 .. {count - 1}")
        parts[part] = torch.from_numpy(index).sort().values
    if shared := set(parts["train"].tolist()) & set(parts["test"].tolist()):
        raise ValueError(f"{folder}: graph {min(shared)} is in both parts of fold {fold}")
    return parts


def _notes(found: Found, fold: int | None) -> list[str]:
    notes = [] if fold is None else [f"the test part is fold {fold} of 10"]
    if found.tags is None and found.attributes.shape[1] == 0:
        notes.append("the nodes have neither labels nor attributes: each has the feature 1")
    return notes


def _word(label: Any) -> str:
    return str(int(label)) if float(label).is_integer() else str(label)
