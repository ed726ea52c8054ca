"""The objective of a density given the class reads the labels of the batch."""

import pytest
import torch
from torch import Generator

from margin.core.types import Batch
from margin.generative.flow.objectives import negative_log_density_given
from margin.generative.flow.realnvp import conditional_realnvp


def test_it_is_minus_the_log_density_given_each_label() -> None:
    torch.manual_seed(0)
    flow = conditional_realnvp(2, 3, layers=2, hidden=(8,))
    x, labels = torch.randn(5, 2), torch.tensor([2, 0, 1, 1, 2])
    loss = negative_log_density_given(flow, Batch((x,), labels), Generator())
    torch.testing.assert_close(loss, -flow.log_prob_given(x, labels))
    with pytest.raises(ValueError, match=r"needs labeled examples"):
        negative_log_density_given(flow, Batch((x,)), Generator())
