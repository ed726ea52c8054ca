"""A body and a head as one constructor: what the data dictate and what a user chooses, of both, told once.

A body (a recurrence, a stack of layers) serves several tasks; a head reads its outputs as classes, values or
tokens. Written out, every pair would repeat the options of both.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

ARGUMENT = re.compile(r"^    (?:    )?(\w+): ", re.MULTILINE)
"""The beginning of an argument in a docstring's section ``Args``."""


def headed(
    body: Callable[..., Any],
    head: Callable[..., Any],
    summary: str,
    *,
    defaults: Mapping[str, Any] | None = None,
    body_size: str = "",
) -> Callable[..., Any]:
    """The constructor of a model: ``head(body(size, **own), *dictated, **own)``.

    Its positional parameters are those that the data dictate to either, the body's first one among them
    unless an option gives it; its keyword-only ones are the options of both. An option that both have, as
    ``dropout``, is given to both.

    Args:
        body: One positional parameter, its input size, and keyword-only options.
        head: The body first, then what the data dictate, then keyword-only options.
        summary: First sentence of its docstring.
        defaults: Options whose default is another than body and head state.
        body_size: Name of an option that is the body's input size, as the length of token vectors, in place
            of a positional parameter.

    Raises:
        ValueError: A default is of no option.
    """
    inner, outer = inspect.signature(body).parameters, inspect.signature(head).parameters
    size, *rest = inner.values()
    _, *dictated = (p for p in outer.values() if p.kind is not p.KEYWORD_ONLY)
    options = {p.name: p for p in (*rest, *(p for p in outer.values() if p.kind is p.KEYWORD_ONLY))}
    changed = dict(defaults or {})
    if unknown := set(changed) - set(options) - {body_size}:
        raise ValueError(f"defaults must be of options of body or head: got {', '.join(sorted(unknown))}")
    if body_size:
        options = {body_size: size.replace(name=body_size, kind=size.KEYWORD_ONLY), **options}
    for name, value in changed.items():
        options[name] = options[name].replace(default=value)
    positional = [*([] if body_size else [size]), *dictated]

    def build(*given: Any, **chosen: Any) -> Any:
        bound = signature.bind(*given, **chosen)
        bound.apply_defaults()
        values = bound.arguments
        first = values[body_size or size.name]
        own = {p.name: values[p.name] for p in rest}
        others = {name: values[name] for name in options if name in outer}
        return head(body(first, **own), *(values[p.name] for p in dictated), **others)

    signature = inspect.Signature([*positional, *options.values()])
    told = {**_arguments(head), **_arguments(body)}
    if body_size:
        told[body_size] = told.get(body_size, told.get(size.name, ""))
    lines = [f"    {name}: {told[name]}" for name in signature.parameters if told.get(name)]
    build.__doc__ = "\n".join([summary, "", "Args:", *lines])
    build.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    build.__signature__ = signature  # type: ignore[attr-defined]
    return build


def _arguments(function: Callable[..., Any]) -> dict[str, str]:
    """The sentence on each argument, from a docstring's section ``Args``."""
    text = inspect.getdoc(function) or ""
    section = text.partition("Args:\n")[2].split("\n\n")[0]
    pieces = ARGUMENT.split(section)
    return {name: " ".join(said.split()) for name, said in zip(pieces[1::2], pieces[2::2], strict=True)}
