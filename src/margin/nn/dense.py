"""A chain of affine maps with an activation between them: the perceptrons inside larger models.

Residual layers (He, Zhang, Ren and Sun 2016): an affine map with activation, added to its own input.
"""

from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.activations import Activation, activation_of, centered


def dense(
    fan_in: int, hidden: tuple[int, ...], fan_out: int, activation: Activation = "relu"
) -> nn.Sequential:
    """The chain of affine maps fan_in -> hidden -> fan_out, an activation after each but the last.

    Args:
        fan_in: Numbers of an input.
        hidden: Widths of the layers between; none gives an affine map.
        fan_out: Numbers of an output.
        activation: The pointwise function between two maps.

    Raises:
        ValueError: A width is not positive.
    """
    if any(width < 1 for width in hidden):
        raise ValueError(f"hidden must be widths of at least 1: got {hidden}")
    widths = (fan_in, *hidden)
    layers: list[nn.Module] = []
    for before, after in zip(widths, hidden, strict=False):
        layers += [nn.Linear(before, after), activation_of(activation)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], fan_out))


class Residual(nn.Module):
    """The sum shortcut(x) + branch(x) of two maps of one input.

    Args:
        branch: What is learned beside the shortcut.
        shortcut: The identity, or a linear map where the widths differ.
    """

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch *outputs"]:
        """The sum for each row."""
        return self.shortcut(x) + self.branch(x)


def residual_layer(features: int, *, activation: Activation = "relu") -> Residual:
    """The layer x + phi(W x + b) - phi(0) with square W: the identity where W = 0 and b = 0.

    Args:
        features: Width n of input and output.
        activation: phi.

    Raises:
        ValueError: The width is not positive.

    Reference:
        He, Zhang, Ren and Sun 2016 (Deep residual learning), Equation 1; the branch is one affine map and
        its activation, where the paper's has two affine maps and activates the sum.
    """
    if features < 1:
        raise ValueError(f"features must be at least 1: got {features}")
    return Residual(nn.Sequential(nn.Linear(features, features), centered(activation)), nn.Identity())


def projected_residual_layer(
    in_features: int, out_features: int, *, activation: Activation = "relu"
) -> Residual:
    """The layer V x + phi(W x + b) - phi(0) from n to m units: the linear map V where W = 0 and b = 0.

    Args:
        in_features: Width n of the input.
        out_features: Width m of the output; V and W are m x n.
        activation: phi.

    Raises:
        ValueError: A width is not positive.

    Reference:
        He, Zhang, Ren and Sun 2016 (Deep residual learning), Equation 2, with the branch of
        :func:`residual_layer`.
    """
    for name, width in (("in_features", in_features), ("out_features", out_features)):
        if width < 1:
            raise ValueError(f"{name} must be at least 1: got {width}")
    branch = nn.Sequential(nn.Linear(in_features, out_features), centered(activation))
    return Residual(branch, nn.Linear(in_features, out_features, bias=False))
