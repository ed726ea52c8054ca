"""The chain of affine maps: widths by hand, the formula, an affine map where nothing stands between."""

import pytest
import torch
from torch import nn

from margin.nn.dense import dense


def test_widths_and_formula() -> None:
    torch.manual_seed(0)
    chain = dense(3, (5, 4), 2, "tanh")
    maps = [layer for layer in chain if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in maps] == [(3, 5), (5, 4), (4, 2)]
    x = torch.randn(7, 3)
    first, second, last = maps
    torch.testing.assert_close(chain(x), last(second(first(x).tanh()).tanh()))


def test_nothing_between_is_an_affine_map() -> None:
    assert [type(layer) for layer in dense(3, (), 2)] == [nn.Linear]


def test_a_width_of_0_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hidden must be widths of at least 1: got \(4, 0\)"):
        dense(3, (4, 0), 2)
