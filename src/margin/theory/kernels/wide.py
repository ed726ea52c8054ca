r"""Kernels of infinitely wide networks: the Gaussian process of their outputs (NNGP), and the tangent kernel.

Layers are :math:`z^{l+1} = \frac{\sigma_w}{\sqrt n} W \varphi(z^l) + \sigma_b b` with W, b standard normal.
As n grows the outputs become a Gaussian process of covariance K (Neal 1996; Lee et al. 2018; Matthews et al.
2018), and the neural tangent kernel, the inner product of the outputs' gradients, a constant (Jacot et al.
2018):

.. math:: K^{l+1} = \sigma_b^2 + \sigma_w^2 \kappa(K^l), \qquad
    \Theta^{l+1} = K^{l+1} + \sigma_w^2 \dot\kappa(K^l) \odot \Theta^l, \qquad
    \Theta^0 = K^0 = \sigma_b^2 + \sigma_w^2 \frac{x \cdot x'}{d}

with the dual activations of :mod:`margin.theory.kernels.duals`. For convolutions covariances are kept place
by place, and each layer averages over its window (Novak et al. 2019; Garriga-Alonso et al. 2019; Arora et
al. 2019). Computed in float64, block by block, on the processor.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from margin.theory.kernels.duals import Activation, arc_cosines, dual, inverse_root

Readout = Literal["flatten", "average"]
Block = Callable[[slice, slice], Tensor]
Kernel = Float[Tensor, "_n _m"]
Rows = Float[Tensor, "_n _features"]
Images = Float[Tensor, "_n _channels _height _width"]

SIDE = 256
"""Rows and columns of a block of a kernel: half a megabyte a matrix, which a processor's cache holds."""

PLACES = 2**22
"""Numbers of the covariance of a block of pairs of images."""


def nngp(
    x1: Rows,
    x2: Rows | None = None,
    *,
    depth: int = 1,
    weight_std: float = math.sqrt(2),
    bias_std: float = 0.0,
    activation: Activation = "relu",
) -> Kernel:
    """The covariance of the outputs of an infinitely wide fully connected network, as it is drawn.

    Args:
        x1: Inputs, an example a row.
        x2: Other inputs; None: those of ``x1``.
        depth: Hidden layers, each with the activation; 0 is a linear model.
        weight_std: sigma_w; the square root of 2 keeps the variance of ReLU networks.
        bias_std: sigma_b.
        activation: "relu", "erf", "gelu", "linear" in closed form; a function of tensors by quadrature.

    Returns:
        K in float64. It is the prior's; a posterior's mean is :mod:`margin.theory.kernels.regression`'s.

    Raises:
        ValueError: An argument is out of range, or inputs are not finite.

    Reference: Lee, Bahri, Novak, Schoenholz, Pennington and Sohl-Dickstein 2018, Section 2.3.
    """
    return _dense(x1, x2, depth, weight_std, bias_std, activation, tangent=False)


def ntk(
    x1: Rows,
    x2: Rows | None = None,
    *,
    depth: int = 1,
    weight_std: float = math.sqrt(2),
    bias_std: float = 0.0,
    activation: Activation = "relu",
) -> Kernel:
    """The neural tangent kernel of an infinitely wide fully connected network; arguments as of :func:`nngp`.

    Reference: Jacot, Gabriel and Hongler 2018, Theorem 1; Lee et al. 2019, Section 2.1, in this
    parametrization.
    """
    return _dense(x1, x2, depth, weight_std, bias_std, activation, tangent=True)


# The seven options are those of the network that the kernel belongs to.
def conv_nngp(
    x1: Images,
    x2: Images | None = None,
    *,
    depth: int = 1,
    kernel_size: int = 3,
    readout: Readout = "flatten",
    weight_std: float = math.sqrt(2),
    bias_std: float = 0.0,
    activation: Activation = "relu",
) -> Kernel:
    """The covariance of the outputs of a convolutional network with infinitely many channels.

    ``depth`` convolutions of stride 1, each followed by the activation, with zeros around the image; then
    one dense layer, on all places side by side ("flatten") or on their mean ("average").

    Args:
        x1: Images.
        x2: Other images; None: those of ``x1``.
        depth: Convolutions, at least 1.
        kernel_size: Of the convolutions, odd.
        readout: "average" needs the covariance of all pairs of places: as many times more as there are
            places.
        weight_std: sigma_w, of weights of variance sigma_w^2 / (channels kernel_size^2).
        bias_std: sigma_b.
        activation: As of :func:`nngp`.

    Raises:
        ValueError: An argument is out of range, or inputs are not finite.

    Reference: Novak et al. 2019, Section 2.2; readouts: Sections 3.1 and 3.2.
    """
    shape = (depth, kernel_size, readout)
    return _convolved(x1, x2, shape, weight_std, bias_std, activation, tangent=False)


# The seven options are those of the network that the kernel belongs to.
def conv_ntk(
    x1: Images,
    x2: Images | None = None,
    *,
    depth: int = 1,
    kernel_size: int = 3,
    readout: Readout = "flatten",
    weight_std: float = math.sqrt(2),
    bias_std: float = 0.0,
    activation: Activation = "relu",
) -> Kernel:
    """The tangent kernel of a convolutional network with infinitely many channels, as of :func:`conv_nngp`.

    Reference: Arora, Du, Hu, Li, Salakhutdinov and Wang 2019, Section 4.
    """
    shape = (depth, kernel_size, readout)
    return _convolved(x1, x2, shape, weight_std, bias_std, activation, tangent=True)


def _check(x1: Tensor, x2: Tensor | None, depth: int, weight_std: float, bias_std: float) -> None:
    for name, value in (("weight_std", weight_std), ("bias_std", bias_std), ("depth", depth)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and at least 0: got {value}")
    for x in (x1,) if x2 is None else (x1, x2):
        if not bool(x.isfinite().all()):
            raise ValueError("inputs of a kernel must be finite: got NaN or an infinity")
    if x2 is not None and x1.shape[1:] != x2.shape[1:]:
        raise ValueError(
            f"both inputs must be of one shape: got {tuple(x1.shape[1:])} and {tuple(x2.shape[1:])}"
        )


def _check_conv(depth: int, kernel_size: int, readout: str) -> None:
    if depth < 1 or kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(
            f"depth must be at least 1, kernel_size odd: got depth={depth}, kernel_size={kernel_size}"
        )
    if readout not in ("flatten", "average"):
        raise ValueError(f"readout must be flatten or average: got {readout!r}")


def in_blocks(n: int, m: int, side: int, block: Block, *, symmetric: bool) -> Kernel:
    """A matrix from its blocks of at most ``side`` rows and columns; of a symmetric one half is computed."""
    out = torch.empty(n, m, dtype=torch.float64)
    for i in range(0, n, side):
        rows = slice(i, min(i + side, n))
        for j in range(0, rows.stop if symmetric else m, side):
            columns = slice(j, min(j + side, m))
            part = block(rows, columns)
            if symmetric and j == i:
                part = (part + part.T) / 2  # a product of matrices is symmetric but for rounding
            out[rows, columns] = part
            if symmetric and j < i:
                out[columns, rows] = part.T
    return out


def _dense(
    x1: Rows,
    x2: Rows | None,
    depth: int,
    weight_std: float,
    bias_std: float,
    activation: Activation,
    tangent: bool,
) -> Kernel:
    _check(x1, x2, depth, weight_std, bias_std)
    left = x1.detach().cpu().double()
    right = left if x2 is None else x2.detach().cpu().double()
    w, s = weight_std**2, bias_std**2
    scale = w / left.shape[1]
    # variances by layer: those of the diagonal are known without the matrix
    both = (left,) if x2 is None else (left, right)
    sides = [_variances(x, depth, w, s, activation) for x in both]
    first, last = sides[0], sides[-1]

    def block(rows: slice, columns: slice) -> Tensor:
        K = (left[rows] @ right[columns].T).mul_(scale).add_(s)
        theta = K
        for a, b in zip(first, last, strict=True):
            kappa, slope = dual(activation, a[rows, None], b[None, columns], K)
            K = kappa.mul_(w).add_(s)
            theta = theta * slope.mul_(w) + K if tangent else K
        return theta

    blocks = _rectified(both, sides, (w, s), tangent) if activation == "relu" else block
    return in_blocks(len(left), len(right), SIDE, blocks, symmetric=x2 is None)


def _rectified(
    inputs: tuple[Rows, ...], sides: list[list[Tensor]], squares: tuple[float, float], tangent: bool
) -> Block:
    r"""Blocks of a ReLU network's kernel by correlations, in place: arc cosines and products are most of it.

    Of the variances a of a layer and a' of the next, 1 of the outputs, let :math:`u_i = \sigma_w
    \sqrt{a_i / (2 \pi a_i')}` and :math:`v_i = \sigma_b / \sqrt{a_i'}`. A correlation becomes
    :math:`u_i u_j g + v_i v_j` with :math:`g = \sin\theta + (\pi - \theta) \cos\theta`, and the tangent
    kernel over the same roots, t, becomes :math:`u_i u_j (g + (\pi - \theta) t) + v_i v_j`.
    """
    w, s = squares
    used = torch.stack([(x != 0).any(0) for x in inputs]).all(0)  # the edges of images are often black
    scaled, factors = [], []
    for x, of in zip(inputs, sides, strict=True):
        roots = [inverse_root(a) for a in of] + [torch.ones_like(x[:, 0])]
        # the bias is one more feature: a product of rows is a correlation
        rows = torch.cat((x[:, used] * math.sqrt(w / x.shape[1]), x.new_full((len(x), 1), math.sqrt(s))), 1)
        scaled.append(rows.mul_(roots[0][:, None]))
        own = [(w / (2 * math.pi) * a).sqrt() for a in of]
        factors.append([(r * a, r * math.sqrt(s)) for r, a in zip(roots[1:], own, strict=True)])
    space = scaled[0].new_empty(4, SIDE**2)

    def block(rows: slice, columns: slice) -> Tensor:
        shape = rows.stop - rows.start, columns.stop - columns.start
        minus, rest, value, theta = (x[: math.prod(shape)].view(shape) for x in space)
        minus.addmm_(scaled[0][rows], scaled[-1][columns].T, beta=0, alpha=-1)
        theta.copy_(minus)
        for (u, v), (other_u, other_v) in zip(factors[0], factors[-1], strict=True):
            bias = (v[rows, None], other_v[None, columns])
            arc_cosines(minus, rest, value)
            torch.addcmul(value, theta, rest, value=-1, out=theta)
            torch.mul(-u[rows, None], other_u[None, columns], out=rest)
            torch.mul(value, rest, out=minus).addcmul_(*bias, value=-1)
            theta.mul_(rest).addcmul_(*bias, value=-1)
        return (theta if tangent else minus).neg_()

    return block


def _variances(x: Rows, depth: int, w: float, s: float, activation: Activation) -> list[Tensor]:
    """The variance of each example's pre-activations in each hidden layer."""
    q, found = s + w * x.square().mean(1), []
    for _ in range(depth):
        found.append(q)
        q = s + w * dual(activation, q, q, q).value
    return found


Shape = tuple[int, int, Readout]
"""Convolutions, kernel size, readout."""


def _convolved(
    x1: Images,
    x2: Images | None,
    shape: Shape,
    weight_std: float,
    bias_std: float,
    activation: Activation,
    tangent: bool,
) -> Kernel:
    depth, size, readout = shape
    _check_conv(depth, size, readout)
    _check(x1, x2, depth, weight_std, bias_std)
    left = x1.detach().cpu().double()
    right = left if x2 is None else x2.detach().cpu().double()
    w, s = weight_std**2, bias_std**2
    places = left.shape[2] * left.shape[3]
    sides = [_place_variances(x, depth, size, (w, s), activation) for x in (left, right)]

    def block(rows: slice, columns: slice) -> Tensor:
        x, y = left[rows], right[columns]
        pairs = "nchw,mchw->nmhw" if readout == "flatten" else "nchw,mcij->nmhwij"
        K = s + w * _window(torch.einsum(pairs, x, y) / x.shape[1], size)
        theta = K
        for layer in range(depth):
            a, b = (side[layer][part] for side, part in zip(sides, (rows, columns), strict=True))
            a, b = a[:, None], b[None]
            if readout == "average":
                a, b = a[..., None, None], b[:, :, None, None]
            kappa, slope = dual(activation, a, b, K)
            theta = kappa + slope * theta if tangent else kappa
            if layer < depth - 1:
                K = s + w * _window(kappa, size)
                theta = s + w * _window(theta, size) if tangent else K
        return s + w * theta.flatten(2).mean(2)

    pair = places if readout == "flatten" else places**2
    side = max(1, min(SIDE, math.isqrt(max(1, PLACES // pair))))
    return in_blocks(len(left), len(right), side, block, symmetric=x2 is None)


def _window(K: Tensor, size: int) -> Tensor:
    """The mean over a convolution's window: of K(s, s) over s, of K(s, t) over both moved together."""
    if K.ndim == 4:
        return F.avg_pool2d(K, size, 1, size // 2)  # places beyond the edge count as zeros
    reach = size // 2
    padded = F.pad(K, (reach,) * 8)
    height, width = K.shape[2:4]
    out = torch.zeros_like(K)
    for i in range(size):
        for j in range(size):
            down, right = slice(i, i + height), slice(j, j + width)
            out += padded[:, :, down, right, down, right]
    return out / size**2


def _place_variances(
    x: Images, depth: int, size: int, stds: tuple[float, float], activation: Activation
) -> list[Tensor]:
    w, s = stds
    q, found = s + w * F.avg_pool2d(x.square().mean(1, keepdim=True), size, 1, size // 2)[:, 0], []
    for _ in range(depth):
        found.append(q)
        kappa = dual(activation, q, q, q).value
        q = s + w * F.avg_pool2d(kappa[:, None], size, 1, size // 2)[:, 0]
    return found
