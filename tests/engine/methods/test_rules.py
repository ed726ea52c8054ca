"""Every rule of the engine trains a network from the command's side and resumes to the byte."""

import pytest
import torch

from margin.core.catalog import models, resolve, rules
from margin.core.options import Training
from margin.engine.hooks import INTERRUPTED
from margin.runs.training import finish, prepare, reopen
from margin.runs.verbs import train
from margin.testing import check_same_run

SMALL = {"hidden": [4]}
CASES = {
    "sam": ("sam", {"rho": 0.1}),
    "newton": ("newton", {"damping": 0.01}),
    "newton-cg": ("newton", {"solver": "conjugate_gradients", "iterations": 5}),
    "gradient_flow": ("gradient_flow", {"time": 0.2}),
    "entropy_sgd": ("entropy_sgd", {"inner": 4}),  # the stop after two steps is within a round
    "continuation": ("continuation", {"sigma": 0.05}),
}


RULES = {name.rpartition("/")[2]: row for name, row in rules().items()}


def tiny(name):
    return resolve(models()[name].tiny)()


def test_every_rule_of_the_engine_is_tried():
    assert {f"engine/{rule}" for rule, _ in CASES.values()} <= set(rules())


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_training_is_the_unbroken_one_to_the_byte(case, tmp_path):
    rule, step = CASES[case]
    data = tiny("feedforward/mlp")
    arguments = {"options": SMALL, "step": step, "rule": rule}
    training = Training(max_steps=5, evaluate_every=2, seed=1)
    whole = finish(prepare("feedforward/mlp", data, arguments, training, tmp_path / "whole"))
    job = prepare("feedforward/mlp", data, arguments, training, tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        finish(job, hooks=[lambda state, metrics: INTERRUPTED if state.step == 2 else None])
    check_same_run(whole, finish(reopen(job.run.path, data, Training())))


@pytest.mark.parametrize("case", CASES)
def test_a_rule_lowers_the_loss(case, tmp_path):
    rule, step = CASES[case]
    rate = {} if "lr" in (*RULES[rule].unused, *RULES[rule].replaced.get("time", ())) else {"lr": 0.05}
    training = Training(max_steps=40, evaluate_every=10, seed=1, **rate)
    run = train(
        "feedforward/mlp",
        tiny("feedforward/mlp"),
        SMALL,
        step=step,
        rule=rule,
        training=training,
        out=tmp_path / "run",
    )
    losses = [row["train_loss"] for row in run.history]
    assert losses[-1] < 0.9 * losses[0]
    assert all(torch.tensor(losses).isfinite())


def test_values_are_fitted_too(tmp_path):
    training = Training(max_steps=10, evaluate_every=5, seed=1)
    for rule in ("sam", "newton"):
        run = train(
            "feedforward/mlp:values",
            tiny("feedforward/mlp:values"),
            SMALL,
            rule=rule,
            training=training,
            out=tmp_path / rule,
        )
        assert run.history[-1]["train_loss"] < run.history[0]["train_loss"]


def test_a_rule_needs_a_model_trained_by_gradients(tmp_path):
    with pytest.raises(ValueError, match="the rule engine/sam needs a model trained by gradients"):
        train("classic/perceptron", tiny("classic/perceptron"), rule="sam", out=tmp_path / "run")
