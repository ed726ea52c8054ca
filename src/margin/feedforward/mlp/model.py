"""Multilayer perceptrons (Rumelhart, Hinton and Williams 1986): affine maps and pointwise activations.

Deep residual perceptrons (He, Zhang, Ren and Sun 2016): every layer adds to what it is given.

Densely connected perceptrons (Huang et al. 2017): a layer reads every layer before it.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores
from margin.nn.activations import Activation, activation_of, centered
from margin.nn.dense import Residual, residual_layer
from margin.nn.normalization import Norm, normalized_layer

Shortcut = Literal["none", "identity", "projection"]
"""What a hidden layer adds: nothing; its input, where the widths agree; else a linear map of it too."""


def layers(
    widths: Sequence[int],
    *,
    activation: Activation = "relu",
    dropout: float = 0.0,
    input_dropout: float = 0.0,
    norm: Norm = "none",
    residual: Shortcut = "none",
) -> nn.Sequential:
    """The map x^l = phi(norm(W_l x^{l-1} + b_l)) through ``widths``, its last layer affine; flattens first.

    With a shortcut a hidden layer is x^l = V_l x^{l-1} + phi(norm(W_l x^{l-1} + b_l)) - phi(0).

    Raises:
        ValueError: A width is not positive, a share dropped is not in [0, 1), or no hidden layer has the
            width of its input, though the shortcuts are the identity.
    """
    check_widths(widths)
    check_share("dropout", dropout)
    check_share("input_dropout", input_dropout)
    *hidden, last = pairwise(widths)
    if residual == "identity" and not any(fan_in == fan_out for fan_in, fan_out in hidden):
        raise ValueError(
            f"residual='identity' needs a hidden layer as wide as its input: got widths {list(widths)}; "
            "residual='projection' joins other widths"
        )
    made: list[nn.Module] = [nn.Flatten()]
    made += [nn.Dropout(input_dropout)] if input_dropout else []
    for fan_in, fan_out in hidden:
        shortcut = _shortcut(fan_in, fan_out, residual)
        layer = normalized_layer(fan_in, fan_out, norm)
        layer.append(activation_of(activation) if shortcut is None else centered(activation))
        layer += [nn.Dropout(dropout)] if dropout else []
        made += layer if shortcut is None else [Residual(nn.Sequential(*layer), shortcut)]
    return nn.Sequential(*made, nn.Linear(*last))


def _shortcut(fan_in: int, fan_out: int, residual: Shortcut) -> nn.Module | None:
    if residual == "none" or (residual == "identity" and fan_in != fan_out):
        return None
    return nn.Identity() if fan_in == fan_out else nn.Linear(fan_in, fan_out, bias=False)


def check_widths(widths: Sequence[int]) -> None:
    """Refuse a layer without units.

    Raises:
        ValueError: A width is not positive.
    """
    if any(width < 1 for width in widths):
        raise ValueError(f"every width must be at least 1: got {list(widths)}")


def check_share(name: str, share: float) -> None:
    """Refuse a share to be dropped that leaves nothing.

    Raises:
        ValueError: The share is not in [0, 1).
    """
    if not 0 <= share < 1:
        raise ValueError(f"{name} must be in [0, 1): got {share}")


def activations_of(net: nn.Sequential, x: Float[Tensor, " batch *features"]) -> list[Tensor]:
    """x^0, x^1, ..., x^L: the flattened input and what each layer hands on, after dropout.

    Args:
        net: What :func:`layers` made.
        x: Inputs.
    """
    flatten, *rest = net
    handed_on: list[Tensor] = [flatten(x)]
    for module in rest:
        y = module(handed_on[-1])
        if isinstance(module, nn.Linear | Residual):  # a layer begins
            handed_on.append(y)
        else:
            handed_on[-1] = y
    return handed_on


class MLP(nn.Module):
    r"""The composition of affine maps and pointwise activations from features to class logits.

    .. math:: x^l = \varphi(W_l x^{l-1} + b_l), \quad l = 1, \dots, L - 1,
        \qquad f(x) = W_L x^{L-1} + b_L

    A layer from n to m units has m (n + 1) parameters.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of logits.
        hidden: Widths of the hidden layers; none gives an affine map.
        activation: Pointwise function after each hidden layer.
        dropout: Share of hidden units dropped while training, in [0, 1).
        input_dropout: Share of features dropped while training, in [0, 1).
        norm: Normalization before each activation, or of each hidden layer's weights.
        residual: What a hidden layer adds to its output: its input where it is as wide (identity), and a
            linear map of it where it is not (projection).

    Raises:
        ValueError: A width is not positive, a share dropped is not in [0, 1), or no hidden layer has the
            width of its input, though the shortcuts are the identity.

    Reference:
        Rumelhart, Hinton and Williams 1986, Equations 1 and 2; dropout: Srivastava et al. 2014, Section 4.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        hidden: tuple[int, ...] = (128,),
        activation: Activation = "relu",
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        norm: Norm = "none",
        residual: Shortcut = "none",
    ) -> None:
        super().__init__()
        self.layers = layers(
            (in_features, *hidden, num_classes),
            activation=activation,
            dropout=dropout,
            input_dropout=input_dropout,
            norm=norm,
            residual=residual,
        )

    def forward(self, x: Float[Tensor, " batch *features"]) -> ClassScores:
        """The logits of each row."""
        return self.layers(x)

    def activations(self, x: Float[Tensor, " batch *features"]) -> list[Tensor]:
        """x^0, ..., x^L of each row: the features, each hidden layer, the logits."""
        return activations_of(self.layers, x)


class MLPRegressor(nn.Module):
    """The same composition from features to one real number.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        hidden: Widths of the hidden layers; none gives an affine map.
        activation: Pointwise function after each hidden layer.
        dropout: Share of hidden units dropped while training, in [0, 1).
        input_dropout: Share of features dropped while training, in [0, 1).
        norm: Normalization before each activation, or of each hidden layer's weights.
        residual: What a hidden layer adds to its output: its input where it is as wide (identity), and a
            linear map of it where it is not (projection).

    Raises:
        ValueError: A width is not positive, a share dropped is not in [0, 1), or no hidden layer has the
            width of its input, though the shortcuts are the identity.

    Reference:
        Rumelhart, Hinton and Williams 1986, Equations 1 and 2; dropout: Srivastava et al. 2014, Section 4.
    """

    def __init__(
        self,
        in_features: int,
        *,
        hidden: tuple[int, ...] = (128,),
        activation: Activation = "relu",
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        norm: Norm = "none",
        residual: Shortcut = "none",
    ) -> None:
        super().__init__()
        self.layers = layers(
            (in_features, *hidden, 1),
            activation=activation,
            dropout=dropout,
            input_dropout=input_dropout,
            norm=norm,
            residual=residual,
        )

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value of each row."""
        return self.layers(x).flatten()

    def activations(self, x: Float[Tensor, " batch *features"]) -> list[Tensor]:
        """x^0, ..., x^L of each row: the features, each hidden layer, the value in a column."""
        return activations_of(self.layers, x)


class ResidualMLP(nn.Module):
    r"""An affine map, many residual layers of one width, and an affine map to class logits.

    .. math:: x^0 = A x + a, \qquad x^l = x^{l-1} + \varphi(W_l x^{l-1} + b_l) - \varphi(0),
        \qquad f(x) = B x^L + b

    With W_l = 0 and b_l = 0 in every layer it is the affine map B (A x + a) + b, whatever the depth, and
    the derivative of x^L by x^0 is the identity; so a gradient reaches the first layer through any depth.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of logits.
        width: Units of every layer, at least 1.
        depth: Number L of residual layers, at least 0.
        activation: phi, the pointwise function of each residual layer.

    Raises:
        ValueError: The width is not positive, or the depth is negative.

    Reference:
        He, Zhang, Ren and Sun 2016 (Deep residual learning), Equation 1; each branch is one affine map and
        its activation, which is not applied to the sum.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        width: int = 64,
        depth: int = 8,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width must be at least 1: got {width}")
        if depth < 0:
            raise ValueError(f"depth must be at least 0: got {depth}")
        self.embedding = nn.Linear(in_features, width)
        self.layers = nn.Sequential(*(residual_layer(width, activation=activation) for _ in range(depth)))
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Float[Tensor, " batch *features"]) -> ClassScores:
        """The logits of each row."""
        return self.head(self.layers(self.embedding(x.flatten(1))))


class DenseBlock(nn.Module):
    r"""Layers each of which reads the input and every layer before it.

    .. math:: x^{l+1} = \varphi(W_{l+1} [x^l, \dots, x^1, x] + b_{l+1})

    With n features and growth g, layer l + 1 reads n + l g numbers; the block hands on all n + depth g of
    them, the newest first.

    Args:
        in_features: Width n of the input.
        growth: Units g of each layer, at least 1.
        depth: Layers, at least 1.
        activation: phi.

    Raises:
        ValueError: A width or the depth is not positive.

    Reference:
        Huang, Liu, van der Maaten and Weinberger 2017, Equation 2, of affine maps instead of convolutions.
    """

    def __init__(self, in_features: int, *, growth: int, depth: int, activation: Activation = "relu") -> None:
        super().__init__()
        for name, count in (("in_features", in_features), ("growth", growth), ("depth", depth)):
            if count < 1:
                raise ValueError(f"{name} must be at least 1: got {count}")
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(in_features + i * growth, growth), activation_of(activation))
            for i in range(depth)
        )
        self.out_features = in_features + depth * growth

    def forward(self, x: Float[Tensor, "batch features"]) -> Float[Tensor, "batch outputs"]:
        """All activations of each row, [x^L, ..., x^1, x]."""
        for layer in self.layers:
            x = torch.cat((layer(x), x), 1)
        return x


class DenseMLP(nn.Module):
    """A dense block and an affine map of all its activations to class logits.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of logits.
        growth: Units of each layer, at least 1.
        depth: Layers of the block, at least 1.
        activation: Pointwise function after each of them.

    Raises:
        ValueError: A width or the depth is not positive.

    Reference:
        Huang, Liu, van der Maaten and Weinberger 2017, Section 3.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        growth: int = 32,
        depth: int = 4,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        self.block = DenseBlock(in_features, growth=growth, depth=depth, activation=activation)
        self.head = nn.Linear(self.block.out_features, num_classes)

    def forward(self, x: Float[Tensor, " batch *features"]) -> ClassScores:
        """The logits of each row."""
        return self.head(self.block(x.flatten(1)))
