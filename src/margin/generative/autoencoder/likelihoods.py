"""What a decoder's numbers say of an input: independent normal values of one noise, or independent bits."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.generative.autoencoder.gaussian_codes import noise_like
from margin.generative.autoencoder.unit_interval import unit_inputs

Values = Float[Tensor, "batch *shape"]
PerExample = Float[Tensor, " batch"]
Decoder = Literal["gaussian", "bernoulli"]


class GaussianValues(nn.Module):
    r"""The law N(output, s^2 I) of an input given its code; one s for all, learned with the rest.

    .. math:: \log p(x|z) = -\tfrac{1}{2 s^2} \|x - \mathrm{output}\|^2 - d \log s - \tfrac d2 \log 2\pi

    A fixed s would weigh the reconstruction against the code by fiat; at the optimum s^2 is the mean squared
    error. Where the training examples can be reconstructed without error the likelihood has no bound.

    Reference:
        Kingma and Welling 2014, Appendix C.2; Rybkin, Daniilidis and Levine 2021, Section 3 (one shared s).
    """

    def __init__(self) -> None:
        super().__init__()
        self.log_noise = nn.Parameter(torch.zeros(()))

    def observed(self, x: Values, generator: Generator) -> Values:
        """The input whose likelihood is asked: the input as it is."""
        return x

    def log_prob(self, output: Values, x: Values) -> PerExample:
        """The log-density of each input, in nats."""
        scaled = (x - output).flatten(1) * torch.exp(-self.log_noise)
        return -(scaled.square() / 2 + self.log_noise + math.log(2 * math.pi) / 2).sum(1)

    def mean(self, output: Values) -> Values:
        """The mean of the input given its code."""
        return output

    def draw(self, output: Values, generator: Generator) -> Values:
        """An input drawn given its code."""
        return output + self.log_noise.exp() * noise_like(output, generator)


class BernoulliPixels(nn.Module):
    """The law of independent bits, each 1 with probability sigmoid(output).

    A grey pixel is the probability with which its bit is 1: the bits of an input are drawn when its
    likelihood is asked, afresh at each step of a training. The cross-entropy of grey pixels themselves is no
    log-likelihood.

    Reference:
        Kingma and Welling 2014, Appendix C.1; Salakhutdinov and Murray 2008, Section 5 (bits from grey).
    """

    def observed(self, x: Values, generator: Generator) -> Values:
        """Bits drawn with the pixels as probabilities; a bit stays what it is.

        Raises:
            ValueError: A pixel is outside of [0, 1], or NaN.
        """
        x = unit_inputs(x, "a Bernoulli decoder")
        uniform = torch.rand(x.shape, generator=generator, device=generator.device, dtype=x.dtype)
        return (uniform.to(x.device) < x).to(x.dtype)

    def log_prob(self, output: Values, x: Values) -> PerExample:
        """The log-probability of each input of bits, in nats."""
        return -F.binary_cross_entropy_with_logits(output, x, reduction="none").flatten(1).sum(1)

    def mean(self, output: Values) -> Values:
        """The probability that each bit is 1."""
        return output.sigmoid()

    def draw(self, output: Values, generator: Generator) -> Values:
        """Bits drawn given their code."""
        return self.observed(output.sigmoid(), generator)


Likelihood = GaussianValues | BernoulliPixels


def likelihood_of(name: str) -> Likelihood:
    """The law of that name.

    Raises:
        ValueError: There is none of that name.
    """
    if name == "gaussian":
        return GaussianValues()
    if name == "bernoulli":
        return BernoulliPixels()
    raise ValueError(f"decoder must be gaussian or bernoulli: got {name!r}")
