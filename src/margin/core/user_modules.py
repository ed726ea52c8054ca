"""A user's own module in place of an entry of the catalog: ``package.module:name``, built by the data's spec.

A class or function of PyTorch's users is read as one of ours: positional parameters that bear a name of the
spec (``in_features``, ``num_classes``, ``channels``, ...) are filled by the data, the others are options.
Imports no torch; the user's code does.
"""

import copy
import hashlib
import importlib
import inspect
import sys
import sysconfig
import traceback
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from margin.core.catalog import Entry, Target, find, models, nearest, resolve, user_options
from margin.core.hints import hint_of, is_plain

SPEC = (
    "in_features",
    "num_classes",
    "num_examples",
    "channels",
    "image_size",
    "vocab_size",
    "source_vocab_size",
    "input_size",
    "horizon",
    "num_targets",
    "node_features",
    "edge_features",
    "element_size",
)
"""The names by which data dictate to a model."""

TASKS = {
    "classes": "margin.core.tasks:CLASSES",
    "binary": "margin.core.tasks:BINARY",
    "multilabel": "margin.core.tasks:MULTILABEL",
    "scores": "margin.core.tasks:SCORES",
    "halfspace": "margin.core.tasks:HALFSPACE",
    "values": "margin.core.tasks:VALUES",
    "tokens": "margin.core.tasks:TOKENS",
    "point_classes": "margin.core.tasks:POINT_CLASSES",
    "pixel_classes": "margin.core.tasks:PIXEL_CLASSES",
    "series": "margin.core.tasks:SERIES",
    "quantiles": "margin.core.tasks:QUANTILES",
    "reconstruction": "margin.core.user_losses:RECONSTRUCTION",
}
"""How the outputs of a user's own module may be read."""

RECORD: dict[str, Any] = {
    "task": Literal[tuple(TASKS)],
    "loss": str,
    "loss_options": dict[str, Any],
    "file": str,
    "sha256": str,
    "handed": Literal["", "module", "code"],
}
"""What a run's record keeps of a module that is no entry: how its outputs are read, by which loss,
where its source was and the SHA-256 of that, and what was handed over, where no name finds it."""


class BuilderError(ValueError):
    """Code of the user's failed.

    Args:
        message: Which, and how.
        place: The last frame of the user's own code, as a traceback shows it.
    """

    def __init__(self, message: str, place: str = "") -> None:  # a default, so that a process can send it
        super().__init__(message)
        self.place = place


def is_user_model(name: str) -> bool:
    """Whether a model's name is the path of a user's own object, mlp:Net; not a head, as mlp:values."""
    body, colon, _ = name.partition(":")
    known = {part for full in models() for part in (full, full.rpartition("/")[2])}
    return bool(colon and body) and name not in known and ("/" not in body or body.endswith(".py"))


def named_object(path: str) -> Any:
    """The object at a path of a user's.

    Args:
        path: ``"package.module:name"``. The current directory is searched first, as by ``python -m``, and
            stays on the search path.

    Raises:
        BuilderError: The user's code raises, ends the program, or has a syntax error.
        ValueError: The path names nothing.
    """
    module, _, name = path.rpartition(":")
    if "/" in module or "\\" in module or module.startswith(".") or module.endswith(".py"):
        file = Path(module)
        where = "" if file.parent == Path() else f"in {file.parent}, "
        raise ValueError(
            f"a model is named as package.module:function, by no path of a file: got {path!r}; "
            f"{where}write {file.name.removesuffix('.py').lstrip('.')}:{name}"
        )
    if not (module and name):
        raise ValueError(f"a model is named as package.module:function: got {path!r}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    found: Any = _imported(module)
    for part in name.split("."):
        if not hasattr(found, part):
            near = nearest(part, [n for n in vars(found) if not n.startswith("_")])
            raise ValueError(f"{module} has no {name!r}; nearest: {', '.join(near) or 'none'}")
        found = getattr(found, part)
    return found


def _imported(module: str) -> Any:
    try:
        with reported(module):
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"{module} could not be imported: it needs the module {error.name!r}") from error
        short = [full.rpartition("/")[2] for full in models()]
        heads = [name for name in short if name.startswith(f"{module}:")]
        hint = f"; of the catalog there are {', '.join((module, *heads))}" if module in short else ""
        raise ValueError(f"no module {module!r} here or among the installed packages{hint}") from None


@contextmanager
def reported(what: str) -> Iterator[None]:
    """What the user's own code raises is told in one line, with where in it that happened."""
    try:
        yield
    except ModuleNotFoundError:
        raise  # perhaps the name itself is wrong
    except SystemExit as ended:
        raise BuilderError(f"{what} ended the program by sys.exit({ended.code})", _place(ended)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a class of the user's may derive from it, and is no reason to end
        kind, text = type(error).__name__, str(error).partition("\n")[0]
        raise BuilderError(f"{what} raised {kind}{f': {text}' if text else ''}", _place(error)) from error


@contextmanager
def reported_within(what: str) -> Iterator[None]:
    """As :func:`reported`, of work of ours that calls the user's code: what ours raises stays as it is."""
    try:
        yield
    except Exception as error:
        if isinstance(error, BuilderError) or not _place(error):
            raise
        with reported(what):
            raise


def _place(error: BaseException) -> str:
    """The last frame of the user's own code; of a syntax error the line that Python cannot read."""
    if isinstance(error, SyntaxError) and error.filename:
        return "".join(traceback.format_exception_only(error)[:-1]).rstrip()
    foreign = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(Path(__file__).parents[1]))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*foreign, "<"))
    ]
    return "".join(traceback.format_list(frames[-1:])).rstrip()


def name_of(target: Any) -> str:
    """The path of a class, a function, or the class of a module, as its own definition states it."""
    named = _definition(target)
    return f"{named.__module__}:{named.__qualname__}"


def _definition(target: Any) -> Any:
    """The class or function that a source defines: of a module its class, of a partial what it calls."""
    if isinstance(target, partial):
        return _definition(target.func)
    return target if hasattr(target, "__qualname__") else type(target)


def is_nameable(target: Any) -> bool:
    """Whether an object is found again by its own path: no lambda, nothing local to a function."""
    path = name_of(target)
    owner: Any = sys.modules.get(path.partition(":")[0])
    for part in path.partition(":")[2].split("."):
        owner = getattr(owner, part, None)
    return owner is target


def source_of(target: Any) -> tuple[str, str]:
    """The file in which an object is defined and its SHA-256; twice "" of a notebook's."""
    try:
        file = Path(inspect.getsourcefile(_definition(target)) or "")
    except TypeError:
        return "", ""
    return (str(file.resolve()), _digest(file)) if file.is_file() else ("", "")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


VARIADIC = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
"""``*args`` and ``**kwargs``."""


def parameters_of(target: Any) -> list[inspect.Parameter]:
    """The parameters of a class or function; a class that hands on ``*args, **kwargs`` has its base's too."""
    found: dict[str, inspect.Parameter] = {}
    for made in _constructors(target):
        own = inspect.signature(made).parameters.values()
        found = {p.name: p for p in own if p.kind not in VARIADIC} | found
    return [*found.values()]


def _constructors(target: Any) -> list[Any]:
    """A class, with the bases to whose constructors its own hands on what it is given; else the target."""
    if not isinstance(target, type):
        return [target]
    found = [target]
    for base in target.__mro__[1:-1]:
        kinds = {p.kind for p in inspect.signature(found[-1]).parameters.values()}
        if not kinds >= VARIADIC or base.__module__ == "torch.nn.modules.module":
            break
        if "__init__" in vars(base):
            found.append(base)
    return found


def _hints(target: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for made in reversed(_constructors(target)):
        try:
            # a class is asked for its own constructor, whichever subclass that is
            found |= typing.get_type_hints(made.__init__ if isinstance(made, type) else made)  # type: ignore[misc]
        except (NameError, TypeError, AttributeError):  # names that only a type checker has
            continue
    return found


def builder_of(target: Any, path: str, spec: Collection[str] | None = None) -> Callable[..., Any]:
    """A user's class or function as a constructor of ours: the spec's names positional, its options named.

    Args:
        target: A class, a function, or a module, of which each call gives a copy.
        path: How messages call it.
        spec: The names that the data dictate; None where they are not known yet. A parameter with a default
            that bears another name of the spec keeps its default.

    Raises:
        ValueError: It cannot be called.
    """
    if _is_module(target):
        return _copies(target)
    check_callable(target, path)
    empty, hints = inspect.Parameter.empty, _hints(target)
    dictated, options, parameters = [], [], parameters_of(target)
    for p in parameters:
        hint = hint_of(p, hints)
        # one behind a star that has a default is the user's choice; without one only the data have it
        if p.name in SPEC and (p.kind is not p.KEYWORD_ONLY or p.default is empty):
            if spec is None or p.name in spec or p.default is empty:
                dictated.append(p.replace(kind=p.POSITIONAL_OR_KEYWORD, default=empty, annotation=hint))
        elif p.default is empty or (is_plain(hint) and is_plain(type(p.default))):
            options.append(p.replace(kind=p.KEYWORD_ONLY, annotation=hint))
    required = [p.name for p in options if p.default is empty]
    first = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]

    def _built(**given: Any) -> Any:
        if lacking := [name for name in required if name not in given]:
            raise ValueError(
                f"{path} needs {', '.join(lacking)}, which the data do not dictate (they dictate "
                f"{', '.join(SPEC[:5])}, ...): give {'it' if len(lacking) == 1 else 'them'} as options"
            )
        ahead = [given.pop(name) for name in first if name in given]
        module = built(lambda: target(*ahead, **given), path)
        check_sized(module, path)
        return module

    made = target if isinstance(target, type) else hints.get("return", empty)
    _built.__signature__ = inspect.Signature([*dictated, *options], return_annotation=made)  # type: ignore[attr-defined]
    _built.__doc__, _built.__name__ = _documented(target), path.rpartition(":")[2].replace(".", "_")
    return _built


def check_callable(target: Any, path: str) -> None:
    """Refuse what is no class and no function."""
    if not callable(target):
        raise ValueError(f"{path} must build a torch module: it is of type {type(target).__name__}")


def built(build: Callable[[], Any], path: str) -> Any:
    """The module that the user's code builds; refused where it raises, or returns something else."""
    with reported(path):
        module = build()
    if not _is_module(module):
        raise ValueError(f"{path} must build a torch module: it returned the type {type(module).__name__}")
    return module


def _copies(module: Any) -> Callable[..., Any]:
    """A constructor of copies of a module."""

    def _copied() -> Any:
        return copy.deepcopy(module)

    _copied.__signature__ = inspect.Signature(return_annotation=type(module))  # type: ignore[attr-defined]
    return _copied


def check_sized(module: Any, path: str) -> None:
    """Refuse a module with lazy layers, whose tensors have no size before a first batch.

    Raises:
        ValueError: It has some; the message names the first.
    """
    lazy = sys.modules["torch"].nn.parameter.is_lazy
    tensors = (*module.named_parameters(), *module.named_buffers())
    if found := next((name for name, value in tensors if lazy(value)), ""):
        raise ValueError(
            f"{path} must know its sizes when it is built: {found} is of a lazy layer; take a parameter that "
            "the data dictate (in_features, channels, ...), or hand the module over after a first call"
        )


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")  # where a module is, torch has been imported
    return torch is not None and isinstance(value, torch.nn.Module)


def _documented(target: Any) -> str:
    """The docstring of a class, with that of its own constructor where the class explains no parameter."""
    target = _definition(target)
    own = vars(target).get("__doc__") if isinstance(target, type) else target.__doc__
    init = getattr(vars(target).get("__init__"), "__doc__", "") if isinstance(target, type) else ""
    return "\n\n".join(inspect.cleandoc(text) for text in (own, init) if text)


def user_entry(
    path: str, build: Callable[..., Any], own: Mapping[str, Any] | None = None, place: str = ""
) -> Entry:
    """A user's own module as an entry.

    Args:
        path: Its name.
        build: Its constructor.
        own: What a record keeps of it; None where its task is not known yet.
        place: Where it is from.
    """
    told = (build.__doc__ or "").strip().partition("\n")[0]
    objective: Target = ""
    facts = own or {"task": "classes", "loss": "", "loss_options": {}, "handed": ""}
    task: Any = resolve(TASKS[facts["task"]]) if own else TASKS["classes"]
    loss = facts["loss"] and resolve("margin.core.user_losses:loss_of")(facts["loss"], facts["loss_options"])
    if facts["task"] == "reconstruction":
        objective = "margin.engine.objectives:reconstruction"
        objective = resolve("margin.engine.objectives:reconstructing")(loss) if loss else objective
    elif loss:
        if facts["task"] == "binary":
            loss = resolve("margin.core.user_losses:of_numbers")(loss)
        task = replace(task, loss=loss, weigh=loss.weigh)
    return Entry(
        name=path,
        build=build,
        task=task,
        tiny="",
        summary=told or f"the module {path}",
        reference=place or "the user's own",
        objective=objective,
        # a module that is handed over is called by its owner afterwards, who knows no scaling
        defaults={"scale": "none", "scale_targets": "none"} if facts["handed"] == "module" else {},
    )


def entry_of(record: Mapping[str, Any], handed: Any = None) -> Entry:
    """The entry of a run's record: a row of the catalog, or the user's own module.

    Args:
        record: The run's record.
        handed: The class, function or module, where it is handed over in Python.

    Raises:
        BuilderError: The user's code raises.
        ValueError: The module is not found again, or its parameters have changed.
    """
    recipe, own = record["recipe"], record.get("own")
    if own is None:
        if handed is not None:
            raise ValueError(f"{recipe['model']} is a model of the catalog: leave out model")
        return find(models(), recipe["model"], "model")
    path, spec, options = recipe["model"], recipe["spec"], recipe["options"]
    build = builder_of(object_of(record, handed), path, spec)
    known = user_options(build)
    for names, others, what in ((options, known, "no longer has"), (known, options, "has the new option")):
        if odd := [name for name in names if name not in others]:
            raise ValueError(f"{path} {what} {odd[0]!r}: its parameters have changed since the run began")
    return user_entry(path, build, own, own["file"])


def object_of(record: Mapping[str, Any], handed: Any = None) -> Any:
    """The user's own class, function or module of a record: as handed over, else by its name; None: an entry.

    Raises:
        BuilderError: The user's code raises.
        ValueError: It was handed over, or lived in a notebook; the message says how it is handed over again.
    """
    own, path = record.get("own"), record["recipe"]["model"]
    if own is None:
        return handed
    if handed is not None:
        if own["handed"] == "module" and not _is_module(handed):
            name = path.rpartition(":")[2]
            raise ValueError(f"the run is of a module that was handed over: hand over one again, {name}(...)")
        return handed
    module = path.partition(":")[0]
    remedy = "hand it over, as margin.load(run, model=...) or margin.Run(run, model=...)"
    if own["handed"]:
        raise ValueError(f"{path} was handed over in Python and has no name to be found by: {remedy}")
    if module == "__main__":
        try:
            return named_object(path)
        except ValueError:
            lived = f"{path} was defined in a notebook or script, which this is not"
            raise ValueError(f"{lived}: {remedy}, or move it into a file") from None
    found = named_object(path)
    check_builder(found, path)
    return found


def check_builder(found: Any, path: str) -> None:
    """Refuse what a record must not call: it is text that anyone may have written.

    Args:
        found: The object at the path.
        path: How the message calls it.

    Raises:
        ValueError: It is a class that is no module; or a function of Python or an installed package that does
            not say, by its annotation, that it returns a module.
    """
    torch = sys.modules.get("torch")
    if _is_module(found) or torch is None:
        return
    module = torch.nn.Module
    if isinstance(found, type):
        if not issubclass(found, module):
            raise ValueError(f"{path} must be a module or a function that builds one: it is another class")
        return
    made = _hints(found).get("return")
    file, _ = source_of(found)
    foreign = tuple(sysconfig.get_path(place) for place in ("stdlib", "platstdlib", "purelib", "platlib"))
    says = isinstance(made, type) and issubclass(made, module)
    here = getattr(found, "__module__", "") == "__main__"
    if not says and not here and (not file or file.startswith(foreign)):
        raise ValueError(
            f"{path} is a function of Python or of an installed package, which must say that it returns a "
            "module (-> nn.Module): name the class, or write a function of your own that calls it"
        )


def edited(record: Mapping[str, Any]) -> str:
    """What is said where the file of a user's own module is no longer what it was; else ""."""
    own = record.get("own")
    if not own or not own["file"]:
        return ""
    file = Path(own["file"])
    if file.is_file() and _digest(file) == own["sha256"]:
        return ""
    what = "has changed" if file.is_file() else "has gone"
    return f"{file} {what} since the run began: the run goes on with the code that is there now"
