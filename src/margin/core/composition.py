"""A body and a head as one constructor: what the data dictate and what a user chooses, of both, told once.

A body (a recurrence, a stack of layers) serves several tasks; a head reads its outputs as classes, values or
tokens. Written out, every pair would repeat the options of both.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

POSITIONAL, REQUIRED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty

ARGUMENT = re.compile(r"^    (?:    )?(\w+): ", re.MULTILINE)
"""The beginning of an argument in a docstring's section ``Args``."""


def headed(
    body: Callable[..., Any],
    head: Callable[..., Any],
    summary: str,
    *,
    defaults: Mapping[str, Any] | None = None,
    body_size: str = "",
    dictated: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Callable[..., Any]:
    """The constructor of a model: ``head(body(*sizes, **own), *dictated, **own)``.

    Its positional parameters are those that the data dictate to either, the body's first; its keyword-only
    ones are the options of both. An option that both have, as ``dropout``, is given to both.

    Args:
        body: Positional parameters, the sizes of an input, and keyword-only options.
        head: The body first, then what the data dictate, then keyword-only options.
        summary: First sentence of its docstring.
        defaults: Options whose default, or fixed value, is another than body and head state.
        body_size: Name of an option that is the body's one input size, as the length of token vectors, in
            place of a positional parameter.
        dictated: Options of either that the data dictate here, as ``num_classes`` of a conditional model:
            positional parameters, after the others.
        without: Options that keep their default and cannot be chosen, as ``num_classes`` of a model without
            classes; "head.dropout" is that of the head alone, where the body's is an option.

    Raises:
        ValueError: A default is of no option.
    """
    inner, outer = (_by_kind(function) for function in (body, head))
    changed, of_head = dict(defaults or {}), {f"head.{name}": p for name, p in outer[1].items()}
    if unknown := {*changed, *dictated, *without} - {*inner[1], *outer[1], *of_head, body_size}:
        raise ValueError(f"defaults must be of options of body or head: got {', '.join(sorted(unknown))}")
    outer = outer[0], {p.name: p for name, p in of_head.items() if name not in without}
    sizes, options = inner[0], {**inner[1], **outer[1]}
    given = [options.pop(name).replace(kind=POSITIONAL, default=REQUIRED) for name in dictated]
    options = {name: option for name, option in options.items() if name not in without}
    if body_size:
        (size,) = sizes
        options = {body_size: size.replace(name=body_size, kind=size.KEYWORD_ONLY), **options}
    fixed = {name: changed.pop(name) for name in without if name in changed}
    for name, value in changed.items():
        options[name] = options[name].replace(default=value)

    def _build(*values: Any, **chosen: Any) -> Any:
        bound = signature.bind(*values, **chosen)
        bound.apply_defaults()
        value = fixed | bound.arguments
        first = [value[body_size or size.name] for size in sizes]
        own, others = ({name: value[name] for name in kind[1] if name in value} for kind in (inner, outer))
        return head(body(*first, **own), *(value[p.name] for p in outer[0][1:]), **others)

    positional = [*([] if body_size else sizes), *outer[0][1:], *given]
    made = head if isinstance(head, type) else inspect.signature(head, eval_str=True).return_annotation
    signature = inspect.Signature([*positional, *options.values()], return_annotation=made)
    told = {**_arguments(head), **_arguments(body)}
    if body_size:
        told[body_size] = told.get(body_size, told.get(sizes[0].name, ""))
    lines = [f"    {name}: {told[name]}" for name in signature.parameters if told.get(name)]
    _build.__doc__ = "\n".join([summary, "", "Args:", *lines])
    _build.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()} | {"return": made}
    _build.__signature__ = signature  # type: ignore[attr-defined]
    return _build


def _by_kind(function: Callable[..., Any]) -> tuple[list[inspect.Parameter], dict[str, inspect.Parameter]]:
    """The positional parameters, and the keyword-only ones by name."""
    every = inspect.signature(function).parameters.values()
    chosen = {p.name: p for p in every if p.kind is p.KEYWORD_ONLY}
    return [p for p in every if p.name not in chosen], chosen


def _arguments(function: Callable[..., Any]) -> dict[str, str]:
    """The sentence on each argument, from a docstring's section ``Args``."""
    text = inspect.getdoc(function) or ""
    section = text.partition("Args:\n")[2].split("\n\n")[0]
    pieces = ARGUMENT.split(section)
    return {name: " ".join(said.split()) for name, said in zip(pieces[1::2], pieces[2::2], strict=True)}
