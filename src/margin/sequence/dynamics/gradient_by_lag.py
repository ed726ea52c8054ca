"""The gradient by lag (Bengio, Simard and Frasconi 1994): how far a state still moves with an earlier one."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.nn.recurrence import Lengths, Recurrence, State, check_lengths

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
