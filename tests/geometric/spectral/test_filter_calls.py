"""The filters of a model are found with what they were given; their gain is that of their response."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.geometric.spectral.chebnet import ChebConv
from margin.geometric.spectral.filter_calls import filters, gain, has_filters, spectral_output
from margin.geometric.spectral.filter_claims import demo


def test_each_filter_is_found_in_its_order_with_its_laplacian() -> None:
    found = filters(demo())
    assert [one.name for one in found] == ["layers.0", "layers.1"]
    for one in found:
        assert isinstance(one.layer, ChebConv)
        assert one.largest == 2.0
        assert one.L.num_nodes == 16
        torch.testing.assert_close(spectral_output(one), one.call.gave, rtol=0, atol=1e-10)
    torch.testing.assert_close(found[1].call.x, found[0].call.gave.relu(), rtol=0, atol=0)


def test_the_gain_is_the_largest_singular_value_of_the_response() -> None:
    one = filters(demo())[0]
    values = torch.tensor([0.0, 0.7, 2.0], dtype=torch.float64)
    expected = [torch.linalg.svdvals(R)[0] for R in one.layer.response(values, 2.0)]
    torch.testing.assert_close(gain(one, values), torch.stack(expected).detach())


@pytest.mark.parametrize("model", [nn.Linear(3, 2), nn.Identity()])
def test_another_model_has_none(model: nn.Module) -> None:
    assert has_filters(demo())
    assert not has_filters(replace(demo(), model=model))
