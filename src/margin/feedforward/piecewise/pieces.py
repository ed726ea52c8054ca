"""The pieces of a ReLU network of one input, found exactly, layer by layer (Telgarsky 2016).

Between two breakpoints every unit is affine in the input; a ReLU breaks each piece where a unit crosses 0.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.data.preprocess import Standardize
from margin.engine.evaluation import eval_mode
from margin.feedforward.piecewise.linear import SAME_KNOT

AFFINE = (nn.Linear, nn.BatchNorm1d, Standardize)
NOTHING = (nn.Identity, nn.Flatten, nn.Dropout)
KINKED = (nn.ReLU, nn.LeakyReLU)
KINDS = (*AFFINE, *NOTHING, *KINKED)

SAME_SLOPE = 1e-12
"""Slopes that differ by less than this share of the steepest are one, moved by rounding."""

MOST_PIECES, MOST_NUMBERS = 100_000, 50_000_000
"""Pieces, and slopes of all units on all pieces, up to which a network is followed."""


class Pieces(NamedTuple):
    """A piecewise-linear map of one variable: S_k x + T_k between knots k - 1 and k, in float64.

    Args:
        knots: Where the map breaks, rising.
        slopes: S, a row a piece, one more than knots.
        intercepts: T likewise.
    """

    knots: Float[Tensor, " knots"]
    slopes: Float[Tensor, "pieces outputs"]
    intercepts: Float[Tensor, "pieces outputs"]

    def __call__(self, x: Float[Tensor, " batch"]) -> Float[Tensor, "batch outputs"]:
        """The value at every x."""
        piece = torch.searchsorted(self.knots, x.double())
        return self.slopes[piece] * x.double()[:, None] + self.intercepts[piece]

    def middles(self) -> Float[Tensor, " pieces"]:
        """A point inside each piece; of the two unbounded ones, 1 or more beyond their knot."""
        if not len(self.knots):
            return torch.zeros(1, dtype=torch.float64)
        room = self.knots.abs().max().clamp_min(1.0)
        return torch.cat(
            (self.knots[:1] - room, (self.knots[:-1] + self.knots[1:]) / 2, self.knots[-1:] + room)
        )


def chain_of(model: nn.Module, x: Float[Tensor, "batch 1"]) -> list[nn.Module] | str:
    """The layers that a model of one input applies, one after another, or why they are no such chain.

    The model is run on ``x``: the first layer must get x, each of the others what the one before it gave, and
    the outputs must be the last one's. So a sum past a layer, or a function that is no module, is seen.

    Args:
        model: Any module; left as it is.
        x: Inputs to try, better far apart.
    """
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []

    def seen(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            calls.append((module, inputs[0].detach(), output.detach()))

    with torch.no_grad(), eval_mode(model):
        handles = [module.register_forward_hook(seen) for module in _leaves(model)]
        try:
            outputs = model(x)
        finally:
            for handle in handles:
                handle.remove()
    names = {module: name for name, module in model.named_modules()}
    before = x
    for module, given, gave in calls:
        if not isinstance(module, KINDS):
            return f"layer {names[module]} is a {type(module).__name__}, neither affine nor a ReLU"
        if not _same(before, given):
            return f"layer {names[module]} gets something else than what the layer before it gives"
        before = gave
    if not isinstance(outputs, Tensor) or not _same(before, outputs):
        return "the outputs are not those of the last layer"
    return [module for module, _, _ in calls]


def _leaves(model: nn.Module) -> Iterator[nn.Module]:
    """The modules without children, and those of a known kind, with the children that parametrize them."""
    if isinstance(model, KINDS) or not list(model.children()):
        yield model
        return
    for child in model.children():
        yield from _leaves(child)


def _same(a: Tensor, b: Tensor) -> bool:
    if a.numel() != b.numel():
        return False
    a, b = a.flatten().double(), b.flatten().double()
    scale = a[a.isfinite()].abs().max() if bool(a.isfinite().any()) else a.new_zeros(())
    return bool((((a - b).abs() <= 1e-6 * scale) | (a == b) | (a.isnan() & b.isnan())).all())


def pieces_of(layers: Sequence[nn.Module], *, regions: bool = False) -> Pieces:
    """The pieces of a chain of affine maps and ReLUs of one input, on the whole line.

    Args:
        layers: The chain, as :func:`chain_of` finds it.
        regions: Keep every breakpoint where a unit turns on or off, whether or not the outputs bend there.

    Raises:
        ArithmeticError: There are more than MOST_PIECES or MOST_NUMBERS, or a weight is not finite.

    Reference:
        Telgarsky 2016 (how many affine pieces sums and compositions have).
    """
    S = torch.ones(1, 1, dtype=torch.float64)
    now = Pieces(S.new_zeros(0), S, torch.zeros_like(S))
    for layer in layers:
        if len(now.slopes) * getattr(layer, "out_features", 1) > MOST_NUMBERS:
            raise ArithmeticError(
                f"a network of at most {MOST_NUMBERS:,} slopes, of units times pieces, is followed: "
                f"got {len(now.slopes):,} pieces before a layer of {layer.out_features}"
            )
        if isinstance(layer, AFFINE):
            now = now._replace(**_affine(layer, now))
        elif isinstance(layer, KINKED):
            now = _kinked(now, float(getattr(layer, "negative_slope", 0.0)))
        if len(now.knots) > MOST_PIECES:
            raise ArithmeticError(f"a network of at most {MOST_PIECES:,} pieces is followed: got more")
        if not bool(now.slopes.isfinite().all() and now.intercepts.isfinite().all()):
            raise ArithmeticError(
                f"weights must be finite: {type(layer).__name__} gives a number that is not"
            )
    return now if regions else merged(now)


def _affine(layer: nn.Module, now: Pieces) -> dict[str, Tensor]:
    S, T = now.slopes, now.intercepts
    if isinstance(layer, nn.Linear):
        W = layer.weight.detach().double().cpu()
        b = torch.zeros(len(W), dtype=W.dtype) if layer.bias is None else layer.bias.detach().double().cpu()
        return {"slopes": S @ W.T, "intercepts": T @ W.T + b}
    if isinstance(layer, Standardize):
        mean, scale = layer.mean.double().cpu().flatten(), 1 / layer.std.double().cpu().flatten()
        return {"slopes": S * scale, "intercepts": (T - mean) * scale}
    norm: Any = layer
    if norm.running_mean is None:
        raise ArithmeticError("batch normalization without stored statistics is no function of one example")
    gain = torch.ones_like(norm.running_var) if norm.weight is None else norm.weight.detach()
    shift = torch.zeros_like(norm.running_mean) if norm.bias is None else norm.bias.detach()
    scale = (gain.double() / (norm.running_var.double() + norm.eps).sqrt()).cpu()
    return {
        "slopes": S * scale,
        "intercepts": (T - norm.running_mean.double().cpu()) * scale + shift.double().cpu(),
    }


def _kinked(now: Pieces, negative_slope: float) -> Pieces:
    """A ReLU of every unit: new knots where a unit crosses 0 inside a piece, scaled where it is below."""
    ends = now.knots.new_tensor([math.inf])
    low, high = torch.cat((-ends, now.knots))[:, None], torch.cat((now.knots, ends))[:, None]
    zero = -now.intercepts / now.slopes  # not finite where a unit is constant
    inside = zero.isfinite() & (zero > low) & (zero < high)
    knots = _distinct(torch.cat((now.knots, zero[inside])).sort().values)
    split = Pieces(knots, now.slopes[:0], now.intercepts[:0])
    middle = split.middles()
    piece = torch.searchsorted(now.knots, middle)
    S, T = now.slopes[piece], now.intercepts[piece]
    factor = torch.where(S * middle[:, None] + T > 0, S.new_tensor(1.0), S.new_tensor(negative_slope))
    return Pieces(knots, S * factor, T * factor)


def _distinct(knots: Float[Tensor, " some"]) -> Float[Tensor, " fewer"]:
    keep = torch.ones(len(knots), dtype=torch.bool)
    keep[1:] = knots.diff() > SAME_KNOT * knots[1:].abs().clamp_min(knots[:-1].abs())
    return knots[keep]


def merged(pieces: Pieces) -> Pieces:
    """The same map without the knots at which no output bends."""
    S = pieces.slopes
    steepest = S.abs().amax(0) if len(S) else S.new_zeros(S.shape[1])
    bends = (S.diff(dim=0).abs() > SAME_SLOPE * steepest).any(1)
    first = torch.cat((bends.new_ones(1), bends))
    return Pieces(pieces.knots[bends], S[first], pieces.intercepts[first])


def most_pieces(layers: Sequence[nn.Module]) -> int:
    r"""The most pieces that a chain of these widths can have: :math:`\prod_l (m_l + 1)` over its ReLU layers.

    A unit crosses 0 at most once in each of p pieces, so m units make at most p (m + 1) of them.

    Args:
        layers: The chain.

    Reference: Serra, Tjandraatmadja and Ramalingam 2018, Theorem 1, for one input.
    """
    count, width = 1, 1
    for layer in layers:
        width = layer.out_features if isinstance(layer, nn.Linear) else width
        count *= width + 1 if isinstance(layer, KINKED) else 1
    return count


def sup_distance(f: Pieces, g: Pieces, low: float, high: float) -> tuple[float, float]:
    """The uniform distance of two functions on [low, high], exact, and a point where it is attained.

    The difference is affine between the knots of both, so its largest value is at one of them or at an end.

    Args:
        f: A function of one output.
        g: Another.
        low: Left end.
        high: Right end.

    Raises:
        ValueError: The interval is empty.
    """
    if not low < high:
        raise ValueError(f"an interval needs low < high: got {low:g}, {high:g}")
    knots = torch.cat((f.knots, g.knots))
    knots = knots[(knots > low) & (knots < high)]
    x = torch.cat((knots, knots.new_tensor([low, high])))
    gap = (f(x) - g(x)).abs().amax(1)
    at = int(gap.argmax())
    return float(gap[at]), float(x[at])


def pieces_on(pieces: Pieces, low: float, high: float) -> int:
    """How many pieces meet the open interval (low, high)."""
    return 1 + int(((pieces.knots > low) & (pieces.knots < high)).sum())
