"""Densely connected perceptrons (Huang et al. 2017): a layer reads every layer before it."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores
from margin.nn.activations import Activation, activation_of


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
