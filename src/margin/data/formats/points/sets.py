"""Sets of elements of R^k as examples: of one size (N, M, k), or of several, with a mask.

A set without elements is legal: its mask is False throughout.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.examples import offsets_of, ranges


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """Sets of several sizes, held one behind another; a batch is padded to the largest set in it.

    Args:
        elements: The elements of all sets, one set behind another.
        sizes: The number of elements of each set.
        targets: The target of each set, or None.
    """

    elements: Float[Tensor, "elements width"]
    sizes: Int[Tensor, " sets"]
    targets: Int[Tensor, " sets"] | Float[Tensor, " sets"] | None = None

    def __post_init__(self) -> None:
        if bool((self.sizes < 0).any()) or int(self.sizes.sum()) != len(self.elements):
            raise ValueError(
                "sizes must be at least 0 and add up to the number of elements: "
                f"got {int(self.sizes.sum())}, {len(self.elements)} elements"
            )

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The sets at ``index``: elements, 0 behind the last, and a mask, True where an element is."""
        sizes = self.sizes[index]
        most = int(sizes.max()) if len(sizes) else 0
        mask = torch.arange(most) < sizes[:, None]
        x = self.elements.new_zeros((len(sizes), most, self.elements.shape[1]))
        x[mask] = self.elements[ranges(offsets_of(self.sizes)[index], sizes)]
        return Batch((x, mask), None if self.targets is None else self.targets[index])

    def chosen(self, index: Int[Tensor, " chosen"]) -> "Sets":
        """Some of the sets, with their targets."""
        places = ranges(offsets_of(self.sizes)[index], self.sizes[index])
        targets = None if self.targets is None else self.targets[index]
        return Sets(self.elements[places], self.sizes[index], targets)

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [self.elements, self.sizes, *([] if self.targets is None else [self.targets])]


def sets_of(sets: Sequence[Tensor], targets: Tensor | None = None) -> Sets:
    """Sets (M_i, k), one by one, as examples."""
    return Sets(torch.cat([*sets]), torch.tensor([len(one) for one in sets]), targets)
