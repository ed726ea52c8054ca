"""The square in input space through three examples of a subject, on which its regions are counted.

Goodfellow, Vinyals and Saxe (2015) look at networks on lines and planes through points that matter.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.engine.evaluation import counts, sample_examples

ROOM = 1.2
"""Side of the square around three points, in that of the least one that holds them."""

SCAN = 512
"""Examples among which three are looked for that differ in their class."""


class NoPlane(ArithmeticError):
    """The held-out examples span no plane."""


class Square(NamedTuple):
    """A square in the plane through three examples: x(u, v) = origin + u first + v second, |u|, |v| <= 1.

    Args:
        origin: Its middle, an input.
        first: Half a side.
        second: Half of the other, orthogonal to it and as long.
        points: (u, v) of the three examples.
        labels: Their classes, -1 where they have none.
        examples: Which of the held-out examples they are.
    """

    origin: Tensor
    first: Tensor
    second: Tensor
    points: Float[Tensor, "3 2"]
    labels: Int[Tensor, " 3"]
    examples: tuple[int, int, int]


def square_through(subject: Subject) -> Square:
    """The square in the plane through three held-out examples, of three classes where there are.

    Its sides are a fifth longer than those of the least square that holds them, with one side along the
    line through the first two.

    Raises:
        NoPlane: No three of the examples looked at span a plane.
        ArithmeticError: One of them is not finite.
    """
    inputs, labels, of_file = looked_at(subject)
    flat = inputs.flatten(1)
    if not bool(flat.isfinite().all()):
        raise ArithmeticError("a held-out input is not finite")
    first = 0
    order = _others_first(labels, [first])
    second = next((i for i in order if bool((flat[i] != flat[first]).any())), None)
    if second is None:
        raise NoPlane("the held-out examples are all the same point: they span no plane")
    along = flat[second] - flat[first]
    along = along / along.norm()
    off = flat - flat[first]
    off = off - (off @ along)[:, None] * along
    off = off - (off @ along)[:, None] * along
    away = off.norm(dim=1) > 1e-6 * (flat - flat[first]).norm(dim=1).max()
    third = next((i for i in _others_first(labels, [first, second]) if bool(away[i])), None)
    if third is None:
        raise NoPlane("the held-out examples lie on a line: they span no plane")
    across = off[third] / off[third].norm()
    axes, three = torch.stack((along, across)), torch.tensor([first, second, third])
    places = (flat[three] - flat[first]) @ axes.T
    low, high = places.aminmax(dim=0)
    middle, half = (low + high) / 2, ROOM * float((high - low).max()) / 2
    shape = inputs.shape[1:]
    origin = flat[first] + middle @ axes
    return Square(
        origin.reshape(shape),
        (half * along).reshape(shape),
        (half * across).reshape(shape),
        (places - middle) / half,
        labels[three],
        (of_file[first], of_file[second], of_file[third]),
    )


def _others_first(labels: Tensor, taken: list[int]) -> list[int]:
    """The examples not taken, those of other classes first."""
    known = {int(labels[i]) for i in taken}
    others = [i for i in range(len(labels)) if i not in taken]
    return sorted(others, key=lambda i: int(labels[i]) in known)


def looked_at(subject: Subject) -> tuple[Tensor, Tensor, list[int]]:
    """Held-out inputs in float64, their classes (-1: none), and which of the held-out examples they are.

    At most :data:`SCAN` of those of weight above 0, drawn at random, in the order of the file.
    """
    numbered, first = [], 0
    for batch in subject.test:
        numbers = torch.arange(first, first + len(batch.inputs[0]))
        numbered.append(Batch((numbers,), None, batch.weight))
        first += len(numbers)
    drawn = [batch.inputs[0] for batch in sample_examples(numbered, SCAN, admits=counts).batches]
    if not drawn:
        raise NoPlane("there is no held-out example")
    places, first = torch.cat(drawn), 0
    inputs, labels = [], []
    for batch in subject.test:
        x, until = batch.inputs[0], first + len(batch.inputs[0])
        here = places[(places >= first) & (places < until)] - first
        y = torch.full((len(x),), -1)
        if subject.task.classes is not None and batch.targets is not None and batch.targets.ndim == 1:
            y = batch.targets.detach().cpu().long()
        inputs.append(x.detach()[here.to(x.device)].cpu().double())
        labels.append(y[here])
        first = until
    return torch.cat(inputs), torch.cat(labels), places.tolist()
