r"""Operator norms of convolutions as functions of their kernel: on periodic images, and of every size.

The Fourier transform makes a periodic convolution a matrix for each frequency (Sedghi, Gupta and Long 2019).
With zero padding and with a stride it is a part of the one on the padded size: its norm is no larger.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Kernel = Float[Tensor, "out channels *kernel"]

MOST_FREQUENCIES = 1 << 14
"""Frequencies whose matrices are decomposed; of a larger image as many are, and a margin is added."""


def circular_norm(weight: Kernel, sizes: tuple[int, ...]) -> float:
    r"""The exact norm of a convolution of stride 1 on periodic images: the largest over frequencies.

    .. math:: \|C\|_2 = \max_\omega \sigma_{\max}(\hat W(\omega)), \qquad
        \hat W(\omega)_{oi} = \sum_k W_{oik}\, e^{-2\pi i \omega \cdot k}

    Args:
        weight: W, as torch's; of one to three axes. With dilation put zeros between the taps first.
        sizes: Places of the image along each axis; a kernel that is larger wraps around.

    Reference: Sedghi, Gupta and Long 2019, Theorem 6.
    """
    return float(_largest(weight, sizes))


def circular_singular_values(weight: Kernel, sizes: tuple[int, ...]) -> Float[Tensor, " values"]:
    """All singular values of the convolution of periodic images, the largest first.

    Reference: Sedghi, Gupta and Long 2019, Theorem 6.
    """
    return torch.linalg.svdvals(_transfer(weight, sizes)).flatten().sort(descending=True).values


def _transfer(weight: Kernel, sizes: tuple[int, ...]) -> Tensor:
    """The matrix (out, channels) of each frequency: of half of them, the others are conjugate."""
    wrapped = weight.double()
    for axis, n in enumerate(sizes, 2):
        rest = -wrapped.shape[axis] % n
        padded = wrapped.movedim(axis, -1)
        padded = F.pad(padded, (0, rest)).unflatten(-1, (-1, n)).sum(-2)
        wrapped = padded.movedim(-1, axis)
    axes = tuple(range(2, 2 + len(sizes)))
    return torch.fft.fftn(wrapped, dim=axes).movedim((0, 1), (-2, -1))


def _largest(weight: Kernel, sizes: tuple[int, ...]) -> Tensor:
    return torch.linalg.matrix_norm(_transfer(weight, sizes), 2).amax()


def kernel_norm_bound(weight: Kernel) -> float:
    r"""The least of the norms of the reshaped kernel times sqrt(taps): a bound for every size and padding.

    .. math:: \|C\|_2 \le \sqrt{k_h k_w}\, \min(\|R_1\|, \|R_2\|, \|S\|, \|T\|)

    with the four ways to write the kernel as a matrix: (out kh, in kw), (out kw, in kh), (out, in kh kw) and
    (out kh kw, in). For zero padding and stride 1; a stride leaves rows of the operator out, so it holds
    there.

    Args:
        weight: Of a convolution of two axes.

    Reference: Singla and Feizi 2021, Theorem 1.
    """
    W = weight.double()
    out, channels, kh, kw = W.shape
    forms = (
        W.permute(0, 2, 1, 3).reshape(out * kh, channels * kw),
        W.permute(0, 3, 1, 2).reshape(out * kw, channels * kh),
        W.reshape(out, channels * kh * kw),
        W.permute(0, 2, 3, 1).reshape(out * kh * kw, channels),
    )
    return math.sqrt(kh * kw) * min(float(torch.linalg.matrix_norm(form, 2)) for form in forms)


def circular_norm_bound(weight: Kernel, sizes: tuple[int, ...]) -> float:
    r"""The circular norm; on large images a bound of it from as many frequencies as are afforded.

    The squared norm is, for each pair of unit vectors, a real trigonometric polynomial of degree k - 1, which
    is at most 1 / cos(pi (k - 1) / N) times its largest value on N > 2 (k - 1) places (Ehlich and Zeller
    1964).
    """
    if math.prod(sizes) <= MOST_FREQUENCIES:
        return circular_norm(weight, sizes)
    afforded = int(MOST_FREQUENCIES ** (1 / len(sizes)))
    grid = tuple(max(min(n, afforded), 4 * m) for n, m in zip(sizes, weight.shape[2:], strict=True))
    margin = math.prod(
        1 / math.cos(math.pi * (m - 1) / n) for n, m in zip(grid, weight.shape[2:], strict=True)
    )
    return circular_norm(weight, grid) * math.sqrt(margin)
