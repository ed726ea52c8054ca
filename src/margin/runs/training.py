"""From a model and data to a run: a job that is prepared or reopened, and trained to its end."""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from torch import nn

from margin.core.catalog import Entry, check_options, completed, find, resolve, rules, sources
from margin.core.options import Training, newer_options
from margin.core.tasks import COLUMN
from margin.core.user_modules import edited, is_user_model, reported_within
from margin.data.examples import Data
from margin.data.files.word_vectors import is_vectors
from margin.data.files.writing import going_on
from margin.data.open import open_data
from margin.data.preprocess import rescaled
from margin.data.source import Source
from margin.engine.build import bare_state, initial_state, module_of, optimizer_makers
from margin.engine.check_options import check_task, refuse_unused
from margin.engine.hooks import (
    INTERRUPTED,
    NOT_FINITE,
    asked_on,
    caught_up,
    check_stops,
    ended,
    has_row,
    interruptible,
    is_over,
    recording,
    watching,
)
from margin.engine.loop import Hook, NonFiniteError, State, fit
from margin.engine.objectives import with_outcome, with_precision
from margin.engine.parallel.launching import WorkerDiedError, launch
from margin.engine.parallel.locks import Lock, held
from margin.engine.parallel.processes import broadcast_from_rank0, check_counts, threads, wait, world
from margin.engine.plan import Plan, factory_of, long_enough, plan_of
from margin.engine.runs import (
    Run,
    check_resumable,
    check_same_others,
    digests,
    linked_runs,
    load,
    rebuilt,
    record_of,
    run_at,
    run_of,
)
from margin.engine.transfer import (
    Pretrained,
    pretrained,
    put_in,
    read_weights,
    transfer,
    unwrapped,
    weights_file,
    with_options,
    with_vectors,
)
from margin.nn.preprocessed import device_of
from margin.runs.run_data import check_base, like_the_run, reopen_data, tensors_of_run
from margin.runs.user_models import (
    Chosen,
    check_outputs,
    check_own,
    choose,
    in_own_type,
    made_by,
    put_in_row,
)

Progress = Callable[[Run, int, int], Hook]
"""``(run, total steps, steps an epoch) -> hook`` that shows how a training goes."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A training that is ready to go: its run, its state, its plan, data that lie in memory, what to tell.

    Until it ends it holds the run, so that no other writes there; of several processes one does for all.
    """

    run: Run
    state: State
    plan: Plan
    data: Data | None
    notes: tuple[str, ...] = ()
    lock: Lock | None = None


def prepare(
    model: Any,
    data: Data,
    arguments: Mapping[str, Any],
    training: Training,
    out: str | Path | None,
    *,
    announce: Callable[[str], None] = lambda line: None,
) -> Job:
    """Choose the entry that a model is trained as, resolve the options by its defaults, then begin."""
    chosen = model if isinstance(model, Chosen) else choose(model, data)
    training, said = long_enough(chosen.entry, data, training)
    resolved = training.over(chosen.entry.defaults)
    own_type = training.precision is None
    job = begin(chosen, data, arguments, resolved, out, announce=announce, own_type=own_type)
    return replace(job, notes=(*said, *job.notes))


# more than 40 lines: every argument is checked here, in the order in which one depends on another
def begin(
    chosen: Chosen,
    data: Data,
    arguments: Mapping[str, Any],
    training: Training,
    out: str | Path | None,
    *,
    announce: Callable[[str], None] = lambda line: None,
    own_type: bool = False,
) -> Job:
    """Check every argument of a resolved training, then make the run's directory and its first state.

    Args:
        chosen: What is trained.
        data: On what.
        arguments: The options of the model and of its step, the name of a rule.
        training: The resolved options common to all trainings.
        out: The run's directory, which must not exist; one that is free if not given.
        announce: Given the first line, what is trained on what, before an optimizer is made: torch imports
            its compiler with the first, which takes a second.
        own_type: Whether a user's own module is trained in the type in which it is built.
    """
    entry, training = chosen.entry, in_group(training)
    check_own(chosen, training)
    check_counts(training)
    check_options(resolve(entry.build), arguments["options"], f"the model {entry.name}")
    check_task(entry, data)
    training, typed = in_own_type(chosen, data, arguments["options"] if own_type else None, training)
    data = rescaled(data, training.scale)
    training, said = with_precision(data, training)
    data, scaled = with_outcome(data, entry, training)
    rule = find(rules(), arguments["rule"], "rule") if arguments["rule"] else None
    factory = factory_of(entry, arguments["rule"])
    refuse_unused(entry, rule, factory, arguments["step"], training)
    if not data.resumable and ((training.processes or 1) > 1 or training.workers):
        raise ValueError(f"{data.name} is a stream, which one process reads: leave out processes and workers")
    found = pretrained(entry, _weights(training), data.spec)
    asked = like_the_run(entry, arguments["options"], training.init_from or "") or arguments["options"]
    options = with_options(asked, found, resolve(entry.build), training.init_from or "")
    step = completed(factory, arguments["step"])
    record = record_of(entry, data, {**arguments, "options": options, "step": step}, training, chosen.own)
    check_base(record)
    notes: list[str] = [*typed, *said, *scaled]
    take = partial(taken_over, training=training, record=record, found=found)
    state = bare_state(entry, record, data, training, partial(take, notes=notes), made_by(chosen.handed))
    makers = optimizer_makers(entry, state, training)
    notes += getattr(state.core, "notes", ())  # what a model found out from the data
    plan = plan_of(entry, data, record["arguments"], training, state)
    if check_outputs(chosen, data, state.model, plan):
        put_in_row(state, record)
        notes.append(COLUMN)
    trial = partial(_trial, entry, record, data, training, partial(take, notes=[]), chosen.handed)
    check_stops(training, Training().over(entry.defaults), plan, trial)
    record["arguments"]["training"] = linked_runs(training.as_json())  # messages name a run as the user did
    record["others"] = digests(training)
    if "samples" in (training.log or ()):
        resolve("margin.runs.sampling:check_pictures")(state.core, data.encoding)
    path = broadcast_from_rank0(
        lambda: Run.create(out if out is not None else free_path(entry.name), record).path
    )
    run, lock = Run(path, chosen.handed), held(path)
    count = sum(parameter.numel() for parameter in state.core.parameters())
    announce(f"{entry.name} on {data.name}: {count:,} parameters")
    try:
        state.optimizers = {name: make_one() for name, make_one in makers.items()}
        run.start(state)
    except (OSError, ValueError):
        shutil.rmtree(path, ignore_errors=True)  # without its first weights it is no run
        raise
    return Job(run, state, plan, None if data.origin else data, tuple(notes), lock)


def _trial(
    entry: Entry,
    record: Mapping[str, Any],
    data: Data,
    training: Training,
    change: Callable[[nn.Module], object],
    handed: Any,
) -> tuple[State, Plan]:
    """The first state of a training and its plan once more, in this process: both are functions of these."""
    own = replace(training, processes=world().size, workers=0, compile=False)
    state = initial_state(entry, record, data, own, change, partial(module_of, handed=handed))
    return state, plan_of(entry, data, record["arguments"], own, state)


def _weights(training: Training) -> str:
    """Where the weights are that a model begins with; "" for none, and for word vectors."""
    return "" if is_vectors(training.init_from) else training.init_from or ""


def taken_over(
    model: nn.Module,
    training: Training,
    notes: list[str],
    record: Mapping[str, Any],
    found: Pretrained | None = None,
) -> None:
    """Give a model the weights of the run, or of the file, that it begins with, and say what was taken.

    Args:
        model: Changed in place.
        training: Whose ``init_from`` names the weights.
        notes: What is said is added.
        record: Of the training, with the recipe of the model and the tokens of the data.
        found: The weights by the model's names, where they are another library's.
    """
    if not training.init_from:
        return
    path = training.init_from
    if is_vectors(path):
        words = tuple(record["data"]["encoding"].get("vocabulary", ()))
        name, count = with_vectors(model, Path(path), words)
        notes.append(f"{count:,} of {len(words):,} rows of {name} begin with the vectors of {path}")
        return
    place = weights_file(Path(path))
    if found:
        taken = put_in(model, found, path)
    elif place:
        source, told = unwrapped(read_weights(place), model.state_dict())
        notes.extend([told] if told else [])
        taken = transfer(model, source)
    else:
        tensors, said = tensors_of_run(model, run_at(path, "init_from"), record)
        notes.extend(said)
        taken = transfer(model, tensors)
    if training.init and not taken.left:
        raise ValueError(f"every tensor begins with the values of {path}: leave out --init")
    left = f"; as drawn: {', '.join(taken.left)}" if taken.left else ""
    if found:
        heads = [f"{name} ({why})" for name, why in taken.left.items() if name.startswith(found.head)]
        left = f"; new last layer, as drawn: {', '.join(heads)}" if heads else "; those of the last layer too"
        notes.append(f"{path} has {', '.join(f'{name} {value}' for name, value in found.options.items())}")
    notes.append(f"{len(taken.taken)} tensors begin with the values of {path}{left}")


def reopen(run: str | Path | Run, data: Any, training: Training) -> Job:
    """A run's job, where its last checkpoint left it.

    Raises:
        RunBusyError: Another process is training it.
        ValueError: The data or the options are not those that the run began with.
    """
    run = run_of(run)
    lock = held(run.path)
    return replace(_reopened(Run(run.path, run.handed), data, training), lock=lock)


def _reopened(run: Run, data: Any, training: Training) -> Job:
    """The job of a run that is held already."""
    record = run.record
    recorded = Training.recorded(record["arguments"]["training"])
    opened = rescaled(reopen_data(record, data), recorded.scale)
    if not opened.resumable:
        raise ValueError("a stream comes in its own order: a run on it cannot be resumed")
    arguments = record["arguments"]
    training = Training(**linked_runs(in_group(training).changing(recorded).as_json()))
    check_counts(training)
    check_resumable(linked_runs(recorded.as_json()), training)
    check_same_others(record, training)
    entry = run.entry
    notes = [*newer_options(arguments["training"]), *filter(None, [edited(record)])]
    if record.get("outcome"):
        opened, _ = with_outcome(opened, entry, training)
    change: Callable[[nn.Module], object] = lambda model: None
    if not run.begun:
        found = pretrained(entry, _weights(training), opened.spec)
        change = partial(taken_over, training=training, notes=notes, record=record, found=found)
    make = made_by(run.handed) if isinstance(run.handed, nn.Module) else partial(rebuilt, run)
    state = initial_state(entry, record, opened, training, change, make)
    plan = plan_of(entry, opened, arguments, training, state)
    check_stops(
        training, recorded, plan, partial(_trial, entry, record, opened, training, change, run.handed)
    )
    run.start(state)
    run.restore(state)
    before = recorded.as_json()
    changed = {name: value for name, value in training.as_json().items() if value != before[name]}
    if asked_on(run, state, plan.total, changed):
        run.reopen()  # before the record is amended: a kill in between leaves a run that goes on
    if is_over(run, state, plan):
        why = run.checkpoints["reason"]  # ``run.reason`` says of a run that is held that it is being trained
        more = "; a larger --epochs or --max-steps goes on" if why == "max_steps" else ""
        notes.append(f"{run.path} is finished after {state.step} steps ({why}): nothing is changed{more}")
    elif changed:
        run.amend(training.as_json())
    return Job(run, state, plan, None if opened.origin or arguments["data"] else opened, tuple(notes))


def in_group(training: Training) -> Training:
    """The options of a training; in a group of processes their number is the group's."""
    size = world().size
    return replace(training, processes=size) if size > 1 else training


def open_source(source: Any, options: Mapping[str, Any] | None = None) -> Data:
    """The data of a source, with how to open it again where it is a name or a file."""
    source, options = Source.of(source), options or {}
    data = open_data(source, options)
    if not isinstance(source.given, str | Path):
        return data
    name = str(source.given).removeprefix("data/")
    place = name if name in sources() else source.place
    named = [key for key, value in options.items() if key.endswith("_file") and value]
    files = {key: str(Path(options[key]).resolve()) for key in named}
    return replace(data, origin={"source": place, "options": {**options, **files}})


def finish(
    job: Job,
    *,
    progress: Progress | None = None,
    hooks: Sequence[Hook] = (),
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Train a job to its end, and judge the weights that it hands out.

    Args:
        job: What :func:`prepare` or :func:`reopen` made.
        progress: Makes the hook that shows how it goes; of several processes in the first.
        hooks: Further hooks, called after the run's own; of several processes in each.
        stop: Asked after each step whether to stop as after Ctrl-C.

    Raises:
        NonFiniteError: The loss or a gradient is not finite.
        KeyboardInterrupt: It was interrupted, and saved.
        WorkerDiedError: One of several processes was killed; the last checkpoint is whole.
    """
    try:
        if is_over(job.run, job.state, job.plan):
            return job.run
        if world().size == 1 and (job.plan.training.processes or 1) > 1:
            return spread(job, progress, hooks)
        with going_on(_later(job)), _told(job.run):
            return _finished(job, progress, hooks, stop)
    finally:
        if job.lock:
            job.lock.release()


def _finished(job: Job, progress: Progress | None, hooks: Sequence[Hook], stop: Callable[[], bool]) -> Run:
    """Train a job in this process, as :func:`finish` does."""
    run, state, plan = job.run, job.state, job.plan
    (run.path / "metrics.json").unlink(missing_ok=True)  # it judges the weights that are about to change
    training = plan.training
    with (
        _discarding(run, state),
        _told(run),
        threads(training.threads),
        interruptible(stop) as interrupted,
        recording(run, training.log or ()) as copying,
    ):
        leads = world().rank == 0
        shown = [progress(run, plan.total, plan.per_epoch)] if progress and leads else []
        snapshots = "margin.runs.sampling:sample_snapshots"
        pictures: list[Hook] = (
            [resolve(snapshots)(run)] if leads and "samples" in (training.log or ()) else []
        )
        evaluating, keeping, stops = watching(run, plan, interrupted.until_asked)
        watched: list[Hook] = [evaluating, *keeping, copying, *pictures]
        reason = _advance(job, [*watched, *stops], [*shown, *hooks, interrupted])
        if reason != INTERRUPTED and not has_row(run, state):
            evaluating.row(state)
            for hook in (keeping[-1], copying, *pictures):
                hook(state, {})
            reason = INTERRUPTED if interrupted.left else reason
        if run.checkpoints.get("last") != state.step:
            run.save(state, best=False)
    run.end(state, reason)
    if reason == INTERRUPTED:
        raise KeyboardInterrupt(f"saved after {state.step} of {plan.total} steps: {_later(job)}")
    wait()  # until the checkpoint that is judged lies there
    run.record_metrics(plan.evaluate_held_out(load(run).to(device_of(state.model))) | plan.conclude(state))
    return run


def _told(run: Run) -> AbstractContextManager[None]:
    """A context in which what a user's own module raises is told in one line."""
    return reported_within(run.record["recipe"]["model"]) if run.record.get("own") else nullcontext()


def _later(job: Job) -> str:
    """How to go on with a job that has stopped."""
    streamed = job.data is not None and not job.data.resumable
    return "a stream cannot be resumed" if streamed else f"go on with margin train --resume {job.run.path}"


@contextmanager
def _discarding(run: Run, state: State) -> Iterator[None]:
    """Leave no directory of a training that was refused at its first step, so that its name is free again."""
    try:
        yield
    except ValueError:
        if state.step == 0 and not run.checkpoints and world().size == 1:
            shutil.rmtree(run.path)
        raise


def _advance(job: Job, watched: Sequence[Hook], hooks: Sequence[Hook]) -> str:
    """Advance the state to its end, under the hooks that look at the run's own, then others; why it ended."""
    run, state, plan = job.run, job.state, job.plan
    state.history = run.history
    every = [*watched, *hooks]
    try:
        if reason := ended(run, state) or caught_up(run, state, watched):
            return reason
        return fit(state, plan.batches, plan.step, max_steps=plan.total, hooks=every)
    except NonFiniteError as error:
        run.end(state, f"{NOT_FINITE}: {error}")
        raise
    finally:
        plan.feed.close()


def spread(job: Job, progress: Progress | None, hooks: Sequence[Hook]) -> Run:
    """Train a job by new processes, each of which reopens its run."""
    path, training = job.run.path, job.plan.training
    try:
        launch(work, int(training.processes or 1), str(training.device), (path, job.data, progress, hooks))
    except WorkerDiedError as error:
        raise WorkerDiedError(f"{error}; go on with margin train --resume {path}") from None
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(str(error) or f"go on with margin train --resume {path}") from None
    return Run(path, job.run.handed)


def work(
    stop: Callable[[], bool], path: Path, data: Data | None, progress: Progress | None, hooks: Sequence[Hook]
) -> None:
    """What each of several processes does: reopen the run and train it to its end."""
    # whoever started this process holds the run for it
    finish(_reopened(Run(path), data, Training()), progress=progress, hooks=hooks, stop=stop)


def free_path(name: str) -> Path:
    """``runs/<topic>-<number>``, the first that is not taken."""
    body, _, head = name.rpartition("/")[2].partition(":")  # a colon is no name of a file everywhere
    topic = re.sub(r"\W", "", head.rpartition(".")[2]) if is_user_model(name) else body
    return next(path for i in count(1) if not (path := Path("runs") / f"{topic}-{i}").exists())
