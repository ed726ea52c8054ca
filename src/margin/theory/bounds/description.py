"""How long a network's weights are when they are written down: the price of Occam's bound.

A code that was fixed before the data gives every set of weights a length; a classifier of length L is one of
e^L. Zhou, Veitch, Austern, Adams and Orbanz (2019), Section 3, write quantized weights.
"""

import math

import torch
from torch import Tensor, nn

from margin.engine.evaluation import copied

NATS_A_BIT = math.log(2)


def stored_nats(model: nn.Module) -> float:
    """The length of all parameters and buffers as they are stored, in nats."""
    tensors = [*model.parameters(), *model.buffers()]
    return NATS_A_BIT * 8 * sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def quantized(model: nn.Module, levels: int) -> tuple[nn.Module, float]:
    """A copy whose matrices take few values, and the length of its weights, in nats.

    The entries of a parameter of two axes or more are rounded to the nearest of so many levels, evenly spaced
    from its least to its largest. They are written as the counts of the levels, the two ends, and which of
    the orders with these counts it is; all else stays and is written as it is stored.

    Args:
        model: Left as it is.
        levels: Values of an entry, at least 2.

    Reference: Cover and Thomas 2006, Section 13.2 (enumerative codes); Zhou et al. 2019, Section 3.
    """
    if levels < 2:
        raise ValueError(f"levels must be at least 2: got {levels}")
    twin = copied(model)
    nats = stored_nats(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            if parameter.ndim < 2 or not parameter.is_floating_point():
                continue
            low, high = parameter.min(), parameter.max()
            step = ((high - low) / (levels - 1)).clamp(min=torch.finfo(parameter.dtype).tiny)
            code = ((parameter - low) / step).round()
            parameter.copy_(low + code * step)
            counts = torch.bincount(code.flatten().long(), minlength=levels)
            bits = 8 * parameter.element_size()
            nats += enumerated_nats(counts) + NATS_A_BIT * bits * (2 - parameter.numel())
    return twin, nats


def enumerated_nats(counts: Tensor) -> float:
    r"""The length of a sequence of symbols by its counts and its place among those that have them.

    .. math:: \ln\binom{N + L - 1}{L - 1} + \ln\frac{N!}{\prod_l c_l!}

    Args:
        counts: How often each of L symbols occurs; N is their sum.

    Reference: Cover and Thomas 2006, Section 13.2.
    """
    c = counts.double()
    N, L = float(c.sum()), len(c)
    types = math.lgamma(N + L) - math.lgamma(L) - math.lgamma(N + 1)
    return types + math.lgamma(N + 1) - float(torch.lgamma(c + 1).sum())
