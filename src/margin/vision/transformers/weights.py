"""ViTForImageClassification of the library transformers as our ViT: which tensor is which."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

FIXED = {"hidden_act": "gelu", "qkv_bias": True}
"""Settings of ViTConfig that our ViT has at one value only, which is also their default."""

NAMES = {
    r"embeddings\.cls_token": "class_token",
    r"embeddings\.position_embeddings": "positions",
    r"embeddings\.patch_embeddings\.projection": "patches",
    r"(?:encoder\.layer|layers)\.(\d+)\.layernorm_before": r"blocks.\1.norm1",
    r"(?:encoder\.layer|layers)\.(\d+)\.layernorm_after": r"blocks.\1.norm2",
    r"(?:encoder\.layer|layers)\.(\d+)\.attention\.(?:output\.dense|o_proj)": r"blocks.\1.attention.output",
    r"(?:encoder\.layer|layers)\.(\d+)\.(?:intermediate\.dense|mlp\.fc1)": r"blocks.\1.mlp.0",
    r"(?:encoder\.layer|layers)\.(\d+)\.(?:output\.dense|mlp\.fc2)": r"blocks.\1.mlp.3",
    r"layernorm": "norm",
    r"classifier": "head",
}
"""Their layers, as files of every release and modules of the fifth name them, and ours."""

JOINED = re.compile(
    r"(?:encoder\.layer|layers)\.(\d+)\.attention\.(?:attention\.)?(query|key|value|q_proj|k_proj|v_proj)"
)
ORDER = "qkv"
"""Three matrices there, by their first letter, one after another in ``queries_keys_values`` here."""

UNUSED = re.compile(r"mask_token|pooler\.dense")
"""What published weights hold that no classifier reads."""


def renamed(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a ViTForImageClassification by our names.

    Raises:
        ValueError: A tensor is none of that model's, or a block lacks one of queries, keys and values.
    """
    found: dict[str, Tensor] = {}
    joined: dict[str, dict[str, Tensor]] = {}
    for name, tensor in given.items():
        stem, _, kind = name.removeprefix("vit.").rpartition(".")
        if kind not in ("weight", "bias"):
            stem, kind = name.removeprefix("vit."), ""
        if part := JOINED.fullmatch(stem):
            ours = f"blocks.{part[1]}.attention.queries_keys_values.{kind}"
            joined.setdefault(ours, {})[part[2][0]] = tensor
            continue
        place = next((ours for theirs, ours in NAMES.items() if re.fullmatch(theirs, stem)), None)
        if place is None:
            if UNUSED.match(stem):
                continue
            raise ValueError(f"every tensor must be one of a ViTForImageClassification: {name} is not")
        theirs = next(theirs for theirs, ours in NAMES.items() if ours == place)
        found[re.sub(theirs, place, stem) + f".{kind}" * bool(kind)] = tensor
    for ours, parts in joined.items():
        if lacking := [letter for letter in ORDER if letter not in parts]:
            raise ValueError(f"queries, keys and values must all be given: {ours} lacks {lacking[0]}")
        found[ours] = torch.cat([parts[letter] for letter in ORDER])
    return found


def options_of(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of our ViT that make it the same function; without a configuration as its shapes say.

    Args:
        tensors: By our names.
        config: What the file config.json beside the weights says, or nothing.

    Raises:
        ValueError: A setting is none of ours.
    """
    for name, value in FIXED.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name} must be {value!r}: got {config[name]!r}")
    width, _, *patch = tensors["patches.weight"].shape
    return {
        "patch": tuple(patch),
        "width": width,
        "depth": len({name.split(".")[1] for name in tensors if name.startswith("blocks.")}),
        "heads": config.get("num_attention_heads", max(1, width // 64)),
        "hidden": tensors["blocks.0.mlp.0.weight"].shape[0],
        "eps": config.get("layer_norm_eps", 1e-12),
    }
