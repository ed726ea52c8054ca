"""Gradients over time (Bengio, Simard and Frasconi 1994): their norm by lag, and the bound of that norm.

:func:`by_lag` measures how far a state still moves with an earlier one; :func:`contractions` says by how much
a step can stretch at most (Pascanu et al. 2013), and where this is known of a layer.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Premise
from margin.nn.recurrence import Lengths, Recurrence, State, check_lengths
from margin.sequence.linear.linear_system import LinearSystem
from margin.sequence.linear.lru import LRU
from margin.sequence.recurrent.bptt import FUNCTIONS, STEEPEST
from margin.sequence.recurrent.captured import Captured, topmost
from margin.sequence.recurrent.elman import DeepTransition
from margin.sequence.recurrent.layers import TorchRecurrence

KINDS = (TorchRecurrence, DeepTransition, LinearSystem, LRU)

INSIDE = (nn.RNN, nn.Linear, nn.ModuleList)
"""What layers of these kinds, and those that average, consist of."""

POINTS, STEP_GAP = 64, 1e-10
"""Random states and inputs at which a step is compared with its formula, and the relative gap allowed."""


class Contraction(NamedTuple):
    """A layer whose step is z_t = phi(U z_{t-1} + V x_t + b), phi of slope alpha at most.

    Args:
        name: Where its matrix is in the recurrence; "" where there is but one.
        part: Which numbers of the recurrence's state are its own.
        stretch: alpha sigma_1(U), by which no step's derivative in the state is larger.
        formula: How this came about, in words.
        block: Size of the blocks on the diagonal of a step's derivative, which is 0 beside them; 0 where it
            may be anything.
    """

    name: str
    part: slice
    stretch: float
    formula: str
    block: int = 0


def stretch(matrix: Tensor, alpha: float = 1.0) -> float:
    """The most by which z -> phi(U z + c) can stretch, alpha sigma_1(U); NaN where U is not finite.

    ||dz_i / dz_t|| is at most its power i - t. Below 1 gradients vanish; above 1 they need not explode: the
    reverse of an upper bound says nothing.

    Args:
        matrix: U.
        alpha: The largest slope of phi.

    Reference: Pascanu, Mikolov and Bengio 2013, Section 2.1; Horn and Johnson 2013, Section 5.6.
    """
    U = matrix.detach().double()
    return alpha * float(torch.linalg.matrix_norm(U, 2)) if bool(U.isfinite().all()) else math.nan


def simple(model: nn.Module) -> list[tuple[str, Recurrence]]:
    """The layers of a model, with their names, whose step is a phi of an affine map of the state."""
    return topmost(model, _is_simple)


def _is_simple(module: nn.Module) -> bool:
    if isinstance(module, TorchRecurrence):
        return isinstance(module.layer, nn.RNN)
    return isinstance(module, KINDS)


def contractions(recurrence: Recurrence) -> list[Contraction]:
    """The layers of one of :func:`simple` with the most that a step of each stretches its own state.

    A layer of several reads the one below and none above it, so that the derivative by its own earlier state
    with the inputs from below held is the product of its own steps.

    Args:
        recurrence: What :func:`simple` gave.
    """
    if isinstance(recurrence, TorchRecurrence):
        return _layers(recurrence.layer)
    if isinstance(recurrence, DeepTransition):
        alpha = STEEPEST[recurrence.nonlinearity]
        rest = [layer for layer in recurrence.rest if isinstance(layer, nn.Linear)]
        matrices = [recurrence.recur.weight, *(layer.weight for layer in rest)]
        most = float(torch.tensor([stretch(W, alpha) for W in matrices], dtype=torch.float64).prod())
        depth = f"{len(matrices)} matrices of slope {alpha:g}"
        return [Contraction("", slice(0, recurrence.output_size), most, f"sigma_1 of {depth}, multiplied")]
    if isinstance(recurrence, LinearSystem):
        return [Contraction("", slice(0, len(recurrence.A)), stretch(recurrence.A), "sigma_1(A)")]
    if isinstance(recurrence, LRU):
        modulus = recurrence.eigenvalues.detach().abs()
        most = float(modulus.double().max())
        return [Contraction("", slice(0, 2 * len(modulus)), most, "max |lambda|", block=2)]
    raise ValueError(f"no bound is known of a step of {type(recurrence).__name__}")


def _layers(layer: Any) -> list[Contraction]:
    m, alpha = layer.hidden_size, STEEPEST[layer.nonlinearity]
    several = layer.num_layers > 1
    return [
        Contraction(
            f"layer {k + 1}" if several else "",
            slice(k * m, (k + 1) * m),
            stretch(getattr(layer, f"weight_hh_l{k}"), alpha),
            f"alpha sigma_1(U), alpha = {alpha:g} for {layer.nonlinearity}",
        )
        for k in range(layer.num_layers)
    ]


def altered(layer: nn.Module, *kinds: type[nn.Module]) -> str:
    """What of a layer need not be as its class has it, in words; "" where it is one of these kinds, as made.

    Looked at are the class of the layer and of every module in it, their hooks, and methods that were set on
    a module itself.

    Args:
        layer: The layer.
        kinds: What it is to be, not a subclass of which.
    """
    for name, module in layer.named_modules():
        where = f" in its {name}" if name else ""
        if type(module) not in (INSIDE if name else kinds):
            return f"a {type(module).__name__}{where}"
        if module._forward_hooks or module._forward_pre_hooks:
            return f"a {type(layer).__name__} with a hook{where}"
        own = [key for key in vars(module) if callable(getattr(type(module), key, None))]
        if own:
            return f"a {type(layer).__name__} with a {own[0]} of its own{where}"
    return ""


def formula(layer: Recurrence, x: Tensor, state: State) -> State:
    """The state after a step by the formula of the layer's class, from the layer's parameters.

    Args:
        layer: A layer of :func:`simple`.
        x: The inputs of the step.
        state: The state before it.
    """
    if isinstance(layer, TorchRecurrence):
        return (_simple_step(layer.layer, x, state[0]),)
    if isinstance(layer, DeepTransition):
        phi = FUNCTIONS[layer.nonlinearity]
        z = phi(F.linear(x, layer.read.weight, layer.read.bias) + F.linear(state[0], layer.recur.weight))
        for one in layer.rest:
            if isinstance(one, nn.Linear):
                z = phi(F.linear(z, one.weight, one.bias))
        return (z,)
    kind = LinearSystem if isinstance(layer, LinearSystem) else LRU
    return kind.step(layer, x, state)[1]  # type: ignore[arg-type]


def _simple_step(layer: Any, x: Tensor, state: Tensor) -> Tensor:
    """The new states (batch, layers, m) of an nn.RNN, each layer reading the one below."""
    phi, new = FUNCTIONS[layer.nonlinearity], list[Tensor]()
    for k, old in enumerate(state.unbind(1)):
        read = F.linear(new[-1] if new else x, getattr(layer, f"weight_ih_l{k}"))
        bias = getattr(layer, f"bias_ih_l{k}") + getattr(layer, f"bias_hh_l{k}") if layer.bias else 0.0
        new.append(phi(read + F.linear(old, getattr(layer, f"weight_hh_l{k}")) + bias))
    return torch.stack(new, 1)


@torch.no_grad()
def step_of_its_class(one: Captured) -> Premise:
    """The premise that a layer's step is that of its class, on which the bound rests.

    It is proved of a layer of that very class, as it was made; else the step is compared with its formula.

    Args:
        one: A layer of :func:`simple` and what it was given.
    """
    layer = one.recurrence
    kind = next(kind for kind in KINDS if isinstance(layer, kind))
    text = f"the step of {one.name} is phi of an affine map of the state"
    what = altered(layer, kind)
    if not what:
        return Premise(text, "proved", f"it is a {kind.__name__}")
    generator = Generator().manual_seed(0)
    x = torch.randn(POINTS, layer.input_size, generator=generator, dtype=one.x.dtype).to(one.x.device)
    state = tuple(
        torch.randn(part.shape, generator=generator, dtype=part.dtype).to(part.device)
        if part.is_floating_point() or part.is_complex()
        else part
        for part in layer.initial(x)
    )
    own, its = layer.step(x, state)[1], formula(layer, x, state)
    pairs = list(zip(own, its, strict=False))  # a subclass may hold more, which the bound is not about
    gap = max(float(((a - b).abs() / (1 + b.abs())).max()) for a, b in pairs)
    evidence = f"it is {what}, whose step differs from a {kind.__name__}'s by {gap:.3g}"
    return Premise(text, "sampled" if gap <= STEP_GAP else "refuted", f"{evidence} at {POINTS} random points")


EXACT = 256
"""Numbers of a state up to which its derivative is formed; a larger one is multiplied with vectors alone."""

WORK = 5e9
"""Multiplications of the numbers of a state, cubed for each example and step, that are worth waiting for."""

FEWEST, SEEN = 8, 64
"""Lags that are looked at however large the state is, and those where the derivative is not formed."""

ROUNDS, CLOSE = 12, 1e-3
"""Vectors that a derivative is multiplied with at most, and the relative error of its norm that suffices."""

LOST = 1e-290
"""Norm below which rounding to 0 is near: a smaller one may have lost its digits."""


class ByLag(NamedTuple):
    """Spectral norms of dz_T / dz_(T-k), T being each sequence's own last step.

    Args:
        lags: k, ascending, from 1.
        norms: Of each example at each lag, (batch, lags); NaN where the example has fewer steps, inf where a
            derivative is not finite.
        errors: How far, relative to the norm, it may be from a singular value; 0 where they were formed. That
            this is the largest holds with probability 1 over the vector that is begun with.
    """

    lags: Tensor
    norms: Float[Tensor, "batch lags"]
    errors: Float[Tensor, "batch lags"]


def flat(state: State) -> Float[Tensor, "batch numbers"]:
    """The real numbers of a state in a row, a complex one as two; counters and the like are left out."""
    parts = [
        torch.view_as_real(part) if part.is_complex() else part
        for part in state
        if part.is_complex() or part.is_floating_point()
    ]
    return torch.cat([part.flatten(1) for part in parts], 1)


def unflat(row: Float[Tensor, "batch numbers"], like: State) -> State:
    """The state whose real numbers are these, in the form of another, from which the rest is taken."""
    out, start = [], 0
    for part in like:
        if not (part.is_complex() or part.is_floating_point()):
            out.append(part)
            continue
        size = math.prod(part.shape[1:]) * (2 if part.is_complex() else 1)
        piece = row[:, start : start + size]
        start += size
        if part.is_complex():
            pairs = piece.reshape(*part.shape, 2)
            out.append(torch.complex(pairs[..., 0], pairs[..., 1]))
        else:
            out.append(piece.reshape(part.shape))
    return tuple(out)


@torch.no_grad()
def trajectory(recurrence: Recurrence, x: Tensor, state: State) -> list[State]:
    """The states z_0 .. z_T, by the recurrence's own step."""
    states = [state]
    for x_t in x.unbind(1):
        states.append(recurrence.step(x_t, states[-1])[1])
    return states


class _Backwards(NamedTuple):
    """Steps counted from each example's own end: step s goes from z_(T-s) to z_(T-s+1)."""

    recurrence: Recurrence
    x: Tensor
    states: State
    lengths: Tensor
    part: slice

    def at(self, s: int) -> tuple[Tensor, State]:
        """The input of step s and the state before it; of an example without such a step, its first."""
        place = (self.lengths - s).clamp_min(0)
        row = torch.arange(len(place), device=place.device)
        return self.x[row, place], tuple(part[place, row] for part in self.states)

    def moved(self, x: Tensor, state: State, own: Tensor) -> Tensor:
        """The part's numbers after a step from these, with the rest of the state as it was."""
        row = flat(state)
        row = torch.cat((row[:, : self.part.start], own, row[:, self.part.stop :]), 1)
        new = flat(self.recurrence.step(x, unflat(row, state))[1])[:, self.part]
        return new + 0 * own.sum(1, keepdim=True)  # a step that forgets its state has the derivative 0


def chosen_lags(most: int) -> list[int]:
    """Lags 1, 2, 3, 4, 6, 8, 11, 16, .., about two an octave, and the last."""
    steps = {round(2 ** (i / 2)) for i in range(2 * max(most, 1).bit_length())}
    return sorted({s for s in steps if s < most} | {most}) if most else []


def by_lag(
    recurrence: Recurrence,
    x: Float[Tensor, "batch time n"],
    lengths: Lengths | None = None,
    state: State | None = None,
    part: slice | None = None,
    block: int = 0,
) -> ByLag:
    r"""The spectral norms of dz_T / dz_{T-k}, z the whole state, or a part of it with the rest held.

    The derivative is the product of those of the steps between,

    .. math:: \frac{dz_T}{dz_{T-k}} = J_T J_{T-1} \cdots J_{T-k+1}, \qquad
        J_t = \frac{\partial F(z_{t-1}, x_t)}{\partial z_{t-1}}

    taken by autograd through ``step`` at the states that the sequence leads to. Lags are about two an octave.
    A derivative by a state of up to :data:`EXACT` numbers is formed; a larger one meets a few vectors and
    their like alone, and the norm has an error.

    Args:
        recurrence: A causal one, in float64 and in evaluation mode.
        x: The sequences.
        lengths: Steps of each; None is all of them.
        state: z_0; None is the initial one.
        part: Which of the numbers of :func:`flat`; None is all.
        block: Where each step's derivative is 0 but for blocks of this size on its diagonal, the size: a
            large state then needs so many vectors, and there is no error. 0: no such form is known.

    Raises:
        ValueError: The recurrence is not causal, or the lengths disagree with x.

    Reference:
        Pascanu, Mikolov and Bengio 2013, Section 2.1; Golub and Van Loan 2013, Section 10.4 (bidiagonal).
    """
    if not recurrence.causal:
        raise ValueError("a gradient by lag needs a causal recurrence: got one that reads later steps")
    if lengths is None:
        lengths = torch.full((len(x),), x.shape[1], device=x.device)
    check_lengths(lengths, x)
    start = recurrence.initial(x) if state is None else state
    states = tuple(torch.stack(parts) for parts in zip(*trajectory(recurrence, x, start), strict=True))
    size = flat(start).shape[1]
    walk = _Backwards(recurrence, x.detach(), states, lengths, part or slice(0, size))
    numbers = walk.part.stop - walk.part.start
    longest = int(lengths.max()) if len(lengths) else 0
    if numbers <= EXACT or block:
        rows = block if block and numbers > EXACT else numbers
        work = max(len(x), 1) * numbers * rows**2 or 1
        lags = chosen_lags(min(longest, max(FEWEST, int(WORK / work))))
        norms = _formed(walk, lags, rows)
        errors = torch.zeros_like(norms)
    else:
        lags = chosen_lags(min(longest, SEEN))
        norms, errors = _iterated(walk, lags)
    here = torch.tensor(lags, device=x.device) <= lengths[:, None]
    return ByLag(
        torch.tensor(lags), norms.where(here, math.nan).detach().cpu(), errors.where(here, math.nan).cpu()
    )


def spectral(P: Float[Tensor, "batch m m"]) -> Float[Tensor, " batch"]:
    """The spectral norm of each matrix; inf where an entry is not finite, for which there is no SVD."""
    finite = P.isfinite().all(-1).all(-1)
    norm = torch.linalg.matrix_norm(P.where(finite[:, None, None], 0.0), 2)
    return norm.where(finite, math.inf)


def _formed(walk: _Backwards, lags: list[int], size: int) -> Tensor:
    """The norms by all rows of the derivative, each sent back a step after the other.

    Of one that is 0 but for blocks of this size, the rows of all blocks are sent back as one.
    """
    numbers, batch = walk.part.stop - walk.part.start, len(walk.x)
    P = torch.eye(size, dtype=walk.x.dtype, device=walk.x.device)
    P = P.repeat(1, numbers // size).expand(batch, -1, -1)
    norms = []
    for s in range(1, max(lags, default=0) + 1):
        x, state = walk.at(s)
        many = tuple(part.repeat_interleave(size, 0) for part in state)
        own = flat(many)[:, walk.part].detach().requires_grad_()
        with torch.enable_grad():
            new = walk.moved(x.repeat_interleave(size, 0), many, own)
            (rows,) = torch.autograd.grad(new, own, P.reshape(-1, numbers), materialize_grads=True)
        P = rows.reshape(batch, size, numbers)
        if s in lags:
            blocks = P.unflatten(2, (-1, size)).transpose(1, 2)
            norms.append(spectral(blocks.flatten(0, 1)).reshape(batch, -1).amax(1))
    return torch.stack(norms, 1) if norms else walk.x.new_zeros(batch, 0)


def _iterated(walk: _Backwards, lags: list[int]) -> tuple[Tensor, Tensor]:
    """The norms by products of each derivative and its transpose with vectors, and their errors."""
    found = [_bidiagonal(walk, lag) for lag in lags]
    if not found:
        return walk.x.new_zeros(len(walk.x), 0), walk.x.new_zeros(len(walk.x), 0)
    return torch.stack([norm for norm, _ in found], 1), torch.stack([error for _, error in found], 1)


def _bidiagonal(walk: _Backwards, lag: int) -> tuple[Tensor, Tensor]:
    """The largest singular value that Golub and Kahan's process sees of each derivative, and its error.

    With J V = U B and J^T U = V B^T + beta v e^T, B's largest singular value sigma and its left vector p give
    ||J^T u - sigma w|| = beta |p_k|, u = U p: sigma is exact for a matrix so near, relative to sigma.
    """
    first = flat(walk.at(lag)[1])[:, walk.part].detach().requires_grad_()
    v = torch.randn(first.shape, generator=Generator().manual_seed(0), dtype=first.dtype).to(first.device)
    with torch.enable_grad():
        own = first
        for s in range(lag, 0, -1):
            own = walk.moved(*walk.at(s), own)
        dual = torch.zeros_like(own).requires_grad_()
        # the derivative of u -> J^T u is J^T's transpose, by which J v costs no forward mode
        (back,) = torch.autograd.grad(own, first, dual, create_graph=True, materialize_grads=True)
    _, v = _apart(v, [])
    lefts, rights, B = list[Tensor](), [v], first.new_zeros(len(first), ROUNDS, ROUNDS)
    for k in range(min(ROUNDS, first.shape[1])):
        (u,) = torch.autograd.grad(back, dual, rights[k], retain_graph=True, materialize_grads=True)
        B[:, k, k], u = _apart(u, lefts)
        lefts.append(u)
        (w,) = torch.autograd.grad(own, first, u, retain_graph=True, materialize_grads=True)
        beta, w = _apart(w, rights)
        P, values, _ = torch.linalg.svd(B[:, : k + 1, : k + 1].nan_to_num(0.0, 0.0, 0.0))
        sigma = values[:, 0].where(B.isfinite().all(-1).all(-1) & beta.isfinite(), math.inf)
        error = beta * P[:, k, 0].abs() / sigma.where(sigma > 0, 1.0)
        if bool((error <= CLOSE).all()):
            break
        rights.append(w)
        B[:, k, min(k + 1, ROUNDS - 1)] += beta if k + 1 < ROUNDS else 0.0
    return sigma, error.nan_to_num(0.0)


def _apart(x: Tensor, others: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Length and direction of what of each row is orthogonal to orthonormal rows; 0 where nothing is."""
    for _ in range(2):  # once leaves a rounding error that grows
        for other in others:
            x = x - (x * other).sum(1, keepdim=True) * other
    largest = x.abs().amax(1)
    x = x / largest.where(largest > 0, 1.0)[:, None]  # the square of a small number is 0
    size = x.norm(dim=1)
    return largest * size, x / size.where(size > 0, 1.0)[:, None]


def rates(found: ByLag) -> Float[Tensor, "batch lags"]:
    r"""The factor a step, ||dz_T / dz_{T-k}||^{1/k}, of each example at each lag."""
    return found.norms ** (1 / found.lags.double())
