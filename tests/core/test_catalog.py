"""Names, paths and signatures: what is found, what is supplied, and how a mistake is told."""

from dataclasses import replace

import pytest
from torch import nn

import margin.vision.convnets
from margin.core import catalog
from margin.core.catalog import (
    DOMAIN,
    HISTORY,
    Claim,
    Need,
    UnknownName,
    call_with,
    check_options,
    data_parameters,
    find,
    nearest,
    user_options,
)
from margin.core.findings import Subject, without_loss
from margin.core.tasks import CLASSES
from margin.core.types import Objective
from margin.engine.loop import risk

ROWS = {"vision/lenet5": 1, "vision/alexnet": 2, "text/word": 3, "sequence/word": 4}


def build(width: int, classes: int, *, hidden: tuple[int, ...] = (8,), rate: float = 0.0) -> tuple:
    return width, classes, hidden, rate


def test_a_name_is_found_by_its_last_part() -> None:
    assert find(ROWS, "vision/lenet5", "model") == find(ROWS, "lenet5", "model") == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("word", r"model 'word' could be sequence/word, text/word: give the full name"),
        ("net5", r"unknown model 'net5'; nearest: vision/lenet5"),
        ("lenet6", r"unknown model 'lenet6'; nearest: vision/lenet5"),
        ("qqqq", r"unknown model 'qqqq'; there are: sequence/word, "),
    ],
)
def test_a_name_that_is_none_or_two_is_refused(name: str, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        find(ROWS, name, "model")


def test_the_nearest_come_first() -> None:
    assert nearest("epohcs", ["patience", "epoch", "epochs"])[:2] == ["epochs", "epoch"]
    assert nearest("EPOCHS", ["epochs"]) == ["epochs"]
    assert len(nearest("aa", ["aa", "aab", "aac", "aad"])) == 3


def test_two_rows_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(margin.vision.convnets, "MODELS", margin.vision.convnets.MODELS * 2)
    with pytest.raises(ValueError, match="two rows of MODELS are named vision/lenet5"):
        catalog._table.__wrapped__("MODELS")


def test_a_signature_says_what_is_dictated_and_what_is_chosen() -> None:
    assert data_parameters(build) == ("width", "classes")
    assert user_options(build) == ("hidden", "rate")


def test_parameters_are_supplied_by_name() -> None:
    spec = {"classes": 3, "width": 5, "channels": 1}
    assert call_with(build, spec, {}, "it") == (5, 3, (8,), 0.0)
    assert call_with(build, spec, {"hidden": [4, 2], "rate": 0.5}, "it") == (5, 3, (4, 2), 0.5)
    assert call_with(build, {"width": 0, "classes": 0}, {}, "it")[:2] == (0, 0)


def test_what_is_not_given_is_named() -> None:
    with pytest.raises(ValueError, match="it needs classes: the data give width"):
        call_with(build, {"width": 5, "classes": None}, {}, "it")
    with pytest.raises(ValueError, match="it needs width, classes: the data give nothing"):
        call_with(build, {}, {}, "it")


def test_an_option_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"it has no option 'hiden'; it has: hidden, rate$"):
        check_options(build, {"hiden": 3}, "it")
    with pytest.raises(ValueError, match="it has no option 'width'"):  # the data's, not the user's
        call_with(build, {"width": 5, "classes": 3}, {"width": 6}, "it")


def subject(objective: Objective) -> Subject:
    """Without examples: it has no targets and no domain."""
    return Subject(model=nn.Identity(), test=(), task=CLASSES, objective=objective)


def claim(*needs: Need) -> Claim:
    return Claim(name="a/b.c", summary="?", ask="", demo="", reference="", needs=needs)


def test_a_claim_says_all_that_it_lacks() -> None:
    judged = subject(risk(CLASSES))
    assert claim(DOMAIN, HISTORY).refusal(judged) == f"needs {DOMAIN.text} and {HISTORY.text}"
    assert claim().refusal(judged) == ""
    assert claim().refusal(subject(without_loss)) == "needs a loss"


def test_a_claim_about_a_kind_of_model_needs_no_loss() -> None:
    kind = Need("models with parameters", "margin.core.findings:has_parameters", of="model")
    assert claim(kind).refusal(subject(without_loss)) == "is asked only of models with parameters"
    parametric = replace(subject(without_loss), model=nn.Linear(1, 1))
    assert claim(kind).refusal(parametric) == ""
    assert claim(kind, DOMAIN).refusal(parametric) == f"needs {DOMAIN.text}"
