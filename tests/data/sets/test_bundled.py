"""The five sets that ship: published numbers, the user's units, nothing fitted on the test part."""

import json
import subprocess
import sys

import numpy as np
import pytest
import sklearn.datasets
import torch

from margin.data.sets import bundled
from margin.data.sets.bundled import breast_cancer, diabetes, digits, iris, wine

SETS = {
    "digits": (digits, 1797, (1, 8, 8), 10),
    "iris": (iris, 150, (4,), 3),
    "wine": (wine, 178, (13,), 3),
    "breast-cancer": (breast_cancer, 569, (30,), 2),
    "diabetes": (diabetes, 442, (10,), None),
}


@pytest.mark.parametrize("name", SETS)
def test_size_shape_classes_and_record(name: str) -> None:
    source, count, shape, classes = SETS[name]
    data = source()
    assert data.name == name
    assert set(data.splits) == {"train", "val", "test"}
    assert sum(len(part) for part in data.splits.values()) == count
    assert {part.inputs[0].shape[1:] for part in data.splits.values()} == {shape}
    assert {part.inputs[0].dtype for part in data.splits.values()} == {torch.float32}
    assert data.spec["num_examples"] == len(data.splits["train"])
    assert data.spec["in_features"] == torch.Size(shape).numel()
    assert data.spec.get("num_classes") == classes
    assert json.loads(json.dumps(dict(data.encoding))) == dict(data.encoding)
    assert len(data.encoding["classes"]) == (classes or 0)
    assert data.encoding["split"] == {"test": 0.25, "val": 0.15, "seed": 0, "official": False}
    target = data.splits["train"].targets
    assert target.dtype == (torch.int64 if classes else torch.float32)
    assert target.shape == (len(data.splits["train"]),)
    assert source().fingerprint == data.fingerprint != source(split_seed=1).fingerprint


@pytest.mark.parametrize("name", SETS)
def test_preprocessing_is_fitted_on_the_training_part_alone(name: str) -> None:
    data = SETS[name][0]()
    train = data.splits["train"].inputs[0]
    axes = (0, 2, 3) if train.ndim == 4 else 0
    seen = data.preprocess(train.double())
    torch.testing.assert_close(seen.mean(axes), torch.zeros(train.shape[1] if axes == 0 else 1).double())
    torch.testing.assert_close(
        seen.std(axes, correction=0), torch.ones(train.shape[1] if axes == 0 else 1).double()
    )
    everything = torch.cat([part.inputs[0] for part in data.splits.values()]).double()
    assert data.preprocess(everything).mean().abs() > 1e-6


def test_digits_are_in_levels_of_gray() -> None:
    data = digits()
    assert data.spec["channels"] == 1
    assert data.spec["image_size"] == (8, 8)
    assert (data.domain.low, data.domain.high) == (0, 16)
    levels = torch.cat([part.inputs[0] for part in data.splits.values()]).unique()
    assert levels.tolist() == list(range(17))
    assert data.encoding["classes"] == [str(k) for k in range(10)]


def test_known_means_are_found_again() -> None:
    # Fisher's iris: mean sepal length of setosa 5.006 cm, of virginica 6.588 cm (UCI summary).
    data = iris(test=0.0, val=0.0)
    x, y = data.splits["train"].inputs[0], data.splits["train"].targets
    assert data.encoding["classes"] == ["setosa", "versicolor", "virginica"]
    assert float(x[y == 0, 0].mean()) == pytest.approx(5.006, abs=1e-4)
    assert float(x[y == 2, 0].mean()) == pytest.approx(6.588, abs=1e-4)
    assert set(data.splits) == {"train"}


def test_diabetes_is_in_its_own_units() -> None:
    # Efron et al. 2004, table 1, first patient: age 59, sex 2, BMI 32.1, BP 101, response 151.
    part = diabetes(test=0.0, val=0.0).splits["train"]
    assert part.inputs[0][0, :4].tolist() == pytest.approx([59, 2, 32.1, 101], abs=1e-4)
    assert part.targets[0] == 151


def test_breast_cancer_has_its_published_class_counts() -> None:
    part = breast_cancer(test=0.0, val=0.0).splits["train"]
    assert part.targets.bincount().tolist() == [212, 357]


LOADERS = {"digits": {}, "iris": {}, "wine": {}, "breast-cancer": {}, "diabetes": {"scaled": False}}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("own", [True, False], ids=["by path", "by their function"])
def test_numbers_and_names_are_scikit_learns(name: str, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not own:
        monkeypatch.setattr(bundled, "find_spec", lambda name: None)
    bunch = getattr(sklearn.datasets, f"load_{name.replace('-', '_')}")(**LOADERS[name])
    data = SETS[name][0](test=0.0, val=0.0)
    part, columns = data.splits["train"], data.encoding.get("columns")
    expected = bunch.images[:, None] if name == "digits" else bunch.data
    # rows of a split are in an order of their own
    order = lambda rows: np.lexsort(rows.reshape(len(rows), -1).T)
    ours = np.column_stack([part.inputs[0].flatten(1).numpy(), part.targets.numpy()])
    theirs = np.column_stack([expected.reshape(len(expected), -1), bunch.target]).astype(np.float32)
    np.testing.assert_array_equal(ours[order(ours)], theirs[order(theirs)])
    if columns:
        assert [column["name"] for column in columns] == list(bunch.feature_names)
    names = getattr(bunch, "target_names", ())
    assert data.encoding["classes"] == [str(one) for one in names]


def test_a_set_is_read_without_scikit_learn() -> None:
    code = (
        f"import sys; from margin.data.sets.bundled import {', '.join(s[0].__name__ for s in SETS.values())}"
    )
    calls = "; ".join(f"{s[0].__name__}()" for s in SETS.values())
    ask = f"{code}; {calls}; print('sklearn' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True)
    assert done.stdout == "False False\n"
