"""Flow matching of points: the velocity is a residual perceptron that reads a whole row."""

from margin.generative.diffusion.denoiser import Denoiser
from margin.generative.diffusion.flow_matching import FlowMatching


def points(in_features: int, *, hidden: int = 128, depth: int = 3, embedding: int = 64) -> FlowMatching:
    """A flow from noise to rows, whose velocity is learned along straight paths.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        hidden: Width of the network's layers.
        depth: Number of its residual layers.
        embedding: Numbers that tell a layer the time, even.
    """
    return FlowMatching(
        Denoiser(in_features, hidden=hidden, depth=depth, embedding=embedding), (in_features,)
    )


def conditional_points(
    in_features: int,
    num_classes: int,
    *,
    hidden: int = 128,
    depth: int = 3,
    embedding: int = 64,
    drop: float = 0.1,
) -> FlowMatching:
    """A flow from noise to rows that is told the class, and sometimes that there is none.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of classes.
        hidden: Width of the network's layers.
        depth: Number of its residual layers.
        embedding: Numbers that tell a layer the time and the class, even.
        drop: Probability with which a class is kept from the network in training.
    """
    return FlowMatching(
        Denoiser(in_features, num_classes=num_classes, hidden=hidden, depth=depth, embedding=embedding),
        (in_features,),
        num_classes=num_classes,
        drop=drop,
    )
