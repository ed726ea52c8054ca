"""One graph in files: folders of tables, edge tables, arrays, GraphML; options by name; new graphs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from margin.data.formats.graphs.files import encode_graph, files_of, load_npz, read_graph
from margin.data.open import encode, open_data


def tables(folder: Path, count: int = 40, *, labels: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    head = "id,f,label\n" if labels else "id,f\n"
    rows = [f"n{k},{k}.5" + (f",{'uv'[k % 2]}" if labels else "") for k in range(count)]
    (folder / "nodes.csv").write_text(head + "\n".join(rows) + "\n")
    pairs = [f"n{k},n{(k + 1) % count}" for k in range(count)]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(pairs) + "\n")
    return folder


def parts(data: Any) -> dict[str, int]:
    return {part: len(nodes) for part, nodes in data.splits.items()}


def test_a_folder_of_two_tables(tmp_path: Path) -> None:
    data = open_data(str(tables(tmp_path / "town")), {})
    assert parts(data) == {"train": 24, "val": 6, "test": 10}
    graph = data.splits["train"].graph
    assert (graph.num_nodes, graph.num_edges) == (40, 80)
    assert data.encoding["classes"] == ["u", "v"]
    assert data.splits["train"].names[3] == "n3"
    again = read_graph(tmp_path / "town")
    assert again.fingerprint == data.fingerprint


def test_an_edge_table_with_its_nodes_beside_it_or_named(tmp_path: Path, refused: Callable) -> None:
    folder = tables(tmp_path / "a")
    beside = open_data(f"graph:{folder / 'edges.csv'}", {})
    (folder / "nodes.csv").rename(tmp_path / "people.csv")
    with refused("--data.nodes-file, or nodes.csv beside it", error=FileNotFoundError):
        read_graph(folder / "edges.csv")
    named = read_graph(folder / "edges.csv", nodes_file=str(tmp_path / "people.csv"))
    assert named.fingerprint == beside.fingerprint


def test_parquet_and_tabs(tmp_path: Path) -> None:
    import polars as pl

    folder = tables(tmp_path / "a")
    first = read_graph(folder).fingerprint
    pl.read_csv(folder / "nodes.csv").write_parquet(folder / "nodes.parquet")
    (folder / "edges.tsv").write_text((folder / "edges.csv").read_text().replace(",", "\t"))
    (folder / "nodes.csv").unlink()
    (folder / "edges.csv").unlink()
    assert read_graph(folder).fingerprint == first


def test_missing_files_are_named(tmp_path: Path, refused: Callable) -> None:
    (tmp_path / "b").mkdir()
    with refused("must hold edges.csv", error=FileNotFoundError):
        read_graph(tmp_path / "b")
    with refused("no such file or folder", error=FileNotFoundError):
        files_of(tmp_path / "c.csv", "")


def arrays(path: Path, **changes: Any) -> Path:
    at = np.arange(40)
    given = {
        "x": np.stack((at, at % 3), 1).astype(np.float32),
        "edge_index": np.stack((at, (at + 1) % 40)),
        "y": at % 2,
        "train_idx": at[:20],
        "val_idx": at[20:30],
        "test_idx": at[30:],
    }
    np.savez(path, **{key: value for key, value in {**given, **changes}.items() if value is not None})
    return path


def test_arrays_keep_their_parts(tmp_path: Path) -> None:
    path = arrays(tmp_path / "g.npz")
    data = open_data(f"graph:{path}", {"normalize": "rows", "neighbors": (3, 3)})
    assert parts(data) == {"train": 20, "val": 10, "test": 10}
    assert data.splits["val"].graph.num_edges == 40
    assert read_graph(path, directed="undirected").splits["val"].graph.num_edges == 80
    new = encode(f"graph:{path}", data.encoding)
    assert new.index.tolist() == list(range(30, 40))
    assert torch.allclose(new.graph.x[1:].sum(1), torch.ones(39))


def test_sparse_rows_are_the_matrix(tmp_path: Path) -> None:
    from scipy.sparse import random as random_sparse

    matrix = random_sparse(40, 9, 0.2, "csr", random_state=np.random.default_rng(0), dtype=np.float32)
    sparse = {
        "x_data": matrix.data,
        "x_indices": matrix.indices,
        "x_indptr": matrix.indptr,
        "x_shape": matrix.shape,
    }
    path = arrays(tmp_path / "g.npz", x=None, **sparse)
    assert np.array_equal(load_npz(path).x, matrix.toarray())
    assert read_graph(path).spec["node_features"] == 9


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"edge_index": None}, ("needs an array edge_index", "got x, y")),
        ({"x": None, "x_data": [1.0]}, ("missing x_indices, x_indptr, x_shape",)),
        (
            {"x": None, "x_data": [1.0], "x_indices": [9], "x_indptr": [0] + [1] * 40, "x_shape": [40, 9]},
            ("x_indices must name columns 0 .. 8",),
        ),
        (
            {"x": None, "x_data": [1.0], "x_indices": [0], "x_indptr": [0] * 41, "x_shape": [40, 9]},
            ("x_indptr must ascend to the 1 numbers",),
        ),
        ({"y": None}, ("g.npz: training needs nodes with a target",)),
    ],
)
def test_wrong_arrays_are_refused(
    changes: dict[str, Any], texts: tuple[str, ...], tmp_path: Path, refused: Callable
) -> None:
    path = arrays(tmp_path / "g.npz", **changes)
    with refused(*texts):
        read_graph(path)


def test_a_pickle_is_not_read(tmp_path: Path, refused: Callable) -> None:
    path = arrays(tmp_path / "g.npz", classes=np.array([{}], dtype=object))
    with refused("array 'classes': not a file of plain arrays: it holds Python objects"):
        read_graph(path)
    (tmp_path / "h.npz").write_bytes(b"nothing")
    with refused("h.npz: not a file of plain arrays"):
        read_graph(tmp_path / "h.npz")
    with refused("no such file", error=FileNotFoundError):
        load_npz(tmp_path / "i.npz")


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph])
def test_graphml(kind: type, tmp_path: Path) -> None:
    graph = kind()
    for k in range(40):
        graph.add_node(f"n{k}", f=float(k), label="uv"[k % 2])
    graph.add_edges_from((f"n{k}", f"n{(k + 1) % 40}") for k in range(40))
    path = tmp_path / "g.graphml"
    nx.write_graphml(graph, path)
    data = open_data(str(path), {})
    assert data.splits["train"].graph.num_edges == (40 if kind is nx.DiGraph else 80)
    new = encode(str(path), data.encoding)
    assert new.names == tuple(f"n{k}" for k in range(40))
    assert new.targets.tolist() == [0, 1] * 20


def test_new_tables_are_read_by_the_record(tmp_path: Path, refused: Callable) -> None:
    record = read_graph(tables(tmp_path / "a")).encoding
    new = encode(str(tables(tmp_path / "b", 5, labels=False)), record)
    assert len(new) == 5
    assert new.targets is None
    assert new.graph.x.flatten().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    npz = arrays(tmp_path / "g.npz")
    with refused("the run was trained on tables: got arrays"):
        encode_graph(npz, record)
    with refused("the run was trained on arrays: got a table"):
        encode_graph(tmp_path / "b", read_graph(npz).encoding)


def test_planetoids_standard_sets(shared: Path) -> None:
    """The sizes that Yang, Cohen and Salakhutdinov (2016, table 1) state; Citeseer's papers without words."""
    for name, nodes, edges, words, labels in (
        ("cora", 2708, 10556, 1433, 140),
        ("citeseer", 3327, 9104, 3703, 120),
    ):
        data = read_graph(shared / "planetoid" / f"{name}.npz", normalize="rows")
        graph = data.splits["train"].graph
        assert (graph.num_nodes, graph.num_edges, graph.x.shape[1]) == (nodes, edges, words)
        assert parts(data) == {"train": labels, "val": 500, "test": 1000}
        sums = graph.x.sum(1)
        blank = graph.x.abs().sum(1) == 0
        assert int(blank.sum()) == (15 if name == "citeseer" else 0)
        assert torch.allclose(sums[~blank], torch.ones(int((~blank).sum())), atol=1e-5)
        assert graph.is_undirected()
        if name == "citeseer":
            assert int(graph.isolated().sum()) == 48
