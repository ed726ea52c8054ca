"""Networks of one hidden layer of sigmoids (Cybenko 1989): the classes G_{n,m} and their span."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn


class SigmoidNet(nn.Module):
    r"""A sum of m sigmoid ridge functions of n variables, and a constant if wanted.

    .. math:: g(x) = v^\top s(W x + b) + c, \qquad s(z) = 1 / (1 + e^{-z}),
        \quad W \in \mathbb R^{m \times n}, \quad v, b \in \mathbb R^m

    Without the constant these are the functions of G_{n,m}. The class is not closed under addition: the sum
    of two nets of m and m' units has m + m' (:func:`concatenated`).

    Args:
        in_features: Number n of variables; an input of more axes is flattened.
        units: Number m of sigmoids, at least 1.
        constant: Whether the constant c is learned; without it c = 0.

    Raises:
        ValueError: There is no unit.

    Reference:
        Cybenko 1989, Equation 1; Barron 1993, Equation 1 (with the constant).
    """

    def __init__(self, in_features: int, *, units: int = 32, constant: bool = True) -> None:
        super().__init__()
        if units < 1:
            raise ValueError(f"units must be at least 1: got {units}")
        self.hidden = nn.Linear(in_features, units)
        self.readout = nn.Linear(units, 1, bias=constant)

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value g(x) of each row."""
        return self.readout(self.hidden(x.flatten(1)).sigmoid()).flatten()


def sigmoid_net(
    weight: Float[Tensor, "units features"],
    bias: Float[Tensor, " units"],
    readout: Float[Tensor, " units"],
    constant: Float[Tensor, ""] | None = None,
    *,
    activation: Literal["sigmoid", "tanh"] = "sigmoid",
) -> SigmoidNet:
    """The net v^T phi(W x + b) + c of these numbers, as a sigmoid net, in their type.

    Since tanh z = 2 s(2 z) - 1, a net of m units tanh is one of m sigmoids with 2 W, 2 b, 2 v and a constant
    that is less by the sum of v.

    Args:
        weight: W.
        bias: b.
        readout: v.
        constant: c; None leaves it out, where the net needs none.
        activation: phi.
    """
    if activation == "tanh":
        shift = (weight.new_zeros(()) if constant is None else constant) - readout.sum()
        return sigmoid_net(2 * weight, 2 * bias, 2 * readout, shift)
    units, features = weight.shape
    net = SigmoidNet(features, units=units, constant=constant is not None).to(weight)
    with torch.no_grad():
        net.hidden.weight.copy_(weight)
        net.hidden.bias.copy_(bias)
        net.readout.weight.copy_(readout[None])
        if constant is not None:
            net.readout.bias.copy_(constant)
    return net


def concatenated(one: SigmoidNet, other: SigmoidNet) -> SigmoidNet:
    """The sum of two nets of m and m' units as one net of m + m'.

    Args:
        one: Of m units.
        other: Of m' units, of as many variables.

    Raises:
        ValueError: The nets are of different numbers of variables.

    Reference:
        Cybenko 1989, Section 2: the finite sums are a linear space.
    """
    if one.hidden.in_features != other.hidden.in_features:
        raise ValueError(
            "the nets must have one number of variables: "
            f"got {one.hidden.in_features} and {other.hidden.in_features}"
        )
    pair = (one, other)
    constants = [net.readout.bias.detach()[0] for net in pair if net.readout.bias is not None]
    return sigmoid_net(
        torch.cat([net.hidden.weight.detach() for net in pair]),
        torch.cat([net.hidden.bias.detach() for net in pair]),
        torch.cat([net.readout.weight.detach()[0] for net in pair]),
        torch.stack(constants).sum() if constants else None,
    )
