r"""Implicit models (Mohamed and Lakshminarayanan 2016): x = F_theta(z), z ~ N(0, I), known by samples alone.

There is no density to ask for. Where F is affine, x = A z + b, the law is N(b, A A^T).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.generative.autoencoder.distributions import slerp


def given(noise: int, num_classes: int = 0) -> int:
    """How many numbers the network of an :class:`Implicit` is given: the noise, then one for each class.

    Raises:
        ValueError: There is no noise.
    """
    if noise < 1:
        raise ValueError(f"noise must be at least 1 number: got {noise}")
    return noise + num_classes


class Implicit(nn.Module):
    """The law of F(z), z ~ N(0, I): noise pushed through a network, told the class where there are classes.

    Args:
        network: F, of ``noise + num_classes`` numbers: the noise, then a 1 at the class and 0 elsewhere.
        noise: Numbers of z, at least 1.
        num_classes: Classes that it is told; 0 for none.
        bounds: Between which numbers its samples lie by construction; None for any.

    Raises:
        ValueError: There is no noise.

    Reference:
        Mohamed and Lakshminarayanan 2016, Section 2; Mirza and Osindero 2014, Section 3.2 (the class).
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        noise: int,
        num_classes: int = 0,
        bounds: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        given(noise, num_classes)
        self.network = network
        self.noise = noise
        self.num_classes = num_classes
        self.bounds = bounds

    def forward(
        self, z: Float[Tensor, "batch noise"], labels: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, " batch *features"]:
        """F(z), of the classes ``labels`` where there are classes.

        Raises:
            ValueError: Labels are missing, or there are no classes for them.
        """
        if (labels is None) != (self.num_classes == 0):
            raise ValueError(f"labels are for models with classes: got {self.num_classes} classes, {labels}")
        if labels is not None:
            z = torch.cat((z, F.one_hot(labels.long(), self.num_classes).to(z)), 1)
        return self.network(z)

    def draw(self, count: int, generator: Generator) -> Float[Tensor, "count noise"]:
        """``count`` draws of z."""
        return torch.randn(count, self.noise, generator=generator).to(next(self.parameters()))

    def path(self, count: int, generator: Generator) -> Float[Tensor, "count noise"]:
        """``count`` points of the noise on the great circle from one draw to another."""
        first, second = self.draw(2, generator)
        return slerp(first, second, torch.linspace(0, 1, count).to(first))
