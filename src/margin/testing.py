"""The contracts that every row keeps, for third parties' entries and claims too.

Each function checks one contract and raises AssertionError where it is broken: ``check_entry(entry,
directory)`` and ``check_claim(claim)`` run all that apply. They need no test runner.
"""

import contextlib
import copy
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from margin.auditing.asking.side_effects import Snapshot
from margin.core.catalog import Claim, Entry, Part, Rule, call_with, data_parameters, resolve, user_options
from margin.core.findings import Finding, Subject, Verdict, finding_of
from margin.core.options import Training
from margin.core.records import tensors_of
from margin.core.types import Batch, Metrics
from margin.data.examples import Data, InOrder, is_independent
from margin.data.preprocess import rescaled
from margin.engine.build import spec_of, with_builders
from margin.engine.evaluation import same_bits, weighted_sum
from margin.engine.hooks import INTERRUPTED
from margin.engine.loop import Hook, State
from margin.engine.plan import cut_of, objective_of
from margin.engine.runs import MEASURED, Run, load
from margin.figures.svg import drawing
from margin.nn.preprocessed import dtype_of
from margin.runs.training import Job, finish, prepare, reopen

REFERENCE = re.compile(
    r"[A-Z][\w'’.-]+.*\b(1[5-9]|20)\d\d\b.*"
    r"\b(Theorem|Thm|Lemma|Proposition|Prop|Corollary|Eq|Equation|Section|Sec|Chapter|Definition|Def|Algorithm|Table|Figure)s?\b"
)
"""Author, year, and theorem, equation or section."""

NAME = re.compile(r"[a-z0-9_]+/[a-z0-9_-]+([.:][a-z0-9_]+)?")
STEPS_BEFORE, STEPS_AFTER = 2, 3


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def check_row(row: Entry | Rule | Part | Claim) -> None:
    """A row is named ``area/topic``, has one line of summary and a reference, and its paths resolve."""
    _require(
        NAME.fullmatch(row.name) is not None,
        f"a name is area/topic, area/topic.name or area/topic:head: got {row.name!r}",
    )
    _require(bool(row.summary) and "\n" not in row.summary, f"{row.name}: the summary is one line")
    odd = [name for name in row.covers if not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)*", name)]
    _require(not odd, f"{row.name}: {odd} are no identifiers of the specification")
    if isinstance(row, Part):
        _require(bool(row.reference), f"{row.name}: a part says where it is from")
    else:
        _require(
            REFERENCE.search(row.reference) is not None, f"{row.name}: {row.reference!r} is no reference"
        )
    fields = ("build", "task", "tiny", "objective", "step", "examples", "target", "ask", "demo", "figure")
    for path in (getattr(row, name, "") for name in fields):
        if path:
            resolve(path)
    for need in getattr(row, "needs", ()):
        resolve(need.model or need.met)


# entries


def check_entry(entry: Entry, directory: Path) -> None:
    """Every contract of an entry; three of them look at the same training.

    Args:
        entry: The row.
        directory: An empty directory for its runs.
    """
    check_row(entry)
    _kept.clear()
    _kept[entry.name] = tiny_data(entry)
    check_constructor(entry)
    whole = trained(entry, directory / "whole")
    check_resuming(entry, directory, whole)
    check_loading(entry, whole)
    check_evaluations_leave_no_trace(entry, directory, whole)
    check_float64(entry)
    check_batch_independence(entry)
    if entry.optimizers:
        check_gradients(entry)
    _kept.clear()


def tiny_data(entry: Entry) -> Data:
    """The smallest data that the entry trains on."""
    data: Data = resolve(entry.tiny)()
    return rescaled(data, Training().over(entry.defaults).scale)


_kept: dict[str, Data] = {}
"""The smallest data of the entry that is being checked."""


def _data(entry: Entry) -> Data:
    """The smallest data of an entry, made once where all its checks are made."""
    return _kept[entry.name] if entry.name in _kept else tiny_data(entry)


def built(entry: Entry, data: Data, seed: int = 0, options: Mapping[str, Any] | None = None) -> nn.Module:
    """The entry's model as the data dictate, with the default options but for those that are given."""
    build = resolve(entry.build)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        given = with_builders(spec_of(build, data.spec, options or {}))
        module: nn.Module = call_with(build, given, options or {}, entry.name)
    return module


def first_batch(entry: Entry, data: Data, dtype: torch.dtype = torch.float32) -> Batch:
    """The first examples of the training part, preprocessed."""
    part = examples_of(entry, data)
    batch = InOrder(part, 8 if is_independent(part) else len(part), dtype=dtype)[0]
    first = data.preprocess.to(dtype)(batch.inputs[0])
    return batch._replace(inputs=(first, *batch.inputs[1:]))


def check_constructor(entry: Entry) -> None:
    """The data give every positional parameter; every option has a default that survives JSON."""
    build, data = resolve(entry.build), _data(entry)
    given = with_builders(spec_of(build, data.spec, {}))
    missing = [name for name in data_parameters(build) if name not in given]
    _require(not missing, f"{entry.name} wants {missing}: the data give {list(data.spec)}")
    parameters = inspect.signature(build).parameters
    defaults = {name: parameters[name].default for name in user_options(build)}
    bare = [name for name, default in defaults.items() if default is inspect.Parameter.empty]
    _require(not bare, f"{entry.name}: the options {bare} have no default")
    round_trip = {
        k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(json.dumps(defaults)).items()
    }
    _require(
        round_trip == defaults, f"{entry.name}: options change through JSON: {defaults} became {round_trip}"
    )
    call_with(build, given, round_trip, entry.name)
    try:
        call_with(build, given, {"no_such_option": 1}, entry.name)
    except ValueError:
        return
    raise AssertionError(f"{entry.name} accepts an option that it does not have")


def prepared(entry: Entry, directory: Path, *, evaluate_every: int = 2) -> Job:
    """A training of a few steps on the entry's smallest data."""
    arguments: Mapping[str, Any] = {"options": {}, "step": {}, "rule": ""}
    training = Training(max_steps=STEPS_BEFORE + STEPS_AFTER, evaluate_every=evaluate_every, seed=1)
    return prepare(entry.name, _data(entry), arguments, training, directory)


def trained(entry: Entry, directory: Path, *, evaluate_every: int = 2) -> Job:
    """The same, finished."""
    job = prepared(entry, directory, evaluate_every=evaluate_every)
    finish(job)
    return job


def stop_after(steps: int) -> Hook:
    """A hook that interrupts, as Ctrl-C does."""

    def hook(state: State, metrics: Metrics) -> str | None:
        return INTERRUPTED if state.step == steps else None

    return hook


def check_resuming(entry: Entry, directory: Path, whole: Job | None = None) -> None:
    """What k + m steps leave is, to the byte, what k steps, a stop, a resumption and m steps leave."""
    straight = whole or trained(entry, directory / "whole")
    job = prepared(entry, directory / "stopped")
    with contextlib.suppress(KeyboardInterrupt):
        finish(job, hooks=[stop_after(STEPS_BEFORE)])
    check_same_run(straight.run, finish(reopen(job.run.path, tiny_data(entry), Training())))


def check_same_run(one: Run, other: Run) -> None:
    """Two runs have the same files, byte for byte, times and memory of the history apart."""
    names = [sorted(path.name for path in run.path.iterdir()) for run in (one, other)]
    _require(names[0] == names[1], f"the runs hold other files: {names[0]} and {names[1]}")
    for name in names[0]:
        if name in ("history.jsonl", "run.yaml"):
            continue  # these hold times and versions
        same = (one.path / name).read_bytes() == (other.path / name).read_bytes()
        _require(same, f"{name} differs between {one.path} and {other.path}")
    rows = [
        [{k: v for k, v in row.items() if k not in MEASURED} for row in run.history] for run in (one, other)
    ]
    _require(rows[0] == rows[1], f"the histories differ: {rows[0]} and {rows[1]}")


def check_loading(entry: Entry, whole: Job) -> None:
    """The module that ``load`` gives is, to the bit, the one that was trained."""
    loaded, kept = load(whole.run, "last").state_dict(), whole.state.usable.state_dict()
    _require(list(loaded) == list(kept), f"{entry.name}: other tensors are loaded than were trained")
    different = [name for name in kept if not torch.equal(loaded[name], kept[name])]
    _require(not different, f"{entry.name}: {different} are loaded differently from what was trained")


def check_evaluations_leave_no_trace(entry: Entry, directory: Path, whole: Job | None = None) -> None:
    """How often a training evaluates does not change its weights."""
    often = whole or trained(entry, directory / "whole")
    seldom = trained(entry, directory / "seldom", evaluate_every=STEPS_BEFORE + STEPS_AFTER)
    one, other = (load(job.run, "last").state_dict() for job in (often, seldom))
    different = [name for name in one if not torch.equal(one[name], other[name])]
    _require(not different, f"{entry.name}: an evaluation changed {different}")


def check_float64(entry: Entry) -> None:
    """A model cast to float64 answers in float64."""
    data = _data(entry)
    model = built(entry, data).double().eval()
    outputs = model(*first_batch(entry, data, torch.float64).inputs)
    _require(dtype_of_output(outputs) == torch.float64, f"{entry.name} leaves float64")


def dtype_of_output(outputs: Any) -> torch.dtype:
    """The type of the first tensor among outputs."""
    tensor = outputs if isinstance(outputs, Tensor) else next(x for x in outputs if isinstance(x, Tensor))
    return tensor.dtype


def check_batch_independence(entry: Entry) -> None:
    """In evaluation mode an example's output does not depend on its batch, nor on what pads it there.

    Examples that say themselves that they read each other, as the nodes of a graph do, are left out.
    """
    data = _data(entry)
    part = examples_of(entry, data)
    if not is_independent(part):
        return
    model = built(entry, data).double().eval()
    index = torch.arange(min(8, len(part)))
    together, alone = (
        [model(*batch.inputs) for batch in batches]
        for batches in (_batches(part, [index], data), _batches(part, index.split(1), data))
    )
    for k, own in enumerate(alone):
        among = together[0][k : k + 1]
        # a batch of longer examples has more places, and the example's own come first
        among = among[tuple(slice(size) for size in own.shape)]
        gap = (among - own).abs().max().item() if own.numel() else 0.0
        _require(gap <= 1e-10, f"{entry.name}: an output moves by {gap:g} with its batch")


def examples_of(entry: Entry, data: Data) -> Any:
    """The training part as the entry cuts it into examples."""
    return cut_of(entry, {})(data.splits["train"])


def _batches(part: Any, indices: Iterable[Tensor], data: Data) -> Iterator[Batch]:
    """Batches in float64, preprocessed."""
    preprocess = copy.deepcopy(data.preprocess).double()
    for index in indices:
        batch = part.take(index, torch.Generator().manual_seed(0)).to(dtype=torch.float64, device="cpu")
        yield batch._replace(inputs=(preprocess(batch.inputs[0]), *batch.inputs[1:]))


def check_gradients(entry: Entry) -> None:
    """At initialization every parameter gets a gradient that is not all 0, for 3 seeds."""
    data = _data(entry)
    batch = first_batch(entry, data)
    objective = objective_of(entry, resolve(entry.task))
    if objective is None:
        return
    for seed in range(3):
        model, noise = built(entry, data, seed), torch.Generator().manual_seed(seed)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)  # nn.Dropout knows no other generator
            total, _ = weighted_sum(objective(model, batch, noise), batch.weight)
        names, parameters = zip(*model.named_parameters(), strict=True)
        grads = torch.autograd.grad(total, parameters, allow_unused=True)
        idle = [name for name, grad in zip(names, grads, strict=True) if grad is None or not bool(grad.any())]
        _require(not idle, f"{entry.name}: {idle} get no gradient at initialization (seed {seed})")


# claims


def check_claim(claim: Claim) -> None:
    """Every contract of a claim, on its own demonstration, which its figure draws."""
    check_row(claim)
    subject: Subject = resolve(claim.demo)()
    _require(not claim.refusal(subject), f"{claim.name} does not apply to its own demonstration")
    finding = check_question(claim, subject)
    check_finding(finding)
    grave = (Verdict.UNFOUNDED, Verdict.FAILED, Verdict.VIOLATED)
    _require(
        finding.verdict not in grave,
        f"{claim.name}: its demonstration is {finding.verdict}: {finding.failure}",
    )
    if claim.figure and finding.curves:
        with drawing() as (_, axes):
            drawn = resolve(claim.figure)(axes, finding)
        _require(bool(drawn), f"{claim.name}: its figure does not find its curves")


def check_question(claim: Claim, subject: Subject) -> Finding:
    """Asking leaves no trace, and asking again gives the same."""
    before = Snapshot.of(subject)
    first, second = finding_of(claim, subject), finding_of(claim, subject)
    changed = before.difference(subject)
    _require(not changed, f"{claim.name} leaves a trace: {changed}")
    _require(first.as_json() == second.as_json(), f"{claim.name} answers differently when asked again")
    return first


def check_finding(finding: Finding) -> None:
    """A finding has a unit, a range that holds its value, a reference, and evidence for its premises."""
    _require(bool(finding.unit), f"no unit: {finding.statement}")
    low, high = finding.range
    value = finding.value.double()
    inside = bool((value.isnan() | ((value >= low) & (value <= high))).all())
    _require(low < high and inside, f"the value is outside its range {finding.range}: {finding.statement}")
    _require(REFERENCE.search(finding.reference) is not None, f"no reference: {finding.reference!r}")
    bare = [premise.text for premise in finding.premises if not (premise.text and premise.evidence)]
    _require(not bare, f"premises without evidence: {bare}")
    check_record(finding)


def check_record(finding: Finding) -> None:
    """A finding comes back from its JSON with every bit, so with its verdict and its intervals."""
    back = Finding.from_json(json.loads(json.dumps(finding.as_json(), allow_nan=False)))
    before, after = tensors_of(finding), tensors_of(back)
    odd = [name for name in {**before, **after} if not _comes_back(before.get(name), after.get(name))]
    _require(not odd, f"{odd[:1]} does not come back from JSON: {finding.statement}")
    _require(back.premises == finding.premises, f"premises do not come back: {finding.statement}")
    _require(back.verdicts == finding.verdicts, f"verdicts do not come back: {finding.statement}")


def _comes_back(before: Tensor | None, after: Tensor | None) -> bool:
    """Whether two tensors are the same but for the bits of a NaN, of which JSON knows one."""
    if before is None or after is None:
        return False
    x, y = before.detach().cpu(), after
    return torch.equal(x != x, y != y) and same_bits(x.masked_fill(x != x, 0), y.masked_fill(y != y, 0))


def check_subject(subject: Subject) -> None:
    """A subject's batches have the model's type and their targets its task's shape."""
    dtype = dtype_of(subject.model)
    for batch in subject.test[:1]:
        wrong = [x.dtype for x in batch.inputs if x.is_floating_point() and x.dtype != dtype]
        _require(not wrong, f"the model is {dtype}, its inputs are {wrong}")
