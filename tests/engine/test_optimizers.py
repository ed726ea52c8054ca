"""Optimizers by name: torch's and the catalog's, a rate for each layer, and what is refused."""

import pytest
import torch
from torch import nn

from margin.core.catalog import models, parts, resolve
from margin.core.options import Training
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.build import optimizer_names, optimizer_of
from margin.engine.hooks import INTERRUPTED
from margin.engine.loop import GradientUpdate, State, descent, fit, risk, scheduled
from margin.optim.heavy_ball import HeavyBall
from margin.optim.lion import Lion
from margin.runs.training import finish, prepare, reopen
from margin.testing import check_same_run

OURS = {
    "HeavyBall": {"momentum": 0.8, "weight_decay": 0.1},
    "Nesterov": {"momentum": "convex", "weight_decay": 0.1},
    "SignDescent": {"momentum": 0.8, "weight_decay": 0.1},
    "Lion": {"betas": [0.8, 0.9], "weight_decay": 0.1},
}


def made(module, name="AdamW", **given):
    options = {"lr": 0.1, "options": {}, "decay_norms": True} | given
    return optimizer_of(module, name, **options)


def test_names_are_torchs_and_the_catalogs():
    names = optimizer_names()
    assert {"AdamW", "SGD", "LBFGS", *OURS} <= set(names)
    assert "Optimizer" not in names
    assert len(names) == len(set(names))
    for row, part in parts().items():
        if part.kind == "optimizer":
            for name in (row, row.rpartition("/")[2], part.target.rpartition(":")[2]):
                assert type(made(nn.Linear(2, 2), name)) is resolve(part.target)
    assert type(made(nn.Linear(2, 2), "lion")) is Lion


def test_a_name_in_both_is_torchs(monkeypatch):
    monkeypatch.setattr(torch.optim, "HeavyBall", torch.optim.SGD, raising=False)
    assert isinstance(made(nn.Linear(2, 2), "HeavyBall"), torch.optim.SGD)
    monkeypatch.undo()
    assert isinstance(made(nn.Linear(2, 2), "HeavyBall"), HeavyBall)


@pytest.mark.parametrize("name", ["sgd", "adamw", "optim/adam"])
def test_torchs_kernel_is_fused_under_every_name(name):
    assert made(nn.Linear(2, 2), name).defaults["fused"] is True


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("Lino", {}, "unknown optimizer 'Lino'; nearest in torch.optim and the catalog: Lion"),
        ("Adm", {}, "nearest in torch.optim and the catalog: .*Adam"),
        ("Lion", {"options": {"beta": 1}}, "the optimizer Lion has no option 'beta'; it has: .*betas"),
        ("SGD", {"options": {"momentum": 1.0}}, r"momentum must be in \[0, 1\): got 1\.0"),
        ("RMSprop", {"options": {"momentum": -0.5}}, r"momentum must be in \[0, 1\): got -0\.5"),
        ("HeavyBall", {"options": {"momentum": float("nan")}}, r"momentum must be in \[0, 1\): got nan"),
        ("SGD", {"lr": 0.0}, r"lr must be positive and finite: got 0\.0"),
        ("Lion", {"lr": -1.0}, r"lr must be positive and finite: got -1\.0"),
        ("Adam", {"lr": float("inf")}, "lr must be positive and finite: got inf"),
        ("Adam", {"layer_decay": 0.0}, r"layer_decay must be in \(0, 1\]: got 0\.0"),
        ("Adam", {"layer_decay": 1.5}, r"layer_decay must be in \(0, 1\]: got 1\.5"),
        (
            "LBFGS",
            {"layer_decay": 0.5},
            r"LBFGS has one rate for all layers: layer_decay must be 1, got 0\.5",
        ),
        ("SparseAdam", {}, "SparseAdam needs sparse gradients, and those here are dense: use Adam"),
        ("LBFGS", {"options": {"max_iter": 5}}, "LBFGS moves once a step here: max_iter must be 1"),
    ],
)
def test_what_does_not_fit_is_refused(name, given, message):
    with pytest.raises(ValueError, match=message):
        made(nn.Linear(2, 2), name, **given)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def test_every_layer_has_its_rate_and_biases_and_norms_no_decay():
    model = network()
    options = {"weight_decay": 0.3}
    optimizer = made(model, options=options, decay_norms=False, layer_decay=0.5)
    found = {id(p): (g["lr"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]}
    assert [found[id(p)] for p in model.parameters()] == [
        *((0.025, 0.3), (0.025, 0.0), (0.025, 0.0), (0.025, 0.0)),  # the first layer and its normalization
        *((0.05, 0.3), (0.05, 0.0)),
        *((0.1, 0.3), (0.1, 0.0)),
    ]
    plain = made(model, options=options, decay_norms=False)
    assert {g["lr"] for g in plain.param_groups} == {0.1}
    assert len(plain.param_groups) == 2


def test_a_schedule_multiplies_the_rate_of_each_layer():
    model = network()
    state = State({"model": model}, {"": made(model, "SGD", layer_decay=0.5)})
    fit(state, lambda k: None, scheduled(lambda s, b: {}, lambda k: 1 / (1 + k)), max_steps=2)
    assert sorted({g["lr"] for g in state.optimizers[""].param_groups}) == pytest.approx(
        [0.0125, 0.025, 0.05]
    )


@pytest.mark.parametrize("name", OURS)
def test_the_catalogs_own_lower_a_loss(name):
    model, x = network(), torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    batch = Batch((x,), (x[:, 0] > 0).long())
    options = {k: v for k, v in OURS[name].items() if k != "weight_decay"}
    state = State({"model": model}, {"": made(model, name, lr=0.01, options=options)})
    losses = []
    step = descent(risk(CLASSES), GradientUpdate())
    fit(state, lambda k: batch, step, max_steps=150, hooks=[lambda s, m: losses.append(m["loss"])])
    assert losses[-1] < 0.25 * losses[0]


@pytest.mark.parametrize("name", OURS)
def test_a_resumed_training_is_the_unbroken_one_to_the_byte(name, tmp_path):
    data = resolve(models()["feedforward/mlp"].tiny)()
    arguments = {"options": {}, "step": {}, "rule": ""}
    training = Training(
        max_steps=5,
        evaluate_every=2,
        seed=1,
        optimizer=name,
        optimizer_options=OURS[name],
        layer_decay=0.5,
        schedule="cosine",
    )
    whole = finish(prepare("feedforward/mlp", data, arguments, training, tmp_path / "whole"))
    job = prepare("feedforward/mlp", data, arguments, training, tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        finish(job, hooks=[lambda state, metrics: INTERRUPTED if state.step == 2 else None])
    check_same_run(whole, finish(reopen(job.run.path, data, Training())))
