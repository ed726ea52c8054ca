"""Optimizers of torch.optim by name, over parameter groups that spare biases and norms from decay."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from margin.catalog import nearest

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""The optimizers with a fused CPU kernel, about twice as fast as the default one."""


def optimizer_names() -> list[str]:
    """The classes of torch.optim that can be named."""
    return sorted(
        name
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    )


def optimizer_of(
    module: nn.Module, name: str, *, lr: float, options: Mapping[str, Any], decay_norms: bool
) -> Optimizer:
    """The optimizer ``torch.optim.<name>`` of a module's parameters.

    Args:
        module: Its parameters that require a gradient are moved.
        name: Class in torch.optim.
        lr: Learning rate.
        options: Its other arguments.
        decay_norms: Whether weight decay applies to tensors of fewer than two axes too: biases, gains.

    Raises:
        ValueError: There is no such optimizer, or it has no such option.
    """
    if name not in optimizer_names():
        near = ", ".join(nearest(name, optimizer_names())) or "none"
        raise ValueError(f"unknown optimizer {name!r}; nearest in torch.optim: {near}")
    build = getattr(torch.optim, name)
    known = inspect.signature(build).parameters
    for option in options:
        if option not in known:
            raise ValueError(
                f"torch.optim.{name} has no option {option!r}; it has: {', '.join([*known][1:])}"
            )
    if name == "LBFGS" and (options.get("max_iter", 1) != 1 or options.get("line_search_fn")):
        raise ValueError("LBFGS moves once a step here: max_iter must be 1, without a line search")
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(f"{type(module).__name__} has no parameter to train")
    given: dict[str, Any] = {"lr": lr, **options}
    if name == "LBFGS":
        given["max_iter"] = 1  # more would ask for the loss again after moving: that is a step, no optimizer
    if name in FUSED and not {"fused", "foreach", "capturable", "differentiable"} & set(options):
        given["fused"] = True
    return build(_groups(parameters, spare=not decay_norms and "weight_decay" in known), **given)


def _groups(parameters: list[nn.Parameter], *, spare: bool) -> list[Any]:
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    if not spare or not matrices or not vectors:
        return [{"params": parameters, **({"weight_decay": 0.0} if spare and not matrices else {})}]
    return [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
