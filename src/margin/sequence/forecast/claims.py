"""Errors of a forecast by column and steps ahead, coverage of its band, and skill over that of no change."""

import math

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import LEVELS, QUANTILES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of
from margin.sequence.forecast.backtest import (
    block_interval,
    blocks_of,
    neighbor_correlation,
    relative_errors,
)
from margin.sequence.forecast.baselines import repeated
from margin.theory.prediction.differences import Levels, at_both_levels
from margin.theory.prediction.residuals import Interval, left_out_interval

PROMISED = LEVELS[-1] - LEVELS[0]
"""The probability between the lowest and the highest quantile."""

ROOM = 0.05
"""How far a coverage may be from the promised one and still be called it."""

LAST_VALUE = "last value"

MISSES = 6.3e-5
"""Probability that an interval misses: that of four standard errors."""


def is_forecast(subject: Subject) -> bool:
    """Whether outputs are values, or quantiles, of columns of the input at the next steps."""
    return subject.task.name in ("series", "quantiles") and _columns(subject) is not None


def is_quantile_forecast(subject: Subject) -> bool:
    """Whether outputs are quantiles of columns of the input at the next steps."""
    return subject.task.name == "quantiles" and is_forecast(subject)


def _columns(subject: Subject) -> list[int] | None:
    """The columns that are forecast: those that the model names, or all where there is a target for each."""
    if not subject.test or subject.test[0].targets is None:
        return None
    scale = getattr(core_of(subject.model), "scale", None)
    if scale is not None and hasattr(scale, "columns"):
        return [int(k) for k in scale.columns]
    x, targets = subject.test[0].inputs[0], subject.test[0].targets
    same = x.ndim == targets.ndim == 3 and x.shape[2] == targets.shape[2]
    return list(range(x.shape[2])) if same else None


@torch.no_grad()
def _asked(subject: Subject) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, truth, and contexts of the columns that are forecast, of all origins in order of time."""
    columns = _columns(subject)
    if columns is None:
        raise ValueError("this is asked of forecasts of columns of the input")
    outputs, truths, contexts = [], [], []
    with eval_mode(subject.model):
        for batch in subject.test:
            if batch.targets is None:
                raise ValueError("a forecast is judged by what followed: a batch has no targets")
            outputs.append(subject.model(*batch.inputs).cpu())
            truths.append(batch.targets.cpu())
            contexts.append(batch.inputs[0][:, :, columns].cpu())
    return torch.cat(outputs).double(), torch.cat(truths).double(), torch.cat(contexts).double()


def coverage(subject: Subject) -> Finding:
    """Empirical coverage of the 10-90 % band: how often what followed lay in it, and the promised 80 %.

    The interval is over blocks of neighboring origins, for neighboring forecasts forecast the same rows; it
    is cut to [0, 1], where every share lies.

    Args:
        subject: A forecast of quantiles, its held-out windows in order of time, one row apart.
    """
    outputs, truth, context = _asked(subject)
    inside = ((truth >= outputs[..., 0]) & (truth <= outputs[..., -1])).double()
    whole = not bool(outputs.isnan().any())
    inside = inside if whole else torch.full_like(inside, math.nan)
    horizon, each = truth.shape[1], inside.mean((1, 2))
    interval, printed, failure, premises = None, None, "", [_same_law(), _best_quantiles()]
    try:
        interval, printed = (_share_of_blocks(each, horizon, miss) for miss in (MISSES, 0.05))
        premises.append(_independent(each, horizon))
    except ArithmeticError as error:
        failure = str(error)
    return Finding(
        statement=f"Of what followed, the share between the quantiles {LEVELS[0]:g} and {LEVELS[-1]:g}, over "
        f"{len(truth):,} origins and {horizon} steps ahead, is what they promise.",
        value=each.mean(),
        range=(0.0, 1.0),
        kind="estimate",
        interval=interval,
        printed=printed,
        equals=PROMISED,
        scope="limit",
        tolerance=ROOM,
        premises=tuple(premises),
        failure=failure,
        curves=_fan(outputs, truth, context) | {"coverage by step": inside.mean((0, 2))},
    )


def _share_of_blocks(each: Tensor, horizon: int, error: float) -> tuple[Tensor, Tensor]:
    low, high = block_interval(each, horizon, error=error)
    return low.clamp(0, 1), high.clamp(0, 1)


def _same_law() -> Premise:
    text = "what follows has the distribution, given its past, that it had in training"
    return Premise(text, "assumed", "held-out rows come later than the training part")


def _best_quantiles() -> Premise:
    text = "the quantiles are those of least pinball loss among all functions of the context"
    return Premise(text, "assumed", "a trained network reaches them in the limit of much data at best")


def _independent(each: Tensor, horizon: int) -> Premise:
    blocks, r = blocks_of(len(each), horizon), neighbor_correlation(each, horizon)
    text = "blocks of neighboring origins are independent"
    return Premise(text, "assumed", f"{blocks} blocks, neighbors' correlation {r:.2g}")


def _fan(outputs: Tensor, truth: Tensor, context: Tensor) -> dict[str, Tensor]:
    """The forecast from the middle origin of the first target, with what it read and what followed."""
    k = len(truth) // 2
    past = context[k, -3 * truth.shape[1] :, 0]
    drawn = {"past": past, "truth": truth[k, :, 0]}
    if outputs.ndim == truth.ndim:
        return drawn | {"forecast": outputs[k, :, 0]}
    low, middle, high = (outputs[k, :, 0, LEVELS.index(q)] for q in LEVELS)
    return drawn | {"forecast": middle, "band low": low, "band high": high}


def forecast_skill(subject: Subject) -> Finding:
    """How much of the squared error of a naive forecast is saved: 1 - error / its error.

    The naive ones are the last value, and where the times of the data say the season and a context has one,
    the value of a season ago. The errors are of the same targets, so the interval is that of the ratio, by
    the jackknife over blocks of neighboring origins. Of quantiles the median is judged. Each column counts
    alike, whatever its unit.

    Args:
        subject: A forecast, its held-out windows in order of time, one row apart.
    """
    outputs, truth, context = _asked(subject)
    horizon, (_, season) = truth.shape[1], _named(subject, truth.shape[2])
    error = (_middle(outputs, truth) - truth).square()
    base = {name: (x - truth).square() for name, x in _naive(context, horizon, season).items()}
    levels, failure = Levels(*_unknown(len(base))), ""
    premises: tuple[Premise, ...] = ()
    try:
        known = [relative_errors(error.mean(1), each.mean(1), horizon) for each in base.values()]
        levels = at_both_levels(lambda level: [_saved(*ratio, level) for ratio in known])
        last = base[LAST_VALUE].mean((0, 1))
        premises = (_independent((error.mean(1) / last).mean(1), horizon),)
    except ArithmeticError as problem:
        failure = str(problem)
    # Of quantiles the coverage shows a forecast
    drawn = _fan(outputs, truth, context) if outputs.ndim == truth.ndim else {}
    unit = base[LAST_VALUE].mean((0, 1)).clamp(min=torch.finfo(torch.float64).tiny)
    return Finding(
        statement=f"Of the squared error of naive forecasts, over {len(truth):,} origins and {horizon} "
        "steps ahead, this forecast saves this share.",
        range=(-math.inf, 1.0),
        kind="estimate",
        labels=tuple(base),
        **levels._asdict(),
        premises=premises,
        failure=failure,
        curves={"steps ahead": torch.arange(1, horizon + 1)}
        | {
            name: (each.mean(0) / unit).mean(1).sqrt()
            for name, each in {"this forecast": error, **base}.items()
        }
        | drawn,
    )


def _unknown(count: int) -> tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    nothing = torch.full((count,), math.nan, dtype=torch.float64)
    return nothing, (nothing, nothing), (nothing, nothing)


def _saved(ratio: float, without: Tensor, level: float) -> Interval:
    """What is saved where so much is left, with its limits."""
    if not math.isfinite(ratio):
        return Interval(*(math.nan,) * 3)
    left = left_out_interval(ratio, without, level=level)
    return Interval(1 - left.value, 1 - left.high, 1 - left.low)


def _middle(outputs: Tensor, truth: Tensor) -> Tensor:
    """The forecast: of quantiles the median."""
    return outputs if outputs.ndim == truth.ndim else outputs[..., LEVELS.index(0.5)]


def _naive(context: Tensor, horizon: int, season: int) -> dict[str, Tensor]:
    """The forecasts that need no model, by name: the last value, and that of a season ago if one is known."""
    lags = {LAST_VALUE: 1} | ({f"{season} rows ago": season} if 1 < season <= context.shape[1] else {})
    return {name: repeated(context, horizon, lag) for name, lag in lags.items()}


def _named(subject: Subject, count: int) -> tuple[list[str], int]:
    """What the columns that are forecast are called, and the rows of a season, as the windows say."""
    windows = getattr(subject.test, "examples", None)
    names = list(getattr(windows, "names", ())) or [f"column {k}" for k in range(1, count + 1)]
    return names, getattr(windows, "season", 1)


def errors(subject: Subject) -> Finding:
    """Mean absolute error of each column, over all origins and steps ahead, beside that of naive forecasts.

    The naive ones are the last value, and where the times of the data say the season and a context has one,
    the value of a season ago. The curves are the errors of each step ahead. Of quantiles the median is
    judged.

    Args:
        subject: A forecast, its held-out windows in order of time.
    """
    outputs, truth, context = _asked(subject)
    horizon, (names, season) = truth.shape[1], _named(subject, truth.shape[2])
    off = {"this forecast": (_middle(outputs, truth) - truth).abs()}
    off |= {name: (x - truth).abs() for name, x in _naive(context, horizon, season).items()}
    mean = {name: error.mean((0, 1)).tolist() for name, error in off.items()}
    said = [
        f"{column} {mean['this forecast'][k]:.4g} ({', '.join(f'{n} {mean[n][k]:.4g}' for n in [*mean][1:])})"
        for k, column in enumerate(names)
    ]
    interval, printed, failure = None, None, ""
    try:
        interval, printed = (
            block_interval(off["this forecast"].mean(1), horizon, error=miss) for miss in (MISSES, 0.05)
        )
    except ArithmeticError as problem:
        failure = str(problem)
    return Finding(
        statement=f"Mean absolute error over {len(truth):,} origins and {horizon} steps ahead, in the "
        f"unit of each column: {'; '.join(said)}.",
        value=off["this forecast"].mean((0, 1)),
        range=(0.0, math.inf),
        kind="estimate",
        interval=interval,
        printed=printed,
        labels=tuple(names),
        failure=failure,
        curves={"steps ahead": torch.arange(1, horizon + 1)}
        | {
            f"{column}, {name}": error.mean(0)[:, k]
            for k, column in enumerate(names)
            for name, error in off.items()
        },
    )


class _Bell(nn.Module):
    """The quantiles of independent rows of a normal distribution, whatever came before."""

    def __init__(self, horizon: int) -> None:
        super().__init__()
        self.horizon = horizon

    def forward(self, x: Tensor) -> Tensor:
        """The same three numbers at every step ahead."""
        normal = torch.distributions.Normal(x.new_tensor(5.0), x.new_tensor(2.0))
        each = normal.icdf(x.new_tensor(LEVELS))
        return each.expand(len(x), self.horizon, x.shape[2], len(LEVELS))


def demo() -> Subject:
    """White noise N(5, 4) under its own quantiles: 80 % lie between, half the squared error is saved."""
    rows = 5 + 2 * torch.randn(6003, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    windows = rows.unfold(0, 4, 1).transpose(1, 2)
    batch = Batch((windows[:, :2],), windows[:, 2:])
    return Subject(model=_Bell(2), test=[batch], task=QUANTILES, objective=risk(QUANTILES))
