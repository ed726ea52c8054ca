"""Five real data sets that scikit-learn ships: no download, the same bytes everywhere.

Handwritten digits (Alpaydin & Kaynak 1998), iris (Fisher 1936), wine (Aeberhard et al. 1992), breast
cancer (Street, Wolberg & Mangasarian 1993), diabetes (Efron et al. 2004).
"""

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from margin.data.assembly import Raw, assemble
from margin.data.examples import Data
from margin.data.options import option_groups
from margin.data.splits import Split

_IRIS = tuple(f"{part} {side} (cm)" for part, side in product(("sepal", "petal"), ("length", "width")))
_WINE = (
    *("alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids"),
    *("nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280/od315_of_diluted_wines"),
    "proline",
)
_NUCLEUS = (
    *("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity"),
    *("concave points", "symmetry", "fractal dimension"),
)
_MASS = tuple(form.format(of) for form, of in product(("mean {}", "{} error", "worst {}"), _NUCLEUS))
_PATIENT = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


@option_groups()
def digits(*, split: Split = Split()) -> Data:
    """1,797 scanned handwritten digits, 8 x 8 pixels of 17 gray levels 0 .. 16, ten classes.

    Args:
        split: Test and validation part, seed.

    Returns:
        Images (N, 1, 8, 8) in the domain [0, 16].

    Reference: Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits, its test part.
    """
    pixels, targets = _numbers("digits", "digits.csv.gz")
    raw = Raw(
        name="digits",
        inputs=pixels.reshape(-1, 1, 8, 8),
        targets=targets.long(),
        task="classes",
        classes=tuple("0123456789"),
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
    numbers = _numbers("iris", "iris.csv", header=1)
    return _table("iris", numbers, _IRIS, "species", ("setosa", "versicolor", "virginica"), split)


@option_groups()
def wine(*, split: Split = Split()) -> Data:
    """178 wines of three cultivars by thirteen chemical measurements.

    Args:
        split: Test and validation part, seed.

    Reference: Aeberhard, Coomans & de Vel 1992, Comparison of classifiers in high dimensional settings.
    """
    numbers = _numbers("wine", "wine_data.csv", header=1)
    return _table("wine", numbers, _WINE, "cultivar", ("class_0", "class_1", "class_2"), split)


@option_groups()
def breast_cancer(*, split: Split = Split()) -> Data:
    """569 breast masses, malignant (0) or benign (1), by thirty measurements of cell nuclei.

    Args:
        split: Test and validation part, seed.

    Reference: Street, Wolberg & Mangasarian 1993, Nuclear feature extraction for breast tumor diagnosis.
    """
    numbers = _numbers("breast_cancer", "breast_cancer.csv", header=1)
    return _table("breast-cancer", numbers, _MASS, "diagnosis", ("malignant", "benign"), split)


@option_groups()
def diabetes(*, split: Split = Split()) -> Data:
    """442 patients: the disease's progression after one year by ten measurements, in their own units.

    Args:
        split: Test and validation part, seed.

    Reference: Efron, Hastie, Johnstone & Tibshirani 2004, Least angle regression, table 1.
    """
    files = ("diabetes_data_raw.csv.gz", "diabetes_target.csv.gz")
    numbers = _numbers("diabetes", *files, separator=None, scaled=False)
    return _table("diabetes", numbers, _PATIENT, "progression", (), split)


def _numbers(
    name: str, *files: str, header: int = 0, separator: str | None = ",", **options: bool
) -> tuple[Tensor, Tensor]:
    """The features and the targets of a set, from scikit-learn's files by their path.

    To import scikit-learn takes a second. A release that keeps its files elsewhere, or names them otherwise,
    reads the same numbers by its own function.

    Args:
        name: What scikit-learn calls the set.
        files: The files, side by side; the last column is the target.
        header: Lines above the numbers.
        separator: What divides numbers; None is space.
        options: Of scikit-learn's function.
    """
    package = find_spec("sklearn")
    folder = Path(package.origin if package and package.origin else "").parent / "datasets" / "data"
    if all((folder / file).is_file() for file in files):
        read = [np.loadtxt(folder / file, delimiter=separator, skiprows=header, ndmin=2) for file in files]
        table = torch.from_numpy(np.concatenate(read, axis=1))
        return table[:, :-1].contiguous(), table[:, -1].contiguous()
    import sklearn.datasets

    data, target = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True, **options)
    return torch.from_numpy(data), torch.from_numpy(target)


def _table(
    name: str,
    numbers: tuple[Tensor, Tensor],
    features: Sequence[str],
    target: str,
    classes: tuple[str, ...],
    split: Split,
) -> Data:
    """Named columns, encoded as a table: a file with the same columns can be predicted."""
    raw = Raw(
        name=name,
        inputs=numbers[0],
        targets=numbers[1].long() if classes else numbers[1],
        task="classes" if classes else "values",
        classes=classes,
        encoding={
            "format": "table",
            "columns": [{"name": column, "kind": "number"} for column in features],
            "target": {"name": target, "kind": "category" if classes else "number"},
            "missing": "error",
            "header": "first",
        },
    )
    return assemble(raw, split)
