"""Transfer learning (Yosinski et al., 2014): begin with another model's weights, and freeze some of them.

Files of weights are read without running what they hold: safetensors, or torch's format with
``weights_only``.

Weights of other libraries (transformers, torchvision) are renamed first. An entry names a function
``(tensors, config) -> Pretrained | None`` (its ``weights``). It knows the names that other libraries give to
the tensors of that architecture, and says which options make our model the same function; None says that the
names are none of those, as of our own files.
"""

import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from margin.core.catalog import Entry, completed, nearest, resolve
from margin.core.hints import flag
from margin.data.files.word_vectors import read_rows
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
    own, wanted = {bare(name): name for name in names}, set(names)
    found = {own.get(bare(name), bare(name)): tensor for name, tensor in given.items()}
    clearer = len(found) == len(given) and len(wanted & found.keys()) > len(wanted & given.keys())
    if not clearer:
        return dict(given), ""
    text = " ".join([*given, *wanted])
    words = [word for word in ("_orig_mod.", "module.") if word in text]
    return found, f"the names of the weights are read without {' and '.join(words)}, of a wrapper"


def bare(name: str) -> str:
    """The name of a tensor without the words of a wrapper."""
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


INDEX = ".safetensors.index.json"
"""How the name ends of what says which of several files has which tensor."""

NESTED = ("state_dict", "model_state_dict")
"""Under which of these names a checkpoint of a training commonly holds the state dict."""


def load_weights(model: nn.Module, path: str | Path) -> str:
    """Fill the module's parameters and buffers from a state dict; every tensor must find its place.

    Args:
        model: The module, filled in place, on its device and in its type.
        path: ``.safetensors``, or ``.pt`` / ``.pth`` written by ``torch.save(model.state_dict(), path)``;
            of a compiled or parallel module too; or a checkpoint with ``{"state_dict": ...}`` in it; or a
            folder with ``model.safetensors`` or its shards. A parameter of two names may be written once.

    Returns:
        What of the names in the file was left out because a wrapper had put it there, or "".

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or of another kind, or tensors are missing, unexpected or of
            another shape.
    """
    place = weights_file(Path(path)) or Path(path)
    tensors, told = unwrapped(read_weights(place), model.state_dict())
    fill(model, tied(model, tensors), str(path))
    return told


def tied(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with those that the model has under a second name, which transformers writes once."""
    own = dict(model.named_parameters(remove_duplicate=False))
    written = {id(own[name]): tensor for name, tensor in tensors.items() if name in own}
    lacking = {name: id(p) for name, p in own.items() if name not in tensors and id(p) in written}
    return {**tensors, **{name: written[place] for name, place in lacking.items()}}


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict, by name; see :func:`load_weights` for the files and the errors."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.name.endswith(INDEX):
        return _read_shards(path)
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
    state = next((state[name] for name in NESTED if isinstance(state.get(name), Mapping)), state)
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


def _read_shards(index: Path) -> dict[str, Tensor]:
    """The tensors of a model in several files, whose index says which file has which."""
    places = _config(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{index} must have a weight_map: which file has which tensor")
    found: dict[str, Tensor] = {}
    for name in sorted(set(map(str, places.values()))):
        if Path(name).name != name or not (index.parent / name).is_file():
            raise FileNotFoundError(f"{index} names {name}, which is not beside it: copy the whole folder")
        found |= _read_safetensors(index.parent / name)
    if lacking := [name for name in places if name not in found]:
        raise ValueError(f"{index.parent} is not whole: {listed('tensors without a file', lacking)}")
    return found


REMEDIES = {
    "channels": "a folder of images is read as RGB by --data.channels 3, an array by repeating its channel",
    "vocab_size": "a text is read by the weights' own tokenizer with --data.tokenizer FOLDER",
}
"""What helps where the data dictate another number than the weights were trained with."""


@dataclass(frozen=True, slots=True)
class Pretrained:
    """Weights of another library as one of our models holds them.

    Args:
        tensors: By the names of our model.
        options: The options of the model's constructor that make it the same function.
        spec: What the data must dictate, as ``{"channels": 3}``.
        head: How the names of the last layers begin, which stay as drawn where they are not given, or their
            classes are others.
        adapted: ``(model, tensors) -> tensors``: what fits them to a model on data of another size.
    """

    tensors: Mapping[str, Tensor]
    options: Mapping[str, Any]
    spec: Mapping[str, int] = field(default_factory=dict)
    head: str | tuple[str, ...] = "head."
    adapted: Callable[[nn.Module, Mapping[str, Tensor]], Mapping[str, Tensor]] | None = None


def pretrained(entry: Entry, path: str, spec: Mapping[str, Any]) -> Pretrained | None:
    """The weights in a file, or in a folder as transformers writes it, if they are another library's.

    Args:
        entry: The model that is to begin with them.
        path: ``.safetensors``, ``.pt`` or ``.pth``, or a folder with ``model.safetensors`` or its
            shards and their index; a ``config.json`` beside it is read too.
        spec: What the data dictate.

    Raises:
        ValueError: The file is damaged; or the weights are of another architecture, or for other data.
    """
    if not entry.weights or not path or not (place := weights_file(Path(path))):
        return None
    given = {bare(name): tensor for name, tensor in read_weights(place).items()}
    found: Pretrained | None = resolve(entry.weights)(given, _config(place.parent / "config.json"))
    for name, value in (found.spec if found else {}).items():
        if name in spec and spec[name] != value:
            remedy = f": {REMEDIES[name]}" if name in REMEDIES else ""
            raise ValueError(
                f"the data must have the {name} that the weights {path} were trained with: "
                f"got {spec[name]} for {value}{remedy}"
            )
    return found


def weights_file(path: Path) -> Path | None:
    """The file of weights at a path: itself, or that in a folder, or its index; None where it is a run.

    Raises:
        ValueError: A folder holds weights in a form that is not read.
    """
    if path.is_file():
        return path
    if (path / "run.yaml").is_file():
        return None
    for name in ("model.safetensors", f"model{INDEX}"):
        if (path / name).is_file():
            return path / name
    if others := sorted(path.glob("*.safetensors*")) + sorted(path.glob("pytorch_model*.bin*")):
        raise ValueError(
            f"a folder of weights must hold model.safetensors: {path} has {others[0].name}; "
            "save_pretrained(FOLDER) of transformers writes it, or name one file"
        )
    return None


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} must be JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object: got {type(found).__name__}")
    return found


def with_options(
    given: Mapping[str, Any], found: Pretrained | None, build: Callable[..., Any], path: str
) -> dict[str, Any]:
    """All options of the model: the user's, those that the weights dictate, and defaults.

    Args:
        given: The user's; the command line gives defaults too, which count as not given.
        found: The weights, if they are another library's.
        build: The model's constructor.
        path: Where the weights are from, for the message.

    Raises:
        ValueError: Both name an option, with values that differ.
    """
    defaults = completed(build, {})
    dictated = found.options if found else {}
    for name, value in dictated.items():
        own = given.get(name, defaults[name])
        if _plain(own) not in (_plain(defaults[name]), _plain(value)):
            raise ValueError(
                f"{name} must be {value!r} as in the weights {path}: got {own!r}; "
                f"leave out {flag(f'model.{name}')}"
            )
    return {**defaults, **given, **dictated}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def put_in(model: nn.Module, found: Pretrained, path: str) -> Transferred:
    """Give a model pretrained weights; its last layer stays as drawn where theirs has another shape.

    Args:
        model: Changed in place.
        found: The weights, by the names of the model.
        path: Where they are from, for the message.

    Raises:
        ValueError: A tensor of the model other than the last layer's is not given or has another shape, or
            one that is given has no place.
    """
    tensors = found.adapted(model, found.tensors) if found.adapted else found.tensors
    own = model.state_dict()
    # a count of batches is not read where the momentum is a number, and older files lack it
    body = [name for name in own if not name.startswith(found.head) and "num_batches_tracked" not in name]
    wrong = [name for name in body if name not in tensors or tensors[name].shape != own[name].shape]
    spare = [name for name in tensors if name not in own and not name.startswith(found.head)]
    if wrong or spare:
        lacks = [listed("not given, or of another shape", wrong), listed("without a place", spare)]
        raise ValueError(
            f"the weights {path} must fit the model, the last layer apart: {'; '.join(filter(None, lacks))}"
        )
    return transfer(model, tensors)


def renamed(given: Mapping[str, Tensor], names: Sequence[tuple[str, str]], what: str) -> dict[str, Tensor]:
    """Tensors under our names.

    Args:
        given: By the names of another library.
        names: Patterns (regular expressions) of their names, and what the match becomes in ours; the first
            that matches counts, and "" leaves a tensor out that has no counterpart.
        what: Which library's model, for the message.

    Raises:
        ValueError: Tensors match no pattern; the message counts and names them.
    """
    found, odd = {}, []
    for name, tensor in given.items():
        match = next(((theirs, ours) for theirs, ours in names if re.search(theirs, name)), None)
        if match is None:
            odd.append(name)
        elif match[1]:
            found[re.sub(*match, name)] = tensor
    if odd:
        raise ValueError(f"every tensor must be one of {what}: {listed(f'{len(odd)} are not', odd)}")
    return found


JOINED = ("query", "key", "value")
"""Three layers in other libraries, one after another in ``queries_keys_values`` here."""


def joined(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with queries, keys and values as one layer.

    Raises:
        ValueError: A block lacks one of the three.
    """
    found = dict(tensors)
    for name in [name for name in found if ".attention.query." in name]:
        parts = [name.replace(".query.", f".{part}.") for part in JOINED]
        if lacking := [part for part in parts if part not in found]:
            raise ValueError(f"queries, keys and values must all be given: got no {lacking[0]}")
        found[name.replace(".query.", ".queries_keys_values.")] = torch.cat([found.pop(p) for p in parts])
    return found


def with_vectors(model: nn.Module, path: Path, vocabulary: Sequence[str]) -> tuple[str, int]:
    """Begin the rows of a model's token vectors with those of a file; words that it lacks stay as drawn.

    Args:
        model: With one ``nn.Embedding`` of the vocabulary's size; changed in place.
        path: See :func:`margin.data.files.word_vectors.read_rows`.
        vocabulary: The tokens of the data in the order of their numbers.

    Returns:
        The name of the tensor, and how many words were found.

    Raises:
        ValueError: The model has no such vectors or of another length, the file is damaged, or no word is
            found.

    Reference: Kim 2014, Section 3.3 (words that are not among the pretrained ones are drawn).
    """
    tables = {name: m for name, m in model.named_modules() if isinstance(m, nn.Embedding)}
    held = {name: m for name, m in tables.items() if m.num_embeddings == len(vocabulary)}
    if not vocabulary or len(held) != 1:
        raise ValueError(
            f"{path}: word vectors need a model with one table of the {len(vocabulary):,} tokens"
        )
    ((name, table),) = held.items()
    wanted = {word: k for k, word in enumerate(vocabulary)}
    words, vectors = read_rows(path, wanted=wanted)
    if not words:
        raise ValueError(f"{path}: none of the {len(vocabulary):,} tokens has a vector in it")
    if vectors.shape[1] != table.embedding_dim:
        raise ValueError(
            f"{path}: the vectors have {vectors.shape[1]} numbers, the model's {table.embedding_dim}: set "
            f"{flag('model.embedding')} {vectors.shape[1]}"
        )
    with torch.no_grad():
        table.weight[[wanted[word] for word in words]] = vectors.to(table.weight)
    return f"{name}.weight", len(words)
