"""Dense associative memories (Krotov and Hopfield 2016): an energy that is steep in the overlaps.

The quadratic function gives Hopfield's network; a steeper one separates more patterns: of the order of
n^(k-1) for power k, exponentially many for the exponential (Demircigil et al. 2017).

The continuous Hopfield network (Ramsauer et al. 2021): its update is attention to stored patterns.
"""

import math
from collections.abc import Callable
from typing import Literal, no_type_check

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.classic.memory.associative_memory import (
    Inputs,
    binarized,
    check_finite,
    chosen_cut,
    keep,
    room_for,
    signs,
)
from margin.classic.memory.hopfield_dynamics import Ties, asynchronous_program, threshold_signs

Separation = Literal["power", "rectified", "exponential"]
Gains = Callable[[Tensor], tuple[Tensor, Tensor]]

BLOCK = 64
"""Units whose fields one matrix product gives."""


def dense_energy(
    patterns: Float[Tensor, "patterns units"],
    x: Float[Tensor, "probes units"],
    *,
    separation: Separation = "power",
    order: int = 2,
) -> Float[Tensor, " probes"]:
    r"""The energy of states, in float64.

    .. math:: E(x) = -\sum_t F(x_t \cdot x), \quad F(u) = u^k,\ \max(u, 0)^k \text{ or } e^u

    For the exponential -log sum_t exp(x_t . x) is returned, which orders states alike and does not overflow.

    Args:
        patterns: Stored patterns of -1 and +1, one a row.
        x: States of -1 and +1.
        separation: F: power, rectified (power) or exponential.
        order: k; without effect on the exponential.

    Reference: Krotov and Hopfield 2016, Equation 1; Demircigil et al. 2017, Section 2.
    """
    u = x.double() @ patterns.double().T
    if separation == "exponential":
        return -u.logsumexp(1)
    return -(u.clamp(min=0) if separation == "rectified" else u).pow(order).sum(1)


@no_type_check  # as asynchronous_program
def dense_gains(
    overlaps: Float[Tensor, "probes patterns"], *, separation: Separation = "power", order: int = 2
) -> tuple[Float[Tensor, "probes patterns"], Float[Tensor, " probes 1"]]:
    r"""What all fields are made of: differences g_t = F(u_t + 2) - F(u_t - 2) and a sum c of second ones.

    If unit i agrees with pattern t, flipping it makes u_t into u_t - 2, else into u_t + 2. So the energy of
    the state with -1 at unit i less that with +1 there is

    .. math:: h_i = \tfrac12 \Bigl(\sum_t x_{ti}\, g_t - x_i\, c\Bigr), \quad
              c = \sum_t F(u_t + 2) - 2 F(u_t) + F(u_t - 2)

    and one product gives the fields of all units. For the exponential both are divided by exp(max_t u_t),
    which does not change the sign of h and does not overflow.

    Args:
        overlaps: u_t = x_t . x of each probe; float64.
        separation: F.
        order: k; without effect on the exponential.

    Returns:
        g / 2 and c / 2.
    """
    if separation == "exponential":
        scaled = (overlaps - overlaps.amax(1, keepdim=True)).exp()
        return scaled * math.sinh(2), scaled.sum(1, keepdim=True) * (math.cosh(2) - 1)
    low, mid, high = overlaps - 2, overlaps, overlaps + 2
    if separation == "rectified":
        low, mid, high = low.clamp(min=0), mid.clamp(min=0), high.clamp(min=0)
    low, mid, high = low.pow(order), mid.pow(order), high.pow(order)
    return (high - low) / 2, (high - 2 * mid + low).sum(1, keepdim=True) / 2


def dense_field(
    patterns: Float[Tensor, "patterns units"],
    x: Float[Tensor, "probes units"],
    *,
    separation: Separation = "power",
    order: int = 2,
) -> Float[Tensor, "probes units"]:
    """The fields of :func:`dense_gains`: each unit's energy at -1 less that at +1, of states of -1 and +1."""
    P, X = patterns.double(), x.double()
    g, c = dense_gains(X @ P.T, separation=separation, order=order)
    return g @ P - c * X


def dense_recall(
    patterns: Float[Tensor, "patterns units"],
    x: Float[Tensor, "probes units"],
    gains: Gains,
    *,
    ties: Ties = "up",
    max_sweeps: int = 100,
) -> tuple[Float[Tensor, "probes units"], Int[Tensor, " probes"]]:
    """Give one unit after the other the value of lower energy, all probes at once, until none moves.

    Args:
        patterns: Stored patterns of -1 and +1, one a row.
        x: States of -1 and +1, where the probes start.
        gains: ``overlaps -> (g, c)``, as :func:`dense_gains`.
        ties: What a field of 0 does: up makes the unit +1, keep leaves it.
        max_sweeps: Sweeps after which a probe is given up.

    Returns:
        Where the probes came to rest, and the sweeps in which each moved, ``max_sweeps`` where given up.
    """
    P, X = patterns.double(), x.double()
    U = X @ P.T
    sweeps = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for _ in range(max_sweeps):
        moved = _sweep(P, X, U, gains, ties)
        if not bool(moved.any()):
            break
        sweeps += moved
    return X.to(x.dtype), sweeps


def _sweep(P: Tensor, X: Tensor, U: Tensor, gains: Gains, ties: Ties) -> Bool[Tensor, " probes"]:
    """One sweep, moving states and overlaps in place; which probes moved.

    A block's fields come from one product. In a probe the first unit that its field contradicts is the
    first that flips: it does, the fields are computed anew, and the units after it are looked at.
    """
    moved = torch.zeros(len(X), dtype=torch.bool, device=X.device)
    for first in range(0, X.shape[1], BLOCK):
        block = slice(first, first + BLOCK)
        ours = P[:, block]
        probes = torch.arange(len(X), device=X.device)
        done = torch.full_like(probes, -1)[:, None]  # the last unit of the block that has been looked at
        position = torch.arange(ours.shape[1], device=X.device)
        while len(probes):
            g, c = gains(U[probes])
            old = X[probes, block]
            wrong = (threshold_signs(g @ ours - c * old, old, ties) != old) & (position > done)
            flips = wrong.any(1)
            probes, unit = probes[flips], wrong[flips].to(torch.uint8).argmax(1)
            new = -X[probes, first + unit]
            X[probes, first + unit] = new
            U[probes] += 2 * new[:, None] * ours.T[unit]
            moved[probes] = True
            done = unit[:, None]
    return moved


class DenseAssociativeMemory(nn.Module):
    """A dense associative memory: the state of -1 and +1 in which a probe comes to rest.

    Each unit in turn takes the value of lower energy (:func:`dense_energy`), so the energy never rises.
    Energies are computed in float64.

    Args:
        in_features: Number n of units; an input of more axes is flattened.
        num_examples: Number of training examples.
        num_patterns: How many of them are stored at most, the first.
        separation: F: power u^k, rectified max(u, 0)^k, or exponential e^u.
        order: k, at least 2; without effect on the exponential.
        inputs: real: an input becomes +1 where it reaches the threshold. signs: patterns are -1 and +1
            as such, anything else is refused.
        threshold: The threshold, in the user's units; if not given 0 in the model's units, the mean of the
            training part where inputs are standardized.
        ties: What equal energies do: up makes the unit +1, keep leaves it.
        max_sweeps: Sweeps within which a probe must come to rest.

    Raises:
        ValueError: An option is out of range, or (n + 1)^k is no float64.

    Reference:
        Krotov and Hopfield 2016, Equations 1 and 3; Demircigil et al. 2017, Section 2.
    """

    patterns: Tensor
    stored: Tensor
    threshold: Tensor

    def __init__(
        self,
        in_features: int,
        num_examples: int,
        *,
        num_patterns: int = 100,
        separation: Separation = "exponential",
        order: int = 3,
        inputs: Inputs = "real",
        threshold: float | None = None,
        ties: Ties = "up",
        max_sweeps: int = 100,
    ) -> None:
        super().__init__()
        if order < 2 or max_sweeps < 1:
            raise ValueError(f"order >= 2 and max_sweeps >= 1: got order={order}, max_sweeps={max_sweeps}")
        if separation != "exponential" and (in_features + 1) ** order * num_examples > 1e300:
            raise ValueError(
                f"(n + 1)^order must be a float64 number: got n={in_features}, order={order}; "
                "take separation='exponential'"
            )
        self.separation, self.order, self.ties, self.max_sweeps = separation, order, ties, max_sweeps
        self.inputs, self.cut = inputs, chosen_cut(inputs, threshold)
        self.register_buffer("patterns", torch.zeros(room_for(num_patterns, num_examples), in_features))
        self.register_buffer("stored", torch.zeros((), dtype=torch.long))
        self.register_buffer("threshold", torch.zeros(in_features))

    def read(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch units"]:
        """Inputs in the model's units as states of -1 and +1."""
        return signs(x.flatten(1), self.threshold.to(x.dtype))

    def store(self, x: Float[Tensor, " batch *features"], preprocess: Callable[[Tensor], Tensor]) -> None:
        """Add patterns, given in the user's units."""
        keep(self, binarized(self, x, preprocess))

    @no_type_check  # as asynchronous_program
    def gains(self, overlaps: Tensor) -> tuple[Tensor, Tensor]:
        """What the fields are made of, as :func:`dense_gains`."""
        return dense_gains(overlaps, separation=self.separation, order=self.order)

    def retrieve(self, x: Float[Tensor, "probes units"]) -> Float[Tensor, "probes units"]:
        """The states in which states of -1 and +1 come to rest.

        Raises:
            ValueError: A probe does not come to rest.
        """
        final, sweeps = self._recall(x, self.max_sweeps)
        moving = int((sweeps == self.max_sweeps).sum())
        if moving:
            raise ValueError(
                f"a probe must come to rest within max_sweeps={self.max_sweeps} sweeps: {moving} of {len(x)} "
                "do not; raise max_sweeps"
            )
        return final

    def sweep(self, x: Float[Tensor, "probes units"]) -> Float[Tensor, "probes units"]:
        """The states after each unit has been updated once."""
        return self._recall(x, 1)[0]

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch units"]:
        """The state of -1 and +1 in which each input comes to rest."""
        states = self.read(x)
        return self._program(states) if torch.compiler.is_exporting() else self.retrieve(states)

    def _recall(self, x: Tensor, max_sweeps: int) -> tuple[Tensor, Tensor]:
        patterns = self.patterns[: int(self.stored)]
        if len(patterns) == 0:
            return x, torch.zeros(len(x), dtype=torch.long, device=x.device)  # all energies are equal
        return dense_recall(patterns, x, self.gains, ties=self.ties, max_sweeps=max_sweeps)

    @no_type_check  # as asynchronous_program
    def _program(self, x: Tensor) -> Tensor:
        P = self.patterns.double()
        held = torch.arange(len(P)) < self.stored

        def field(unit: Tensor, X: Tensor) -> Tensor:
            overlaps = (P @ X).T
            if self.separation == "exponential":
                overlaps = torch.where(held, overlaps, -torch.inf)
            g, c = self.gains(overlaps)
            if self.separation != "exponential":
                c = c - (~held).sum() * self.gains(overlaps.new_zeros(1, 1))[1]
            return (g @ P.index_select(1, unit)).T - c.T * X.index_select(0, unit)

        order = torch.arange(P.shape[1])[None]
        return asynchronous_program(field, x.double(), order, self.ties, self.max_sweeps).to(x.dtype)


def continuous_energy(
    patterns: Float[Tensor, "patterns units"], x: Float[Tensor, "probes units"], beta: float
) -> Float[Tensor, " probes"]:
    r"""The energy that the update never raises.

    .. math:: E(\xi) = -\tfrac1\beta \log \sum_t e^{\beta x_t \cdot \xi} + \tfrac12 |\xi|^2
              + \tfrac1\beta \log s + \tfrac12 M^2, \quad M = \max_t |x_t|

    The constants make it at least 0.

    Args:
        patterns: s stored patterns, one a row.
        x: States.
        beta: Inverse temperature, positive.

    Reference: Ramsauer et al. 2021, Equation 2.
    """
    lse = (beta * x @ patterns.T).logsumexp(1) / beta
    largest = patterns.square().sum(1).max()
    return -lse + x.square().sum(1) / 2 + math.log(len(patterns)) / beta + largest / 2


def continuous_update(
    patterns: Float[Tensor, "patterns units"], x: Float[Tensor, "probes units"], beta: float
) -> Float[Tensor, "probes units"]:
    r"""One update, the mean of the patterns under the softmax of their products with the state.

    .. math:: \xi' = X^\top \mathrm{softmax}(\beta X \xi)

    Args:
        patterns: Stored patterns X, one a row.
        x: States.
        beta: Inverse temperature.

    Reference: Ramsauer et al. 2021, Equation 3.
    """
    return (beta * x @ patterns.T).softmax(1) @ patterns


def separations(patterns: Float[Tensor, "patterns units"]) -> Float[Tensor, " patterns"]:
    """How far each pattern is from the others: Delta_t = x_t . x_t - max_{r != t} x_t . x_r.

    Reference: Ramsauer et al. 2021, Definition 2.
    """
    products = patterns @ patterns.T
    return products.diagonal() - products.clone().fill_diagonal_(-torch.inf).amax(1)


class ModernHopfield(nn.Module):
    """The continuous Hopfield network: a probe moves to a mean of the stored patterns, weighted by likeness.

    One update is attention of one head with the probe as query and the stored patterns as keys and values,
    none of them projected, so torch's kernel does it.

    Args:
        in_features: Number of units; an input of more axes is flattened.
        num_examples: Number of training examples.
        num_patterns: How many of them are stored at most, the first.
        beta: Inverse temperature, positive: a large one retrieves single patterns, a small one their mean.
        updates: How often the state is updated.

    Raises:
        ValueError: An option is out of range, or an input is not finite.

    Reference:
        Ramsauer et al. 2021, Equations 2 and 3.
    """

    patterns: Tensor
    stored: Tensor

    def __init__(
        self,
        in_features: int,
        num_examples: int,
        *,
        num_patterns: int = 1000,
        beta: float = 1.0,
        updates: int = 1,
    ) -> None:
        super().__init__()
        if not 0 < beta < math.inf or updates < 1:
            raise ValueError(f"beta must be positive, updates at least 1: got beta={beta}, updates={updates}")
        self.beta, self.updates = beta, updates
        self.register_buffer("patterns", torch.zeros(room_for(num_patterns, num_examples), in_features))
        self.register_buffer("stored", torch.zeros((), dtype=torch.long))

    def read(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch units"]:
        """Inputs in the model's units, flattened: the states are real."""
        x = x.flatten(1)
        if not torch.compiler.is_exporting():  # a program cannot raise
            check_finite(x)
        return x

    def store(self, x: Float[Tensor, " batch *features"], preprocess: Callable[[Tensor], Tensor]) -> None:
        """Add patterns, given in the user's units."""
        keep(self, self.read(preprocess(x)))

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch units"]:
        """The state after ``updates`` updates from each input, in the model's units."""
        state = self.read(x)
        held = torch.arange(len(self.patterns), device=x.device) < self.stored
        patterns = self.patterns.to(x.dtype)[None, None]
        for _ in range(self.updates):
            state = F.scaled_dot_product_attention(
                state[None, None], patterns, patterns, attn_mask=held[None, None, None], scale=self.beta
            )[0, 0]
        return state
