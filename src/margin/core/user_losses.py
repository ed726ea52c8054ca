"""A loss of the user's own: a class or function ``(outputs, targets) -> loss``, taken example by example.

Every mean here is sum(w l) / sum(w) over the terms of a batch, so that a loss is asked for each of them. One
of ``torch.nn`` is taken with ``reduction="none"``; a function that returns one number for a batch is asked of
each example by itself (``torch.vmap``), of whose values the batch's must be the mean.
"""

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from margin.core.tasks import Task
from margin.core.user_modules import is_nameable, name_of, named_object, reported

Loss = Callable[[Any, Tensor], Tensor]
Weigh = Callable[[Tensor], Tensor]

FORMER = ("size_average", "reduce")
"""Arguments of torch's losses that ``reduction`` has replaced; they keep no attribute."""

RECONSTRUCTION = Task(
    "reconstruction",
    None,
    {},
    lambda outputs: {f"feature {i + 1}": column for i, column in enumerate(outputs.flatten(1).unbind(1))},
)
"""The inputs again, in the model's units; targets are ignored."""


def recorded_loss(loss: Any) -> tuple[str, dict[str, Any]]:
    """The path of a loss and the options of its constructor, from which :func:`loss_of` makes it again.

    Args:
        loss: A path, a class of a loss, an instance of one, or a function.

    Raises:
        ValueError: It is a lambda or local to a function, or has options that are no plain values.
    """
    if isinstance(loss, str):
        return loss, {}
    target = type(loss) if isinstance(loss, nn.Module) else loss
    if not callable(target):
        raise ValueError(f"objective must be a loss (outputs, targets): got {type(loss).__name__}")
    if not is_nameable(target):
        raise ValueError(
            f"objective must be found again by its name: {name_of(target)} is a lambda or local to a "
            "function; define it with def at the top of a file"
        )
    options: dict[str, Any] = {}
    if isinstance(loss, nn.Module):
        for name, parameter in inspect.signature(target).parameters.items():
            if not hasattr(loss, name) and name not in FORMER:
                raise ValueError(
                    f"an objective must be made again from its attributes: {name_of(target)} keeps no "
                    f"{name!r}; write self.{name} = {name} in its constructor, or a function in a file"
                )
            value = getattr(loss, name, None)
            if isinstance(value, Tensor):
                value = value.tolist()
            if value is not None or parameter.default is not None:
                options[name] = value
        if options.get("reduction") == "sum":
            raise ValueError(
                f"the loss of a batch is the mean over its examples: got {name_of(target)} of reduction='sum'"
            )
        plain = (bool, int, float, str, list, type(None))
        if odd := [name for name, value in options.items() if not isinstance(value, plain)]:
            raise ValueError(
                f"the options of an objective must be plain values: {odd[0]} of {name_of(target)} is a "
                f"{type(options[odd[0]]).__name__}; write a function (outputs, targets) in a file"
            )
    return name_of(target), options


def loss_of(path: str, options: Mapping[str, Any]) -> Loss:
    """The loss of a record, the loss of each term.

    Raises:
        BuilderError: The user's code raises.
        ValueError: There is none of that name.
    """
    found = named_object(path)
    if isinstance(found, type) and not issubclass(found, nn.Module):
        raise ValueError(f"{path} must be a loss of torch.nn's kind, or a function: it is another class")
    if isinstance(found, type):
        with reported(path):
            found = found(**{k: torch.tensor(v) if isinstance(v, list) else v for k, v in options.items()})
    if not callable(found):
        raise ValueError(f"{path} must be a loss (outputs, targets): it is of type {type(found).__name__}")
    return each_term(found, path)


def weigher_of(loss: Any, path: str) -> Weigh | None:
    """What each label counts in the mean of torch's cross-entropy, sum(l) / sum(c); None where it is 1.

    c is the weight of the label's class, 0 where it is the label that is ignored.

    Args:
        loss: A loss.
        path: How the message calls it.

    Raises:
        ValueError: Labels are smoothed, and a class weighs nothing: torch's mean would add the loss of its
            examples and count none of them.
    """
    if not _of_classes(loss):
        return None
    classes, ignored = loss.weight, loss.ignore_index
    if classes is None and ignored < 0:  # labels begin at 0
        return None
    smoothing = float(getattr(loss, "label_smoothing", 0.0))
    if smoothing > 0 and classes is not None and not bool(classes.all()):
        raise ValueError(
            f"the weights of {path} must be above 0 where its labels are smoothed: got {classes.tolist()}"
        )

    def weigh(targets: Tensor) -> Tensor:
        if (
            targets.is_floating_point()
        ):  # the probability of each class, over which torch takes the plain mean
            return targets.new_ones(len(targets))
        counted = (targets != ignored).to(torch.get_default_dtype())
        return counted if classes is None else counted * classes.to(counted)[targets.clamp_min(0)]

    return weigh


def each_term(loss: Callable[..., Any], path: str) -> Loss:
    """A loss as the loss of each term.

    Args:
        loss: ``(outputs, targets) -> loss``.
        path: How messages call it.
    """
    given, weigh, second = (
        loss,
        weigher_of(loss, path),
        _of_classes(loss) or loss in (F.cross_entropy, F.nll_loss),
    )
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        loss = copy.deepcopy(loss)
        loss.reduction = "none"  # type: ignore[assignment]

    def asked(loss: Callable[..., Any], outputs: Any, targets: Tensor) -> Any:
        if isinstance(loss, nn.Module):
            loss.to(outputs)  # its weights, to the device and type of what it is given
        if second and isinstance(outputs, Tensor) and outputs.shape[:-1] == targets.shape:
            outputs = outputs.movedim(-1, 1)  # from (N, T, C), a score a term, to torch's (N, C, T)
        with reported(path):
            return loss(outputs, targets)

    def terms(outputs: Any, targets: Tensor) -> Tensor:
        found = asked(loss, outputs, targets)
        if not isinstance(found, Tensor):
            raise ValueError(f"{path} must return a tensor: got {type(found).__name__}")
        if found.ndim and len(found) != len(targets):
            raise ValueError(
                f"{path} must return one number for the batch or the loss of each example, (N, ...): of "
                f"{len(targets)} examples got {tuple(found.shape)}"
            )
        if found.ndim:
            return found
        return torch.vmap(lambda one, target: asked(loss, one[None], target[None]))(outputs, targets)

    terms.whole, terms.weigh = partial(asked, given), weigh  # type: ignore[attr-defined]
    return terms


def _of_classes(loss: Any) -> bool:
    """Whether a loss is torch's of one label a term, which has the classes in the second axis."""
    return getattr(type(loss), "forward", None) in (nn.CrossEntropyLoss.forward, nn.NLLLoss.forward)


def of_numbers(terms: Loss) -> Loss:
    """A loss of each term that is given labels as numbers: one logit is read by 0 and 1."""

    def real(outputs: Any, targets: Tensor) -> Tensor:
        return terms(outputs, targets.to(outputs.dtype))

    def whole(outputs: Any, targets: Tensor) -> Tensor:
        return terms.whole(outputs, targets.to(outputs.dtype))  # type: ignore[attr-defined]

    real.whole, real.weigh = whole, None  # type: ignore[attr-defined]
    return real


def check_mean(terms: Loss, path: str, outputs: Any, targets: Tensor) -> None:
    """Refuse a loss of a batch that is not the mean of its examples' losses, which an evaluation averages.

    Args:
        terms: Of :func:`each_term`.
        path: How the message calls it.
        outputs: Of a few examples.
        targets: Of the same.

    Raises:
        ValueError: It is another; or the user's code raises.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Using a target size")  # torch would only warn of broadcasting
        each = terms(outputs, targets)
    terms(outputs[:1], targets[:1])  # a mean over the batch may be as long as it by chance
    found, weigh = terms.whole(outputs, targets), terms.weigh  # type: ignore[attr-defined]
    mean = each.mean() if weigh is None else each.sum() / weigh(targets).sum()
    if not found.ndim and not torch.allclose(mean, found, rtol=1e-3, atol=1e-6, equal_nan=True):
        raise ValueError(
            f"{path} must be the mean of the losses of its examples, or return the loss of each: of "
            f"{len(targets)} examples it is {float(found):.6g}, their mean {float(mean):.6g}"
        )
