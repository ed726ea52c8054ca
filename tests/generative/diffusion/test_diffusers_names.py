"""UNet2DModel of diffusers is our U-Net: by numbers that it gave, and beside it where it is installed."""

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor

from margin.nn.unet.diffusers_weights import FIXED, from_diffusers

CONFIG: dict[str, Any] = {
    "sample_size": 8,
    "in_channels": 2,
    "out_channels": 2,
    "block_out_channels": (4, 8, 8),
    "layers_per_block": 2,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    "norm_num_groups": 2,
    "attention_head_dim": 4,
    "num_class_embeds": 4,
}

GIVEN = """
-0.5467757407 -0.5295279387 -0.5072238134 -0.7159321404 -0.5302618220 -0.5363460905
 0.5407621234  0.2992019527  0.3128228848  0.5855488217  0.3747608589  0.4572222154
-0.5099820886 -0.5184992805 -0.5073995059 -0.6884784701 -0.5580616207 -0.5211292983
 0.5183537870  0.3044345718  0.2851368055  0.6182680745  0.3995210390  0.3967954271
"""
"""What diffusers 0.42.1 answers in float64 to the formula's weights and the question, at some pixels."""


def shapes() -> dict[str, tuple[int, ...]]:
    """The tensors of UNet2DModel(**CONFIG), read off its source."""
    found: dict[str, tuple[int, ...]] = {"class_embedding.weight": (4, 16)}

    def layer(name: str, *shape: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = shape, shape[:1]

    def residual(name: str, fan_in: int, fan_out: int) -> None:
        layer(f"{name}.norm1", fan_in)
        layer(f"{name}.conv1", fan_out, fan_in, 3, 3)
        layer(f"{name}.time_emb_proj", fan_out, 16)
        layer(f"{name}.norm2", fan_out)
        layer(f"{name}.conv2", fan_out, fan_out, 3, 3)
        if fan_in != fan_out:
            layer(f"{name}.conv_shortcut", fan_out, fan_in, 1, 1)

    def attention(name: str, width: int) -> None:
        layer(f"{name}.group_norm", width)
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            layer(f"{name}.{part}", width, width)

    layer("conv_in", 4, 2, 3, 3)
    layer("time_embedding.linear_1", 16, 4)
    layer("time_embedding.linear_2", 16, 16)
    layer("conv_norm_out", 4)
    layer("conv_out", 2, 4, 3, 3)
    residual("mid_block.resnets.0", 8, 8)
    residual("mid_block.resnets.1", 8, 8)
    attention("mid_block.attentions.0", 8)
    for level, fans in enumerate((((4, 4), (4, 4)), ((4, 8), (8, 8)), ((8, 8), (8, 8)))):
        for place, (fan_in, fan_out) in enumerate(fans):
            residual(f"down_blocks.{level}.resnets.{place}", fan_in, fan_out)
    for level, fans in enumerate((((16, 8),) * 3, ((16, 8), (16, 8), (12, 8)), ((12, 4), (8, 4), (8, 4)))):
        for place, (fan_in, fan_out) in enumerate(fans):
            residual(f"up_blocks.{level}.resnets.{place}", fan_in, fan_out)
    for place in range(3):
        attention(f"up_blocks.1.attentions.{place}", 8)
        if place < 2:
            attention(f"down_blocks.1.attentions.{place}", 8)
    for level, width in enumerate((4, 8)):
        layer(f"down_blocks.{level}.downsamplers.0.conv", width, width, 3, 3)
        layer(f"up_blocks.{level}.upsamplers.0.conv", 8, 8, 3, 3)
    return found


def formula() -> dict[str, Tensor]:
    """Tensors without chance: sines whose phase is the name's place, scaled by the number of inputs."""
    return {
        name: (
            torch.sin(torch.arange(torch.Size(shape).numel(), dtype=torch.float64) * 1.7 + place)
            / (torch.Size(shape[1:]).numel() + 1) ** 0.5
        ).reshape(shape)
        for place, (name, shape) in enumerate(sorted(shapes().items()))
    }


def question() -> tuple[Tensor, Tensor, Tensor]:
    x = torch.cos(torch.arange(256, dtype=torch.float64) * 0.3).reshape(2, 2, 8, 8)
    return x, torch.tensor([3.0, 700.0], dtype=torch.float64), torch.tensor([1, 3])


def test_the_numbers_of_diffusers() -> None:
    """To 1e-5: it takes the time's waves in float32 even here."""
    network = from_diffusers(formula(), CONFIG)
    expected = torch.tensor([float(number) for number in GIVEN.split()], dtype=torch.float64)
    with torch.no_grad():
        y = network(*question())[:, :, ::4, ::3].flatten()
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-5)


def test_every_tensor_is_taken_and_once() -> None:
    network, given = from_diffusers(formula(), CONFIG), formula()
    assert len(given) == 269
    assert sum(p.numel() for p in network.parameters()) == sum(p.numel() for p in given.values())
    assert network.num_classes == 3
    assert network.image_size == (8, 8)


@pytest.mark.parametrize(
    "name", ["conv_in.bias", "down_blocks.1.attentions.0.to_k.weight", "class_embedding.weight"]
)
def test_a_lacking_tensor_is_named(name: str) -> None:
    given = formula()
    del given[name]
    with pytest.raises(ValueError, match="must be those of the configuration"):
        from_diffusers(given, CONFIG)


def test_a_surplus_tensor_is_named() -> None:
    with pytest.raises(ValueError, match=r"got a surplus or a lack of conv_extra\.weight"):
        from_diffusers({**formula(), "conv_extra.weight": torch.zeros(1)}, CONFIG)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"freq_shift": 1}, "freq_shift must be 0: got 1"),
        ({"flip_sin_to_cos": False}, "flip_sin_to_cos must be True: got False"),
        ({"resnet_time_scale_shift": "scale_shift"}, "resnet_time_scale_shift must be 'default'"),
        ({"add_attention": False}, "add_attention must be True: got False"),
        ({"out_channels": 4}, "as many channels out as in: got in_channels=2, out_channels=4"),
        ({"down_block_types": ("DownBlock2D",) * 3}, "and the same on the way up"),
        ({"down_block_types": ("ResnetDownsampleBlock2D",) * 3}, "DownBlock2D or AttnDownBlock2D"),
        ({"attention_head_dim": None}, "attention_head_dim must be a number"),
        ({"norm_num_groups": 3}, "groups must divide every width"),
    ],
)
def test_settings_that_are_not_ours_are_refused(change: dict[str, Any], message: str) -> None:
    """Each would give another function under the same names."""
    with pytest.raises(ValueError) as error:
        from_diffusers(formula(), {**CONFIG, **change})
    assert message in str(error.value)


@pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="diffusers is a peer")
@pytest.mark.parametrize("size", [(16, 16), (8, 12)])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("attended", [(), (0,), (1,), (0, 1)])
def test_equal_to_diffusers_outputs_and_gradients(
    attended: tuple[int, ...], blocks: int, size: tuple[int, int]
) -> None:
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    kinds = ["Attn" if level in attended else "" for level in range(2)]
    theirs = UNet2DModel(
        sample_size=size,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 16),
        layers_per_block=blocks,
        down_block_types=[f"{kind}DownBlock2D" for kind in kinds],
        up_block_types=[f"{kind}UpBlock2D" for kind in reversed(kinds)],
        norm_num_groups=4,
    )
    config = dict(theirs.config)
    assert all(config[name] == value for name, value in FIXED.items())
    ours = from_diffusers(theirs.state_dict(), config)
    x = torch.randn(3, 1, *size, requires_grad=True)
    t = torch.tensor([0.0, 41.0, 999.0])
    one, other = theirs(x, t).sample, ours(x, t)
    torch.testing.assert_close(other, one, rtol=0, atol=1e-5)
    (g,), (h,) = (torch.autograd.grad(y.square().sum(), x) for y in (one, other))
    torch.testing.assert_close(h, g, rtol=0, atol=1e-4)
