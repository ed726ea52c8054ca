r"""The heavy ball: gradient descent with the memory of its last move (Polyak, 1964).

.. math:: \theta_{t+1} = \theta_t - \eta \nabla h(\theta_t) + \beta (\theta_t - \theta_{t-1})

From rest, a constant gradient moves the ball by its decaying *sum*, not by an average of it: in the limit
1 / (1 - beta) times as far as gradient descent.

Nesterov's accelerated gradient, in two sequences (Nesterov, 1983).

.. math:: \chi_t = \theta_t + \beta_t (\theta_t - \theta_{t-1}), \qquad
          \theta_{t+1} = \chi_t - \eta \nabla h(\chi_t)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from margin.optim.per_parameter import PerParameter, check_lr, check_momentum, check_weight_decay, penalized


def gain(beta: float, steps: int) -> float:
    r"""The last of ``steps`` moves under a constant gradient, in units of eta times that gradient.

    .. math:: \sum_{\tau=0}^{t} \beta^\tau = \frac{1 - \beta^{t+1}}{1 - \beta}, \qquad t = steps - 1

    Args:
        beta: The momentum, in [0, 1).
        steps: Moves since the ball lay at rest, >= 0.

    Raises:
        ValueError: An argument is out of range.

    Reference: Polyak (1964), "Some methods of speeding up the convergence of iteration methods".
    """
    check_momentum("beta", beta)
    if steps < 0:
        raise ValueError(f"steps must be at least 0: got {steps}")
    return (1 - beta**steps) / (1 - beta)


class HeavyBall(PerParameter):
    """The heavy ball, in the form that keeps the iterate before the last.

    While the learning rate is constant, the iterates are those of ``torch.optim.SGD(momentum=beta)``. When
    it changes they are not: here a move is carried on as it was, there it is rescaled.

    Args:
        params: Parameters or groups of them.
        lr: The rate eta > 0.
        momentum: beta in [0, 1).
        weight_decay: Coefficient of the penalty |theta|^2 / 2, >= 0, whose gradient is added.

    Raises:
        ValueError: An option is out of range.

    Reference: Polyak (1964), "Some methods of speeding up the convergence of iteration methods".
    """

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        check_lr(lr)
        check_momentum("momentum", momentum)
        check_weight_decay(weight_decay)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def move(self, theta: Tensor, grad: Tensor, kept: dict[str, Any], group: dict[str, Any]) -> None:
        """Theta <- theta - eta g + beta (theta - before)."""
        grad = penalized(grad, theta, group["weight_decay"])
        move = (theta - kept.get("before", theta)).mul_(group["momentum"]).add_(grad, alpha=-group["lr"])
        kept["before"] = theta.clone()
        theta.add_(move)


class Nesterov(PerParameter):
    r"""The textbook form, whose parameters are the points chi_t at which the gradient is asked.

    The iterates theta_t, of which the theorems speak, are at hand in :meth:`at_iterates`. At a constant
    momentum the parameters are those of ``torch.optim.SGD(momentum=beta, nesterov=True)``.

    On a convex h with L-Lipschitz gradient, ``momentum="convex"`` and eta = 1/L give

    .. math:: h(\theta_t) - h^* \le 2 L \|\theta_0 - \theta^*\|^2 / (t + 1)^2;

    on a mu-strongly convex one, beta = (sqrt k - 1) / (sqrt k + 1) with k = L / mu gives the rate
    (1 - 1 / sqrt k)^t.

    Args:
        params: Parameters or groups of them.
        lr: The rate eta > 0.
        momentum: beta in [0, 1), or "convex" for (t - 1) / (t + 2) after t steps.
        weight_decay: Coefficient of the penalty |chi|^2 / 2, >= 0, whose gradient is added.

    Raises:
        ValueError: An option is out of range.

    Reference: Nesterov (2018), "Lectures on convex optimization", Section 2.2; for the bound Su, Boyd and
    Candès (2016), "A differential equation for modeling Nesterov's accelerated gradient method".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        momentum: float | Literal["convex"] = 0.9,
        weight_decay: float = 0.0,
    ) -> None:
        check_lr(lr)
        if momentum != "convex":
            check_momentum("momentum", momentum, or_else=" or 'convex'")
        check_weight_decay(weight_decay)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def move(self, theta: Tensor, grad: Tensor, kept: dict[str, Any], group: dict[str, Any]) -> None:
        """The parameter is chi: theta <- chi - eta g, then chi <- theta + beta (theta - its last value)."""
        chi, before = theta, kept.get("iterate", theta)
        steps = kept["steps"] = kept.get("steps", 0) + 1
        beta = (steps - 1) / (steps + 2) if group["momentum"] == "convex" else group["momentum"]
        kept["iterate"] = chi.add(penalized(grad, chi, group["weight_decay"]), alpha=-group["lr"])
        chi.copy_(kept["iterate"] + beta * (kept["iterate"] - before))

    @contextmanager
    def at_iterates(self) -> Iterator[None]:
        """For a while the parameters are the iterates theta_t; afterwards chi_t again, to the bit."""
        moved = {p: p.detach().clone() for p in self.state if "iterate" in self.state[p]}
        with torch.no_grad():
            for parameter in moved:
                parameter.copy_(self.state[parameter]["iterate"])
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, chi in moved.items():
                    parameter.copy_(chi)
