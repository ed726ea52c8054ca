"""The map from the user's units to the model's, where another one than the source's own is asked for."""

from dataclasses import replace
from typing import Literal

import torch
from torch import nn

from margin.data.examples import Data
from margin.data.preprocess import Standardize

Scale = Literal["standard", "unit", "symmetric", "none"]


def rescaled(data: Data, scale: Scale | None) -> Data:
    """The data with the map that is asked for in front of the model.

    ============ ============================================================
    standard     the source's own: mean 0 and variance 1 in the training part
    unit         the domain of an input to [0, 1]
    symmetric    the domain of an input to [-1, 1]
    none         inputs as they are
    ============ ============================================================

    Args:
        data: From a source.
        scale: Which map; None, of a record from before there was a choice, is standard.

    Raises:
        ValueError: The map needs the domain of an input, and none is known.
    """
    if scale in (None, "standard"):
        return data
    if scale == "none":
        return replace(data, preprocess=nn.Identity())
    if data.domain is None:
        raise ValueError(
            f"scale {scale} needs the least and the largest value of an input, which are not known of "
            f"{data.name}: set --data.domain low,high, or --scale none where they are in range already"
        )
    low, high = torch.broadcast_tensors(data.domain.low.double(), data.domain.high.double())
    middle = low if scale == "unit" else (low + high) / 2
    return replace(data, preprocess=Standardize(middle.clone(), high - middle))
