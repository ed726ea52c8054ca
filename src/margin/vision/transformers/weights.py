"""Weights of ViTForImageClassification of the library transformers, by the names of our ViT."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from margin.engine.transfer import Pretrained, joined, renamed
from margin.vision.transformers.vit import ViT, interpolated

SETTINGS = {"hidden_act": "gelu", "qkv_bias": True}
"""Settings of transformers' ViTConfig that our network has at one value only."""

BLOCK = r"^(?:vit\.)?(?:encoder\.layer|layers)\.(\d+)\."
"""How the names of a block begin, in files of every release and in modules of the fifth."""

NAMES = (
    (r"^(vit\.)?embeddings\.cls_token$", "class_token"),
    (r"^(vit\.)?embeddings\.position_embeddings$", "positions"),
    (r"^(vit\.)?embeddings\.patch_embeddings\.projection\.", "patches."),
    (BLOCK + r"layernorm_before\.", r"blocks.\1.norm1."),
    (BLOCK + r"layernorm_after\.", r"blocks.\1.norm2."),
    *(
        (BLOCK + rf"attention\.(?:attention\.{whole}|{whole[0]}_proj)\.", rf"blocks.\1.attention.{whole}.")
        for whole in ("query", "key", "value")
    ),
    (BLOCK + r"attention\.(?:output\.dense|o_proj)\.", r"blocks.\1.attention.output."),
    (BLOCK + r"(?:intermediate\.dense|mlp\.fc1)\.", r"blocks.\1.mlp.0."),
    (BLOCK + r"(?:output\.dense|mlp\.fc2)\.", r"blocks.\1.mlp.3."),
    (r"^(vit\.)?layernorm\.", "norm."),
    (r"^classifier\.", "head."),
    (r"^(vit\.)?(embeddings\.mask_token|pooler\.)", ""),
)
"""Patterns of their names, and ours; "" has no part in a classifier."""


def vit_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """The weights of a vision transformer of transformers, and the options that make ours the same function.

    On images of another size the learned positions are interpolated.

    Args:
        tensors: By their names.
        config: What ``config.json`` says; of {} the heads have 64 numbers each, as all of the paper, and the
            training images were square.

    Returns:
        None where the names are not that library's.

    Raises:
        ValueError: A tensor is none of a vision transformer's, or a setting is one that ours has not.
    """
    if not any(name.endswith("patch_embeddings.projection.weight") for name in tensors):
        return None
    for name, value in SETTINGS.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name} of a ViT must be {value!r}: got {config[name]!r}")
    ours = joined(renamed(tensors, NAMES, "a ViT of transformers"))
    width, channels, *patch = ours["patches.weight"].shape
    size = config.get("image_size")
    side = math.isqrt(ours["positions"].shape[1] - 1)
    height, right = (size, size) if isinstance(size, int) else size or (side * patch[0], side * patch[1])
    grid = (height // patch[0], right // patch[1])

    def adapted(model: nn.Module, given: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if not isinstance(model, ViT):
            return given
        return {**given, "positions": interpolated(given["positions"], grid, model.grid)}

    options = {
        "patch": (patch[0], patch[1]),
        "width": width,
        "depth": len({name.split(".")[1] for name in ours if name.startswith("blocks.")}),
        "heads": config.get("num_attention_heads", max(1, width // 64)),
        "hidden": ours["blocks.0.mlp.0.weight"].shape[0],
        "eps": config.get("layer_norm_eps", 1e-12),
    }
    return Pretrained(ours, options, {"channels": channels}, adapted=adapted)
