r"""Two networks of one architecture, their hidden units in the same order: weight matching (Git Re-Basin).

Ainsworth, Hayase and Srinivasa (2023): the order of hidden units is arbitrary, so two networks are compared
after permuting the units of one to bring its weights near the other's,

.. math:: \max_{P_1, \dots, P_{L-1}} \sum_l \langle W_l^A, P_l W_l^B P_{l-1}^\top \rangle.

One P_l at a time, the others held, is a linear assignment problem, solved exactly; the whole is a coordinate
ascent, which ends at a setting that no single layer can better, not always at the best.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.theory.signal.path import Stage
from margin.theory.signal.symmetry import Slot, hidden_layers, permuted, slots, unit_rows

SWEEPS = 100


class Matching(NamedTuple):
    """Permutations of the hidden units of the second model, and the distance of the weights.

    Args:
        perms: For each hidden layer: unit i is matched by unit ``perm[i]`` of the second model.
        before: Euclidean distance of all parameters as they are.
        after: The same with the second model's units permuted.
        settled: Whether no permutation of a single layer would bring them nearer.
    """

    perms: list[Int[Tensor, " units"]]
    before: float
    after: float
    settled: bool


def matching(
    model: nn.Module,
    other: nn.Module,
    *,
    inputs: tuple[Tensor, ...] | None = None,
    sweeps: int = SWEEPS,
) -> Matching:
    """The permutations of the hidden units of ``other`` that bring its weights near those of ``model``.

    Coordinate ascent is begun twice, from the order as it is and from a layer by layer match of incoming
    weights, which finds a planted permutation at once; the nearer end is taken. So the distance never grows.

    Args:
        model: A chain of layers as for :func:`margin.theory.signal.symmetry.permute_hidden`.
        other: Another of the same layers.
        inputs: A few inputs on which layers are followed; None: see
            :func:`margin.theory.signal.symmetry.hidden_layers`.
        sweeps: Passes over the layers at most, at least 1.

    Raises:
        NotAChainError: A model is no such chain; the message names the layer.
        ValueError: The models have different layers, a weight is not finite, or there is no pass.

    Reference: Ainsworth, Hayase and Srinivasa 2023, Algorithm 1.
    """
    if sweeps < 1:
        raise ValueError(f"sweeps must be at least 1: got {sweeps}")
    stages, others = hidden_layers(model, inputs), hidden_layers(other, inputs)
    _check_alike(stages, others)
    ours, theirs = _weights(model), _weights(other)
    before = _distance(ours, theirs)
    if not before < float("inf"):
        raise ValueError("weights must be finite to be compared: a parameter is not")
    layers = [[slot for slot in slots(stages, i) if slot.name in ours] for i in range(len(stages) - 1)]
    units = [stage.units for stage in stages[:-1]]
    ends = []
    for greedy in (False, True):
        ascent = Ascent(layers, units, ours, dict(theirs))
        if greedy:
            ascent.sweep(lambda slot: slot.axis == 0)
        settled = any(not ascent.sweep(lambda slot: True) for _ in range(sweeps))
        ends.append(Matching(ascent.perms, before, _distance(ours, ascent.theirs), settled))
    return min(ends, key=lambda end: end.after)


def aligned(model: nn.Module, other: nn.Module, *, inputs: tuple[Tensor, ...] | None = None) -> nn.Module:
    """A copy of ``other`` that computes the same function, its hidden units in the order of ``model``'s.

    Args:
        model: A chain of layers; it is left as it is.
        other: Another of the same layers; it is left as it is.
        inputs: A few inputs on which layers are followed; needed where the first layer is a convolution.

    Raises:
        NotAChainError: A model is no such chain; the message names the layer.
        ValueError: The models have different layers, or a weight is not finite.

    Reference: Ainsworth, Hayase and Srinivasa 2023, Section 3.2 (matching weights).
    """
    found = matching(model, other, inputs=inputs)
    return permuted(other, hidden_layers(other, inputs), found.perms)


class Ascent:
    """Coordinate ascent of the inner product of two models' weights over permutations of hidden units.

    Args:
        layers: The tensors that each hidden layer's units index.
        units: Units of each hidden layer.
        ours: Tensors of the first model, by name.
        theirs: Tensors of the second, which are permuted on the way.
    """

    def __init__(
        self, layers: list[list[Slot]], units: list[int], ours: dict[str, Tensor], theirs: dict[str, Tensor]
    ) -> None:
        self.layers = layers
        self.ours = ours
        self.theirs = theirs
        self.perms = [torch.arange(count) for count in units]

    def sweep(self, counts: Callable[[Slot], bool]) -> bool:
        """Solve for each layer in turn, by the tensors that count; whether a permutation changed."""
        moved = False
        for i, layer in enumerate(self.layers):
            gain = torch.stack([self._products(slot) for slot in layer if counts(slot)]).sum(0)
            best = assignment(gain)
            here, there = (
                float(gain[torch.arange(len(gain)), p].sum()) for p in (torch.arange(len(gain)), best)
            )
            # A gain within rounding would go back and forth.
            if there - here <= 1e-12 * float(gain.abs().sum(1).max() * len(gain)):
                continue
            moved = True
            self.perms[i] = self.perms[i][best]
            for slot in layer:
                tensor = self.theirs[slot.name]
                self.theirs[slot.name] = slot.permuted(tensor, best)
        return moved

    def _products(self, slot: Slot) -> Float[Tensor, "units units"]:
        """The inner product of what unit i of ours and unit j of theirs have in a tensor."""
        ours, theirs = (unit_rows(weights[slot.name], slot) for weights in (self.ours, self.theirs))
        return ours @ theirs.mT


def assignment(gain: Float[Tensor, "units units"]) -> Int[Tensor, " units"]:
    r"""The permutation p that maximizes :math:`\sum_i g_{i, p(i)}`, exactly.

    Args:
        gain: g, finite.

    Reference: Kuhn 1955; Crouse 2016 (the algorithm of ``scipy.optimize.linear_sum_assignment``).
    """
    from scipy.optimize import linear_sum_assignment

    return torch.from_numpy(linear_sum_assignment(gain.numpy(), maximize=True)[1]).long()


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().double().cpu() for name, p in model.named_parameters()}


def _distance(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    return float(torch.stack([(ours[name] - theirs[name]).square().sum() for name in ours]).sum().sqrt())


def _check_alike(stages: tuple[Stage, ...], others: tuple[Stage, ...]) -> None:
    one, two = (
        [(s.name, tuple(s.layer.weight.shape), [(name, type(m)) for name, m in s.after]) for s in each]
        for each in (stages, others)
    )
    if one != two:
        first = next(
            (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
        )
        shown = [
            f"{each[first][0]!r} {each[first][1]}" if first < len(each) else "no further layer"
            for each in (one, two)
        ]
        raise ValueError(f"the two models must have the same layers: got {shown[0]} and {shown[1]}")
