"""Linear decoders with even normal noise: likelihood, posterior and ELBO in closed form (Tipping 1999)."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import LowRankMultivariateNormal

from margin.generative.autoencoder.gaussian_codes import full_divergence

Rows = Float[Tensor, "batch dim"]
Weight = Float[Tensor, "dim code"]
Bias = Float[Tensor, " dim"]
Scalar = Float[Tensor, ""]
Means = Float[Tensor, "batch code"]
Covariances = Float[Tensor, "batch code code"]
PerExample = Float[Tensor, " batch"]


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
