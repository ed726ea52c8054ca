"""Distributions of a variational autoencoder: normal codes, and the likelihood of an input given its code.

Normal codes have a divergence from N(0, I) in closed form and a draw that a gradient passes through (Kingma
and Welling 2014); the path between two of them is a great circle (Shoemake 1985): Gaussian noise in many
dimensions lies near a sphere, which the straight segment between two draws leaves. Likelihoods are
independent normal values of one noise, or independent bits, whose inputs must lie in [0, 1].
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import unseen

Codes = Float[Tensor, "batch code"]


def divergence_by_coordinate(mean: Codes, log_scale: Codes) -> Codes:
    r"""The divergence KL(N(mu, s^2) || N(0, 1)) of each coordinate, in nats; 0 iff mu = 0, s = 1.

    .. math:: \tfrac12 (\mu^2 + s^2 - \ln s^2 - 1)

    Args:
        mean: mu.
        log_scale: log s.

    Reference: Kingma and Welling 2014, Appendix B.
    """
    # s^2 - 1 - log s^2 by expm1: the difference of numbers near 1 would lose all digits near s = 1
    return (mean.square() + torch.expm1(2 * log_scale) - 2 * log_scale) / 2


def divergence(mean: Codes, log_scale: Codes) -> Float[Tensor, " batch"]:
    """The divergence KL(N(mu, diag s^2) || N(0, I)) of each code, in nats: the sum over its coordinates.

    Args:
        mean: mu.
        log_scale: log s.

    Reference: Kingma and Welling 2014, Appendix B.
    """
    return divergence_by_coordinate(mean, log_scale).sum(1)


def full_divergence(mean: Codes, covariance: Float[Tensor, "batch code code"]) -> Float[Tensor, " batch"]:
    r"""The divergence KL(N(mu, S) || N(0, I)) of each code, in nats.

    .. math:: \tfrac12 (\|\mu\|^2 + \operatorname{tr} S - \log |S| - m)

    Args:
        mean: mu.
        covariance: S, positive definite.

    Raises:
        ValueError: A covariance is not positive definite.

    Reference: Kingma and Welling 2014, Appendix B (there of a diagonal S).
    """
    factor, info = torch.linalg.cholesky_ex(covariance)
    if bool(info.any()):
        raise ValueError(
            f"a covariance must be positive definite: got one that is not at {int(info.argmax())}"
        )
    log_determinant = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    trace = covariance.diagonal(dim1=1, dim2=2).sum(1)
    return (mean.square().sum(1) + trace - log_determinant - mean.shape[1]) / 2


def noise_like(x: Tensor, generator: Generator) -> Tensor:
    """Standard normal numbers in the shape, type and place of ``x``, drawn where the generator is."""
    return torch.randn(x.shape, generator=generator, device=generator.device, dtype=x.dtype).to(x.device)


def reparametrized(mean: Codes, log_scale: Codes, generator: Generator) -> Codes:
    """A draw z = mu + s eps, eps ~ N(0, I), of each code: a gradient passes to mu and s.

    Args:
        mean: mu.
        log_scale: log s.
        generator: Where eps is drawn from.

    Reference: Kingma and Welling 2014, Section 2.4.
    """
    return mean + log_scale.exp() * noise_like(mean, generator)


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


def noise_path(
    first: Float[Tensor, "*shape"], last: Float[Tensor, "*shape"], count: int
) -> Float[Tensor, " count *shape"]:
    """``count`` points from one draw of noise to another, both included.

    They lie on the great circle of the two; of a single number, which has no circle, on the segment.
    """
    t = torch.linspace(0, 1, count).to(first)
    if first.numel() > 1:
        return slerp(first, last, t)
    return torch.lerp(first, last, t.reshape(-1, *(1,) * first.ndim))


EDGE = 1e-6
"""How far rounding may carry a number out of [0, 1]."""


def unit_inputs(x: Float[Tensor, "*shape"], what: str) -> Float[Tensor, "*shape"]:
    """The inputs themselves, checked to lie in [0, 1].

    Inside of torch.func.vmap or a compiled graph no value can be looked at, and none is.

    Args:
        x: The inputs.
        what: What needs them, as a message calls it.

    Raises:
        ValueError: A number is outside of [0, 1], or NaN.
    """
    if x.numel() == 0 or unseen(x):
        return x
    low, high = (float(end) for end in x.detach().aminmax())
    if not (low >= -EDGE and high <= 1 + EDGE):
        raise ValueError(
            f"{what} needs inputs in [0, 1]: got from {low:.3g} to {high:.3g}; train with --scale unit"
        )
    return x


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
