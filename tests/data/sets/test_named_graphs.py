"""Sets by name: their sizes as published, and what is said where their files are not there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from margin.data.data_home import placed
from margin.data.formats.graphs.parts import Nodes
from margin.data.sets import named_graphs


def test_files_that_are_not_there_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: Callable
) -> None:
    monkeypatch.delenv("MARGIN_DATA", raising=False)
    with refused("cora needs planetoid/cora.npz", "MARGIN_DATA", "not set", error=FileNotFoundError):
        named_graphs.cora()
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path))
    with refused(f"mutag needs {tmp_path}/graphclass/MUTAG", error=FileNotFoundError):
        named_graphs.mutag()
    (tmp_path / "a").mkdir()
    assert placed("a", ["a"]) == [tmp_path / "a"]


def test_cora_and_citeseer_have_their_subjects(shared: Path) -> None:
    """Papers of each subject as the sets of Sen et al. (2008) count them."""
    cora = named_graphs.cora()
    labels = cora.splits["train"].known
    counts = dict(zip(cora.encoding["classes"], labels.bincount().tolist(), strict=True))
    assert counts == {
        "Case Based": 298,
        "Genetic Algorithms": 418,
        "Neural Networks": 818,
        "Probabilistic Methods": 426,
        "Reinforcement Learning": 217,
        "Rule Learning": 180,
        "Theory": 351,
    }
    citeseer = named_graphs.citeseer()
    labels = citeseer.splits["train"].known.bincount()
    labels[0] -= 15  # the papers without a subject hold a place there
    assert dict(zip(citeseer.encoding["classes"], labels.tolist(), strict=True)) == {
        "Agents": 596,
        "Artificial Intelligence": 249,
        "Databases": 701,
        "Human-Computer Interaction": 508,
        "Information Retrieval": 668,
        "Machine Learning": 590,
    }


def test_options_reach_the_named_sets(shared: Path) -> None:
    photo = named_graphs.amazon_photo()
    assert {part: len(one) for part, one in photo.splits.items()} == {"train": 160, "val": 240, "test": 7250}
    inductive = named_graphs.cora(setting="inductive", normalize="none", split="random")
    train = inductive.splits["train"]
    assert isinstance(train, Nodes)
    assert train.graph.num_nodes == len(train) == 1625  # 60% of 2,708
    assert train.graph.x.unique().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "kinds", "classes"), [("mutag", 7, 2), ("proteins", 3, 2), ("ptc", 19, 2), ("enzymes", 3, 6)]
)
def test_sets_of_graphs(name: str, kinds: int, classes: int, shared: Path) -> None:
    data = getattr(named_graphs, name)(fold=2)
    assert data.name == name
    assert (data.spec["node_features"], data.spec["num_classes"]) == (kinds, classes)
    assert data.encoding["split"]["official"]


def test_point_clouds(shared: Path) -> None:
    two = named_graphs.modelnet2()
    assert {part: len(one) for part, one in two.splits.items()} == {"train": 922, "val": 163, "test": 269}
    assert two.encoding["classes"] == ["chair", "monitor"]
    ten = named_graphs.shapenet10(points=64)
    assert ten.splits["train"].inputs[0].shape == (56, 64, 3)
    assert len(ten.encoding["classes"]) == 10
