"""The layers of the U-Net against loops and torch's own layers, and how they begin."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.nn.unet.network import (
    AttentionBlock,
    Double,
    Half,
    ResidualBlock,
    Stage,
    faint,
    upsampled_convolution,
)


def scattered(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module in float64 with every parameter drawn, also those that begin at 0 or 1."""
    g = torch.Generator().manual_seed(seed)
    module.double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) / math.sqrt(p[0].numel() + 1))
    return module


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 4)])
def test_a_convolution_of_repeated_pixels_is_that_of_repeated_pixels(size: tuple[int, int]) -> None:
    """Kills the kernel that is not turned, and the padding of 0 or 2."""
    x, weight, bias = drawn(2, 3, *size), drawn(4, 3, 3, 3), drawn(4)
    plain = F.conv2d(F.interpolate(x, scale_factor=2.0, mode="nearest"), weight, bias, padding=1)
    torch.testing.assert_close(upsampled_convolution(x, weight, bias), plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        upsampled_convolution(x, weight), plain - bias[:, None, None], rtol=0, atol=1e-12
    )


def test_its_gradients_are_those_of_the_plain_form() -> None:
    x, weight, bias = (z.requires_grad_() for z in (drawn(2, 2, 3, 3), drawn(2, 2, 3, 3), drawn(2)))
    plain = F.conv2d(F.interpolate(x, scale_factor=2.0, mode="nearest"), weight, bias, padding=1)
    ours = upsampled_convolution(x, weight, bias)
    for a, b in zip(
        torch.autograd.grad(ours.square().sum(), (x, weight, bias)),
        torch.autograd.grad(plain.square().sum(), (x, weight, bias)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def normalized(x: torch.Tensor, norm: nn.GroupNorm) -> torch.Tensor:
    """Group normalization by its definition: each example, each group of channels."""
    out = torch.empty_like(x)
    each = x.shape[1] // norm.num_groups
    for i in range(len(x)):
        for g in range(norm.num_groups):
            part = x[i, g * each : (g + 1) * each]
            var = (part - part.mean()).square().mean()
            out[i, g * each : (g + 1) * each] = (part - part.mean()) / (var + 1e-5).sqrt()
    return out * norm.weight[:, None, None] + norm.bias[:, None, None]


@pytest.mark.parametrize("fan_out", [4, 6])
def test_the_residual_block_by_its_formula(fan_out: int) -> None:
    """Kills: the time added after norm2 (which takes most of it away again), sigma left out."""
    block = scattered(ResidualBlock(4, fan_out, 5, groups=2))
    x, e = drawn(2, 4, 3, 5), drawn(2, 5, seed=2)
    h = F.conv2d(F.silu(normalized(x, block.norm1)), block.conv1.weight, block.conv1.bias, padding=1)
    h = h + (e @ block.time.weight.T + block.time.bias)[:, :, None, None]
    h = F.conv2d(F.silu(normalized(h, block.norm2)), block.conv2.weight, block.conv2.bias, padding=1)
    kept = x
    if fan_out != 4:
        weight = block.shortcut.weight[:, :, 0, 0]
        kept = torch.einsum("oc,bchw->bohw", weight, x) + block.shortcut.bias[:, None, None]
    torch.testing.assert_close(block(x, e), kept + h, rtol=1e-10, atol=1e-10)


def test_attention_by_loops() -> None:
    """Kills: a wrong scale, heads cut across channels in another order, softmax over the wrong axis."""
    block, heads, width = scattered(AttentionBlock(6, heads=2, groups=3)), 2, 3
    x = drawn(2, 6, 2, 3)
    z = normalized(x, block.norm).flatten(2)  # (batch, channels, pixels)
    three = block.queries_keys_values
    q, k, v = (
        torch.einsum("oc,bcp->bop", three.weight[6 * i : 6 * i + 6], z) + three.bias[6 * i : 6 * i + 6, None]
        for i in range(3)
    )
    mixed = torch.zeros_like(z)
    for head in range(heads):
        rows = slice(head * width, (head + 1) * width)
        for b in range(2):
            for p in range(6):
                score = torch.stack([q[b, rows, p] @ k[b, rows, s] for s in range(6)]) / math.sqrt(width)
                mixed[b, rows, p] = v[b, rows] @ score.softmax(0)
    out = torch.einsum("oc,bcp->bop", block.output.weight, mixed) + block.output.bias[:, None]
    torch.testing.assert_close(block(x), x + out.reshape(x.shape), rtol=1e-10, atol=1e-10)


def test_attention_knows_no_order_of_pixels() -> None:
    block, x = scattered(AttentionBlock(4, heads=2, groups=2)), drawn(1, 4, 2, 3)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    moved = x.flatten(2)[:, :, order].reshape(x.shape)
    expected = block(x).flatten(2)[:, :, order].reshape(x.shape)
    torch.testing.assert_close(block(moved), expected, rtol=1e-10, atol=1e-10)


def test_what_is_added_begins_near_zero() -> None:
    torch.manual_seed(0)
    x, e = torch.randn(2, 4, 3, 3), torch.randn(2, 5)
    close = {"rtol": 0.0, "atol": 1e-3}
    torch.testing.assert_close(ResidualBlock(4, 4, 5, groups=2)(x, e), x, **close)
    torch.testing.assert_close(AttentionBlock(4, heads=2, groups=2)(x), x, **close)
    torch.testing.assert_close(Stage(4, 4, 5, heads=2, groups=2)(x, e), x, **close)
    layer = faint(nn.Linear(3, 2))
    assert not bool(layer.bias.any())
    assert 0 < float(layer.weight.detach().abs().max()) < 1e-5


def test_a_stage_is_its_blocks_in_turn() -> None:
    x, e = drawn(2, 4, 3, 3), drawn(2, 5)
    whole = scattered(Stage(4, 6, 5, heads=3, groups=2))
    torch.testing.assert_close(whole(x, e), whole.attention(whole.residual(x, e)))
    assert isinstance(Stage(4, 6, 5, heads=0, groups=2).attention, nn.Identity)


def test_half_and_double_are_the_stated_convolutions() -> None:
    half, double = scattered(Half(3)), scattered(Double(3))
    x = drawn(2, 3, 4, 6)
    torch.testing.assert_close(
        half(x, drawn(2, 1)), F.conv2d(x, half.conv.weight, half.conv.bias, padding=1)[:, :, ::2, ::2]
    )
    repeated = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
    expected = F.conv2d(repeated, double.conv.weight, double.conv.bias, padding=1)
    torch.testing.assert_close(double(x), expected, rtol=0, atol=1e-12)
