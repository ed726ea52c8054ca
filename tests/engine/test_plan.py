"""The plan: whose step it takes, and the targets that a model refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

from margin.catalog import models, resolve
from margin.classic.perceptron import mistake_rule
from margin.data.tiny import classes, sides, values
from margin.engine.descent import descent
from margin.engine.plan import check_task, factory_of
from margin.options import Training
from margin.robust.adversarial_training import adversarial_training
from margin.training import train

ENTRIES = models()


def test_the_step_is_the_rules_then_the_entrys_then_descent() -> None:
    mlp, perceptron = ENTRIES["feedforward/mlp"], ENTRIES["classic/perceptron"]
    assert factory_of(mlp, "") is descent
    assert factory_of(perceptron, "") is mistake_rule
    assert factory_of(mlp, "adversarial_training") is adversarial_training
    assert factory_of(replace(mlp, step=perceptron.step), "adversarial_training") is adversarial_training


def test_a_rule_needs_a_model_that_gradients_train() -> None:
    with pytest.raises(ValueError, match=r"needs a model trained by gradients: classic/perceptron is not"):
        factory_of(ENTRIES["classic/perceptron"], "adversarial_training")
    with pytest.raises(ValueError, match="unknown rule 'nothing'"):
        factory_of(ENTRIES["feedforward/mlp"], "nothing")


def test_targets_of_the_other_kind_are_refused() -> None:
    kinds = {"classes": replace(classes(), encoding={"task": "classes"})}
    kinds["values"] = replace(values(), encoding={"task": "values"})
    takers = {"classes": ("feedforward/mlp", "classic/perceptron"), "values": ("classic/linear_regression",)}
    for kind, names in takers.items():
        other = "values" if kind == "classes" else "classes"
        for name in names:
            check_task(ENTRIES[name], kinds[kind])
            with pytest.raises(ValueError, match=f"{name} needs {kind} as targets: those of .* are {other}"):
                check_task(ENTRIES[name], kinds[other])
    check_task(ENTRIES["classic/perceptron"], replace(sides(), encoding={}))


WHOLE = [name for name, entry in ENTRIES.items() if entry.whole]


@pytest.mark.parametrize("name", WHOLE)
def test_a_step_that_needs_all_examples_refuses_a_part_of_them(name: str, tmp_path: Path) -> None:
    """An exact solve would keep the last batch's answer, a rule would stop after a batch without mistakes."""
    data = resolve(ENTRIES[name].tiny)()
    count = len(data.splits["train"])
    with pytest.raises(ValueError) as caught:
        train(name, data, training=Training(batch_size=2), out=tmp_path / "run")
    assert str(caught.value) == f"{name} takes all {count} examples at once: set --batch_size all, got 2"
    assert not (tmp_path / "run").exists()
    train(name, data, training=Training(batch_size=count, max_steps=1), out=tmp_path / "run")


def test_exact_solves_and_mistake_rules_need_all_examples() -> None:
    assert {"classic/linear_regression", "classic/ridge", "classic/pca", "classic/perceptron"} <= set(WHOLE)
    assert "classic/lms" not in WHOLE
