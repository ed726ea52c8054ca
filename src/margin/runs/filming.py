"""Pictures of a generator's samples over its training: RUN/samples/, one at each row of the history."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from margin.data.transforms.sample_sheet import has_picture, write_picture
from margin.engine.hooks import at_rows
from margin.engine.loop import Hook, State
from margin.engine.runs import Run
from margin.runs.sampling import draw_from

COUNT = {4: 64, 2: 1000}
"""Samples of a picture: images, or points of the plane, by the axes of their tensor."""


def check_pictures(core: nn.Module, encoding: Mapping[str, Any]) -> None:
    """Refuse pictures of a model that cannot be sampled, or whose samples have none.

    Raises:
        ValueError: It is such a model.
    """
    if not callable(getattr(core, "sample", None)):
        raise ValueError(f"--log samples needs a model that can be sampled: got {type(core).__name__}")
    shape = encoding.get("shape") or []
    if encoding.get("task") == "tokens" or not has_picture(torch.empty(1, *shape)):
        raise ValueError(
            f"--log samples needs images of 1 or 3 channels, or points of the plane: got the shape {shape}"
        )


def filming(run: Run) -> Hook:
    """A hook that draws a picture whenever the history has a new row; the same noise each time.

    What is drawn leaves no trace, so a training with pictures is the training without.

    Args:
        run: Whose samples; its directory holds the pictures.
    """
    place = run.path / "samples"

    def draw(state: State) -> None:
        place.mkdir(exist_ok=True)
        axes = 1 + len(run.record["data"]["encoding"]["shape"])
        found = draw_from(state.usable, run.record, COUNT[axes])
        if bool(found.values.isfinite().all()):
            write_picture(place / f"step-{state.step:08d}.png", found.values, found.span)

    return at_rows(run, draw)
