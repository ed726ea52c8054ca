"""What is refused before a training begins: data that the model does not take, options without effect."""

from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import torch

from margin.core.catalog import (
    Entry,
    Rule,
    call_with,
    data_parameters,
    formats,
    heads_of,
    models,
    resolve,
    user_options,
)
from margin.core.hints import flag
from margin.core.options import Training
from margin.data.examples import Data
from margin.engine.objectives import can_scale


def inputs() -> dict[str, tuple[str, str]]:
    """What a model takes that asks for a key of the spec, and the prefix by which a file is read as such."""
    found: dict[str, tuple[str, str]] = {}
    for row in formats().values():
        for key, what in row.gives.items():
            found.setdefault(key, (what, f"{row.name}:" * row.prefix))
    return found


KINDS = {
    "graph": "the nodes of one graph",
    "graphs": "many graphs",
    "texts": "texts with a class or a value each",
    "tagged": "sentences with a class at each word",
    "questions": "questions with their answers in a text",
    "corpus": "documents of sentences",
}
"""What data of a kind are, where the inputs of two kinds look the same."""


TEXTS = {
    "texts": "choose the column of a table that holds them, --data.text COLUMN, or --data.tokens COLUMN of "
    "whole numbers that are tokens, or read a folder of class folders, or arrays of such numbers, as "
    "texts:PATH",
    "tagged": "read a file of them as tagged:{}",
    "questions": "read a file of them as questions:{}",
    "corpus": "read a file or folder of them as corpus:{}",
}
"""How data are read that an entry takes whose parameters are those of any model of tokens."""

TARGETS = {
    "values": "values",
    "tokens": "tokens",
    "point_classes": "point_classes",
    "pixel_classes": "pixel_classes",
    "tags": "tags",
    "spans": "spans",
    "series": "series",
    "quantiles": "series",
}
"""The targets that a task reads which predicts no classes."""


def reading_of(entry: Entry, source: str) -> str:
    """How a file is to be read that was taken for a table or for arrays; "" where an entry takes these.

    Of a text the way to read it as tokens comes first, where one of the body's heads takes them.
    """
    known = inputs()

    def _way(head: Entry) -> tuple[str, str]:
        if head.takes in TEXTS:
            return head.takes, f"{head.name} takes {KINDS[head.takes]}: {TEXTS[head.takes].format(source)}"
        keys = [key for key in data_parameters(resolve(head.build)) if known.get(key, ("", ""))[1]]
        if not keys:
            return "", ""
        wanted, prefix = known["horizon" if "horizon" in keys else keys[0]]
        return prefix, f"{head.name} needs {wanted}: read a file of them as {prefix}{source}"

    ways = dict([_way(entry)])
    if str(source).lower().removesuffix(".gz").endswith(".txt"):
        texts = dict(_way(head) for head in heads_of(entry))
        ways = {prefix: way for prefix, way in texts.items() if prefix == "text:"} | ways
    return "; ".join(way for way in ways.values() if way)


UNTOLD = {
    "text": (".txt",),
    "corpus": (".txt",),
    "pairs": (".tsv", ".txt"),
    "tagged": (".txt", ".tsv"),
    "questions": (".json",),
}
"""Endings of files of which a model that reads only such a kind of text tells the kind."""


def told_by(entry: Entry, given: Any) -> Any:
    """A file or folder of text with the prefix that its kind has, where the model tells it; else as given.

    Arrays in memory, a list of them or one (examples, steps, numbers) beside targets, are sequences where the
    model takes these: to any other they are rows.

    A ``.txt`` is a text, a corpus, pairs or tagged words by what the heads of the model's body take; where
    they take several kinds, one of them a corpus, it is that. A ``.json`` is questions, a folder of class
    folders texts, another folder of texts a corpus, where a head takes them.

    Args:
        entry: The model.
        given: What a user names.
    """
    if entry.name not in models():
        return given
    known = inputs()

    def kind(head: Entry) -> str:
        keys = data_parameters(resolve(head.build))
        found = (known[key][1] for key in keys if known.get(key, ("", ""))[1])
        return head.takes or head.reads or next(found, "").removesuffix(":")

    kinds = {kind(head) for head in heads_of(entry)}
    if isinstance(given, tuple) and len(given) == 2 and "sequences" in kinds and _in_steps(given[0]):
        return resolve("margin.data.formats.sequences.sources:from_sequences")(*given)
    if not isinstance(given, str | Path) or not Path(given).exists():
        return given
    name = str(given).lower().removesuffix(".gz")
    if Path(given).is_dir():
        wanted = _texts_in(Path(given)) & kinds
    else:
        wanted = {kind for kind in kinds if name.endswith(UNTOLD.get(kind, ()))}
        if "corpus" not in wanted and len(kinds) > 1 and not name.endswith(".json"):
            return given
    return next((f"{kind}:{given}" for kind in ("texts", "corpus", *wanted) if kind in wanted), given)


def _in_steps(x: Any) -> bool:
    """Whether inputs are a list of arrays, or one of three axes."""
    if isinstance(x, list):
        return bool(x) and all(getattr(one, "ndim", 0) in (1, 2) for one in x)
    return getattr(x, "ndim", 0) == 3


def _texts_in(folder: Path) -> set[str]:
    """The kinds of text as which a folder can be read: it has ``.txt`` files, or class folders of these."""
    classes = next((file for place in ("*/*.txt", "train/*/*.txt") for file in folder.glob(place)), None)
    return {
        kind for kind, file in (("texts", classes), ("corpus", next(folder.rglob("*.txt*"), None))) if file
    }


def head_for(entry: Entry, data: Data) -> Entry:
    """The head of the entry's body that fits the data: the entry itself, else the first of its others.

    Raises:
        ValueError: None fits; the message is that of the entry itself.
    """
    refused: ValueError | None = None
    for head in heads_of(entry):
        try:
            check_task(head, data)
        except ValueError as error:
            refused = refused or error
        else:
            return head
    raise refused or ValueError(f"{entry.name} has no head")


def targets_read(entry: Entry) -> str:
    """The targets that an entry learns from, as data call them: classes, values; "" where it reads none."""
    task = resolve(entry.task)
    if task.name in TARGETS:
        return TARGETS[task.name]
    classes = task.classes is not None or "num_classes" in data_parameters(resolve(entry.build))
    return "classes" if classes else ""


def check_task(entry: Entry, data: Data) -> None:
    """Refuse classes for a model of values, values for a model of classes, features for a model of images.

    Raises:
        ValueError: The data's targets or inputs are of the other kind.
    """
    parameters = data_parameters(resolve(entry.build))
    if lacking := [key for key in inputs() if key in parameters and key not in data.spec]:
        wanted, prefix = inputs()["horizon" if "horizon" in lacking else lacking[0]]
        form = data.encoding.get("format")
        kind = data.encoding.get("kind") or f"{data.spec.get('in_features')} features"
        remedy = f"; read a file of them as {prefix}FILE" if prefix else ""
        if wanted == "tokens" and form == "audio":
            remedy = "; of sound that is read as audio:PATH, set --data.task tokens"
        if data.origin and form in ("table", "arrays") and (other := reading_of(entry, data.name)):
            remedy = f"; {other.removeprefix(f'{entry.name} needs {wanted}: ')}"
        raise ValueError(f"{entry.name} needs {wanted}: an example of {data.name} has {kind}{remedy}")
    kind = data.encoding.get("kind", entry.takes)
    if entry.takes and kind != entry.takes:
        takes = KINDS.get(entry.takes, entry.takes)
        raise ValueError(f"{entry.name} takes {takes}: {data.name} is {KINDS.get(kind, kind)}")
    kind, wanted = data.encoding.get("task", ""), targets_read(entry)
    if kind and wanted and kind != wanted:
        own = not isinstance(entry.build, str)  # a module of the user's own is of no family
        such = "" if own else ", ".join(islice(alternatives(entry, data), 3))
        raise ValueError(
            f"{entry.name} needs {wanted} as targets: "
            + (
                f"those of {data.name} are {kind}"
                if kind != "none"
                else f"{data.name} has none; {labeled(data)}"
            )
            + (f"; models that fit: {such}" if such else "")
        )


def labeled(data: Data) -> str:
    """How the examples of data without targets get some."""
    row = formats().get(data.encoding.get("format", ""))
    columns = ", ".join(record["name"] for record in data.encoding.get("columns", ()))
    how = (row and row.labeled) or "give them targets"
    return f"{how}; it has: {columns}" if columns else how


def alternatives(entry: Entry, data: Data) -> Iterator[str]:
    """The names of the entries that learn the targets of these data, those of the same family first.

    Modules are loaded as names are taken, and each model is built once: its constructor may refuse the data.
    """

    def distance(other: Entry) -> tuple[bool, int, bool]:
        paths = (row.build.partition(":")[0].split(".") for row in (entry, other))
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(*paths, strict=False))
        alike = other.name.startswith(entry.name) or entry.name.startswith(other.name)
        return resolve(other.task).name == "memory", -len([*shared]), not alike

    kind = data.encoding["task"]
    for other in sorted(models().values(), key=distance):
        if other.name == entry.name or targets_read(other) != (kind if kind != "none" else ""):
            continue
        try:
            check_task(other, data)
            with torch.random.fork_rng(devices=[]):
                call_with(resolve(other.build), data.spec, {}, other.name)
        except ValueError:
            continue
        yield other.name


OF_GRADIENTS = (
    "init",
    "init_scale",
    "init_from",
    "freeze",
    "optimizer",
    "lr",
    "layer_decay",
    "optimizer_options",
    "decay_norms",
    "schedule",
    "schedule_options",
    "warmup",
    "average",
    "average_start",
)
"""What only a model trained by an optimizer uses. An exact solve forgets the weights that it begins with, and
the theorems of a mistake rule begin at 0."""


OF_OBJECTIVE = ("mix", "mix_alpha", "label_smoothing", "confusion", "class_weight")
"""What changes the objective that a step minimizes."""


OF_DESCENT = ("clip", "accumulate")
"""How a loss moves an optimizer."""


OF_OTHERS: Mapping[str, str] = {
    "init_scale": "init",
    "mix_alpha": "mix",
    "average_start": "average",
    "pacing": "curriculum",
    "pacing_start": "curriculum",
    "pacing_end": "curriculum",
}
"""Options that say how another one does, and that other one."""


def refuse_unused(
    entry: Entry, rule: Rule | None, factory: Any, step: Mapping[str, Any], training: Training
) -> None:
    """Refuse options that differ from the entry's defaults and that nothing would look at.

    Args:
        entry: Whose model is trained.
        rule: Whose step is taken in place of the entry's own.
        factory: The factory of the step.
        step: The options of the step.
        training: The resolved options.

    Raises:
        ValueError: There is one; the message names the first.
    """
    base = Training().over(entry.defaults)
    changed = [name for name, value in training.as_json().items() if value != getattr(base, name)]
    found = {name: why for name, why in _unused(entry, rule, factory, step, training) if name in changed}
    own = user_options(factory)
    for name in changed:
        if name in found:
            instead = f", or set {flag(f'step.{name}')}" * (name in own)
            raise ValueError(f"{found[name]}: leave out {flag(name)}{instead}")


def _unused(
    entry: Entry, rule: Rule | None, factory: Any, step: Mapping[str, Any], training: Training
) -> Iterator[tuple[str, str]]:
    """Each option without effect, and why it has none."""
    what = f"the rule {rule.name}" if rule else f"the step of {entry.name}"
    if not entry.optimizers:
        yield from ((name, f"{entry.name} is not trained by gradients") for name in OF_GRADIENTS)
    if any(entry.optimizers):
        yield "compile", f"{what} asks for parts of the model, not for its outputs"
    if "objective" not in data_parameters(factory):
        yield from ((name, f"{what} asks for no loss that {name} could change") for name in OF_OBJECTIVE)
        if training.precision == "bfloat16":
            yield "precision", f"{what} asks for no loss that bfloat16 could compute"
    if "descend" not in data_parameters(factory):
        yield from ((name, f"{what} moves along no gradient") for name in OF_DESCENT)
    if rule:
        yield from ((name, f"{what} has no use for {name}") for name in rule.unused)
        for option, replaced in rule.replaced.items():
            if step.get(option) is not None:
                yield from ((name, f"{option} of {what} takes the place of {name}") for name in replaced)
    if not can_scale(entry):
        yield "scale_targets", f"{entry.name} learns no values by gradients of their squared error"
    for name, other in OF_OTHERS.items():
        if getattr(training, other) in (None, "", "none", 0.0):
            yield name, f"{name} is an option of {other}, which is not given"
