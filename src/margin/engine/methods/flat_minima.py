r"""Flat minima: sharpness-aware minimization (Foret et al., 2021), entropy-SGD (Chaudhari et al., 2017).

The first descends on the worst loss near the weights,

.. math:: \min_\theta \max_{\|\epsilon\|_2 \le \rho} h(\theta + \epsilon), \qquad
          \hat\epsilon = \rho \, \nabla h(\theta) / \|\nabla h(\theta)\|_2,

the second on the local entropy, which prefers wide valleys,

.. math:: F(\theta) = -\log \int \exp(-h(\theta') - \tfrac\gamma2 \|\theta - \theta'\|^2)\, d\theta',
          \qquad \nabla F(\theta) = \gamma\,(\theta - \mathbb E\,\theta'),

where the mean over the modified Gibbs density is that of a chain of Langevin steps on batches.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics, Objective
from margin.engine.batch_loss import BatchLoss, elsewhere, norm_of, put, refuse_shares
from margin.engine.loop import GradientUpdate, State, Step
from margin.math.seeds import mix


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


KEPT = "entropy_sgd"
"""The name under which the chain is kept in the state."""

PURPOSE = 13
"""What its noise is drawn for, among the seeds of a training."""


class Chain(nn.Module):
    """A Langevin chain theta' and its running mean mu, each with a place for every parameter.

    Args:
        start: The weights at which it begins.
    """

    def __init__(self, start: Sequence[Tensor]) -> None:
        super().__init__()
        for i, theta in enumerate(start):
            self.register_buffer(f"at_{i}", theta.detach().clone())
            self.register_buffer(f"mean_{i}", theta.detach().clone())
        self.count = len(start)

    @property
    def at(self) -> list[Tensor]:
        """The chain's place."""
        return [self.get_buffer(f"at_{i}") for i in range(self.count)]

    @property
    def mean(self) -> list[Tensor]:
        """Its running mean."""
        return [self.get_buffer(f"mean_{i}") for i in range(self.count)]

    def begin(self, start: Sequence[Tensor]) -> None:
        """Begin anew at these weights."""
        put(self.at, start)
        put(self.mean, start)

    @torch.no_grad()
    def advance(
        self,
        theta: Sequence[Tensor],
        grads: Sequence[Tensor | None],
        *,
        gamma: float,
        rate: float,
        noise: float,
        forget: float,
        generator: Generator,
    ) -> None:
        r"""One Langevin step, and the mean follows.

        .. math:: \theta' \leftarrow \theta' - \eta' (g - \gamma (\theta - \theta'))
                  + \sqrt{\eta'} \epsilon z, \quad \mu \leftarrow \alpha \mu + (1 - \alpha) \theta'
        """
        for at, mean, origin, grad in zip(self.at, self.mean, theta, grads, strict=True):
            drift = gamma * (origin - at)
            if grad is not None:
                drift -= grad
            at.add_(drift, alpha=rate)
            if noise:
                z = torch.randn(at.shape, generator=generator, dtype=at.dtype)
                at.add_(z.to(at.device), alpha=math.sqrt(rate) * noise)
            mean.lerp_(at, 1 - forget)


# the method has so many numbers
def entropy_sgd(
    objective: Objective,
    descend: GradientUpdate,
    total_steps: int = 0,
    *,
    gamma: float = 0.1,
    growth: float = 0.0,
    inner: int = 20,
    inner_lr: float = 0.1,
    noise: float = 1e-4,
    forget: float = 0.75,
) -> Step:
    """Rounds of ``inner`` Langevin steps, a batch each, then one optimizer step along gamma (theta - mu).

    A step of the training is one Langevin step: a round takes as many batches and gradients as plain
    descent would, and the weights move at its end alone, so the optimizer wants a rate about ``inner``
    times that of plain descent. The rest of a last, shorter round is left.

    Chain and mean are part of every checkpoint; the noise is the same in every process. With noise sqrt(2)
    the chain samples the density above; less noise concentrates it where h + gamma/2 |theta - theta'|^2 is
    least. The loss of the metrics is that at the chain's place.

    Args:
        objective: The loss of each term.
        descend: How the gradient of the local entropy moves the optimizer.
        total_steps: Steps of the training, at least one round of them; 0 where they are not known.
        gamma: How closely the chain is held to the weights, > 0: the scope is about gamma^-1/2 wide.
        growth: gamma grows by this share from round to round, >= 0 (scoping).
        inner: Langevin steps of a round, >= 1.
        inner_lr: Their length eta', > 0 and less than 2 / gamma.
        noise: Their thermal noise epsilon, >= 0.
        forget: Weight alpha of the old mean, in [0, 1).

    Raises:
        ValueError: An option is out of range, or weights are in shares.

    Reference: Chaudhari et al. (2017), "Entropy-SGD: biasing gradient descent into wide valleys",
    Algorithm 1.
    """
    _check({"gamma": gamma, "inner_lr": inner_lr}, {"growth": growth, "noise": noise})
    if inner < 1:
        raise ValueError(f"inner must be at least 1: got {inner}")
    if not 0 <= forget < 1:
        raise ValueError(f"forget must be in [0, 1): got {forget}")
    if not inner_lr * gamma < 2:
        raise ValueError(f"inner_lr must be less than 2 / gamma = {2 / gamma:g}: got {inner_lr}")
    refuse_shares("entropy_sgd", descend)
    if 0 < total_steps < inner:
        raise ValueError(
            f"the weights move at the end of a round: inner must be at most the {total_steps} steps of the "
            f"training, got {inner}"
        )

    def step(state: State, batch: Batch) -> Metrics:
        turn, place = divmod(state.step, inner)
        held = gamma * (1 + growth) ** turn
        if not inner_lr * held < 2:
            raise ValueError(
                f"gamma has grown to {held:g}: inner_lr must be less than 2 / gamma, got {inner_lr}"
            )
        asked = BatchLoss(state, objective, descend, batch)
        chain = cast(Chain, state.kept(KEPT, lambda: Chain(asked.parameters)))
        with elsewhere(asked.parameters) as theta:
            if place == 0:
                chain.begin(theta)
            put(asked.parameters, chain.at)
            grads, loss = asked.gradient()
        # every process draws the same
        z = Generator().manual_seed(mix(state.seed, PURPOSE, 0, state.step))
        chain.advance(theta, grads, gamma=held, rate=inner_lr, noise=noise, forget=forget, generator=z)
        if place == inner - 1:
            asked.step([held * (here - mean) for here, mean in zip(theta, chain.mean, strict=True)], loss)
        return {"loss": loss, "grad_norm": norm_of(grads)}

    return step


def _check(positive: dict[str, float], least: dict[str, float]) -> None:
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite: got {value}")
    for name, value in least.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be at least 0 and finite: got {value}")
