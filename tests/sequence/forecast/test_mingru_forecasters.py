"""The builder reads its options, and the forecast needs no other row than those of its context."""

import torch

from margin.sequence.forecast.mingru_forecasters import mingru_forecaster

SCALE = [(0, 0.0, 1.0), (2, 0.0, 1.0)]


def test_options_reach_the_recurrence_and_the_head():
    model = mingru_forecaster(3, 4, 2, SCALE, hidden=6, layers=2, normalize="mean_std")
    assert model(torch.zeros(5, 6, 3)).shape == (5, 4, 2)
    assert (model.recurrence.output_size, model.normalize) == (6, "mean_std")
    own = mingru_forecaster(3, 4, 2, SCALE, hidden=6, layers=2, reads="own")
    assert own(torch.zeros(5, 6, 3)).shape == (5, 4, 2)
    assert own.recurrence.input_size == 1


def test_every_row_of_the_context_tells():
    torch.manual_seed(0)
    model = mingru_forecaster(3, 4, 2, SCALE, hidden=6, layers=2, normalize="none").double()
    x = torch.randn(1, 12, 3, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).square().sum(), x)
    assert bool((grad[0].abs().amax(1) > 0).all())
