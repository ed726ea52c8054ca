"""Dropout: the share that stays, the scale, what evaluation does, and that the seed decides."""

import pytest
import torch

from margin.geometric.graphs.node_net import Dropout, dropped


def test_the_share_that_stays_and_the_mean() -> None:
    """Seed fixed. 200,000 draws of a share .4: standard error .0011; five of them are .0055 (6e-7)."""
    torch.manual_seed(0)
    x = torch.full((200_000,), 3.0)
    found = dropped(x, 0.6)
    stays = found != 0
    torch.testing.assert_close(found[stays].unique(), torch.tensor([3.0 / 0.4]))
    assert float(stays.double().mean()) == pytest.approx(0.4, abs=0.0055)


def test_each_number_is_dropped_by_itself() -> None:
    """Seed fixed. Of 100,000 pairs of neighbors both stay with probability 1/4: standard error .0014."""
    torch.manual_seed(1)
    stays = dropped(torch.ones(100_000, 2), 0.5) != 0
    assert float(stays.all(1).double().mean()) == pytest.approx(0.25, abs=0.0055)


def test_the_gradient_is_the_mask() -> None:
    x = torch.ones(1000, requires_grad=True)
    torch.manual_seed(0)
    found = dropped(x, 0.25)
    found.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, found.detach())


def test_the_seed_decides_and_evaluation_is_the_identity() -> None:
    layer, x = Dropout(0.5), torch.randn(50)
    torch.manual_seed(3)
    one = layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), one)
    assert layer.eval()(x) is x
    assert dropped(x, 0.0) is x


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_it_refuses(p: float) -> None:
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\): got"):
        Dropout(p)
