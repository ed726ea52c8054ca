"""The plots of a report: a finding's curves by its claim's drawing, else as lines; the worst examples."""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from margin.auditing.asking.worst_examples import RIGHT, WorstExamples
from margin.core.catalog import resolve
from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.frames import curve
from margin.figures.svg import SERIES, drawing, plain_ticks, themed, whole_ticks
from margin.math.evenly import evenly

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 400
"""Points of a line: more than a page's pixels show nothing and weigh."""

FEW_POINTS = 40
"""Values by index up to which each is a point of its own: a line through them would say that they go on."""


TEXTS = 6
"""Generated texts that are shown, from the first to the last."""

APART = ("step", "epoch", "seconds", "examples_per_second", "peak_memory_mib", "texts")
"""Columns of a history that are no measurement of the model."""


def plot(figure: str, finding: Finding, identifier: str) -> str:
    """The plot of a finding as ``<svg>``; "" where it has no curves.

    Args:
        figure: Path of the drawing that the claim names; "" draws lines, as does a drawing that does not
            find its curves.
        finding: The claim's answer.
        identifier: Prefix of the element's identifiers, unique in the page.
    """
    if not finding.curves:
        return ""
    with drawing() as (canvas, axes):
        for draw in [*([resolve(figure)] if figure else []), lines]:
            if shown := draw(axes, finding):
                plain_ticks(axes)
                return themed(canvas, identifier, shown)
            if axes.has_data():  # of a drawing that found too late what it lacks
                axes.clear()
    return ""


def learning_curves(history: Sequence[Mapping[str, Any]], identifier: str) -> list[tuple[str, str]]:
    """Title and ``<svg>`` of each quantity of a history that changes: training beside validation."""
    columns = list(dict.fromkeys(key for row in history for key in row if key not in APART))
    made: list[tuple[str, str]] = []
    for quantity in dict.fromkeys(key.removeprefix("train_").removeprefix("val_") for key in columns):
        parts = [key for key in (f"train_{quantity}", f"val_{quantity}", quantity) if key in columns]
        series = {key: _column(history, key) for key in parts}
        series = {key: points for key, points in series.items() if len(points[0]) > 1}
        if not any(len(set(y)) > 1 for _, y in series.values()):
            continue
        with drawing() as (figure, axes):
            _history(axes, quantity, series)
            title = {"lr": "learning rate"}.get(quantity, quantity.replace("_", " "))
            made.append((title, themed(figure, f"{identifier}-{len(made)}", f"{title} by training step")))
    return made


def drawn_texts(history: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """The step and the first text of rows of a history with texts, six rows at most, evenly apart."""
    kept = [(int(row["step"]), str(row["texts"][0])) for row in history if row.get("texts")]
    if len(kept) <= TEXTS:
        return kept
    return [kept[round(k * (len(kept) - 1) / (TEXTS - 1))] for k in range(TEXTS)]


def _column(history: Sequence[Mapping[str, Any]], key: str) -> tuple[list[float], list[float]]:
    rows = [(row.get("step", i), row.get(key)) for i, row in enumerate(history)]
    known = [(float(x), float(y)) for x, y in rows if isinstance(y, int | float) and math.isfinite(y)]
    stride = -(-len(known) // MOST_POINTS) or 1
    known = [*known[:-1:stride], *known[-1:]]
    return [x for x, _ in known], [y for _, y in known]


def _history(axes: "Axes", quantity: str, series: dict[str, tuple[list[float], list[float]]]) -> None:
    names = {f"train_{quantity}": "training", f"val_{quantity}": "validation", quantity: ""}
    for key, (x, y) in series.items():
        color = SERIES[1] if key.startswith("val_") else SERIES[0]
        axes.plot(x, y, color=color, label=names[key], marker="o" if len(x) < 20 else "", markersize=3)
    values = [v for _, y in series.values() for v in y]
    if min(values) > 0 and max(values) > 30 * min(values):
        axes.set_yscale("log")
    axes.set_xlabel("step")
    whole_ticks(axes.xaxis)
    if len(series) > 1:
        axes.legend()
    plain_ticks(axes)


def lines(axes: "Axes", finding: Finding) -> str:
    """Any curves: lines over the first, where it increases and has their length, else few points by index."""
    curves = {name: c for name in finding.curves if (c := curve(finding, name.replace("_", " "))) is not None}
    curves = {name: c for name, c in curves.items() if c.ndim == 1}
    curves = {name: c for name, c in curves.items() if bool(c.isfinite().any())}
    if not curves:
        return ""
    first, base = next(iter(curves.items()))
    others = {name: c for name, c in curves.items() if name != first and len(c) == len(base)}
    increasing = len(base) > 1 and bool((base.diff() > 0).all())
    over = base if others and increasing else None
    for i, (name, c) in enumerate((others if over is not None else curves).items()):
        x = torch.arange(len(c)) if over is None else over
        keep = evenly(len(c), MOST_POINTS)
        apart = over is None and len(c) <= FEW_POINTS  # values of things that lie in no order
        style: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": ""} if apart else {}
        axes.plot(x[keep], c[keep], color=SERIES[i % len(SERIES)], label=name.replace("_", " "), **style)
    axes.set_xlabel(first.replace("_", " ") if over is not None else "index")
    if over is None or bool((over == over.round()).all()):
        whole_ticks(axes.xaxis)
    axes.legend()
    return f"curves: {', '.join(curves)}"


LARGEST = 96
"""Pixels on a picture's longer side; larger images are averaged down."""

MOST_FEATURES = 8
"""How many features of a row are shown."""


OF_INPUTS = ("code ", "log density", "log probability", "critic")
"""How the columns begin of what a model says of its inputs alone."""


@dataclass(frozen=True, slots=True)
class Example:
    """A hard example as text, with its picture.

    Args:
        index: Position among the held-out examples.
        picture: A PNG as data URI; "" where the input is no image.
        features: The first features of a row; () for an image or a text.
        text: The text, where it is one.
        target: The label or value it should have; "" of inputs alone.
        prediction: What the model says, with its probability; "" of inputs alone.
        loss: Its loss.
        margin: Its margin; "" without classes.
    """

    index: int
    picture: str
    features: tuple[str, ...]
    text: str
    target: str
    prediction: str
    loss: str
    margin: str

    @property
    def called(self) -> str:
        """Its row; of a text with its beginning."""
        text = self.text if len(self.text) <= LONGEST else f"{self.text[: LONGEST - 3]}..."
        return f"row {self.index}" + f" {text!r}" * bool(text)


LONGEST = 80
"""Characters of a text that a sentence shows."""


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
    told = next(iter(hardest.predictions)).startswith(OF_INPUTS)  # a label beside them is no target
    made = []
    for i in range(len(hardest)):
        x = hardest.inputs[i]
        image = x.ndim == 3 and x.shape[0] in (1, 3) and min(x.shape[1:]) > 1
        names = class_names if classes else ()
        prediction = _named(column[i], names)
        if RIGHT in hardest.predictions:
            prediction = f"right at {float(column[i]):.1%} of its places"
        if "probability" in hardest.predictions and hardest.predictions["probability"].ndim == 1:
            prediction += f" ({_probability(float(hardest.predictions['probability'][i]))})"
        target = "" if hardest.targets is None or told else _named(hardest.targets[i], names)
        made.append(
            Example(
                index=int(hardest.index[i]),
                picture=picture(x, span) if image else "",
                features=() if image or hardest.texts else _features(x),
                text=hardest.texts[i] if hardest.texts else "",
                target=target,
                prediction="" if told else prediction,
                loss=_three(float(hardest.losses[i])),
                margin="" if hardest.margins is None else _three(float(hardest.margins[i])),
            )
        )
    return made


def _features(x: Tensor) -> tuple[str, ...]:
    return tuple(exact(v) for v in x.flatten()[:MOST_FEATURES].tolist())


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


def _probability(value: float) -> str:
    """With three digits; one that is not 1 is never shown as 1."""
    return "> .999" if 0.9995 <= value < 1 else exact(round(value, 3))


def _three(value: float) -> str:
    return exact(float(f"{value:.3g}"))


def _named(value: Tensor, names: tuple[str, ...]) -> str:
    if value.numel() != 1:
        return ", ".join(exact(v) for v in value.flatten()[:MOST_FEATURES].tolist())
    number = value.item()
    if names and isinstance(number, int) and 0 <= number < len(names):
        return names[number]
    return exact(float(number))
