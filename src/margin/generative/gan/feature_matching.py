r"""Feature matching (Salimans et al. 2016): the generator brings the critic's mean features to the data's.

.. math:: \|E_{x \sim p} f(x) - E_z f(G(z))\|_2^2
"""

from jaxtyping import Float
from torch import Tensor


def feature_matching(
    real: Float[Tensor, "real features"],
    fake: Float[Tensor, "fake features"],
    weight: Float[Tensor, " real"] | None = None,
) -> Float[Tensor, ""]:
    """The squared distance of the mean features of real and of generated examples.

    Args:
        real: Features of real examples.
        fake: Features of generated ones.
        weight: How much each real example counts; None for 1.

    Reference: Salimans et al. 2016, Section 3.1.
    """
    mean = real.mean(0) if weight is None else weight.to(real) @ real / weight.sum().to(real)
    return (mean - fake.mean(0)).square().sum()
