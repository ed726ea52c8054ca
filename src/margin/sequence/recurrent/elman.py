"""The simple recurrent network (Elman 1990): a hidden state fed back into the units that made it."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import check_layers
from margin.sequence.recurrent import readouts
from margin.sequence.recurrent.torch_recurrent import RecurrentInit, TorchRecurrence, begin

Nonlinearity = Literal["tanh", "relu"]


def elman(
    z: Float[Tensor, "batch m"], x: Float[Tensor, "batch n"], U: Float[Tensor, "m m"], V: Float[Tensor, "m n"]
) -> Float[Tensor, "batch m"]:
    r"""One step without biases, z_t = tanh(U z_{t-1} + V x_t).

    Reference: Elman 1990; Goodfellow, Bengio and Courville 2016, Equations 10.8 and 10.9.
    """
    return torch.tanh(F.linear(z, U) + F.linear(x, V))


def recurrence(
    input_size: int,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    nonlinearity: Nonlinearity = "tanh",
    recurrent_init: RecurrentInit = "uniform",
) -> TorchRecurrence:
    r"""Torch's nn.RNN as a recurrence: z_t = phi(U z_{t-1} + b' + V x_t + b), y_t = z_t.

    Args:
        input_size: n, numbers of a step, or of a token's vector; at least 1.
        hidden: m, units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training, in [0, 1): between layers, of what a
            classifier or regressor reads, and of a language model's token vectors and outputs.
        nonlinearity: phi, tanh or relu.
        recurrent_init: How the recurrent matrices begin: uniform as torch draws, orthogonal or identity.

    Raises:
        ValueError: A size is below 1, or the dropout is not in [0, 1).

    Reference: Elman 1990; Goodfellow, Bengio and Courville 2016, Equations 10.8 and 10.9.
    """
    check_layers(hidden, layers, dropout)
    layer = nn.RNN(
        input_size,
        hidden,
        layers,
        nonlinearity=nonlinearity,
        batch_first=True,
        dropout=dropout if layers > 1 else 0.0,  # torch warns of dropout between the layers of one
    )
    begin(layer, recurrent_init)
    return TorchRecurrence(layer)


classifier = readouts.classifier(recurrence, "An Elman network to class logits.")
regressor = readouts.regressor(recurrence, "An Elman network to one real number.")
language = readouts.language(recurrence, "An Elman network to the distribution of the next token.")
