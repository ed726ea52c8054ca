"""What was audited, by digests (SHA-256): weights, data, settings, code, versions, outputs.

Two audits whose digests agree are of one subject: what the one found, the other would find. Where a digest
cannot be sure, as of an object that no other process can compare, it is new each time: then nothing agrees.
"""

import dis
import hashlib
import inspect
import json
import platform
import secrets
import sys
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.theory.prediction.held_out import kept, outputs_of

Part = str
"""weights, held-out data, training data, settings, code, versions, processor or outputs: what it is of."""

VERSIONS, OUTPUTS = "versions", "outputs"
MOST_BYTES = 2**30
"""Bytes of training examples that are digested whole."""

PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
HOUSE = Path(__file__).parents[2]
INSTALLED = {"site-packages", "dist-packages"}
"""What the folders are called in which an installation puts packages."""

NAMED = (
    *(types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.ClassMethodDescriptorType),
)
"""What is the same wherever it has the same name."""

WRAPPERS = (types.MethodType, staticmethod, classmethod, property, cached_property)
WRAPPED = ("__func__", "__self__", "fget", "fset", "fdel", "func")
"""Where a method, a property and their like keep what they are made of."""

OF_MODULES = frozenset(vars(nn.Module()))
"""What every module keeps."""

OF_CLASSES = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "_abc_impl"}
"""What a class keeps that changes nothing."""


def identity_of(subject: Subject) -> dict[Part, str]:
    """The digests of a subject, but for its outputs.

    Weights are parameters and buffers, also of the initial and of the reference model; settings the task, the
    domain, what was assumed, and what modules keep beside their weights; code the functions of the user's
    that these refer to, compiled, so that neither comments nor lines count.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library warns of what it deprecates as soon as one looks at it
        seen = _seen_of(subject)
    return {
        "weights": seen.weights.hexdigest(),
        "held-out data": _with_groups(fingerprint(subject, "test"), subject.test),
        "training data": _with_groups(fingerprint(subject, "train"), subject.train),
        "settings": seen.settings.hexdigest(),
        "code": seen.code.hexdigest(),
        VERSIONS: versions(),
        "processor": processor(),
    }


def _seen_of(subject: Subject) -> "_Digests":
    seen = _Digests()
    models = (subject.model, subject.as_given, subject.initial, subject.reference_model)
    for model in models:
        seen.add(model)
    seen.add(subject.objective)
    task, domain = subject.task, subject.domain
    seen.add((task.name, task.loss, dict(task.scores), task.predict, task.classes, task.probabilities))
    ends = () if domain is None else (domain.low, domain.high)
    seen.add([hashlib.sha256(_head(end) + bytes(_bytes(end))).hexdigest() for end in ends])
    parts = (subject.test, subject.train)
    seen.add(subject.independent or [[len(batch.inputs[0]) for batch in part] for part in parts])
    seen.add((subject.groups, subject.lacks, subject.remark, subject.assumed))
    if subject.compared is not None or subject.selection is not None:
        seen.add((subject.compared, repr(subject.selection)))
    seen.add((subject.class_names, subject.feature_names, subject.label_names))
    seen.add(json.dumps(dict(subject.encoding), default=str, sort_keys=True))
    seen.add(json.dumps([dict(row) for row in subject.history], default=str))
    if len(subject.ood):
        seen.add(_fingerprint(subject.ood))
    return seen


def outputs_digest(subject: Subject) -> str:
    """The digest of the outputs on the held-out examples, "" where the model gives none for each target."""
    answers = outputs_of(subject, "test").answers
    if answers is None:
        return ""
    return hashlib.sha256(_head(answers.outputs) + bytes(_bytes(answers.outputs))).hexdigest()


def differing(one: Mapping[Part, str], other: Mapping[Part, str]) -> list[Part]:
    """Which digests differ; outputs that only one of them has are not compared."""
    names = [name for name in {**one, **other} if name != OUTPUTS or (name in one and name in other)]
    return [name for name in names if one.get(name) != other.get(name)]


def fingerprint(subject: Subject, part: str) -> str:
    """SHA-256 over types, shapes and bytes of inputs, targets and weights, however they are batched.

    Of training examples that take more than :data:`MOST_BYTES` evenly spaced batches stand for all: they may
    be read from files, one by one. It is computed once while the subject is asked.
    """
    batches = subject.test if part == "test" else _within(subject.train)
    return kept(subject, f"fingerprint of {part}", lambda: _fingerprint(batches), len)


def _within(batches: Sequence[Batch]) -> Sequence[Batch] | Iterator[Batch]:
    count = len(batches)
    size = sum(x.numel() * x.element_size() for x in batches[0].inputs) if count else 0
    step = -(-count * size // MOST_BYTES)
    return batches if step <= 1 else (batches[i] for i in range(0, count, step))


def _fingerprint(batches: Iterable[Batch]) -> str:
    digests: dict[str, Any] = {}
    for batch in batches:
        tensors: dict[str, Tensor | None] = {f"input {i}": x for i, x in enumerate(batch.inputs)}
        tensors |= {"targets": batch.targets, "weight": batch.weight}
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            head = f"{name} {tuple(tensor.shape[1:])} {tensor.dtype}".encode()
            digests.setdefault(name, hashlib.sha256(head)).update(_bytes(tensor))
    return hashlib.sha256("".join(d.hexdigest() for d in digests.values()).encode()).hexdigest()


def _with_groups(digest: str, batches: Sequence[Batch]) -> str:
    """A digest of examples, and of which belong together, where that is known."""
    groups = getattr(getattr(batches, "examples", None), "groups", None)
    return digest if groups is None else hashlib.sha256(digest.encode() + bytes(_bytes(groups))).hexdigest()


class _Digests:
    """Digests of Python objects: their tensors (weights), their code, and all else that they hold (settings).

    An object is what it gives to be pickled (``__reduce_ex__``), which is looked into, never written. One
    that was seen before is a number.
    """

    def __init__(self) -> None:
        self.weights, self.settings, self.code = (hashlib.sha256() for _ in range(3))
        self._seen: dict[int, tuple[int, Any]] = {}  # the object too: no other comes to lie there meanwhile
        self._named: set[tuple[str, tuple[str, ...]]] = set()

    def _say(self, *words: object) -> None:
        self.settings.update(f"{words!r};".encode())

    def add(self, value: Any) -> None:
        """Take a value and all that it holds into the digests."""
        if isinstance(value, PLAIN):
            self._say(value)
        elif id(value) in self._seen:
            self._say("seen", self._seen[id(value)][0])
        else:
            self._seen[id(value)] = (len(self._seen), value)
            self._say(type(value).__module__, type(value).__qualname__)
            try:
                self._add_new(value)
            except (
                Exception
            ):  # whatever an object of the user's raises, it cannot be compared, but with itself
                self._say("at", _process(), id(value))

    def _add_new(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self.weights.update(_head(value) + f"{value.device} {value.requires_grad}".encode())
            self.weights.update(_bytes(value))
            self._add_all(*(value._backward_hooks or {}).values())
        elif isinstance(value, nn.Module):
            self._add_module(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.ModuleType) and not _version_of(value.__name__):
            self.add({name: held for name, held in vars(value).items() if not name.startswith("__")})
        elif isinstance(value, NAMED):
            self._say(value.__name__)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._add_array(value)
        elif isinstance(value, dict | types.MappingProxyType):
            self._add_all(*value.keys(), *value.values())
        elif isinstance(value, tuple | list):
            self._add_all(*value)
        elif isinstance(value, set | frozenset):
            self._add_all(*sorted(value, key=repr))
        elif isinstance(value, WRAPPERS):
            self._add_all(*(getattr(value, key, None) for key in WRAPPED))
        else:
            self._add_object(value)

    def _add_all(self, *values: Any) -> None:
        self._say(len(values))
        for value in values:
            self.add(value)

    def _add_array(self, array: Any) -> None:
        self._say(array.shape, array.dtype.str)
        if array.dtype.names:  # between the fields there may be bytes that nobody has written
            self._add_all(*(array[name] for name in array.dtype.names))
        else:
            self.weights.update(np.ascontiguousarray(array).tobytes())

    def _add_module(self, module: nn.Module) -> None:
        self.add(type(module))
        if isinstance(module, torch.jit.ScriptModule):  # its code and its constants
            self.weights.update(module.save_to_buffer())
            return
        self._say(module.training)
        if isinstance(module, torch.fx.GraphModule):
            self.code.update(module.code.encode())
        else:
            self.add({name: value for name, value in vars(module).items() if name not in OF_MODULES})
        for held in (module._parameters, module._buffers, module._modules):
            self.add(dict(held))
        for name in sorted(OF_MODULES):
            if name.endswith("hooks"):
                self._add_all(*getattr(module, name).values())

    def _add_class(self, kind: type) -> None:
        self._say(kind.__module__, kind.__qualname__, _version_of(kind.__module__))
        if not _version_of(kind.__module__):
            self._add_all(*(base for base in kind.__bases__ if base is not object))
            self.add({name: value for name, value in vars(kind).items() if name not in OF_CLASSES})

    def _add_function(self, function: types.FunctionType) -> None:
        library = _version_of(function.__module__ or "")
        self._say(function.__module__, function.__qualname__, library)
        if library and "<locals>" not in function.__qualname__:
            return
        own = inspect.unwrap(function) if library else function  # a type checker may stand around it
        self._add_all(own.__defaults__, own.__kwdefaults__)
        self._add_all(*(cell.cell_contents for cell in own.__closure__ or ()))
        if not library:
            self.add(vars(own))
            self._add_code(own.__code__, own.__globals__)

    def _add_code(self, code: types.CodeType, known: Mapping[str, Any]) -> None:
        """A function's code, and what it refers to by global names, or by those of the user's modules."""
        self.code.update(f"{code.co_code!r} {code.co_names} {code.co_varnames}".encode())
        self.code.update(f"{code.co_argcount} {code.co_flags} {code.co_exceptiontable!r}".encode())
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant, known)
            else:
                shown = sorted(constant, key=repr) if isinstance(constant, frozenset) else constant
                self.code.update(repr(shown).encode())
        self._add_names(known, code.co_names)
        for step in dis.get_instructions(code):
            if step.opname == "IMPORT_NAME":  # inside of the function; perhaps from its own package
                for name in (step.argval, f"{known.get('__package__')}.{step.argval}"):
                    self._add_names({name: sys.modules.get(name)}, (name, *code.co_names))

    def _add_names(self, known: Mapping[str, Any], names: tuple[str, ...]) -> None:
        """What names refer to, and what these refer to inside of the user's modules that they name."""
        for value in map(known.get, names):
            if not isinstance(value, types.ModuleType) or _version_of(value.__name__):
                self.add(value)
            elif (value.__name__, names) not in self._named:
                self._named.add((value.__name__, names))
                self._say(value.__name__)
                self._add_names(vars(value), names)

    def _add_object(self, value: Any) -> None:
        self.add(type(value))
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):  # a name; of a function that keeps its answers the function too
            self._say(reduced)
            self.add(getattr(value, "__wrapped__", None))
        else:
            made, arguments, *rest = reduced
            state, items, pairs = (*rest, None, None, None)[:3]
            self._add_all(made, arguments, state, list(items or ()), list(pairs or ()))


def _head(x: Tensor) -> bytes:
    return f"{tuple(x.shape)} {x.dtype}".encode()


def _bytes(x: Tensor) -> Any:
    """The bytes of a tensor, row by row."""
    x = x.detach()
    if x.layout != torch.strided:
        x = x.to_dense()
    if x.is_quantized:
        x = x.dequantize()  # the integers are the same at every scale
    x = x.resolve_conj().resolve_neg().cpu()
    if not x.is_contiguous() or x.numel() == 1:  # the stride of a single number may be any
        x = x.clone(memory_format=torch.contiguous_format)
    return x.view(-1).view(torch.uint8).numpy()


@cache
def versions() -> str:
    """The versions that a finding depends on; of margin the digest of its source."""
    source = hashlib.sha256()
    for path in sorted(HOUSE.rglob("*.py")):
        source.update(f"{path.relative_to(HOUSE)}".encode() + path.read_bytes())
    named = ", ".join(
        f"{name} {version(name)}" for name in ("margin", "torch", "numpy", "scipy", "scikit-learn")
    )
    return f"{named}, Python {platform.python_version()}, source {source.hexdigest()[:16]}"


def processor() -> str:
    """What the last bits of a sum depend on: into how many parts it is divided, and how long a vector is."""
    return f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"


@cache
def _version_of(module: str) -> str:
    """The version that says what a module is; "" of the user's own, of which only its code does."""
    name = module.partition(".")[0]
    if name in sys.stdlib_module_names:
        return "Python's"
    package = sys.modules.get(name)
    file = Path(getattr(package, "__file__", None) or "/")
    # of this environment, of the one that it builds on, the user's, or of pip's --target
    installed = not INSTALLED.isdisjoint(file.parts) or any(_place_of(file).glob(f"{name}-*.dist-info"))
    ours = installed or file.is_relative_to(HOUSE)
    return str(getattr(package, "__version__", "installed")) if ours and name != "__main__" else ""


def _place_of(file: Path) -> Path:
    """The folder from which a package is imported, or a module that is one file."""
    return file.parents[1] if file.name == "__init__.py" else file.parent


@cache
def _process() -> str:
    """What only this process says."""
    return secrets.token_hex()
