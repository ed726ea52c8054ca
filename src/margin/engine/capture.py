"""Forward hooks, written once and always removed: what modules are given and give back, which are running."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn


class Call(NamedTuple):
    """One call of a module: its arguments, by place and by name, and its output."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any


def _nothing(module: nn.Module, args: tuple[Any, ...]) -> None:
    pass


@contextmanager
def hooked(
    modules: Iterable[nn.Module],
    leave: Callable[[Call], Any],
    enter: Callable[[nn.Module, tuple[Any, ...]], None] = _nothing,
) -> Iterator[None]:
    """Forward hooks on modules within the block; they go when it ends, whatever happens.

    Args:
        modules: Those that are watched; a module that is named twice is watched once.
        leave: Given each call as it ends; what it returns takes the output's place, None leaves it.
        enter: Given each module as it begins, with its arguments by place.
    """

    def ended(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
        return leave(Call(module, args, kwargs, output))

    once = list({id(module): module for module in modules}.values())
    handles = [module.register_forward_pre_hook(enter) for module in once]
    handles += [module.register_forward_hook(ended, with_kwargs=True) for module in once]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def running(
    model: nn.Module,
    layers: list[tuple[str, str]],
    entered: Callable[[nn.Module], None] = lambda module: None,
) -> Iterator[None]:
    """Keep the path and kind of the layers that are being run, outermost first, within the block.

    After an error those are left in which it came: see :func:`place_of`.

    Args:
        model: Its submodules are watched.
        layers: Where they are written.
        entered: Given each layer once it is written.
    """
    paths = {module: path for path, module in model.named_modules()}

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        layers.append((paths[module], type(module).__name__))
        entered(module)

    def leave(call: Call) -> None:
        layers.pop()

    with hooked(paths, leave, enter):
        yield


def place_of(layers: Sequence[tuple[str, str]]) -> str:
    """The innermost layer, in words.

    Args:
        layers: Path and kind of those that are being run.
    """
    path, kind = layers[-1] if layers else ("", "what reads its outputs")
    return f"{f'layer {path!r}' if path else 'the model itself'} ({kind})"


def leaves(value: Any) -> Iterator[Any]:
    """The values in nested arguments: dictionaries, lists and tuples are opened."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


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

    def ended(call: Call) -> Any:
        calls.append(call)
        return change(call)

    with hooked(modules, ended):
        yield calls
