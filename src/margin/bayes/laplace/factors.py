r"""The Jacobian of a network by the weights of its affine layers, as outer products.

Of an affine layer z = W h + b the derivative of an output by (W, b) is the sum over places of the outer
product of its derivative by z with (h, 1). Both are found by one reverse pass for each output, of zeros
that are added to z: a function of functions, so that what is computed of them can be differentiated again.
Dangel, Kunstner and Hennig (2020), Section 3.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import jacrev, vmap

from margin.theory.kernels.structured import patches

AFFINE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d)
"""The layers whose weights have a posterior."""


class Factor(NamedTuple):
    """Of one layer, sum over places of ``back`` times ``given`` is the Jacobian of each example's outputs.

    Args:
        given: What the layer sees at each place, with a 1 for its bias.
        back: The derivative of each output by what the layer sends there.
    """

    given: Float[Tensor, "batch places inputs"]
    back: Float[Tensor, "batch outputs places units"]

    def jacobian(self) -> Float[Tensor, "batch outputs weights"]:
        """The outer products, written down: a unit's weights, then its bias."""
        return torch.einsum("bctu,bti->bcui", self.back, self.given).flatten(2)


def affine_layers(net: nn.Module) -> dict[str, nn.Module]:
    """The affine layers of a network by name, in order.

    Raises:
        ValueError: There is none, or a convolution is grouped or not padded by zeros.
    """
    found = {name: module for name, module in net.named_modules() if isinstance(module, AFFINE)}
    if not found:
        raise ValueError(f"a posterior needs a linear or convolutional layer: {type(net).__name__} has none")
    for name, module in found.items():
        if isinstance(module, nn.Conv1d | nn.Conv2d) and not (
            module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
        ):
            raise ValueError(
                f"a posterior needs convolutions of one group, padded by zeros: {name} is {module}"
            )
    return found


def sizes_of(layer: nn.Module) -> tuple[int, int]:
    """How many units a layer has, and how many numbers each of them weighs, its bias among them."""
    weight = layer.get_parameter("weight")
    return len(weight), weight[0].numel() + (layer.bias is not None)


def outputs_of(net: nn.Module, x: Tensor) -> Float[Tensor, "batch outputs"]:
    """The outputs of a network, those of an example in a row; one number an example is one column."""
    found: Tensor = net(x)
    return found[:, None] if found.ndim == 1 else found.flatten(1)


@contextmanager
def _tapped(
    layers: Sequence[nn.Module], taps: Sequence[Tensor] | None
) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """A context in which taps are added to what layers send; it lists what each has seen and sent."""
    seen: list[tuple[Tensor, Tensor]] = []

    def hook(module: nn.Module, args: tuple[Tensor, ...], sent: Tensor) -> Tensor:
        i = len(seen)
        if i >= len(layers) or module is not layers[i]:
            raise ValueError(
                "a posterior needs each layer to be applied once, in the order in which the network holds "
                f"them: {module} is not"
            )
        seen.append((args[0], sent))
        return sent if taps is None else sent + taps[i]

    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def factors(
    net: nn.Module, layers: Sequence[nn.Module], x: Float[Tensor, " batch *input"]
) -> tuple[Float[Tensor, "batch outputs"], tuple[Factor, ...]]:
    """The outputs, and the Jacobian by the weights of these layers.

    Args:
        net: In evaluation mode.
        layers: Affine layers, in the order in which they are applied.
        x: Inputs.

    Raises:
        ValueError: A layer is applied twice, not at all, or out of order.
    """
    with torch.no_grad(), _tapped(layers, None) as seen:
        net(x[:1])
    if len(seen) < len(layers):
        raise ValueError(f"a posterior needs each layer to be applied: {layers[len(seen)]} is not")
    zeros = tuple(sent.new_zeros(sent.shape) for _, sent in seen)

    def one(taps: tuple[Tensor, ...], row: Tensor) -> tuple[Tensor, tuple[Tensor, tuple[Tensor, ...]]]:
        with _tapped(layers, taps) as met:
            out = outputs_of(net, row[None])[0]
        return out, (out, tuple(given for given, _ in met))

    back, (out, given) = vmap(jacrev(one, has_aux=True), in_dims=(None, 0))(zeros, x)
    found = (_factor(*each) for each in zip(layers, given, back, strict=True))
    return out, tuple(found)


def _factor(layer: nn.Module, given: Tensor, back: Tensor) -> Factor:
    """The places of a layer in a row, a 1 for its bias beside what it sees."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        h, g = given[:, 0], back[:, :, 0]
        if isinstance(layer, nn.Conv1d):
            h = h[:, :, None]
        h, g = patches(layer, h).mT, g.flatten(3).mT
    else:
        h, g = given.flatten(1, -2), back.flatten(2, -2)
    if layer.bias is not None:
        h = torch.cat((h, h.new_ones(*h.shape[:2], 1)), 2)
    return Factor(h, g)


def class_root(logits: Float[Tensor, "batch outputs"]) -> Float[Tensor, "batch outputs outputs"]:
    r"""A square root of the second derivative of the cross-entropy by the logits.

    .. math:: S = \operatorname{diag}(\sqrt p) - p \sqrt p^\top, \quad
        S S^\top = \operatorname{diag}(p) - p p^\top
    """
    p = logits.softmax(-1)
    root = p.sqrt()
    return torch.diag_embed(root) - p[:, :, None] * root[:, None, :]


def rooted(parts: Sequence[Factor], root: Float[Tensor, "batch outputs outputs"]) -> tuple[Factor, ...]:
    """The Jacobians times S', whose squares add up to the Gauss-Newton matrix J' S S' J."""
    return tuple(f._replace(back=torch.einsum("bck,bctu->bktu", root, f.back)) for f in parts)
