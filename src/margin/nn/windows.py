"""Windows that slide over a signal: how many there are, and how much of the signal one sees.

One formula serves convolution, pooling and any number of axes: each is called for one axis (Dumoulin and
Visin 2016).
"""

from collections.abc import Iterable
from typing import NamedTuple


class Window(NamedTuple):
    """A window along one axis: its taps, steps between windows, and steps between its taps.

    Args:
        kernel: k >= 1, places that the window reads.
        stride: s >= 1, places from a window to the next.
        dilation: d >= 1, places from a tap to the next; the window spans d (k - 1) + 1.
    """

    kernel: int
    stride: int = 1
    dilation: int = 1

    @property
    def span(self) -> int:
        """The span d (k - 1) + 1: places from the first tap to the last, both counted."""
        return self.dilation * (self.kernel - 1) + 1


def output_size(size: int, window: Window, *, padding: int = 0) -> int:
    r"""How many windows fit along an axis, what torch's convolutions and poolings return.

    .. math:: \lfloor (n + 2p - d(k-1) - 1) / s \rfloor + 1

    A window of 2p + 1 without dilation gives n - 2p without padding ("valid") and n with padding p ("same").

    Args:
        size: n, places of the axis.
        window: The window.
        padding: p, places added on each side.

    Raises:
        ValueError: The window is longer than the padded axis, or a number is out of range.

    Reference: Dumoulin and Visin 2016, Relationship 15.
    """
    if min(window) < 1 or size < 0 or padding < 0:
        raise ValueError(f"a window needs kernel, stride and dilation >= 1: got {window}, padding {padding}")
    room = size + 2 * padding - window.span
    if room < 0:
        raise ValueError(
            f"a window must fit into the padded axis: it spans {window.span}, of {size} + 2 x {padding}"
        )
    return room // window.stride + 1


def receptive_field(windows: Iterable[Window]) -> int:
    r"""How many places of the input an output of a chain of windowed layers can depend on, along one axis.

    .. math:: R = 1 + \sum_l (k_l - 1)\, d_l \prod_{j < l} s_j

    Linear in each dilation; exponential in depth where the dilation or the product of strides doubles.

    Args:
        windows: The layers' windows, the first layer's first.

    Reference: Araujo, Norris and Sim 2019, Equation 2.
    """
    field, jump = 1, 1
    for window in windows:
        field += (window.span - 1) * jump
        jump *= window.stride
    return field
