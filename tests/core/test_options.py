"""The options that all trainings share: what is refused, and whose default counts."""

import math
from dataclasses import fields

import pytest

from margin.core.hints import fits
from margin.core.options import FORMERLY, HOUSE, Training, newer_options

LEAST = {
    "seed": 0,
    "epochs": 0,
    "max_steps": 0,
    "batch_size": 1,
    "warmup": 0,
    "accumulate": 1,
    "patience": 0,
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "threads": 1,
}


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_the_least_value_is_allowed_and_one_less_refused(name: str, least: int) -> None:
    assert getattr(Training(**{name: least}), name) == least
    with pytest.raises(ValueError, match=f"{name} must be at least {least}: got {least - 1}"):
        Training(**{name: least - 1})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", 2**64, r"seed must be below 2\^64: got 18446744073709551616"),
        ("clip", math.nan, "clip must be positive: got nan"),
        ("clip", 0.0, "clip must be positive: got 0"),
        ("lr", 0.0, "lr must be positive: got 0"),
        ("lr", math.nan, "lr must be positive: got nan"),
        ("average", 1.0, r"average must be in \[0, 1\): got 1"),
        ("average", -0.1, r"average must be in \[0, 1\): got -0\.1"),
        ("average", math.nan, r"average must be in \[0, 1\): got nan"),
    ],
)
def test_numbers_out_of_range_are_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(**{name: value})


def test_an_option_is_the_users_then_the_models_then_the_houses() -> None:
    resolved = Training(lr=0.5).over({"lr": 0.1, "epochs": 7})
    assert (resolved.lr, resolved.epochs, resolved.optimizer) == (0.5, 7, HOUSE.optimizer)


def test_what_counts_as_false_is_given_all_the_same() -> None:
    # a model that stops by patience, warms up, ...: the user turns each of it off
    off = {"patience": 0, "warmup": 0, "average": 0.0, "until": {}, "decay_norms": False, "epochs": 0}
    on = {"patience": 5, "warmup": 9, "average": 0.9, "until": {"loss": 1.0}, "decay_norms": True}
    resolved = Training(**off).over({**on, "epochs": 3})
    assert {name: getattr(resolved, name) for name in off} == off


def test_json_gives_the_options_back() -> None:
    training = Training(lr=0.5, batch_size="all", until={"mistakes": 0.0})
    assert Training(**training.as_json()) == training


def test_epochs_that_are_given_end_a_training_whose_default_are_steps() -> None:
    defaults = {"max_steps": 3000, "lr": 3e-3}
    assert Training().over(defaults).max_steps == 3000
    assert Training(epochs=2).over(defaults).max_steps is None
    assert Training(epochs=2, max_steps=7).over(defaults).max_steps == 7
    assert Training(max_steps=7).over({"epochs": 5}).max_steps == 7


@pytest.mark.parametrize("name", sorted(set(HOUSE.as_json()) - set(FORMERLY)))
def test_a_record_without_an_option_is_refused(name: str) -> None:
    """Whatever today's default is, it is not what the run was trained with."""
    record = HOUSE.as_json()
    assert Training.recorded(record) == HOUSE
    del record[name]
    with pytest.raises(ValueError, match=f"the option {name} is missing"):
        Training.recorded(record)


def test_an_option_newer_than_the_record_is_as_it_was_before_it() -> None:
    record = {name: value for name, value in HOUSE.as_json().items() if name != "scale_targets"}
    assert HOUSE.scale_targets == "standard"
    assert Training.recorded(record).scale_targets == "none"
    assert newer_options(record) == (
        "the record is older than the option scale_targets: it is taken as none, as it was then",
    )
    assert newer_options(HOUSE.as_json()) == ()


def test_a_stopping_rule_holds_numbers() -> None:
    with pytest.raises(ValueError, match="until must hold numbers: got nan of loss"):
        Training(until={"loss": math.nan})


def test_every_option_may_be_left_out() -> None:
    assert [field.name for field in fields(Training) if not fits(None, field.type)] == []
