"""``margin train MODEL DATA [options]``, ``--config run.yaml``, ``--resume RUN``; ``margin demo``."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from margin.cli.data import check_source
from margin.cli.help import Options
from margin.cli.output import Output, arrived, progress, say, speaks, waiting
from margin.cli.parsing import HELP, named, new_parser, parse, reader_options, recognized, taken_out
from margin.cli.tables import fitted
from margin.cli.user_models import entry_named, explained_own, is_own, stated
from margin.core import options as core
from margin.core.catalog import (
    UnknownName,
    data_parameters,
    find,
    heads_of,
    models,
    resolve,
    rules,
    sources,
)
from margin.core.hints import flag
from margin.core.options import Training, newer_options
from margin.data.source import Source, prefixes

USAGE = """usage: margin train MODEL DATA [options]

MODEL is a name of `margin models`, or package.module:name of your own;
DATA a name of `margin data` or a file.

  margin train MODEL DATA --help      the options of this model on these data
  margin train MODEL DATA --help all  every option, explained in full
  --target NAME                       the column to predict
  --task classes|values               how it is read
  --data.NAME VALUE                   how the data are read and split
  --model.NAME VALUE                  the model's own options
  --task NAME, --objective PATH       of your own module: how it is read, its loss
  --step.NAME VALUE                   the options of the model's own step
  --rule NAME --rule.NAME VALUE       another training method than the model's own
  --epochs, --batch-size, --lr, ...   options that all trainings share
  --seeds K                           K trainings, with mean and interval
  --out DIR                           output directory; must not exist
  --processes N                       data parallelism; torchrun -m margin train on several machines
  --log csv,tensorboard               copies of the history for other tools
  --config RUN/run.yaml               the arguments of a run, before those given here
  --resume RUN                        continue a run from its last checkpoint
  --init-from RUN, --freeze NAME,...  pretrained weights, and layers that are not trained
  --augment shift:2,flip --mix mixup  data augmentation; --label-smoothing, --class-weight
  --rule distillation --teacher RUN   knowledge distillation from another run's model
  --track NAME,...                    measure more at every evaluation"""


class Words(NamedTuple):
    """The command line, taken apart: what decides the parser, and the rest.

    ``task`` and ``objective`` are of a module of the user's own alone, how it is read and its loss.
    """

    model: str
    data: str
    rule: str
    config: str
    resume: str
    rest: tuple[str, ...]
    task: str = ""
    objective: str = ""

    @property
    def step(self) -> str:
        """The group of the step's options."""
        return "rule" if self.rule else "step"


class Chosen(NamedTuple):
    """The options of a training: those common to all that were typed, and the values of all others."""

    training: Training
    model: dict[str, Any]
    step: dict[str, Any]
    data: dict[str, Any]
    out: str
    seeds: int
    seed: int
    device: str


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    taken = take(words)
    if taken.resume:
        return resumed(taken)
    taken = placed(taken)
    base: dict[str, Any] = recorded(taken.config) if taken.config else {}
    own = base.get("model", "")
    heads = heads_of(entry_named(taken.model)) if taken.model and not taken.data else ()
    taken = taken._replace(
        # without other data, the name of the body is that of the recorded head
        model=own if not taken.model or own in {head.name for head in heads} else taken.model,
        data=taken.data or base.get("data", {}).get("source", ""),
        rule=taken.rule or base.get("rule", ""),
    )
    if not taken.model or not taken.data:
        if {*HELP} & {*words}:
            return Output({"usage": USAGE}, fitted(USAGE))
        raise ValueError("margin train needs MODEL and DATA, for instance: margin train lenet5 digits")
    check_names(taken)
    if not {*HELP} & {*words}:
        waiting(f"reading {taken.data}")  # torch comes next, which takes a second
    taken = taken._replace(data=read_as(taken.model, taken.data))
    source = Source(taken.data)
    if is_own(taken.model) or "--objective" in " ".join(taken.rest):
        rest, task, objective = stated(taken.model, source, taken.rest, base)
        taken = taken._replace(rest=rest, task=task, objective=objective)
    taken, data = (taken, None) if base else fitted_head(taken, source)
    parser = parser_of(taken.model, source, taken.rule)
    before = Training.recorded(base["training"]) if base else None
    if base:
        tell(newer_options(base["training"]))
    return trained(taken, source if data is None else data, options_of(parser, taken, base), before)


def read_as(model: str, data: str) -> str:
    """The data with the prefix of the kind of text that the model alone reads, where they have none."""
    if is_own(model) or not Path(data).exists():
        return data
    from margin.engine.check_options import told_by

    return str(told_by(entry_named(model), data))


def take(words: Sequence[str]) -> Words:
    """Take the values of --rule, --config and --resume out, and MODEL and DATA, first of what is left.

    Raises:
        ValueError: One of these options has no value.
    """
    rest, last = list(words), {}
    for name in ("rule", "config", "resume"):
        rest, values = taken_out(rest, f"--{name}")
        last[name] = values[-1] if values else ""
    model, data = [rest.pop(0) if rest and not rest[0].startswith("-") else "" for _ in range(2)]
    return Words(model, data, **last, rest=tuple(rest))


def placed(taken: Words) -> Words:
    """The words where one that stands alone beside --config is the data, as a record has the model.

    Before any help, since no option is of a model that is not there.

    Raises:
        ValueError: There is no such model; where the word is data, the message says in which order they come.
    """
    try:
        if taken.model and not is_own(taken.model):
            named(models(), taken.model, "model", "models")
    except UnknownName as error:
        if not is_data(taken.model):
            raise
        if taken.config and not taken.data:
            return taken._replace(model="", data=taken.model)
        order = "margin train MODEL DATA, or DATA alone with --config"
        raise ValueError(f"MODEL comes before DATA, {order}: got {taken.model}, which is data") from error
    return taken


def is_data(word: str) -> bool:
    """Whether a word is the name of a data set or looks like a file, which need not be there."""
    is_name = word.removeprefix("data/") in sources()
    return is_name or Path(word).exists() or bool(Path(word).suffix) or word.partition(":")[0] in prefixes()


def check_names(taken: Words) -> None:
    """Refuse unknown names before anything heavy is loaded.

    Raises:
        ValueError: A name is unknown.
    """
    if not is_own(taken.model):
        named(models(), taken.model, "model", "models")
    if taken.rule:
        named(rules(), taken.rule, "rule", "list --kind rule")
    check_source(taken.data)


def fitted_head(taken: Words, source: Source) -> tuple[Words, Any]:
    """The words with the head of the model that fits the data, and the data where they had to be opened.

    A model of one head needs no look at the data, and help of data that cannot be read is the first head's.
    """
    entry = entry_named(taken.model)
    if len(heads_of(entry)) == 1:
        return taken, None
    from margin.engine.check_options import head_for

    parser = new_parser(f"margin train {taken.model} {taken.data}")
    reader_options(parser, source)
    try:
        data = opened(
            taken.model, source, parse(parser, recognized(taken.rest, parser)).as_dict().get("data") or {}
        )
        return taken._replace(model=head_for(entry, data).name), data
    except (ValueError, OSError):
        if {*HELP} & {*taken.rest}:
            return taken, None
        raise


def parser_of(model: str, source: Source, rule: str) -> Options:
    """The options of one model on one source: from the signatures of constructor, step and reader.

    Raises:
        ValueError: A name is unknown.
    """
    from margin.engine.plan import factory_of

    entry = entry_named(model)
    factory, build = factory_of(entry, rule), resolve(entry.build)
    parser = new_parser(f"margin train {model} {source.given}", f"{entry.summary} ({entry.reference}).")
    added = parser.add_class_arguments if isinstance(build, type) else parser.add_function_arguments
    added(build, "model", skip=set(data_parameters(build)))
    if is_own(model):
        explained_own(parser)
    parser.add_function_arguments(factory, "rule" if rule else "step", skip=set(data_parameters(factory)))
    parser.add_argument("--out", type=str, default="", help="Output directory of the run; must not exist.")
    parser.add_argument(
        "--seeds", type=int, default=1, help="Number of trainings, seeds counted from --seed."
    )
    parser.add_class_arguments(Training)
    reader_options(parser, source)
    own = {
        "model": ("model", "task", "objective"),
        f"rule {rule}" if rule else "step": ("rule", "step"),
        "data": ("data",),
        "run": ("out", "seeds"),
    }
    parser.listed = {**own, "training": core.COMMON}
    parser.every = {**own, **core.GROUPS}
    resolved = Training().over(entry.defaults)
    parser.set_defaults({name: value for name, value in resolved.as_json().items() if value is not None})
    return parser


def options_of(parser: Options, taken: Words, base: Mapping[str, Any]) -> Chosen:
    """What was typed, over the arguments of a recorded run where there is one, over the defaults.

    Raises:
        ValueError: An option is unknown or has a wrong value.
    """
    if base:
        same = base["data"].get("source") == taken.data
        before = {f"model.{name}": value for name, value in base["options"].items()}
        before |= {f"{taken.step}.{name}": value for name, value in base["step"].items()}
        before |= {f"data.{name}": value for name, value in base["data"].get("options", {}).items() if same}
        if odd := [name for name in before if name not in {action.dest for action in parser._actions}]:
            raise ValueError(f"the record has an option that does not exist: {odd[0]}")
        parser.set_defaults(before | Training.recorded(base["training"]).as_json())
    found = parse(parser, taken.rest).as_dict()
    typed = {word.lstrip("-").partition("=")[0].partition(".")[0].replace("-", "_") for word in taken.rest}
    common = {field.name for field in dataclasses.fields(Training)} & typed
    return Chosen(
        training=Training(**{name: found[name] for name in common}),
        model=found.get("model") or {},
        step=found.get(taken.step) or {},
        data=found.get("data") or {},
        out=found["out"],
        seeds=found["seeds"],
        seed=found["seed"],
        device=found["device"],
    )


def trained(taken: Words, source: Any, options: Chosen, before: Training | None) -> Output:
    """Train once or for several seeds; print the metrics and where the run is.

    Args:
        taken: What is trained on what.
        source: The source of the data, or the data where they are open already.
        options: The options, those of a record among them.
        before: The options of a record that is repeated, of which none is looked up again.
    """
    from margin.engine.parallel.processes import broadcast_from_rank0, gathered
    from margin.runs.training import Job, begin, finish, prepare
    from margin.runs.user_models import Chosen, choose

    if options.seeds < 1:
        raise ValueError(f"--seeds must be at least 1: got {options.seeds}")
    arguments = {"options": options.model, "step": options.step, "rule": taken.rule}

    def one(data: Any, training: Training, out: str | Path | None) -> Job:
        if before is None or is_own(taken.model):
            chosen = choose(taken.model, data, taken.task, taken.objective or None)
        else:
            chosen = Chosen(find(models(), taken.model, "model"))
        if before is None:
            job = prepare(chosen, data, arguments, training, out, announce=announced)
        else:
            job = begin(chosen, data, arguments, training.changing(before), out, announce=announced)
        arrived()  # what goes on may be said by another process
        tell(job.notes)
        return job

    with gathered(options.device):
        data = opened(taken.model, source, options.data) if isinstance(source, Source) else source
        waiting(f"building {taken.model}")
        if options.seeds == 1:
            return outcome([finish(one(data, options.training, options.out or None), progress=progress)])
        out = broadcast_from_rank0(lambda: _parent(options.out, taken.model))
        runs, parts = [], {}
        for seed in range(options.seed, options.seed + options.seeds):
            job = one(data, dataclasses.replace(options.training, seed=seed), out / f"seed-{seed}")
            parts = {name: len(part.examples) for name, part in job.plan.held.items()}
            runs.append(finish(job, progress=progress))
        return outcome(runs, parts)


def opened(model: str, source: Source, options: Mapping[str, Any]) -> Any:
    """The data; a table or arrays that cannot be read are perhaps another kind of file, without its prefix.

    Raises:
        ValueError: The data are wrong; the message says how the model's are read, where it takes no vectors.
    """
    from margin.engine.check_options import reading_of
    from margin.runs.training import open_source

    try:
        return open_source(source, options)
    except ValueError as error:
        entry = entry_named(model)
        forms = ("arrays",) if entry.takes == "texts" else ("table", "arrays")  # a table is what it takes
        other = reading_of(entry, source.given) if source.form in forms else ""
        raise ValueError(f"{error}; {other}" if other else str(error)) from None


def announced(line: str) -> None:
    """Say on stderr what is trained; of the processes that torchrun has started in the first."""
    if speaks():
        say(line)


def tell(notes: Sequence[str]) -> None:
    """Say on stderr what was done before the first step."""
    for note in notes:
        say(note)


def _parent(out: str, model: str) -> Path:
    """The directory of several runs, which must not exist."""
    from margin.runs.training import free_path

    parent = Path(out) if out else free_path(f"{model.partition(':')[0]}-seeds")
    if parent.exists():
        raise FileExistsError(f"{parent} exists: choose another --out")
    return parent


def resumed(taken: Words) -> Output:
    """Go on with a run; options common to all trainings may change."""
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
    model = run.entry.name if run.record.get("own") else base["model"]  # one's own is as it was, or refused
    taken = taken._replace(model=model, data=base["data"].get("source", ""), rule=base["rule"])
    if not taken.data:
        raise ValueError("this run was trained on data in memory: resume it with margin.resume(run, data)")
    parser = parser_of(taken.model, Source(taken.data), taken.rule)
    options = options_of(parser, taken, base)
    if options.out or options.seeds != 1:
        raise ValueError("a resumed run stays where it is, with its one seed: leave out --out and --seeds")
    own = {
        "model": (options.model, base["options"]),
        "data": (options.data, base["data"]["options"]),
        taken.step: (options.step, base["step"]),
    }
    for group, (given, before) in own.items():
        now = json.loads(json.dumps(given))  # as the record keeps it: tuples are lists
        if changed := [name for name, value in before.items() if now.get(name) != value]:
            raise ValueError(f"a resumed run keeps its {flag(f'{group}.{changed[0]}')}: leave it out")
    with gathered(options.device):
        job = reopen(run, None, options.training)
        tell(job.notes)
        return outcome([finish(job, progress=progress)])


def recorded(path: str) -> dict[str, Any]:
    """The arguments in a run's record."""
    from margin.engine.runs import Run
    from margin.engine.schema import read_record

    file = Path(path)
    place = Run(file.parent if file.name == "run.yaml" else file).path
    record = read_record(place / "run.yaml")  # edited or not: it is only repeated
    own = record.get("own", {})
    if own.get("handed"):
        raise ValueError(
            f"{record['recipe']['model']} was handed over in Python: repeat it there, margin.train"
        )
    if own.get("loss_options"):
        raise ValueError(
            f"the loss {own['loss']} has options: repeat it in Python, margin.train(objective=...)"
        )
    return record["arguments"] | {"task": own.get("task", ""), "objective": own.get("loss", "")}


def outcome(runs: Sequence[Any], parts: Mapping[str, int] | None = None) -> Output:
    """The metrics of one run, or the mean of several with its interval, and where they are.

    Args:
        runs: One run, or those of several seeds.
        parts: The number of examples of each held-out part.
    """
    from margin.runs.seed_interval import shares, summary

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


def demo(*, out: str = "", seed: int = 0) -> Output:
    """Train LeNet-5 on scikit-learn's digits, audit it, and write one self-contained report.

    Args:
        out: Output directory of the run; runs/lenet5-<number> if not given.
        seed: Random seed of the training.
    """
    from margin.cli.audit import audit_model
    from margin.runs.training import finish, free_path, open_source, prepare

    path = Path(out) if out else free_path("lenet5")
    arguments = {"options": {}, "step": {}, "rule": ""}
    data = open_source("digits", {})
    finish(prepare("vision/lenet5", data, arguments, Training(seed=seed), path), progress=progress)
    return audit_model(str(path))
