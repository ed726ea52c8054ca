"""Codes with a normal law: divergence from the standard normal, draws that carry a gradient (Kingma 2014)."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

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
