r"""Lion, the evolved sign momentum (Chen et al., 2023).

.. math:: c_t = \beta_1 m_{t-1} + (1 - \beta_1) g_t, \quad
          \theta_t = \theta_{t-1} - \eta (\mathrm{sign}(c_t) + \lambda \theta_{t-1}), \quad
          m_t = \beta_2 m_{t-1} + (1 - \beta_2) g_t

Descent along the sign of the gradient, or of its moving average (Bernstein et al., 2018).

.. math:: m_{t+1} = \beta m_t + (1 - \beta) g_t, \qquad
          \theta_{t+1} = \theta_t - \eta (\mathrm{sign}(m_{t+1}) + \lambda \theta_t)
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim.optimizer import ParamsT

from margin.optim.per_parameter import PerParameter, check_lr, check_momentum, check_weight_decay, moment_of


class Lion(PerParameter):
    """The update moves by the sign of one moving average and remembers another, slower one.

    Every coordinate moves by eta, so the authors take a rate 3 to 10 times smaller than AdamW's and a decay
    as many times larger. sign(0) = 0.

    Args:
        params: Parameters or groups of them.
        lr: The rate eta > 0, in the units of the parameters.
        betas: (beta_1, beta_2), each in [0, 1).
        weight_decay: lambda >= 0, decoupled from the sign.

    Raises:
        ValueError: An option is out of range.

    Reference: Chen et al. (2023), "Symbolic discovery of optimization algorithms", Algorithm 2.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        betas: Sequence[float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        check_lr(lr)
        if len(betas) != 2:
            raise ValueError(f"betas must be two numbers: got {betas}")
        for index, beta in enumerate(betas, 1):
            check_momentum(f"beta {index}", beta)
        check_weight_decay(weight_decay)
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "weight_decay": weight_decay})

    def move(self, theta: Tensor, grad: Tensor, kept: dict[str, Any], group: dict[str, Any]) -> None:
        """Theta <- theta - eta (sign(c) + lambda theta), then m <- beta_2 m + (1 - beta_2) g."""
        lr, (beta1, beta2) = group["lr"], group["betas"]
        m = moment_of(theta, kept)
        c = m.mul(beta1).add_(grad, alpha=1 - beta1)
        theta.mul_(1 - lr * group["weight_decay"]).add_(c.sign_(), alpha=-lr)
        m.mul_(beta2).add_(grad, alpha=1 - beta2)


class SignDescent(PerParameter):
    """signSGD, and Signum where the momentum is not 0: each coordinate moves by eta, whatever its gradient.

    sign(0) = 0: a coordinate without a gradient rests. The direction is that of steepest descent in the
    maximum norm.

    Args:
        params: Parameters or groups of them.
        lr: The rate eta > 0, in the units of the parameters.
        momentum: beta in [0, 1) of the moving average, which begins at 0.
        weight_decay: lambda >= 0, decoupled from the sign.

    Raises:
        ValueError: An option is out of range.

    Reference: Bernstein et al. (2018), "signSGD: compressed optimisation for non-convex problems",
    Algorithms 1 and 2; the decay as in Bernstein et al. (2019), "signSGD with majority vote", Algorithm 1.
    """

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        check_lr(lr)
        check_momentum("momentum", momentum)
        check_weight_decay(weight_decay)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def move(self, theta: Tensor, grad: Tensor, kept: dict[str, Any], group: dict[str, Any]) -> None:
        """Theta <- theta - eta (sign(m) + lambda theta), with m the gradient where there is no momentum."""
        lr, beta = group["lr"], group["momentum"]
        m = moment_of(theta, kept).mul_(beta).add_(grad, alpha=1 - beta) if beta else grad
        theta.mul_(1 - lr * group["weight_decay"]).add_(m.sign(), alpha=-lr)
