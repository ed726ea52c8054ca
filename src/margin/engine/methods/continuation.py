r"""Continuation: a smooth problem first, made the true one by degrees, each begun where the last ended.

.. math:: J_s(\theta) = \mathbb E\, J(\theta + (1 - s)\,\sigma z), \quad z \sim \mathcal N(0, I),
          \qquad s: 0 \to 1

Gaussian smoothing takes away the minima that are narrower than (1 - s) sigma.
"""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from margin.core.types import Batch, Metrics, Objective
from margin.engine.batch_loss import BatchLoss, elsewhere, refuse_shares
from margin.engine.loop import GradientUpdate, State, Step
from margin.math.seeds import mix

Family = Callable[[Tensor, float], Tensor]
"""J_s(x): the objective at x for s from 0 (smooth) to 1 (true), a scalar."""

PURPOSE = 17
"""What the smoothing draws for, among the seeds of a training."""


def smoothed(
    function: Callable[[Tensor], Tensor], sigma: float, *, draws: int, generator: Generator
) -> Family:
    r"""The family of Gaussian means :math:`E\,J(x + (1 - s) \sigma z)`, each over the same draws.

    The draws come in pairs z and -z, so that the mean of z is 0 and linear functions are left as they are.

    Args:
        function: J, a scalar of a tensor, of operations that ``torch.vmap`` knows.
        sigma: Standard deviation at s = 0, >= 0, in the units of x.
        draws: Pairs of draws, >= 1.
        generator: What they are drawn from.

    Raises:
        ValueError: An argument is out of range.

    Reference: Mobahi and Fisher (2015), "A theoretical analysis of optimization by Gaussian continuation".
    """
    _check(sigma, draws)
    seed = int(torch.randint(2**31, (), generator=generator))

    def family(x: Tensor, s: float) -> Tensor:
        again = Generator().manual_seed(seed)
        width = (1 - s) * sigma
        if width == 0:
            return function(x)
        z = width * torch.randn((draws, *x.shape), generator=again, dtype=x.dtype).to(x.device)
        return torch.vmap(function)(torch.cat((x + z, x - z))).mean()

    return family


def continued(family: Family, start: Tensor, *, stages: int, steps: int, lr: float) -> Tensor:
    """The path of minimizers: gradient descent at s = 0, 1/(stages - 1), ..., 1, each from the last end.

    Args:
        family: J_s.
        start: Where the first stage begins.
        stages: Values of s, >= 2.
        steps: Gradient steps a stage, >= 1.
        lr: Their rate, > 0.

    Returns:
        Where each stage ended, one after another along the first axis; the last is that of the true
        objective.

    Raises:
        ValueError: An argument is out of range.
    """
    if stages < 2 or steps < 1:
        raise ValueError(f"stages must be at least 2 and steps at least 1: got {stages} and {steps}")
    if not 0 < lr < math.inf:
        raise ValueError(f"lr must be positive and finite: got {lr}")
    x, ends = start.detach().clone(), []
    for stage in range(stages):
        for _ in range(steps):
            point = x.requires_grad_()
            (grad,) = torch.autograd.grad(family(point, stage / (stages - 1)), point)
            x = (point - lr * grad).detach()
        ends.append(x)
    return torch.stack(ends)


def continuation(
    objective: Objective,
    descend: GradientUpdate,
    total_steps: int,
    *,
    sigma: float = 0.1,
    until: float = 0.8,
    draws: int = 1,
) -> Step:
    """One optimizer step on the loss smoothed over the weights, less and less as the training goes on.

    At step t of T the weights are moved by (1 - s) sigma z and by its opposite, with s = min(1, t / (until
    T)), and the mean of the gradients there moves the optimizer; from s = 1 on it is plain descent. The
    draws are the same in every process; the loss of the metrics is the smoothed one. A step costs 2 draws
    gradients, and the batch's statistics are counted once.

    Args:
        objective: The loss of each term.
        descend: How the gradient moves the optimizer.
        total_steps: T.
        sigma: Standard deviation of each weight's move at first, >= 0, in the units of the weights.
        until: Share of the training after which the loss is the true one, in (0, 1].
        draws: Pairs of draws a step, >= 1.

    Raises:
        ValueError: An option is out of range, or weights are in shares.

    Reference: Goodfellow, Bengio and Courville (2016), "Deep learning", Section 8.7.6; for the smoothing
    Mobahi and Fisher (2015), "A theoretical analysis of optimization by Gaussian continuation".
    """
    _check(sigma, draws)
    if not 0 < until <= 1:
        raise ValueError(f"until must be in (0, 1]: got {until}")
    refuse_shares("continuation", descend)

    def step(state: State, batch: Batch) -> Metrics:
        asked = BatchLoss(state, objective, descend, batch)
        width = (1 - min(1.0, state.step / max(1.0, until * total_steps))) * sigma
        if width == 0:
            grads, loss = asked.gradient()
            return asked.step(grads, loss) | {"smoothing": 0.0}
        z = Generator().manual_seed(mix(state.seed, PURPOSE, 0, state.step))
        total, loss = [torch.zeros_like(p) for p in asked.parameters], 0.0
        for _ in range(draws):
            moves = [width * torch.randn(p.shape, generator=z, dtype=p.dtype).to(p.device) for p in total]
            for sign in (1.0, -1.0):
                with elsewhere(asked.parameters):
                    with torch.no_grad():
                        torch._foreach_add_(asked.parameters, moves, alpha=sign)
                    grads, value = asked.gradient()
                loss += value / (2 * draws)
                for mean, grad in zip(total, grads, strict=True):
                    if grad is not None:
                        mean.add_(grad, alpha=1 / (2 * draws))
        return asked.step(total, loss) | {"smoothing": width}

    return step


def _check(sigma: float, draws: int) -> None:
    if not 0 <= sigma < math.inf:
        raise ValueError(f"sigma must be at least 0 and finite: got {sigma}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1: got {draws}")
