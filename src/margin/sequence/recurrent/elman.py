"""The simple recurrent network (Elman 1990): a hidden state fed back into the units that made it."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import check_layers
from margin.sequence.recurrent.readouts import (
    LanguageModel,
    Pool,
    Readout,
    SequenceClassifier,
    SequenceRegressor,
)
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
        input_size: n, numbers of a step.
        hidden: m, units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number between two layers is dropped in training, in [0, 1).
        nonlinearity: phi, tanh or relu.
        recurrent_init: How U begins: torch's uniform draw, an orthogonal matrix, or the identity.

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


# a constructor's parameters: they are the model's options
def classifier(
    input_size: int,
    num_classes: int,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    pool: Pool = "last",
    nonlinearity: Nonlinearity = "tanh",
    recurrent_init: RecurrentInit = "uniform",
) -> SequenceClassifier:
    """An Elman network to class logits.

    Args:
        input_size: Numbers of a step.
        num_classes: Number of logits.
        hidden: Units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training, between two layers and of what is
            read, in [0, 1).
        pool: What is read: the last output, or the mean over the steps.
        nonlinearity: tanh or relu.
        recurrent_init: How the recurrent matrices begin: uniform, orthogonal or identity.
    """
    return SequenceClassifier(
        recurrence(
            input_size,
            hidden=hidden,
            layers=layers,
            dropout=dropout,
            nonlinearity=nonlinearity,
            recurrent_init=recurrent_init,
        ),
        num_classes,
        pool=pool,
        dropout=dropout,
    )


# a constructor's parameters: they are the model's options
def regressor(
    input_size: int,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    pool: Pool = "last",
    nonlinearity: Nonlinearity = "tanh",
    recurrent_init: RecurrentInit = "uniform",
) -> SequenceRegressor:
    """An Elman network to one real number.

    Args:
        input_size: Numbers of a step.
        hidden: Units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training, between two layers and of what is
            read, in [0, 1).
        pool: What is read: the last output, or the mean over the steps.
        nonlinearity: tanh or relu.
        recurrent_init: How the recurrent matrices begin: uniform, orthogonal or identity.
    """
    return SequenceRegressor(
        recurrence(
            input_size,
            hidden=hidden,
            layers=layers,
            dropout=dropout,
            nonlinearity=nonlinearity,
            recurrent_init=recurrent_init,
        ),
        pool=pool,
        dropout=dropout,
    )


# a constructor's parameters: they are the model's options
def language(
    vocab_size: int,
    *,
    embedding: int = 64,
    hidden: int = 128,
    layers: int = 1,
    dropout: float = 0.0,
    readout: Readout = "own",
    nonlinearity: Nonlinearity = "tanh",
    recurrent_init: RecurrentInit = "uniform",
) -> LanguageModel:
    """An Elman network to the distribution of the next token.

    Args:
        vocab_size: Number of tokens.
        embedding: Numbers of a token's vector, at least 1.
        hidden: Units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training: of the token vectors, between two
            layers, and of the last layer's outputs; in [0, 1).
        readout: A matrix of its own, or that of the token vectors, which needs embedding = hidden.
        nonlinearity: tanh or relu.
        recurrent_init: How the recurrent matrices begin: uniform, orthogonal or identity.
    """
    return LanguageModel(
        vocab_size,
        recurrence(
            embedding,
            hidden=hidden,
            layers=layers,
            dropout=dropout,
            nonlinearity=nonlinearity,
            recurrent_init=recurrent_init,
        ),
        readout=readout,
        dropout=dropout,
    )
