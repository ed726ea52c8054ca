"""The dynamics of threshold units that read each other (Hopfield 1982): one at a time, or all at once.

A state x of -1 and +1 moves by x_i <- sgn(h_i), h = W x - b, with sgn(0) = +1 or, as an option, x_i kept.
Updated one at a time under a symmetric W of zero diagonal, the energy never rises and the state comes to
rest; updated all at once, it comes to rest or alternates between two states (Goles and Olivos 1980).
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, no_type_check

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Order = Literal["fixed", "random"]
Ties = Literal["up", "keep"]

BLOCK = 128
"""Units whose fields one matrix product gives; what the flips of earlier ones add is found by iteration."""


class Recall(NamedTuple):
    """Where probes came to rest.

    Args:
        state: The state of each probe.
        sweeps: Sweeps in which it moved.
        settled: Whether it came to rest.
        start: The energy -x . W x / 2 + b . x where it started, for a symmetric W of zero diagonal; float64.
        energy: The energy where it came to rest; float64.
    """

    state: Float[Tensor, "probes units"]
    sweeps: Int[Tensor, " probes"]
    settled: Bool[Tensor, " probes"]
    start: Float[Tensor, " probes"]
    energy: Float[Tensor, " probes"]


def sweep_orders(units: int, order: Order, sweeps: int, seed: int = 0) -> Int[Tensor, "sweeps units"]:
    """The order of the units in each sweep: 0, 1, ..., or a permutation drawn for each sweep.

    Args:
        units: Number of units.
        order: fixed or random.
        sweeps: Number of sweeps; a fixed order is given once.
        seed: Seed of the permutations.
    """
    if order == "fixed":
        return torch.arange(units)[None]
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(units, generator=generator) for _ in range(sweeps)])


@no_type_check  # torch.export compiles it with all that it calls, which checks of shapes would stop
def threshold_signs(h: Tensor, old: Tensor, ties: Ties) -> Tensor:
    """sgn(h), where a field of 0 gives +1 (``up``) or the old state (``keep``)."""
    up = h >= 0 if ties == "up" else (h > 0) | ((h == 0) & (old > 0))
    return torch.where(up, 1.0, -1.0).to(old.dtype)


def asynchronous(
    W: Float[Tensor, "units units"],
    b: Float[Tensor, " units"],
    x: Float[Tensor, "probes units"],
    *,
    orders: Int[Tensor, "sweeps units"] | None = None,
    ties: Ties = "up",
    max_sweeps: int = 100,
) -> Recall:
    """Update one unit at a time, sweep by sweep, all probes at once, until no unit of a probe moves.

    The fields are kept, and corrected by one product a block of units for what flipped in it. Probes in which
    all units of the block are aligned with their fields are done with it, for none flips; in the others the
    flips are found by a triangular iteration. The energies follow from the flips. The result is that of the
    plain loop; with W and b of whole numbers and fields below 2^24 (float64: 2^53) it is exact, ties
    included.

    Args:
        W: Weights; any, but only a symmetric W of zero diagonal must come to rest.
        b: Thresholds.
        x: States of -1 and +1, where the probes start.
        orders: The order of each sweep, taken again from the first when they are used up; 0, 1, ... if not
            given.
        ties: What a field of 0 does.
        max_sweeps: Sweeps after which a probe is given up.
    """
    X, H = x.clone(), x @ W.T - b
    start = ((b - H) * x).sum(1, dtype=torch.float64) / 2
    fallen, sweeps = torch.zeros_like(start), torch.zeros(len(x), dtype=torch.long, device=x.device)
    moved = sweeps == 0
    for k in range(max_sweeps):
        if orders is None:
            moved = _sweep(W, X, H, fallen, ties)
        else:
            order = orders[k % len(orders)]
            states, fields = X[:, order], H[:, order]
            moved = _sweep(W[order][:, order], states, fields, fallen, ties)
            X[:, order], H[:, order] = states, fields
        if not bool(moved.any()):
            break
        sweeps += moved
    return Recall(X, sweeps, ~moved, start, start - fallen)


def _sweep(W: Tensor, X: Tensor, H: Tensor, fallen: Tensor, ties: Ties) -> Bool[Tensor, " probes"]:
    """One sweep, moving states, fields and the fall of the energy in place; which probes moved."""
    moved = torch.zeros(len(X), dtype=torch.bool, device=X.device)
    for first in range(0, len(W), BLOCK):
        block = slice(first, first + BLOCK)
        fields, old = H[:, block], X[:, block]
        restless = (threshold_signs(fields, old, ties) != old).any(1).nonzero().squeeze(1)
        if len(restless) == 0:
            continue
        old, into = old[restless], W[:, block]
        new, met = _in_turn(fields[restless], old, into[block].tril(-1), ties)
        X[restless, block] = new
        H.index_add_(0, restless, (new - old) @ into.T)
        fallen.index_add_(0, restless, ((new - old) * met).sum(1, dtype=torch.float64))
        moved[restless] = True
    return moved


def _in_turn(fields: Tensor, old: Tensor, lower: Tensor, ties: Ties) -> tuple[Tensor, Tensor]:
    """The states of a block's units updated one after the other, and the field that each unit met.

    They are the one solution of y = sgn(h + L (y - x)), L strictly lower triangular: the first unit does
    not depend on y, the second on the first alone, and so on. Each pass of the iteration therefore settles
    at least one more unit, and one that changes nothing has found it.
    """
    new = threshold_signs(fields, old, ties)
    while True:
        met = torch.addmm(fields, new - old, lower.T)
        again = threshold_signs(met, old, ties)
        if torch.equal(again, new):
            return new, met
        new = again


def synchronous(
    W: Float[Tensor, "units units"],
    b: Float[Tensor, " units"],
    x: Float[Tensor, "probes units"],
    *,
    ties: Ties = "up",
    max_steps: int = 100,
) -> tuple[Float[Tensor, "probes units"], Int[Tensor, " probes"]]:
    """Update all units at once, until every probe is at rest or alternates between two states.

    Args:
        W: Weights.
        b: Thresholds.
        x: States of -1 and +1, where the probes start.
        ties: What a field of 0 does.
        max_steps: Pairs of steps after which a probe is given up.

    Returns:
        The state of each probe after an even number of steps, and its period: 1, 2, or 0 where it was
        given up.
    """

    def once(x: Tensor) -> Tensor:
        return threshold_signs(x @ W.T - b, x, ties)

    for _ in range(max_steps):
        half = once(x)
        again = once(half)
        if torch.equal(again, x):
            break
        x = again
    half = once(x)
    back, rest = (once(half) == x).all(1), (half == x).all(1)
    return x, torch.where(rest, 1, torch.where(back, 2, 0))


def trajectory(
    W: Float[Tensor, "units units"],
    b: Float[Tensor, " units"],
    x: Float[Tensor, " units"],
    *,
    orders: Int[Tensor, "sweeps units"] | None = None,
    ties: Ties = "up",
    max_sweeps: int = 100,
) -> Float[Tensor, "times units"]:
    """The state of one probe at the start and after every single update, by the plain loop.

    The last sweep moves nothing, where the probe came to rest within ``max_sweeps``.
    """
    orders = sweep_orders(len(W), "fixed", 1) if orders is None else orders
    states, x = [x.clone()], x.clone()
    for k in range(max_sweeps):
        before = x.clone()
        for i in orders[k % len(orders)].tolist():
            x[i] = threshold_signs(W[i] @ x - b[i], x[i], ties)
            states.append(x.clone())
        if torch.equal(before, x):
            break
    return torch.stack(states)


@no_type_check  # torch.export compiles it with all that it calls, which checks of shapes would stop
def asynchronous_program(
    field: Callable[[Tensor, Tensor], Tensor],
    x: Float[Tensor, "probes units"],
    orders: Int[Tensor, "sweeps units"],
    ties: Ties,
    max_sweeps: int,
) -> Float[Tensor, "probes units"]:
    """Asynchronous updating as one loop that ``torch.export`` and ONNX can write down.

    Args:
        field: ``(units, states with a row a unit) -> their fields``, one row a unit.
        x: States of -1 and +1.
        orders: The order of each sweep, taken again from the first when they are used up.
        ties: What a field of 0 does.
        max_sweeps: Sweeps after which it stops; it cannot tell that it did.
    """
    from torch._higher_order_ops.while_loop import while_loop

    queue, units = orders.flatten(), orders.shape[1]

    def goes_on(step: Tensor, quiet: Tensor, X: Tensor) -> Tensor:
        # after as many updates without a flip as there are units in two sweeps, each has been looked at
        return (quiet < 2 * units) & (step < max_sweeps * units)

    def update(step: Tensor, quiet: Tensor, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        unit = queue.index_select(0, (step % len(queue)).reshape(1))
        old = X.index_select(0, unit)
        new = threshold_signs(field(unit, X), old, ties)
        quiet = torch.where((new != old).any(), torch.zeros_like(quiet), quiet + 1)
        return step + 1, quiet, X.index_copy(0, unit, new)

    zero = torch.zeros((), dtype=torch.long)
    final: Tensor = while_loop(goes_on, update, (zero, zero.clone(), x.T.contiguous()))[2]
    return final.T


@no_type_check  # torch.export compiles it with all that it calls, which checks of shapes would stop
def synchronous_program(
    W: Float[Tensor, "units units"],
    b: Float[Tensor, " units"],
    x: Float[Tensor, "probes units"],
    ties: Ties,
    max_steps: int,
) -> Float[Tensor, "probes units"]:
    """:func:`synchronous` as one loop that ``torch.export`` and ONNX can write down."""
    from torch._higher_order_ops.while_loop import while_loop

    across = W.T.contiguous()  # inside, each transposition would be an alias of W, which the loop refuses

    def goes_on(step: Tensor, moved: Tensor, x: Tensor) -> Tensor:
        return moved & (step < max_steps)

    def update(step: Tensor, moved: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        half = threshold_signs(x @ across - b, x, ties)
        again = threshold_signs(half @ across - b, half, ties)
        return step + 1, (again != x).any(), again

    start = (torch.zeros((), dtype=torch.long), torch.ones((), dtype=torch.bool), x.clone())
    final: Tensor = while_loop(goes_on, update, start)[2]
    return final
