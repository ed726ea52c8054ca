"""Clipping: torch's, the direction kept, and a cliff that is jumped off without it."""

import math

import pytest
import torch
from torch import nn

from margin.core.catalog import parts, resolve
from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, NonFiniteError, State, descent, fit

HERE = Batch((torch.zeros(1, dtype=torch.float64),))


@pytest.mark.parametrize("bound", [0.01, 0.9, 1.1, math.inf])
def test_gradients_are_those_that_torch_clips(bound):
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 2), (5,))]
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
    model = nn.ParameterList([nn.Parameter(torch.zeros_like(g)) for g in grads])
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=1.0)})
    metrics = GradientUpdate(clip=bound * norm).apply(state, [g.clone() for g in grads], 0.0)
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-12)
    theirs = [nn.Parameter(torch.zeros_like(g)) for g in grads]
    for p, g in zip(theirs, grads, strict=True):
        p.grad = g.clone()
    resolve(parts()["engine/clipping"].target)(theirs, bound * norm)
    for ours, p, g in zip(model, theirs, grads, strict=True):
        assert (ours.detach() + p.grad).abs().max() <= 1e-14
        share = min(1.0, bound)
        assert (ours.detach() + share * g).abs().max() <= 1e-5  # the direction is kept
    assert math.sqrt(sum(float(p.detach().square().sum()) for p in model)) <= min(bound, 1) * norm * (
        1 + 1e-12
    )


def cliff(x):
    """A slope of 1 down to a wall at 0, steep over a width of 0.01; behind it a bowl with minimum at -1."""
    return torch.where(x > 0, x + 5 * torch.tanh(x / 0.01), (x + 1) ** 2 - 1).sum()


def descend_from(start, clip, steps=400):
    model = nn.Module()
    model.x = nn.Parameter(torch.tensor([start], dtype=torch.float64))
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.02)})
    path = []
    step = descent(lambda m, b, g: cliff(m.x)[None], GradientUpdate(clip=clip))
    fit(state, lambda k: HERE, step, max_steps=steps, hooks=[lambda s, m: path.append(s.model.x.item())])
    return path


def test_over_a_cliff_clipped_descent_reaches_the_minimum_and_plain_descent_is_thrown_away():
    clipped, plain = (descend_from(0.1, clip) for clip in (1.0, math.inf))
    assert abs(clipped[-1] + 1) <= 1e-4
    assert max(abs(x) for x in clipped) <= 1 + 1e-9
    assert min(plain) < -5  # the wall's slope of 500 throws it nine units far


def test_a_gradient_that_is_no_number_is_refused_not_clipped():
    model = nn.ParameterList([nn.Parameter(torch.zeros(2))])
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=1.0)})
    with pytest.raises(NonFiniteError):
        GradientUpdate(clip=1.0).apply(state, [torch.tensor([math.nan, 1.0])], 0.0)
    assert torch.equal(model[0].detach(), torch.zeros(2))
