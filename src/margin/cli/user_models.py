"""``margin train package.module:Net DATA``: a user's own module on the command line, its task, its loss."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from margin.cli.help import Options
from margin.cli.parsing import taken_out
from margin.core.catalog import Entry, find, models, user_options
from margin.core.user_modules import TASKS, builder_of, is_user_model, named_object, source_of, user_entry
from margin.data.source import Source, prefixes

CLASS_TASKS = ("classes", "binary", "multilabel", "scores", "halfspace")
"""The tasks of a user's own module whose targets are read as classes."""


def is_own(model: str) -> bool:
    """Whether a model is the path of a module of the user's own, ``package.module:name``."""
    prefix, _, rest = model.partition(":")
    is_file = prefix in prefixes() and (Path(rest).exists() or not Path(f"{prefix}.py").exists())
    return is_user_model(model) and not is_file


def entry_named(model: str) -> Entry:
    """The entry of a name, or the user's own module as one, whose task is not known yet.

    Raises:
        BuilderError: The user's code raises.
        ValueError: There is none.
    """
    if not is_own(model):
        return find(models(), model, "model")
    target = named_object(model)
    return user_entry(model, builder_of(target, model), place=source_of(target)[0])


def stated(
    model: str, source: Source, words: Sequence[str], base: Mapping[str, Any]
) -> tuple[tuple[str, ...], str, str]:
    """What is stated of a module of the user's own, its task and its loss, after the rest of the words.

    Args:
        model: The model's name.
        source: Of the data, whose reader may be asked for the kind of targets that the task reads.
        words: The options.
        base: The arguments of a recorded run where there is one.

    Raises:
        ValueError: They are stated of a model of the catalog.
    """
    rest, losses = taken_out(words, "--objective", ", as torch.nn:L1Loss")
    if not is_own(model):
        raise ValueError(f"{model} is a model of the catalog with its own loss: leave out --objective")
    rest, tasks = taken_out(rest, "--task")
    task = tasks[-1] if tasks else base.get("task", "")
    kind = "values" if task == "values" else "classes" if task in CLASS_TASKS else ""
    if tasks and kind and "task" in user_options(source.reader):
        rest += ["--data.task", kind]
    return tuple(rest), task, losses[-1] if losses else base.get("objective", "")


def explained_own(parser: Options) -> None:
    """Show, of a module of the user's own, every option, and those that are taken out before the rest."""
    for action in parser._actions:
        if action.dest.startswith("model.") and action.help is None:
            action.help = ""  # its constructor says nothing of it
    for name, about in {
        "task": f"How the outputs are read: {', '.join(TASKS)}; by the data's targets if not given.",
        "objective": "Loss, as torch.nn:L1Loss or my_package.losses:loss, (outputs, targets) -> loss.",
    }.items():
        parser.add_argument(f"--{name}", type=str, default="", help=about)
