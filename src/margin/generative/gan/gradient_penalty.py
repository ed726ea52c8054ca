r"""Keeping a critic 1-Lipschitz: a penalty on its slope, or a box for its weights.

.. math:: \lambda\, E (\|\nabla D(\hat x)\|_2 - 1)^2, \qquad \hat x = a x + (1 - a) G(z),\ a \sim U[0, 1]

one a for each sample, and the norm over all axes of the sample (Gulrajani et al. 2017). The penalty is soft:
on two points at distance W the optimal slope is 1 + W / (2 lambda), so the gap of the means is
W (1 + W / (2 lambda)); divided by the slope it is W.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

Critic = Callable[[Tensor], Tensor]
"""The score of each row of a batch, on its own."""


def slopes(
    critic: Critic, points: Float[Tensor, " batch *features"], *, differentiable: bool = False
) -> Float[Tensor, " batch"]:
    """The Euclidean norm of the critic's gradient at each point, over all axes of the point.

    Where the gradient is 0 so is the derivative of its norm (torch's choice), not NaN.

    Args:
        critic: Scores each row by itself; not one that normalizes over the batch.
        points: Where.
        differentiable: Whether the slopes are to be differentiated themselves.
    """
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        score = critic(points).sum()
        if not score.requires_grad:  # no graph leads from the points: a constant critic
            return points.new_zeros(len(points))
        (grad,) = torch.autograd.grad(score, points, create_graph=differentiable, allow_unused=True)
    if grad is None:
        return points.new_zeros(len(points))
    return torch.linalg.vector_norm(grad.flatten(1), dim=1)


def between(
    real: Float[Tensor, " batch *features"],
    fake: Float[Tensor, " batch *features"],
    generator: Generator,
) -> Float[Tensor, " batch *features"]:
    """A point drawn uniformly on the segment of each pair: a x + (1 - a) G(z), one a for each sample.

    Reference: Gulrajani et al. 2017, Algorithm 1, line 5-6.
    """
    a = torch.rand(len(real), generator=generator).to(real)
    return torch.lerp(fake, real, a.reshape(-1, *[1] * (real.ndim - 1)))


def gradient_penalty(
    critic: Critic, points: Float[Tensor, " batch *features"], *, target: float = 1.0
) -> Float[Tensor, " batch"]:
    """(slope - target)^2 of each point, to be differentiated by the critic's parameters.

    Args:
        critic: Scores each row by itself.
        points: Where its slope is asked: see :func:`between`.
        target: The slope that costs nothing: 1, or 0 for a penalty on slope itself.

    Reference: Gulrajani et al. 2017, Equation 3; Mescheder, Geiger and Nowozin 2018, Equation 9 (target 0).
    """
    return (slopes(critic, points, differentiable=True) - target).square()


def penalized_slope(distance: float, penalty: float) -> float:
    """The slope 1 + W / (2 lambda) of the critic that is optimal for two points at distance W.

    W s - lambda (s - 1)^2 is largest there.

    Args:
        distance: W, at least 0.
        penalty: lambda, above 0.
    """
    if not penalty > 0 or not distance >= 0:
        raise ValueError(f"penalty must be above 0 and distance at least 0: got {penalty}, {distance}")
    return 1 + distance / (2 * penalty)


@torch.no_grad()
def clip_weights(module: nn.Module, bound: float) -> None:
    """Bring every parameter into [-bound, bound], in place.

    Reference: Arjovsky, Chintala and Bottou 2017, Algorithm 1, line 7.

    Raises:
        ValueError: The bound is not positive.
    """
    if not bound > 0:
        raise ValueError(f"the bound of the weights must be positive: got {bound}")
    for parameter in module.parameters():
        parameter.clamp_(-bound, bound)
