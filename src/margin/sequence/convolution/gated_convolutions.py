"""WaveNet's trunk (van den Oord et al. 2016): gated dilated causal convolutions, residual and skip paths."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import Lengths, Recurrence, Sequences, State, Steps, without_padding
from margin.sequence.convolution.causal_convolution import CausalConv1d


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


class GatedConvolutions(Recurrence):
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

    @property
    def receptive_field(self) -> int:
        """1 + stacks (k-1) (2^layers - 1): from the oldest step that an output reads to its own."""
        return 1 + sum(convolution.reach for convolution in self.convolutions)

    def initial(self, x: Tensor) -> State:
        """Zeros for the inputs that each layer reads before the first step."""
        return tuple(past for convolution in self.convolutions for past in convolution.initial(x))

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

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """The output of one step, and every window of inputs moved by one."""
        y, state = self(x[:, None], None, state)
        return y[:, 0], state
