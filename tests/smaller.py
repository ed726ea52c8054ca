"""Sizes of the largest models in tests of what sees the same layers; the defaults keep their contracts."""

import inspect
import time
from typing import Any

import pytest

FLOW = {"widths": (8, 8), "attention": (1,)}
STEPS = {"steps": 12}
NETWORK = {**FLOW, **STEPS}
READER = {"width": 16, "depth": 2, "heads": 2}
BERT = {**READER, "places": 16}
ELMO = {"width": 12, "characters": 4, "filters": 3}
PAIRED = {"embedding": 8, "hidden": 12}
SMALLER: dict[str, dict[str, Any]] = {
    "geometric/pointnet": {"features": 32},
    "geometric/pointnet:points": {"features": 32},
    "generative/realnvp": {"layers": 2},
    "generative/conditional_realnvp": {"layers": 2},
    "generative/neural_spline_flow": {"layers": 2},
    "generative/realnvp_images": {"width": 8},
    "generative/diffusion": STEPS,
    "generative/conditional_diffusion": STEPS,
    "generative/image_diffusion": NETWORK,
    "generative/conditional_image_diffusion": NETWORK,
    "generative/image_flow_matching": FLOW,
    "generative/nmf": {"updates": 20},
    "sequence/attention_seq2seq": {**PAIRED, "attention": 8},
    "sequence/encoder_decoder": PAIRED,
    "sequence/lru:series": {"layers": 1},
    "sequence/lru:tokens": {"width": 16, "states": 16},
    "sequence/mingru:series": {"layers": 1},
    "sequence/stack_memory:tokens": {"capacity": 8},
    "sequence/tcn": {"layers": 2},
    "sequence/tcn:values": {"layers": 2},
    "sequence/tcn:series": {"layers": 2},
    "sequence/tcn:tokens": {"hidden": 16, "layers": 3},
    "sequence/wavenet": {"layers": 3},
    "text/bert": BERT,
    "text/bert:masked": BERT,
    "text/bert:spans": BERT,
    "text/bert:tags": BERT,
    "text/bert:values": BERT,
    "text/elmo": ELMO,
    "text/elmo:tokens": ELMO,
    "text/gpt": READER,
    "text/text_cnn": {"embedding": 12, "filters": 8},
    "text/text_cnn:values": {"embedding": 12, "filters": 8},
    "text/transformer": READER,
    "vision/densenet": {"growth": 4},
    "vision/googlenet": {"width": 8},
    "vision/resnet": {"blocks": (1, 1, 1), "widths": (8, 16, 32)},
    "vision/unet": {"width": 4, "levels": 2},
    "vision/vit": {"width": 16, "depth": 2},
}

FEWER = {
    "margin.theory.curvature.loss_slices:random_directions": {"directions": 2},
    "margin.theory.curvature.loss_slices:adaptive_sharpness": {"steps": 3},
    "margin.theory.curvature.loss_slices:box_sharpness": {"steps": 3},
    "margin.theory.curvature.trained_weights:trace": {"rank": 4, "probes": 12},
    "margin.theory.dynamics.lr_range:range_test": {"steps": 15},
}
"""Draws and steps of the claims that take the longest; the defaults keep their contracts in test_tables."""


def fewer_draws(patch: pytest.MonkeyPatch) -> None:
    """Audits draw less, and their minutes are those of the processor, however busy the machine is."""
    from margin.core.catalog import resolve  # after the hook

    for path, options in FEWER.items():
        defaults = inspect.unwrap(resolve(path)).__kwdefaults__
        for name, number in options.items():
            assert defaults[name] > number
            patch.setitem(defaults, name, number)
    # beyond 4 standard errors of 200 draws lie 9e-5 of them
    patch.setattr("margin.theory.signal.dropout.MOST_SAMPLES", 200)
    patch.setattr(time, "perf_counter", time.process_time)
