"""The rows of a matrix as examples: each counts by its weight, may hold an image, may be held out.

This is how scikit-learn's estimators are handed their data. Statistics are weighted, so a row of weight 2
counts as two rows, and a row of weight 0, which is left out, as none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array
from torch import Tensor, nn

from margin.data.assembly import spec_of
from margin.data.examples import Arrays, Data
from margin.data.preprocess import Standardize
from margin.data.splits import split_indices

Doubles = NDArray[np.float64]

Missing = Literal["error", "mean", "indicate"]
"""What a missing number (NaN) is: a mistake, the feature's mean, or that and a 0/1 feature that says so."""


class Imputed(nn.Module):
    """Missing numbers filled in, then a column of 0 and 1 for each feature whose absence is a feature.

    Args:
        fill: What a missing number of each feature becomes.
        indicated: The features whose absence is a feature.
    """

    fill: Tensor
    indicated: Tensor

    def __init__(self, fill: Float[Tensor, " features"], indicated: Bool[Tensor, " features"]) -> None:
        super().__init__()
        self.register_buffer("fill", fill)
        self.register_buffer("indicated", indicated)

    def forward(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, "rows filled"]:
        """The rows without a missing number."""
        missing = x.isnan()
        return torch.cat((torch.where(missing, self.fill.to(x), x), missing[:, self.indicated].to(x)), 1)


def imputation(x: Doubles, weight: Doubles, missing: Missing) -> Imputed:
    """The map that fills in the weighted mean of each feature's numbers, 0 where it has none."""
    absent = np.isnan(x)
    known = np.where(absent, 0.0, weight[:, None])
    total = known.sum(0)
    mean = np.divide((known * np.nan_to_num(x)).sum(0), total, out=np.zeros(x.shape[1]), where=total > 0)
    indicated = absent[weight > 0].any(0) & (missing == "indicate")
    return Imputed(torch.from_numpy(mean), torch.from_numpy(indicated))


def shape_of(shape: Any, features: int) -> tuple[int, ...]:
    """The shape of an input, of as many values as a row has; a row itself where ``shape`` is None.

    Raises:
        ValueError: It is not (channels, height, width), or has more or fewer values.
    """
    if shape is None:
        return (features,)
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    whole = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
    if len(sizes) != 3 or not whole or math.prod(sizes) != features:
        raise ValueError(
            "shape must be (channels, height, width), one value a feature: "
            f"got shape={shape} for {features} features"
        )
    return tuple(int(size) for size in sizes)


def weights_of(sample_weight: Any, count: int) -> Doubles:
    """The weight of each row: 1 where none are given.

    Raises:
        ValueError: They are not one finite number a row, one is negative, or all are 0.
    """
    if sample_weight is None:
        return np.ones(count)
    given = np.asarray(sample_weight)
    if given.shape != (count,):
        raise ValueError(f"sample_weight must have one number a row, ({count},): got {given.shape}")
    weight: Doubles = check_array(given, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if (weight < 0).any():
        row = int(weight.argmin())
        raise ValueError(f"sample_weight must be at least 0: got {weight[row]:g} in row {row}")
    if not weight.any():
        raise ValueError(f"sample_weight must not be zero in every row: got {count} zeros")
    return weight


def class_factors(class_weight: Any, classes: NDArray[Any], codes: NDArray[Any], weight: Doubles) -> Doubles:
    """By what the weight of the rows of each class is multiplied.

    Args:
        class_weight: None for 1; "balanced" for sum(w) / (K sum of w in the class), by which all K classes
            get the same total; or a dict, where a class that it leaves out has 1.
        classes: The classes, in the order of the codes.
        codes: The position of each row's class.
        weight: The weight of each row.

    Raises:
        ValueError: It is none of these, names no class, or is negative.
    """
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        totals = np.bincount(codes, weight, len(classes))
        present = totals > 0
        return np.divide(totals.sum() / present.sum(), totals, out=np.zeros(len(classes)), where=present)
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be None, 'balanced' or a dict: got {class_weight!r}")
    names = classes.tolist()
    if strange := [name for name in class_weight if name not in names]:
        raise ValueError(f"class_weight must name classes, which are {names}: got {strange}")
    if wrong := {name: factor for name, factor in class_weight.items() if not _at_least_zero(factor)}:
        raise ValueError(f"class_weight must be finite and at least 0: got {wrong}")
    return np.array([float(class_weight.get(name, 1.0)) for name in names])


def _at_least_zero(number: Any) -> bool:
    return isinstance(number, int | float | np.number) and 0 <= float(number) < math.inf


def even(weight: Doubles) -> bool:
    """Whether all rows that count at all count the same."""
    kept = weight[weight > 0]
    return bool((kept == kept[0]).all())


def standardization(x: NDArray[Any], weight: Doubles) -> Standardize:
    """The map to weighted mean 0 and variance 1, one for each feature, or for each channel of images."""
    kept = weight > 0
    x, weight = x[kept], weight[kept] / weight.max()  # equal weights are 1: they change no digit
    size: tuple[int, ...] = x.shape[1:]
    if x.ndim == 4:
        weight = np.repeat(weight, x[0, 0].size)
        x, size = np.moveaxis(x, 1, -1).reshape(-1, x.shape[1]), (x.shape[1], 1, 1)
    scaler = StandardScaler().fit(x, sample_weight=weight)
    return Standardize(torch.tensor(scaler.mean_).reshape(size), torch.tensor(scaler.scale_).reshape(size))


def rows_of(X: Doubles, targets: NDArray[Any], weight: Doubles, shape: Sequence[int]) -> Arrays:
    """The rows whose weight is not 0, each in its shape."""
    kept = weight > 0
    inputs = torch.from_numpy(X[kept]).reshape(-1, *shape)
    return Arrays((inputs,), torch.from_numpy(targets[kept]), torch.from_numpy(weight[kept]))


def data_of_rows(
    rows: Arrays,
    classes: int,
    validation_fraction: Any,
    seed: int,
    *,
    as_it_is: bool = False,
    missing: Missing = "error",
) -> tuple[Data, nn.Module]:
    """Rows as Data, filled in and standardized already, and the map that did so, fitted on the training part.

    In float64 the map loses nothing where a feature's mean is large beside its spread; inside of a model
    of float32 it would.

    Args:
        rows: What :func:`rows_of` made.
        classes: Number of classes; 0 for values.
        validation_fraction: Share of the validation part, in [0, 1); 0 leaves it out.
        seed: Seed of the random split.
        as_it_is: Whether the map leaves every feature as it is.
        missing: What a missing number of rows becomes; an error has been raised before.

    Raises:
        ValueError: The share is out of range, or a class has too few rows to be in both parts.
    """
    if not (_at_least_zero(validation_fraction) and validation_fraction < 1):
        raise ValueError(f"validation_fraction must be in [0, 1): got {validation_fraction!r}")
    parts = {"train": rows}
    if validation_fraction:
        labels = rows.targets if classes else None
        index = split_indices(len(rows), labels, test=0.0, val=validation_fraction, seed=seed)
        parts = {name: Arrays(*rows.take(i, torch.Generator())) for name, i in index.items()}
    x, weight = parts["train"].inputs[0].numpy(), _weight(parts["train"])
    imputed: nn.Module = nn.Identity() if missing == "error" else imputation(x, weight, missing)
    parts = {name: replace(part, inputs=(imputed(part.inputs[0]),)) for name, part in parts.items()}
    x = parts["train"].inputs[0].numpy()
    standardize, plain = standardization(x, weight), even(_weight(rows))
    if as_it_is:
        standardize = Standardize(torch.zeros_like(standardize.mean), torch.ones_like(standardize.std))
    splits = {
        name: Arrays((standardize(part.inputs[0]),), part.targets, None if plain else part.weight)
        for name, part in parts.items()
    }
    spec = spec_of(x.shape[1:], len(x), classes)
    preprocess = standardize if missing == "error" else nn.Sequential(imputed, standardize)
    return Data(name="the rows of a matrix", splits=splits, spec=spec), preprocess


def _weight(rows: Arrays) -> Doubles:
    return np.ones(len(rows)) if rows.weight is None else rows.weight.numpy()
