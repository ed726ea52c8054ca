"""The builder reads its options; a forecast reads the rows that its convolutions reach, and no more."""

import torch

from margin.sequence.forecast.convolutional_forecasters import tcn_forecaster

SCALE = [(0, 0.0, 1.0), (2, 0.0, 1.0)]


def test_options_reach_the_recurrence_and_the_head():
    model = tcn_forecaster(3, 4, 2, SCALE, hidden=6, layers=2, normalize="mean_std")
    assert model(torch.zeros(5, 6, 3)).shape == (5, 4, 2)
    assert (model.recurrence.output_size, model.normalize) == (6, "mean_std")
    own = tcn_forecaster(3, 4, 2, SCALE, layers=2, reads="own")
    assert own(torch.zeros(5, 6, 3)).shape == (5, 4, 2)
    assert own.recurrence.input_size == 1


def test_a_tcn_reads_its_receptive_field_and_no_row_more():
    torch.manual_seed(0)
    model = tcn_forecaster(3, 4, 2, SCALE, layers=2, kernel=2, normalize="none").double()
    x = torch.randn(1, 12, 3, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).sum(), x)
    reach = 1 + 2 * (2 - 1) * (2**2 - 1)
    rows = grad[0].abs().amax(1)
    assert bool((rows[: 12 - reach] == 0).all())
    assert bool((rows[12 - reach :] > 0).all())
