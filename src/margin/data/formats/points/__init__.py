"""Sets of vectors and clouds of points."""

from typing import Literal

from margin.core.catalog import Format

FORMATS = (
    Format(
        name="points",
        reader="margin.data.formats.points.clouds:read_clouds",
        encoder="margin.data.formats.points.clouds:encode_clouds",
        prefix=True,
        endings=(".ply", ".xyz"),
        holds=("*.ply", "*/*.ply", "*.xyz", "*/*.xyz"),
        gives={"element_size": "sets of vectors"},
        real=True,
        numbers=True,
        record={
            "scale": Literal["none", "sphere"],
            "points": int | None,
            "split": {"seed": int},
        },
    ),
)
