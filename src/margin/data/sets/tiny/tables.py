"""The smallest data that models train on: what the contracts and demonstrations use."""

from dataclasses import replace

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
    return _digits(60, 20)


def small_images() -> Data:
    """Sixteen of them in training, eight in each part that is held out, of 4 x 4 pixels: means of 2 x 2."""
    return _digits(16, 8, factor=2)


def _digits(training: int, held_out: int, *, factor: int = 1) -> Data:
    """So many digits in each part, smaller by a factor."""
    data = digits()
    splits = {}
    for name, part in data.splits.items():
        count = training if name == "train" else held_out
        pixels = part.inputs[0][:count]
        if factor > 1:
            pixels = pixels.unflatten(3, (-1, factor)).unflatten(2, (-1, factor)).mean((3, 5))
        splits[name] = Arrays((pixels,), part.targets[:count])
    channels, height, width = splits["train"].inputs[0].shape[1:]
    return replace(
        data,
        name=f"digits ({training})",
        splits=splits,
        spec={
            **data.spec,
            "num_examples": training,
            "in_features": channels * height * width,
            "image_size": (height, width),
        },
        encoding={**data.encoding, "shape": [channels, height, width]},
        fingerprint="",
        notes=(),
    )


def masks() -> Data:
    """Forty images of 16 x 16 pixels with two thin lines each, which the classes of their pixels show."""
    return thin_lines(examples=40, size=16, lines=2)
