"""What modules are given and give back while a model runs: one writing of hooks that are always removed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn


class Call(NamedTuple):
    """One call of a module: its arguments, by place and by name, and its output."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any


@contextmanager
def capture(
    modules: Iterable[nn.Module], change: Callable[[Call], Any] = lambda call: None
) -> Iterator[list[Call]]:
    """The calls of modules within the block, in the order in which they end; the hooks go when it ends.

    Args:
        modules: Those whose calls are captured; a module that is named twice is captured once.
        change: Given each call as it ends; what it returns takes the output's place, None leaves it.

    Returns:
        A list that fills while the model runs.
    """
    calls: list[Call] = []

    def ended(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
        call = Call(module, args, kwargs, output)
        calls.append(call)
        return change(call)

    once = {id(module): module for module in modules}.values()
    handles = [module.register_forward_hook(ended, with_kwargs=True) for module in once]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
