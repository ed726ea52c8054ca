"""A stranger's module, named by the function that builds it, and its weights, read from a file.

Files are read without running what they hold: safetensors, or torch's format with ``weights_only``.
"""

import importlib
import inspect
import pickle
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from margin.core.catalog import nearest
from margin.engine.checkpoints import fill, listed
from margin.engine.transfer import unwrapped


class BuilderError(ValueError):
    """Code of the user's failed.

    Args:
        message: Which, and how.
        place: The last frame of the user's own code, as a traceback shows it.
    """

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


def load_builder(path: str) -> nn.Module:
    """The module that a function without arguments builds.

    Args:
        path: ``"package.module:name"``: a function, a class, or a module itself. The current directory
            is searched first, as by ``python -m``, and stays on the search path.

    Raises:
        BuilderError: The user's code raises, ends the program, or has a syntax error.
        ValueError: The path names nothing, or what it names gives no module.
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
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    owner: Any = _imported(module)
    builder = owner
    for part in name.split("."):
        if not hasattr(builder, part):
            near = nearest(part, [n for n in vars(builder) if not n.startswith("_")])
            raise ValueError(f"{module} has no {name!r}; nearest: {', '.join(near) or 'none'}")
        builder = getattr(builder, part)
    return _built(builder, path)


def _imported(module: str) -> Any:
    try:
        with _reported(module):
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"{module} could not be imported: it needs the module {error.name!r}") from error
        raise ValueError(f"no module {module!r} here or among the installed packages") from None


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """What the user's own code raises is told in one line, with where in it that happened."""
    try:
        yield
    except ModuleNotFoundError:
        raise  # perhaps the name itself is wrong
    except SystemExit as ended:
        raise BuilderError(f"{what} ended the program by sys.exit({ended.code})", _place(ended)) from None
    except Exception as error:
        kind, text = type(error).__name__, str(error).partition("\n")[0]
        raise BuilderError(f"{what} raised {kind}{f': {text}' if text else ''}", _place(error)) from error


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


def _built(builder: Any, path: str) -> nn.Module:
    if not isinstance(builder, nn.Module):
        if not callable(builder):
            raise ValueError(f"{path} must build a torch module: it is of type {type(builder).__name__}")
        if required := _required(builder):
            raise ValueError(f"{path} must be callable without arguments: it needs {', '.join(required)}")
        with _reported(path):
            builder = builder()
    if not isinstance(builder, nn.Module):
        raise ValueError(f"{path} must build a torch module: it returned the type {type(builder).__name__}")
    return builder


def _required(function: Any) -> list[str]:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in variadic]


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
