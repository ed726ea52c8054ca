"""A user's own module: built by a named function, unwrapped, uncompiled, checked to be copyable."""

import re
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from margin.core.user_modules import built, check_callable, named_object, parameters_of
from margin.engine.evaluation import Kept


def load_builder(path: str) -> nn.Module:
    """The module that a function without arguments builds.

    Args:
        path: ``"package.module:name"``: a function, a class, or a module itself. The current directory
            is searched first, as by ``python -m``, and stays on the search path.

    Raises:
        BuilderError: The user's code raises, ends the program, or has a syntax error.
        ValueError: The path names nothing, or what it names gives no module.
    """
    found = named_object(path)
    if isinstance(found, nn.Module):
        return found
    check_callable(found, path)
    if required := [p.name for p in parameters_of(found) if p.default is p.empty]:
        name = path.rpartition(":")[2]
        raise ValueError(
            f"{path} must be callable without arguments: it needs {', '.join(required)}; write a "
            f"function that calls it, def build(): return {name}({required[0]}=...), and name that"
        )
    module: nn.Module = built(found, path)
    return module


LACKS = re.compile(
    r"derivative for .* is not implemented|does not currently support double backward|once_differentiable"
    r"|does not support it because it has not been implemented|must override the setup_context"
    r"|Batching rule not implemented|support vmap over|vmap: |does not require grad"
    r"|The stateless API can't|is not supported on ScriptModules"
)
"""What torch says where an operation of the model has no such derivative, or none that runs over examples."""

MOST = 5
"""How many parts of what a model returns are named."""


def check_copyable(model: nn.Module) -> None:
    """Refuse a model that torch does not copy, as many questions must: one with a weight that it computes.

    Args:
        model: Any module.

    Raises:
        ValueError: It keeps such a weight; the message names it.
    """
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            # torch.nn.utils names what a weight is computed from so: pruning, weight normalization
            sources = {f"{key}_orig", f"{key}_g"} & set(module._parameters.keys())  # a list in a traced one
            if isinstance(value, Tensor) and (sources or not value.is_leaf):
                which = f"{name}.{key}".removeprefix(".")
                raise ValueError(
                    f"the weights of the model must be its parameters: {which} is computed from others and "
                    "kept; make it permanent (torch.nn.utils.prune.remove, remove_weight_norm), or use "
                    "torch.nn.utils.parametrizations"
                )


def check_materialized(model: nn.Module) -> None:
    """Refuse a model without numbers in its weights.

    Raises:
        ValueError: A weight is on the device meta; the message names it.
    """
    named = (*model.named_parameters(), *model.named_buffers())
    if name := next((name for name, tensor in named if tensor.is_meta), ""):
        raise ValueError(
            f"the weights of the model must be materialized: {name} is on the device meta; build the model "
            "on the CPU, or load its weights by load_state_dict(weights, assign=True)"
        )


class Asked(nn.Module):
    """A module that is asked with care.

    Args:
        model: The module.
        copies: Whether it is given copies of its inputs, because it overwrites them.
        anew: Whether each call begins in the state that the module came in, because it answers by what it
            keeps of the calls before.
    """

    def __init__(self, model: nn.Module, copies: bool, anew: bool = False) -> None:
        super().__init__()
        self.model = model
        self.copies = copies
        self.anew = anew

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the module returns, torch running its operations one by one."""
        if self.copies:
            inputs = tuple(x.clone() for x in inputs)
        kept = Kept(self.model) if self.anew else None
        if kept is not None:
            _copy_buffers(self.model)  # a graph may hold what is written and put back
        try:
            with torch.compiler.set_stance("force_eager") if _is_compiled(self.model) else nullcontext():
                outputs: Tensor = self.model(*inputs)
        finally:
            if kept is not None:
                kept.restore()
        return outputs.clone() if outputs.is_inference() else outputs

    def _get_name(self) -> str:
        return self.model._get_name()


def _copy_buffers(model: nn.Module) -> None:
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.clone()


def is_exported(model: Any) -> bool:
    """Whether it is a program of torch.export."""
    export = sys.modules.get("torch.export")
    return export is not None and isinstance(model, export.ExportedProgram)


def from_export(model: Any, assumed: list[str]) -> Any:
    """A module of an exported program, which knows no modes: its graph, that can be asked in eval()."""
    program = is_exported(model)
    if program:
        model = model.module()
    if not (isinstance(model, torch.fx.GraphModule) and {"train", "eval"} & vars(model).keys()):
        return model
    assumed.append(
        "the model is a program of torch.export: it is audited as its graph, in the mode of its export"
    )
    return torch.fx.GraphModule(model, model.graph)


def unwrapped(model: nn.Module, assumed: list[str]) -> nn.Module:
    """A model without the wrapper that spreads it over devices: its copies share no weights with it."""
    if not isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return model
    assumed.append(f"the model stands in {model._get_name()}: it is audited as what stands in it")
    inner: nn.Module = model.module
    return inner


def _is_compiled(model: nn.Module) -> bool:
    return any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules())


def eager(model: nn.Module, assumed: list[str]) -> nn.Module:
    """A model without compiled parts: torch has no second derivative of what it compiled."""
    if isinstance(model, nn.Module) and not _is_compiled(model):
        return model
    assumed.append("the model is compiled: it is audited as what was compiled, torch running it step by step")
    inner = getattr(model, "_orig_mod", model)
    return Asked(inner, copies=False) if _is_compiled(inner) else inner


def described(outputs: Any) -> str:
    """The kind of outputs that are not one tensor, and a module that returns one tensor of them."""
    kind = type(outputs).__name__
    parts: list[str] = []
    if isinstance(outputs, Tensor):
        name, way = "sparse", "model(x).to_dense()"
        if outputs.is_nested:
            name, way = "nested", "torch.nested.to_padded_tensor(model(x), 0.0)"
        return f"a {name} {kind}; audit a module whose forward returns {way}"
    if isinstance(outputs, Mapping):
        parts = [f"[{name!r}]" for name, part in outputs.items() if isinstance(part, Tensor)]
    elif isinstance(outputs, tuple | list):
        parts = [f"[{i}]" for i, part in enumerate(outputs) if isinstance(part, Tensor)]
    else:
        parts = [
            f".{name}" for name, part in getattr(outputs, "__dict__", {}).items() if isinstance(part, Tensor)
        ]
    if not parts:
        return kind
    part = next((part for part in parts if "logits" in part), parts[0])
    more = f" and {len(parts) - MOST} more" if len(parts) > MOST else ""
    return f"{kind} of {', '.join(parts[:MOST])}{more}; audit a module whose forward returns model(x){part}"


def lacking(error: Exception) -> str:
    """What torch cannot do with the model that a claim asked for, in a line; "" for any other error."""
    if not isinstance(error, RuntimeError):  # NotImplementedError is one
        return ""
    line = next((line.strip() for line in str(error).splitlines() if LACKS.search(line)), "")
    what = "look into the model" if "ScriptModules" in line else "differentiate the model"
    return f"torch cannot {what} so: {line[:120]}" if line else ""
