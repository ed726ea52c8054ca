"""Images with masks as arrays: inputs (N, C, H, W) or (N, H, W), targets (N, H, W), the class of each pixel.

Every value of a mask is a class; 255 beside indices means "no class", as in files of masks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from margin.data.arrays import Array, as_numpy
from margin.data.assembly import assemble, cut, raw_arrays, with_groups
from margin.data.examples import Arrays, Data, fingerprint
from margin.data.formats.images.mask_files import UNLABELED, ClassTable, table_of_values
from margin.data.splits import Split

TASK = "pixel_classes"


def are_masks(x: Array, y: Array | None) -> bool:
    """Whether targets have rows and columns, as a class for every pixel of images has."""
    try:
        return y is not None and len(np.shape(x)) in (3, 4) and len(np.shape(y)) in (3, 4)
    except ValueError:  # rows of several lengths, which whoever reads them refuses
        return False


def masked_images(  # more than 7 parameters: they are those of the sources of arrays
    name: str,
    x: Array,
    y: Array,
    *,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
    test_arrays: tuple[Array, Array] | None = None,
    groups: Array | None = None,
    classes: Sequence[str] = (),
) -> Data:
    """The Data of images and masks; see :func:`margin.data.formats.arrays.sources.from_arrays`.

    Raises:
        ValueError: Shapes do not fit, or masks hold what are no classes.
    """
    official = None if test_arrays is None else (test_arrays[0], None)
    raw = raw_arrays(name, x, None, task="none", domain=domain, test_arrays=official)
    size = tuple(raw.inputs.shape[2:])
    held = masks_of(y, len(raw.inputs), size, name)
    table = table_of_values(np.unique(held).tolist(), None, name)
    if classes and len(classes) != len(table.names):
        raise ValueError(f"{name}: every class needs a name: got {len(classes)} for {len(table.names)}")
    table = replace(table, names=tuple(classes) or table.names)
    raw, parts = with_groups(raw, groups, split)
    if parts is None:
        own = {} if test_arrays is None else {"test": None}
        parts, _ = cut(name, raw.inputs, "none", split, own=own)
    data = assemble(raw, split, parts)
    masks = {part: held[index.numpy()] for part, index in parts.items()}
    if test_arrays is not None:
        masks["test"] = masks_of(test_arrays[1], len(test_arrays[0]), size, f"{name}, test part")
    splits = {part: labeled(data.splits[part], masks[part], table, name) for part in data.splits}
    shown = ", ".join(table.names)
    ignored = "; 255 is no class" if table.ignored else ""
    return replace(
        data,
        splits=splits,
        spec={**data.spec, "num_classes": len(table.names)},
        encoding={
            **data.encoding,
            "task": TASK,
            "classes": list(table.names),
            "values": [list(value) for value in table.values],
            "ignored": [list(value) for value in table.ignored],
        },
        fingerprint=fingerprint(splits),
        notes=(*data.notes, f"targets of the images' rows and columns are masks of {shown}{ignored}"),
    )


def masks_of(y: Array, count: int, size: Sequence[int], name: str) -> NDArray[np.int64]:
    """Checked masks (N, H, W) of so many images of a size; one channel may be there.

    Raises:
        ValueError: The shape is another, or a number is not whole, or is negative.
    """
    found = as_numpy(y, name, "masks")
    if found.ndim == 4 and found.shape[1] == 1:
        found = found[:, 0]
    if found.shape != (count, *size):
        wanted = ", ".join(map(str, (count, *size)))
        raise ValueError(f"{name}: masks must have the shape of their images, ({wanted}): got {np.shape(y)}")
    if found.dtype.kind == "U" or bool((found != np.round(found)).any()) or bool((found < 0).any()):
        raise ValueError(f"{name}: masks must hold classes, whole numbers from 0: got other {found.dtype}")
    return found.astype(np.int64)


def labeled(images: Any, held: NDArray[np.int64], table: ClassTable, name: str) -> Arrays:
    """The examples with the class of each pixel, and no weight where it has none."""
    codes: list[UInt8[Tensor, "height width"]] = [
        table.of(mask, f"{name}, mask {i}") for i, mask in enumerate(held)
    ]
    every = torch.stack(codes).long()
    weight = (every != UNLABELED).to(images.inputs[0].dtype) if table.ignored else None
    return replace(images, targets=torch.where(every == UNLABELED, 0, every), weight=weight)


def labeled_as(images: Arrays, y: Array | None, encoding: Mapping[str, Any], name: str) -> Arrays:
    """New images with their masks, by the record of a run; without masks the images alone.

    Raises:
        ValueError: As :func:`masks_of`, or a mask holds a class that the run does not know.
    """
    if y is None:
        return images
    values, ignored = (tuple(map(tuple, encoding[key])) for key in ("values", "ignored"))
    table = ClassTable(values, tuple(encoding["classes"]), ignored)
    size = images.inputs[0].shape[2:]
    return labeled(images, masks_of(y, len(images), size, name), table, name)
