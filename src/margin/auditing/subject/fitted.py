"""The subject of a fitted estimator: its module on rows in the features' own units, classes by position."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from margin.auditing.subject.subjects import subject_of
from margin.core.catalog import find, models, resolve
from margin.core.findings import Subject


@runtime_checkable
class Estimator(Protocol):
    """What has the manners of scikit-learn and trains an entry of the catalog; fitted, it has ``module_``."""

    model: str

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of its constructor."""
        ...

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on the rows of a matrix."""
        ...


def subject_of_estimator(estimator: Any, data: Any, *, train: Any = None, domain: Any = None) -> Subject:
    """The subject of an audit: an estimator's ``module_`` on held-out rows.

    Args:
        estimator: Fitted.
        data: ``(X, y)``, as its ``fit`` takes them.
        train: The rows of the fit, for the claims that need them.
        domain: Where a feature may lie: (low, high), or a Domain.

    Raises:
        NotFittedError: It has not been fitted.
        ValueError: The rows do not fit, or a class was not there in the fit.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    if data is None:
        raise ValueError("an estimator is audited on held-out rows: give them as (X, y)")
    module: nn.Module = estimator.module_
    return subject_of(
        module,
        _rows(estimator, data),
        task=resolve(find(models(), estimator.entry_, "model").task).name,
        train=None if train is None else _rows(estimator, train),
        domain=domain,
        class_names=tuple(str(name) for name in getattr(estimator, "classes_", ())),
    )


def _rows(estimator: Any, data: Any) -> tuple[Tensor, Tensor]:
    """Rows and targets as the module takes them."""
    from sklearn.utils.validation import validate_data

    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(f"rows must be a pair (X, y): got {type(data).__name__}")
    X = torch.tensor(validate_data(estimator, data[0], reset=False, dtype=np.float64))
    y = np.asarray(data[1])
    if (classes := getattr(estimator, "classes_", None)) is not None:
        strange = np.setdiff1d(y, classes)
        if strange.size:
            raise ValueError(f"y must hold classes of the fit, {classes.tolist()}: got {strange.tolist()}")
        y = np.searchsorted(classes, y)
    return X.reshape(-1, *estimator.input_shape_), torch.tensor(y)
