r"""Prefix scans by doubling (Hillis and Steele 1986): all partial compositions in ceil(log2 T) steps."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Inexact
from torch import Tensor

Elements = tuple[Tensor, ...]
Combine = Callable[[Elements, Elements], Elements]


def compose(later: Elements, earlier: Elements) -> Elements:
    r"""Two steps of z -> a z + b as one: :math:`(a_2, b_2) \circ (a_1, b_1) = (a_2 a_1, a_2 b_1 + b_2)`.

    It is associative, exactly in real arithmetic, and not commutative.

    Reference: Blelloch 1990, Section 1.4; Martin and Cundy 2018, Section 2.2.
    """
    (a2, b2), (a1, b1) = later, earlier
    return a2 * a1, a2 * b1 + b2


def doublings(combine: Combine, elements: Elements) -> Iterator[Elements]:
    r"""The elements after each doubling: first each with the 1 before it, then with 2, 4, ..

    After step k element t is the composition of the 2^k last ones up to t, so after ceil(log2 T) steps all
    are :math:`e_t \circ \dots \circ e_1`. Work is O(T log T); each step is one operation on all of time.

    Args:
        combine: ``(later, earlier) -> one``, associative; it acts on elements of one shape.
        elements: Tensors whose time axis is 1.

    Reference: Hillis and Steele 1986, Section "All Partial Sums of an Array".
    """
    time, reach = elements[0].shape[1], 1
    while reach < time:
        joined = combine(tuple(e[:, reach:] for e in elements), tuple(e[:, :-reach] for e in elements))
        elements = tuple(torch.cat((e[:, :reach], j), 1) for e, j in zip(elements, joined, strict=True))
        yield elements
        reach *= 2


def doubling(
    a: Inexact[Tensor, "batch time features"],
    b: Inexact[Tensor, "batch time features"],
    initial: Inexact[Tensor, "batch features"],
) -> Inexact[Tensor, "batch time features"]:
    """The states of z_t = a_t z_{t-1} + b_t by doubling.

    It is a short graph of plain operations, which compilers and exporters can read; run as it is, it moves
    O(T log T) numbers through memory.

    Args:
        a: The gates.
        b: What is added at each step.
        initial: z_0.
    """
    states = torch.cat((b[:, :1] + a[:, :1] * initial[:, None], b[:, 1:]), 1)
    elements: Elements = (a, states)
    for doubled in doublings(compose, elements):
        elements = doubled
    return elements[1]
