"""Series by time."""

from typing import Literal

from margin.core.catalog import Format

FORMATS = (
    Format(
        name="series",
        reader="margin.data.formats.series.sources:read_series",
        encoder="margin.data.formats.series.sources:encode_series",
        prefix=True,
        gives={"horizon": "a series to forecast"},
        real=True,
        record={
            "shape": ["positive"],
            "dtype": "dtype",
            "columns": "words",
            "targets": "words",
            "horizon": "positive",
            "stride": "positive",
            "time_column": str | None,
            "missing": Literal["error", "last"],
            "written?": dict[str, dict[str, str | bool]],
        },
    ),
)
