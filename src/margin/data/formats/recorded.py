"""New arrays by the record of a finished run: files of arrays, IDX files, pairs in memory.

They must have the shape, the classes and the task of the run's own.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from margin.data.arrays import MOST_BYTES, fit_shape, inputs_of, known_targets, load_arrays
from margin.data.examples import Arrays
from margin.data.files.archives import array_in
from margin.data.files.mapped import Mapped, checked
from margin.data.formats.images.idx import labels_beside, read_idx, read_pairs


def encode_pair(pair: Any, encoding: Mapping[str, Any], name: str = "arrays", *, copy: bool = True) -> Arrays:
    """Inputs and targets ``(x, y)``, or ``(x, None)``; without ``copy`` perhaps the very inputs.

    Raises:
        ValueError: The shape differs, a label is out of range or unknown, or a number is not finite.
    """
    x, y = pair
    dtype = getattr(torch, encoding["dtype"])
    inputs = fit_shape(inputs_of(x, name, copy=copy), encoding["shape"], name).to(dtype)
    if y is None:
        return Arrays((inputs,))
    targets = known_targets(y, len(inputs), name, encoding["task"], encoding["classes"])
    return Arrays((inputs,), targets.to(dtype) if encoding["task"] == "values" else targets)


def encode_file(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Arrays | Mapped:
    """A file of arrays; where there is an official test part, that part.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: As :func:`encode_pair`.
    """
    path = Path(source)
    found = load_arrays(path, mapped=True)
    if path.suffix == ".npy":
        if found["x"].nbytes > MOST_BYTES:
            return _mapped(found["x"], found.get("y"), encoding, str(source))
        found["x"] = array_in(path)
    part = "_test" if "x_test" in found else ""
    return encode_pair((found[f"x{part}"], found.get(f"y{part}")), encoding, str(source), copy=False)


def _mapped(x: NDArray[Any], y: Any, encoding: Mapping[str, Any], name: str) -> Mapped:
    """Inputs that are read when they are taken, each checked once before."""
    fit_shape(checked(x, name)[0], encoding["shape"], name)
    dtype, targets = getattr(torch, encoding["dtype"]), None
    if y is not None:
        targets = known_targets(y, len(x), name, encoding["task"], encoding["classes"])
        targets = targets.to(dtype) if encoding["task"] == "values" else targets
    return Mapped(x, torch.arange(len(x)), targets, dtype)


def encode_idx(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Arrays:
    """IDX images, their labels if these lie beside them; of a folder of the four files the test part.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: As :func:`encode_pair`.
    """
    path = Path(source)
    if path.is_dir() or labels_beside(path).is_file():
        pairs = read_pairs(path)
        return encode_pair(pairs.get("test", pairs["train"]), encoding, str(path))
    return encode_pair((read_idx(path), None), encoding, str(path))
