"""A check that is written once for many functions refuses what each of them would."""

import pytest
from jaxtyping import Float, Int, TypeCheckError, jaxtyped
from torch import Tensor, ones

from typechecking import CHECKS, checked


def doubling(hint: object, default: object = None):
    """A function inside another, made anew at each call."""

    @jaxtyped(typechecker=checked)
    def double(x: hint, by: object = default) -> hint:
        return x if by == "broken" else x.double()

    return double


def test_a_function_that_is_made_again_is_still_checked() -> None:
    hint = Float[Tensor, "rows 2"]
    before = len(CHECKS)
    for _ in range(3):
        double = doubling(Float[Tensor, "rows 2"])
        double(ones(4, 2))
        with pytest.raises(TypeCheckError, match="parameters of"):
            double(ones(4, 3))
    made = len(CHECKS) - before
    assert made == 2  # of what is passed, and of what is returned
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

        @jaxtyped(typechecker=checked)
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

        @jaxtyped(typechecker=checked)
        def given(x: object, y: object = default) -> object:
            return y

        assert given(0) is default
