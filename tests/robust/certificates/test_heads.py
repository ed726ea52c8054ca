"""Margins under a last softmax, its logarithm and sigmoids: below what the model's own arithmetic yields.

The scores are the inputs themselves, so that no rounding of a linear layer hides that of the head; they lie
where two classes tie but for a few roundings, or where a logarithm is large.
"""

import pytest
import torch
from torch import Generator, nn

from margin.robust.certificates.interval_arithmetic import ULPS, Box
from margin.robust.certificates.intervals import margin_bounds


def neighbors(count, classes, *, spread, seed=0):
    """Scores in float32 of which the first exceeds the second by 1 to 40 roundings; the rest lie below."""
    g = Generator().manual_seed(seed)
    z = spread * torch.randn(count, classes, generator=g)
    z[:, 2:] = z[:, :1] - 0.5 - z[:, 2:].abs()
    steps = torch.randint(1, 41, (count,), generator=g)
    z[:, 1] = z[:, 0] - steps * torch.finfo(torch.float32).eps * z[:, 0].abs()
    return z[z[:, 0] > z[:, 1]]


@pytest.mark.parametrize("head", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid()])
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("spread", [0.1, 1.0, 12.0])
def test_margins_of_nearly_tied_scores_are_below_the_models_own(head, classes, spread):
    """Mutant: no room for the head's rounding; then a margin is promised that the model rounds to 0."""
    z = neighbors(3000, classes, spread=spread)
    labels = torch.zeros(len(z), dtype=torch.long)
    below = margin_bounds(head, z, z, labels)
    out = head(z).double()
    assert (below <= out[:, :1] - out).all()
    tied = out[:, 0] == out[:, 1]
    if classes == 10 or spread == 12.0:  # the case is met: argmax takes the first, another label would lose
        assert tied.any() or isinstance(head, nn.LogSoftmax)
    assert (below[tied, 1] <= 0).all()


@pytest.mark.parametrize("size", [1e2, 1e3, 1e4])
def test_a_large_logarithm_is_rounded_by_its_own_size(size):
    """Mutant: the room does not grow with the margin; log p of -1,000 is off by up to 3e-5."""
    g = Generator().manual_seed(1)
    z = torch.rand(2000, 3, generator=g)
    z[:, 1:] -= size * (1 + torch.rand(2000, 2, generator=g))
    below = margin_bounds(nn.LogSoftmax(1), z, z, torch.zeros(2000, dtype=torch.long))
    out = nn.LogSoftmax(1)(z).double()
    assert (below <= out[:, :1] - out).all()
    exact = z[:, :1].double() - z.double()
    room = 8 * ULPS * torch.finfo(torch.float32).eps * (3 + exact)
    assert (below[:, 1:] > (exact - room)[:, 1:]).all()  # and it is no more than that


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-6.0, 1.0), (-3.0, 4.0)])
def test_the_least_margin_of_two_sigmoids_is_at_an_end(low, high):
    """Of scores x and x - 1, sigmoid(x) - sigmoid(x - 1) has one hill in x. Mutants: one end alone."""
    model = nn.Sequential(nn.Linear(1, 2), nn.Sigmoid()).double()
    with torch.no_grad():
        model[0].weight.fill_(1)
        model[0].bias.copy_(torch.tensor([0.0, -1.0]))
    below = margin_bounds(model, torch.tensor([[low]]), torch.tensor([[high]]), torch.tensor([0]))[0, 1]
    x = torch.linspace(low, high, 1001, dtype=torch.float64)
    least = (x.sigmoid() - (x - 1).sigmoid()).min()
    assert float(below) == pytest.approx(float(least), rel=1e-6)
    assert below <= least


@pytest.mark.parametrize("head", [nn.Softmax(1), nn.LogSoftmax(1)])
def test_a_class_that_beats_one_rival_alone_is_not_the_first(head):
    """Of scores (1, 0, 9) the first has a small probability. Mutant: 1/K once one rival is beaten."""
    z = torch.tensor([[1.0, 0.0, 9.0], [5.0, 4.0, 4.5]])
    below = margin_bounds(head, z, z, torch.tensor([0, 0]))
    out = head(z).double()
    assert (below <= out[:, :1] - out).all()
    assert below[1, 1] > 0 and below[1, 2] > 0 and below[0, 2] < 0


@pytest.mark.parametrize("terms", [1, 100, 10_000])
def test_the_rounding_of_a_sum_grows_with_its_terms(terms):
    """Higham 2002, Equation 3.4: n u / (1 - n u). Mutant: that of one operation, whatever n is."""
    zero, u = torch.zeros(1, dtype=torch.float64), 2.0**-24
    gamma = Box(zero, zero, torch.float32).gamma(terms)
    assert terms * u / (1 - terms * u) <= gamma <= 1.01 * (terms + ULPS) * u
    # a sum of so many equal numbers in float32, one by one, from which the exact one is further off than 8 u
    total = torch.zeros((), dtype=torch.float32)
    for _ in range(terms):
        total = total + torch.tensor(0.1)
    exact = terms * float(torch.tensor(0.1))
    assert abs(float(total) - exact) <= gamma * exact
    assert terms < 10_000 or abs(float(total) - exact) > ULPS * u * exact
