"""The loss of a forecast by hand: squares and pinballs in each target's own deviations."""

import pytest
import torch
from torch import nn

from margin.core.tasks import pinball
from margin.core.types import Batch
from margin.nn.preprocessed import Preprocessed
from margin.sequence.forecast.forecasting import TargetScale, scaled_error

SCALE = [(1, 50.0, 4.0), (0, -2.0, 0.5)]


def test_the_loss_of_a_target_is_in_its_own_deviations():
    class Fixed(nn.Module):
        def __init__(self, values):
            super().__init__()
            self.scale = TargetScale(SCALE, 2).double()
            self.values = values

        def forward(self, x):
            return self.values

    targets = torch.zeros(1, 2, 2, dtype=torch.float64)
    outputs = torch.tensor([[[4.0, 0.5], [8.0, -0.5]]], dtype=torch.float64)
    batch = Batch((torch.zeros(1, 6, 3),), targets)
    loss = scaled_error(Preprocessed(nn.Identity(), Fixed(outputs)), batch, torch.Generator())
    assert loss.tolist() == [[[1.0, 1.0], [4.0, 1.0]]]  # (4 / 4)^2, (.5 / .5)^2, ...
    quantiles = outputs[..., None] + torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    loss = scaled_error(Fixed(quantiles), batch, torch.Generator())
    by_hand = pinball(quantiles, targets) / torch.tensor([4.0, 0.5], dtype=torch.float64)
    assert (loss - by_hand).abs().max() < 1e-12
    with pytest.raises(ValueError, match="no targets"):
        scaled_error(Fixed(outputs), Batch((torch.zeros(1, 6, 3),)), torch.Generator())
