"""Descent along signs: by hand, invariant to the loss's scale, decay apart from the sign."""

import pytest
import torch
from torch import nn

from margin.optim.sign import SignDescent

GRADS = torch.tensor(
    [[3.0, -0.01, 0.0], [-1.0, -0.01, 0.0], [0.5, 5.0, -2.0], [0.1, -1.0, 1.0]], dtype=torch.float64
)


def run(grads, **options):
    x = nn.Parameter(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    optimizer = SignDescent([x], **options)
    for g in grads:
        x.grad = g.clone()
        optimizer.step()
    return x.detach()


def test_every_coordinate_moves_by_the_rate_or_rests():
    expected = torch.tensor(
        [1.0 - 0.1 * (1 - 1 + 1 + 1), 2.0 - 0.1 * (-1 - 1 + 1 - 1), 3.0], dtype=torch.float64
    )
    assert (run(GRADS, lr=0.1) - expected).abs().max() <= 1e-15


def test_with_momentum_it_follows_the_sign_of_the_average():
    beta, lr, decay = 0.6, 0.1, 0.05
    x, m = [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]
    for g in GRADS.tolist():
        for i in range(3):
            m[i] = beta * m[i] + (1 - beta) * g[i]
            x[i] -= lr * ((m[i] > 0) - (m[i] < 0) + decay * x[i])
    ours = run(GRADS, lr=lr, momentum=beta, weight_decay=decay)
    assert (ours - torch.tensor(x, dtype=torch.float64)).abs().max() <= 1e-14


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_scale_of_the_loss_does_not_matter(momentum):
    assert torch.equal(run(GRADS, lr=0.1, momentum=momentum), run(1024 * GRADS, lr=0.1, momentum=momentum))


def test_gradients_stay_as_they_are():
    grads = GRADS[:1].clone()
    x = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    x.grad = grads[0]
    SignDescent([x], lr=0.1, momentum=0.5, weight_decay=0.1).step()
    assert torch.equal(grads, GRADS[:1])


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"momentum must be in \[0, 1\): got 1"):
        run(GRADS, momentum=1.0)
