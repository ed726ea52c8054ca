"""Data without targets: every entry whose loss reads none trains on them, to the same weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import margin
from margin.core.catalog import data_parameters, models, resolve
from margin.data.examples import Arrays, Data
from margin.engine.check_options import check_task, targets_read
from smaller import SMALLER

# a text has no targets that could be left out
UNLABELED = [
    name for name, entry in models().items() if not targets_read(entry) and not name.startswith("text/")
]
OF_ROWS = {"in_features", "num_classes", "num_examples"}
CLASSES = [
    name
    for name, entry in models().items()
    if targets_read(entry) == "classes" and set(data_parameters(resolve(entry.build))) <= OF_ROWS
]


def without_targets(data: Data) -> Data:
    parts: dict[str, Any] = {}
    for name, part in data.splits.items():
        assert isinstance(part, Arrays)
        parts[name] = replace(part, targets=None)
    encoding = {**data.encoding, "task": "none", "classes": []}
    spec = {key: value for key, value in data.spec.items() if key != "num_classes"}
    return replace(data, splits=parts, encoding=encoding, spec=spec)


def test_they_are_the_models_of_inputs_alone() -> None:
    families = {"/".join(entry.build.split(".")[1:3]) for entry in map(models().__getitem__, UNLABELED)}
    assert families >= {
        "generative/autoencoder",
        "generative/diffusion",
        "generative/flow",
        "generative/gan",
        "generative/latent",
        "classic/factors",
        "classic/memory",
    }
    for name in UNLABELED:
        assert not name.rpartition("/")[2].startswith("conditional")
        assert resolve(models()[name].task).loss is None


@pytest.mark.parametrize("name", UNLABELED)
def test_a_training_without_labels_is_the_one_with_labels_to_the_bit(name: str, tmp_path: Path) -> None:
    data = resolve(models()[name].tiny)()
    weights = []
    for label, given in (("with", data), ("without", without_targets(data))):
        options, training = SMALLER.get(name, {}), margin.Training(max_steps=2)
        run = margin.train(name, given, options, training, out=tmp_path / label)
        weights.append(margin.load(run).state_dict())
    assert weights[0].keys() == weights[1].keys()
    for key, value in weights[0].items():
        assert torch.equal(value, weights[1][key]), key


@pytest.mark.parametrize("name", CLASSES)
def test_a_model_of_classes_says_how_examples_get_them(name: str) -> None:
    data = without_targets(resolve("margin.data.sets.tiny.tables:moons")())
    with pytest.raises(
        ValueError, match=r"needs classes as targets: .* has none; give .*x, y.*models that fit: "
    ):
        check_task(models()[name], data)
