"""Batch normalization over steps: by hand, without padding, causal in evaluation, its refusal."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.sequence.linear.linear_system import LinearStack
from margin.sequence.linear.lru import LRU
from margin.sequence.recurrent.layers import StepBatchNorm

LENGTHS = torch.tensor([6, 2, 0, 3])


def sequences() -> Tensor:
    return 3 + 2 * torch.randn(4, 6, 5, dtype=torch.float64, generator=Generator().manual_seed(0))


@pytest.fixture
def norm() -> StepBatchNorm:
    norm = StepBatchNorm(5).double()
    with torch.no_grad():
        norm.over_rows.weight.copy_(torch.linspace(1, 2, 5))
        norm.over_rows.bias.copy_(torch.linspace(-1, 1, 5))
    return norm


@pytest.mark.parametrize("filler", [0.0, 100.0, math.nan])
def test_in_training_it_is_its_formula_over_the_steps_without_padding(
    norm: StepBatchNorm, filler: float
) -> None:
    x = sequences()
    steps = torch.cat([row[:length] for row, length in zip(x, LENGTHS.tolist(), strict=True)])
    mean, variance = steps.mean(0), steps.var(0, correction=0)
    for row, length in zip(x, LENGTHS.tolist(), strict=True):
        row[length:] = filler
    y = norm(x, LENGTHS)
    expected = (x - mean) / (variance + 1e-5).sqrt() * norm.over_rows.weight + norm.over_rows.bias
    for i, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(y[i, :length], expected[i, :length], rtol=0, atol=1e-12)
    torch.testing.assert_close(norm.over_rows.running_mean, 0.1 * mean, rtol=0, atol=1e-12)
    gradients = torch.autograd.grad(y.square().sum(), list(norm.parameters()))
    assert all(bool(g.isfinite().all()) for g in gradients)


def test_whole_sequences_need_no_lengths(norm: StepBatchNorm) -> None:
    x = sequences()
    y = norm(x)
    torch.testing.assert_close(y, norm(x, torch.full((4,), 6)), rtol=0, atol=1e-12)
    plain = (y - norm.over_rows.bias) / norm.over_rows.weight
    torch.testing.assert_close(plain.mean((0, 1)), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-12)


def test_in_evaluation_a_step_reads_itself_and_what_training_left(norm: StepBatchNorm) -> None:
    norm(sequences())
    norm.eval()
    x = sequences() - 1
    running = (x - norm.over_rows.running_mean) / (norm.over_rows.running_var + 1e-5).sqrt()
    expected = running * norm.over_rows.weight + norm.over_rows.bias
    torch.testing.assert_close(norm(x, LENGTHS), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(norm(x[:, 3]), expected[:, 3], rtol=0, atol=1e-12)


def test_a_stack_with_it_streams_and_is_causal_once_it_is_trained() -> None:
    torch.manual_seed(0)
    stack = LinearStack(3, lambda width: LRU(width, states=5), width=6, layers=2, norm="batch").double()
    x = torch.randn(2, 9, 3, dtype=torch.float64, generator=Generator().manual_seed(1), requires_grad=True)
    (leak,) = torch.autograd.grad(stack(x)[0][:, 0].square().sum(), x)
    assert bool(leak[:, 1:].any())  # while training a step reads the later ones
    stack.eval()
    y, _ = stack(x)
    state, outputs = stack.initial(x), []
    for x_t in x.unbind(1):
        y_t, state = stack.step(x_t, state)
        outputs.append(y_t)
    torch.testing.assert_close(y, torch.stack(outputs, 1), rtol=0, atol=1e-10)
    (gradient,) = torch.autograd.grad(y[:, 4].square().sum(), x)
    assert not gradient[:, 5:].any()
    assert bool(gradient[:, :5].any(-1).all())


def test_padding_changes_nothing_of_a_training_step() -> None:
    torch.manual_seed(0)
    stack = LinearStack(3, lambda width: LRU(width, states=5), width=6, layers=2, norm="batch").double()
    parameters = list(stack.parameters())
    x = torch.randn(4, 6, 3, dtype=torch.float64, generator=Generator().manual_seed(1))
    longer = torch.cat((x, torch.full((4, 5, 3), 7.0, dtype=torch.float64)), 1)
    y, wide = stack(x, LENGTHS)[0], stack(longer, LENGTHS)[0]
    torch.testing.assert_close(wide[:, :6], y, rtol=0, atol=1e-12)
    assert not wide[:, 6:].any()
    ours, theirs = (torch.autograd.grad(out.square().sum(), parameters) for out in (y, wide))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_one_step_has_no_deviation_and_none_is_nothing_to_normalize(norm: StepBatchNorm) -> None:
    x = sequences()
    with pytest.raises(
        ValueError, match=r"needs two steps in .*: got 1; set a larger --batch-size, or --model.norm layer$"
    ):
        norm(x, torch.tensor([0, 1, 0, 0]))
    norm(x, torch.zeros(4, dtype=torch.long))
    assert not norm.over_rows.running_mean.any()
    norm.eval()
    assert norm(x[:1, 0]).shape == (1, 5)
