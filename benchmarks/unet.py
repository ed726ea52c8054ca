"""A training step of our U-Net beside UNet2DModel of diffusers, with the same weights.

Forward, backward and AdamW:

PYTHONPATH=build/peers python -m benchmarks.unet [--size 28] [--batch 64] [--rounds 15] [--threads 2]
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from diffusers import UNet2DModel
from torch import Tensor

from benchmarks.record import interleaved, ratio, record
from margin.nn.unet.diffusers_weights import from_diffusers

WIDTHS = (32, 64, 64)


def peer(size: int) -> UNet2DModel:
    """A residual block a level, attention at the last of three and at the turn, ten classes and none."""
    return UNet2DModel(
        sample_size=size,
        in_channels=1,
        out_channels=1,
        block_out_channels=WIDTHS,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        num_class_embeds=11,
    )


def steps(network: torch.nn.Module, answer: Callable[[], Tensor], target: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        (answer() - target).square().mean().backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("size", 28), ("batch", 64), ("rounds", 15), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    theirs = peer(given.size)
    ours = from_diffusers(theirs.state_dict(), dict(theirs.config))
    x, target = torch.randn(2, given.batch, 1, given.size, given.size)
    t, label = 1000 * torch.rand(given.batch), torch.randint(11, (given.batch,))

    def answers() -> tuple[Tensor, Tensor]:
        return ours(x, t, label), theirs(x, t, class_labels=label).sample

    with torch.no_grad():
        one, other = answers()
        gap = float((one - other).abs().max())
        forward = interleaved(
            given.rounds,
            margin=lambda: ours(x, t, label),
            diffusers=lambda: theirs(x, t, class_labels=label),
        )
    times = interleaved(
        given.rounds,
        margin=steps(ours, lambda: ours(x, t, label), target),
        diffusers=steps(theirs, lambda: theirs(x, t, class_labels=label).sample, target),
    )
    with torch.no_grad():
        one, other = answers()
        moved = float((one - other).abs().max())
    step, passing = ratio(times, "margin", "diffusers"), ratio(forward, "margin", "diffusers")
    record(
        "generative/unet",
        title=f"U-Net of {sum(p.numel() for p in ours.parameters()):,} parameters, images of {given.size} x "
        f"{given.size}, batch {given.batch}, {given.threads} threads, float32, beside UNet2DModel with the "
        f"same weights; medians of {given.rounds} interleaved rounds",
        figures=[
            {
                "what": "largest difference of an output",
                "value": gap,
                "unit": "1",
                "target": "<= 1e-5",
                "met": gap <= 1e-5,
            },
            {
                "what": "a training step's seconds over the peer's",
                "value": step[0],
                "unit": "1",
                "interval": [step[1], step[2]],
                "target": "<= 1.0",
                "met": step[0] <= 1.0,
            },
            {
                "what": "an answer's seconds over the peer's",
                "value": passing[0],
                "unit": "1",
                "interval": [passing[1], passing[2]],
            },
            {
                "what": "seconds of a training step",
                "value": statistics.median(times["margin"]),
                "unit": "s",
                "interval": [min(times["margin"]), max(times["margin"])],
            },
            {
                "what": f"largest difference of an output after {given.rounds + 1} steps of each",
                "value": moved,
                "unit": "1",
            },
        ],
        packages=("diffusers",),
        seconds=times,
        forward_seconds=forward,
        seed=0,
    )


if __name__ == "__main__":
    main()
