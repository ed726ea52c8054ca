"""The minimal LSTM (Feng et al. 2024): two gates that read the input alone, normalized to sum to 1."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import gate_bias
from margin.sequence.linear.mingru import GatedAverage
from margin.sequence.recurrent import readouts
from margin.sequence.recurrent.layers import Stacked, widths


def kept_logit(
    forget: Float[Tensor, "*batch hidden"], write: Float[Tensor, "*batch hidden"]
) -> Float[Tensor, "*batch hidden"]:
    r"""The logit of the normalized forget gate, :math:`\log(f / i) = \log \sigma(l) - \log \sigma(w)`.

    Args:
        forget: l, the logit of f.
        write: w, the logit of i.

    Reference: Feng et al. 2024, Section 3.2 (f' = f / (f + i)); logarithms keep its digits.
    """
    return F.logsigmoid(forget) - F.logsigmoid(write)


class MinLSTM(GatedAverage):
    r"""A recurrence that averages its input over time, with two gates that the input sets, normalized.

    .. math:: f_t = \sigma(F x_t + c), \quad i_t = \sigma(I x_t + d), \qquad
        z_t = \frac{f_t}{f_t + i_t} \odot z_{t-1} + \frac{i_t}{f_t + i_t} \odot (V x_t + b)

    Args:
        input_size: n, numbers of a step.
        hidden: m, units, at least 1.
        memory: Steps that the longest memories last at the beginning (c = log u = -d, u uniform in
            [1, memory - 1]), at least 2; 0 leaves torch's draw, with which they last about 2 steps.

    Raises:
        ValueError: A size is below 1, or the memory is 1 or negative.

    Reference:
        Feng, Tung, Ahmed, Bengio and Hajimirsadeghi 2024, Section 3.2; its biases are optional. Tallec and
        Ollivier 2018, Section 2 (memory).
    """

    def __init__(self, input_size: int, *, hidden: int = 64, memory: int = 0) -> None:
        super().__init__(input_size, hidden)
        self.forget = nn.Linear(input_size, hidden)
        self.write = nn.Linear(input_size, hidden)
        self.candidate = nn.Linear(input_size, hidden)
        if memory:
            with torch.no_grad():
                self.forget.bias.copy_(gate_bias(memory, hidden))
                self.write.bias.copy_(-self.forget.bias)

    def logits(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch hidden"]:
        """The logit of the share of the old state that x keeps."""
        return kept_logit(self.forget(x), self.write(x))


def recurrence(
    input_size: int, *, hidden: int = 64, layers: int = 1, dropout: float = 0.0, memory: int = 0
) -> Stacked:
    """Minimal LSTMs on top of each other.

    Args:
        input_size: n, numbers of a step.
        hidden: Units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training, in [0, 1): between two layers, and of
            what a classifier reads.
        memory: Steps that the longest memories last at the beginning, at least 2; 0 leaves torch's draw.
    """
    sizes = widths(input_size, hidden, layers)
    return Stacked([MinLSTM(n, hidden=hidden, memory=memory) for n in sizes], dropout=dropout)


classifier = readouts.classifier(recurrence, "Minimal LSTMs to class logits.")
