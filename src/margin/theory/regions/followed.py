"""A model's own forward, followed on all points of a segment or a plane at once.

A continuous piecewise-linear map is affine on each cell of a mesh, so its values at the vertices tell it
everywhere. The forward is run on a tensor with a row for each vertex: affine functions act row by row, and at
a function with a kink the mesh is refined first, along the zero set of every coordinate, so that the function
is affine on the cells again. Hanin and Rolnick (2019) count the cells of such nets along lines.
"""

from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.engine.evaluation import leaves, place_of, running
from margin.math.evenly import evenly
from margin.theory.regions import rules as known

SHOWN = 7919
"""The number of examples that every followed tensor shows, whatever its number of vertices: a forward may
read it before the mesh is refined and use it after. Uncommon, so that it is known again in an argument."""


SAMPLED = 256
"""Points at which the outputs that were followed are held against the model's own."""

AGREE = 1e-8
"""Largest difference between them, in the unit of the largest output."""


class NotPiecewiseLinear(ValueError):
    """A layer that is not continuous and piecewise linear; the message names it."""


class CannotFollow(ValueError):
    """A layer that may be piecewise linear or not: its forward is not made of known functions."""


@runtime_checkable
class Mesh(Protocol):
    """Vertices, and cells on which all that is followed is affine."""

    generation: int

    @property
    def rows(self) -> int:
        """The number of vertices."""
        ...

    def refine(self, values: Float[Tensor, "rows features"], knots: tuple[float, ...]) -> Tensor:
        """Cut the cells where a value passes a knot; the values at all vertices, old and new."""
        ...

    def extend(self, values: Tensor, generation: int) -> Tensor:
        """Values at the vertices of an earlier generation, at those of the present one."""
        ...


class Trail:
    """The layers that are being run, outermost first, and those with kinks that were passed.

    Args:
        kinks: Name and number of kinks (coordinates x knots) of each, in order.
    """

    def __init__(self) -> None:
        self.layers: list[tuple[str, str]] = []
        self.kinks: list[tuple[str, int]] = []

    @property
    def place(self) -> str:
        """The innermost layer, in words."""
        return place_of(self.layers)

    def refusal(self, reason: str) -> CannotFollow:
        """The error that says where the model could not be followed."""
        return CannotFollow(f"{self.place} cannot be followed: {reason}")


class Followed(Tensor):
    """A tensor with a row for each vertex of a mesh; torch functions act on it by the tables of rules.

    It has no storage: a function that the tables do not know cannot read a value from it.

    Args:
        rows: The values, a row for each vertex.
        mesh: What is refined at a kink.
        trail: Names the layer in messages.
    """

    own_rows: Tensor
    mesh: Mesh
    trail: Trail
    generation: int
    shared: bool

    @staticmethod
    def __new__(cls: type["Followed"], rows: Tensor, mesh: Mesh, trail: Trail) -> "Followed":
        """A tensor of the shape of the rows, but for the number of examples that it shows."""
        shape = (SHOWN, *rows.shape[1:])
        return Tensor._make_wrapper_subclass(cls, shape, dtype=rows.dtype, device=rows.device)

    def __init__(self, rows: Tensor, mesh: Mesh, trail: Trail) -> None:
        self.own_rows, self.mesh, self.trail = rows, mesh, trail
        self.generation = mesh.generation
        # Whether other tensors may be views of it: overwriting one would then have to change the others.
        self.shared = False

    def __repr__(self) -> str:  # type: ignore[override]  # torch passes itself an argument that is not used
        return f"Followed(features={tuple(self.own_rows.shape[1:])}, vertices={self.mesh.rows})"

    @property
    def rows(self) -> Tensor:
        """The values at the present vertices: between those of a cell they are affine."""
        if self.generation != self.mesh.generation:
            self.own_rows = self.mesh.extend(self.own_rows, self.generation)
            self.generation = self.mesh.generation
        return self.own_rows

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Apply the rule of ``func``."""
        kwargs = dict(kwargs or {})
        if func in known.METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        first = next(value for value in leaves((args, kwargs)) if isinstance(value, Followed))
        if func in known.CONVERSIONS:
            return args[0] if isinstance(args[0], Followed) else args[0].to(first.own_rows.dtype)
        overwrites = bool(kwargs.pop("inplace", False)) or func in known.IN_PLACE
        made = first._apply(known.IN_PLACE.get(func, func), args, kwargs)
        if not overwrites:
            return made
        target = args[0]
        if not isinstance(target, Followed) or target.shared:
            raise first.trail.refusal(f"{func.__name__} overwrites a tensor of which there are views")
        target.own_rows, target.generation = made.own_rows, made.generation
        return target

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the stub leaves out that it is a class method
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Refuse: nothing reaches this below the tables of rules."""
        raise CannotFollow(f"{func} met a followed tensor below torch's functions")

    def _apply(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of ``func``; a kink refines the mesh first."""
        name = getattr(func, "__name__", str(func))
        if func in known.NOT_PIECEWISE_LINEAR:
            raise NotPiecewiseLinear(f"{self.trail.place} is not piecewise linear: {name}")
        followed = [value for value in leaves((args, kwargs)) if isinstance(value, Followed)]
        if func in known.LIKE:
            return func(*self._plain(args), **self._plain(kwargs))
        if func in known.BENT and len(followed) == 1 and args and args[0] is self:
            return self._bent(func, args, kwargs)
        if func in known.MAXIMUM | known.MINIMUM and not kwargs:
            return self._extremum(func, *args)
        if func in known.MAX_POOL:
            return self._max_pool(*args, **kwargs)
        single = func in known.AFFINE and (not args or args[0] is self)
        if func in known.BILINEAR and len(followed) > 1:
            raise NotPiecewiseLinear(f"{self.trail.place} multiplies values that depend on the input: {name}")
        if func not in known.JOINT and not (len(followed) == 1 and (single or func in known.BILINEAR)):
            raise self.trail.refusal(name)
        if kwargs.get("out") is not None or kwargs.get("training") is True:
            raise self.trail.refusal(f"{name} into a given tensor, or in training mode")
        made = self._row_by_row(name, func(*self._plain(args), **self._plain(kwargs)))
        if func in known.VIEWS:
            for value in (made, *followed):
                value.shared = True
        return made

    def _row_by_row(self, name: str, result: Any) -> "Followed":
        if not isinstance(result, Tensor) or result.ndim == 0 or len(result) != self.mesh.rows:
            raise self.trail.refusal(f"the result of {name} has no row for each example")
        return Followed(result, self.mesh, self.trail)

    def _bent(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Followed":
        try:
            knots = known.BENT[func](*args[1:], **kwargs)
        except TypeError as error:
            raise self.trail.refusal(f"{func.__name__} with kinks that are no numbers") from error
        rows = self.rows
        flat = rows.reshape(len(rows), -1)
        self.trail.kinks.append((self.trail.layers[-1][0] if self.trail.layers else "", _size(flat, knots)))
        values = self.mesh.refine(flat, knots).reshape(-1, *rows.shape[1:])
        # The refined values are nobody else's: the common case saves the memory of a second copy.
        bent = values.relu_() if func in known.RELU else func(values, *args[1:], **kwargs)
        return Followed(bent, self.mesh, self.trail)

    def _extremum(self, func: Any, a: Any, b: Any) -> Any:
        """The larger as b + relu(a - b), the smaller as b - relu(b - a)."""
        return b + torch.relu(a - b) if func in known.MAXIMUM else b - torch.relu(b - a)

    def _max_pool(
        self,
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: Any = False,
        return_indices: Any = False,
    ) -> Any:
        """The largest of each window, found by comparing two at a time."""
        (kh, kw), (ph, pw), (dh, dw) = _pair(kernel), _pair(padding), _pair(dilation)
        sh, sw = _pair(stride or kernel)
        if (dh, dw) != (1, 1) or return_indices or x.ndim != 4:
            raise self.trail.refusal("max_pool2d with dilation or indices")
        rows = [_taps(x.shape[2], (kh, sh, ph), tap, bool(ceil_mode)) for tap in range(kh)]
        columns = [_taps(x.shape[3], (kw, sw, pw), tap, bool(ceil_mode)) for tap in range(kw)]
        windows = [x.index_select(2, row).index_select(3, column) for row in rows for column in columns]
        while len(windows) > 1:
            pairs = zip(windows[::2], windows[1::2], strict=False)
            windows = [torch.maximum(a, b) for a, b in pairs] + windows[len(windows) // 2 * 2 :]
        return windows[0]

    def _plain(self, value: Any) -> Any:
        """The arguments with rows for followed tensors and the number of vertices for that of examples."""
        if isinstance(value, dict):
            return {key: self._plain(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return tuple(self._plain(part) for part in value)
        if isinstance(value, Followed):
            return value.rows
        if isinstance(value, int) and not isinstance(value, bool) and value == SHOWN:
            return self.mesh.rows
        if isinstance(value, Tensor):
            value = value.to(self.own_rows.dtype) if value.is_floating_point() else value
            if value.ndim and len(value) == SHOWN and bool((value == value[:1]).all()):
                return value[:1].expand(self.mesh.rows, *value.shape[1:])
        return value


def _size(flat: Tensor, knots: tuple[float, ...]) -> int:
    return flat.shape[1] * len(knots)


def _pair(value: Any) -> tuple[int, int]:
    a, b = (value, value) if isinstance(value, int) else (value * 2 if len(value) == 1 else value)
    return a, b


def _taps(size: int, window: tuple[int, int, int], tap: int, ceil: bool) -> Tensor:
    """The place that each window reads by one of its taps, of kernel, stride and padding along an axis.

    For what lies outside the nearest place inside stands, which the window reads too: the largest stays.
    """
    kernel, stride, padding = window
    count = (size + 2 * padding - kernel + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (count - 1) * stride >= size + padding:
        count -= 1  # a window begins inside, or in the padding before
    return (torch.arange(count) * stride - padding + tap).clamp(0, size - 1)


def _check_kind(trail: Trail, module: nn.Module) -> None:
    """Refuse a layer that is known not to be piecewise linear, by its kind."""
    if isinstance(module, known.ATTENTION):
        raise NotPiecewiseLinear(f"{trail.place} is not piecewise linear: attention")
    if isinstance(module, known.RECURRENT) and getattr(module, "nonlinearity", "tanh") == "tanh":
        raise NotPiecewiseLinear(f"{trail.place} is not piecewise linear: tanh or gates")


def follow(model: nn.Module, points: Tensor, mesh: Mesh) -> tuple[Tensor, list[tuple[str, int]]]:
    """The outputs of a model at the vertices of the mesh, which its kinks refine.

    Args:
        model: In evaluation mode, in float64.
        points: The inputs at the vertices, affine on every cell.
        mesh: Refined in place.

    Returns:
        The outputs, a row for each vertex of the refined mesh, flattened; and name and number of kinks of
        each layer that has some.

    Raises:
        NotPiecewiseLinear: A layer is not piecewise linear.
        CannotFollow: The forward is not made of known functions.
        ArithmeticError: From the mesh: a value is not finite, or there are too many cells.
    """
    trail = Trail()
    with torch.no_grad(), running(model, trail.layers, partial(_check_kind, trail)):
        try:
            outputs = model(Followed(points, mesh, trail))
        except (NotPiecewiseLinear, CannotFollow, ArithmeticError):
            raise
        except Exception as error:
            line = (str(error).splitlines() or [""])[0]
            raise trail.refusal(f"{type(error).__name__}: {line}") from error
        if not isinstance(outputs, Followed):
            raise trail.refusal("the output is no tensor that depends on the input by known functions")
        rows = outputs.rows
    return rows.reshape(len(rows), -1), trail.kinks


@torch.no_grad()
def confirm(model: nn.Module, points: Tensor, outputs: Float[Tensor, "points outputs"]) -> None:
    """Hold followed outputs against the model's own.

    Args:
        model: In evaluation mode, in float64.
        points: Inputs, evenly taken at most 256 of them.
        outputs: What they should give.

    Raises:
        CannotFollow: They differ: the output of an example depends on the others, or a function is not what
            its name says.
    """
    taken = evenly(len(points), SAMPLED)
    own = model(points[taken]).reshape(len(taken), -1)
    gap, scale = float((own - outputs[taken]).abs().max()), float(own.abs().max())
    if not gap <= AGREE * max(scale, torch.finfo(own.dtype).tiny):
        raise CannotFollow(f"the model's own outputs differ by {gap:.3g} from those that were followed")
