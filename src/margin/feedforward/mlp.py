"""Multilayer perceptrons (Rumelhart, Hinton and Williams 1986): affine maps and pointwise activations."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from margin.types import ClassScores

Activation = Literal["relu", "leaky_relu", "tanh", "sigmoid", "gelu", "identity"]
Norm = Literal["none", "batch", "layer"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "identity": nn.Identity,
}
NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def layers(widths: Sequence[int], *, activation: Activation, dropout: float, norm: Norm) -> nn.Sequential:
    """The map x^l = phi(norm(W_l x^{l-1} + b_l)) through ``widths``, its last layer affine; flattens first.

    Raises:
        ValueError: A width is not positive, or dropout is not in [0, 1).
    """
    if any(width < 1 for width in widths):
        raise ValueError(f"every width must be at least 1: got {list(widths)}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1): got {dropout}")
    made: list[nn.Module] = [nn.Flatten()]
    *hidden, last = pairwise(widths)
    for fan_in, fan_out in hidden:
        made.append(nn.Linear(fan_in, fan_out))
        made += [NORMS[norm](fan_out)] if norm != "none" else []
        made.append(ACTIVATIONS[activation]())
        made += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*made, nn.Linear(*last))


class MLP(nn.Module):
    """The composition of affine maps and pointwise activations from features to class logits.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of logits.
        hidden: Widths of the hidden layers; none gives an affine map.
        activation: Pointwise function after each hidden layer.
        dropout: Share of hidden units dropped while training, in [0, 1).
        norm: Normalization before each activation.

    Raises:
        ValueError: A width is not positive, or dropout is not in [0, 1).

    Reference:
        Rumelhart, Hinton and Williams 1986, Eq. 1-2.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        hidden: tuple[int, ...] = (128,),
        activation: Activation = "relu",
        dropout: float = 0.0,
        norm: Norm = "none",
    ) -> None:
        super().__init__()
        widths = (in_features, *hidden, num_classes)
        self.layers = layers(widths, activation=activation, dropout=dropout, norm=norm)

    def forward(self, x: Float[Tensor, " batch *features"]) -> ClassScores:
        """The logits of each row."""
        return self.layers(x)


class MLPRegressor(nn.Module):
    """The same composition from features to one real number.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        hidden: Widths of the hidden layers; none gives an affine map.
        activation: Pointwise function after each hidden layer.
        dropout: Share of hidden units dropped while training, in [0, 1).
        norm: Normalization before each activation.

    Raises:
        ValueError: A width is not positive, or dropout is not in [0, 1).

    Reference:
        Rumelhart, Hinton and Williams 1986, Eq. 1-2.
    """

    def __init__(
        self,
        in_features: int,
        *,
        hidden: tuple[int, ...] = (128,),
        activation: Activation = "relu",
        dropout: float = 0.0,
        norm: Norm = "none",
    ) -> None:
        super().__init__()
        self.layers = layers((in_features, *hidden, 1), activation=activation, dropout=dropout, norm=norm)

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value of each row."""
        return self.layers(x).flatten()
