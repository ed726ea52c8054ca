"""Optimizers by name, over parameter groups: no decay of biases and norms, a rate for each layer."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from margin.core.catalog import nearest, parts, resolve
from margin.engine.transfer import layer_rates

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""The optimizers with a fused CPU kernel, about twice as fast as the default one."""


def optimizer_names() -> list[str]:
    """The names that :func:`optimizer_of` knows: classes of torch.optim, then the catalog's own classes."""
    return [*_torch_names(), *sorted(set(_rows()) - set(_torch_names()))]


def _torch_names() -> list[str]:
    return sorted(
        name
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    )


def _rows() -> dict[str, str]:
    """The class name of every row of kind "optimizer", and its path."""
    targets = [part.target for part in parts().values() if part.kind == "optimizer"]
    return {target.rpartition(":")[2]: target for target in targets}


def _class_of(name: str) -> Callable[..., Optimizer]:
    """The optimizer of that class name, or of that row's name; torch's where both have one."""
    if name in _torch_names():
        return getattr(torch.optim, name)
    short = {row: part.target for row, part in parts().items() if part.kind == "optimizer"}
    short |= {row.rpartition("/")[2]: target for row, target in short.items()}
    if target := _rows().get(name) or short.get(name):
        return resolve(target)
    near = ", ".join(nearest(name, optimizer_names())) or "none"
    raise ValueError(f"unknown optimizer {name!r}; nearest in torch.optim and the catalog: {near}")


def optimizer_of(
    module: nn.Module,
    name: str,
    *,
    lr: float,
    options: Mapping[str, Any],
    decay_norms: bool,
    layer_decay: float = 1.0,
) -> Optimizer:
    """The optimizer of that name, of a module's parameters.

    Args:
        module: Its parameters that require a gradient are moved.
        name: A class in torch.optim, or a row of the catalog of kind "optimizer" or its class.
        lr: Learning rate.
        options: Its other arguments.
        decay_norms: Whether weight decay applies to tensors of fewer than two axes too: biases, gains.
        layer_decay: The rate of each layer (:func:`margin.engine.transfer.layer_rates`) is this times that
            of the next; 1 for one rate.

    Raises:
        ValueError: There is no such optimizer, it has no such option, or a value is out of range.
    """
    build = _class_of(name)
    what = f"torch.optim.{name}" if name in _torch_names() else f"the optimizer {name}"
    _check(build, what, lr, options, layer_decay)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(f"{type(module).__name__} has no parameter to train")
    given: dict[str, Any] = {"lr": lr, **options}
    if build is torch.optim.LBFGS:
        given["max_iter"] = 1  # more would ask for the loss again after moving: that is a step, no optimizer
    if build.__name__ in FUSED and not {"fused", "foreach", "capturable", "differentiable"} & set(options):
        given["fused"] = True
    spare = not decay_norms and "weight_decay" in inspect.signature(build).parameters
    layers = [(parameters, 1.0)] if layer_decay == 1 else layer_rates(module, layer_decay)
    groups = [
        group | ({} if layer_decay == 1 else {"lr": lr * factor})
        for layer, factor in layers
        for group in _groups(layer, spare=spare)
    ]
    return build(groups, **given)


def _check(
    build: Callable[..., Optimizer], what: str, lr: float, options: Mapping[str, Any], layer_decay: float
) -> None:
    known = inspect.signature(build).parameters
    for option in options:
        if option not in known:
            raise ValueError(f"{what} has no option {option!r}; it has: {', '.join([*known][1:])}")
    if not 0 < lr < math.inf:
        raise ValueError(f"lr must be positive and finite: got {lr}")
    momentum = options.get("momentum", 0)
    if isinstance(momentum, int | float) and not 0 <= momentum < 1:
        raise ValueError(f"momentum must be in [0, 1): got {momentum}")
    if not 0 < layer_decay <= 1:
        raise ValueError(f"layer_decay must be in (0, 1]: got {layer_decay}")
    if build is torch.optim.SparseAdam:
        raise ValueError("SparseAdam needs sparse gradients, and those here are dense: use Adam")
    if build is torch.optim.LBFGS:
        if options.get("max_iter", 1) != 1 or options.get("line_search_fn"):
            raise ValueError("LBFGS moves once a step here: max_iter must be 1, without a line search")
        if layer_decay != 1:
            raise ValueError(f"LBFGS has one rate for all layers: layer_decay must be 1, got {layer_decay}")


def _groups(parameters: list[nn.Parameter], *, spare: bool) -> list[dict[str, Any]]:
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    if not spare or not matrices or not vectors:
        return [{"params": parameters, **({"weight_decay": 0.0} if spare and not matrices else {})}]
    return [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
