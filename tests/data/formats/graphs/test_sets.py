"""Sets of graphs in files as data: labels one-hot, degrees, folds, new graphs by the record."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from margin.data.formats.graphs.sets import encode_graphs, read_graphs
from margin.data.open import encode, open_data


def write(path: Path, count: int = 20, *, tags: str = "013", labels: str = "02", folds: bool = False) -> Path:
    """Paths of 2 and 3 nodes; the label of node i is ``tags[i]``, in the last two graphs turned round."""
    lines = [str(count)]
    for k in range(count):
        size = 2 + k % 2
        lines.append(f"{size} {labels[k % 2]}")
        for i in range(size):
            near = [j for j in (i - 1, i + 1) if 0 <= j < size]
            lines.append(" ".join(map(str, [tags[-1 - i] if k >= 18 else tags[i], len(near), *near])))
    path.mkdir(exist_ok=True)
    (path / f"{path.name}.txt").write_text("\n".join(lines) + "\n")
    if folds:
        (path / "10fold_idx").mkdir()
        for fold in range(1, 11):
            test = [2 * fold - 2, 2 * fold - 1]
            train = [k for k in range(count) if k not in test]
            for part, chosen in (("train", train), ("test", test)):
                text = "".join(f"{k}\n" for k in chosen)
                (path / "10fold_idx" / f"{part}_idx-{fold}.txt").write_text(text)
    return path


def test_labels_become_features_and_classes(tmp_path: Path) -> None:
    data = open_data(f"graphs:{write(tmp_path / 'SET')}", {})
    assert data.encoding["classes"] == ["0", "2"]
    assert data.spec["node_features"] == 3
    train = data.splits["train"]
    first = int(train.graph.sizes[0])
    assert train.graph.x[:first].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]][:first]
    assert train.targets.tolist() == [int(size) - 2 for size in train.graph.sizes]


def test_degrees_become_features_too(tmp_path: Path) -> None:
    data = read_graphs(write(tmp_path / "SET"), degree="one_hot")
    assert data.spec["node_features"] == 3 + 3
    train = data.splits["train"].graph
    assert torch.equal(train.x[:, 3:].argmax(1), train.in_degrees())
    bigger = tmp_path / "BIG.txt"
    bigger.write_text("1\n4 0\n0 3 1 2 3\n1 1 0\n1 1 0\n1 1 0\n")
    new = encode_graphs(bigger, data.encoding)
    assert new.graph.x[0, 3:].tolist() == [0, 0, 1]  # degree 3 counts as the largest of training


def test_a_fold_is_the_test_part(tmp_path: Path, refused: Callable) -> None:
    folder = write(tmp_path / "SET", folds=True)
    data = read_graphs(folder, fold=3)
    assert data.splits["test"].graph.sizes.tolist() == [2, 3]
    assert len(data.splits["train"]) + len(data.splits["val"]) == 18
    assert data.notes == ("the test part is fold 3 of 10",)
    assert read_graphs(folder, fold=10).fingerprint != data.fingerprint
    with refused("fold must be in 1 .. 10: got 11"):
        read_graphs(folder, fold=11)
    with refused("no such file", "train_idx-1.txt", error=FileNotFoundError):
        read_graphs(write(tmp_path / "NOFOLDS"), fold=1)
    (folder / "10fold_idx" / "test_idx-1.txt").write_text("0\n20\n")
    with refused("test_idx-1.txt must name graphs 0 .. 19"):
        read_graphs(folder, fold=1)
    (folder / "10fold_idx" / "test_idx-1.txt").write_text("5\n")
    with refused("graph 5 is in both parts of fold 1"):
        read_graphs(folder, fold=1)


def test_a_tu_folder_is_found_by_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "DS"
    folder.mkdir()
    (folder / "DS_A.txt").write_text(
        "".join(f"{2 * k + 1}, {2 * k + 2}\n{2 * k + 2}, {2 * k + 1}\n" for k in range(20))
    )
    (folder / "DS_graph_indicator.txt").write_text("".join(f"{k}\n{k}\n" for k in range(1, 21)))
    (folder / "DS_graph_attributes.txt").write_text("".join(f"{k}.5\n" for k in range(20)))
    (folder / "DS_edge_labels.txt").write_text("4\n9\n" * 20)
    data = open_data(str(folder), {})
    assert data.encoding["task"] == "values"
    assert data.splits["train"].graph.edge_attr[:2].tolist() == [[1, 0], [0, 1]]
    assert data.splits["train"].graph.x.unique().tolist() == [1]
    assert "feature 1" in data.notes[0]
    assert read_graphs(folder, task="values").fingerprint == data.fingerprint


def test_new_graphs_by_the_record(tmp_path: Path, refused: Callable) -> None:
    record = read_graphs(write(tmp_path / "SET")).encoding
    new = encode(f"graphs:{write(tmp_path / 'NEW', 3, tags='301')}", record)
    assert new.targets.tolist() == [0, 1, 0]
    assert new.graph.x[:2].tolist() == [[0, 0, 1], [1, 0, 0]]
    with refused("node 0 has label 4: the run knows 0, 1, 3"):
        encode_graphs(write(tmp_path / "A", tags="401"), record)
    with refused("every class must be one of '0', '2'", "got '1'"):
        encode_graphs(write(tmp_path / "B", labels="01"), record)
    with refused("must have labels, as the run's have"):
        (tmp_path / "C").mkdir()
        (tmp_path / "C" / "C_A.txt").write_text("1, 2\n")
        (tmp_path / "C" / "C_graph_indicator.txt").write_text("1\n1\n")
        encode_graphs(tmp_path / "C", record)


def test_training_needs_targets(tmp_path: Path, refused: Callable) -> None:
    (tmp_path / "C").mkdir()
    (tmp_path / "C" / "C_A.txt").write_text("1, 2\n")
    (tmp_path / "C" / "C_graph_indicator.txt").write_text("1\n1\n")
    with refused("there is no file of graph labels"):
        read_graphs(tmp_path / "C")


@pytest.mark.parametrize(
    ("name", "graphs"), [("MUTAG", 188), ("PROTEINS", 1113), ("PTC", 344), ("ENZYMES", 600)]
)
def test_the_given_folds_hold_a_tenth_out(name: str, graphs: int, shared: Path) -> None:
    sizes = []
    for fold in (1, 10):
        data = read_graphs(shared / "graphclass" / name, fold=fold, val=0.0)
        sizes.append({part: len(one) for part, one in data.splits.items()})
    assert sizes == [{"train": graphs - graphs // 10, "test": graphs // 10}] * 2
