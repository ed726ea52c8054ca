"""Tables of other libraries are refused with the conversion that makes a DataFrame of them."""

import numpy as np
import polars as pl
import pytest
from torch import nn

import margin
from margin.data.opening import open_data

IDENTITY = nn.Identity()


class Dataset:
    """As Hugging Face's and Arrow's: a shape, rows to take, and a way to pandas."""

    shape = (2, 2)

    def take(self, count: int) -> "Dataset":
        return self

    def to_pandas(self) -> None: ...


@pytest.mark.parametrize(
    ("table", "way"),
    [
        (Dataset(), r"data\.to_pandas\(\)"),
        (pl.DataFrame({"x": [1.0]}).lazy(), r"data\.collect\(\)"),
    ],
)
def test_the_conversion_is_named(table: object, way: str) -> None:
    for ask in (lambda: open_data(table, {}), lambda: margin.audit(IDENTITY, table)):
        with pytest.raises(ValueError, match=rf"got {type(table).__name__}.*; give {way}, a DataFrame"):
            ask()


def test_what_has_no_way_gets_no_advice() -> None:
    with pytest.raises(ValueError, match=r"or a Data: got dict$"):
        open_data({"x": np.zeros(3)}, {})
