"""Segmentation of a 512 x 512 image by a U-Net, beside its convolutions alone.

python -m benchmarks.segmentation [--size 512] [--rounds 9] [--threads 1]
"""

import argparse

import torch
from torch import Tensor, nn

from benchmarks.record import interleaved, ratio, record
from margin.vision.segmentation.unet import UNet


def convolutions(net: nn.Module, x: Tensor) -> list[tuple[nn.Module, Tensor]]:
    """Every convolution of a network with the maps that it is handed."""
    found: list[tuple[nn.Module, Tensor]] = []
    hooks = [
        layer.register_forward_hook(lambda layer, given, _: found.append((layer, given[0].clone())))
        for layer in net.modules()
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
    ]
    with torch.no_grad():
        net(x)
    for hook in hooks:
        hook.remove()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("size", 512), ("rounds", 9), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    figures: list[dict[str, object]] = []
    for name, options in (
        ("default: batch normalization, zeros", {}),
        ("no normalization, mirrored border", {"norm": "none", "border": "mirror"}),
        ("residual blocks, group normalization", {"block": "residual", "norm": "group"}),
    ):
        net = UNet(1, 2, **options).eval()
        x = torch.randn(1, 1, given.size, given.size)
        bare = convolutions(net, x)

        def alone(bare: list[tuple[nn.Module, Tensor]] = bare) -> None:
            for layer, maps in bare:
                layer(maps)

        with torch.no_grad():
            times = interleaved(given.rounds, whole=lambda net=net, x=x: net(x), alone=alone)
        middle, low, high = ratio(times, "whole", "alone")
        figures.append(
            {
                "what": f"seconds over those of the convolutions alone, {name}",
                "value": middle,
                "unit": "1",
                "interval": [low, high],
                "target": "<= 2.0",
                "met": middle <= 2.0,
            }
        )
    record(
        "vision/unet_speed",
        title=f"Segmentation of one image of {given.size} x {given.size} pixels by a U-Net of width 16 and "
        f"four levels, {given.threads} thread, beside its convolutions on the same maps; medians of "
        f"{given.rounds} interleaved rounds",
        figures=figures,
    )


if __name__ == "__main__":
    main()
