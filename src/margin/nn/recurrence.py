"""Recurrences, z_t = F(z_{t-1}, x_t) and y_t = G(z_t) (Elman 1990): unrolled, streamed, of any length."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

State = tuple[Tensor, ...]
"""What a recurrence remembers: tensors of shape (batch, ...)."""

Step = Callable[[Tensor, State], tuple[Tensor, State]]
"""``(x_t (batch, n), state) -> (y_t (batch, m), state)``."""

Sequences = Float[Tensor, "batch time _"]
"""One vector a step, of the inputs' size or of the outputs'."""

Steps = Float[Tensor, "batch _"]
"""The vectors of one step."""

Lengths = Int[Tensor, " batch"]


class Recurrence(nn.Module, ABC):
    r"""A map from sequences to sequences that is one function, applied step after step to a state.

    .. math:: z_t = F_\theta(z_{t-1}, x_t), \qquad y_t = G_\phi(z_t), \qquad t = 1 \dots T

    The parameters are the same at each step. ``forward`` over T steps equals T calls of ``step``; an example
    of length T_i gets outputs 0 after its T_i steps and its state is that after step T_i, whatever the
    padding holds. An example of length 0 keeps the state it came with.

    Args:
        input_size: n, numbers of x_t.
        output_size: m, numbers of y_t.

    Reference:
        Elman 1990; Goodfellow, Bengio and Courville 2016, Section 10.1.
    """

    causal: bool = True
    """Whether y_t depends on x_1 .. x_t alone; where it does not, ``step`` raises."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        if input_size < 1 or output_size < 1:
            raise ValueError(
                "a recurrence needs input_size and output_size of at least 1: "
                f"got {input_size} and {output_size}"
            )
        self.input_size = input_size
        self.output_size = output_size

    @abstractmethod
    def initial(self, x: Tensor) -> State:
        """The state z_0 = 0 before the first step.

        Args:
            x: A tensor of shape (batch, ...) that gives the batch size, dtype and device.
        """

    @abstractmethod
    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step: the output y_t and the new state."""

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """The outputs of all steps, 0 at padding, and the state after each example's own last step.

        Args:
            x: The sequences, padded to one length.
            lengths: Steps of each example, from 0 to time; None is all of them.
            state: The state to go on from; None is the initial one.

        Raises:
            ValueError: The lengths are not one a sequence, or not in 0 .. time.
        """
        return unrolled(self.step, x, lengths, self.initial(x) if state is None else state)

    def final(self, outputs: Sequences, lengths: Lengths | None = None) -> Steps:
        """The output that has read each whole sequence; 0 for one of length 0."""
        return last(outputs, lengths)


def check_lengths(lengths: Tensor, x: Tensor) -> None:
    """Refuse lengths that disagree with the tensor of the sequences.

    Args:
        lengths: Steps of each example.
        x: The sequences, of shape (batch, time, ...).

    Raises:
        ValueError: They are not integers of shape (batch,), or not in 0 .. time.
    """
    if lengths.shape != x.shape[:1] or lengths.dtype == torch.bool or lengths.is_floating_point():
        raise ValueError(
            f"lengths must be one integer a sequence, shape ({len(x)},): "
            f"got shape {tuple(lengths.shape)} of {lengths.dtype}"
        )
    if len(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= x.shape[1]:
        raise ValueError(
            f"lengths must be in 0 .. {x.shape[1]}, the steps of the tensor: "
            f"got {int(lengths.min())} .. {int(lengths.max())}"
        )


def check_layers(hidden: int, layers: int, dropout: float) -> None:
    """Refuse options that make no stack of layers, before torch does in words of its own.

    Args:
        hidden: Units of each layer.
        layers: Layers on top of each other.
        dropout: Probability with which a number is dropped in training.

    Raises:
        ValueError: A size is below 1, or the dropout is not in [0, 1).
    """
    for name, size in (("hidden", hidden), ("layers", layers)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1: got {size}")
    check_dropout(dropout)


def check_dropout(dropout: float) -> float:
    """The probability with which a number is dropped, unless it drops all or is none.

    Raises:
        ValueError: It is not in [0, 1).
    """
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1): got {dropout:g}")
    return dropout


def valid(lengths: Lengths, time: int) -> Bool[Tensor, "batch {time}"]:
    """Which positions are steps of their example: True at t < length, False at padding."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


def without_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """The sequences with 0 at their padding, so that nothing there, NaN included, reaches a gradient.

    Args:
        x: Sequences of shape (batch, time, ...).
        lengths: Steps of each example; None leaves x as it is.

    Raises:
        ValueError: The lengths disagree with x.
    """
    if lengths is None:
        return x
    check_lengths(lengths, x)
    here = valid(lengths, x.shape[1])
    return x.masked_fill(~here.view(*here.shape, *(1,) * (x.ndim - 2)), 0)


def unrolled(step: Step, x: Tensor, lengths: Tensor | None, state: State) -> tuple[Tensor, State]:
    """Apply a step to one x_t after the other: outputs (batch, time, m), 0 at padding, and the last state.

    A finished example keeps its state. The sequence is unbound once: a slice x[:, t] for each step would make
    the backward pass quadratic in time, since each slice's gradient fills a tensor of x's size.

    Args:
        step: ``(x_t, state) -> (y_t, state)``.
        x: Sequences of shape (batch, time, ...).
        lengths: Steps of each example, from 0 to time; None is all of them.
        state: The state to begin with.

    Raises:
        ValueError: The lengths disagree with x.
    """
    if x.shape[1] == 0:
        y, _ = step(x.new_zeros(x.shape[0], *x.shape[2:]), state)  # asked for its width alone
        return y.unsqueeze(1)[:, :0], state
    here = None if lengths is None else valid(lengths, x.shape[1]).unbind(1)
    outputs = []
    for t, x_t in enumerate(without_padding(x, lengths).unbind(1)):
        y, new = step(x_t, state)
        if here is not None:
            y = kept(here[t], y, torch.zeros_like(y))
            new = tuple(kept(here[t], n, old) for n, old in zip(new, state, strict=True))
        outputs.append(y)
        state = new
    return torch.stack(outputs, 1), state


def kept(here: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """``new`` for the examples where ``here`` is True, ``old`` for the others."""
    return torch.where(here.view(-1, *(1,) * (new.ndim - 1)), new, old)


def reversed_in_time(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Each example's own steps in reverse order; its padding stays where it is.

    Args:
        x: Sequences of shape (batch, time, ...).
        lengths: Steps of each example; None is all of them.

    Raises:
        ValueError: The lengths disagree with x.
    """
    if lengths is None:
        return x.flip(1)
    check_lengths(lengths, x)
    t = torch.arange(x.shape[1], device=x.device)
    source = torch.where(valid(lengths, x.shape[1]), lengths[:, None] - 1 - t, t)
    return x[torch.arange(len(x), device=x.device)[:, None], source]


def last(outputs: Sequences, lengths: Lengths | None = None) -> Steps:
    """The output at each example's own last step; 0 for a sequence of length 0."""
    batch, time, width = outputs.shape
    if time == 0:
        return outputs.new_zeros(batch, width)
    if lengths is None:
        return outputs[:, -1]
    check_lengths(lengths, outputs)
    index = (lengths.long() - 1).clamp_min(0)[:, None, None].expand(batch, 1, width)
    return kept(lengths > 0, outputs.gather(1, index)[:, 0], outputs.new_zeros(batch, width))


def mean(outputs: Sequences, lengths: Lengths | None = None) -> Steps:
    """The mean output over each example's own steps; 0 for a sequence of length 0.

    Args:
        outputs: The outputs of a recurrence, 0 at padding.
        lengths: Steps of each example; None is all of them.

    Raises:
        ValueError: The lengths disagree with the outputs.
    """
    total = without_padding(outputs, lengths).sum(1)
    if lengths is None:
        return total / max(outputs.shape[1], 1)
    return total / lengths.clamp_min(1)[:, None]


def gate_bias(memory: int, hidden: int) -> Float[Tensor, " hidden"]:
    """Gate logits log u, u uniform in [1, memory - 1]: the state then forgets to 1/e in about u + 1 steps.

    Args:
        memory: Steps of the longest memory, at least 2.
        hidden: How many.

    Raises:
        ValueError: The memory is shorter than 2 steps.

    Reference: Tallec and Ollivier 2018, Equation 16.
    """
    if memory < 2:
        raise ValueError(f"memory must be 0, for none, or at least 2 steps: got {memory}")
    return (1 + (memory - 2) * torch.rand(hidden)).log()


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """The type, of at least 32 bits, in which long memories are computed with numbers of a type."""
    return torch.promote_types(dtype, torch.float32)
