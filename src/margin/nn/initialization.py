"""Random initialization of affine maps: the variance at which each scheme draws a weight of fan-in n.

LeCun, Bottou, Orr and Müller (1998) keep the variance of a linear map's outputs, He, Zhang, Ren and Sun
(2015) that of a map behind ReLU, Glorot and Bengio (2010) balance both directions; Saxe, McClelland and
Ganguli (2014) keep the length of every vector.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from margin.core.catalog import nearest

SCHEMES = (
    "normal",
    "uniform",
    "lecun_normal",
    "lecun_uniform",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "orthogonal",
)
"""The names that :func:`initialize` knows."""

SIGMA = 0.01
"""Standard deviation of ``normal`` and ``uniform`` by default (Krizhevsky et al. 2012, Section 5)."""

SPREADS: dict[str, Callable[[float, float], float]] = {
    "lecun": lambda n, m: 1 / math.sqrt(n),
    "glorot": lambda n, m: math.sqrt(2 / (n + m)),
    "he": lambda n, m: math.sqrt(2 / n),
}
"""The standard deviation of a weight by family, of fan-in n and fan-out m."""

GATES = {"LSTM": 4, "LSTMCell": 4, "GRU": 3, "GRUCell": 3}


class AffineWeight(NamedTuple):
    """The weight of an affine map: as many maps as ``blocks``, side by side along its first axis.

    Args:
        name: Its name in the model, as ``layers.1.weight``.
        module: The module that owns it.
        attribute: Its name there.
        biases: The attributes of the module that are added to the map, those that are there.
        blocks: Maps that share the tensor: the groups of a convolution, the gates of a recurrent layer, the
            query, key and value of attention.
        transposed: Whether the first axis is that of the inputs.
    """

    name: str
    module: nn.Module
    attribute: str
    biases: tuple[str, ...]
    blocks: int = 1
    transposed: bool = False

    @property
    def weight(self) -> Tensor:
        """The weight, computed where it is parametrized."""
        weight: Tensor = getattr(self.module, self.attribute)
        return weight

    @property
    def fans(self) -> tuple[int, int]:
        """Fan-in n and fan-out m of one map: the terms of an output, and the outputs an input is a term of.

        For a convolution both count the places of its kernel and neither counts its stride, as torch does.
        """
        shape = self.weight.shape
        places = math.prod(shape[2:])
        first, second = shape[0] // self.blocks * places, shape[1] * places
        return (first, second) if self.transposed else (second, first)


def affine_weights(module: nn.Module) -> list[AffineWeight]:
    """Every weight of an affine map in a module, in the order of its submodules, each once.

    These are the weights of linear maps, convolutions, recurrent layers and attention of torch and what
    derives from them, and any parameter ``weight`` of two axes beside a ``bias`` with an entry for each row.
    Embeddings and the gains of normalizations are none.
    """
    found: list[AffineWeight] = []
    seen: set[int] = set()
    for name, owner in module.named_modules():
        if isinstance(owner, parametrize.ParametrizationList):
            continue
        for attribute, biases, blocks, transposed in _weights_of(owner):
            weight = _identity_of(owner, attribute)
            if id(weight) not in seen:
                seen.add(id(weight))
                full = f"{name}.{attribute}".removeprefix(".")
                found.append(AffineWeight(full, owner, attribute, biases, blocks, transposed))
    return found


def _identity_of(owner: nn.Module, attribute: str) -> Tensor:
    """The tensor by which a weight is told from others: a parametrized one is computed anew when read."""
    if parametrize.is_parametrized(owner, attribute):
        return next(owner.parametrizations[attribute].parameters())  # type: ignore[index, union-attr]
    weight: Tensor = getattr(owner, attribute)
    return weight


def _weights_of(owner: nn.Module) -> Iterator[tuple[str, tuple[str, ...], int, bool]]:
    """Attribute, attributes of the biases, blocks, and whether inputs come first, of each weight."""
    if isinstance(owner, nn.Linear | _ConvNd):
        transposed = isinstance(owner, _ConvTransposeNd)
        blocks = owner.groups if isinstance(owner, _ConvNd) else 1
        yield "weight", _present(owner, "bias"), blocks, transposed
    elif isinstance(owner, nn.RNNBase | nn.RNNCellBase):
        gates = GATES.get(owner.mode if isinstance(owner, nn.RNNBase) else type(owner).__name__, 1)
        for name, _ in owner.named_parameters(recurse=False):
            if name.startswith("weight_"):
                own = gates if not name.startswith("weight_hr") else 1
                yield name, _present(owner, name.replace("weight_", "bias_")), own, False
    elif isinstance(owner, nn.MultiheadAttention):
        if _present(owner, "in_proj_weight"):
            yield "in_proj_weight", _present(owner, "in_proj_bias"), 3, False
        for name in _present(owner, "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            yield name, _present(owner, "in_proj_bias"), 1, False
    else:
        weight, bias = getattr(owner, "weight", None), getattr(owner, "bias", None)
        if not (isinstance(weight, nn.Parameter) and isinstance(bias, Tensor)):
            return
        if weight.ndim == 2 and bias.shape == weight.shape[:1]:
            yield "weight", ("bias",), 1, False


def _present(owner: nn.Module, *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if isinstance(getattr(owner, name, None), Tensor))


def standard_deviation(scheme: str, fan_in: int, fan_out: int, scale: float | None = None) -> float:
    r"""The standard deviation of one weight under a scheme of independent entries.

    .. math:: \text{LeCun } \frac1{\sqrt n}, \quad \text{Glorot } \sqrt{\frac2{n + m}}, \quad
        \text{He } \sqrt{\frac2n}, \quad \text{normal and uniform } \sigma

    A uniform law of this deviation lies in [-sqrt(3) s, sqrt(3) s].

    Args:
        scheme: One of ``SCHEMES`` but ``orthogonal``, whose entries depend on each other.
        fan_in: n >= 1.
        fan_out: m >= 1.
        scale: sigma for ``normal`` and ``uniform``; for the others a factor of the deviation, 1 by default.

    Raises:
        ValueError: The scheme is not known or has no such deviation, or the scale is not positive and finite.

    Reference:
        LeCun, Bottou, Orr and Müller 1998, Section 4.6; Glorot and Bengio 2010, Equations 12 and 16; He,
        Zhang, Ren and Sun 2015, Equation 10.
    """
    _check(scheme, scale)
    if scheme == "orthogonal":
        raise ValueError("the entries of an orthogonal matrix are not independent: got scheme='orthogonal'")
    family = scheme.partition("_")[0]
    if family not in SPREADS:
        return SIGMA if scale is None else scale
    return (1.0 if scale is None else scale) * SPREADS[family](fan_in, fan_out)


def _check(scheme: str, scale: float | None) -> None:
    if scheme not in SCHEMES:
        near = ", ".join(nearest(scheme, SCHEMES) or SCHEMES)
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}: got {scheme!r}; nearest: {near}")
    if scale is not None and not 0 < scale < math.inf:
        raise ValueError(f"scale must be positive and finite: got {scale}")


@torch.no_grad()
def initialize(
    module: nn.Module, scheme: str, *, scale: float | None = None, generator: Generator | None = None
) -> None:
    """Draw every weight of an affine map in a module from a scheme, in place, and set the biases to 0.

    Which weights these are says :func:`affine_weights`; all other parameters stay. A weight that
    ``torch.nn.utils.parametrizations.weight_norm`` parametrizes is drawn as a whole: its gain becomes the
    length of what was drawn.

    Args:
        module: Any module.
        scheme: One of ``SCHEMES``; of a convolution ``orthogonal`` makes the matrix (out, in x kernel) of
            each group orthogonal, which does not make the convolution an isometry.
        scale: Standard deviation sigma of ``normal`` and ``uniform``, 0.01 by default; for the others a
            factor (a gain), 1 by default.
        generator: What is drawn from; None: torch's global generator.

    Raises:
        ValueError: The scheme is not known, the scale is not positive and finite, the module has no affine
            map, or a weight cannot be set: it has no shape yet, or is computed from other tensors.

    Reference:
        LeCun, Bottou, Orr and Müller 1998, Section 4.6; Glorot and Bengio 2010, Section 4.2; He, Zhang, Ren
        and Sun 2015, Section 2.2; Saxe, McClelland and Ganguli 2014, Section 3.
    """
    _check(scheme, scale)
    weights = affine_weights(module)
    if not weights:
        raise ValueError(f"initialization needs an affine map: {type(module).__name__} has none")
    for found in weights:
        _refuse(found)
    for found in weights:
        weight = found.weight
        # torch's QR knows no half precision
        dtype = weight.dtype if weight.dtype == torch.float64 else torch.float32
        drawn = torch.empty(weight.shape, dtype=dtype, device=weight.device)
        for block in drawn.chunk(found.blocks):
            _draw(block, scheme, found.fans, scale, generator)
        if parametrize.is_parametrized(found.module, found.attribute):
            setattr(found.module, found.attribute, drawn.to(weight.dtype))
        else:
            weight.copy_(drawn)
        for bias in found.biases:
            getattr(found.module, bias).zero_()


def _draw(
    block: Tensor, scheme: str, fans: tuple[int, int], scale: float | None, generator: Generator | None
) -> None:
    if block.numel() == 0:
        return
    if scheme == "orthogonal":
        nn.init.orthogonal_(block, 1.0 if scale is None else scale, generator=generator)
        return
    deviation = standard_deviation(scheme, *fans, scale)
    if scheme.endswith("uniform"):
        end = math.sqrt(3) * deviation
        nn.init.uniform_(block, -end, end, generator=generator)
    else:
        nn.init.normal_(block, 0.0, deviation, generator=generator)


def _refuse(found: AffineWeight) -> None:
    """Refuse a weight that would not be what is drawn, before any is drawn."""
    owner = found.module
    if parametrize.is_parametrized(owner, found.attribute):
        listed = owner.parametrizations[found.attribute]  # type: ignore[index]
        kinds = [type(p).__name__ for p in listed]
        if kinds != ["_WeightNorm"]:
            raise ValueError(
                "a weight that is parametrized must be so by weight normalization alone: "
                f"got {', '.join(kinds)} at {found.name}; initialize before it is parametrized"
            )
    elif isinstance(found.weight, UninitializedParameter):
        raise ValueError(f"a weight must have a shape: {found.name} is lazy; run the model once before")
    elif not isinstance(found.weight, nn.Parameter):
        raise ValueError(
            f"a weight must be a parameter: {found.name} is computed from others (by a hook, or pruned); "
            "initialize before that"
        )
