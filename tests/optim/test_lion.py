"""Lion against its algorithm written out in plain numbers."""

import pytest
import torch
from torch import nn

from margin.optim.sign import Lion


def grads(steps=40):
    return torch.randn(steps, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def run(grads, **options):
    x = nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimizer = Lion([x], **options)
    for g in grads:
        x.grad = g.clone()
        optimizer.step()
        assert torch.equal(x.grad, g)
    return x.detach()


def by_hand(grads, lr, b1, b2, decay):
    x, m = [1.0, -2.0, 3.0], [0.0] * 3
    for g in grads.tolist():
        for i in range(3):
            c = b1 * m[i] + (1 - b1) * g[i]
            x[i] = x[i] - lr * ((c > 0) - (c < 0) + decay * x[i])
            m[i] = b2 * m[i] + (1 - b2) * g[i]
    return torch.tensor(x, dtype=torch.float64)


@pytest.mark.parametrize(("b1", "b2"), [(0.9, 0.99), (0.5, 0.8)])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_it_is_the_published_algorithm(b1, b2, decay):
    ours = run(grads(), lr=0.01, betas=(b1, b2), weight_decay=decay)
    assert (ours - by_hand(grads(), 0.01, b1, b2, decay)).abs().max() <= 1e-13
    if b1 != b2:  # the two averages are not one
        assert (ours - by_hand(grads(), 0.01, b2, b1, decay)).abs().max() > 1e-3


def test_with_equal_betas_and_no_memory_it_is_sign_descent():
    from margin.optim.sign import SignDescent

    x = nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    signs = SignDescent([x], lr=0.01)
    for g in grads():
        x.grad = g.clone()
        signs.step()
    assert torch.equal(run(grads(), lr=0.01, betas=[0.0, 0.0]), x.detach())


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"beta 2 must be in \[0, 1\): got 1\.0"):
        run(grads(), betas=(0.9, 1.0))
    with pytest.raises(ValueError, match=r"betas must be two numbers: got \(0\.9,\)"):
        run(grads(), betas=(0.9,))
    with pytest.raises(ValueError, match="lr must be positive"):
        run(grads(), lr=-1.0)
