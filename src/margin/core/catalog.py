"""The tables from which the command line, the pages and the contract tests are derived.

A row is text: a name, one line of summary, a reference, and dotted paths (``"package.module:name"``)
to what it names, resolved only when used. Reading every table therefore imports neither torch nor
numpy. A package names its families (``FAMILIES``); each holds its own rows, and a path in them that
begins with a dot (``".module:name"``) is relative to the family. The areas are reached by name alone.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal, TypeVar

from margin.core.hints import describe_type, fits, with_tuples

PACKAGES = (
    *("math", "nn", "optim", "data", "engine", "theory", "robust"),
    *("classic", "feedforward", "vision", "sequence", "text", "geometric", "generative", "bayes"),
)
"""The packages that hold tables, in the order in which they may import each other."""

GROUP = "margin"
"""The group of entry points by which an installed package adds a module of tables to ours."""


Target = str | Any
"""A dotted path; in the entry of a user's own module, which no table holds, the object itself."""


class UnknownName(ValueError):
    """A name that no table holds; the message gives the nearest."""


def resolve(path: Target) -> Any:
    """The object at a dotted path ``"package.module:name"``; what is no path is the object itself."""
    if not isinstance(path, str):
        return path
    module, _, name = path.partition(":")
    target: Any = import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target


@dataclass(frozen=True, slots=True)
class Entry:
    """A named model: how it is built, its task, how it learns, how it cuts data into examples.

    A body that is read in several ways has an entry a head: ``area/topic`` is the first, ``area/topic:head``
    another; a training that is given the name without a head takes the first that fits the data.

    Args:
        name: ``area/topic``, or ``area/topic:head``.
        build: Path of the constructor: positional parameters are dictated by the data, keyword-only
            ones are the user's.
        task: Path of its task.
        tiny: Path of a function without arguments that returns the smallest Data it trains on.
        summary: One line: which mathematical object it is.
        reference: Author, year and section, equation or theorem.
        takes: The kind of data it takes, where the spec of another kind reads the same; "" is any.
        reads: The kind as which a file of text is read where its name tells none; "" is what the entry takes.
        objective: Path of its objective; "" takes the task's loss.
        step: Path of a step factory; "" descends on the objective.
        examples: Path of ``(split) -> Examples``, whose keyword-only parameters are options of the model by
            name; "" takes the split as it is.
        optimizers: Submodules with an optimizer of their own; "" is the whole model, () none.
        parallel: Whether a batch may be divided between processes.
        whole: Whether a step takes all training examples at once.
        weighted: Whether its step counts an example by its weight; one that does not knows but equal ones.
        last: Whether its result is the state of the last step, however good others were on the way, as of a
            chain: then no validation loss chooses among them.
        defaults: Its own defaults of the training options.
        weights: Path of ``(tensors, config) -> Pretrained | None``, which knows the model's weights as other
            libraries write them (:mod:`margin.engine.transfer`).
        least_steps: Steps that a training takes at least where the user says neither epochs nor steps: on few
            examples the epochs of the defaults would be a handful of steps.
        formerly: Names that it had; records of earlier runs hold them.
        newer: Options of the model that are newer than some records of runs, as it was before there was a
            choice.
        covers: Identifiers of the specification that it covers.
    """

    name: str
    build: Target
    task: Target
    tiny: str
    summary: str
    reference: str
    _: KW_ONLY
    takes: str = ""
    reads: str = ""
    objective: str = ""
    step: str = ""
    examples: str = ""
    optimizers: tuple[str, ...] = ("",)
    parallel: bool = True
    whole: bool = False
    weighted: bool = True
    last: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    weights: str = ""
    least_steps: int = 0
    formerly: tuple[str, ...] = ()
    newer: Mapping[str, Any] = field(default_factory=dict)
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A step that any entry with a loss can take instead of its own.

    Args:
        name: ``area/topic``.
        step: Path of the step factory.
        summary: One line: what the step minimizes or advances.
        reference: Author, year and section, equation or theorem.
        unused: Training options that have no effect under it.
        last: Whether its result are the weights of the last step, however good others were on the way: then
            no validation loss ends the training or chooses among them.
        replaced: By an option of the rule, the training options whose place it takes where it is given.
        measure: Path of a factory of ``(model, held-out batches) -> metrics``, which every evaluation adds;
            its parameters are filled as the step's, its options are those of the rule that it names.
        feed: Path of a factory of the batches of each step, where they are not those of all training
            examples; filled as ``measure``, and given ``cut``, which makes the batches of any examples.
        conclude: Path of a factory of ``state -> metrics``, which are told at the end beside those of an
            evaluation; filled as ``measure``.
        remark: What a reader of a run's predictions must know, a sentence; "" where nothing.
        formerly: Names that it had; records of earlier runs hold them.
        renamed: By an option of the rule, words that records of earlier runs hold, and those of today.
        covers: Identifiers of the specification that it covers.
    """

    name: str
    step: str
    summary: str
    reference: str
    _: KW_ONLY
    unused: tuple[str, ...] = ()
    last: bool = False
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    measure: str = ""
    feed: str = ""
    conclude: str = ""
    remark: str = ""
    formerly: tuple[str, ...] = ()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Something of the catalog that is no model: a layer, a loss, a source of data, a measure, a fact.

    Args:
        name: ``area/topic``.
        kind: layer, loss, optimizer, source, measure, fact, ...
        target: Path of our object or the library's (``"torch.nn:GELU"``).
        summary: One line: what it is.
        reference: Author, year and section, equation or theorem; for a source, where it is from.
        covers: Identifiers of the specification that it covers.
    """

    name: str
    kind: str
    target: str
    summary: str
    reference: str
    _: KW_ONLY
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """What a claim needs of its subject; ``text`` completes "does not apply: needs ...".

    Args:
        text: What is needed.
        met: Path of ``(subject) -> bool``.
        of: Whether it is asked of the subject as a whole, or of the kind of its model.
        model: In place of ``met``, the path of a class: the model must be one.
        why: Path of ``(subject) -> a line`` that says why it is not met, in place of the text; "": the text.
    """

    text: str
    met: str = ""
    of: Literal["subject", "model"] = "subject"
    model: str = ""
    why: str = ""

    def is_met(self, subject: Any) -> bool:
        """Whether a subject has what is needed."""
        if self.model:
            return isinstance(resolve("margin.nn.preprocessed:core_of")(subject.model), resolve(self.model))
        return bool(resolve(self.met)(subject))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a question costs: forward passes over examples; a gradient is worth 3, a second derivative 6.

    Args:
        passes: How often the model is evaluated on each example, about.
        part: The examples: test, or train where they are known; answered: those training examples that the
            model answers once for all questions, :func:`~margin.theory.evidence.rows.training_draw`.
        limit: Examples at most, 0 for all.
        drawn: Whether fewer examples may be drawn, by ``Subject.at_most``, where there is less time.
        beside: Seconds that an example of that part, or a held-out one, takes of a core beside the passes; of
            a question about answers each of its targets.
        first: Whether it is asked of the first batch alone.
    """

    passes: float = 1.0
    part: Literal["test", "train", "answered"] = "test"
    limit: int = 0
    drawn: bool = False
    beside: float = 0.0
    first: bool = False


def drawn(passes: float, limit: int = 1024) -> Cost:
    """The cost of a question about training examples that it draws: of fewer, where there is less time."""
    return Cost(passes, "train", limit, drawn=True)


@dataclass(frozen=True, slots=True)
class Claim:
    """A named question that returns a finding.

    Args:
        name: ``area/topic.name``.
        ask: Path of ``(subject) -> Finding``.
        demo: Path of a function without arguments that returns a subject whose answer is known.
        summary: One line: the question.
        reference: Author, year and section, equation or theorem.
        needs: What it needs of a subject.
        cost: What it costs, for an audit that has so many minutes.
        by_name: Why an audit of everything leaves it out, or "": the answer is known before, as of an
            identity, which teaches the theorem more than it tells of the model; or it takes long.
        question: Which of a user's questions its answer bears on, a key of :data:`QUESTIONS`.
        figure: Path of ``(axes, finding) -> what is shown, in words``, "" where this finding has not the
            curves of it; without a figure the report draws them as lines.
        covers: Identifiers of the specification that it covers.
    """

    name: str
    ask: str
    demo: str
    summary: str
    reference: str
    _: KW_ONLY
    needs: tuple[Need, ...] = ()
    cost: Cost = Cost()
    by_name: str = ""
    question: str = ""
    figure: str = ""
    covers: tuple[str, ...] = ()

    def refusal(self, subject: Any, known: dict[Need, bool] | None = None) -> str:
        """Why the question makes no sense for this subject, or "".

        The kind of model comes first: what else is needed may be a question to that kind alone.

        Args:
            subject: The model under audit.
            known: What is known of it already, by need; what is found out is added.
        """
        known = {} if known is None else known
        kinds = [need for need in self.needs if need.model or need.of == "model"]
        others = [need for need in self.needs if need not in kinds]
        if lacking := _texts(_unmet(kinds, subject, known)):
            return f"{OTHER_MODELS} {lacking}"
        # a claim about a kind of model knows what it may ask of it
        unmet = _unmet(others if kinds else [*others, LOSS], subject, known)
        reasons = (resolve(need.why)(subject) for need in unmet if need.why)
        if reason := next(filter(None, reasons), ""):
            return str(reason)
        lacking = _texts(unmet)
        return f"needs {lacking}" if lacking else ""


def _unmet(needs: Iterable[Need], subject: Any, known: dict[Need, bool]) -> list[Need]:
    """The needs that a subject does not meet; each is found out once, some by asking the model."""
    unmet = []
    for need in needs:
        if need not in known:
            known[need] = need.is_met(subject)
        if not known[need]:
            unmet.append(need)
    return unmet


def _texts(needs: Iterable[Need]) -> str:
    return " and ".join(need.text for need in needs)


QUESTIONS = {
    "right": "Is it right?",
    "probabilities": "Are its probabilities right?",
    "fails": "Where does it fail?",
    "moves": "What moves it?",
    "memorized": "Has it memorized?",
    "trained": "Was the training finished?",
    "rests": "What do the numbers rest on?",
    "": "What does theory say of models of its kind?",
}
"""What a user wants to know of a model, in the order in which an audit answers."""

OTHER_MODELS = "is asked only of"
"""How a refusal begins that is due to the kind of model."""

KNOWN = "the answer is known before"
LONG = "it takes long"
"""Why a claim is asked only where it is named."""

LABELS = Need("class labels", "margin.core.findings:has_labels")
ONE_LABEL = Need("one class label an example", "margin.core.findings:has_one_label")
PROBABILITIES = Need("class probabilities", "margin.core.findings:has_probabilities")
LOSS = Need("a loss", "margin.core.findings:has_loss")
TWO_EXAMPLES = Need("two held-out examples", "margin.core.findings:has_two_examples")
TWO_LABELS = Need("held-out examples of two classes", "margin.core.findings:has_two_labels")
TARGETS = Need("targets", "margin.core.findings:has_targets")
ROWS_OF_TARGETS = Need("outputs with a row for each target", "margin.core.findings:answers_each_target")
NOT_MOVABLE = "margin.core.findings:why_not_movable"
MOVABLE = Need("one input of real numbers", "margin.core.findings:has_real_input", why=NOT_MOVABLE)
DOMAIN = Need(
    "a domain (where one input may be moved)",
    "margin.core.findings:has_domain",
    why="margin.core.findings:what_lacks",
)
TRAINING = Need("the training examples", "margin.core.findings:has_training_batches")
PARAMETERS = Need(
    "real parameters that require a gradient",
    "margin.core.findings:has_parameters",
    why="margin.core.findings:what_lacks",
)
HISTORY = Need("the history of a training", "margin.core.findings:has_history")
INITIAL = Need("the weights that the training began with", "margin.core.findings:has_initial")
CERTIFIED = Need(
    "a law over the weights with a risk certificate (--rule pac_bayes)",
    "margin.core.findings:has_certificate",
)
REFERENCE_MODEL = Need(
    "a reference model of the same kind (--reference RUN)", "margin.core.findings:has_reference_model"
)
INDEPENDENT = Need("examples that do not depend on each other", "margin.core.findings:is_independent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A form in which data come: by what it is known, what reads it, what is recorded of it.

    Args:
        name: Its name; where ``prefix`` says so, ``name:PATH`` is a file or folder of it.
        reader: Path of ``(source) -> Data``, whose keyword-only parameters are its options; "": none.
        encoder: Path of ``(source, encoding) -> examples``, which reads new data by the record of a run.
        prefix: Whether a path may be read so whatever its ending, and new data of a run always are.
        endings: Of its files, ``.gz`` apart.
        holds: Patterns of the files by one of which a folder of it is known; joined by " + ", by all of them.
        known: Path of ``(object) -> bool``, of data in memory.
        gives: What an example is, by the key of the spec that a model of such examples asks for.
        files: Path of ``(source) -> files``, one an example of new data.
        real: Whether an example is one tensor of real numbers, unless its type says otherwise.
        numbers: Whether a shape, a type and classes are recorded of it.
        labeled: Where its examples may have no targets, how they get some, in the words of a message.
        refusal: Why it has no reader, in the words of a message.
        record: Beside what is recorded of all data, the keys of its encoding and what they may hold (see
            :mod:`margin.data.schema`).
        also: Further keys, by the task.
    """

    name: str
    reader: str = ""
    encoder: str = ""
    prefix: bool = False
    endings: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    known: str = ""
    gives: Mapping[str, str] = field(default_factory=dict)
    files: str = ""
    real: bool = False
    numbers: bool = False
    labeled: str = ""
    refusal: str = ""
    record: Mapping[str, Any] | None = None
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


Row = Entry | Rule | Part | Claim
T = TypeVar("T")


@cache
def _modules() -> tuple[Any, ...]:
    """Our packages, then the modules that other installed packages add, by name, each before its families."""
    added = sorted({point.value for point in entry_points(group=GROUP)})
    packages = [import_module(name) for name in (*(f"margin.{package}" for package in PACKAGES), *added)]
    return tuple(
        module
        for package in packages
        for module in (
            package,
            *(import_module(f"{package.__name__}.{family}") for family in getattr(package, "FAMILIES", ())),
        )
    )


@cache
def _table(kind: str) -> Mapping[str, Any]:
    rows: dict[str, Any] = {}
    for module in _modules():
        for row in getattr(module, kind, ()):
            if row.name in rows:
                raise ValueError(f"two rows of {kind} are named {row.name}")
            rows[row.name] = _absolute(row, module.__name__)
    return rows


def _absolute(row: Any, package: str) -> Any:
    """The row with its relative paths, ``".module:name"``, in the package that holds it."""
    given = {field.name: getattr(row, field.name) for field in fields(row) if field.name != "_"}
    relative = {name: v for name, v in given.items() if isinstance(v, str) and v.startswith(".")}
    return replace(row, **{name: package + path for name, path in relative.items()}) if relative else row


def models() -> Mapping[str, Entry]:
    """Every entry, by name."""
    return _table("MODELS")


def rules() -> Mapping[str, Rule]:
    """Every rule, by name."""
    return _table("RULES")


def parts() -> Mapping[str, Part]:
    """Every part, by name."""
    return _table("PARTS")


def claims() -> Mapping[str, Claim]:
    """Every claim, by name."""
    return _table("CLAIMS")


def heads_of(entry: Entry) -> tuple[Entry, ...]:
    """The entries of one body, a head each, the first first; of a name with a head that entry alone."""
    if ":" in entry.name:
        return (entry,)
    return tuple(row for name, row in models().items() if name.partition(":")[0] == entry.name)


def sources() -> Mapping[str, Part]:
    """The parts that are sources of data, by short name."""
    return {name.rpartition("/")[2]: part for name, part in parts().items() if part.kind == "source"}


@cache
def formats() -> Mapping[str, Format]:
    """Every format of data, by name, in the order in which files and folders are tried."""
    families = import_module("margin.data.formats").FAMILIES
    rows = [row for name in families for row in import_module(f"margin.data.formats.{name}").FORMATS]
    return {row.name: row for row in rows}


def find(rows: Mapping[str, T], name: str, what: str) -> T:
    """The row of that name, or that had it; the part after the last ``/`` serves where it is unique.

    Args:
        rows: A table.
        name: A full name or a short one.
        what: How a message calls the kind of row ("model", "rule", "data set").

    Raises:
        UnknownName: No row has that name, or several do; the message names the nearest.
    """
    if name in rows:
        return rows[name]
    short = [full for full in rows if full.rpartition("/")[2] == name]
    if len(short) == 1:
        return rows[short[0]]
    before = [full for full, row in rows.items() for old in getattr(row, "formerly", ()) if _is(old, name)]
    if len(before) == 1:
        return rows[before[0]]
    if short:
        raise UnknownName(f"{what} {name!r} could be {', '.join(sorted(short))}: give the full name")
    if near := nearest(name, rows):
        raise UnknownName(f"unknown {what} {name!r}; nearest: {', '.join(near)}")
    raise UnknownName(f"unknown {what} {name!r}; there are: {', '.join(sorted(rows)[:12]) or 'none'}")


def _is(full: str, name: str) -> bool:
    return name in (full, full.rpartition("/")[2])


def nearest(name: str, names: Iterable[str], count: int = 3, *, alike: float = 0.5) -> list[str]:
    """The names most like ``name``, by their whole or by the part after the last ``/``."""
    scores = {
        full: max(
            1.0 if form.lower().startswith(name.lower()) else _likeness(name, form)
            for form in (full, full.rpartition("/")[2])
        )
        for full in names
    }
    return [full for full in sorted(scores, key=lambda full: -scores[full]) if scores[full] >= alike][:count]


def _likeness(name: str, form: str) -> float:
    return difflib.SequenceMatcher(None, name.lower(), form.lower()).ratio()


def data_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The positional parameters of a constructor or factory: what the data or the frame dictates."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds)


def user_options(function: Callable[..., Any]) -> tuple[str, ...]:
    """The keyword-only parameters of a constructor or factory: what the user chooses."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


def call_with(
    function: Callable[..., Any], given: Mapping[str, Any], options: Mapping[str, Any], what: str
) -> Any:
    """Call ``function`` with the positional parameters found in ``given`` and the user's ``options``.

    Args:
        function: A constructor or factory.
        given: What the data or the frame offer, by parameter name; the surplus is ignored. One with a default
            may be missing: data that were recorded before it was known have it not.
        options: The user's keyword-only options.
        what: How a message calls the thing that is built.

    Raises:
        ValueError: A positional parameter is not given, an option does not exist, or its value is of
            another type.
    """
    parameters = inspect.signature(function).parameters
    free = [name for name, one in parameters.items() if one.default is not one.empty and name not in given]
    names = [name for name in data_parameters(function) if name not in free]
    if missing := [name for name in names if given.get(name) is None]:
        offered = ", ".join(name for name, value in given.items() if value is not None)
        raise ValueError(f"{what} needs {', '.join(missing)}: the data give {offered or 'nothing'}")
    check_options(function, options, what)
    typed = {name: _as_annotated(value, parameters[name].annotation) for name, value in options.items()}
    for name, value in typed.items():
        if not fits(value, parameters[name].annotation):
            raise ValueError(f"{name} must be {describe_type(parameters[name].annotation)}: got {value!r}")
    dictating = {name: _as_annotated(given[name], parameters[name].annotation) for name in names}
    for name, value in dictating.items():
        if not fits(value, parameters[name].annotation):
            raise ValueError(
                f"{name} of {what} must be {describe_type(parameters[name].annotation)}: got {value!r}"
            )
    return function(**dictating, **typed)


def _as_annotated(value: Any, hint: Any) -> Any:
    if type(value).__module__ == "numpy" and not getattr(value, "shape", (1,)):
        value = value.item()  # a record keeps Python's numbers
    return with_tuples(value, hint)


def completed(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the default of each that is not given: what is recorded is never looked up again."""
    parameters = inspect.signature(function).parameters
    defaults = {name: parameters[name].default for name in user_options(function)}
    known = {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty}
    return {**known, **options}


def check_options(function: Callable[..., Any], options: Mapping[str, Any], what: str) -> None:
    """Refuse an option that ``function`` does not have, naming the nearest that it has.

    Raises:
        ValueError: An option does not exist.
    """
    known = user_options(function)
    for name in [name for name in options if name not in known]:
        has = ", ".join(dict.fromkeys([*nearest(name, known), *known])) or "none"
        raise ValueError(f"{what} has no option {name!r}; it has: {has}")
