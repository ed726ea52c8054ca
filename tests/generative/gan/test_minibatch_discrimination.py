"""Closeness within a batch against a loop over pairs; in evaluation an example is alone."""

import math

import pytest
import torch
from torch import Generator

from margin.generative.gan.players import MinibatchDiscrimination, closeness


def test_it_is_the_sum_over_pairs() -> None:
    m = torch.randn(4, 2, 3, generator=Generator().manual_seed(0), dtype=torch.float64)
    got = closeness(m)
    for i in range(4):
        for b in range(2):
            pairs = [math.exp(-sum(abs(float(m[i, b, c] - m[j, b, c])) for c in range(3))) for j in range(4)]
            assert float(got[i, b]) == pytest.approx(sum(pairs), abs=1e-12)


def test_identical_examples_are_closest_and_far_ones_alone() -> None:
    same = torch.randn(1, 2, 3, generator=Generator().manual_seed(0)).expand(7, 2, 3)
    assert torch.equal(closeness(same), torch.full((7, 2), 7.0))
    apart = 1000 * torch.arange(7.0)[:, None, None].expand(7, 2, 3)
    assert torch.equal(closeness(apart), torch.ones(7, 2))


@pytest.mark.parametrize("seed", range(5))
def test_it_lies_between_one_and_the_size_of_the_batch(seed: int) -> None:
    o = closeness(torch.randn(9, 2, 3, generator=Generator().manual_seed(seed)))
    assert bool(((o > 1) & (o < 9)).all())


def test_the_layer_appends_it_whatever_the_size_of_the_batch() -> None:
    torch.manual_seed(0)
    layer = MinibatchDiscrimination(3, 2).double()
    f = torch.randn(6, 3, dtype=torch.float64)
    out = layer(f)
    assert torch.equal(out[:, :3], f)
    torch.testing.assert_close(out[:, 3:], closeness(layer.T(f).reshape(6, 2, 5)) / 6)
    torch.testing.assert_close(layer(f.repeat(2, 1))[:6], out)  # the same law in a batch twice as large
    same = layer(f[:1].expand(4, 3))
    assert torch.equal(same[:, 3:], torch.ones(4, 2, dtype=torch.float64))


def test_in_evaluation_an_example_is_alone_and_what_training_saw_is_usual() -> None:
    torch.manual_seed(0)
    layer = MinibatchDiscrimination(3, 2)
    f = torch.randn(16, 3)
    for _ in range(600):
        layer(f)
    expected = closeness(layer.T(f).reshape(16, 2, 5)).mean(0) / 16
    layer.eval()
    before = layer.usual.clone()
    torch.testing.assert_close(layer(f)[0, 3:], expected.detach(), atol=3e-3, rtol=0)
    assert torch.equal(layer(f)[:5], layer(f[:5]))
    assert torch.equal(layer.usual, before)


def test_a_size_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 1: got 3, 0, 5"):
        MinibatchDiscrimination(3, 0)
