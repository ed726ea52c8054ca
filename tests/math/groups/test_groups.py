"""The axioms on groups known by hand, and on what misses one of them."""

from itertools import permutations

import pytest

from margin.math.groups.groups import axioms


def after(a: tuple, b: tuple) -> tuple:
    return tuple(a[i] for i in b)


def test_the_permutations_of_three_things_are_a_group() -> None:
    found = axioms(list(permutations(range(3))), after)
    assert found.group
    assert found.identity == ((0, 1, 2),)
    assert axioms([0, 1, 2, 3], lambda a, b: (a + b) % 4).group


def test_naturals_have_no_inverses() -> None:
    found = axioms(range(5), lambda a, b: a + b, contains=lambda k: k >= 0)
    assert not found.group
    assert found.identity == (0,)
    assert found.inverses == (1,)
    assert found.closure == found.associativity == ()


@pytest.mark.parametrize(
    ("elements", "operation", "broken"),
    [
        ([1, 2], lambda a, b: a * b, "closure"),
        ([0, 1, 2], lambda a, b: (a - b) % 3, "associativity"),
        ([2, 4], lambda a, b: max(a, b), "inverses"),
        ([0, 1], lambda a, b: a, "identity"),
    ],
)
def test_what_misses_an_axiom_is_no_group(elements, operation, broken: str) -> None:
    found = axioms(elements, operation)
    assert not found.group
    assert bool(getattr(found, broken)) == (broken != "identity")


def test_the_elements_named_break_the_axiom() -> None:
    a, b, c = axioms([0, 1, 2], lambda a, b: (a - b) % 3).associativity
    assert (a - b - c) % 3 != (a - (b - c)) % 3
    assert axioms([1, 2], lambda a, b: a * b).closure == (2, 2)


def test_one_identity_must_do_for_both_sides() -> None:
    """a b = b has left identities and no right one."""
    assert axioms([0, 1], lambda a, b: b).identity == ()


def test_nothing_is_no_group() -> None:
    with pytest.raises(ValueError, match="no elements"):
        axioms([], lambda a, b: a)
