"""A chain of affine maps with an activation between them: the perceptrons inside larger models."""

from torch import nn

from margin.nn.activations import Activation, activation_of


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
