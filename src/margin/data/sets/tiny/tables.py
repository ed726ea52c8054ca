"""The smallest data that models train on: what the contracts and demonstrations use."""

from margin.data.examples import Arrays, Data
from margin.data.sets.bundled import digits
from margin.data.sets.synthetic import blobs, noisy_linear, separable, two_moons
from margin.data.sets.synthetic_geometry import thin_lines


def values() -> Data:
    """Forty noisy values of a linear map of three features."""
    return noisy_linear(examples=40, features=3)


def line() -> Data:
    """Forty noisy values of an affine map of one feature."""
    return noisy_linear(examples=40, features=1)


def sides() -> Data:
    """Forty points of the plane in two classes, separable with margin 0.2."""
    return separable(examples=40, features=2, margin=0.2)


def classes() -> Data:
    """Sixty points of the plane in three overlapping blobs."""
    return blobs(examples=60, classes=3)


def moons() -> Data:
    """Forty points on two moons."""
    return two_moons(examples=40)


def images() -> Data:
    """Sixty of scikit-learn's digits in training, twenty in each part that is held out."""
    data = digits()
    splits = {
        name: Arrays(
            (part.inputs[0][: 60 if name == "train" else 20],), part.targets[: 60 if name == "train" else 20]
        )
        for name, part in data.splits.items()
    }
    return Data(
        name="digits (60)",
        splits=splits,
        spec={**data.spec, "num_examples": 60},
        encoding=data.encoding,
        preprocess=data.preprocess,
        domain=data.domain,
    )


def masks() -> Data:
    """Forty images of 16 x 16 pixels with two thin lines each, which the classes of their pixels show."""
    return thin_lines(examples=40, size=16, lines=2)
