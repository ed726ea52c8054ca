"""The hardest examples as a page shows them: images as pictures, rows of a table as numbers."""

import base64
import io
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from margin.auditing.asking.worst_examples import WorstExamples
from margin.figures.digits import exact

LARGEST = 96
"""Pixels on a picture's longer side; larger images are averaged down."""

MOST_FEATURES = 8
"""How many features of a row are shown."""


@dataclass(frozen=True, slots=True)
class Example:
    """A hard example as text, with its picture.

    Args:
        index: Position among the held-out examples.
        picture: A PNG as data URI; "" where the input is no image.
        features: The first features of a row; () for an image.
        target: The label or value it should have.
        prediction: What the model says.
        loss: Its loss.
        margin: Its margin; "" without classes.
    """

    index: int
    picture: str
    features: tuple[str, ...]
    target: str
    prediction: str
    loss: str
    margin: str


def examples(
    hardest: WorstExamples, class_names: tuple[str, ...] = (), span: tuple[float, float] | None = None
) -> list[Example]:
    """The hardest examples, ready to print.

    Args:
        hardest: What :func:`margin.auditing.asking.worst_examples.worst_examples` found.
        class_names: Names of the classes, in the order of the labels.
        span: The values shown as black and white; None: the least and largest of each image.
    """
    column = next(iter(hardest.predictions.values()))
    classes = "class" in hardest.predictions
    made = []
    for i in range(len(hardest)):
        x = hardest.inputs[i]
        image = x.ndim == 3 and x.shape[0] in (1, 3) and min(x.shape[1:]) > 1
        names = class_names if classes else ()
        prediction = _named(column[i], names)
        if "probability" in hardest.predictions and hardest.predictions["probability"].ndim == 1:
            prediction += f" ({exact(round(float(hardest.predictions['probability'][i]), 3))})"
        made.append(
            Example(
                index=int(hardest.index[i]),
                picture=picture(x, span) if image else "",
                features=() if image else tuple(exact(v) for v in x.flatten()[:MOST_FEATURES].tolist()),
                target=_named(hardest.targets[i], names),
                prediction=prediction,
                loss=_three(float(hardest.losses[i])),
                margin="" if hardest.margins is None else _three(float(hardest.margins[i])),
            )
        )
    return made


def picture(image: Tensor, span: tuple[float, float] | None) -> str:
    """A (channels, height, width) image as PNG in a data URI; what is not finite is black."""
    from matplotlib.image import imsave

    image = image.detach().double()
    low, high = span or (float(image.nan_to_num().min()), float(image.nan_to_num().max()))
    shade = ((image - low) / ((high - low) or 1.0)).nan_to_num().clamp(0, 1)
    scale = LARGEST / max(shade.shape[1:])
    if scale < 1:
        size = [max(1, round(side * scale)) for side in shade.shape[1:]]
        shade = F.interpolate(shade[None], size=size, mode="area")[0]
    pixels = (shade * 255).round().to(torch.uint8).expand(3, -1, -1).permute(1, 2, 0).contiguous()
    file = io.BytesIO()
    imsave(file, pixels.numpy(), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _three(value: float) -> str:
    return exact(float(f"{value:.3g}"))


def _named(value: Tensor, names: tuple[str, ...]) -> str:
    if value.numel() != 1:
        return ", ".join(exact(v) for v in value.flatten()[:MOST_FEATURES].tolist())
    number = value.item()
    if names and isinstance(number, int) and 0 <= number < len(names):
        return names[number]
    return exact(float(number))
