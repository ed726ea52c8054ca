"""The least-squares problem of a model's last affine map: the features that enter it, and the targets.

With all other layers fixed a network is linear in its last map; what theory says of least squares holds there
exactly.
"""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, sample_examples
from margin.nn.preprocessed import core_of, dtype_of, features_of

ROWS = 1024
"""Examples that are taken at most."""

CONSTANT = 8
"""Roundings of its type by which a column may vary, relative to its length, and still count as constant."""


class Design(NamedTuple):
    """Centered features and targets of the examples of weight > 0, each row times the root of its weight.

    Args:
        X: The features, in float64 on the CPU.
        Y: The targets; of classes, a column of zeros and ones for each.
    """

    X: Float[Tensor, "rows features"]
    Y: Float[Tensor, "rows targets"]


def last_design(subject: Subject) -> Design:
    """The features that enter a model's last linear map, with the targets, over the training examples.

    The last map is the linear module that is called last. A model that has none, and is itself x . w + b,
    takes its inputs for features.

    Args:
        subject: A model with its training examples.

    Raises:
        ValueError: The model has no last affine map, or its features and the targets do not correspond.
    """
    model, few = (
        copy.deepcopy(subject.model),
        sample_examples(subject.train, ROWS, whole_batches=not subject.independent),
    )
    rows = [_rows(model, batch) for batch in few.batches]
    X, Y, weight = (torch.cat(column) for column in zip(*rows, strict=True))
    if len(X) > ROWS:  # an example of several terms has a row for each
        some = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))[:ROWS].sort().values
        X, Y, weight = X[some], Y[some], weight[some]
    if not Y.is_floating_point():
        Y = F.one_hot(Y, int(Y.max()) + 1 if len(Y) else 1).double()
    return Design(_centered(X, weight, dtype_of(model)), _centered(Y, weight, torch.float64))


def _centered(columns: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Columns less their mean, each row times the root of its weight; a constant column is exactly 0.

    Args:
        columns: In float64.
        weight: Of each row, above 0.
        dtype: The type in which they were computed.
    """
    root = weight.sqrt()[:, None]
    centered = root * (columns - (weight / weight.sum()) @ columns)
    rounding = CONSTANT * torch.finfo(dtype).eps * (root * columns).norm(dim=0)
    return centered.masked_fill(centered.norm(dim=0) <= rounding, 0)


def in_row_space(design: Design) -> Design:
    """The same problem with features in coordinates of the rows' span, where it has fewer dimensions.

    Every solution that gradient descent from 0 or a penalty finds lies in that span.

    Args:
        design: Features and targets.
    """
    X, Y = design
    if X.shape[1] <= len(X):
        return design
    return Design(X @ torch.linalg.qr(X.T).Q, Y)


def has_last_layer(subject: Subject) -> bool:
    """Whether the training examples' features and targets are those of a last affine map."""
    if not subject.train or subject.train[0].targets is None:
        return False
    try:
        _rows(copy.deepcopy(subject.model), subject.train[0])
    except ValueError:
        return False
    return True


def _rows(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Features, targets and weights of a batch, a row for each term of weight > 0; labels stay labels."""
    if batch.targets is None:
        raise ValueError("the examples have no targets")
    X = _features(model, batch).double().cpu().flatten(0, -2)
    Y = batch.targets.cpu()
    Y = (Y[:, None] if Y.ndim == 1 else Y.flatten(0, -2)).double() if Y.is_floating_point() else Y.flatten()
    if len(X) != len(Y):
        raise ValueError(f"each target needs its row of features: got {len(Y)} targets, {len(X)} rows")
    weight = torch.ones(len(X), dtype=torch.float64)
    if batch.weight is not None:
        given = batch.weight.double().cpu().flatten()
        weight = given.repeat_interleave(len(X) // len(given))
    keep = (weight > 0) & (
        Y >= 0 if not Y.is_floating_point() else weight > 0
    )  # a label below 0 says: ignore
    return X[keep], Y[keep], weight[keep]


@torch.no_grad()
def _features(model: nn.Module, batch: Batch) -> Tensor:
    """What enters the linear module that is called last, or the inputs of a model that is x . w + b."""
    caught: list[Tensor] = []

    def watch(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        caught[:] = inputs[:1]

    handles = [m.register_forward_pre_hook(watch) for m in model.modules() if isinstance(m, nn.Linear)]
    with eval_mode(model):
        outputs = model(*batch.inputs)
    for handle in handles:
        handle.remove()
    if caught:
        return caught[0]
    core = core_of(model)
    weight, bias = getattr(core, "weight", None), getattr(core, "bias", None)
    x = features_of(model, batch.inputs[0]).flatten(1)
    if isinstance(weight, Tensor) and isinstance(bias, Tensor) and weight.shape == x.shape[1:]:
        close = torch.allclose(x @ weight + bias, outputs, rtol=1e-4, atol=1e-6, equal_nan=True)
        if outputs.shape == x.shape[:1] and close:
            return x
    raise ValueError(f"the model must have a last affine map: {type(core).__name__} calls none")
