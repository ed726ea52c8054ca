r"""Settings of the weights that give the same function: permuted, sign-flipped and rescaled hidden units.

Hecht-Nielsen (1990): hidden units have no order, so :math:`W_l \to P W_l`, :math:`b_l \to P b_l`,
:math:`W_{l+1} \to W_{l+1} P^\top` changes nothing. A layer of m units has m! such settings; with an odd
activation 2^m flips of sign besides, with a positively homogeneous one all scales above 0.

Weight matching (Git Re-Basin): Ainsworth, Hayase and Srinivasa (2023): the order of hidden units is
arbitrary, so two networks are compared after permuting the units of one to bring its weights near the
other's,

.. math:: \max_{P_1, \dots, P_{L-1}} \sum_l \langle W_l^A, P_l W_l^B P_{l-1}^\top \rangle.

One P_l at a time, the others held, is a linear assignment problem, solved exactly; the whole is a coordinate
ascent, which ends at a setting that no single layer can better, not always at the best.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.theory.signal.chain import NotAChainError, Stage, chain_of, probe

ODD: tuple[type[nn.Module], ...] = (
    nn.Tanh,
    nn.Identity,
    nn.Softsign,
    nn.Tanhshrink,
    nn.Softshrink,
    nn.Hardshrink,
)
HOMOGENEOUS: tuple[type[nn.Module], ...] = (nn.ReLU, nn.LeakyReLU, nn.Identity)
POINTWISE: tuple[type[nn.Module], ...] = (
    *ODD,
    *HOMOGENEOUS,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.Softplus,
    nn.LogSigmoid,
    nn.Hardtanh,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Mish,
    nn.ReLU6,
)
"""Layers that do the same to every unit."""

LINEAR_IN_UNITS: tuple[type[nn.Module], ...] = (
    nn.Dropout,
    nn.Flatten,
    nn.Dropout2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
)
"""Layers that keep signs and scales of a unit, in evaluation mode."""

POOLING: tuple[type[nn.Module], ...] = (nn.MaxPool2d, nn.AdaptiveMaxPool2d)

Renamed = Callable[[Tensor], Tensor]


class Slot(NamedTuple):
    """A tensor that a hidden layer's units index: its name, and the axis that counts them, in blocks.

    Args:
        name: Of the parameter or buffer.
        axis: 0 for what the layer gives, 1 for what the next one takes.
        block: How many entries of the axis belong to one unit: the pixels of a channel that was flattened.
    """

    name: str
    axis: int
    block: int

    def permuted(self, tensor: Tensor, perm: Tensor) -> Tensor:
        """The tensor with unit ``perm[i]`` in place i."""
        blocks = tensor.unflatten(self.axis, (len(perm), self.block))
        return blocks.index_select(self.axis, perm.to(tensor.device)).flatten(self.axis, self.axis + 1)


def unit_rows(tensor: Tensor, slot: Slot) -> Float[Tensor, "units entries"]:
    """What each unit has in a tensor, as a row."""
    units = tensor.shape[slot.axis] // slot.block
    return tensor.movedim(slot.axis, 0).unflatten(0, (units, slot.block)).flatten(1)


def slots(stages: tuple[Stage, ...], layer: int) -> Iterator[Slot]:
    """The tensors that the units of a hidden layer index.

    Args:
        stages: A chain.
        layer: Index of the hidden layer, from 0.

    Raises:
        NotAChainError: A layer between treats units differently, or reads several together.
        ValueError: There is no such hidden layer.
    """
    if not 0 <= layer < len(stages) - 1:
        raise ValueError(f"layer must lie in 0 .. {len(stages) - 2} (hidden layers): got {layer}")
    stage, following = stages[layer], stages[layer + 1]
    for affine in (stage, following):
        if isinstance(affine.layer, nn.Conv2d) and affine.layer.groups != 1:
            raise NotAChainError(f"layer {affine.name!r} must have one group: it has {affine.layer.groups}")
    block = _block(stage, following)
    yield Slot(_inside(stage.name, "weight"), 0, 1)
    if stage.layer.bias is not None:
        yield Slot(_inside(stage.name, "bias"), 0, 1)
    for name, module in stage.after:
        if not _treats_alike(module, stage):
            kind = type(module).__name__
            raise NotAChainError(f"layer {name!r} ({kind}) must treat all units of {stage.name!r} alike")
        for key, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if tensor.ndim and len(tensor) == stage.units:
                yield Slot(_inside(name, key), 0, 1)
    yield Slot(_inside(following.name, "weight"), 1, block)


def _inside(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _block(stage: Stage, following: Stage) -> int:
    """How many inputs of the next layer are one unit's: its pixels, where channels are flattened between."""
    dense, next_dense = (isinstance(each.layer, nn.Linear) for each in (stage, following))
    block, rest = divmod(following.layer.weight.shape[1], stage.units)
    if dense and next_dense:
        fits = stage.given == following.taken
    elif dense:
        fits = False
    else:
        fits = len(stage.given) == 4 and (len(following.taken) == 2 if next_dense else block == 1)
    if not fits or rest:
        raise NotAChainError(
            f"layer {following.name!r} must take the units of {stage.name!r}: it takes the shape "
            f"{following.taken}, and {stage.given} was given"
        )
    return block


def _treats_alike(module: Any, stage: Stage) -> bool:
    """Whether a layer does the same to each unit, up to parameters that the units index."""
    kind, axes, dense = type(module), len(stage.given), isinstance(stage.layer, nn.Linear)
    if kind is nn.PReLU:
        return module.num_parameters == 1 or not dense or axes == 2
    if kind is nn.LayerNorm:
        return dense and tuple(module.normalized_shape) == (stage.units,)
    if kind is nn.GroupNorm:
        return module.num_groups == 1 and (axes == 2 or not dense)
    if kind in (nn.BatchNorm1d, nn.BatchNorm2d):
        return axes == (2 if kind is nn.BatchNorm1d else 4)
    return kind in POINTWISE or kind in LINEAR_IN_UNITS or kind in POOLING


def hidden_layers(model: nn.Module, inputs: tuple[Tensor, ...] | None = None) -> tuple[Stage, ...]:
    """The chain of a model, whose stages but the last are hidden layers.

    Args:
        model: Any module.
        inputs: A few inputs on which its layers are followed; None: numbers of our own, where it begins
            with a Linear layer.

    Raises:
        NotAChainError: It is no chain; the message names the layer.
    """
    if inputs is not None:
        return chain_of(model, inputs)
    core, own = probe(model)
    prefix = next((f"{name}." for name, module in model.named_modules() if module is core and name), "")

    def outside(name: str) -> str:
        return f"{prefix}{name}" if name else prefix.removesuffix(".")

    return tuple(
        stage._replace(
            name=outside(stage.name), after=tuple((outside(name), module) for name, module in stage.after)
        )
        for stage in chain_of(core, own)
    )


def permute_hidden(
    model: nn.Module,
    layer: int,
    perm: Int[Tensor, " units"],
    *,
    inputs: tuple[Tensor, ...] | None = None,
) -> nn.Module:
    r"""A copy of a model with the units of a hidden layer in another order; it computes the same function.

    .. math:: W_l \to P W_l, \quad b_l \to P b_l, \quad W_{l+1} \to W_{l+1} P^\top

    and so the parameters and running statistics of a normalization between.

    Args:
        model: A chain of Linear or Conv2d layers with pointwise activations, normalization (BatchNorm,
            LayerNorm over the units), dropout and pooling between; as it is, or with its preprocessing.
        layer: Index of the hidden layer, from 0.
        perm: Unit i of the copy is unit ``perm[i]`` of the model.
        inputs: A few inputs on which the layers are followed; None: see :func:`hidden_layers`.

    Raises:
        NotAChainError: The model is no such chain; the message names the layer.
        ValueError: There is no such layer, or ``perm`` is no permutation of its units.

    Reference: Hecht-Nielsen 1990; Bishop 2006, Section 5.1.1.
    """
    stages = hidden_layers(model, inputs)
    changed = list(slots(stages, layer))
    units = stages[layer].units
    if not torch.equal(perm.cpu().sort().values, torch.arange(units)):
        raise ValueError(f"perm must be a permutation of 0 .. {units - 1}: got {_short(perm)}")
    return _changed(model, {slot: partial(slot.permuted, perm=perm) for slot in changed})


def flip_signs(
    model: nn.Module,
    layer: int,
    signs: Float[Tensor, " units"],
    *,
    inputs: tuple[Tensor, ...] | None = None,
) -> nn.Module:
    """A copy of a model with some hidden units' signs turned on both sides; it computes the same function.

    The activations between must be odd (tanh, softsign, identity); there is no normalization between.

    Args:
        model: A chain as for :func:`permute_hidden`.
        layer: Index of the hidden layer, from 0.
        signs: 1 or -1 for each unit.
        inputs: A few inputs on which the layers are followed.

    Raises:
        NotAChainError: The model is no such chain, or a layer between is not odd; the message names it.
        ValueError: There is no such layer, or a sign is neither 1 nor -1.

    Reference: Hecht-Nielsen 1990; Chen, Lu and Hecht-Nielsen 1993.
    """
    if not bool((signs.abs() == 1).all()):
        raise ValueError(f"signs must be 1 or -1: got {_short(signs)}")
    return _scaled(model, layer, signs, (*ODD, *LINEAR_IN_UNITS), "odd", inputs)


def rescale(
    model: nn.Module,
    layer: int,
    factors: Float[Tensor, " units"],
    *,
    inputs: tuple[Tensor, ...] | None = None,
) -> nn.Module:
    """A copy of a model with hidden units scaled by a > 0 before and 1 / a after; it is the same function.

    The activations between must be positively homogeneous (ReLU, leaky ReLU, identity), not normalized.

    Args:
        model: A chain as for :func:`permute_hidden`.
        layer: Index of the hidden layer, from 0.
        factors: a for each unit, finite and above 0.
        inputs: A few inputs on which the layers are followed.

    Raises:
        NotAChainError: The model is no such chain, or a layer between is not homogeneous.
        ValueError: There is no such layer, or a factor is not above 0.

    Reference: Neyshabur, Salakhutdinov and Srebro 2015, Section 2; Dinh, Pascanu, Bengio and Bengio 2017,
    Section 3.
    """
    if not bool(((factors > 0) & factors.isfinite()).all()):
        raise ValueError(f"factors must be finite and above 0: got {_short(factors)}")
    kinds = (*HOMOGENEOUS, *LINEAR_IN_UNITS, *POOLING)
    return _scaled(model, layer, factors, kinds, "positively homogeneous", inputs)


# 6 parameters of one act, the two kinds of which differ by what may stand between
def _scaled(
    model: nn.Module,
    layer: int,
    factors: Tensor,
    between: tuple[type[nn.Module], ...],
    word: str,
    inputs: tuple[Tensor, ...] | None,
) -> nn.Module:
    stages = hidden_layers(model, inputs)
    changed = list(slots(stages, layer))
    if len(factors) != stages[layer].units:
        raise ValueError(f"one number for each of the {stages[layer].units} units: got {len(factors)}")
    for name, module in stages[layer].after:
        if type(module) not in between:
            raise NotAChainError(f"layer {name!r} ({type(module).__name__}) must be {word}")
    return _changed(model, {slot: _multiplied(factors, slot) for slot in changed})


def _multiplied(factors: Tensor, slot: Slot) -> Renamed:
    def act(tensor: Tensor) -> Tensor:
        own = factors.to(tensor)
        own = (own if slot.axis == 0 else 1 / own).repeat_interleave(slot.block)
        return tensor * own.reshape(-1, *[1] * (tensor.ndim - slot.axis - 1))

    return act


@torch.no_grad()
def _changed(model: nn.Module, acts: dict[Slot, Renamed]) -> nn.Module:
    made = copy.deepcopy(model)
    tensors = {**dict(made.named_parameters()), **dict(made.named_buffers())}
    for slot, act in acts.items():
        tensors[slot.name].copy_(act(tensors[slot.name]))
    return made


def permuted(model: nn.Module, stages: tuple[Stage, ...], perms: list[Tensor]) -> nn.Module:
    """A copy of a model with the units of every hidden layer in another order.

    Args:
        model: The chain that ``stages`` describes.
        stages: Its stages, by name.
        perms: For each hidden layer, as in :func:`permute_hidden`.
    """
    made = model
    for layer, perm in enumerate(perms):
        made = _changed(made, {slot: partial(slot.permuted, perm=perm) for slot in slots(stages, layer)})
    return made


def _short(tensor: Tensor) -> str:
    values = tensor.flatten().tolist()
    return f"{values[:8]}" if len(values) <= 8 else f"{values[:8]} and {len(values) - 8} more"


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
