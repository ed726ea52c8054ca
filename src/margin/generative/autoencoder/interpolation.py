r"""Paths between two points of a latent space: on the sphere where its law is Gaussian (Shoemake 1985).

Gaussian noise in many dimensions lies near a sphere; the straight segment between two draws leaves it.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def slerp(
    first: Float[Tensor, "*shape"], second: Float[Tensor, "*shape"], t: Float[Tensor, " count"]
) -> Float[Tensor, " count *shape"]:
    r"""Points on the great circle through two: t = 0 is the first, t = 1 the second.

    .. math:: \frac{\sin((1 - t) \omega)}{\sin \omega} a + \frac{\sin(t \omega)}{\sin \omega} b

    omega is the angle between them, over all axes. Between two of one norm every point has that norm; as
    omega goes to 0 the path becomes the segment, which it is between parallel ones.

    Args:
        first: a.
        second: b.
        t: Where on the path.

    Raises:
        ValueError: A point is 0 or not finite, or the two are opposite: then no circle is singled out.

    Reference: Shoemake 1985, Section 3.3.
    """
    a, b = first.flatten().double(), second.flatten().double()
    norms = a.norm(), b.norm()
    if not all(0 < float(norm) < math.inf for norm in norms):
        raise ValueError(f"slerp needs two finite points other than 0: got norms {norms[0]:g}, {norms[1]:g}")
    u, v = a / norms[0], b / norms[1]
    omega = 2 * torch.atan2((u - v).norm(), (u + v).norm())  # exact for small angles, unlike the arc cosine
    if math.pi - float(omega) < 1e-6:
        raise ValueError("slerp needs two points that are not opposite: got an angle of pi")
    s = t.double()
    # sin(s w) / sin w as s sinc(s w) / sinc w, which is right at w = 0
    there, back = (x * torch.sinc(x * omega / math.pi) / torch.sinc(omega / math.pi) for x in (s, 1 - s))
    path = back[:, None] * a + there[:, None] * b
    return path.to(first).reshape(len(t), *first.shape)
