"""A model behind its preprocessing: the user's units outside, the model's inside; its device and type."""

from typing import Any

import torch
from torch import Tensor, nn


class Preprocessed(nn.Module):
    """A model behind the map from the user's units to its own: outcome(model(preprocess(x), *rest)).

    Args:
        preprocess: Maps the first input; fitted on the training part.
        model: The catalog's model.
        outcome: From the model's output back to the user's units; None: it is in them.
    """

    def __init__(self, preprocess: nn.Module, model: nn.Module, outcome: nn.Module | None = None) -> None:
        super().__init__()
        self.preprocess: nn.Module = preprocess
        self.model: nn.Module = model
        self.outcome: nn.Module | None = outcome

    def forward(self, x: Any, *rest: Any) -> Any:
        """The model's outputs for inputs in the user's units."""
        found = self.model(self.preprocess(x), *rest)
        return found if self.outcome is None else self.outcome(found)


def core_of(model: nn.Module) -> Any:
    """The catalog's model, without the preprocessing in front of it."""
    return model.model if isinstance(model, Preprocessed) else model


def features_of(model: nn.Module, x: Tensor) -> Tensor:
    """An input as the catalog's model sees it."""
    return model.preprocess(x) if isinstance(model, Preprocessed) else x


def device_of(model: nn.Module) -> torch.device:
    """The device of a module's first parameter or buffer; the CPU where it has none."""
    tensor = next(model.parameters(), next(model.buffers(), None))
    return torch.device("cpu") if tensor is None else tensor.device


def dtype_of(model: nn.Module) -> torch.dtype:
    """The real type of a module's first floating parameter or buffer; float32 where it has none."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32
