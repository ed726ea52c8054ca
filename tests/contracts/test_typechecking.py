"""A check that is written once for many functions refuses what each of them would."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pytest
import torch
from jaxtyping import Bool, Float, Float64, Int, Shaped, TypeCheckError
from jaxtyping._storage import _shape_storage, pop_shape_memo, push_shape_memo
from torch import Tensor, nn, ones

from shapes import FORMS, by_jaxtyping, is_instance
from typechecking import CHECKS, checked, is_plain


def doubling(hint: object, default: object = None):
    """A function inside another, made anew at each call."""

    @checked
    def double(x: hint, by: object = default) -> hint:
        return x if by == "broken" else x.double()

    return double


def test_a_function_that_is_made_again_is_still_checked() -> None:
    hint = Float[Tensor, "rows 2"]
    before = sum(map(len, CHECKS.values()))
    for _ in range(3):
        double = doubling(Float[Tensor, "rows 2"])
        double(ones(4, 2))
        with pytest.raises(TypeCheckError, match="parameters of"):
            double(ones(4, 3))
    assert sum(map(len, CHECKS.values())) == before + 1
    # others of the same name
    doubling(Float[Tensor, "rows 3"])(ones(4, 3))
    doubling(Int[Tensor, "rows 2"], "broken")(ones(4, 2).long())
    doubling(hint | None)(ones(4, 2))
    doubling(tuple[Float[Tensor, "rows 3"], ...], "broken")((ones(4, 3),))
    for other in (Float[Tensor, "rows 3"], Int[Tensor, "rows 2"], Float[Tensor, "2"] | None, list[hint]):
        with pytest.raises(TypeCheckError):
            doubling(other, "broken")(ones(4, 2))
        with pytest.raises(TypeCheckError):
            doubling(other)(ones(4, 2))


def test_what_is_returned_is_checked_each_time() -> None:
    for wrong in (False, True, False, True):

        @checked
        def first(x: Float[Tensor, "rows columns"], short: bool) -> Float[Tensor, " columns"]:
            return x[0, 1:] if short else x[0]

        if wrong:
            with pytest.raises(TypeCheckError, match="return value"):
                first(ones(2, 3), True)
        else:
            first(ones(2, 3), False)


def test_a_default_is_part_of_what_is_checked() -> None:
    """Equal numbers of two types, and a function that is called with fewer arguments than it has."""
    for default in (1, True, 1.0, "1", None, [1]):

        @checked
        def given(x: object, y: object = default) -> object:
            return y

        assert given(0) is default


@checked
@dataclass
class Made:
    """A dataclass, its methods decorated one by one as the hook does."""

    rows: Float[Tensor, "rows 2"]
    by: float = 1.0

    @property
    @checked
    def wrong(self) -> int:
        return self.by

    @classmethod
    @checked
    def of(cls, rows: "Float[Tensor, 'rows 2']") -> "Made":
        return cls(rows)


def test_methods_and_dataclasses_are_checked() -> None:
    made = Made.of(ones(3, 2))
    for broken in (lambda: Made(ones(3, 2), "1"), lambda: Made(ones(3, 3)), lambda: Made.of(ones(3, 3))):
        with pytest.raises(TypeCheckError, match="parameters of"):
            broken()
    with pytest.raises(TypeCheckError, match="return value of"):
        _ = made.wrong
    assert Made(ones(3, 2), 2).by == 2  # a whole number is a real one


@checked
def padded(x: Float[Tensor, "rows columns"], columns: int) -> Float[Tensor, "rows {columns}"]:
    return ones(len(x), 5)


@checked
def outer(x: Float[Tensor, "rows columns"]) -> Float[Tensor, "columns rows"]:
    return padded(x.T, 5).T if len(x) == 5 else padded(x, 5)


def test_sizes_are_those_of_one_call() -> None:
    """An argument may be a size; a function that calls another has its own sizes before and after."""
    assert padded(ones(2, 3), 5).shape == (2, 5)
    with pytest.raises(TypeCheckError, match="return value of"):
        padded(ones(2, 3), 4)
    assert outer(ones(5, 5)).shape == (5, 5)
    with pytest.raises(TypeCheckError, match="return value of"):
        outer(ones(2, 3))


def test_what_a_call_raises_by_itself_stays() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'columns'"):
        padded(ones(2, 3))

    @checked
    def failing(x: Float[Tensor, "rows 2"]) -> int:
        raise LookupError("none")

    for _ in range(2):
        with pytest.raises(LookupError):
            failing(ones(1, 2))
    with pytest.raises(TypeCheckError):
        failing(ones(2))


DIMENSIONS = (
    *("", "n", "2", "n d", "d n", "n n", "n 2", "_ d", "... d", "n ... d", "... 2", "*batch", "*batch d"),
    *("n *batch", "*batch n n", "*#batch d", "#n d", "n {k}", "_ *batch _"),
)
HINTS = [kind[Tensor, text] for text in DIMENSIONS for kind in (Float, Int, Shaped, Float64)] + [
    Bool[Tensor, "*batch"],
    Float[np.ndarray, "n d"],
    Float[nn.Parameter, "n d"],
]
VALUES = [
    torch.zeros(shape, dtype=dtype)
    for shape in ((), (1,), (2,), (3,), (2, 2), (2, 3), (3, 2), (1, 2), (2, 3, 2), (3, 2, 2), (2, 2, 2, 2))
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16)
] + [nn.Parameter(torch.zeros(2, 3)), np.zeros((2, 3)), np.zeros((2, 3), np.int64), 1.0, None]


def told(ask: Callable[[Any, Any], bool], questions: list[tuple[Any, Any]]) -> list[Any]:
    """The answers about values one after the other within one call, each with the sizes known after it."""
    push_shape_memo({"k": 2})
    try:
        return [
            (ask(hint, value), *({**sizes} for sizes in _shape_storage.memo_stack[-1][:2]))
            for hint, value in questions
        ]
    finally:
        pop_shape_memo()


def test_a_form_answers_as_jaxtyping_does() -> None:
    """Whatever was asked before in the call: a name keeps its size, and one that failed leaves none."""
    draw = random.Random(0)
    yes = 0
    for _ in range(3000):
        hints = draw.choices(HINTS, k=4)
        questions = [(hint, draw.choice(VALUES)) for hint in hints]
        answers = told(is_instance, questions)
        assert answers == told(by_jaxtyping, questions)
        yes += sum(answer[0] for answer in answers)
    assert yes > 1000
    assert [FORMS[hint] is None for hint in HINTS[-2:]] == [True, True]
    assert sum(form is not None for form in FORMS.values()) > 60
    assert is_instance(HINTS[12], ones(2, 3)) == by_jaxtyping(HINTS[12], ones(2, 3))  # outside of any call


class Answering(Protocol):
    """A protocol that isinstance refuses."""

    def answer(self) -> int: ...


def test_what_is_no_plain_class_is_left_to_beartype() -> None:
    @checked
    def half(x: int) -> float:
        return x if x % 2 else x / 2

    assert (half(3), half(4)) == (3, 2.0)  # a whole number is a real one
    hints = (int, Tensor, type(None), HINTS[0], float, complex, Answering, list[int], int | None, "int")
    assert [is_plain(hint) for hint in hints] == [True] * 4 + [False] * 6
