"""The plan: whose step it takes, and the targets that a model refuses."""

from dataclasses import replace

import pytest

from margin.catalog import models
from margin.classic.perceptron import mistake_rule
from margin.data.tiny import classes, sides, values
from margin.engine.descent import descent
from margin.engine.plan import check_task, factory_of
from margin.robust.adversarial_training import adversarial_training

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
