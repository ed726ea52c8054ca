"""Temporal convolutional networks (Bai, Kolter and Koltun 2018): residual dilated causal convolutions."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from margin.nn.recurrence import Lengths, Sequences, State, check_dropout, without_padding
from margin.sequence.convolution.causal import CausalConv1d, ConvolutionStack
from margin.sequence.recurrent import readouts


class ResidualBlock(nn.Module):
    r"""Two weight-normalized dilated causal convolutions whose result is added to their input.

    .. math:: B(x) = \varphi(x' + \varphi(g_2 * \varphi(g_1 * x))), \qquad \varphi = \mathrm{ReLU}

    with dropout after each inner ReLU, x' = x, or an affine map of each x_t where the sizes differ.

    Args:
        input_size: Numbers of x_t.
        output_size: Numbers of each output step.
        kernel: Taps of both convolutions.
        dilation: Steps between two taps.
        dropout: Probability with which a number is dropped in training.

    Reference:
        Bai, Kolter and Koltun 2018, Section 3.3 and Figure 1b; Salimans and Kingma 2016 (weight
        normalization).
    """

    def __init__(
        self, input_size: int, output_size: int, *, kernel: int, dilation: int, dropout: float
    ) -> None:
        super().__init__()
        sizes = ((input_size, output_size), (output_size, output_size))
        self.convolutions = nn.ModuleList(
            weight_norm(CausalConv1d(n, m, kernel=kernel, dilation=dilation)) for n, m in sizes
        )
        self.shortcut = nn.Identity() if input_size == output_size else nn.Linear(input_size, output_size)
        self.dropout = nn.Dropout(check_dropout(dropout))

    def forward(
        self, x: Float[Tensor, "batch time features"], lengths: Lengths | None, state: State
    ) -> tuple[Float[Tensor, "batch time units"], State]:
        """The outputs of all steps, and the last inputs of both convolutions."""
        z, new = x, []
        layers = [layer for layer in self.convolutions if isinstance(layer, CausalConv1d)]
        for convolution, past in zip(layers, state, strict=True):
            z, window = convolution.convolved(z, past, lengths)
            z = self.dropout(z.relu())
            new.append(window)
        return (self.shortcut(x) + z).relu(), tuple(new)


class TCN(ConvolutionStack):
    r"""Residual blocks of dilated causal convolutions, the dilation doubled from block to block.

    Block i = 0 .. L-1 has dilation 2^i; y_t reads the last 1 + 2 (k-1) (2^L - 1) inputs and no later one.
    As a recurrence its state are the inputs that its convolutions still need.

    Args:
        input_size: n, numbers of x_t.
        hidden: Units of every block, which are the outputs too; numbers of a token's vector.
        layers: L, blocks, at least 1; an output reads 1 + 2 (kernel - 1) (2^L - 1) steps.
        kernel: k, taps of every convolution, at least 1.
        dropout: Probability with which a number is dropped in training, in [0, 1).

    Raises:
        ValueError: A size is below 1, or the dropout is no probability.

    Reference:
        Bai, Kolter and Koltun 2018, Sections 3.2 and 3.3. They draw the weights from N(0, 0.01); here they
        begin as torch.nn.Conv1d's.
    """

    def __init__(
        self, input_size: int, *, hidden: int = 32, layers: int = 6, kernel: int = 3, dropout: float = 0.0
    ) -> None:
        super().__init__(input_size, hidden)
        if layers < 1:
            raise ValueError(f"layers must be at least 1: got {layers}")
        self.blocks = nn.ModuleList(
            ResidualBlock(
                input_size if i == 0 else hidden, hidden, kernel=kernel, dilation=2**i, dropout=dropout
            )
            for i in range(layers)
        )

    @property
    def convolutions(self) -> list[CausalConv1d]:
        """The convolutions of all blocks, two a block."""
        return [module for module in self.modules() if isinstance(module, CausalConv1d)]

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """The outputs of all steps, 0 at padding, and the inputs that later steps will read.

        Raises:
            ValueError: The lengths are not one a sequence, or not in 0 .. time.
        """
        y = without_padding(x, lengths)
        old, new = self.initial(x) if state is None else state, []
        for i, block in enumerate(self.blocks):
            y, windows = block(y, lengths, old[2 * i : 2 * i + 2])
            new.extend(windows)
        return without_padding(y, lengths), tuple(new)


classifier = readouts.classifier(
    TCN, "Class logits of a sequence, from a TCN's last or mean output.", without=("head.dropout",)
)
regressor = readouts.regressor(
    TCN, "One real number of a sequence, from a TCN's last or mean output.", without=("head.dropout",)
)
language = readouts.language(
    TCN,
    "The distribution of the next token, from a TCN over token vectors.",
    body_size="hidden",
    defaults={"hidden": 64, "layers": 5},
    without=("readout", "head.dropout"),
)
forecaster = readouts.forecaster(
    TCN,
    "The next values of each target by dilated causal convolutions that have read the context.",
    defaults={"layers": 5},
)
