"""Bounds on log p(x) by an encoder's guess: the ELBO and its importance-weighted forms (Burda et al. 2016).

Where the decoder is linear and its noise normal and even, the likelihood, the posterior and the ELBO have
closed forms (Tipping and Bishop 1999).
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.distributions import LowRankMultivariateNormal

from margin.core.types import Batch
from margin.generative.autoencoder.distributions import full_divergence, noise_like
from margin.generative.autoencoder.vae import VAE, Inputs, Labels, PerExample
from margin.nn.preprocessed import core_of, features_of

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


Rows = Float[Tensor, "batch dim"]
Weight = Float[Tensor, "dim code"]
Bias = Float[Tensor, " dim"]
Scalar = Float[Tensor, ""]
Means = Float[Tensor, "batch code"]
Covariances = Float[Tensor, "batch code code"]


def marginal_log_prob(x: Rows, W: Weight, b: Bias, noise: Scalar) -> PerExample:
    """Log N(x; b, W W^T + s^2 I), what z ~ N(0, I), x = W z + b + s eps says of each row, in nats.

    Args:
        x: Rows.
        W: The decoder's weight.
        b: Its bias.
        noise: The standard deviation s.

    Reference: Tipping and Bishop 1999, Equations 3 and 4.
    """
    law = LowRankMultivariateNormal(b, W, noise.square().expand(len(b)), validate_args=False)
    density: Tensor = law.log_prob(x)
    return density


def posterior(x: Rows, W: Weight, b: Bias, noise: Scalar) -> tuple[Means, Float[Tensor, "code code"]]:
    """Means M^-1 W^T (x - b) and covariance s^2 M^-1 of z given each row, M = W^T W + s^2 I.

    Reference: Tipping and Bishop 1999, Equations 5 and 6.
    """
    M = W.T @ W + noise.square() * torch.eye(W.shape[1]).to(W)
    return torch.linalg.solve(M, W.T @ (x - b).T).T, noise.square() * torch.linalg.inv(M)


def expected_bound(
    x: Rows, W: Weight, b: Bias, noise: Scalar, mean: Means, covariance: Covariances
) -> PerExample:
    r"""The ELBO of each row for any normal guess q = N(mu, S), with no draw, in nats.

    .. math:: \log N(x; W \mu + b, s^2 I) - \tfrac{1}{2 s^2} \operatorname{tr}(W S W^\top)
        - KL(N(\mu, S) \| N(0, I))

    Args:
        x: Rows.
        W: The decoder's weight.
        b: Its bias.
        noise: The standard deviation s.
        mean: mu of each row.
        covariance: S of each row.

    Reference: Kingma and Welling 2014, Equation 3, of a linear decoder.
    """
    residual = x - mean @ W.T - b
    spread = ((W.T @ W) * covariance).sum((1, 2))
    log_density = torch.distributions.Normal(0.0, noise, validate_args=False).log_prob(residual).sum(1)
    return log_density - spread / (2 * noise.square()) - full_divergence(mean, covariance)
