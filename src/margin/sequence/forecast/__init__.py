"""Forecasts of series, and their back-test."""

from margin.core.catalog import Claim, Entry, Need, Part

FORECAST = Need(
    "forecasts of columns of its own input", "margin.sequence.forecast.claims:is_forecast", of="model"
)

QUANTILE_FORECAST = Need(
    "forecasts that state quantiles", "margin.sequence.forecast.claims:is_quantile_forecast", of="model"
)

FORECASTING = {"epochs": 30, "batch_size": 32, "lr": 0.001, "clip": 1.0, "patience": 5}
NOTHING_TO_TRAIN = {"epochs": 1, "batch_size": 512}
HYNDMAN_2021 = "Hyndman and Athanasopoulos 2021, Section 5.2"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("sequence/lstm:series",
        "margin.sequence.recurrent.lstm:forecaster", "margin.core.tasks:SERIES",
        "margin.data.sets.tiny.sequences:waves",
        "The next values of each column of a series, by an LSTM that has read the last ones",
        "Hochreiter and Schmidhuber 1997, Section 4; Wen et al. 2017, Section 3",
        objective=".forecasting:scaled_error", defaults=FORECASTING, formerly=("sequence/lstm_forecaster",)),
    Entry("sequence/gru:series",
        "margin.sequence.recurrent.gru:forecaster", "margin.core.tasks:SERIES",
        "margin.data.sets.tiny.sequences:waves",
        "The next values of each column of a series, by a GRU that has read the last ones",
        "Cho et al. 2014, Section 2.3; Wen et al. 2017, Section 3", objective=".forecasting:scaled_error",
        defaults=FORECASTING, formerly=("sequence/gru_forecaster",)),
    Entry("sequence/gru:quantiles",
        "margin.sequence.recurrent.gru:quantiles", "margin.core.tasks:QUANTILES",
        "margin.data.sets.tiny.sequences:waves",
        "The quantiles .1, .5 and .9 of the next values of a series, by a GRU; they never cross",
        "Wen, Torkkola, Narayanaswamy and Madeka 2017, Section 3", objective=".forecasting:scaled_error",
        defaults=FORECASTING, formerly=("sequence/gru_quantiles",)),
    Entry("sequence/mingru:series",
        "margin.sequence.linear.mingru:forecaster", "margin.core.tasks:SERIES",
        "margin.data.sets.tiny.sequences:waves",
        "The next values of each column of a series, by minimal gated recurrent units",
        "Feng et al. 2024, Section 3.1; Wen et al. 2017, Section 3", objective=".forecasting:scaled_error",
        defaults=FORECASTING, formerly=("sequence/mingru_forecaster",)),
    Entry("sequence/lru:series",
        "margin.sequence.linear.lru:forecaster", "margin.core.tasks:SERIES",
        "margin.data.sets.tiny.sequences:waves",
        "The next values of each column of a series, by linear recurrent units",
        "Orvieto et al. 2023, Section 3; Wen et al. 2017, Section 3", objective=".forecasting:scaled_error",
        defaults=FORECASTING, formerly=("sequence/lru_forecaster",)),
    Entry("sequence/tcn:series",
        "margin.sequence.convolution.tcn:forecaster", "margin.core.tasks:SERIES",
        "margin.data.sets.tiny.sequences:waves",
        "The next values of each column of a series, by dilated causal convolutions",
        "Bai, Kolter and Koltun 2018, Section 3", objective=".forecasting:scaled_error", defaults=FORECASTING,
        formerly=("sequence/tcn_forecaster",)),
    Entry("sequence/last_value",
        ".baselines:LastValue", "margin.core.tasks:SERIES", "margin.data.sets.tiny.sequences:waves",
        "The forecast of no change: the last value of each column, the baseline of every other",
        HYNDMAN_2021, objective=".forecasting:scaled_error", step=".baselines:nothing_to_learn",
        optimizers=(), parallel=False, weighted=False, defaults=NOTHING_TO_TRAIN),
    Entry("sequence/seasonal_naive",
        ".baselines:SeasonalNaive", "margin.core.tasks:SERIES", "margin.data.sets.tiny.sequences:waves",
        "The forecast of one season ago: the last period of each column, again and again", HYNDMAN_2021,
        objective=".forecasting:scaled_error", step=".baselines:nothing_to_learn", optimizers=(),
        parallel=False, weighted=False, defaults=NOTHING_TO_TRAIN),
    Entry("sequence/linear_forecaster",
        ".baselines:LinearForecaster", "margin.core.tasks:SERIES", "margin.data.sets.tiny.sequences:waves",
        "One linear map of the last values of each column to its next, by an exact solve",
        "Zeng, Chen, Zhang and Xu 2023, Section 4.1", objective=".forecasting:scaled_error",
        step=".baselines:exact_forecast", optimizers=(), parallel=False, whole=True, weighted=False,
        defaults={"epochs": 1, "batch_size": "all"}),
)

PARTS: tuple[Part, ...] = (
    Part("sequence/backtest", "measure", ".backtest:backtest",
        "Forecasts from one origin after another, judged by what followed, against naive ones",
        "Tashman 2000, Section 2; Conway 1963, Section 5 (intervals over blocks)"),
    Part("sequence/backtest_picture", "function", ".backtest:backtest_picture",
        "A forecast with its band and what followed, and the errors by steps ahead with intervals",
        "Hyndman and Athanasopoulos 2021, Section 5.10"),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("sequence/forecast.coverage", ".claims:coverage", ".claims:demo",
        "Does what followed lie between the quantiles .1 and .9 as often as they promise?",
        "Koenker and Bassett 1978, Theorem 3.4", needs=(QUANTILE_FORECAST,), figure=".figures:fan",
        question="probabilities"),
    Claim("sequence/forecast.errors", ".claims:errors", ".claims:demo",
        "Mean absolute error of each column by steps ahead, beside the naive forecasts",
        "Hyndman and Athanasopoulos 2021, Sections 5.2 and 5.8", needs=(FORECAST,), question="right"),
    Claim("sequence/forecast.skill", ".claims:forecast_skill", ".claims:demo",
        "Naive baselines: how much of the squared error of the last value, or a season ago, does it save?",
        "Murphy 1988, Equation 4", needs=(FORECAST,), figure=".figures:skill", question="right"),
)
# fmt: on
