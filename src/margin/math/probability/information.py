"""Entropy, cross-entropy, divergence and mutual information of finite laws (Shannon 1948).

A law lies on the last axis; the axes before it are a batch. Natural logarithms, nats, unless ``base`` says
otherwise. 0 log 0 = 0, and a divergence is infinite where the second law lacks support of the first.
Gradients are those of the formulas where every entry is above 0; at 0 their slope is infinite.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.probability.moments import check_law

Laws = Float[Tensor, "*batch outcomes"]
Joint = Float[Tensor, "*batch first second"]


def _unit(base: float) -> float:
    """One unit of information in nats: log base."""
    if not 1 < base < math.inf:
        raise ValueError(f"the base of a logarithm must be above 1: got base={base:g}")
    return math.log(base)


def entropy(p: Laws, *, base: float = math.e) -> Float[Tensor, "*batch"]:
    r"""The entropy of a finite law, at least 0 and at most log of the number of outcomes.

    .. math:: H(p) = -\sum_i p_i \log p_i

    Args:
        p: Probabilities.
        base: Base of the logarithm; 2 gives bits.

    Raises:
        ValueError: ``p`` is no law, or the base is not above 1.

    Reference: Cover and Thomas 2006, Definition 2.1 and Theorem 2.6.4.
    """
    check_law(p)
    return torch.special.entr(p).sum(-1) / _unit(base)


def cross_entropy(p: Laws, q: Laws, *, base: float = math.e) -> Float[Tensor, "*batch"]:
    r"""The mean code length of outcomes of p under a code for q.

    .. math:: H(p, q) = -\sum_i p_i \log q_i = H(p) + \mathrm{KL}(p \| q)

    Args:
        p: Probabilities of the outcomes.
        q: Probabilities that the code takes for them.
        base: Base of the logarithm; 2 gives bits.

    Returns:
        The cross-entropy; infinite where q gives 0 to an outcome of p.

    Raises:
        ValueError: ``p`` or ``q`` is no law, or the base is not above 1.

    Reference: Cover and Thomas 2006, Theorem 5.4.3.
    """
    check_law(p, name="p")
    check_law(q, name="q")
    return -torch.xlogy(p, q).sum(-1) / _unit(base)


def divergence(p: Laws, q: Laws, *, base: float = math.e) -> Float[Tensor, "*batch"]:
    r"""The Kullback-Leibler divergence of p from q: at least 0, and 0 only where p = q.

    .. math:: \mathrm{KL}(p \| q) = \sum_i p_i \log \frac{p_i}{q_i}

    Not symmetric. ``torch.nn.functional.kl_div(log_q, p)`` takes the logarithm of the second law first.

    Args:
        p: Probabilities of the outcomes.
        q: Probabilities they are compared with.
        base: Base of the logarithm; 2 gives bits.

    Returns:
        The divergence; infinite where q gives 0 to an outcome of p.

    Raises:
        ValueError: ``p`` or ``q`` is no law, or the base is not above 1.

    Reference: Kullback and Leibler 1951; Cover and Thomas 2006, Theorem 2.6.3.
    """
    check_law(p, name="p")
    check_law(q, name="q")
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1) / _unit(base)


def jensen_shannon(p: Laws, q: Laws, *, base: float = math.e) -> Float[Tensor, "*batch"]:
    r"""The Jensen-Shannon divergence: from 0, only where p = q, to log 2, where they share no outcome.

    .. math:: \mathrm{JS}(p, q) = \tfrac12 \mathrm{KL}(p \| m) + \tfrac12 \mathrm{KL}(q \| m)
        = H(m) - \tfrac12 (H(p) + H(q)), \qquad m = \tfrac12 (p + q)

    Symmetric, and never infinite; its root is a metric.

    Args:
        p: Probabilities.
        q: Probabilities.
        base: Base of the logarithm; 2 gives bits, and a largest value of 1.

    Raises:
        ValueError: ``p`` or ``q`` is no law, or the base is not above 1.

    Reference: Lin 1991, Section IV (with equal weights).
    """
    check_law(p, name="p")
    check_law(q, name="q")
    m = (p + q) / 2
    return (divergence(p, m, base=base) + divergence(q, m, base=base)) / 2


def mutual_information(joint: Joint, *, base: float = math.e) -> Float[Tensor, "*batch"]:
    r"""What one of two variables says about the other: 0 where independent, at most the smaller entropy.

    .. math:: I(X; Y) = \mathrm{KL}(p_{XY} \| p_X p_Y) = H(X) - H(X | Y)

    Args:
        joint: P(X = i, Y = j) on the last two axes.
        base: Base of the logarithm; 2 gives bits.

    Raises:
        ValueError: ``joint`` is no law, or the base is not above 1.

    Reference: Cover and Thomas 2006, Equation 2.28 and Theorem 2.4.1.
    """
    check_law(joint, 2, "joint")
    first, second = joint.sum(-1, keepdim=True), joint.sum(-2, keepdim=True)
    # a logarithm each: the product of two small probabilities may underflow to 0
    terms = torch.xlogy(joint, joint) - torch.xlogy(joint, first) - torch.xlogy(joint, second)
    return terms.sum((-2, -1)) / _unit(base)


def gaussian_mutual_information(
    correlation: Float[Tensor, "*batch"], *, base: float = math.e
) -> Float[Tensor, "*batch"]:
    r"""The mutual information of two jointly Gaussian variables, infinite where one determines the other.

    .. math:: I(X; Y) = -\tfrac12 \log(1 - \rho^2)

    Args:
        correlation: rho, in [-1, 1].
        base: Base of the logarithm; 2 gives bits.

    Raises:
        ValueError: A correlation is out of range, or the base is not above 1.

    Reference: Cover and Thomas 2006, Example 8.5.1.
    """
    if not bool((correlation.abs() <= 1).all()):
        raise ValueError(f"a correlation must lie in [-1, 1]: got {correlation.tolist()}")
    return -torch.log1p(-correlation.square()) / (2 * _unit(base))
