"""UNet2DModel of the library diffusers as our U-Net: which tensor is which."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from margin.nn.unet.network import UNet

FIXED = {
    "center_input_sample": False,
    "time_embedding_type": "positional",
    "time_embedding_dim": None,
    "freq_shift": 0,
    "flip_sin_to_cos": True,
    "mid_block_type": "UNetMidBlock2D",
    "mid_block_scale_factor": 1,
    "downsample_padding": 1,
    "downsample_type": "conv",
    "upsample_type": "conv",
    "dropout": 0.0,
    "act_fn": "silu",
    "attn_norm_num_groups": None,
    "norm_eps": 1e-5,
    "resnet_time_scale_shift": "default",
    "add_attention": True,
    "class_embed_type": None,
}
"""Settings of UNet2DModel that our U-Net has at one value only, which is also their default."""

RESIDUAL = {
    "norm1": "norm1",
    "conv1": "conv1",
    "time": "time_emb_proj",
    "norm2": "norm2",
    "conv2": "conv2",
    "shortcut": "conv_shortcut",
}
ATTENTION = {"norm": "group_norm", "output": "to_out.0"}
ENDS = {
    "stem": "conv_in",
    "embedding.0": "time_embedding.linear_1",
    "embedding.2": "time_embedding.linear_2",
    "classes": "class_embedding",
    "norm": "conv_norm_out",
    "head": "conv_out",
}
JOINED = ("to_q", "to_k", "to_v")
"""Three matrices there, one after another in ``queries_keys_values`` here."""


def from_diffusers(state_dict: Mapping[str, Tensor], config: Mapping[str, Any]) -> UNet:
    """The U-Net that is the same function as a UNet2DModel, in the type of its weights.

    Args:
        state_dict: Its tensors by name.
        config: Its configuration: ``dict(model.config)``, or what the file config.json beside its weights
            says. A class embedding of K + 1 rows becomes K classes and, as the last row, that of no class.

    Raises:
        ValueError: A setting is none of ours, or the tensors are not those that the configuration describes.
    """
    network = UNet(config["in_channels"], _size(config["sample_size"]), **_options(config))
    names = list(_pairs(len(config["block_out_channels"]), config["layers_per_block"]))
    given = dict(state_dict)
    ours = {}
    for mine, theirs in names:
        for kind in ("weight", "bias"):
            parts = [given.pop(f"{name}.{kind}", None) for name in theirs]
            found = [part for part in parts if part is not None]
            if found and len(found) == len(parts):
                ours[f"{mine}.{kind}"] = torch.cat(found) if len(found) > 1 else found[0]
    wanted = network.state_dict()
    if given or ours.keys() != wanted.keys():
        odd = sorted(given) or sorted(wanted.keys() ^ ours.keys())
        raise ValueError(f"tensors must be those of the configuration: got a surplus or a lack of {odd[0]}")
    network.to(ours["stem.weight"].dtype).load_state_dict(ours)
    return network


def _options(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of our constructor."""
    for name, value in FIXED.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name} must be {value!r}: got {config[name]!r}")
    if config["in_channels"] != config["out_channels"]:
        raise ValueError(
            "images must have as many channels out as in: "
            f"got in_channels={config['in_channels']}, out_channels={config['out_channels']}"
        )
    kinds = tuple(config["down_block_types"])
    mirrored = tuple(kind.replace("Down", "Up") for kind in reversed(kinds))
    if not {*kinds} <= {"DownBlock2D", "AttnDownBlock2D"} or mirrored != tuple(config["up_block_types"]):
        raise ValueError(
            "levels must be DownBlock2D or AttnDownBlock2D, and the same on the way up: "
            f"got {kinds} and {tuple(config['up_block_types'])}"
        )
    if config["attention_head_dim"] is None:
        raise ValueError("attention_head_dim must be a number: got None, which means one head in each level")
    return {
        "num_classes": (config.get("num_class_embeds") or 1) - 1,
        "widths": tuple(config["block_out_channels"]),
        "blocks": config["layers_per_block"],
        "attention": tuple(level for level, kind in enumerate(kinds) if kind == "AttnDownBlock2D"),
        "head_width": config["attention_head_dim"],
        "groups": config["norm_num_groups"],
    }


def _size(sample_size: int | tuple[int, int] | list[int]) -> tuple[int, int]:
    return (sample_size, sample_size) if isinstance(sample_size, int) else (sample_size[0], sample_size[1])


def _pairs(levels: int, blocks: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Our name of each layer, and theirs: several where one of ours is several of theirs."""
    for mine, theirs in ENDS.items():
        yield mine, (theirs,)
    yield from _residual("turn.0", "mid_block.resnets.0")
    yield from _attention("turn.1", "mid_block.attentions.0")
    yield from _residual("turn.2", "mid_block.resnets.1")
    place = 0
    for level in range(levels):
        for block in range(blocks):
            yield from _stage(f"down.{place}", f"down_blocks.{level}", block)
            place += 1
        if level < levels - 1:
            yield f"down.{place}.conv", (f"down_blocks.{level}.downsamplers.0.conv",)
            place += 1
    place = 0
    for level in range(levels):
        for block in range(blocks + 1):
            yield from _stage(f"up.{place}", f"up_blocks.{level}", block)
            place += 1
        if level < levels - 1:
            yield f"up.{place}.conv", (f"up_blocks.{level}.upsamplers.0.conv",)
            place += 1


def _stage(mine: str, theirs: str, block: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from _residual(f"{mine}.residual", f"{theirs}.resnets.{block}")
    yield from _attention(f"{mine}.attention", f"{theirs}.attentions.{block}")


def _residual(mine: str, theirs: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for one, other in RESIDUAL.items():
        yield f"{mine}.{one}", (f"{theirs}.{other}",)


def _attention(mine: str, theirs: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for one, other in ATTENTION.items():
        yield f"{mine}.{one}", (f"{theirs}.{other}",)
    yield f"{mine}.queries_keys_values", tuple(f"{theirs}.{name}" for name in JOINED)
