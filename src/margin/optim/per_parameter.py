"""An optimizer that moves each parameter by itself, and the ranges of what such optimizers share."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class PerParameter(Optimizer):
    """An update that needs one parameter, its gradient, and what is kept of it from step to step."""

    @abstractmethod
    def move(self, theta: Tensor, grad: Tensor, kept: dict[str, Any], group: dict[str, Any]) -> None:
        """Move one parameter in place.

        Args:
            theta: The parameter.
            grad: Its gradient, which stays as it is.
            kept: What is remembered of it: tensors of its shape and numbers, part of every checkpoint.
            group: The options of its group.
        """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move each parameter that has a gradient; returns what ``closure``, called first, returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for theta in group["params"]:
                if theta.grad is not None:
                    self.move(theta, theta.grad, self.state[theta], group)
        return loss


def moment_of(theta: Tensor, kept: dict[str, Any]) -> Tensor:
    """The moving average that is kept of a parameter; 0 at first."""
    if "moment" not in kept:
        kept["moment"] = torch.zeros_like(theta)
    moment: Tensor = kept["moment"]
    return moment


def penalized(grad: Tensor, theta: Tensor, weight_decay: float) -> Tensor:
    """The gradient, and that of weight_decay |theta|^2 / 2."""
    return grad.add(theta, alpha=weight_decay) if weight_decay else grad


def check_lr(lr: float) -> None:
    """Refuse a rate that is not positive and finite.

    Raises:
        ValueError: It is not.
    """
    if not 0 < lr < math.inf:
        raise ValueError(f"lr must be positive and finite: got {float(lr)}")


def check_momentum(name: str, value: float, or_else: str = "") -> None:
    """Refuse a momentum outside [0, 1): at 1 nothing is forgotten and nothing converges.

    Args:
        name: How the message calls it.
        value: The momentum.
        or_else: What else it may be, for the message.

    Raises:
        ValueError: It lies outside.
    """
    if isinstance(value, str) or not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1){or_else}: got {value!r}")


def check_weight_decay(value: float) -> None:
    """Refuse a weight decay that is negative or not finite.

    Raises:
        ValueError: It is.
    """
    if not 0 <= value < math.inf:
        raise ValueError(f"weight_decay must be at least 0 and finite: got {value}")
