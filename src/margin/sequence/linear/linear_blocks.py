"""Residual blocks around a linear recurrence (Orvieto et al. 2023): nonlinear at each step, not in time."""

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import Lengths, Recurrence, Sequences, State, Steps, check_dropout, without_padding
from margin.sequence.recurrent.layers import StepBatchNorm

Widths = Float[Tensor, "batch time width"]
Width = Float[Tensor, "batch width"]
Norm = Literal["layer", "batch", "none"]


class LinearBlock(nn.Module):
    r"""A residual block: norm, linear recurrence R, and what is nonlinear, at each step by itself.

    .. math:: y = R(\mathrm{norm}(x)), \qquad
        \mathrm{block}(x) = x + (W g + b) \odot \sigma(V g + c), \quad g = \mathrm{gelu}(y)

    Args:
        core: R, of ``width`` numbers in and out.
        width: Numbers of each step.
        dropout: Probability with which a number of g and of the branch is dropped in training, in [0, 1).
        norm: "layer" over the numbers of a step, which alone it reads; "batch" of each number over all steps
            of a batch; or none. A number that is rarely far from its mean, such as a mark, keeps its size
            under "batch", and what is summed over many steps has mean 0: it is what finds a few steps that
            count among hundreds.

    Raises:
        ValueError: The norm is another.

    Reference:
        Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu and De 2023, Section 2.1 and Figure 1 (batch or layer
        normalization).
    """

    def __init__(self, core: Recurrence, width: int, *, dropout: float = 0.0, norm: Norm = "layer") -> None:
        super().__init__()
        if norm not in ("layer", "batch", "none"):
            raise ValueError(f"norm must be 'layer', 'batch' or 'none': got {norm!r}")
        kinds = {"layer": nn.LayerNorm, "batch": StepBatchNorm, "none": nn.Identity}
        self.norm = kinds[norm](width)
        self.core = core
        self.gate = nn.Linear(width, 2 * width)
        self.dropout = nn.Dropout(check_dropout(dropout))

    def forward(self, x: Widths, lengths: Lengths | None, state: State) -> tuple[Widths, State]:
        """The block's outputs at all steps and its core's last state."""
        normal = self.norm(x, lengths) if isinstance(self.norm, StepBatchNorm) else self.norm(x)
        y, state = self.core(normal, lengths, state)
        return self._joined(x, y), state

    def step(self, x: Width, state: State) -> tuple[Width, State]:
        """One step of it."""
        y, state = self.core.step(self.norm(x), state)
        return self._joined(x, y), state

    def _joined(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.dropout(F.glu(self.gate(self.dropout(F.gelu(y)))))


class LinearStack(Recurrence):
    """An affine map to ``width`` numbers a step, then blocks one after the other.

    Args:
        input_size: n, numbers of x_t.
        core: Makes the linear recurrence of a block from its width.
        width: Numbers of each step between the blocks, at least 1; they are the outputs.
        layers: Number of blocks, at least 1.
        dropout: See :class:`LinearBlock`.
        norm: See :class:`LinearBlock`.

    Raises:
        ValueError: A size or the number of layers is below 1.
    """

    def __init__(
        self,
        input_size: int,
        core: Callable[[int], Recurrence],
        *,
        width: int = 64,
        layers: int = 2,
        dropout: float = 0.0,
        norm: Norm = "layer",
    ) -> None:
        super().__init__(input_size, width)
        if layers < 1:
            raise ValueError(f"layers must be at least 1: got {layers}")
        self.encoder = nn.Linear(input_size, width)
        self.blocks = nn.ModuleList(
            LinearBlock(core(width), width, dropout=dropout, norm=norm) for _ in range(layers)
        )

    def initial(self, x: Tensor) -> State:
        """The state 0 of every block, one after the other."""
        return tuple(part for block in self._blocks() for part in block.core.initial(x))

    def step(self, x: Steps, state: State) -> tuple[Width, State]:
        """One step through all blocks."""
        y, new = self.encoder(x), []
        for block, part in zip(self._blocks(), state, strict=True):
            y, (after,) = block.step(y, (part,))
            new.append(after)
        return y, tuple(new)

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Widths, State]:
        """All steps, a block at a time; outputs 0 at padding and each example's state after its last step."""
        state = self.initial(x) if state is None else state
        y, new = self.encoder(without_padding(x, lengths)), []
        for block, part in zip(self._blocks(), state, strict=True):
            y, (after,) = block(y, lengths, (part,))
            new.append(after)
        return without_padding(y, lengths), tuple(new)

    def _blocks(self) -> list[LinearBlock]:
        return [block for block in self.blocks if isinstance(block, LinearBlock)]
