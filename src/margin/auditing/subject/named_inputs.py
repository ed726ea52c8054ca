"""Inputs by name: batches that are dicts, as the models of ``transformers`` take them.

``{"input_ids": ..., "attention_mask": ..., "labels": ...}``: what ``forward`` has no parameter for is left
out, but for the target.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

TARGETS = ("labels", "label", "targets", "target", "y")
"""Names of what is to be predicted, the likeliest first."""


class ByName(nn.Module):
    """A module that is given its inputs by name.

    Args:
        model: The module.
        names: The names of its inputs, in their order.
    """

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: Tensor) -> Any:
        """What the module returns."""
        return self.model(**dict(zip(self.names, inputs, strict=True)))

    def _get_name(self) -> str:
        return self.model._get_name()


class Naming:
    """How dicts become inputs and targets of one model: the same for all that it is given.

    Args:
        model: The module whose ``forward`` names what it takes.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.inputs: tuple[str, ...] = ()
        self.target = ""
        self._left_out: dict[str, None] = {}

    def columns(self, given: Any, where: str) -> Any:
        """Inputs in the order of ``forward``, then the target, of a dict; anything else as it is.

        Raises:
            ValueError: There is no target or no input among the names, or others than before.
        """
        if not isinstance(given, Mapping):
            if self.inputs:
                raise ValueError(f"{where} must be a dict, as the data before: got {type(given).__name__}")
            return given
        target = next((name for name in TARGETS if name in given), "")
        if not target:
            raise ValueError(
                f"{where}: the target must have one of the names {', '.join(TARGETS)}: got {', '.join(given)}"
            )
        inputs = self._taken(given)
        if not inputs:
            raise ValueError(
                f"{where}: forward of {self._model._get_name()} takes none of {', '.join(given)} as an input"
            )
        if self.inputs and (inputs, target) != (self.inputs, self.target):
            raise ValueError(
                f"{where} must have the names of the data before, {', '.join((*self.inputs, self.target))}: "
                f"got {', '.join(given)}"
            )
        self.inputs, self.target = inputs, target
        self._left_out |= dict.fromkeys(str(name) for name in given if name not in (*inputs, target))
        return (*(given[name] for name in inputs), given[target])

    def _taken(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """The names that ``forward`` takes, in its order; all of them where it takes any."""
        parameters = inspect.signature(self._model.forward).parameters
        taken = [name for name in parameters if name in given and name not in TARGETS]
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
            taken += [n for n in given if n not in (*taken, *TARGETS) and isinstance(given[n], Tensor)]
        return tuple(taken)

    def asked(self, assumed: list[str]) -> nn.Module:
        """The model, given its inputs by name where the data had names; how they were read is said."""
        if not self.inputs:
            return self._model
        left = f"; left out: {', '.join(self._left_out)}" if self._left_out else ""
        assumed.append(f"data by name: inputs {', '.join(self.inputs)}, target {self.target}{left}")
        return ByName(self._model, self.inputs)
