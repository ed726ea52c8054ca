"""MNIST-1D, made by its published recipe: ten templates of twelve points, moved, scaled and drowned in noise.

Each example is a template padded with silence, stretched, scaled, shifted around, filled with correlated
noise where it is silent, tilted, and sampled at 40 points. Generator, seed 42 and the order of the draws are
the recipe's: these are, to the bit, the examples that the authors' package mnist1d makes.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from margin.data.assembly import Raw
from margin.data.examples import Data
from margin.data.formats.sequences.sources import assemble_sequences
from margin.data.formats.sequences.values import rows_of
from margin.data.options import option_groups
from margin.data.splits import Split

TEMPLATES = (
    (5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5),
    (5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5),
    (5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5),
    (5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5),
    (5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5),
    (5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5),
    (5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5),
    (5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5),
    (5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5),
    (5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5),
)
PER_CLASS, TRAIN, LENGTH, POINTS = 500, 4000, 72, 40
PADDING, SCALE, SHIFT, CORRELATED, WHITE, TILT = (36, 60), 0.4, 48, 0.25, 0.02, 0.75

Points = NDArray[np.float64]


@option_groups("test")
def mnist1d(*, seed: int = 42, split: Split = Split(test=0.0)) -> Data:
    """5,000 sequences of 40 points in ten classes, of which the first 4,000 of the recipe are for training.

    Args:
        seed: Seed of the recipe; 42 is the published set.
        split: Test and validation part, seed.
        val: Share of the validation part among the 4,000.

    Returns:
        Sequences (40, 1); the 1,000 others are the official test part.

    Reference: Greydanus & Kobak 2024, Scaling down deep learning with MNIST-1D, section 2.
    """
    x, y = recipe(seed)
    rows, labels = rows_of(x.astype(np.float32), "mnist1d"), torch.from_numpy(y)
    order = torch.arange(len(labels))
    raw = Raw(
        name="mnist1d",
        inputs=rows.rows(order[:TRAIN]),
        targets=labels[:TRAIN],
        task="classes",
        classes=tuple("0123456789"),
        official=(rows.rows(order[TRAIN:]), labels[TRAIN:]),
    )
    return assemble_sequences(raw, split)


def recipe(seed: int = 42) -> tuple[Points, NDArray[np.int64]]:
    """All examples (5000, 40) and their classes, shuffled and standardized as a whole."""
    draw = np.random.RandomState(seed)
    templates = np.array(TEMPLATES)
    templates -= templates.mean(1, keepdims=True)
    templates /= templates.std(1, keepdims=True)
    templates = (templates - templates[:, :1]) / 6
    x = np.stack([_example(template, draw) for template in templates for _ in range(PER_CLASS)])
    order = draw.permutation(len(x))
    x, y = x[order], np.repeat(np.arange(10), PER_CLASS)[order]
    return (x - x.mean()) / x.std(), y


def _example(template: Points, draw: np.random.RandomState) -> Points:
    from scipy.ndimage import gaussian_filter

    silence = PADDING[0] + int(draw.rand() * (PADDING[1] - PADDING[0] + 1))
    x = _resampled(np.concatenate((template + 1e-8, np.zeros(silence))), LENGTH)
    x = np.roll(x * (1 + SCALE * (draw.rand() - 0.5)), draw.choice(SHIFT))
    noise = gaussian_filter(CORRELATED * draw.randn(LENGTH), 2)
    x = np.where(x != 0, x, noise) + WHITE * draw.randn(LENGTH)
    x = x - TILT * (draw.rand() - 0.5) * np.linspace(-0.5, 0.5, LENGTH)
    return _resampled(x, POINTS)


def _resampled(x: Points, points: int) -> Points:
    return np.interp(np.linspace(0, 1, points), np.linspace(0, 1, len(x)), x)
