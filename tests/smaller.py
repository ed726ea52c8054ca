"""Sizes of the largest models in tests of what sees the same layers; the defaults keep their contracts."""

from typing import Any

NETWORK = {"widths": (8, 8), "attention": (1,), "steps": 50}
SMALLER: dict[str, dict[str, Any]] = {
    "geometric/pointnet": {"features": 32},
    "generative/realnvp_images": {"width": 8},
    "generative/image_diffusion": NETWORK,
    "generative/conditional_image_diffusion": NETWORK,
    "generative/nmf": {"updates": 20},
}
