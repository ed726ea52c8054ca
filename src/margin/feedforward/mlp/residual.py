"""Deep residual perceptrons (He, Zhang, Ren and Sun 2016): every layer adds to what it is given."""

from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores
from margin.nn.activations import Activation
from margin.nn.residual import residual_layer


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
