r"""Sharpness-aware minimization: descent on the worst loss near the weights (Foret et al., 2021).

.. math:: \min_\theta \max_{\|\epsilon\|_2 \le \rho} h(\theta + \epsilon), \qquad
          \hat\epsilon = \rho \, \nabla h(\theta) / \|\nabla h(\theta)\|_2
"""

import math

import torch

from margin.core.types import Batch, Metrics, Objective
from margin.engine.batch_loss import BatchLoss, elsewhere, norm_of
from margin.engine.loop import GradientUpdate, State, Step


def sam(objective: Objective, descend: GradientUpdate, *, rho: float = 0.05) -> Step:
    """One optimizer step along the gradient at theta + rho g / |g|, g the gradient at theta.

    The maximum over the ball is replaced by its first-order solution, and the derivative of that solution
    is left out, as by the authors. Both gradients are of the whole batch and see the same draws; the
    batch's statistics are counted once. The metrics hold the loss at theta, and how far it rises
    (``sharpness``). A step costs two gradients.

    Args:
        objective: The loss of each term.
        descend: How the gradient moves the optimizer.
        rho: Radius of the ball in the space of all weights, >= 0; 0 is plain descent.

    Raises:
        ValueError: rho is negative or not finite.

    Reference: Foret, Kleiner, Mobahi and Neyshabur (2021), "Sharpness-aware minimization for efficiently
    improving generalization", Algorithm 1 with p = 2.
    """
    if not 0 <= rho < math.inf:
        raise ValueError(f"rho must be at least 0 and finite: got {rho}")

    def step(state: State, batch: Batch) -> Metrics:
        asked = BatchLoss(state, objective, descend, batch)
        ascent, loss = asked.gradient()
        scale = rho / norm if (norm := norm_of(ascent)) else 0.0
        with elsewhere(asked.parameters), torch.no_grad():
            for parameter, grad in zip(asked.parameters, ascent, strict=True):
                if grad is not None:
                    parameter.add_(grad, alpha=scale)
            with torch.enable_grad():
                grads, risen = asked.gradient()
        return asked.step(grads, risen) | {"loss": loss, "sharpness": risen - loss}

    return step
