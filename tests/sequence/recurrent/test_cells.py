"""Recurrences by name."""

import pytest

from margin.sequence.recurrent.cells import one


def test_each_name_is_its_layer() -> None:
    for cell, layer in (("elman", "RNN"), ("lstm", "LSTM"), ("gru", "GRU")):
        model = one(cell, 3, 4)
        assert type(model.layer).__name__ == layer
        assert (model.input_size, model.output_size) == (3, 4)
    with pytest.raises(ValueError, match=r"at least 1|greater than zero"):
        one("gru", 0, 4)
