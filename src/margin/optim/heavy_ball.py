r"""The heavy ball: gradient descent with the memory of its last move (Polyak, 1964).

.. math:: \theta_{t+1} = \theta_t - \eta \nabla h(\theta_t) + \beta (\theta_t - \theta_{t-1})

From rest, a constant gradient moves the ball by its decaying *sum*, not by an average of it: in the limit
1 / (1 - beta) times as far as gradient descent.
"""

from typing import Any

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
