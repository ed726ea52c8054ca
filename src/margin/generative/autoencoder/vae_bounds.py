"""Bounds on log p(x) by an encoder's guess: the ELBO and its importance-weighted forms (Burda 2016)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.generative.autoencoder.gaussian_codes import noise_like
from margin.generative.autoencoder.vae import VAE
from margin.nn.preprocessed import core_of, features_of

PerExample = Float[Tensor, " batch"]
Inputs = Float[Tensor, "batch *shape"]
Labels = Int[Tensor, " batch"]

ROWS = 20_000
"""Pairs of an input and a code that are decoded at once, at most."""


def negative_elbo(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
    """-(E_q[log p(x|z)] - beta KL) of each example by one draw of its code: -ELBO where beta = 1, in nats."""
    core: VAE = core_of(model)
    label = batch.targets if core.num_classes else None
    return -core.objective_of(features_of(model, batch.inputs[0]), core.beta, generator, label)


def log_weights(
    core: VAE, x: Inputs, count: int, generator: Generator, label: Labels | None = None
) -> Float[Tensor, "count batch"]:
    """Log p(x, z) - log q(z|x) at ``count`` draws of each input's code, in nats; bits must be drawn already.

    Args:
        core: The model.
        x: Observed inputs.
        count: Codes drawn for each.
        generator: Where they are drawn from.
        label: Labels, for p(x, z|label).

    Reference: Burda, Grosse and Salakhutdinov 2016, Equation 8.
    """
    mean, log_scale = core.posterior(x)
    eps = noise_like(mean.expand(count, *mean.shape), generator)
    z = mean + log_scale.exp() * eps
    rows = x.expand(count, *x.shape).flatten(0, 1)
    labels = None if label is None else label.repeat(count)
    log_likelihood = core.log_likelihood(rows, z.flatten(0, 1), labels).unflatten(0, (count, len(x)))
    # the normalizations of p(z) and q(z|x) cancel
    return log_likelihood + ((eps.square() - z.square()) / 2 + log_scale).sum(2)


def all_log_weights(
    core: VAE, x: Inputs, count: int, generator: Generator, label: Labels | None = None
) -> Float[Tensor, "count batch"]:
    """:func:`log_weights`, a piece of at most :data:`ROWS` pairs at a time."""
    sizes = pieces(count, len(x))
    return torch.cat([log_weights(core, x, size, generator, label) for size in sizes])


def pieces(count: int, batch: int) -> list[int]:
    """Numbers that sum to ``count``, of at most ``ROWS / batch`` each, at least 1.

    Raises:
        ValueError: The count is not positive.
    """
    if count < 1:
        raise ValueError(f"the number of draws must be at least 1: got {count}")
    size = max(1, ROWS // batch)
    return [size] * (count // size) + ([count % size] if count % size else [])


def importance_bound(
    core: VAE, x: Inputs, count: int, generator: Generator, label: Labels | None = None
) -> PerExample:
    r"""The importance-weighted bound of each input, whose expectation rises with k to log p(x), in nats.

    .. math:: \log \frac1k \sum_{i=1}^k \frac{p(x, z_i)}{q(z_i|x)}, \qquad z_i \sim q(z|x)

    Codes are drawn and forgotten piece by piece, so that memory does not grow with k.

    Args:
        core: The model.
        x: Observed inputs; bits must be drawn already.
        count: k; 1 gives the ELBO by one draw.
        generator: Where codes are drawn from.
        label: Labels, for log p(x|label).

    Raises:
        ValueError: The count is not positive.

    Reference: Burda, Grosse and Salakhutdinov 2016, Equation 8 and Theorem 1.
    """
    total = torch.full((), -torch.inf)
    for size in pieces(count, len(x)):
        found = log_weights(core, x, size, generator, label).logsumexp(0)
        total = torch.logaddexp(total.to(found), found)
    return total - math.log(count)


def elbo(core: VAE, x: Inputs, count: int, generator: Generator, label: Labels | None = None) -> PerExample:
    """The ELBO of each input: the likelihood's mean over ``count`` draws, less the divergence in closed form.

    Args:
        core: The model.
        x: Observed inputs; bits must be drawn already.
        count: Codes drawn for each.
        generator: Where they are drawn from.
        label: Labels, for log p(x|label).

    Reference: Kingma and Welling 2014, Equation 7.
    """
    return core.objective_of(x, 1.0, generator, label, count)
