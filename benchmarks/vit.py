"""A training step of ViT-tiny beside ViTForImageClassification of transformers: the same weights, one thread.

Run where both are installed. Both take AdamW, float32 and scaled dot-product attention; their logits are
compared first. Images of 32 x 32 pixels with patches of 4, and of 224 x 224 with patches of 16. Of a step the
processor's time is measured, so that a busy machine does not decide.
"""

import argparse
import time

import torch
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from benchmarks.record import ratio, record
from margin.vision.transformers.vit import ViT
from margin.vision.transformers.weights import vit_weights

CASES = {"32 x 32": (32, 4, 32), "224 x 224": (224, 16, 4)}
"""Side of an image, side of a patch, images a step."""

WIDTH, DEPTH, HEADS = 192, 12, 3


def networks(side: int, patch: int) -> tuple[nn.Module, nn.Module]:
    """Ours and theirs, with the same weights."""
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        image_size=side,
        patch_size=patch,
        num_labels=10,
        attn_implementation="sdpa",
    )
    theirs = ViTForImageClassification(config)
    found = vit_weights(theirs.state_dict(), config.to_dict())
    ours = ViT(3, (side, side), 10, **found.options)
    ours.load_state_dict(found.tensors)
    return ours, theirs


def step_of(model: nn.Module, logits, x: torch.Tensor, y: torch.Tensor):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6, fused=True)

    def run() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits(model, x), y).backward()
        optimizer.step()

    return run


def taken_in_turn(rounds: int, **contestants) -> dict[str, list[float]]:
    """Seconds of the processor of each contestant, run in turn after one warm-up each."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, run in contestants.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    return {name: seconds[1:] for name, seconds in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures, raw = [], {}
    for case, (side, patch, batch) in CASES.items():
        ours, theirs = networks(side, patch)
        x, y = torch.randn(batch, 3, side, side), torch.arange(batch) % 10
        with torch.no_grad():
            gap = float((ours(x) - theirs(x).logits).abs().max())
        times = taken_in_turn(
            arguments.rounds,
            margin=step_of(ours, lambda model, x: model(x), x, y),
            transformers=step_of(theirs, lambda model, x: model(x).logits, x, y),
        )
        middle, low, high = ratio(times, "transformers", "margin")
        figures += [
            {
                "what": f"transformers / margin, a training step of ViT-tiny, {case}, {batch} images",
                "value": middle,
                "unit": "x",
                "interval": [low, high],
                "target": ">= 1.0",
                "met": middle >= 1.0,
            },
            {
                "what": f"images a second of the processor, margin, {case}",
                "value": batch / sorted(times["margin"])[len(times["margin"]) // 2],
                "unit": "1/s",
            },
            {
                "what": f"largest difference of the logits, {case}",
                "value": gap,
                "unit": "1",
                "target": "<= 1e-5",
                "met": gap <= 1e-5,
            },
        ]
        raw[case] = times
    record(
        "vision/vit_speed",
        title="A training step of ViT-tiny beside transformers, one thread, float32, interleaved",
        figures=figures,
        packages=("transformers",),
        interval="least and largest of the paired ratios",
        rounds=arguments.rounds,
        seconds=raw,
    )


if __name__ == "__main__":
    main()
