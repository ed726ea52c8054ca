"""Residual blocks around a linear recurrence: all steps at once and one by one, padding, refusals."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from margin.sequence.linear.linear_system import LinearBlock, LinearStack, LinearSystem
from margin.sequence.linear.lru import LRU


def stacks() -> list[LinearStack]:
    torch.manual_seed(0)
    cores = (partial(LRU, states=5), partial(LinearSystem, states=5))
    return [LinearStack(3, core, width=6, layers=3).double() for core in cores]


def test_a_block_is_its_formula() -> None:
    torch.manual_seed(0)
    core = LRU(4, states=3)
    block = LinearBlock(core, 4).double()
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    y, _ = block(x, None, core.initial(x))
    g = F.gelu(core(F.layer_norm(x, (4,)))[0])
    value, gate = (g @ block.gate.weight.T + block.gate.bias).split(4, -1)
    torch.testing.assert_close(y, x + value * torch.sigmoid(gate), rtol=0, atol=1e-12)


@pytest.mark.parametrize("stack", stacks(), ids=["lru", "dense"])
def test_all_steps_are_the_steps_one_by_one(stack: LinearStack) -> None:
    x = torch.randn(2, 17, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y, last = stack(x)
    state, outputs = stack.initial(x), []
    for x_t in x.unbind(1):
        y_t, state = stack.step(x_t, state)
        outputs.append(y_t)
    torch.testing.assert_close(y, torch.stack(outputs, 1), rtol=0, atol=1e-10)
    assert len(last) == len(state) == 3
    for one, other in zip(last, state, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("stack", stacks(), ids=["lru", "dense"])
@pytest.mark.parametrize("filler", [0.0, 5.0, math.nan])
def test_padding_changes_nothing(stack: LinearStack, filler: float) -> None:
    x = torch.randn(3, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([7, 4, 0])
    x[1, 4:], x[2] = filler, filler
    y, last = stack(x, lengths)
    alone, state = stack(x[1:2, :4])
    torch.testing.assert_close(y[1, :4], alone[0], rtol=0, atol=1e-12)
    for one, other in zip(last, state, strict=True):
        torch.testing.assert_close(one[1], other[0], rtol=0, atol=1e-12)
        assert not one[2].any()
    assert not y[1, 4:].any()
    assert not y[2].any()
    gradients = torch.autograd.grad(y.sum(), list(stack.parameters()))
    assert all(bool(g.isfinite().all()) for g in gradients)


@pytest.mark.parametrize("stack", stacks(), ids=["lru", "dense"])
def test_sequences_without_steps_have_no_outputs_and_the_state_0(stack: LinearStack) -> None:
    y, last = stack(torch.zeros(2, 0, 3, dtype=torch.float64))
    assert y.shape == (2, 0, 6)
    assert not any(bool(part.any()) for part in last)


def test_it_refuses() -> None:
    with pytest.raises(ValueError, match="layers must be at least 1: got 0"):
        LinearStack(3, LRU, layers=0)
    with pytest.raises(ValueError, match="input_size and output_size of at least 1: got 3 and 0"):
        LinearStack(3, LRU, width=0)
    with pytest.raises((ValueError, TypeError), match="instance"):  # of the type hook, where it is on
        LinearStack(3, LRU, norm="instance")


def test_without_a_norm_a_block_reads_its_input_as_it_is() -> None:
    torch.manual_seed(0)
    core = LRU(4, states=3)
    block = LinearBlock(core, 4, norm="none").double()
    x = 10 * torch.randn(2, 5, 4, dtype=torch.float64)
    y, _ = block(x, None, core.initial(x))
    value, gate = block.gate(F.gelu(core(x)[0])).split(4, -1)
    torch.testing.assert_close(y, x + value * torch.sigmoid(gate), rtol=0, atol=1e-12)
    assert not list(block.norm.parameters())
