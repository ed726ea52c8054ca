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
            code, values = nearest(parameter, parameter.amin(), parameter.amax(), levels)
            parameter.copy_(values[code])
            counts = torch.bincount(code.flatten(), minlength=levels)
            bits = 8 * parameter.element_size()
            nats += enumerated_nats(counts) + NATS_A_BIT * bits * (2 - parameter.numel())
    return twin, nats


PLAIN = 33
"""Values of an entry that is in no matrix, as a bias or a running mean, in a pruned copy."""


def pruned(model: nn.Module, levels: int, keep: float) -> tuple[nn.Module, float]:
    """A copy that has few weights, of few values each, and its length in nats.

    Of each matrix the share ``keep`` of the entries of largest size stays, the others are 0. What stays takes
    ``levels - 1`` values, half of them negative: the mean size of those that stay, or sizes evenly spaced
    from their least to their largest. A matrix is written as the counts of its values, two sizes, and which
    of the orders with these counts it is. Other floating-point entries, buffers among them, take PLAIN values
    evenly spaced between two ends; whole numbers are written as they are stored.

    Args:
        model: Left as it is.
        levels: Values of an entry, 0 among them: odd, at least 3.
        keep: Share of the entries of each matrix that stay, in (0, 1].

    Raises:
        ValueError: A number is out of range.

    Reference: Cover and Thomas 2006, Section 13.2 (enumerative codes); Zhou et al. 2019, Section 3.
    """
    if levels < 3 or levels % 2 == 0:
        raise ValueError(f"levels must be odd and at least 3: got {levels}")
    if not 0 < keep <= 1:
        raise ValueError(f"keep must lie in (0, 1]: got {keep}")
    twin, nats = copied(model), 0.0
    with torch.no_grad():
        for tensor in (*twin.parameters(), *twin.buffers()):
            bits = 8 * tensor.element_size()
            if not tensor.is_floating_point():
                nats += NATS_A_BIT * bits * tensor.numel()
                continue
            if tensor.ndim < 2:
                code, values = nearest(tensor, tensor.amin(), tensor.amax(), PLAIN)
                nats += tensor.numel() * math.log(PLAIN)
            else:
                code, values = _few(tensor, levels, keep)
                nats += enumerated_nats(torch.bincount(code.flatten(), minlength=levels))
            tensor.copy_(values[code])
            nats += 2 * NATS_A_BIT * bits
    return twin, nats


def nearest(entries: Tensor, low: Tensor, high: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """The nearest of so many values evenly spaced between two, by its number, and the values."""
    step = ((high - low) / max(levels - 1, 1)).clamp(min=torch.finfo(entries.dtype).tiny)
    code = ((entries - low) / step).round().clamp(0, levels - 1).long()
    return code, low + step * torch.arange(levels, device=entries.device, dtype=entries.dtype)


def _few(entries: Tensor, levels: int, keep: float) -> tuple[Tensor, Tensor]:
    """Which value each entry takes of the sorted ones, negative, 0 and positive, and these."""
    sizes, half = entries.abs(), (levels - 1) // 2
    count = max(round(keep * entries.numel()), 1)
    least = sizes.flatten().topk(count).values[-1]
    stays = (sizes >= least) & (sizes > 0)
    kept = sizes[stays] if bool(stays.any()) else sizes.flatten()[:1]
    ends = (kept.mean(), kept.mean()) if half == 1 else (kept.amin(), kept.amax())
    code, values = nearest(sizes, *ends, half)
    sign = torch.where(entries < 0, -1, 1)
    return half + torch.where(stays, sign * (code + 1), 0), torch.cat(
        (-values.flip(0), values.new_zeros(1), values)
    )


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
