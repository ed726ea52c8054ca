"""Weights of torchvision's networks, and of ResNets from transformers, by the names of ours."""

import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from torch import Tensor

from margin.engine.transfer import Pretrained, renamed
from margin.vision.convnets import densenet, vgg
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


DENSE_LAYERS = {
    "an AlexNet of torchvision": {1: 3, 4: 6, 6: 8},
    "a VGG of torchvision": {0: 2, 3: 5, 6: 8},
}
"""Places of the dense layers in torchvision, and in our large form."""

LAST = "classifier.8."
"""How the names of the last layer of that form begin."""

DENSENET = (
    (r"^features\.conv0\.", "features.0."),
    (r"^features\.norm0\.", "features.1."),
    *(  # older files have a dot before the number
        (
            rf"^features\.denseblock{block}\.denselayer(\d+)\.{kind}\.",
            rf"features.{5 * block - 1}.layers.\1.{at}.",
        )
        for block in range(1, 5)
        for kind, at in ((r"norm\.?1", 0), (r"conv\.?1", 2), (r"norm\.?2", 3), (r"conv\.?2", 5))
    ),
    *(
        (rf"^features\.transition{block}\.{kind}\.", f"features.{5 * block + at}.")
        for block in range(1, 4)
        for kind, at in (("norm", 0), ("conv", 2))
    ),
    (r"^features\.norm5\.", "features.20."),
    (r"^classifier\.", "head."),
)
"""Patterns of names in torchvision, and ours, whose layers are counted from 0."""

GOOGLENET = (
    *(
        (rf"^{name}\.{kind}\.", f"features.{place}.{at}.")
        for name, place in (("conv1", 0), ("conv2", 2), ("conv3", 3))
        for at, kind in enumerate(("conv", "bn"))
    ),
    *(
        (
            rf"^inception{name}\.branch{branch}\.(\d\.)?{kind}\.",
            rf"features.{place}.branches.{branch - 1}.\g<1>{at}.",
        )
        for name, place in zip(
            ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"), (5, 6, *range(8, 13), 14, 15), strict=True
        )
        for branch in range(1, 5)
        for at, kind in enumerate(("conv", "bn"))
    ),
    (r"^fc\.", "head."),
    (r"^aux[12]\.", ""),
)
"""Patterns of names in torchvision, and ours; its two auxiliary classifiers have no counterpart."""


def _dense_named(tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor] | None:
    """The tensors by our names, if their dense layers stand where those of torchvision's network do."""
    places = DENSE_LAYERS[what]
    found = {match[1] for name in tensors if (match := re.match(r"classifier\.(\d+)\.weight$", name))}
    if "features.0.weight" not in tensors or found != set(map(str, places)):
        return None
    names = [(rf"^classifier\.{theirs}\.", f"classifier.{ours}.") for theirs, ours in places.items()]
    return renamed(tensors, [(r"^features\.", "features."), *names], what)


def alexnet_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """The weights of torchvision's AlexNet, which has one group, and the options that make ours equal.

    Args:
        tensors: By their names.
        config: Not read: torchvision writes none.

    Returns:
        None where the names are not torchvision's.
    """
    ours = _dense_named(tensors, "an AlexNet of torchvision")
    if ours is None:
        return None
    options = {"groups": 1, "stem": "large", "hidden": ours["classifier.3.weight"].shape[0]}
    return Pretrained(ours, options, {"channels": ours["features.0.weight"].shape[1]}, LAST)


def vgg_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """The weights of a VGG of torchvision, with batch normalization or without, and the options.

    Args:
        tensors: By their names.
        config: Not read: torchvision writes none.

    Returns:
        None where the names are not torchvision's.

    Raises:
        ValueError: It has another number of convolutions than the networks of the paper.
    """
    ours = _dense_named(tensors, "a VGG of torchvision")
    if ours is None:
        return None
    # safetensors keeps names in the order of letters: 10 before 4
    sizes = {int(name.split(".")[1]): tensor.shape[0] for name, tensor in ours.items() if tensor.ndim == 4}
    maps = [size for _, size in sorted(sizes.items())]
    depth = next((depth for depth, stages in vgg.DEPTHS.items() if sum(stages) == len(maps)), None)
    if depth is None:
        raise ValueError(f"a VGG must have 8, 10, 13 or 16 convolutions: torchvision's has {len(maps)}")
    ends = list(accumulate(vgg.DEPTHS[depth]))
    options = {
        "depth": depth,
        "stem": "large",
        "widths": tuple(maps[end - 1] for end in ends),
        "hidden": tuple(ours[f"classifier.{place}.weight"].shape[0] for place in (2, 5)),
        "norm": "batch" if "features.1.weight" in ours else "none",
    }
    return Pretrained(ours, options, {"channels": ours["features.0.weight"].shape[1]}, LAST)


def densenet_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """The weights of a DenseNet of torchvision, in files of any release, and the options.

    Args:
        tensors: By their names.
        config: Not read: torchvision writes none.

    Returns:
        None where the names are not torchvision's.

    Raises:
        ValueError: A tensor is none of a DenseNet's, or its blocks are of no depth that is known.
    """
    if "features.conv0.weight" not in tensors:
        return None
    ours = {
        re.sub(r"(?<=layers\.)\d+", lambda number: str(int(number[0]) - 1), name): tensor
        for name, tensor in renamed(tensors, DENSENET, "a DenseNet of torchvision").items()
    }
    layers = {m.groups() for name in ours if (m := re.match(r"features\.(\d+)\.layers\.(\d+)\.", name))}
    counts = tuple(sum(place == str(wanted) for place, _ in layers) for wanted in (4, 9, 14, 19))
    depth = next((depth for depth, blocks in densenet.IMAGENET.items() if blocks == counts), None)
    if depth is None:
        known = ", ".join(map(str, densenet.IMAGENET.values()))
        raise ValueError(f"blocks of a DenseNet must have the layers {known}: torchvision's has {counts}")
    options = {"depth": depth, "stem": "large", "growth": ours["features.4.layers.0.5.weight"].shape[0]}
    return Pretrained(ours, options, {"channels": ours["features.0.weight"].shape[1]})


def googlenet_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """The weights of torchvision's GoogLeNet, without its auxiliary classifiers, and the options.

    Its published weights were trained on pixels in [-1, 1], where those of the others had each channel
    standardized; a fine-tuning learns the difference.

    Args:
        tensors: By their names.
        config: Not read: torchvision writes none.

    Returns:
        None where the names are not torchvision's.

    Raises:
        ValueError: A tensor is none of a GoogLeNet's.
    """
    if "inception3a.branch1.conv.weight" not in tensors:
        return None
    ours = renamed(tensors, GOOGLENET, "a GoogLeNet of torchvision")
    width, channels = ours["features.0.0.weight"].shape[:2]
    third = ours["features.5.branches.2.1.0.weight"].shape[-1]
    return Pretrained(ours, {"stem": "large", "width": width, "third": third}, {"channels": channels})
