"""A back-test in one picture: a forecast with its band, and errors by steps ahead beside naive ones."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from margin.data.files.writing import whole_file
from margin.sequence.forecast.backtest import Backtest, block_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MODEL, TRUTH = "#333333", "#c1571b", "#1f77b4"
BASES = ("#8a8a8a", "#4f9d69", "#8a5fb0")


def backtest_picture(
    test: Backtest, file: str | os.PathLike[str], *, target: int = 0, name: str = "value"
) -> Path:
    """Write a PNG: on the left the last forecast after its context, on the right the mean absolute errors.

    The shades on the right are 95 % intervals over blocks of neighboring origins; where there are too few
    origins for blocks they are left out, and the title says so.

    Args:
        test: What :func:`margin.sequence.forecast.backtest.backtest` returned.
        file: Where the picture goes; its folder exists.
        target: Which of the targets.
        name: What the axis calls it, with its unit.

    Returns:
        The path of the picture.

    Raises:
        ValueError: There is no such target.
    """
    count = test.truth.shape[2]
    if not 0 <= target < count:
        raise ValueError(f"target must be in 0 .. {count - 1}: got {target}")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=120)
    left, right = figure.subplots(1, 2)
    _last(left, test, target)
    left.set(xlabel="rows after the last that was read", ylabel=name)
    shaded = _errors(right, test, target)
    right.set(xlabel="steps ahead", ylabel="mean absolute error")
    right.set_ylim(bottom=0)
    origins = f"{len(test.truth):,} origins"
    right.set_title(origins if shaded else f"{origins}, too few for intervals", fontsize=9, color=INK)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    with whole_file(Path(file)) as whole:
        figure.savefig(whole, format="png")
    return Path(file)


def _last(axes: "Axes", test: Backtest, target: int) -> None:
    horizon = test.truth.shape[1]
    past = test.context[-3 * horizon :, target]
    ahead = torch.arange(1, horizon + 1)
    axes.plot(torch.arange(1 - len(past), 1), past, color=INK, linewidth=1, label="read")
    axes.plot(ahead, test.truth[-1, :, target], color=TRUTH, linewidth=1.4, label="what followed")
    if test.band is not None:
        low, high = (end[-1, :, target] for end in test.band)
        axes.fill_between(ahead, low, high, color=MODEL, alpha=0.2, linewidth=0, label="80 % band")
    axes.plot(ahead, test.forecast[-1, :, target], color=MODEL, linewidth=1.4, label="forecast")
    axes.axvline(0.5, color=INK, linewidth=0.6, linestyle=(0, (4, 3)))


def _errors(axes: "Axes", test: Backtest, target: int) -> bool:
    shaded = False
    for name, color in zip(("", *test.baselines), (MODEL, *BASES), strict=False):
        error: Tensor = test.absolute(name)[:, :, target]
        ahead = torch.arange(1, error.shape[1] + 1)
        axes.plot(ahead, error.double().mean(0), color=color, linewidth=1.4, label=name or "this forecast")
        try:
            low, high = block_interval(error, error.shape[1])
        except ArithmeticError:
            continue
        axes.fill_between(ahead, low, high, color=color, alpha=0.15, linewidth=0)
        shaded = True
    return shaded
