"""``margin train MODEL DATA [options]``, ``--config run.yaml``, ``--resume RUN``."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jsonargparse import ArgumentError, ArgumentParser

from margin.cli.data import check_source
from margin.cli.output import Output
from margin.cli.parsing import bracketed, new_parser, one_line, parse
from margin.cli.streams import fitted, say
from margin.core.catalog import dictated, find, models, resolve, rules
from margin.core.options import Training
from margin.data.source import Source

USAGE = """usage: margin train MODEL DATA [options]

MODEL is a name of `margin models`; DATA a name of `margin data` or a file.

  margin train MODEL DATA --help       the options of this model on these data
  --target NAME, --task classes|values the column to predict, and how it is read
  --data.NAME VALUE                    how the data are read and split
  --model.NAME VALUE                   the model's own options
  --step.NAME VALUE                    the options of the model's own step
  --rule NAME --rule.NAME VALUE        a rule's step in place of the model's own
  --epochs, --batch_size, --lr, ...    options that all trainings share
  --seeds K                            K trainings, with mean and interval
  --out DIR                            where the run goes; must not exist
  --processes N                        divides every batch; torchrun -m margin train on several machines
  --log csv,tensorboard                copies of the history for other tools
  --config RUN/run.yaml                the arguments of a run, before those given here
  --resume RUN                         go on with a run
  --init-from RUN, --freeze NAME,...   begin with the weights of another run, keep some of them
  --augment shift:2,flip --mix mixup   change the training examples; --label-smoothing, --class-weight
  --rule distillation --teacher RUN    learn from another run's model
  --track NAME,...                     measure more at every evaluation"""


class Words(NamedTuple):
    """The command line, taken apart: what decides the parser, and the rest."""

    model: str
    data: str
    rule: str
    config: str
    resume: str
    rest: tuple[str, ...]


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    taken = take(words)
    if taken.model:
        find(models(), taken.model, "model")  # before any help: no option is of a model that is not there
    if taken.resume:
        return resumed(taken)
    base: dict[str, Any] = recorded(taken.config) if taken.config else {}
    source = base.get("data", {})
    taken = taken._replace(
        model=taken.model or base.get("model", ""),
        data=taken.data or source.get("source", ""),
        rule=taken.rule or base.get("rule", ""),
    )
    if not taken.model or not taken.data:
        if "--help" in words or "-h" in words:
            return Output({"usage": USAGE}, fitted(USAGE))
        raise ValueError("margin train needs MODEL and DATA, for instance: margin train lenet5 digits")
    check_names(taken)
    source = Source(taken.data)
    parser = parser_of(taken.model, source, taken.rule)
    before = Training.recorded(base["training"]) if base else None
    return trained(taken, source, options_of(parser, taken, source, base), before)


def take(words: Sequence[str]) -> Words:
    """Take MODEL and DATA, which come first, and the values of --rule, --config and --resume out.

    Raises:
        ValueError: One of these options has no value.
    """
    found = {"rule": "", "config": "", "resume": ""}
    rest: list[str] = []
    queue = list(words)
    plain = [queue.pop(0) for _ in range(2) if queue and not queue[0].startswith("-")]
    while queue:
        word = queue.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in found:
            rest.append(word)
        elif equals or queue:
            found[name] = value if equals else queue.pop(0)
        else:
            raise ValueError(f"--{name} needs a value")
    model, data = [*plain, "", ""][:2]
    return Words(model, data, **found, rest=tuple(rest))


def check_names(taken: Words) -> None:
    """Refuse unknown names before anything heavy is loaded.

    Raises:
        ValueError: A name is unknown.
    """
    find(models(), taken.model, "model")
    if taken.rule:
        find(rules(), taken.rule, "rule")
    check_source(taken.data)


def parser_of(model: str, source: Source, rule: str) -> ArgumentParser:
    """The options of one model on one source: from the signatures of constructor, step and reader.

    Raises:
        ValueError: A name is unknown.
    """
    from margin.cli.sources import data_options
    from margin.engine.plan import factory_of

    entry = find(models(), model, "model")
    factory, build = factory_of(entry, rule), resolve(entry.build)
    parser = new_parser(f"margin train {model} {source.given}", f"{entry.summary} ({entry.reference}).")
    parser.add_argument("--out", type=str, default="", help="Directory of the run; it must not exist.")
    parser.add_argument(
        "--seeds", type=int, default=1, help="Number of trainings, seeds counted from --seed."
    )
    parser.add_class_arguments(Training)
    added = parser.add_class_arguments if isinstance(build, type) else parser.add_function_arguments
    added(build, "model", skip=set(dictated(build)))
    parser.add_function_arguments(factory, "rule" if rule else "step", skip=set(dictated(factory)))
    data_options(parser, source)
    resolved = Training().over(entry.defaults)
    parser.set_defaults({name: value for name, value in resolved.as_json().items() if value is not None})
    return parser


def options_of(
    parser: ArgumentParser, taken: Words, source: Source, base: Mapping[str, Any]
) -> dict[str, Any]:
    """The options, those of a recorded run first, then those typed."""
    from margin.cli.sources import readable
    from margin.engine.plan import factory_of

    prefix = "rule" if taken.rule else "step"
    entry = find(models(), taken.model, "model")
    words = bracketed(readable(taken.rest, source), "", Training)
    words = bracketed(words, "model", resolve(entry.build))
    words = bracketed(words, prefix, factory_of(entry, taken.rule))
    if base:
        same = base["data"].get("source") == taken.data
        tree = {
            **Training.recorded(base["training"]).as_json(),
            "model": base["options"],
            prefix: base["step"],
            "data": base["data"].get("options", {}) if same else {},
        }
        try:
            empty = [
                group for group in GROUPS if tree.get(group) == {}
            ]  # a group without options is no group
            defaults = parser.parse_object({k: v for k, v in tree.items() if k not in empty})
        except ArgumentError as error:
            raise ValueError(one_line(str(error), parser)) from None
        parser.set_defaults(flat(defaults.as_dict()))
    options = {"model": {}, prefix: {}, "data": {}, **parse(parser, words).as_dict()}
    typed = {word.partition("=")[0] for word in words}
    if "--epochs" in typed and "--max_steps" not in typed:
        options["max_steps"] = None  # of the model's own defaults, or of the run that is repeated
    return options


GROUPS = ("model", "step", "rule", "data")
"""Options with a name of their own before the dot."""


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A parsed tree with its nested groups' options under dotted names."""
    top = {name: value for name, value in tree.items() if name not in GROUPS}
    inner = {f"{group}.{name}": value for group in GROUPS for name, value in (tree.get(group) or {}).items()}
    return top | inner


def training_of(options: Mapping[str, Any]) -> Training:
    """The options common to all trainings."""
    return Training(**{field.name: options[field.name] for field in dataclasses.fields(Training)})


def trained(taken: Words, source: Source, options: dict[str, Any], before: Training | None) -> Output:
    """Train once or for several seeds; print the metrics and where the run is.

    Args:
        taken: What is trained on what.
        source: The data.
        options: The options, those of a record among them.
        before: The options of a record that is repeated, of which none is looked up again.
    """
    from margin.engine.parallel.processes import gathered

    with gathered(options["device"]):
        return _trained(taken, source, options, before)


def _trained(taken: Words, source: Source, options: dict[str, Any], before: Training | None) -> Output:
    from margin.cli.progress import progress
    from margin.engine.parallel.processes import told_by_first
    from margin.runs.training import Job, begin, finish, prepare

    training, seeds = training_of(options), options["seeds"]
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1: got {seeds}")
    arguments = {
        "options": options["model"],
        "step": options["rule" if taken.rule else "step"],
        "rule": taken.rule,
    }
    data = opened(taken.model, source, options["data"])

    def one(training: Training, out: str | Path | None) -> Job:
        if before is None:
            return prepare(taken.model, data, arguments, training, out)
        return begin(find(models(), taken.model, "model"), data, arguments, training.changing(before), out)

    if seeds == 1:
        job = one(training, options["out"] or None)
        tell(job.notes)
        return outcome([finish(job, progress=progress)])
    out = told_by_first(lambda: _parent(options["out"], taken.model))
    runs, parts = [], {}
    for seed in range(training.seed or 0, (training.seed or 0) + seeds):
        job = one(dataclasses.replace(training, seed=seed), out / f"seed-{seed}")
        tell(job.notes)
        parts = {name: len(part.examples) for name, part in job.plan.held.items()}
        runs.append(finish(job, progress=progress))
    return outcome(runs, parts)


def opened(model: str, source: Source, options: Mapping[str, Any]) -> Any:
    """The data; a table or arrays that cannot be read are perhaps another kind of file, without its prefix.

    Raises:
        ValueError: The data are wrong; the message says how the model's are read, where it takes no vectors.
    """
    from margin.engine.plan import reading_of
    from margin.runs.training import open_source

    try:
        return open_source(source, options)
    except ValueError as error:
        entry = find(models(), model, "model")
        other = reading_of(entry, source.given) if source.form in ("table", "arrays") else ""
        raise ValueError(f"{error}; {other}" if other else str(error)) from None


def tell(notes: Sequence[str]) -> None:
    """Say on stderr what was done before the first step."""
    for note in notes:
        say(note)


def _parent(out: str, model: str) -> Path:
    """The directory of several runs, which must not exist."""
    from margin.runs.training import free_path

    parent = Path(out) if out else free_path(f"{model}-seeds")
    if parent.exists():
        raise FileExistsError(f"{parent} exists: choose another --out")
    return parent


def resumed(taken: Words) -> Output:
    """Go on with a run; options common to all trainings may change."""
    from margin.cli.progress import progress
    from margin.engine.parallel.processes import gathered
    from margin.engine.runs import Run
    from margin.runs.training import finish, reopen

    if taken.model:
        raise ValueError(f"--resume takes the run's own model and data: leave out {taken.model}")
    run = Run(taken.resume)
    base = run.record["arguments"]
    if taken.config:
        raise ValueError("--resume takes the run's own arguments: leave out --config")
    if taken.rule and taken.rule not in (base["rule"], base["rule"].rpartition("/")[2]):
        raise ValueError(f"a resumed run keeps its rule: leave out --rule {taken.rule}")
    taken = taken._replace(model=base["model"], data=base["data"].get("source", ""), rule=base["rule"])
    if not taken.data:
        raise ValueError("this run was trained on data in memory: resume it with margin.resume(run, data)")
    source = Source(taken.data)
    parser = parser_of(taken.model, source, taken.rule)
    options = options_of(parser, taken, source, base)
    if options["out"] or options["seeds"] != 1:
        raise ValueError("a resumed run stays where it is, with its one seed: leave out --out and --seeds")
    own = {
        "model": base["options"],
        "data": base["data"]["options"],
        "rule" if taken.rule else "step": base["step"],
    }
    for group, before in own.items():
        now = json.loads(json.dumps(options[group]))  # as the record keeps it: tuples are lists
        if changed := [name for name, value in before.items() if now.get(name) != value]:
            raise ValueError(f"a resumed run keeps its --{group}.{changed[0]}: leave it out")
    with gathered(options["device"]):
        job = reopen(run, None, training_of(options))
        tell(job.notes)
        return outcome([finish(job, progress=progress)])


def recorded(path: str) -> dict[str, Any]:
    """The arguments in a run's record."""
    from margin.engine.runs import Run
    from margin.engine.schema import read_record

    file = Path(path)
    place = Run(file.parent if file.name == "run.yaml" else file).path
    return dict(read_record(place / "run.yaml")["arguments"])  # edited or not: it is only repeated


def outcome(runs: Sequence[Any], parts: Mapping[str, int] | None = None) -> Output:
    """The metrics of one run, or the mean of several with its interval, and where they are.

    Args:
        runs: One run, or those of several seeds.
        parts: The number of examples of each held-out part.
    """
    from margin.engine.seeds import shares, summary

    if len(runs) == 1:
        run = runs[0]
        document = {"run": str(run.path), "reason": run.reason, "metrics": run.metrics}
        lines = [f"{name:<16} {value:.4g}" for name, value in run.metrics.items()]
        return Output(document, "\n".join([*lines, f"run in {run.path} ({run.reason})"]))
    parent = runs[0].path.parent
    found = [run.metrics for run in runs]
    counted = shares(found, parts or {})
    metrics = summary(found, examples=counted)
    lines = [f"{name:<16} {m['mean']:.4g} [{m['low']:.4g}, {m['high']:.4g}]" for name, m in metrics.items()]
    note = [f"mean of {len(runs)} seeds [95 % t interval]; runs in {parent}"]
    if counted:
        note.insert(0, "of an accuracy the interval holds the error of its examples too (Clopper-Pearson)")
    return Output({"runs": [str(run.path) for run in runs], "metrics": metrics}, "\n".join([*lines, *note]))
