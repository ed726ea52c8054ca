"""Hopfield's network (1982): threshold units with symmetric weights that remember patterns of -1 and +1."""

import math
from collections.abc import Callable
from typing import Literal, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.memory.associative_memory import (
    Inputs,
    binarized,
    check_signs,
    chosen_cut,
    keep,
    room_for,
    signs,
)
from margin.classic.memory.hopfield_dynamics import (
    Order,
    Recall,
    Ties,
    asynchronous,
    asynchronous_program,
    sweep_orders,
    synchronous,
    synchronous_program,
)

EXACT = 2**24
"""Whole numbers below it are exact in float32."""


def local_field(
    W: Float[Tensor, "units units"], b: Float[Tensor, " units"], x: Float[Tensor, "*probes units"]
) -> Float[Tensor, "*probes units"]:
    """The fields h_i = sum_j w_ij x_j - b_i."""
    return x @ W.T - b


def energy(
    W: Float[Tensor, "units units"], b: Float[Tensor, " units"], x: Float[Tensor, "*probes units"]
) -> Float[Tensor, " *probes"]:
    r"""The energy of a state, whose difference between x_i = +1 and x_i = -1 is -2 h_i.

    .. math:: H(x) = -\tfrac12 x^\top W x + b^\top x

    Args:
        W: Symmetric weights of zero diagonal.
        b: Thresholds.
        x: States of -1 and +1.

    Raises:
        ValueError: W is not symmetric, has a diagonal, or is not finite; the message names the entry.

    Reference: Hopfield 1982, Section "Studies of the collective behaviors of the model", without thresholds.
    """
    check_weights(W)
    return -((x @ W) * x).sum(-1) / 2 + x @ b


def hebbian(patterns: Float[Tensor, "patterns units"]) -> Float[Tensor, "units units"]:
    r"""The outer-product weights of patterns, of zero diagonal.

    .. math:: W = \tfrac1n (P^\top P - s I), \quad w_{ij} = \tfrac1n \sum_t x_{ti} x_{tj}, \quad w_{ii} = 0

    The identity is subtracted once a pattern: taking it away once, as many notes print it, leaves
    (s - 1) / n on the diagonal.

    Args:
        patterns: s patterns of -1 and +1, one a row, of n units.

    Raises:
        ValueError: An entry is neither -1 nor +1; the message names row and unit.

    Reference: Hopfield 1982, Section "The information storage algorithm".
    """
    check_signs(patterns)
    return correlations(patterns) / patterns.shape[1]


def correlations(patterns: Float[Tensor, "patterns units"]) -> Float[Tensor, "units units"]:
    """The whole numbers n w_ij of :func:`hebbian`: agreements less disagreements of units i and j."""
    return (patterns.T @ patterns).fill_diagonal_(0)


def flaw(W: Float[Tensor, "units units"]) -> str:
    """What keeps weights from having an energy that falls, naming the entry; "" where nothing does."""
    if not bool(W.isfinite().all()):
        i, j = (~W.isfinite()).nonzero()[0].tolist()
        return f"w[{i}, {j}] = {W[i, j].item()} is not finite"
    if bool((W != W.T).any()):
        i, j = (W != W.T).nonzero()[0].tolist()
        return f"w[{i}, {j}] = {W[i, j].item():g}, but w[{j}, {i}] = {W[j, i].item():g}"
    if bool((W.diagonal() != 0).any()):
        i = int(W.diagonal().nonzero()[0])
        return f"w[{i}, {i}] = {W[i, i].item():g}, not 0"
    return ""


def check_weights(W: Float[Tensor, "units units"]) -> None:
    """Refuse weights that have no energy.

    Raises:
        ValueError: W is not symmetric, has a diagonal, or is not finite; the message names the entry.
    """
    if found := flaw(W):
        raise ValueError(f"weights must be finite, symmetric and of zero diagonal: got {found}")


class Hopfield(nn.Module):
    """Hopfield's network: the state of -1 and +1 in which a probe comes to rest.

    The weights are kept as whole numbers, n times :func:`hebbian`, and so are the thresholds: the fields
    are exact, ties included. They are computed in float32 while (patterns) x (units) is below 2^24, else in
    float64. Storing one by one or at once gives the same network.

    Args:
        in_features: Number n of units; an input of more axes is flattened.
        num_examples: Number of training examples.
        num_patterns: How many of them are stored, the first. If not given n / (4 ln n), of which all are
            recalled with high probability if they are random; more may be stored.
        inputs: real: an input becomes +1 where it reaches the threshold. signs: patterns are -1 and +1
            as such, anything else is refused.
        threshold: The threshold, in the user's units; if not given 0 in the model's units, the mean of the
            training part where inputs are standardized.
        bias: none, or hebbian: a threshold b_i = -(1/n) sum_t x_ti, the weight from a unit that is always +1.
        update: asynchronous, one unit at a time, or synchronous, all at once.
        order: Of asynchronous updates: fixed, or a random permutation each sweep, of one seed.
        ties: What a field of 0 does: up makes the unit +1, keep leaves it.
        max_sweeps: Sweeps within which asynchronous updating must come to rest.

    Raises:
        ValueError: An option is out of range, a pattern is not of -1 and +1, a probe does not rest.

    Reference:
        Hopfield 1982, Section "The model system"; McEliece, Posner, Rodemich and
        Venkatesh 1987 (the default of ``num_patterns``).
    """

    patterns: Tensor
    stored: Tensor
    threshold: Tensor
    correlation: Tensor
    drive: Tensor

    def __init__(
        self,
        in_features: int,
        num_examples: int,
        *,
        num_patterns: int | None = None,
        inputs: Inputs = "real",
        threshold: float | None = None,
        bias: Literal["none", "hebbian"] = "none",
        update: Literal["asynchronous", "synchronous"] = "asynchronous",
        order: Order = "fixed",
        ties: Ties = "up",
        max_sweeps: int = 100,
    ) -> None:
        super().__init__()
        n = in_features
        if max_sweeps < 1:
            raise ValueError(f"max_sweeps must be at least 1: got {max_sweeps}")
        if num_patterns is None:
            num_patterns = max(1, int(n / (4 * math.log(n)))) if n > 1 else 1
        self.inputs, self.cut, self.bias = inputs, chosen_cut(inputs, threshold), bias
        self.update, self.order, self.ties, self.max_sweeps = update, order, ties, max_sweeps
        self.register_buffer("patterns", torch.zeros(room_for(num_patterns, num_examples), n))
        self.register_buffer("stored", torch.zeros((), dtype=torch.long))
        self.register_buffer("threshold", torch.zeros(n))
        self.register_buffer("correlation", torch.zeros(n, n))
        self.register_buffer("drive", torch.zeros(n))

    @property
    def weight(self) -> Float[Tensor, "units units"]:
        """The weights W."""
        return self.correlation / len(self.correlation)

    @property
    def thresholds(self) -> Float[Tensor, " units"]:
        """The thresholds b of the units."""
        return self.drive / len(self.drive)

    def read(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch units"]:
        """Inputs in the model's units as states of -1 and +1."""
        return signs(x.flatten(1), self.threshold.to(x.dtype))

    def store(self, x: Float[Tensor, " batch *features"], preprocess: Callable[[Tensor], Tensor]) -> None:
        """Add patterns, given in the user's units."""
        states = binarized(self, x, preprocess)
        self.correlation += correlations(states)
        if self.bias == "hebbian":
            self.drive -= states.sum(0)
        keep(self, states)

    def recall(self, x: Float[Tensor, "probes units"]) -> Recall:
        """Where states of -1 and +1 come to rest by asynchronous updating; energies are n H."""
        C, d, x = self._exact(x)
        orders = None if self.order == "fixed" else self.orders()
        return asynchronous(C, d, x, orders=orders, ties=self.ties, max_sweeps=self.max_sweeps)

    def orders(self) -> Tensor:
        """The order of the units in each sweep."""
        return sweep_orders(len(self.drive), self.order, self.max_sweeps).to(self.drive.device)

    def retrieve(self, x: Float[Tensor, "probes units"]) -> Float[Tensor, "probes units"]:
        """The states in which states of -1 and +1 come to rest; of two that alternate, the first.

        Raises:
            ValueError: A probe does not come to rest.
        """
        if self.update == "synchronous":
            C, d, states = self._exact(x)
            final, period = synchronous(C, d, states, ties=self.ties, max_steps=self.max_sweeps)
            moving = int((period == 0).sum())
        else:
            found = self.recall(x)
            final, moving = found.state, int((~found.settled).sum())
        if moving:
            raise ValueError(
                f"a probe must come to rest within max_sweeps={self.max_sweeps} sweeps: {moving} of {len(x)} "
                "do not; raise max_sweeps"
            )
        return final.to(x.dtype)

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch units"]:
        """The state of -1 and +1 in which each input comes to rest."""
        states = self.read(x)
        return self._program(states) if torch.compiler.is_exporting() else self.retrieve(states)

    def _exact(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        exact = self.patterns.numel() < EXACT
        dtype = self.correlation.dtype if exact else torch.float64
        return self.correlation.to(dtype), self.drive.to(dtype), x.to(dtype)

    @no_type_check  # as asynchronous_program
    def _program(self, x: Tensor) -> Tensor:
        C, d, states = self._exact(x)

        def field(unit: Tensor, X: Tensor) -> Tensor:
            return C.index_select(0, unit) @ X - d.index_select(0, unit)[:, None]

        if self.update == "synchronous":
            return synchronous_program(C, d, states, self.ties, self.max_sweeps).to(x.dtype)
        return asynchronous_program(field, states, self.orders(), self.ties, self.max_sweeps).to(x.dtype)
