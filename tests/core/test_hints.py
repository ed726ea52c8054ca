"""Whether a value fits a hint, by hand; what the hint is called."""

from typing import Any, Literal, Optional

import numpy as np
import pytest

from margin.core.catalog import call_with
from margin.core.hints import cli_syntax, describe_type, fits, flag


@pytest.mark.parametrize(
    ("hint", "inside", "outside"),
    [
        (int, [3, -1], [3.0, True, "3", None]),
        (float, [3, 0.5], [True, "x", None]),
        (bool, [True], [1, "true"]),
        (str, [""], [1]),
        (int | None, [3, None], [0.5]),
        (int | Literal["all"], [3, "all"], ["some", 0.5]),
        (Literal[1, 3], [1, 3], [2, True, "1"]),
        (tuple[int, ...], [(), (1, 2)], [[1], (1, "a"), 1]),
        (tuple[float, float], [(0, 1.5)], [(0,), (0, 1, 2), None]),
        (tuple[float, float] | None, [(0, 1), None], [(0,)]),
        (list[Literal["a", "b"]], [[], ["a"]], [["c"], "a"]),
        (dict[str, float], [{}, {"a": 1}], [{"a": "x"}, []]),
        (Optional[float], [None, 1], ["x"]),  # noqa: UP045
        (Any, [None, 1, "x"], []),
    ],
)
def test_a_hint_admits_its_values_and_no_others(hint: Any, inside: list, outside: list) -> None:
    assert [value for value in inside if not fits(value, hint)] == []
    assert [value for value in outside if fits(value, hint)] == []


def test_hints_in_words_and_as_they_are_typed() -> None:
    assert describe_type(int | Literal["all"] | None) == "a whole number or 'all'"
    assert describe_type(Literal["a", "b", "c"]) == "one of a, b, c"
    assert describe_type(tuple[float, float] | None) == "2 numbers"
    assert describe_type(tuple[int, ...]) == "whole numbers"
    assert describe_type(list[list[float]] | None) == "lists of numbers"
    assert cli_syntax(int | Literal["all"] | None) == "N|all"
    assert cli_syntax(tuple[float, float]) == "X,X"
    assert cli_syntax(tuple[int, ...]) == "N,..."
    assert cli_syntax(Literal["a", "b"]) == "a|b"
    assert [flag(name) for name in ("model.input_dropout", "--batch_size", "-n")] == [
        "--model.input-dropout",
        "--batch-size",
        "-n",
    ]


def built(
    size: int, *, hidden: tuple[int, ...] = (), kind: Literal["relu", "tanh"] = "relu", rate: float = 0.0
):
    return size, hidden, kind, rate


def test_an_option_of_another_type_is_refused_before_it_is_used() -> None:
    for options, message in [
        ({"hidden": 5}, "hidden must be whole numbers: got 5"),
        ({"kind": "foo"}, "kind must be relu or tanh: got 'foo'"),
        ({"rate": "x"}, "rate must be a number: got 'x'"),
    ]:
        with pytest.raises(ValueError) as caught:
            call_with(built, {"size": 1}, options, "the model")
        assert str(caught.value) == message


def test_lists_and_numpy_numbers_stand_for_what_they_mean() -> None:
    options = {"hidden": [3, 4], "rate": np.float32(0.5)}
    assert call_with(built, {"size": 1}, options, "the model") == (1, (3, 4), "relu", 0.5)
