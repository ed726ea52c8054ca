"""A sheet of what each augmentation does to one's own samples: images, curves, or clouds of points."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from margin.core.types import Examples
from margin.data.files.writing import whole_file
from margin.data.transforms.augmentation import Kind, augmented, kind_of_inputs, transforms_of
from margin.math.evenly import evenly
from margin.math.seeds import mix

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, COLOR = "#333333", "#1f77b4"
MOST_CURVES = 4
"""Features of a sequence that are drawn."""

Drawing = Callable[["Axes", Tensor, tuple[float, float]], None]


def augmentation_sheet(
    examples: Examples,
    words: Sequence[str],
    spec: Mapping[str, Any],
    file: str | os.PathLike[str],
    *,
    count: int = 10,
    seed: int = 0,
) -> Path:
    """Write a PNG: a column a sample, a row a transform; first as it is, last under all of them together.

    Args:
        examples: Samples in the user's units.
        words: Transforms, as :func:`margin.data.transforms.augmentation.transforms_of` reads them.
        spec: What the data dictate.
        file: Where the picture goes; its folder exists.
        count: Samples, evenly spaced through the examples, >= 1.
        seed: Seed of the draws.

    Returns:
        The path of the picture.

    Raises:
        ValueError: A word does not fit, there are no examples, or ``count`` is out of range.
    """
    if count < 1 or not len(examples):
        raise ValueError(f"a sheet needs examples: got {len(examples)}, of which {count} are to be shown")
    kind, transforms = kind_of_inputs(spec), transforms_of(words, spec)
    index = evenly(len(examples), count)
    rows = {"as it is": (), **{word: (transform,) for word, transform in zip(words, transforms, strict=True)}}
    if len(words) > 1:
        rows["all of them"] = transforms
    shown = {
        name: augmented(examples, some).take(index, Generator().manual_seed(mix(seed, 6))).inputs[0]
        for name, some in rows.items()
    }
    targets = examples.take(index, Generator().manual_seed(0)).targets
    return _written(shown, _labels(targets, len(index)), kind, Path(file))


def _labels(targets: Tensor | None, count: int) -> list[str]:
    if targets is None or targets.ndim != 1:
        return [""] * count
    return [f"{target:.3g}" for target in targets.tolist()]


def _written(shown: Mapping[str, Tensor], labels: Sequence[str], kind: Kind, path: Path) -> Path:
    from matplotlib.figure import Figure

    wide = 0.9 if kind in ("images", "points") else 1.5
    figure = Figure(
        figsize=(1.3 + wide * len(labels), 0.3 + 0.95 * len(shown)), layout="constrained", dpi=120
    )
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.01)  # type: ignore[union-attr, call-arg]
    axes = figure.subplots(len(shown), len(labels), squeeze=False)
    # pixels outside of the images' own range are shown at its ends
    seen = [shown["as it is"]] if kind == "images" else [*shown.values()]
    together = torch.cat([x.double() for x in seen])
    span = (together.min().item(), together.max().item())
    draw = DRAWINGS[kind]
    for row, (name, samples) in enumerate(shown.items()):
        axes[row, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9, color=INK, labelpad=6)
        for column, sample in enumerate(samples.double()):
            pad = axes[row, column]
            draw(pad, sample, span)
            pad.set_xticks([])
            pad.set_yticks([])
            for spine in pad.spines.values():
                spine.set(color="#cccccc", linewidth=0.6)
            if row == 0:
                pad.set_title(labels[column], fontsize=9, color=INK, pad=3)
    with whole_file(path) as file:
        figure.savefig(file, format="png")
    return path


def _image(axes: "Axes", sample: Tensor, span: tuple[float, float]) -> None:
    low, high = span
    shade = (sample - low) / ((high - low) or 1.0)
    if len(shade) != 3:
        shade = shade.mean(0, keepdim=True).expand(3, -1, -1)
    axes.imshow(shade.clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")


def _curves(axes: "Axes", sample: Tensor, span: tuple[float, float]) -> None:
    axes.plot(sample.reshape(len(sample), -1)[:, :MOST_CURVES].numpy(), linewidth=0.8)
    axes.set_ylim(*_around(span))


def _cloud(axes: "Axes", sample: Tensor, span: tuple[float, float]) -> None:
    axes.scatter(sample[:, 0].numpy(), sample[:, 1].numpy(), s=2, color=COLOR, linewidths=0)
    axes.set_xlim(*_around(span))
    axes.set_ylim(*_around(span))
    axes.set_aspect("equal")


def _bars(axes: "Axes", sample: Tensor, span: tuple[float, float]) -> None:
    axes.bar(range(len(sample)), sample.numpy(), color=COLOR)
    axes.set_ylim(*_around(span))


def _around(span: tuple[float, float]) -> tuple[float, float]:
    room = 0.05 * ((span[1] - span[0]) or 1.0)
    return span[0] - room, span[1] + room


DRAWINGS: Mapping[Kind, Drawing] = {
    "images": _image,
    "sequences": _curves,
    "points": _cloud,
    "vectors": _bars,
}
"""How a sample of each kind is drawn."""
