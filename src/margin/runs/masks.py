"""Predicted masks: a class for every pixel, in the size of each image, written as the run's own masks are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from PIL import Image
from torch import Generator, Tensor

from margin.core.catalog import resolve
from margin.core.tasks import PIXEL_CLASSES
from margin.data.examples import Arrays
from margin.data.formats.images.images import header_of
from margin.data.formats.images.mask_pairs import Pairs, joined, nearest
from margin.data.open import encode
from margin.data.source import Source
from margin.engine.evaluation import eval_mode
from margin.engine.runs import Run, load
from margin.nn.preprocessed import dtype_of
from margin.runs.run_data import held_out, is_own


class PredictedMask(NamedTuple):
    """The classes of the pixels of an image.

    Args:
        name: Its file, or its place among the held-out examples where it has none.
        labels: The class of each pixel.
    """

    name: str
    labels: Int[Tensor, "height width"]


def predicts_masks(run: Run) -> bool:
    """Whether a run's model tells a class for every pixel."""
    return resolve(run.entry.task) is PIXEL_CLASSES


def predicted_masks(run: Run, data: Any) -> Iterator[PredictedMask]:
    """The masks of images, one after another, each in its own size.

    Args:
        run: A training with at least one checkpoint, on images with masks.
        data: One image, a folder of images, arrays of them, or with masks, which are not needed; the run's
            own source is the part that it held out.

    Raises:
        ValueError: The data do not fit the run.
    """
    source = Source.of(data)
    named = is_own(run, source) and not Path(source.bare).exists()
    examples = held_out(run) if named else encode(source, run.record["data"]["encoding"])
    if not isinstance(examples, Pairs | Arrays):
        raise ValueError(f"masks are predicted of images, in files or arrays: got {source.called}")
    model = load(run)
    files = examples.files if isinstance(examples, Pairs) else ()
    tiles = examples.tiles if isinstance(examples, Pairs) else None
    count = len(files or examples) if tiles is None else int(tiles[-1, 0]) + 1
    for i in range(count):
        own = torch.tensor([i]) if tiles is None else (tiles[:, 0] == i).nonzero()[:, 0]
        answers = []
        with torch.no_grad(), eval_mode(model):
            for k in own.split(examples.evaluation_batch):
                x = examples.take(k, Generator()).inputs[0].to(dtype_of(model))
                answers += [*model(x).argmax(-1)]
        labels = answers[0]
        if isinstance(examples, Pairs) and tiles is not None:
            pixels = examples.pair(i)[0]
            labels = joined(tiles[own], answers, (pixels.shape[1], pixels.shape[2]))
        if isinstance(examples, Pairs) and files and examples.reading.resize is not None:
            labels = nearest(labels, header_of(files[i][0]).size)
        yield PredictedMask(str(files[i][0]) if files else str(i), labels)


def mask_shares(run: Run, data: Any, out: str | Path = "") -> dict[str, list[Any]]:
    """The share of each class in the predicted mask of each image; the masks themselves as files.

    Args:
        run: As :func:`predicted_masks`.
        data: As :func:`predicted_masks`.
        out: A folder that is made, in which a PNG of each image's own name holds the values or colors of the
            masks that the run was trained on; "" writes none.

    Raises:
        FileExistsError: There is something at ``out``.
        ValueError: The data do not fit the run, or two images have one name.
    """
    encoding = run.record["data"]["encoding"]
    names, folder = [str(name) for name in encoding["classes"]], Path(out) if out else None
    if folder is not None and folder.exists():
        raise FileExistsError(f"{folder} exists: choose another --out")
    columns: dict[str, list[Any]] = {"file": [], **({"mask": []} if out else {})}
    columns |= {f"share of {name}": [] for name in names}
    for mask in predicted_masks(run, data):
        columns["file"].append(mask.name)
        counts = mask.labels.flatten().bincount(minlength=len(names)).double() / mask.labels.numel()
        for name, share in zip(names, counts.tolist(), strict=True):
            columns[f"share of {name}"].append(share)
        if folder is not None:
            place = folder / f"{Path(mask.name).stem}.png"
            if place.exists():
                raise ValueError(f"{mask.name}: every image must have a name of its own: {place} is written")
            folder.mkdir(parents=True, exist_ok=True)
            picture_of(mask.labels, encoding["values"]).save(place)
            columns["mask"].append(str(place))
    return columns


def picture_of(labels: Int[Tensor, "height width"], values: list[list[int]]) -> Image.Image:
    """A mask as an image: the value of each class, gray of 8 or 16 bits, or its color."""
    table = np.array(values)
    pixels = table[labels.cpu().numpy()]
    if table.shape[1] == 3:
        return Image.fromarray(pixels.astype(np.uint8))
    return Image.fromarray(pixels[..., 0].astype(np.uint8 if table.max() < 256 else np.uint16))
