r"""Wide random networks: how lengths, angles and gradients pass from layer to layer (Poole et al. 2016).

With weights drawn independently with mean 0 and variance :math:`\sigma_w^2 / n` and biases of variance
:math:`\sigma_b^2`, the pre-activations of an infinitely wide layer are Gaussian. Their variance q obeys the
length map; :math:`\chi_1` is the factor by which a small difference of inputs, and a squared gradient, grows
in a layer (Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017). Everything is computed in float64.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Activation = Callable[[Tensor], Tensor]
Numbers = Float[Tensor, "*batch"]

REACH = 10.0
"""Standard deviations to which a Gaussian is integrated: beyond lies 1.5e-23."""

LARGEST = 1e12
"""A length that grows beyond it has no fixed point."""


@cache
def _nodes(panels: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of a mean over a standard Gaussian, on equal panels that meet at 0."""
    points, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(16))
    width = 2 * REACH / panels
    starts = -REACH + width * torch.arange(panels, dtype=torch.float64)
    z = (starts[:, None] + width * (points + 1) / 2).flatten()
    density = (-z.square() / 2).exp() / math.sqrt(2 * math.pi)
    return z, weights.repeat(panels) * width / 2 * density


def gaussian_mean(g: Activation, q: Numbers, *, panels: int = 64) -> Numbers:
    r"""The mean of g(u) for u Gaussian of mean 0 and variance q.

    By the Gauss-Legendre rule on panels that meet at 0, where activations bend. The Gauss-Hermite rule is as
    good where g is smooth and slow where it is steep: its error for tanh at q = 100 is 1e-4 with 256 nodes.

    Args:
        g: Elementwise.
        q: Variances, at least 0.
        panels: Into how many parts 20 standard deviations are cut; even.
    """
    z, weights = _nodes(panels)
    q = torch.as_tensor(q, dtype=torch.float64)
    return (g(q[..., None].sqrt() * z) * weights).sum(-1)


def slope_of(phi: Activation) -> Activation:
    """The derivative of an elementwise function, by automatic differentiation."""

    def slope(u: Tensor) -> Tensor:
        with torch.enable_grad():
            u = u.detach().requires_grad_()
            (found,) = torch.autograd.grad(phi(u).sum(), u)
        return found

    return slope


def next_length(phi: Activation, q: Numbers, sigma_w: float, sigma_b: float) -> Numbers:
    r"""The variance of the next layer's pre-activations.

    .. math:: q^{l+1} = \sigma_w^2\, \mathbb{E}[\varphi(\sqrt{q^l} z)^2] + \sigma_b^2

    Args:
        phi: The activation, elementwise.
        q: Variances of this layer's pre-activations.
        sigma_w: Root of width times the variance of a weight, at least 0.
        sigma_b: Standard deviation of a bias, at least 0.

    Raises:
        ValueError: A standard deviation is negative or not finite.

    Reference: Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Equation 3.
    """
    for name, value in (("sigma_w", sigma_w), ("sigma_b", sigma_b)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and at least 0: got {value}")
    return sigma_w**2 * gaussian_mean(lambda u: phi(u).square(), q) + sigma_b**2


def fixed_length(phi: Activation, sigma_w: float, sigma_b: float) -> float:
    r"""The length :math:`q^*` to which the length map leads from q = 1; infinite where lengths explode.

    Args:
        phi: The activation, elementwise.
        sigma_w: Root of width times the variance of a weight.
        sigma_b: Standard deviation of a bias.

    Raises:
        ValueError: Every length is kept, as by ReLU with sigma_w^2 = 2 and sigma_b = 0 (He et al. 2015).

    Reference: Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Section 3.
    """
    from scipy.optimize import brentq

    def change(q: float) -> float:
        return float(next_length(phi, torch.tensor(q, dtype=torch.float64), sigma_w, sigma_b)) - q

    if abs(change(1.0)) <= 1e-12 and abs(change(4.0)) <= 4e-12:
        raise ValueError("every length is kept: the length map has no fixed point of its own")
    # From 1 the map moves monotonically to the first fixed point on its way.
    q, up = 1.0, change(1.0) > 0
    while (change(q) > 0) == up:
        if not 1 / LARGEST < q < LARGEST:
            return math.inf if up else 0.0
        q = 2 * q if up else q / 2
    return float(brentq(change, *sorted((q, q / 2 if up else 2 * q)), xtol=1e-15, rtol=1e-14))


def chi(phi: Activation, q: Numbers, sigma_w: float) -> Numbers:
    r"""The factor by which a small squared difference, and a squared gradient, grows in a layer.

    .. math:: \chi_1 = \sigma_w^2\, \mathbb{E}[\varphi'(\sqrt{q} z)^2]

    Below 1 differences vanish and gradients vanish; above 1 both explode; at 1 lies the critical line.

    Args:
        phi: The activation, elementwise; where it bends its slope is torch's.
        q: Variances of the pre-activations.
        sigma_w: Root of width times the variance of a weight.

    Reference: Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Equation 6; Schoenholz, Gilmer, Ganguli
    and Sohl-Dickstein 2017, Section 4 (gradients).
    """
    slope = slope_of(phi)
    return sigma_w**2 * gaussian_mean(lambda u: slope(u).square(), q)


def depth_scale(factor: Numbers) -> Numbers:
    r"""The number of layers in which what is multiplied by :math:`\chi` in each shrinks or grows e-fold.

    .. math:: \xi = |1 / \log \chi|

    For :math:`\chi_1 < 1` it is the depth scale of correlations and, for either sign, that of gradients.

    Args:
        factor: Above 0; at 1 the scale is infinite.

    Raises:
        ValueError: A factor is not above 0.

    Reference: Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Sections 3 and 4.
    """
    factor = torch.as_tensor(factor, dtype=torch.float64)
    if not bool((factor > 0).all()):
        raise ValueError(f"a factor must be above 0: got {float(factor.min()):g}")
    return 1 / factor.log().abs()


def critical_point(phi: Activation, q: Numbers) -> tuple[Numbers, Numbers]:
    r"""The point :math:`(\sigma_w, \sigma_b)` of the critical line at which the fixed length is q.

    .. math:: \sigma_w^2 = 1 / \mathbb{E}[\varphi'(\sqrt{q} z)^2], \qquad
        \sigma_b^2 = q - \sigma_w^2\, \mathbb{E}[\varphi(\sqrt{q} z)^2]

    Args:
        phi: The activation, elementwise.
        q: The fixed length, above 0: as it grows one moves along the line.

    Returns:
        Both standard deviations; NaN for sigma_b where no bias gives this length.

    Reference: Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Section 3.
    """
    q = torch.as_tensor(q, dtype=torch.float64)
    variance = 1 / chi(phi, q, 1.0)
    rest = q - variance * gaussian_mean(lambda u: phi(u).square(), q)
    # What rounding leaves of a difference that is 0, as for ReLU, is no missing bias.
    rest = torch.where(rest.abs() <= 1e-12 * q, 0.0, rest)
    return variance.sqrt(), rest.sqrt()


def pair_mean(g: Activation, q: Numbers, c: Numbers, *, panels: int = 32) -> Numbers:
    r"""The mean of g(u) g(v) for u, v Gaussian of mean 0, variance q and correlation c.

    Args:
        g: Elementwise.
        q: Variances.
        c: Correlations, in [-1, 1], of the shape of q.
        panels: As in :func:`gaussian_mean`.

    Raises:
        ValueError: A correlation is out of range.
    """
    q, c = torch.as_tensor(q, dtype=torch.float64), torch.as_tensor(c, dtype=torch.float64)
    if not bool((c.abs() <= 1).all()):
        raise ValueError("a correlation must lie in [-1, 1]")
    z, weights = _nodes(panels)
    root, c = q[..., None].sqrt(), c[..., None, None]
    u = root * z
    v = root[..., None] * (c * z[:, None] + (1 - c.square()).sqrt() * z)
    return ((g(v) * weights).sum(-1) * g(u) * weights).sum(-1)


def next_correlation(phi: Activation, c: Numbers, q: Numbers, sigma_w: float, sigma_b: float) -> Numbers:
    r"""The correlation of two inputs' pre-activations in the next layer, at a fixed length q.

    .. math:: c^{l+1} = \frac{\sigma_w^2\, \mathbb{E}[\varphi(u) \varphi(v)] + \sigma_b^2}{q}

    It keeps c = 1, where its slope is :math:`\chi_1`.

    Args:
        phi: The activation, elementwise.
        c: Correlations, in [-1, 1].
        q: The fixed length.
        sigma_w: Root of width times the variance of a weight.
        sigma_b: Standard deviation of a bias.

    Reference: Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Equation 5.
    """
    return (sigma_w**2 * pair_mean(phi, q, c) + sigma_b**2) / torch.as_tensor(q, dtype=torch.float64)


def correlation_slope(phi: Activation, c: Numbers, q: Numbers, sigma_w: float) -> Numbers:
    r"""The slope of the correlation map, :math:`\sigma_w^2\, \mathbb{E}[\varphi'(u) \varphi'(v)]`.

    At the fixed correlation it is the factor by which a distance from it shrinks: :func:`depth_scale` of it
    is the depth to which two inputs can be told apart, :math:`\xi_c`.

    Reference: Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Section 3.
    """
    return sigma_w**2 * pair_mean(slope_of(phi), q, c)
