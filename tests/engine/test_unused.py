"""Options that nothing would look at: each is refused, and what is refused has no effect indeed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import margin
from margin import Training
from margin.core.catalog import models, resolve, rules, user_options
from margin.core.hints import flag
from margin.core.options import HOUSE
from margin.core.types import Domain
from margin.engine.check_options import OF_DESCENT, OF_GRADIENTS, OF_OBJECTIVE, OF_OTHERS, refuse_unused
from margin.engine.plan import factory_of

VALUES: dict[str, Any] = {
    "init": "he_normal",
    "init_scale": 0.5,
    "init_from": "other",
    "freeze": ["weight"],
    "optimizer": "SGD",
    "lr": 0.123,
    "layer_decay": 0.5,
    "optimizer_options": {"weight_decay": 0.3},
    "decay_norms": True,
    "schedule": "linear",
    "schedule_options": {"every": 2.0},
    "warmup": 3,
    "average": "mean",
    "average_start": 2,
    "mix": "mixup",
    "mix_alpha": 0.3,
    "label_smoothing": 0.3,
    "confusion": [[0.9, 0.1], [0.2, 0.8]],
    "class_weight": [1.0, 2.0],
    "clip": 0.01,
    "accumulate": 2,
    "pacing": "step",
    "patience": 1,
    "pacing_start": 0.5,
    "pacing_end": 0.9,
}
NOT_BY_GRADIENTS = [name for name, entry in models().items() if not entry.optimizers]


def asked(name: str, rule: str = "", step: dict[str, Any] | None = None, **options: Any) -> None:
    entry = models()[name]
    training = Training(**options).over(entry.defaults)
    refuse_unused(entry, rules()[rule] if rule else None, factory_of(entry, rule), step or {}, training)


@pytest.mark.parametrize("name", NOT_BY_GRADIENTS)
def test_what_gradients_alone_use_is_refused_by_entries_without(name: str) -> None:
    asked(name)
    asked(name, seed=3, precision="float64", evaluate_every=1)
    own = user_options(factory_of(models()[name], ""))
    for option in (*OF_GRADIENTS, *OF_OBJECTIVE, *OF_DESCENT):
        instead = f", or set --step.{option}" if option in own else ""
        with pytest.raises(ValueError, match=f": leave out {flag(option)}{instead}$"):
            asked(name, **{option: VALUES[option]})
    with pytest.raises(ValueError, match="asks for no loss that bfloat16 could compute: leave out"):
        asked(name, precision="bfloat16")


def test_the_message_names_the_entry_and_the_reason(tmp_path: Path) -> None:
    data = resolve(models()["classic/ridge"].tiny)()
    for option, reason in {
        "schedule": "classic/ridge is not trained by gradients",
        "mix": "the step of classic/ridge asks for no loss that mix could change",
        "clip": "the step of classic/ridge moves along no gradient",
    }.items():
        with pytest.raises(ValueError, match=f"^{reason}: leave out {option}$"):
            margin.train("ridge", data, training=Training(**{option: VALUES[option]}), out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_step_with_a_rate_of_its_own_names_it() -> None:
    with pytest.raises(ValueError, match=r"not trained by gradients: leave out --lr, or set --step.lr$"):
        asked("text/skipgram", lr=0.123)


@pytest.mark.parametrize("name", [name for name, entry in models().items() if any(entry.optimizers)])
def test_a_step_that_asks_for_parts_of_the_model_does_not_compile_the_whole(name: str) -> None:
    asked(name)
    with pytest.raises(ValueError, match=r"asks for parts of the model, .*: leave out --compile$"):
        asked(name, compile=True)


@pytest.mark.parametrize("option", OF_OTHERS)
def test_an_option_of_an_option_needs_it(option: str) -> None:
    other = OF_OTHERS[option]
    with pytest.raises(
        ValueError, match=f"^{option} is an option of {other}, which is not given: leave out {flag(option)}$"
    ):
        asked("feedforward/mlp", **{option: VALUES[option]})
    asked("feedforward/mlp", **{option: VALUES[option], other: VALUES.get(other, "run")})


def test_a_default_is_no_wish() -> None:
    """LeNet-5 has a schedule of its own, which Newton's step leaves alone."""
    assert models()["vision/lenet5"].defaults["schedule"] == "cosine"
    asked("vision/lenet5", "engine/newton")
    with pytest.raises(ValueError, match=r"^the rule engine/newton has no use for schedule: leave out"):
        asked("vision/lenet5", "engine/newton", schedule="linear")


def test_a_step_may_ask_for_a_loss_and_descend_by_itself() -> None:
    entry = models()["feedforward/mlp"]

    def factory(objective: Any) -> None: ...

    refuse_unused(entry, None, factory, {}, Training(mix="mixup").over(entry.defaults))
    for option in OF_DESCENT:
        training = Training(**{option: VALUES[option]}).over(entry.defaults)
        with pytest.raises(ValueError, match=f"moves along no gradient: leave out --{option}$"):
            refuse_unused(entry, None, factory, {}, training)


def test_the_flow_has_one_time() -> None:
    asked("feedforward/mlp", "engine/gradient_flow", lr=0.5, schedule="cosine")
    asked("feedforward/mlp", "engine/gradient_flow", {"time": None}, lr=0.5)
    with pytest.raises(
        ValueError, match=r"^time of the rule engine/gradient_flow takes the place of lr: leave"
    ):
        asked("feedforward/mlp", "engine/gradient_flow", {"time": 0.1}, lr=0.5)
    with pytest.raises(ValueError, match=r"has no use for optimizer: leave out --optimizer$"):
        asked("feedforward/mlp", "engine/gradient_flow", optimizer="SGD")


def test_what_rules_state_are_options_of_a_training_and_of_theirs() -> None:
    known = set(HOUSE.as_json())
    for row in rules().values():
        assert set(row.unused) <= known
        step = factory_of(models()["feedforward/mlp"], row.name)
        assert set(row.replaced) <= set(user_options(step))
        assert {name for names in row.replaced.values() for name in names} <= known


# up to eight seconds: a training for every option that a rule does not read
@pytest.mark.parametrize("rule", [name for name, row in rules().items() if row.unused or row.replaced])
def test_what_a_rule_leaves_unused_has_no_effect(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("margin.runs.training.refuse_unused", lambda *_: None)
    row, data = rules()[rule], resolve(models()["feedforward/mlp"].tiny)()
    data = replace(data, domain=Domain(torch.tensor(-9.0), torch.tensor(9.0)))  # which robust rules need
    step: dict[str, Any] = dict.fromkeys(row.replaced, 0.1)
    names = {*row.unused, *(name for names in row.replaced.values() for name in names)} - {"schedule_options"}

    def trained(**options: Any) -> torch.Tensor:
        run = margin.train(
            "mlp",
            data,
            {"hidden": [4]},
            Training(max_steps=12, **options),
            rule=rule,
            step=step,
            out=tmp_path / ("-".join(options) or "plain"),
        )
        return torch.cat([p.detach().flatten() for p in margin.load(run, "last").parameters()])

    plain = trained()
    for name in names:
        assert torch.equal(plain, trained(**{name: VALUES[name]})), name


def test_weights_that_are_taken_over_whole_are_not_drawn(tmp_path: Path) -> None:
    data = resolve(models()["feedforward/mlp"].tiny)()
    short = Training(max_steps=1)
    source = margin.train("mlp", data, training=short, out=tmp_path / "source")
    taken = replace(short, init_from=str(source.path), init="he_normal")
    with pytest.raises(ValueError, match=r"every tensor begins with the values of .*source: leave out init$"):
        margin.train("mlp", data, training=taken, out=tmp_path / "r")
    margin.train("mlp", data, {"hidden": [5, 128]}, short, out=tmp_path / "wide")
    other = replace(taken, init_from=str(tmp_path / "wide"))
    margin.train("mlp", data, {"hidden": [5, 6]}, other, out=tmp_path / "s")
