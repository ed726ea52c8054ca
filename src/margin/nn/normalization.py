"""Normalization: values brought to mean 0 and variance 1, or weights to length 1, then scaled again.

Torch has the layers: ``nn.BatchNorm1d`` (Ioffe and Szegedy 2015), ``nn.LayerNorm`` (Ba, Kiros and Hinton
2016), ``nn.utils.parametrizations.weight_norm`` (Salimans and Kingma 2016). Here are their formulas.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

Norm = Literal["none", "batch", "layer", "weight"]
"""What is normalized before an activation: nothing, each unit over the batch, each row over its units, W."""


def normalized_unit(
    values: Float[Tensor, "*shape"],
    gain: float | Float[Tensor, "..."] = 1.0,
    bias: float | Float[Tensor, "..."] = 0.0,
    *,
    dim: int | tuple[int, ...] = 0,
    eps: float = 0.0,
) -> Float[Tensor, "*shape"]:
    r"""Values shifted and scaled to mean ``bias`` and standard deviation ``gain`` along ``dim``.

    .. math:: \gamma\,\frac{f - \mathbb E f}{\sqrt{\operatorname{Var} f + \epsilon}} + \mu

    The variance is divided by n, not n - 1. Along the batch this is batch normalization while training,
    along the units layer normalization.

    Args:
        values: f.
        gain: gamma; broadcasts against the values.
        bias: mu; broadcasts against the values.
        dim: Axis or axes over which mean and variance are taken.
        eps: Added to the variance, at least 0; with 0 constant values have no standard form, and give NaN.

    Raises:
        ValueError: eps is negative.

    Reference:
        Ioffe and Szegedy 2015, Algorithm 1; Ba, Kiros and Hinton 2016, Equation 3.
    """
    if not eps >= 0:
        raise ValueError(f"eps must be at least 0: got {eps}")
    variance, mean = torch.var_mean(values, dim, correction=0, keepdim=True)
    return gain * (values - mean) / (variance + eps).sqrt() + bias


def weight_norm_gradients(
    v: Float[Tensor, "out in"], gain: Float[Tensor, " out"], grad: Float[Tensor, "out in"]
) -> tuple[Float[Tensor, " out"], Float[Tensor, "out in"]]:
    r"""The gradients by gain and direction of a loss of the rows w = gamma v / \|v\|, from that by w.

    .. math:: \frac{\partial \ell}{\partial \gamma} = \Big\langle g, \frac{v}{\|v\|} \Big\rangle,
        \qquad \frac{\partial \ell}{\partial v}
        = \frac{\gamma}{\|v\|} \Big(I - \frac{v v^\top}{\|v\|^2}\Big) g

    The second is orthogonal to v, so a step of gradient descent never makes v shorter:
    \|v - eta g_v\|^2 = \|v\|^2 + eta^2 \|g_v\|^2. With weight decay, or steps scaled coordinate by
    coordinate, as Adam's, v may shrink.

    Args:
        v: Directions, one a row, none of them 0.
        gain: gamma of each row.
        grad: g, the gradient by w.

    Reference:
        Salimans and Kingma 2016, Equations 3 and 4.
    """
    length = v.norm(dim=1, keepdim=True)
    unit = v / length
    along = (grad * unit).sum(1)
    return along, gain[:, None] / length * (grad - along[:, None] * unit)


def normalized_layer(fan_in: int, fan_out: int, norm: Norm) -> list[nn.Module]:
    """The affine map from ``fan_in`` to ``fan_out`` units with its normalization, in the order of their use.

    Args:
        fan_in: Width of the input.
        fan_out: Width of the output.
        norm: What is normalized.
    """
    affine = nn.Linear(fan_in, fan_out)
    match norm:
        case "batch":
            return [affine, nn.BatchNorm1d(fan_out)]
        case "layer":
            return [affine, nn.LayerNorm(fan_out)]
        case "weight":
            return [weight_norm(affine)]
        case "none":
            return [affine]
    raise ValueError(f"norm must be none, batch, layer or weight: got {norm!r}")
