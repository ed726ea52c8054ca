"""A layout that is none is refused by its own check, where no type is enforced."""

import pytest
import torch

from margin.math.linear_algebra.layouts import chain, converted


def test_a_layout_that_is_none_is_refused():
    message = "layout must be numerator or denominator: got 'rows'"
    with pytest.raises(ValueError, match=message):
        converted(torch.zeros(2, 3), "rows", "numerator")
    with pytest.raises(ValueError, match=message):
        converted(torch.zeros(2, 3), "numerator", "rows")
    with pytest.raises(ValueError, match=message):
        chain([torch.zeros(2, 3)], "rows")
