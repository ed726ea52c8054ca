"""Weights of ResNets from transformers (ResNetForImageClassification) and torchvision, by our names."""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from margin.engine.transfer import Pretrained, renamed
from margin.vision.convnets.resnet import EXPANSION, IMAGENET

SETTINGS = {"hidden_act": "relu", "downsample_in_first_stage": False, "downsample_in_bottleneck": False}
"""Settings of transformers' ResNetConfig that our network has at one value only."""

TRANSFORMERS = (
    (r"^(resnet\.)?embedder\.embedder\.convolution\.", "stem.0."),
    (r"^(resnet\.)?embedder\.embedder\.normalization\.", "stem.1."),
    (
        r"^(resnet\.)?encoder\.stages\.(\d+)\.layers\.(\d+)\.shortcut\.convolution\.",
        r"stages.\2.\3.0.shortcut.0.",
    ),
    (
        r"^(resnet\.)?encoder\.stages\.(\d+)\.layers\.(\d+)\.shortcut\.normalization\.",
        r"stages.\2.\3.0.shortcut.1.",
    ),
    *(
        (
            rf"^(resnet\.)?encoder\.stages\.(\d+)\.layers\.(\d+)\.layer\.{k}\.{name}\.",
            rf"stages.\2.\3.0.branch.{3 * k + add}.",
        )
        for k in range(3)
        for add, name in enumerate(("convolution", "normalization"))
    ),
    (r"^classifier\.1\.", "head."),
)
"""Patterns of names in transformers, and ours."""

TORCHVISION = (
    (r"^conv1\.", "stem.0."),
    (r"^bn1\.", "stem.1."),
    *(
        (rf"^layer{stage + 1}\.(\d+)\.{name}\.", rf"stages.{stage}.\1.0.{ours}.")
        for stage in range(8)
        for name, ours in (
            ("downsample.0", "shortcut.0"),
            ("downsample.1", "shortcut.1"),
            *((f"conv{k + 1}", f"branch.{3 * k}") for k in range(3)),
            *((f"bn{k + 1}", f"branch.{3 * k + 1}") for k in range(3)),
        )
    ),
    (r"^fc\.", "head."),
)
"""Patterns of names in torchvision, and ours."""


def resnet_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """The weights of a residual network of transformers or torchvision, and the options that make ours equal.

    Block, stages, widths and stem are read off the tensors.

    Args:
        tensors: By their names.
        config: What ``config.json`` of transformers says; {} where there is none.

    Returns:
        None where the names are neither library's.

    Raises:
        ValueError: A tensor is none of a residual network's, or a setting is one that ours has not.
    """
    if any(name.endswith("embedder.embedder.convolution.weight") for name in tensors):
        names, what = TRANSFORMERS, "a ResNet of transformers"
    elif "conv1.weight" in tensors and any(name.startswith("layer1.0.") for name in tensors):
        names, what = TORCHVISION, "a ResNet of torchvision"
    else:
        return None
    for name, value in SETTINGS.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name} of a ResNet must be {value!r}: got {config[name]!r}")
    ours = renamed(tensors, names, what)
    return Pretrained(ours, _options(ours, what), {"channels": ours["stem.0.weight"].shape[1]})


def _options(ours: Mapping[str, Tensor], what: str) -> dict[str, Any]:
    """The options of our constructor, from the shapes of the tensors."""
    places = [re.match(r"stages\.(\d+)\.(\d+)\.", name) for name in ours]
    found = {(int(place[1]), int(place[2])) for place in places if place}
    stages = 1 + max(stage for stage, _ in found)
    blocks = tuple(sum(1 for stage, _ in found if stage == wanted) for wanted in range(stages))
    block = "bottleneck" if "stages.0.0.0.branch.6.weight" in ours else "basic"
    widths = tuple(ours[f"stages.{stage}.0.0.branch.3.weight"].shape[0] for stage in range(stages))
    stem = tuple(ours["stem.0.weight"].shape)
    _check_ordinary(ours, block, stem, widths, what)
    options = {"stem": "large" if stem[2] == 7 else "small", "shortcut": "projection"}
    for depth, shape in IMAGENET.items():
        if shape == (block, blocks) and widths == (64, 128, 256, 512):
            return {"depth": depth, **options}
    return {"block": block, "blocks": blocks, "widths": widths, **options}


def _check_ordinary(
    ours: Mapping[str, Tensor], block: str, stem: tuple[int, ...], widths: tuple[int, ...], what: str
) -> None:
    """Refuse what has these names and is another network: groups, wide bottlenecks, another stem."""
    if stem[0] != widths[0]:
        raise ValueError(
            f"the stem must have the width of the first stage: {what} has {stem[0]} and {widths[0]}"
        )
    for stage, width in enumerate(widths):
        middle = ours[f"stages.{stage}.0.0.branch.3.weight"]
        if middle.shape[1] != width:
            raise ValueError(f"convolutions must have one group: {what} has {width // middle.shape[1]}")
        last = ours[f"stages.{stage}.0.0.branch.6.weight"].shape[0] if block == "bottleneck" else 0
        if last and last != EXPANSION * width:
            raise ValueError(f"a bottleneck must widen by {EXPANSION}: {what} has {width} to {last}")
