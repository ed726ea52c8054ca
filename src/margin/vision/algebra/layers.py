r"""Layers over windows that torch lacks: min and softmax pooling, locally connected; what layers cost.

The backward pass of a convolution, written out: by the input it is the full convolution of the gradient with
the kernel, by the weights the valid correlation of the input with it (LeCun et al. 1989).
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.windows import Window, output_size

Images = Float[Tensor, "batch channels height width"]
Pooled = Float[Tensor, "batch channels rows columns"]
Maps = Float[Tensor, "batch out rows columns"]
Pair = tuple[int, int]


def min_pool2d(x: Images, kernel: int, *, stride: int | None = None, padding: int = 0) -> Pooled:
    """The least value of each window, -max(-x); padding is never the least.

    Reference: Serra 1982, Chapter 2 (erosion).
    """
    return -F.max_pool2d(-x, kernel, stride, padding)


def softmax_pool2d(
    x: Images, beta: Float[Tensor, ""], kernel: int, *, stride: int | None = None, padding: int = 0
) -> Pooled:
    r"""The mean of each window weighted by the softmax of its values.

    .. math:: y = \frac{\sum_i x_i\, e^{\beta x_i}}{\sum_i e^{\beta x_i}}

    beta = 0 is the mean of the window, beta to infinity its maximum, to minus infinity its minimum.

    Args:
        x: Images.
        beta: Inverse temperature.
        kernel: Places of a window along each axis.
        stride: From a window to the next; None: the kernel.
        padding: Places around the image, which no window counts.

    Reference: Boureau, Ponce and LeCun 2010 (between average and maximum); Lange, Zuehlke, Holz and Villmann
        2014 (this smooth maximum, of any numbers).
    """
    batch, channels = x.shape[:2]
    size = [output_size(n, Window(kernel, stride or kernel), padding=padding) for n in x.shape[2:]]
    windows = F.unfold(x, kernel, padding=padding, stride=stride or kernel)
    windows = windows.view(batch, channels, kernel * kernel, -1)
    if padding:
        inside = F.unfold(torch.ones_like(x[:1, :1]), kernel, padding=padding, stride=stride or kernel)
        weights = (beta * windows).masked_fill(inside.view(1, 1, kernel * kernel, -1) == 0, -math.inf)
    else:
        weights = beta * windows
    return (windows * weights.softmax(2)).sum(2).view(batch, channels, *size)


class MinPool2d(nn.Module):
    """The least value of each window of an image's channels, see :func:`min_pool2d`.

    Args:
        kernel: Places of a window along each axis.
        stride: From a window to the next; None: the kernel.
        padding: Places around the image, at most half the kernel.

    Reference: Serra 1982, Chapter 2.
    """

    def __init__(self, kernel: int, *, stride: int | None = None, padding: int = 0) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def forward(self, x: Images) -> Pooled:
        """The pooled images."""
        return min_pool2d(x, self.kernel, stride=self.stride, padding=self.padding)


class SoftmaxPool2d(nn.Module):
    """The softmax-weighted mean of each window, see :func:`softmax_pool2d`; its beta is a parameter.

    Args:
        kernel: Places of a window along each axis.
        beta: Where the inverse temperature begins.
        stride: From a window to the next; None: the kernel.
        padding: Places around the image, which no window counts; at most half the kernel.

    Raises:
        ValueError: The padding is more than half the kernel: a window would be empty.

    Reference: as :func:`softmax_pool2d`.
    """

    def __init__(
        self, kernel: int, *, beta: float = 1.0, stride: int | None = None, padding: int = 0
    ) -> None:
        super().__init__()
        if 2 * padding > kernel:
            raise ValueError(f"padding must be at most half the kernel: got {padding} for {kernel}")
        self.kernel, self.stride, self.padding = kernel, stride, padding
        self.beta = nn.Parameter(torch.tensor(float(beta)))

    def forward(self, x: Images) -> Pooled:
        """The pooled images."""
        return softmax_pool2d(x, self.beta, self.kernel, stride=self.stride, padding=self.padding)


class LocallyConnected2d(nn.Module):
    r"""A layer with the windows of a convolution and weights of its own at each place: nothing is shared.

    .. math:: y_{r,s,t} = b_{r,s,t} + \sum_{u,k,l} w_{r,u,k,l}^{(s,t)} x_{u,s+k,t+l}

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        out_channels: Channels of the output.
        kernel: Places of a window along each axis.
        stride: From a window to the next.
        padding: Zeros around the image.

    Raises:
        ValueError: The window does not fit.

    Reference: LeCun 1989 (local connections); Goodfellow, Bengio and Courville 2016, Equation 9.9.
    """

    def __init__(
        self,
        channels: int,
        image_size: Pair,
        *,
        out_channels: int = 8,
        kernel: int = 3,
        stride: int = 1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        self.size = tuple(output_size(n, Window(kernel, stride), padding=padding) for n in image_size)
        self.kernel, self.stride, self.padding = kernel, stride, padding
        taps, places = channels * kernel**2, math.prod(self.size)
        bound = taps**-0.5
        self.weight = nn.Parameter(torch.empty(places, out_channels, taps).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(places, out_channels).uniform_(-bound, bound))

    def forward(self, x: Images) -> Maps:
        """The images' outputs."""
        windows = F.unfold(x, self.kernel, padding=self.padding, stride=self.stride)
        y = torch.einsum("nkp,pok->nop", windows, self.weight) + self.bias.T
        return y.unflatten(2, self.size)

    @torch.no_grad()
    def tie(self, weight: Float[Tensor, "out channels kernel kernel"], bias: Float[Tensor, " out"]) -> None:
        """Give every place the weights of one convolution, which the layer then is."""
        self.weight.copy_(weight.flatten(1).expand_as(self.weight))
        self.bias.copy_(bias.expand_as(self.bias))


class Costs(NamedTuple):
    """What a layer costs: parameters, and products that are added up for one image."""

    parameters: int
    multiply_adds: int


def layer_costs(image_size: Pair, channels: int, out_channels: int, kernel: Pair) -> dict[str, Costs]:
    r"""Parameters and multiply-adds of three layers of one output: stride 1, no padding, with biases.

    Of an image m x n x c and K filters p x q the output is K x m' x n' with m' = m - p + 1, n' = n - q + 1:

    .. math:: K (pqc + 1), \qquad (pqc + 1)\, m'n'K, \qquad (mnc + 1)\, m'n'K

    parameters of a convolution, a locally connected and a fully connected layer.

    Args:
        image_size: m, n.
        channels: c.
        out_channels: K.
        kernel: p, q.

    Reference: Goodfellow, Bengio and Courville 2016, Section 9.2.
    """
    out = math.prod(output_size(n, Window(k)) for n, k in zip(image_size, kernel, strict=True)) * out_channels
    taps, whole = math.prod(kernel) * channels, math.prod(image_size) * channels
    return {
        "convolution": Costs(out_channels * (taps + 1), out * taps),
        "locally connected": Costs(out * (taps + 1), out * taps),
        "fully connected": Costs(out * (whole + 1), out * whole),
    }


class Arrangement(NamedTuple):
    """How a convolution lays its windows: stride, zeros around, dilation, groups; pairs by axis."""

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


class ConvolutionGradients(NamedTuple):
    """The gradients of a loss in what a convolution was given."""

    input: Images
    weight: Float[Tensor, "out group_channels height width"]
    bias: Float[Tensor, " out"]


def convolution_backward(
    x: Images, weight: Float[Tensor, "out group_channels kh kw"], gradient: Maps, layout: Arrangement
) -> ConvolutionGradients:
    r"""The backward pass of y = conv2d(x, weight) + bias as convolutions, from the gradient Delta = dL/dy.

    .. math:: \frac{dL}{dx} = \Delta * W \text{ (full)}, \qquad
        \frac{dL}{dW} = X \star \Delta \text{ (valid)}, \qquad \frac{dL}{db} = \sum \Delta

    y is a correlation, so dL/dx is a true convolution. With stride s, Delta first gets s - 1 zeros between
    its places; with dilation the kernel gets zeros between its taps, and of X star Delta every d-th place is
    W's.

    Args:
        x: What the layer was given.
        weight: Its weights.
        gradient: The gradient in its output.
        layout: Its stride, padding, dilation and groups.

    Reference: LeCun et al. 1989; Goodfellow, Bengio and Courville 2016, Equations 9.11 to 9.13.
    """
    (sh, sw), (ph, pw), (dh, dw), groups = layout
    batch, channels, height, width = x.shape
    out, _, kh, kw = weight.shape
    # zeros between the places, and behind the last, where the stride did not reach the padded image's end
    size = [n + 2 * p - d * (k - 1) for n, p, d, k in ((height, ph, dh, kh), (width, pw, dw, kw))]
    spread = gradient.new_zeros(batch, out, *size)
    spread[:, :, ::sh, ::sw] = gradient
    flipped = weight.flip(2, 3).view(groups, out // groups, channels // groups, kh, kw)
    flipped = flipped.transpose(1, 2).reshape(channels, out // groups, kh, kw)
    full = (dh * (kh - 1), dw * (kw - 1))
    by_input = F.conv2d(spread, flipped, padding=full, dilation=(dh, dw), groups=groups)
    by_input = by_input[:, :, ph : ph + height, pw : pw + width]
    padded = F.pad(x, (pw, pw, ph, ph))
    images = padded.view(batch, groups, channels // groups, *padded.shape[2:]).permute(1, 2, 0, 3, 4)
    deltas = spread.view(batch, groups, out // groups, *size).permute(1, 2, 0, 3, 4)
    by_weight = [
        F.conv2d(image, delta)[:, :, ::dh, ::dw].transpose(0, 1)  # batch in the place of channels
        for image, delta in zip(images, deltas, strict=True)
    ]
    return ConvolutionGradients(by_input, torch.cat(by_weight), gradient.sum((0, 2, 3)))
