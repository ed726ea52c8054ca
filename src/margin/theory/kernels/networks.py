r"""Fully connected networks in the parametrization in which the limit of infinite width is taken.

Each layer is :math:`\frac{\sigma_w}{\sqrt n} W h + \sigma_b b` with standard normal W and b: the same outputs
as of weights of variance sigma_w^2 / n, and another tangent kernel, one that does not grow with the width
(Jacot, Gabriel and Hongler 2018, Section 2).
"""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.theory.kernels.duals import Activation

FUNCTIONS = {"relu": torch.relu, "erf": torch.erf, "gelu": nn.functional.gelu, "linear": lambda u: u}
"""The activations whose dual has a closed form."""


class WideNetwork(nn.Module):
    """A fully connected network of equal hidden layers in the parametrization of the tangent kernel.

    Args:
        in_features: d.
        num_outputs: Outputs.
        width: n, units of a hidden layer.
        depth: Hidden layers, at least 0.
        weight_std: sigma_w.
        bias_std: sigma_b.
        activation: As of :func:`margin.theory.kernels.wide.ntk`, whose kernel is this network's for n to
            infinity.
        generator: Source of the weights; None: the global one.

    Raises:
        ValueError: Width or depth is out of range.

    Reference: Jacot, Gabriel and Hongler 2018, Section 2; Lee et al. 2019, Section 2.1.
    """

    def __init__(  # the options are those of the kernel, and the width
        self,
        in_features: int,
        num_outputs: int = 1,
        *,
        width: int = 512,
        depth: int = 1,
        weight_std: float = math.sqrt(2),
        bias_std: float = 0.0,
        activation: Activation = "relu",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if width < 1 or depth < 0:
            raise ValueError(f"width must be at least 1, depth at least 0: got width={width}, depth={depth}")
        self.weight_std, self.bias_std = weight_std, bias_std
        self.activation = activation if callable(activation) else FUNCTIONS[activation]
        sizes = (in_features, *[width] * depth, num_outputs)
        # the bias is the weight of an input that is sigma_b everywhere
        self.layers = nn.ModuleList(
            nn.utils.skip_init(nn.Linear, taken + (bias_std > 0), given, bias=False)
            for taken, given in pairwise(sizes)
        )
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.randn(weight.shape, generator=generator))

    def forward(self, x: Float[Tensor, "batch features"]) -> Float[Tensor, "batch outputs"]:
        """The outputs of each row."""
        for i, layer in enumerate(self.layers):
            x = (self.activation(x) if i else x) * (self.weight_std / math.sqrt(x.shape[1]))
            if self.bias_std > 0:
                x = torch.cat([x, x.new_full((len(x), 1), self.bias_std)], 1)
            x = layer(x)
        return x
