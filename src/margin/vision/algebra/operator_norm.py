r"""The operator norm of a convolution: the most that it stretches an image, its Lipschitz constant.

It is a property of the map, with its size, padding, stride, dilation and groups. The norm of the kernel
reshaped to a matrix (out, in kh kw), which ``torch.nn.utils.parametrizations.spectral_norm`` divides by, is
another number: the map is stretched by up to sqrt(kh kw) times more, or by less.

Circular padding, stride 1: exact, since the Fourier transform makes it a matrix for each frequency (Sedghi,
Gupta and Long 2019). Zero padding: between a power iteration from below and the circular norm on the padded
size.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Generator, nn

from margin.math.linear_algebra.convolution_norms import circular_norm_bound, kernel_norm_bound
from margin.vision.algebra.discrete import dilated


class NormBounds(NamedTuple):
    """Where an operator norm lies: at least ``low``, at most ``high``, which :attr:`by` says whose it is."""

    low: float
    high: float
    by: str


def power_iteration_norm(
    layer: nn.Module,
    shape: tuple[int, ...],
    *,
    generator: Generator,
    steps: int = 100,
    tolerance: float = 1e-6,
) -> float:
    r"""The norm of an affine layer's linear part from below, by power iteration on the layer itself.

    .. math:: x \leftarrow A^\top A x / \|A^\top A x\|, \qquad \|A x\| \le \|A\|_2

    Padding, stride, dilation, groups: whatever the layer does, is done. The transpose is its own backward
    pass.

    Args:
        layer: An affine map, as ``nn.Conv2d``, in float64.
        shape: Of one input, without the batch.
        generator: Draws the first input.
        steps: Multiplications by A and its transpose at most.
        tolerance: Relative gain of a step below which it ends.

    Returns:
        The last stretch: never more than the norm but for rounding, and as a rule near to it.

    Reference: Virmaux and Scaman 2018, Algorithm 1; Golub and Van Loan 2013, Section 8.2.1.
    """
    own = next(layer.parameters())
    x = torch.randn(1, *shape, generator=generator, dtype=own.dtype).to(own.device)
    with torch.no_grad():
        shift = layer(torch.zeros_like(x))
    stretch = 0.0
    for _ in range(steps):
        x = (x / x.norm()).detach().requires_grad_()
        with torch.enable_grad():
            y = layer(x) - shift
            now = float(y.detach().norm())
            (back,) = torch.autograd.grad(y, x, y.detach())
        if now <= stretch * (1 + tolerance) or not bool(back.any()):
            return max(now, stretch)
        stretch, x = now, back
    return stretch


def norm_bounds(layer: nn.Module, shape: tuple[int, ...], *, generator: Generator) -> NormBounds:
    """The operator norm of a convolution layer on inputs of a shape, from both sides.

    From above, the least that applies of: with stride 1, the circular norm on the padded size (zero padding
    is the circular map on zeros around, cut: both are contractions); exact with circular padding; of two axes
    the bound of the reshaped kernels. Of a stride the map of stride 1, of which it leaves out rows.

    Args:
        layer: ``nn.Conv1d``, ``nn.Conv2d`` or ``nn.Conv3d``.
        shape: Of one input, without the batch.
        generator: For the power iteration.

    Raises:
        ValueError: The layer is no convolution, or pads by reflection or repetition, which these bounds do
            not know.

    Reference: Sedghi, Gupta and Long 2019, Theorem 6; Singla and Feizi 2021, Theorem 1.
    """
    if not isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        raise ValueError(f"operator norms are known of convolutions: got {type(layer).__name__}")
    if layer.padding_mode not in ("zeros", "circular"):
        raise ValueError(f"padding must be zeros or circular: got {layer.padding_mode!r}")
    low = power_iteration_norm(layer, shape, generator=generator)
    weight = dilated(layer.weight.detach(), layer.dilation)
    parts = weight.chunk(layer.groups)  # a direct sum: its norm is the largest
    sizes = tuple(shape[1:])
    circular = layer.padding_mode == "circular" and _keeps(layer)
    if not circular:
        around = _padding(layer)
        sizes = tuple(n + a + b for n, (a, b) in zip(sizes, around, strict=True))
    if layer.padding_mode == "circular" and not circular:
        # what is wrapped further counts twice: x -> padded is a map of norm sqrt(copies)
        copies = math.prod(math.ceil(m / n) for m, n in zip(sizes, shape[1:], strict=True))
        return NormBounds(
            low, math.sqrt(copies) * max(circular_norm_bound(part, sizes) for part in parts), "padded norm"
        )
    bounds = {"circular norm": max(circular_norm_bound(part, sizes) for part in parts)}
    if weight.ndim == 4 and not circular:
        kernels = layer.weight.detach().chunk(layer.groups)  # zeros between taps change no form's norm
        bounds["reshaped kernels"] = max(map(kernel_norm_bound, kernels))
    by = min(bounds, key=bounds.__getitem__)
    return NormBounds(low, bounds[by], by)


def _padding(layer: Any) -> list[tuple[int, int]]:
    """Zeros before and after along each axis."""
    if isinstance(layer.padding, str):
        spans = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        return [(s // 2, s - s // 2) if layer.padding == "same" else (0, 0) for s in spans]
    return [(p, p) for p in layer.padding]


def _keeps(layer: Any) -> bool:
    """Whether a circular layer of stride 1 is the periodic convolution: as large an output as its input."""
    spans = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    return all(a + b == span for (a, b), span in zip(_padding(layer), spans, strict=True))
