"""Moment generating functions M(t) = E exp(t X) (Casella and Berger 2002, Section 2.3).

Where M exists near 0 its derivatives there are the moments and it determines the law; laws without one, the
log-normal for instance, can share all their moments with others. Where the mean is infinite, so is M.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Function = Callable[[Tensor], Tensor]


def _check(holds: bool, rule: str, value: float) -> None:
    if not holds:
        raise ValueError(f"{rule}: got {value:g}")


def bernoulli(t: Float[Tensor, "*batch"], p: float) -> Float[Tensor, "*batch"]:
    """M(t) = p e^t + 1 - p of one trial that succeeds with probability ``p``."""
    _check(0 <= p <= 1, "a probability must lie in [0, 1]", p)
    return p * t.exp() + 1 - p


def binomial(t: Float[Tensor, "*batch"], n: int, p: float) -> Float[Tensor, "*batch"]:
    """M(t) = (p e^t + 1 - p)^n of the number of successes in ``n`` independent trials."""
    _check(n >= 0, "the number of trials must be >= 0", n)
    return bernoulli(t, p) ** n


def normal(t: Float[Tensor, "*batch"], mu: float, variance: float) -> Float[Tensor, "*batch"]:
    """M(t) = exp(mu t + variance t^2 / 2) of a normal variable."""
    _check(variance >= 0, "a variance must be >= 0", variance)
    return (mu * t + variance * t.square() / 2).exp()


def multivariate_normal(
    t: Float[Tensor, "*batch dim"], mu: Float[Tensor, " dim"], covariance: Float[Tensor, "dim dim"]
) -> Float[Tensor, "*batch"]:
    """M(t) = exp(mu . t + t^T S t / 2) of a normal vector."""
    return (t @ mu + ((t @ covariance) * t).sum(-1) / 2).exp()


def gamma(t: Float[Tensor, "*batch"], shape: float, scale: float) -> Float[Tensor, "*batch"]:
    """M(t) = (1 - scale t)^-shape of a gamma variable for t < 1 / scale; infinite from there on."""
    _check(shape > 0, "a shape must be > 0", shape)
    _check(scale > 0, "a scale must be > 0", scale)
    rest = 1 - scale * t
    finite = rest > 0
    # the inner where keeps the gradient of the finite branch free of NaN
    return torch.where(finite, torch.where(finite, rest, 1.0) ** -shape, torch.inf)


def poisson(t: Float[Tensor, "*batch"], rate: float) -> Float[Tensor, "*batch"]:
    """M(t) = exp(rate (e^t - 1)) of a Poisson variable."""
    _check(rate >= 0, "a rate must be >= 0", rate)
    return (rate * torch.expm1(t)).exp()


def moments(mgf: Function, order: int) -> Float[Tensor, " order"]:
    """E X, E X^2, ..., E X^order: the derivatives of ``mgf`` at 0, by automatic differentiation in float64.

    Args:
        mgf: A function of a scalar tensor that exists near 0.
        order: How many moments, at least 1.

    Raises:
        ValueError: ``order`` is less than 1, or M(0) is not 1: the function is none of a law.
    """
    _check(order >= 1, "the order must be >= 1", order)
    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    value = mgf(t)
    at_zero = float(value.detach())
    _check(abs(at_zero - 1) <= 1e-9, "a moment generating function is 1 at 0", at_zero)
    found = []
    for _ in range(order):
        if not value.requires_grad:  # a constant: all further derivatives are 0
            found.append(torch.zeros_like(t))
            continue
        (value,) = torch.autograd.grad(value, t, create_graph=True, materialize_grads=True)
        found.append(value)
    return torch.stack(found).detach()


def of_sum(mgfs: Sequence[Function], coefficients: Sequence[float]) -> Function:
    r"""The generating function of a linear combination of independent variables, of whatever laws.

    .. math:: M_{\sum_i a_i X_i}(t) = \prod_i M_i(a_i t)

    Args:
        mgfs: The M_i.
        coefficients: The a_i.

    Raises:
        ValueError: There is not one coefficient a function.

    Reference: Casella and Berger 2002, Theorem 4.2.12.
    """
    if len(mgfs) != len(coefficients) or not mgfs:
        raise ValueError(f"one coefficient a function: got {len(coefficients)} for {len(mgfs)}")

    def product(t: Tensor) -> Tensor:
        return torch.stack([mgf(a * t) for mgf, a in zip(mgfs, coefficients, strict=True)]).prod(0)

    return product
