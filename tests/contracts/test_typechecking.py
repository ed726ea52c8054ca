"""A check that is written once for many functions refuses what each of them would."""

from dataclasses import dataclass

import pytest
from jaxtyping import Float, Int, TypeCheckError
from torch import Tensor, ones

from typechecking import CHECKS, checked


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
