"""Rolling-origin back-tests (Tashman 2000): forecasts from many origins, judged by what then followed.

In one picture: a forecast with its band, and the errors by steps ahead with those of the baselines.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.tasks import LEVELS
from margin.data.files.writing import whole_file
from margin.data.formats.series.windows import Windows
from margin.engine.evaluation import eval_mode
from margin.sequence.forecast.baselines import repeated
from margin.theory.prediction.held_out import FEWEST_BLOCKS, MOST_BLOCKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False)
class Backtest:
    """Forecasts from one origin after another, beside the truth and beside forecasts without a model.

    Args:
        origins: The first row of each forecast.
        forecast: The forecasts, in the series' units; of quantiles the median.
        truth: What followed.
        band: The lowest and the highest quantile, (.1, .9), where the model states quantiles.
        baselines: The forecasts of no change and of a season ago, by name.
        context: The rows that the last forecast read, of the targets.
    """

    origins: Int[Tensor, " origins"]
    forecast: Float[Tensor, "origins horizon targets"]
    truth: Float[Tensor, "origins horizon targets"]
    band: tuple[Float[Tensor, "origins horizon targets"], Float[Tensor, "origins horizon targets"]] | None
    baselines: Mapping[str, Float[Tensor, "origins horizon targets"]]
    context: Float[Tensor, "context targets"]

    def squared(self, name: str = "") -> Float[Tensor, "origins horizon targets"]:
        """The squared error of the model (""), or of a baseline."""
        return (self._of(name) - self.truth).square()

    def absolute(self, name: str = "") -> Float[Tensor, "origins horizon targets"]:
        """The absolute error of the model (""), or of a baseline."""
        return (self._of(name) - self.truth).abs()

    @property
    def covered(self) -> Float[Tensor, "origins horizon targets"]:
        """1 where the truth lies in the band, its ends included.

        Raises:
            ValueError: The model states no quantiles.
        """
        if self.band is None:
            raise ValueError("coverage is that of a band: the model states no quantiles")
        low, high = self.band
        return ((self.truth >= low) & (self.truth <= high)).to(self.truth.dtype)

    def _of(self, name: str) -> Tensor:
        return self.baselines[name] if name else self.forecast


@torch.no_grad()
def backtest(model: nn.Module, windows: Windows, *, every: int = 1, period: int = 1) -> Backtest:
    """Forecast from every so many-th origin of a part; the model is not fitted again between them.

    Args:
        model: From contexts in the series' units to forecasts (batch, horizon, targets), or quantiles with
            the levels .1, .5, .9 as one axis more.
        windows: A part of a series, in order of time, with what followed.
        every: Windows from an origin to the next.
        period: Rows of a season, of the forecast of a season ago; 1 leaves it out.

    Raises:
        ValueError: ``every`` is below 1, what followed is not known, or a context has no whole season.
    """
    if every < 1:
        raise ValueError(f"every must be at least 1 window: got {every}")
    if not windows.known:
        raise ValueError("a back-test compares with what followed: the windows end at the last row")
    columns = list(windows.columns)
    outputs, truths, naive, seasonal = [], [], [], []
    chosen = torch.arange(0, len(windows), every)
    context = torch.empty(0)
    with eval_mode(model):
        for index in chosen.split(windows.evaluation_batch):
            batch = windows.take(index, Generator())
            x, truth = batch.inputs[0], batch.targets
            if truth is None:
                raise ValueError("a back-test compares with what followed: these windows have no targets")
            outputs.append(model(x))
            truths.append(truth)
            context = x[:, :, columns]
            naive.append(repeated(context, windows.horizon, 1))
            seasonal.append(repeated(context, windows.horizon, period))
    out, truth = torch.cat(outputs), torch.cat(truths)
    quantiles = out.ndim == truth.ndim + 1
    seasons = {f"{period} rows ago": torch.cat(seasonal)} if period > 1 else {}
    return Backtest(
        origins=windows.origins[chosen],
        forecast=out[..., LEVELS.index(0.5)] if quantiles else out,
        truth=truth,
        band=(out[..., 0], out[..., -1]) if quantiles else None,
        baselines={"last value": torch.cat(naive), **seasons},
        context=context[-1],
    )


def blocks_of(origins: int, horizon: int) -> int:
    """How many blocks of neighboring origins are compared: each at least ``horizon`` long, 20 at most.

    Forecasts of neighboring origins forecast the same rows, so their errors are nearly one. Between blocks of
    that length only the ends share rows.

    Raises:
        ArithmeticError: There are not 4 such blocks.
    """
    count = min(MOST_BLOCKS, origins // horizon)
    if count < FEWEST_BLOCKS:
        raise ArithmeticError(
            f"an interval needs {FEWEST_BLOCKS} blocks of {horizon} origins: there are {origins} origins"
        )
    return count


def block_means(values: Float[Tensor, " origins *rest"], blocks: int) -> Float[Tensor, " blocks *rest"]:
    """The mean over each block of neighboring origins; the blocks differ by one origin at most."""
    return torch.stack([part.mean(0) for part in values.double().tensor_split(blocks)])


def block_interval(
    values: Float[Tensor, " origins *rest"], horizon: int, *, error: float = 0.05
) -> tuple[Float[Tensor, "*rest"], Float[Tensor, "*rest"]]:
    r"""A confidence interval of a mean over origins, from the spread of the means of blocks.

    .. math:: \bar v \pm t_{k-1, 1 - \epsilon / 2}\, s / \sqrt k

    with k blocks of mean square deviation s^2. It holds where blocks are independent, of one expectation, and
    long enough to be about normal.

    Args:
        values: One value an origin, in order of time.
        horizon: Steps of each forecast, in origins.
        error: Probability that the interval misses.

    Returns:
        Its ends.

    Raises:
        ArithmeticError: There are too few origins (see :func:`blocks_of`).

    Reference:
        Conway 1963, Section 5 (batch means); Law 2015, Section 9.5.3.
    """
    means = block_means(values, blocks_of(len(values), horizon))
    half = student(len(means), error) * means.std(0) / math.sqrt(len(means))
    return means.mean(0) - half, means.mean(0) + half


def student(blocks: int, error: float) -> float:
    """Student's t of an interval over so many blocks that misses with probability ``error``."""
    from scipy.special import stdtrit

    return float(stdtrit(blocks - 1, 1 - error / 2))


def neighbor_correlation(values: Float[Tensor, " origins"], horizon: int) -> float:
    """The correlation of the means of neighboring blocks: near 0 where blocks are independent."""
    means = block_means(values, blocks_of(len(values), horizon))
    z = means - means.mean()
    return float((z[1:] * z[:-1]).sum() / z.square().sum())


def skill(
    error: Float[Tensor, "origins targets"], base: Float[Tensor, "origins targets"], horizon: int
) -> tuple[float, float]:
    r"""How much of a baseline's squared error a forecast saves, and the standard error of that.

    .. math:: 1 - \frac1m \sum_j \bar e_j / \bar b_j

    over the m targets: 1 is a perfect forecast, 0 the baseline's, and below 0 it is worse. The standard error
    is the jackknife's over blocks of neighboring origins.

    Args:
        error: Mean squared error of the forecast from each origin, of each target.
        base: That of the baseline.
        horizon: Steps of each forecast, in origins.

    Raises:
        ArithmeticError: There are too few origins, or the baseline makes no error.

    Reference:
        Murphy 1988, Equation 4; Efron 1982, Chapter 3 (jackknife).
    """
    value, without = relative_errors(error, base, horizon)
    count = len(without)
    stderr = ((count - 1) / count * (without - without.mean()).square().sum()).sqrt()
    return 1 - value, float(stderr)


def relative_errors(
    error: Float[Tensor, "origins targets"], base: Float[Tensor, "origins targets"], horizon: int
) -> tuple[float, Float[Tensor, " blocks"]]:
    """The error over a baseline's, the mean over targets; and what it is without each block of origins.

    Raises:
        ArithmeticError: There are too few origins, or the baseline makes no error.
    """
    count = blocks_of(len(error), horizon)
    parts = torch.stack((error.double(), base.double())).tensor_split(count, 1)
    sums = torch.stack([part.sum(1) for part in parts])
    whole = sums.sum(0)
    if not bool((whole[1] > 0).all()):
        raise ArithmeticError("the skill is relative to the baseline's error, which is 0 for a target")
    without = whole - sums
    return float((whole[0] / whole[1]).mean()), (without[:, 0] / without[:, 1]).mean(1)


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
