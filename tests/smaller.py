"""Sizes of the largest models in tests of what sees the same layers; the defaults keep their contracts."""

from typing import Any

FLOW = {"widths": (8, 8), "attention": (1,)}
NETWORK = {**FLOW, "steps": 50}
SMALLER: dict[str, dict[str, Any]] = {
    "geometric/pointnet": {"features": 32},
    "generative/realnvp_images": {"width": 8},
    "generative/image_diffusion": NETWORK,
    "generative/conditional_image_diffusion": NETWORK,
    "generative/image_flow_matching": FLOW,
    "generative/nmf": {"updates": 20},
    "vision/unet": {"width": 4, "levels": 2},
    "vision/vit": {"width": 16, "depth": 2},
}
