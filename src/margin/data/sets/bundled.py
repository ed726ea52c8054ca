"""Five real data sets that scikit-learn ships: no download, the same bytes everywhere.

Handwritten digits (Alpaydin & Kaynak 1998), iris (Fisher 1936), wine (Aeberhard et al. 1992), breast
cancer (Street, Wolberg & Mangasarian 1993), diabetes (Efron et al. 2004).
"""

from collections.abc import Sequence
from typing import Any

import torch

from margin.data.assembly import Raw, assemble
from margin.data.examples import Data
from margin.data.options import option_groups
from margin.data.splits import Split


@option_groups()
def digits(*, split: Split = Split()) -> Data:
    """1,797 scanned handwritten digits, 8 x 8 pixels of 17 gray levels 0 .. 16, ten classes.

    Args:
        split: Test and validation part, seed.

    Returns:
        Images (N, 1, 8, 8) in the domain [0, 16].

    Reference: Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits, its test part.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    raw = Raw(
        name="digits",
        inputs=torch.from_numpy(bunch.images)[:, None],
        targets=torch.from_numpy(bunch.target),
        task="classes",
        classes=tuple(str(name) for name in bunch.target_names),
        domain=(0.0, 16.0),
    )
    return assemble(raw, split)


@option_groups()
def iris(*, split: Split = Split()) -> Data:
    """150 irises of three species by four lengths in centimeters.

    Args:
        split: Test and validation part, seed.

    Reference: Fisher 1936, The use of multiple measurements in taxonomic problems.
    """
    from sklearn.datasets import load_iris

    return _table("iris", load_iris(), "species", split)


@option_groups()
def wine(*, split: Split = Split()) -> Data:
    """178 wines of three cultivars by thirteen chemical measurements.

    Args:
        split: Test and validation part, seed.

    Reference: Aeberhard, Coomans & de Vel 1992, Comparison of classifiers in high dimensional settings.
    """
    from sklearn.datasets import load_wine

    return _table("wine", load_wine(), "cultivar", split)


@option_groups()
def breast_cancer(*, split: Split = Split()) -> Data:
    """569 breast masses, malignant (0) or benign (1), by thirty measurements of cell nuclei.

    Args:
        split: Test and validation part, seed.

    Reference: Street, Wolberg & Mangasarian 1993, Nuclear feature extraction for breast tumor diagnosis.
    """
    from sklearn.datasets import load_breast_cancer

    return _table("breast-cancer", load_breast_cancer(), "diagnosis", split)


@option_groups()
def diabetes(*, split: Split = Split()) -> Data:
    """442 patients: the disease's progression after one year by ten measurements, in their own units.

    Args:
        split: Test and validation part, seed.

    Reference: Efron, Hastie, Johnstone & Tibshirani 2004, Least angle regression, table 1.
    """
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    return _table("diabetes", bunch, "progression", split)


def _table(name: str, bunch: Any, target: str, split: Split) -> Data:
    """A bunch of named columns, encoded as a table: a file with the same columns can be predicted."""
    classes: Sequence[Any] = getattr(bunch, "target_names", ())
    columns = [{"name": str(column), "kind": "number"} for column in bunch.feature_names]
    raw = Raw(
        name=name,
        inputs=torch.from_numpy(bunch.data),
        targets=torch.from_numpy(bunch.target),
        task="classes" if len(classes) else "values",
        classes=tuple(str(c) for c in classes),
        encoding={
            "format": "table",
            "columns": columns,
            "target": {"name": target, "kind": "category" if len(classes) else "number"},
            "missing": "error",
            "header": "first",
        },
    )
    return assemble(raw, split)
