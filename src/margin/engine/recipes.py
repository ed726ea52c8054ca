"""Recipes: from a run's record to the module and the state it begins with, and nothing but the record.

A recipe is ``{model, spec, options}``. A value of the spec may itself be a recipe: the constructor then
receives a builder, a function without arguments (the base of an ensemble, a chain).
"""

import copy
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from margin.core.catalog import call_with, find, models, resolve
from margin.core.options import Training
from margin.data.examples import Data
from margin.data.preprocess import Standardize
from margin.engine.build import Room, memory_here, optimizer_of
from margin.engine.loop import State
from margin.engine.parallel.processes import check_divisible, shard, world
from margin.engine.transfer import freeze
from margin.math.seeds import mix
from margin.nn.initialization import initialize
from margin.nn.preprocessed import Preprocessed

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
"""The type of the weights at each precision; bfloat16 is autocast over float32 weights."""


def build(recipe: Mapping[str, Any]) -> nn.Module:
    """The module of a recipe, its weights drawn from the global generator."""
    entry = find(models(), recipe["model"], "model")
    spec = {
        name: _builder(value) if isinstance(value, Mapping) and "model" in value else value
        for name, value in recipe["spec"].items()
    }
    try:
        return call_with(resolve(entry.build), spec, recipe["options"], f"the model {entry.name}")
    except (RuntimeError, MemoryError) as error:  # what torch and NumPy raise where sizes make no tensor
        reason = str(error).splitlines()[0] if str(error) else "there is not so much memory"
        raise ValueError(f"{entry.name} cannot be built with these options: {reason}") from error


def _builder(recipe: Mapping[str, Any]) -> Any:
    return lambda: build(recipe)


def record_preprocess(module: nn.Module) -> dict[str, Any]:
    """What a record keeps of a preprocessing: its kind and shape; its numbers are in the checkpoints.

    Raises:
        ValueError: It is of no known kind.
    """
    if isinstance(module, Standardize):
        return {"kind": "standardize", "shape": list(module.mean.shape)}
    if type(module) is nn.Identity:
        return {"kind": "identity"}
    raise ValueError(f"a run cannot rebuild {type(module).__name__}: use Standardize or Identity")


def _preprocess_of(recipe: Mapping[str, Any]) -> nn.Module:
    if recipe["kind"] == "standardize":
        shape = recipe["shape"]
        return Standardize(torch.zeros(shape), torch.ones(shape))
    return nn.Identity()


def module_of(record: Mapping[str, Any], room: Room | None = None) -> Preprocessed:
    """The module of a run's record, in the user's units, before any training.

    Its weights are a function of the training's seed alone; the global generator stays where it is.

    Args:
        record: The run's record.
        room: The memory that it may ask for; all of this machine's if not given.

    Raises:
        ValueError: There is not so much memory, or an option does not fit.
    """
    training = Training.recorded(record["arguments"]["training"])
    with torch.random.fork_rng([]), room or Room(memory_here()):
        torch.manual_seed(mix(int(training.seed or 0), 3))
        preprocess, model = _preprocess_of(record["preprocess"]), build(record["recipe"])
        if training.init:
            initialize(model, training.init, scale=training.init_scale)
        outcome = _preprocess_of(record["outcome"]) if record.get("outcome") else None
    return Preprocessed(preprocess, model, outcome).to(DTYPES[str(training.precision)])


def start(
    record: Mapping[str, Any],
    data: Data,
    training: Training,
    change: Callable[[nn.Module], object] = lambda model: None,
    make: Callable[[Mapping[str, Any]], Preprocessed] = module_of,
) -> State:
    """The state in which a training begins.

    Args:
        record: The run's record.
        data: Whose fitted maps, to the model's units and from its output, are taken.
        training: The resolved options.
        change: Called with the catalog's model as it was drawn, before anything is copied from it.
        make: Makes the module of the record.

    Raises:
        ValueError: There is no such device or optimizer, or no such part to freeze.
    """
    entry = find(models(), record["recipe"]["model"], "model")
    model = make(record)
    change(model.model)
    if training.freeze:
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
    optimizers = {
        name: optimizer_of(
            model.get_submodule(f"model.{name}".rstrip(".")),
            str(training.optimizer),
            lr=float(training.lr or 0),
            options=training.optimizer_options or {},
            decay_norms=bool(training.decay_norms),
            layer_decay=float(training.layer_decay or 1),
        )
        for name in entry.optimizers
    }
    if training.compile:
        model.compile()
    return State(modules, optimizers, seed=int(training.seed or 0))


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
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"no device {name!r} here: {str(error).splitlines()[0]}") from None
    return device
