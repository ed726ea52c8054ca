"""Groups: the axioms put to a set with an operation, each with the elements that break it (Artin 2011)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

Element = Any
Operation = Callable[[Element, Element], Element]


@dataclass(frozen=True, slots=True)
class Axioms:
    """What was found of the axioms of a group; a tuple names the elements that break one, () none.

    Args:
        closure: (a, b) whose a b is no element.
        associativity: (a, b, c) with (a b) c != a (b c).
        identity: The element e with e a = a e = a for every a, in a tuple; () where there is none.
        inverses: (a,) that has no b among the elements with a b = b a = e; () too where there is no identity.
    """

    closure: tuple[Element, ...]
    associativity: tuple[Element, ...]
    identity: tuple[Element, ...]
    inverses: tuple[Element, ...]

    @property
    def group(self) -> bool:
        """Whether every axiom holds on the elements that were tried."""
        return not (self.closure or self.associativity or self.inverses) and bool(self.identity)


def axioms(
    elements: Sequence[Element],
    operation: Operation,
    *,
    contains: Callable[[Element], bool] | None = None,
) -> Axioms:
    """Put closure, associativity, identity and inverses to every pair and triple of elements.

    Of a finite set that is a proof. Of a sample of a larger set a broken closure or associativity is a
    disproof, and an inverse is looked for in the sample alone. That the identity and inverses are unique
    follows, and is not asked.

    Args:
        elements: All of them, or a sample; compared by ``==``.
        operation: (a, b) -> a b.
        contains: Whether something is an element; None: it is among ``elements``.

    Raises:
        ValueError: There are no elements.

    Reference: Artin 2011, "Algebra", Definition 2.2.1.
    """
    if not elements:
        raise ValueError("a group has an identity: got no elements")
    member = contains or (lambda element: element in elements)
    closure = next(((a, b) for a, b in product(elements, repeat=2) if not member(operation(a, b))), ())
    associativity = next(
        (
            (a, b, c)
            for a, b, c in product(elements, repeat=3)
            if operation(operation(a, b), c) != operation(a, operation(b, c))
        ),
        (),
    )
    identity = tuple(
        e for e in elements if all(operation(e, a) == a and operation(a, e) == a for a in elements)
    )[:1]
    inverses: tuple[Element, ...] = ()
    if identity:
        (e,) = identity
        inverses = tuple(
            a for a in elements if not any(operation(a, b) == e and operation(b, a) == e for b in elements)
        )[:1]
    return Axioms(closure, associativity, identity, inverses)
