"""Which part of what a model returns is its outputs: the first of a tuple, ``.logits``, or what is asked for.

A part is named by its path in what is returned: an index of a tuple, a key of a dict, an attribute of an
object, with a dot between one and the next ("logits", "0", "decoder.1").
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

LOGITS = "logits"
"""The name of the outputs in what the models of ``transformers`` return."""

MOST = 5
"""How many parts of what a model returns are named."""


class Read(nn.Module):
    """A module of whose outputs one part is read, the scores of the classes on the last axis.

    Args:
        model: The module.
        path: Where the part stands in what it returns; () for all of it.
        axis: The axis on which the classes stand, which becomes the last one; None: it is the last.
        single: Whether that axis holds one score, and goes.
    """

    def __init__(
        self, model: nn.Module, path: tuple[str, ...] = (), axis: int | None = None, single: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        self.path = path
        self.axis = axis
        self.single = single

    def forward(self, *inputs: Tensor) -> Any:
        """The part of what the module returns."""
        return self.laid_out(part_at(self.model(*inputs), self.path))

    def laid_out(self, outputs: Tensor) -> Tensor:
        """Outputs with the classes on the last axis, or without that axis."""
        if self.axis is None:
            return outputs
        return outputs.squeeze(self.axis) if self.single else outputs.movedim(self.axis, -1)

    def _get_name(self) -> str:
        return self.model._get_name()


def parts_of(outputs: Any) -> dict[str, Any]:
    """What a model's outputs consist of, by name: keys, indices or attributes; {} of one thing."""
    if isinstance(outputs, Mapping):
        return {str(name): part for name, part in outputs.items()}
    if isinstance(outputs, tuple | list):
        return {str(i): part for i, part in enumerate(outputs)}
    if isinstance(outputs, Tensor):
        return {}
    if is_dataclass(outputs):
        return {field.name: getattr(outputs, field.name) for field in fields(outputs)}
    return dict(getattr(outputs, "__dict__", {}))


def part_at(outputs: Any, path: tuple[str, ...]) -> Any:
    """The part at a path.

    Raises:
        ValueError: There is none.
    """
    for name in path:
        parts = parts_of(outputs)
        if name not in parts and not hasattr(outputs, name):  # a field of a named tuple, a property
            raise ValueError(f"output must name a part of what the model returns: got {name!r}{_of(outputs)}")
        outputs = parts[name] if name in parts else getattr(outputs, name)
    return outputs


def _of(outputs: Any) -> str:
    kind, parts = type(outputs).__name__, list(parts_of(outputs))
    if not parts:
        return f", and it returns one {kind}"
    more = f" and {len(parts) - MOST} more" if len(parts) > MOST else ""
    return f" of a {kind} of {', '.join(parts[:MOST])}{more}"


def path_of(returned: Any, rows: int, output: str | int | None, assumed: list[str]) -> tuple[str, ...]:
    """The path of the outputs in what a model returned; () where that is one tensor, or has no such part.

    Args:
        returned: What the model returned.
        rows: The number of examples: outputs have a row for each.
        output: Which part is meant; None: the obvious one.
        assumed: Where it is said which one is taken.

    Raises:
        ValueError: There is no such part, or several are as obvious.
    """
    if output is not None:
        path = tuple(str(output).split("."))
        if not isinstance(part := part_at(returned, path), Tensor):
            raise ValueError(f"output must name a tensor: {output!r} is of type {type(part).__name__}")
        return path
    name = _obvious(returned, rows)
    if name is None:
        return ()
    others, whole = [other for other in parts_of(returned) if other != name], type(returned).__name__
    more = f" and {len(others) - MOST} more" if len(others) > MOST else ""
    beside = f", which also holds {', '.join(others[:MOST])}{more}; output names another" if others else ""
    assumed.append(f"outputs: {name} of the {whole} that the model returns{beside}")
    return (name,)


def _obvious(returned: Any, rows: int) -> str | None:
    """The part that is meant without a word: ``logits``, the first of a tuple, the only one of a dict.

    Args:
        returned: What the model returned.
        rows: The number of examples: a part has a row for each.

    Raises:
        ValueError: Several parts may be meant, and none is called logits.
    """

    def is_one(part: Any) -> bool:
        return isinstance(part, Tensor) and not part.is_nested and part.ndim > 0 and len(part) == rows

    if isinstance(returned, Tensor):
        return None
    if is_one(getattr(returned, LOGITS, None)):  # of a named tuple, or a property
        return LOGITS
    parts = [name for name, part in parts_of(returned).items() if is_one(part)]
    if LOGITS in parts:
        return LOGITS
    if isinstance(returned, tuple | list) or len(parts) <= 1:
        return next(iter(parts), None)
    raise ValueError(
        f"the model returns a {type(returned).__name__} of {', '.join(parts[:MOST])}, any of which may be "
        f"its outputs: name one by output ({parts[0]!r}), --output on the command line"
    )
