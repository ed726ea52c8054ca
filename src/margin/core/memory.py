"""The memory that is asked for, counted before it is allocated."""

import math
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

MODULE = 2**12
"""Bytes that each tensor takes at least, with the Python objects around it."""

_aten = torch.ops.aten
_OF_SIZE = (_aten.empty, _aten.zeros, _aten.ones, _aten.full, _aten.rand, _aten.randn, _aten.empty_strided)


def memory_here() -> float:
    """The memory of this machine in bytes; infinite where it does not tell."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return math.inf
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


class Room(TorchDispatchMode):
    """A context in which no more memory is asked for than there is room.

    Every tensor that is made of nothing counts, and none is made that would not fit.

    Args:
        size: Bytes in all.
        of: Whose room it is, for the message.
    """

    def __init__(self, size: float, of: str = "this machine has") -> None:
        super().__init__()
        self.size = size
        self.of = of
        self.taken = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: no module is compiled within, and to be skipped torch's compiler would first be imported."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count what is asked for, then do it.

        Raises:
            ValueError: It does not fit.
        """
        given = kwargs or {}
        if shape := _shape_of(func.overloadpacket, args):
            dtype = given.get("dtype") or torch.get_default_dtype()
            asked = math.prod(shape) * dtype.itemsize
            self.taken += max(asked, MODULE)
            if self.taken > self.size:
                what = "x".join(map(str, shape))
                raise ValueError(
                    f"the model must fit into memory: it asks for {byte_size(self.taken)}, "
                    f"{byte_size(asked)} of them for a tensor of {what}; {self.of} {byte_size(self.size)}"
                )
        return func(*args, **given)


def _shape_of(packet: Any, args: Sequence[Any]) -> tuple[int, ...]:
    """The shape of the tensor that a call makes of nothing; () where it makes none."""
    if packet in _OF_SIZE and args and isinstance(args[0], Sequence):
        return tuple(args[0])
    if packet is _aten.randperm:
        return (args[0],)
    if packet is _aten.eye:
        return (args[0], args[-1])
    if packet is _aten.arange:
        numbers = [x for x in args if isinstance(x, int | float)]
        first, last, step = (0, *numbers, 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        return (max(0, math.ceil((last - first) / step)),) if step else ()
    return ()


def byte_size(size: float) -> str:
    """A number of bytes for a person."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.4g} {unit}"
        size /= 1024
    raise AssertionError
