"""Which entries a matrix can train, by what they predict."""

import pytest

from margin.core.catalog import models
from margin.sklearn import defaults_of, entries_for, entry_for, kind_of, known


def test_entries_are_told_apart_by_what_they_predict() -> None:
    classes, values = entries_for("classes"), entries_for("values")
    assert {"classic/perceptron", "feedforward/mlp", "vision/lenet5"} <= set(classes)
    assert {"classic/linear_regression", "feedforward/mlp:values"} <= set(values)
    assert not set(classes) & set(values)
    assert "classic/perceptron" not in entries_for("classes", many=True)
    assert "feedforward/mlp" in entries_for("classes", many=True)


def test_an_entry_of_the_other_kind_is_refused_with_those_that_would_do() -> None:
    assert entry_for("values", "mlp", None).name == "feedforward/mlp:values"  # the head that would do
    with pytest.raises(ValueError, match=r"predict values .*: got feedforward/dense_mlp; such: .*mlp:values"):
        entry_for("values", "dense_mlp", None)
    with pytest.raises(ValueError, match=r"predict classes .*: got classic/linear_regression; such: .*mlp"):
        entry_for("classes", "linear_regression", None)
    with pytest.raises(ValueError, match=r"unknown model 'mpl'; nearest: .*mlp"):
        entry_for("classes", "mpl", None)
    with pytest.raises(ValueError, match="model must be the name of an entry: got 3"):
        entry_for("classes", 3, None)


def test_a_model_of_images_asks_for_a_shape() -> None:
    with pytest.raises(ValueError, match=r"lenet5 takes images: pass shape=\(channels, height, width\)"):
        entry_for("classes", "lenet5", None)
    assert entry_for("classes", "lenet5", (1, 8, 8)).name == "vision/lenet5"


def test_a_name_that_means_nothing_is_no_entry() -> None:
    assert known("mlp") is models()["feedforward/mlp"]
    assert known("no such model") is None
    assert known(3) is None
    assert defaults_of(None) == {}
    assert defaults_of(known("mlp"))["hidden"] == (128,)
    assert kind_of(models()["classic/perceptron"]) == "classes"
