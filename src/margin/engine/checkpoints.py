"""Checkpoints: the whole state of a training in one safetensors file, replaced whole or not at all.

Tensors are stored whole and contiguous under their path in the state; everything else, the optimizers'
numbers included, is one JSON text in the file's metadata. Nothing is pickled.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from margin.data.files.writing import write_whole
from margin.data.formats.encodings import shown
from margin.engine.loop import State
from margin.engine.parallel.processes import like, state_like, whole, world
from margin.engine.schema import wrong

SHOWN = 3
"""How many names a message lists."""


def pack(tree: Any, prefix: str, tensors: dict[str, Tensor]) -> Any:
    """Move a tree's tensors into ``tensors``; return the rest as tagged JSON that names their places.

    Tags keep what JSON would lose: integer keys, tuples, and that a number is not a tensor.
    """
    if isinstance(tree, Tensor):
        tensors[prefix] = whole(tree.detach()).cpu().contiguous().clone()  # safetensors refuses shared memory
        return {"tensor": prefix}
    if isinstance(tree, dict):
        return {"pairs": [[key, pack(value, f"{prefix}/{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [pack(value, f"{prefix}/{i}", tensors) for i, value in enumerate(tree)]}
    return {"value": tree}


def unpack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree that :func:`pack` took apart."""
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "pairs":
        return {key: unpack(item, tensors) for key, item in value}
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(unpack(item, tensors) for item in value)
    return value


def save_state(path: Path, state: State) -> None:
    """Write all of a state but its generator, which every step seeds anew.

    Of several processes all must ask, since shares of tensors are gathered; the first one writes.
    """
    tensors: dict[str, Tensor] = {}
    tree = {
        "modules": state.waiting
        | {name: dict(module.state_dict()) for name, module in state.modules.items()},
        "optimizers": state.idle
        | {name: optimizer.state_dict() for name, optimizer in state.optimizers.items()},
        "step": state.step,
        "seed": state.seed,
        "tally": state.tally,
    }
    text = json.dumps(pack(tree, "", tensors))
    if world().rank == 0:
        named = {name[1:]: tensor for name, tensor in tensors.items()}
        write_whole(path, in_order(save(named, {"state": text, "digest": digest_of(named, text)})))


def in_order(content: bytes) -> bytes:
    """A safetensors file whose metadata stand in the order of their names.

    The library writes them in an order drawn anew in every call: equal states would leave unequal files.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    return b"".join([len(text).to_bytes(8, "little"), text, memoryview(content)[start:]])


def digest_of(tensors: Mapping[str, Tensor], text: str) -> str:
    """The SHA-256 of a checkpoint's text and of the name, type, shape and bytes of its tensors."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_state(path: Path, state: State) -> None:
    """Fill a freshly started state from a checkpoint.

    Raises:
        ValueError: The file is damaged, or its tensors are not the state's.
    """
    tensors, text = _read(path)
    tree = _tree_of(path, text, tensors)
    for name, module in state.modules.items():
        fill(module, tree["modules"][name], str(path))
    state.waiting = {n: tensors for n, tensors in tree["modules"].items() if n not in state.modules}
    for name, optimizer in state.optimizers.items():
        kept = tree["optimizers"].get(name)
        if complaint := misfit(kept, optimizer):
            raise wrong(path, f"optimizer {name!r}" if name else "the optimizer", complaint)
        optimizer.load_state_dict(state_like(kept, optimizer))
    state.idle = {n: kept for n, kept in tree["optimizers"].items() if n not in state.optimizers}
    state.step, state.seed = tree["step"], tree["seed"]
    device = next((t.device for t in state.model.parameters()), torch.device("cpu"))
    state.tally = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in tree["tally"].items()}


def _tree_of(path: Path, text: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The tree of a state, whose parts are of the types that :func:`save_state` gives them."""
    try:
        tree = unpack(json.loads(text), {f"/{name}": tensor for name, tensor in tensors.items()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise wrong(path, "the state", f"is damaged: {type(error).__name__} {error}") from None
    for key, kind in {"modules": dict, "optimizers": dict, "tally": dict, "step": int, "seed": int}.items():
        if not isinstance(tree, dict) or not isinstance(tree.get(key), kind) or tree[key] is True:
            raise wrong(path, key, "is missing or of another type")
    for key in ("step", "seed"):
        if not 0 <= tree[key] < 2**64:
            raise wrong(path, key, f"must be a whole number of 64 bits from 0: got {shown(tree[key])}")
    for name, module in tree["modules"].items():
        if not isinstance(module, dict) or not all(isinstance(one, Tensor) for one in module.values()):
            raise wrong(path, f"module {name!r}", "must be tensors by their names")
    if not all(isinstance(value, Tensor | int | float) for value in tree["tally"].values()):
        raise wrong(path, "tally", "must be numbers by their names")
    return tree


def misfit(kept: Any, optimizer: Optimizer) -> str:
    """What is wrong with the state of an optimizer that is to be loaded into another, or "".

    Its groups must have as many parameters and values of the same types; what it keeps of each parameter must
    be alike in name and type through a group.
    """
    fresh = optimizer.state_dict()["param_groups"]
    state, groups = (kept.get("state"), kept.get("param_groups")) if isinstance(kept, dict) else (None, None)
    if not isinstance(state, dict) or not isinstance(groups, list) or len(groups) != len(fresh):
        return f"must have a state and {len(fresh)} groups"
    for group, own in zip(groups, fresh, strict=True):
        for key, value in own.items():
            if not isinstance(group, dict) or key not in group or _kind(group[key]) != _kind(value):
                return f"must have {key} as {shown(value)} is in each group"
        if group["params"] != own["params"]:
            return f"must be of {len(own['params'])} parameters in this group"
        entries = [state[number] for number in group["params"] if number in state]
        if not all(isinstance(entry, dict) for entry in entries):
            return "must keep names and values of each parameter"
        if len({tuple((key, _kind(value)) for key, value in entry.items()) for entry in entries}) > 1:
            return "must keep the same of each parameter of a group"
    return ""


def _kind(value: Any) -> str:
    """The type of a value, all numbers being one."""
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    )


def load_module(path: Path, name: str, module: nn.Module) -> None:
    """Fill one module of a checkpointed state, by its name there ("model", "average").

    Raises:
        ValueError: The file is damaged, or its tensors are not the module's.
    """
    fill(module, read_module(path, name), str(path))


def read_module(path: Path, name: str) -> dict[str, Tensor]:
    """The tensors of one module of a checkpointed state, by their names in it; {} where there is none.

    Raises:
        ValueError: The file is damaged.
    """
    tensors, _ = _read(path)
    prefix = f"modules/{name}/"
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}


def fill(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Load a state dict whose every tensor must find its place, and every place its tensor.

    Args:
        module: Filled in place, on its device and in its type.
        tensors: By name.
        source: Where they are from, for the message.

    Raises:
        ValueError: Tensors are missing, unexpected or of another shape; the message names them.
    """
    expected = module.state_dict()
    shapes = [
        f"{name} is {tuple(tensor.shape)} in the file, {tuple(expected[name].shape)} in the model"
        for name, tensor in tensors.items()
        if isinstance(expected.get(name), Tensor) and expected[name].shape != tensor.shape
    ]
    complaints = [
        listed("missing", [name for name in expected if name not in tensors]),
        listed("unexpected", [name for name in tensors if name not in expected]),
        listed("wrong shape", shapes),
    ]
    if found := [text for text in complaints if text]:
        raise ValueError(f"{source} does not fit {type(module).__name__}: {'; '.join(found)}")
    module.load_state_dict({name: like(tensor, expected[name]) for name, tensor in tensors.items()})


def listed(what: str, names: Sequence[str]) -> str:
    """The first few names under a heading; "" where there are none."""
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{what}: {', '.join(names[:SHOWN])}{more}"


def _read(path: Path) -> tuple[dict[str, Tensor], str]:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            kept = file.metadata()
        text = kept["state"]
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged or no checkpoint of margin: {error}") from None
    # a checkpoint without a digest is older than they are
    if kept.get("digest", "") and kept["digest"] != digest_of(tensors, text):
        raise wrong(path, "digest", "is another: the file has changed since it was written")
    return tensors, text
