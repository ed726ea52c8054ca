"""Dilated causal convolutions over time (van den Oord et al. 2016): y_t reads x_t and what came before.

Of them a WaveNet's trunk is made, :class:`GatedConvolutions`: gated, with residual and skip paths.
"""

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import Lengths, Recurrence, Sequences, State, Steps, without_padding
from margin.nn.windows import Window, receptive_field


def causal_conv1d(
    x: Float[Tensor, "batch time channels"],
    weight: Float[Tensor, "outputs channels kernel"],
    bias: Float[Tensor, " outputs"],
    past: Float[Tensor, "batch reach channels"],
    *,
    dilation: int,
) -> Float[Tensor, "batch time outputs"]:
    r"""The dilated causal convolution of sequences, one matrix product over the k steps an output reads.

    .. math:: y_t = b + \sum_{j=0}^{k-1} W_j \, x_{t - (k-1-j) d}

    It is ``torch.nn.functional.conv1d`` of the sequence with (k-1) d steps on its left and none on its right.

    Args:
        x: The sequences x_1 .. x_T.
        weight: W, laid out as torch.nn.Conv1d's; its last tap reads x_t itself.
        bias: b.
        past: The (k-1) d steps before x_1, the oldest first; zeros where the sequence begins.
        dilation: d, steps between two taps.

    Reference:
        van den Oord, Dieleman, Zen, Simonyan, Vinyals, Graves, Kalchbrenner, Senior and Kavukcuoglu 2016,
        Section 2.1.
    """
    time = x.shape[1]
    whole = torch.cat((past, x), 1)
    taps = [whole[:, j * dilation : j * dilation + time] for j in range(weight.shape[2])]
    return F.linear(torch.cat(taps, 2), weight.transpose(1, 2).flatten(1), bias)


def newest(whole: Tensor, reach: int, lengths: Tensor | None) -> Tensor:
    """The last ``reach`` steps of each example, in a tensor of its ``reach`` earlier steps and its own.

    Args:
        whole: Earlier steps and own steps, padding behind, of shape (batch, reach + time, channels).
        reach: How many steps are kept.
        lengths: Own steps of each example; None is all.
    """
    if lengths is None:
        return whole[:, whole.shape[1] - reach :]
    index = lengths.long()[:, None] + torch.arange(reach, device=whole.device)
    return whole[torch.arange(len(whole), device=whole.device)[:, None], index]


class CausalConv1d(Recurrence):
    r"""A dilated causal convolution: y_t is an affine map of x_t, x_{t-d}, .. x_{t-(k-1)d}.

    .. math:: y_t = b + \sum_{j=0}^{k-1} W_j \, x_{t - (k-1-j) d}, \qquad x_s = 0 \text{ for } s < 1

    As a recurrence its state are the last (k-1) d inputs, so a stream is convolved a step at a time. Its
    parameters have the shapes, and by default the distribution, of ``torch.nn.Conv1d``.

    Args:
        input_size: n, numbers of x_t.
        output_size: m, numbers of y_t.
        kernel: k, inputs that an output reads, at least 1.
        dilation: d, steps between two of them, at least 1.

    Raises:
        ValueError: A size, the kernel or the dilation is below 1.

    Reference:
        van den Oord et al. 2016 (WaveNet), Section 2.1; LeCun et al. 1989 (shared weights).
    """

    def __init__(self, input_size: int, output_size: int, *, kernel: int = 2, dilation: int = 1) -> None:
        super().__init__(input_size, output_size)
        if kernel < 1 or dilation < 1:
            raise ValueError(f"kernel and dilation must be at least 1: got {kernel} and {dilation}")
        self.kernel = kernel
        self.dilation = dilation
        self.weight = nn.Parameter(torch.empty(output_size, input_size, kernel))
        self.bias = nn.Parameter(torch.empty(output_size))
        bound = (input_size * kernel) ** -0.5
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        nn.init.uniform_(self.bias, -bound, bound)

    @property
    def reach(self) -> int:
        """(k-1) d: how many steps before its own an output reads."""
        return self.window.span - 1

    @property
    def receptive_field(self) -> int:
        """1 + (k-1) d: from the oldest step that an output reads to its own, both counted."""
        return self.window.span

    @property
    def window(self) -> Window:
        """The steps that an output reads, as a window over time."""
        return Window(self.kernel, dilation=self.dilation)

    def initial(self, x: Tensor) -> State:
        """The inputs before the first step: zeros."""
        return (x.new_zeros(x.shape[0], self.reach, self.input_size),)

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """The outputs of all steps, 0 at padding, and each example's last (k-1) d inputs.

        Raises:
            ValueError: The lengths are not one a sequence, or not in 0 .. time.
        """
        x = without_padding(x, lengths)
        (past,) = self.initial(x) if state is None else state
        y, window = self.convolved(x, past, lengths)
        return without_padding(y, lengths), (window,)

    def convolved(self, x: Sequences, past: Tensor, lengths: Lengths | None) -> tuple[Sequences, Tensor]:
        """The outputs of all steps, those at padding too, and each example's last (k-1) d inputs.

        What a layer inside others does: no step reads the padding, which stands behind all steps.

        Args:
            x: The sequences, finite at padding.
            past: The (k-1) d inputs before them.
            lengths: Steps of each example; None is all of them.
        """
        y = causal_conv1d(x, self.weight, self.bias, past, dilation=self.dilation)
        return y, newest(torch.cat((past, x), 1), self.reach, lengths)

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """The output of one step, and the window of inputs moved by one."""
        y, state = self(x[:, None], None, state)
        return y[:, 0], state


class ConvolutionStack(Recurrence, ABC):
    """A recurrence that is made of causal convolutions: its state are the inputs that they read again."""

    @property
    @abstractmethod
    def convolutions(self) -> list[CausalConv1d]:
        """The convolutions, each reading the one before it, in the order of the parts of the state."""

    @property
    def receptive_field(self) -> int:
        """1 + the sum of all (k-1) d: from the oldest step that an output reads to its own, both counted."""
        return receptive_field(convolution.window for convolution in self.convolutions)

    def initial(self, x: Tensor) -> State:
        """Zeros for the inputs that each convolution reads before the first step."""
        return tuple(past for convolution in self.convolutions for past in convolution.initial(x))

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """The output of one step, and every window of inputs moved by one."""
        y, state = self(x[:, None], None, state)
        return y[:, 0], state


def gated(a: Float[Tensor, "*batch twice"]) -> Float[Tensor, "*batch units"]:
    r"""The gated activation of a filter and a gate, the two halves of a's last axis.

    .. math:: z = \tanh(a_f) \odot \sigma(a_g)

    Reference:
        van den Oord et al. 2016 (WaveNet), Equation 2.
    """
    filtered, gate = a.chunk(2, -1)
    return filtered.tanh() * gate.sigmoid()


class GatedLayer(nn.Module):
    r"""One dilated causal convolution to a filter and a gate, and an affine map back to the residual path.

    .. math:: z = \tanh(W_f * x) \odot \sigma(W_g * x), \qquad x' = x + V z + v

    Args:
        width: Numbers of x_t, and units of z_t.
        kernel: Taps of the convolution.
        dilation: Steps between two taps.

    Reference:
        van den Oord et al. 2016 (WaveNet), Sections 2.3 and 2.4, Figure 4.
    """

    def __init__(self, width: int, *, kernel: int, dilation: int) -> None:
        super().__init__()
        self.convolution = CausalConv1d(width, 2 * width, kernel=kernel, dilation=dilation)
        self.residual: nn.Module = nn.Linear(width, width)


class GatedConvolutions(ConvolutionStack):
    r"""Layers of gated causal convolutions, each added to its input; their units are summed at the end.

    .. math:: z^l = \tanh(W_f^l * x^{l-1}) \odot \sigma(W_g^l * x^{l-1}), \qquad
        x^l = x^{l-1} + V^l z^l + v^l, \qquad y = s + \textstyle\sum_l S^l z^l

    Layer l of a stack has dilation 2^(l-1), and a stack is repeated. With two taps and ten layers a stack
    reads 1,024 steps. The skip maps S^l are one matrix, the blocks side by side; the last layer has no
    residual path, since nothing reads it. As a recurrence the state are the inputs still to be read.

    Args:
        width: Numbers of x_t, and units of each layer's z_t.
        skip: Numbers of y_t.
        layers: Layers of a stack, with dilations 1, 2, .. 2^(layers-1).
        stacks: How often the stack is repeated.
        kernel: Taps of every convolution.

    Raises:
        ValueError: A number is below 1.

    Reference:
        van den Oord et al. 2016 (WaveNet), Section 2.1 (dilations 1 .. 512 repeated), 2.3 and 2.4.
    """

    def __init__(
        self, width: int, *, skip: int = 64, layers: int = 10, stacks: int = 1, kernel: int = 2
    ) -> None:
        super().__init__(width, skip)
        if min(layers, stacks, kernel) < 1:
            raise ValueError(
                f"layers, stacks and kernel must be at least 1: got {layers}, {stacks} and {kernel}"
            )
        self.layers = nn.ModuleList(
            GatedLayer(width, kernel=kernel, dilation=2**i) for _ in range(stacks) for i in range(layers)
        )
        self.layers[-1].residual = nn.Identity()  # nothing reads it
        self.skip = nn.Linear(width * layers * stacks, skip)

    @property
    def convolutions(self) -> list[CausalConv1d]:
        """The convolution to filter and gate of every layer."""
        return [layer.convolution for layer in self.layers if isinstance(layer, GatedLayer)]

    @property
    def residuals(self) -> list[nn.Linear]:
        """The maps V z + v of every layer but the last."""
        layers = [layer for layer in self.layers if isinstance(layer, GatedLayer)]
        return [layer.residual for layer in layers if isinstance(layer.residual, nn.Linear)]

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """The outputs of all steps, 0 at padding, and the inputs that later steps will read.

        Raises:
            ValueError: The lengths are not one a sequence, or not in 0 .. time.
        """
        x = without_padding(x, lengths)
        old = self.initial(x) if state is None else state
        units, new, residuals = [], [], self.residuals
        for i, (convolution, past) in enumerate(zip(self.convolutions, old, strict=True)):
            a, window = convolution.convolved(x, past, lengths)
            units.append(gated(a))
            new.append(window)
            if i < len(residuals):
                x = x + residuals[i](units[i])
        return without_padding(self.skip(torch.cat(units, -1)), lengths), tuple(new)
