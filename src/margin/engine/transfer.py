"""Transfer learning (Yosinski et al., 2014): begin with another model's weights, and freeze some of them.

Files of weights are read without running what they hold: safetensors, or torch's format with
``weights_only``.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from margin.core.catalog import nearest
from margin.engine.checkpoints import fill, listed


@dataclass(frozen=True, slots=True)
class Transferred:
    """What a model took over.

    Args:
        taken: Names of the tensors that were loaded.
        left: Names of the model's tensors that stay as they were drawn, and why.
        unused: Names of the source's tensors that the model has no place for.
    """

    taken: tuple[str, ...]
    left: Mapping[str, str]
    unused: tuple[str, ...]

    def __str__(self) -> str:
        """One line for a person."""
        left = "; ".join(f"{name}: {why}" for name, why in self.left.items())
        return f"{len(self.taken)} tensors taken over, {len(self.left)} left{f' ({left})' if left else ''}"


def unwrapped(given: Mapping[str, Tensor], names: Iterable[str]) -> tuple[dict[str, Tensor], str]:
    """Tensors under a model's own names, where ``torch.compile`` or a parallel wrapper has put words before.

    ``torch.compile`` puts ``_orig_mod.`` before the names of what it compiles, DistributedDataParallel and
    DataParallel put ``module.`` before all. Both are left out in comparing, of the model's names too.

    Args:
        given: Tensors by the names that they were saved under.
        names: The model's names.

    Returns:
        The tensors, under the model's names where these are found; what was left out, or "".
    """
    own, wanted = {_bare(name): name for name in names}, set(names)
    found = {own.get(_bare(name), _bare(name)): tensor for name, tensor in given.items()}
    clearer = len(found) == len(given) and len(wanted & found.keys()) > len(wanted & given.keys())
    if not clearer:
        return dict(given), ""
    text = " ".join([*given, *wanted])
    words = [word for word in ("_orig_mod.", "module.") if word in text]
    return found, f"the names of the weights are read without {' and '.join(words)}, of a wrapper"


def _bare(name: str) -> str:
    return name.replace("_orig_mod.", "").removeprefix("module.")


def transfer(model: nn.Module, source: Mapping[str, Tensor] | nn.Module) -> Transferred:
    """Load every parameter and buffer whose name and shape are a source's; the others stay as they are.

    Args:
        model: Changed in place; each tensor keeps its type and device.
        source: Another model, or its state.

    Raises:
        ValueError: Nothing fits.

    Reference: Yosinski, Clune, Bengio and Lipson 2014, "How transferable are features in deep neural
    networks?", Section 2.
    """
    given = source.state_dict() if isinstance(source, nn.Module) else source
    own = model.state_dict()
    taken = [name for name, x in own.items() if name in given and given[name].shape == x.shape]
    left = {name: _why(name, x, given) for name, x in own.items() if name not in taken}
    if not any(own[name].is_floating_point() for name in taken):
        first = next(iter(left.items()), ("it", "the model has no tensor"))
        raise ValueError(
            f"no weight of the source fits the model by name and shape: {first[0]}: {first[1]}; "
            f"the source has {', '.join(list(given)[:4]) or 'nothing'}"
        )
    with torch.no_grad():
        for name in taken:
            own[name].copy_(given[name])
    return Transferred(tuple(taken), left, tuple(name for name in given if name not in taken))


def _why(name: str, x: Tensor, given: Mapping[str, Tensor]) -> str:
    if name not in given:
        return "the source has no such tensor"
    return f"of shape {tuple(x.shape)}, in the source {tuple(given[name].shape)}"


def freeze(model: nn.Module, prefixes: Sequence[str]) -> tuple[str, ...]:
    """Keep the parameters under dotted prefixes as they are, and their modules in evaluation mode.

    A frozen batch normalization thus normalizes by its running statistics and does not move them, and
    frozen dropout drops nothing, also while the model trains.

    Args:
        model: Changed in place.
        prefixes: Names of submodules or parameters: ``features`` covers ``features.0.weight``.

    Returns:
        Names of the parameters that are frozen.

    Raises:
        ValueError: A prefix names nothing, or what has no weights, or no parameter would be left to train.

    Reference: Yosinski et al. 2014, Section 2 (frozen layers).
    """
    modules = [name for name, _ in model.named_modules() if name]
    names = [name for name, _ in model.named_parameters()]
    for prefix in prefixes:
        if not any(_under(name, prefix) for name in (*modules, *names)):
            near = nearest(prefix, [*modules, *names])
            known = near or [name for name, _ in model.named_children()]
            raise ValueError(
                f"freeze must name parts of the model: got {prefix!r}; nearest: {', '.join(known)}"
            )
        if not any(_under(name, prefix) for name in model.state_dict()):
            kind = type(model.get_submodule(prefix)).__name__
            raise ValueError(f"freeze must name parts with weights: got {prefix!r}, a {kind} without any")
    frozen = [name for name in names if any(_under(name, prefix) for prefix in prefixes)]
    trained = [name for name, p in model.named_parameters() if p.requires_grad and name not in frozen]
    if not trained:
        raise ValueError(
            f"freeze must leave a parameter to train: {', '.join(prefixes)} cover all {len(names)}"
        )
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    for name, module in model.named_modules():
        if name and any(_under(name, prefix) for prefix in prefixes):
            # not module.eval(): whoever trains calls model.train(), which would undo it
            module.register_forward_pre_hook(_evaluating)
    return tuple(frozen)


def _under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def _evaluating(module: nn.Module, inputs: object) -> None:
    module.training = False


def layer_rates(model: nn.Module, decay: float) -> list[tuple[list[nn.Parameter], float]]:
    """The layers of a model from the last to the first, each with the factor decay^k of its learning rate.

    The last layer has k = 0, the one before it 1, and so on. A layer is a child of the model that holds a
    weight matrix (a block of several counts as one); Sequential, ModuleList, what holds a ModuleList, and an
    only child are opened. What holds vectors alone, as a normalization, goes with the layer before it. Their
    order is that in which the model names them. Frozen parameters are left out, and layers without any other
    do not count. A parameter of two layers belongs to the first.

    Args:
        model: Any module.
        decay: In (0, 1]; 1 gives every layer the same rate, 1 / 2.6 that of ULMFiT.

    Raises:
        ValueError: The decay is out of range, or every parameter is frozen.

    Reference: Howard and Ruder 2018, "Universal language model fine-tuning", Section 3.2 (discriminative
    fine-tuning, eta^{l-1} = eta^l / 2.6).
    """
    if not 0 < decay <= 1:
        raise ValueError(f"decay must be in (0, 1], as 1 / 2.6: got {decay}")
    seen: set[int] = set()
    layers: list[list[nn.Parameter]] = []
    for group in _layers(model):
        fresh = [p for p in group if p.requires_grad and id(p) not in seen]
        seen.update(id(p) for p in group)
        if fresh and (not layers or any(p.ndim >= 2 for p in group)):
            layers.append(fresh)
        elif fresh:
            layers[-1] += fresh
    if not layers:
        raise ValueError("layer rates need a parameter to train: every one is frozen")
    return [(layer, decay**k) for k, layer in enumerate(reversed(layers))]


def _layers(module: nn.Module) -> Iterator[list[nn.Parameter]]:
    """The parameters of each layer, in the order of their names."""
    if own := list(module.parameters(recurse=False)):
        yield own
    children = [child for child in module.children() if any(True for _ in child.parameters())]
    for child in children:
        opened = isinstance(child, nn.Sequential | nn.ModuleList) or (len(children) == 1 and not own)
        if opened or any(isinstance(part, nn.ModuleList) for part in child.children()):
            yield from _layers(child)
        else:
            yield list(child.parameters())


def load_weights(model: nn.Module, path: str | Path) -> str:
    """Fill the module's parameters and buffers from a state dict; every tensor must find its place.

    Args:
        model: The module, filled in place, on its device and in its type.
        path: ``.safetensors``, or ``.pt`` / ``.pth`` written by ``torch.save(model.state_dict(), path)``;
            of a compiled or parallel module too.

    Returns:
        What of the names in the file was left out because a wrapper had put it there, or "".

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or of another kind, or tensors are missing, unexpected or of
            another shape.
    """
    tensors, told = unwrapped(read_weights(Path(path)), model.state_dict())
    fill(model, tensors, str(path))
    return told


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict, by name; see :func:`load_weights` for the files and the errors."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix not in (".pt", ".pth"):
        raise ValueError(f"weights are a .safetensors, .pt or .pth file: got {path}")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "Unsupported global" in str(error) or "weights_only" in str(error).lower():
            raise ValueError(
                f"{path} holds more than tensors, or is damaged: save model.state_dict() instead"
            ) from error
        raise ValueError(f"{path} is damaged: it cannot be read as weights") from error
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{path} is damaged: it cannot be read as weights") from error
    if not isinstance(state, Mapping):
        raise ValueError(f"{path} must hold a state dict: it holds the type {type(state).__name__}")
    if odd := [str(name) for name, value in state.items() if not isinstance(value, Tensor)]:
        raise ValueError(
            f"{path} must hold a state dict: {listed('not a tensor', odd)}; save model.state_dict()"
        )
    return dict(state)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is damaged: {reason}") from error
