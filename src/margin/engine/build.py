"""From a run's record to the module, the optimizers and the state it begins with, and nothing but the record.

A recipe is ``{model, spec, options}``. A value of the spec may itself be a recipe: the constructor then
receives a builder, a function without arguments (the base of an ensemble, a chain). Optimizers are found by
name; biases and norms have no weight decay. Memory is counted before it is allocated.
"""

import copy
import inspect
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from margin.core.catalog import (
    Entry,
    UnknownName,
    call_with,
    check_options,
    completed,
    data_parameters,
    find,
    models,
    nearest,
    parts,
    resolve,
)
from margin.core.memory import Room, memory_here
from margin.core.options import Training
from margin.core.user_modules import builder_of, check_builder, is_user_model, named_object
from margin.data.examples import Data
from margin.data.preprocess import Column, Standardize
from margin.engine.loop import State
from margin.engine.parallel.processes import check_divisible, shard, world
from margin.math.seeds import mix
from margin.nn.initialization import initialize
from margin.nn.preprocessed import Preprocessed

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""The optimizers with a fused CPU kernel, about twice as fast as the default one."""


def optimizer_names() -> list[str]:
    """The names that :func:`optimizer_of` knows: classes of torch.optim, then the catalog's own classes."""
    return [*_torch_names(), *sorted(set(_rows()) - set(_torch_names()))]


def _torch_names() -> list[str]:
    return sorted(
        name
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    )


def _rows() -> dict[str, str]:
    """The class name of every row of kind "optimizer", and its path."""
    targets = [part.target for part in parts().values() if part.kind == "optimizer"]
    return {target.rpartition(":")[2]: target for target in targets}


def _class_of(name: str) -> Callable[..., Optimizer]:
    """The optimizer of that class name, or of that row's name; torch's where both have one."""
    if name in _torch_names():
        return getattr(torch.optim, name)
    short = {row: part.target for row, part in parts().items() if part.kind == "optimizer"}
    short |= {row.rpartition("/")[2]: target for row, target in short.items()}
    if target := _rows().get(name) or short.get(name):
        return resolve(target)
    near = ", ".join(nearest(name, optimizer_names())) or "none"
    raise ValueError(f"unknown optimizer {name!r}; nearest in torch.optim and the catalog: {near}")


def optimizer_of(
    module: nn.Module,
    name: str,
    *,
    lr: float,
    options: Mapping[str, Any],
    decay_norms: bool,
    layer_decay: float = 1.0,
) -> Optimizer:
    """The optimizer of that name, of a module's parameters; see :func:`optimizer_maker`."""
    make = optimizer_maker(
        module, name, lr=lr, options=options, decay_norms=decay_norms, layer_decay=layer_decay
    )
    return make()


def optimizer_maker(
    module: nn.Module,
    name: str,
    *,
    lr: float,
    options: Mapping[str, Any],
    decay_norms: bool,
    layer_decay: float = 1.0,
) -> Callable[[], Optimizer]:
    """What makes the optimizer of that name, of a module's parameters, every argument of ours checked.

    With the first that is made torch imports its compiler, which takes a second.

    Args:
        module: Its parameters that require a gradient are moved.
        name: A class in torch.optim, or a row of the catalog of kind "optimizer" or its class.
        lr: Learning rate.
        options: Its other arguments.
        decay_norms: Whether weight decay applies to tensors of fewer than two axes too: biases, gains.
        layer_decay: The rate of each layer (:func:`margin.engine.transfer.layer_rates`) is this times that
            of the next; 1 for one rate.

    Raises:
        ValueError: There is no such optimizer, it has no such option, or a value is out of range.
    """
    build = _class_of(name)
    what = f"torch.optim.{name}" if name in _torch_names() else f"the optimizer {name}"
    _check(build, what, lr, options, layer_decay)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(f"{type(module).__name__} has no parameter to train")
    given: dict[str, Any] = {"lr": lr, **options}
    if build is torch.optim.LBFGS:
        given["max_iter"] = 1  # more would ask for the loss again after moving: that is a step, no optimizer
    if build.__name__ in FUSED and not {"fused", "foreach", "capturable", "differentiable"} & set(options):
        given["fused"] = True
    spare = not decay_norms and "weight_decay" in inspect.signature(build).parameters
    layers = [(parameters, 1.0)]
    if layer_decay != 1:
        from margin.engine.transfer import layer_rates

        layers = layer_rates(module, layer_decay)
    groups = [
        group | ({} if layer_decay == 1 else {"lr": lr * factor})
        for layer, factor in layers
        for group in _groups(layer, spare=spare)
    ]
    return partial(build, groups, **given)


def _check(
    build: Callable[..., Optimizer], what: str, lr: float, options: Mapping[str, Any], layer_decay: float
) -> None:
    known = inspect.signature(build).parameters
    for option in options:
        if option not in known:
            raise ValueError(f"{what} has no option {option!r}; it has: {', '.join([*known][1:])}")
    if not 0 < lr < math.inf:
        raise ValueError(f"lr must be positive and finite: got {lr}")
    momentum = options.get("momentum", 0)
    if isinstance(momentum, int | float) and not 0 <= momentum < 1:
        raise ValueError(f"momentum must be in [0, 1): got {momentum}")
    if not 0 < layer_decay <= 1:
        raise ValueError(f"layer_decay must be in (0, 1]: got {layer_decay}")
    if build is torch.optim.SparseAdam:
        raise ValueError("SparseAdam needs sparse gradients, and those here are dense: use Adam")
    if build is torch.optim.LBFGS:
        if options.get("max_iter", 1) != 1 or options.get("line_search_fn"):
            raise ValueError("LBFGS moves once a step here: max_iter must be 1, without a line search")
        if layer_decay != 1:
            raise ValueError(f"LBFGS has one rate for all layers: layer_decay must be 1, got {layer_decay}")


def _groups(parameters: list[nn.Parameter], *, spare: bool) -> list[dict[str, Any]]:
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    if not spare or not matrices or not vectors:
        return [{"params": parameters, **({"weight_decay": 0.0} if spare and not matrices else {})}]
    return [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]


DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
"""The type of the weights at each precision; bfloat16 is autocast over float32 weights."""


def build(recipe: Mapping[str, Any], handed: Any = None) -> nn.Module:
    """The module of a recipe, its weights drawn from the global generator.

    Args:
        recipe: ``{model, spec, options}``.
        handed: The user's own class, function or module, where its name does not find it.
    """
    path = recipe["model"]
    if handed is None and is_user_model(path):
        handed = named_object(path)
        check_builder(handed, path)
    if handed is None:
        constructor = resolve(find(models(), path, "model").build)
    else:
        constructor = builder_of(handed, path, recipe["spec"])
    try:
        return call_with(constructor, with_builders(recipe["spec"]), recipe["options"], f"the model {path}")
    except (RuntimeError, MemoryError) as error:  # what torch and NumPy raise where sizes make no tensor
        reason = str(error).splitlines()[0] if str(error) else "there is not so much memory"
        raise ValueError(f"{path} cannot be built with these options: {reason}") from error


BUILDER = "builder"
"""The parameter of a constructor that is handed the builder of another model: its base."""


def spec_of(build: Callable[..., Any], spec: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What the data dictate to a constructor, the recipe of its base among it where it has one.

    A base that is to give another number of outputs than there are classes (``OUTPUTS`` of the constructor)
    is built with that many.

    Args:
        build: The constructor; of one with a base, ``base`` and ``base_options`` are options.
        spec: Of the data.
        options: The user's.

    Raises:
        ValueError: The base is no model, cannot be built of such data, or has no such option.
    """
    names = data_parameters(build)
    found = {name: spec[name] for name in names if name in spec}
    if BUILDER in names:
        chosen = completed(build, options)
        own = chosen["base_options"] or {}
        if names_run(chosen["base"]):
            found[BUILDER] = _recipe_of_run(build, spec, chosen["base"], own)
        else:
            found[BUILDER] = _recipe_of_base(build, spec, chosen["base"], own)
    return found


def names_run(base: str) -> bool:
    """Whether a base is the directory of a run: no model of the catalog has the name."""
    try:
        find(models(), base, "model")
    except UnknownName:
        return True
    return False


def _recipe_of_base(
    build: Callable[..., Any], spec: Mapping[str, Any], name: str, own: Mapping[str, Any]
) -> dict[str, Any]:
    """The recipe of a base that the catalog names."""
    base = find(models(), name, "model")
    inner = resolve(base.build)
    check_options(inner, own, f"the base {base.name}")
    offered = {**spec, "num_classes": getattr(build, "OUTPUTS", spec.get("num_classes"))}
    if missing := [name for name in data_parameters(inner) if offered.get(name) is None]:
        raise ValueError(f"the base {base.name} needs {', '.join(missing)}: the data give {', '.join(spec)}")
    if resolve(base.task).name != "classes":
        raise ValueError(f"the base must be a model of classes: got {base.name}")
    inner_spec = {name: offered[name] for name in data_parameters(inner)}
    return {"model": base.name, "spec": inner_spec, "options": completed(inner, own)}


def _recipe_of_run(
    build: Callable[..., Any], spec: Mapping[str, Any], path: str, own: Mapping[str, Any]
) -> dict[str, Any]:
    """The recipe of a run's model, which must have learned from data of the same kind.

    Raises:
        UnknownName: There is no such run.
    """
    from margin.engine.runs import Run  # it imports this module

    if not Path(path, "run.yaml").is_file():
        try:
            find(models(), path, "model")
        except UnknownName as error:
            raise UnknownName(f"the base must be a model or the directory of a run: {error}") from None
    if not getattr(build, "RUNS", False):
        raise ValueError(f"the base must be a model by name, whose weights are drawn: got the run {path}")
    record = Run(path).record
    if record.get("own"):
        raise ValueError(f"the base must be a run of a model of the catalog: {path} is of {record['own']}")
    if own:
        raise ValueError(f"base_options are those of a base by name: the run {path} has its own")
    recipe: dict[str, Any] = record["recipe"]
    task = resolve(find(models(), recipe["model"], "model").task).name
    wanted = "values" if hasattr(build, "OUTPUTS") else "classes"
    if task != wanted:
        raise ValueError(f"the base must be a run of a model of {wanted}: {path} is of {recipe['model']}")
    for name, value in recipe["spec"].items():
        if name != "num_examples" and name in spec and spec[name] != value:
            raise ValueError(f"the base {path} has {name} {value}: the data have {spec[name]}")
    return recipe


def with_builders(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec in which a builder stands in the place of each recipe."""
    return {
        name: _builder(value) if isinstance(value, Mapping) and "model" in value else value
        for name, value in spec.items()
    }


def _builder(recipe: Mapping[str, Any]) -> Any:
    return lambda: build(recipe)


def record_preprocess(module: nn.Module) -> dict[str, Any]:
    """What a record keeps of a preprocessing: its kind and shape; its numbers are in the checkpoints.

    Raises:
        ValueError: It is of no known kind.
    """
    if isinstance(module, Standardize):
        kind = "column" if isinstance(module, Column) else "standardize"
        return {"kind": kind, "shape": list(module.mean.shape)}
    if type(module) is nn.Identity:
        return {"kind": "identity"}
    raise ValueError(f"a run cannot rebuild {type(module).__name__}: use Standardize or Identity")


def _preprocess_of(recipe: Mapping[str, Any]) -> nn.Module:
    if recipe["kind"] != "identity":
        shape, kind = recipe["shape"], Column if recipe["kind"] == "column" else Standardize
        return kind(torch.zeros(shape), torch.ones(shape))
    return nn.Identity()


def module_of(
    record: Mapping[str, Any],
    room: Room | None = None,
    handed: Any = None,
    *,
    in_place: bool = False,
) -> Preprocessed:
    """The module of a run's record, in the user's units, before any training.

    Its weights are a function of the training's seed alone; the global generator stays where it is.

    Args:
        record: The run's record.
        room: The memory that it may ask for; all of this machine's if not given.
        handed: The user's own class, function or module, where it is handed over in Python.
        in_place: Whether a module that is handed over is taken as it is, and not a copy of it.

    Raises:
        ValueError: There is not so much memory, or an option does not fit.
    """
    training = Training.recorded(record["arguments"]["training"])
    with torch.random.fork_rng([]), room or Room(memory_here()):
        torch.manual_seed(mix(int(training.seed or 0), 3))
        preprocess = _preprocess_of(record["preprocess"])
        model = handed if in_place else build(record["recipe"], handed)
        if training.init:
            initialize(model, training.init, scale=training.init_scale)
        outcome = _preprocess_of(record["outcome"]) if record.get("outcome") else None
    return Preprocessed(preprocess, model, outcome).to(DTYPES[str(training.precision)])


def initial_state(
    entry: Entry,
    record: Mapping[str, Any],
    data: Data,
    training: Training,
    change: Callable[[nn.Module], object] = lambda model: None,
    make: Callable[[Mapping[str, Any]], Preprocessed] = module_of,
) -> State:
    """The state in which a training begins: :func:`bare_state`, and its optimizers."""
    state = bare_state(entry, record, data, training, change, make)
    state.optimizers = {name: made() for name, made in optimizer_makers(entry, state, training).items()}
    return state


def optimizer_makers(entry: Entry, state: State, training: Training) -> dict[str, Callable[[], Optimizer]]:
    """What makes the optimizer of each of an entry's submodules that has its own.

    Raises:
        ValueError: There is no such optimizer, or an option is out of range.
    """
    return {
        name: optimizer_maker(
            state.model.get_submodule(f"model.{name}".rstrip(".")),
            str(training.optimizer),
            lr=float(training.lr or 0),
            options=training.optimizer_options or {},
            decay_norms=bool(training.decay_norms),
            layer_decay=float(training.layer_decay or 1),
        )
        for name in entry.optimizers
    }


def bare_state(
    entry: Entry,
    record: Mapping[str, Any],
    data: Data,
    training: Training,
    change: Callable[[nn.Module], object] = lambda model: None,
    make: Callable[[Mapping[str, Any]], Preprocessed] = module_of,
) -> State:
    """The state in which a training begins, without its optimizers.

    Args:
        entry: What is trained.
        record: The run's record.
        data: Whose fitted maps, to the model's units and from its output, are taken.
        training: The resolved options.
        change: Called with the catalog's model as it was drawn, before anything is copied from it.
        make: Makes the module of the record.

    Raises:
        ValueError: There is no such device, or no such part to freeze.
    """
    model = make(record)
    change(model.model)
    if training.freeze:
        from margin.engine.transfer import freeze

        freeze(model.model, training.freeze)
    model.preprocess.load_state_dict(data.preprocess.state_dict())
    if model.outcome is not None and data.outcome is not None:
        model.outcome.load_state_dict(data.outcome.state_dict())
    device = device_here(str(training.device))
    if (training.processes or 1) > 1:
        check_divisible(model, entry, device.type)
    if world().size > 1:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = model.to(device)
    for parameter in model.preprocess.parameters():
        parameter.requires_grad_(False)
    modules: dict[str, nn.Module] = {"model": model}
    if training.average:
        modules["average"] = copy.deepcopy(model).requires_grad_(False)
    if training.strategy == "fsdp" and world().size > 1:
        for module in modules.values():  # after the copy, which it refuses, and before the optimizers
            shard(module)
    if training.compile:
        model.compile()
    return State(modules, seed=int(training.seed or 0))


def device_here(name: str) -> torch.device:
    """The device of that name; of several processes on one machine each takes its own CUDA device."""
    own = name == "cuda" and world().size > 1
    return device_named(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if own else name)


def device_named(name: str) -> torch.device:
    """The device of that name.

    Raises:
        ValueError: There is no such device here.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        there = ("cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count())))
        there += ("mps",) if torch.backends.mps.is_available() else ()
        raise ValueError(
            f"no device {name!r} here; there {'are' if there[1:] else 'is'}: {', '.join(there)}"
        ) from None
    return device
