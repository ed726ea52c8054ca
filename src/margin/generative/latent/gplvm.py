"""The Gaussian-process latent-variable model (Lawrence 2005): features are functions of unseen codes."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import GradientUpdate, State, Step
from margin.engine.weighted_rows import batch_rows

Latents = Float[Tensor, "rows code"]
Examples = Float[Tensor, "rows dim"]
PerRow = Float[Tensor, " batch"]
Kernel = Literal["rbf", "linear"]

MOST = 3000
"""Training examples at most: a step takes time n^3."""


def negative_log_likelihood(Y: Examples, K: Float[Tensor, "rows rows"]) -> Float[Tensor, ""]:
    r"""Minus the log-density of features that are independent draws of N(0, K), in nats.

    .. math:: \tfrac{d}{2} \log |K| + \tfrac12 \mathrm{tr}(K^{-1} Y Y^\top) + \tfrac{n d}{2} \log 2\pi

    Args:
        Y: n examples of d features.
        K: Covariance of a feature's values over the examples, noise included.

    Reference: Lawrence 2005, Equation 7.
    """
    n, d = Y.shape
    L = torch.linalg.cholesky(K)
    white = torch.linalg.solve_triangular(L, Y, upper=False)
    return d * L.diagonal().log().sum() + 0.5 * white.square().sum() + 0.5 * n * d * math.log(2 * math.pi)


def principal_latents(Y: Examples, code: int) -> Latents:
    """The first principal components of rows, each of variance 1 over the rows.

    Raises:
        ValueError: The rows span fewer directions.
    """
    n = len(Y)
    U, S, _ = torch.linalg.svd(Y - Y.mean(0), full_matrices=False)
    rank = int((1e-10 * S.max() < S).sum()) if S.max() > 0 else 0
    if rank < code:
        raise ValueError(f"code must be at most the directions that the rows span, {rank}: got {code}")
    return U[:, :code] * math.sqrt(n)


class GPLVM(nn.Module):
    r"""Features :math:`y_j(z) \sim GP(0, k)` with noise of variance s^2, at codes z_1 .. z_n of the examples.

    Of a new row the codes are those of the examples, each as likely before: a density by parts

    .. math:: p(y) = \frac1n \sum_i N(y; m(z_i), v(z_i) I)

    where m and v are mean and variance of the process given the examples. So the code of a row is the mean of
    z given y, and what is drawn is of one of the parts.

    Args:
        num_examples: Number of training examples n, which the model keeps; a step takes time n^3.
        in_features: Number of features d; an input of more axes is flattened.
        code: Numbers of a code.
        kernel: exp(-|z - z'|^2 / 2l^2) times a variance; or z^T z', whose maximum is dual probabilistic PCA.

    Raises:
        ValueError: A code has no number, or there are too many examples.

    Reference:
        Lawrence 2005, Section 3; the density of new rows is ours.
    """

    rows: Tensor
    mean: Tensor
    fitted: Tensor

    def __init__(self, num_examples: int, in_features: int, *, code: int = 2, kernel: Kernel = "rbf") -> None:
        super().__init__()
        if code < 1:
            raise ValueError(f"code must be at least 1: got {code}")
        if num_examples > MOST:
            raise ValueError(
                f"a GPLVM takes time n^3 in its examples, at most {MOST}: got {num_examples}; train on fewer"
            )
        self.kernel: Kernel = kernel
        self.register_buffer("rows", torch.zeros(num_examples, in_features))
        self.register_buffer("mean", torch.zeros(in_features))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.latents = nn.Parameter(torch.randn(num_examples, code))
        self.log_noise = nn.Parameter(torch.tensor(-1.0))
        if kernel == "rbf":
            self.log_length = nn.Parameter(torch.zeros(()))
            self.log_scale = nn.Parameter(torch.zeros(()))

    def covariance(
        self, a: Float[Tensor, "left code"], b: Float[Tensor, "right code"]
    ) -> Float[Tensor, "left right"]:
        """k(a, b), without noise."""
        if self.kernel == "linear":
            return a @ b.T
        apart = (a[:, None] - b).square().sum(-1)
        return (2 * self.log_scale).exp() * (-0.5 * apart * (-2 * self.log_length).exp()).exp()

    def noisy(self) -> Float[Tensor, "rows rows"]:
        """The covariance of a feature's values over the examples, noise included."""
        noise = (2 * self.log_noise).exp() * torch.ones_like(self.latents[:, 0])
        return self.covariance(self.latents, self.latents) + noise.diag()

    def negative_log_likelihood(self) -> Float[Tensor, ""]:
        """Minus the log-density of all training examples given their codes, in nats, in float64."""
        with torch.autocast(self.rows.device.type, enabled=False):
            return negative_log_likelihood((self.rows - self.mean).double(), self.noisy().double())

    def predict(
        self, z: Float[Tensor, "points code"]
    ) -> tuple[Float[Tensor, "points dim"], Float[Tensor, " points"]]:
        """Mean of each feature at codes given the examples, and the variance, of noise too, of all."""
        L = torch.linalg.cholesky(self.noisy())
        across = torch.linalg.solve_triangular(L, self.covariance(self.latents, z), upper=False)
        white = torch.linalg.solve_triangular(L, self.rows - self.mean, upper=False)
        own = z.square().sum(1) if self.kernel == "linear" else (2 * self.log_scale).exp().expand(len(z))
        noise = (2 * self.log_noise).exp()
        return across.T @ white + self.mean, (own - across.square().sum(0)).clamp_min(0) + noise

    def log_parts(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, "batch rows"]:
        """The log-density of each row by each part of the density, and of being of that part, in nats."""
        mean, variance = self.predict(self.latents)
        d = mean.shape[1]
        apart = torch.cdist(x.flatten(1), mean, compute_mode="donot_use_mm_for_euclid_dist").square()
        return -0.5 * (apart / variance + d * (2 * math.pi * variance).log()) - math.log(len(mean))

    def log_prob(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The log-density of each row, in nats, in the model's own units."""
        return self.log_parts(x).logsumexp(1)

    def encode(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, "batch code"]:
        """The mean of the code given each row."""
        return self.log_parts(x).softmax(1) @ self.latents

    def decode(self, codes: Float[Tensor, "batch code"]) -> Float[Tensor, "batch dim"]:
        """The mean of the features at codes."""
        return self.predict(codes)[0]

    def reconstruct(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, " batch *shape"]:
        """The mean of the features at each row's code."""
        return self.decode(self.encode(x)).reshape(x.shape)

    @torch.no_grad()
    def sample(self, count: int, *, generator: Generator) -> Float[Tensor, "batch dim"]:
        """Rows drawn from the density."""
        mean, variance = self.predict(self.latents)
        which = torch.randint(len(mean), (count,), generator=generator).to(mean.device)
        noise = torch.randn(count, mean.shape[1], generator=generator).to(mean)
        return mean[which] + variance[which].sqrt()[:, None] * noise

    @torch.no_grad()
    def interpolate(self, count: int, *, generator: Generator) -> Float[Tensor, "batch dim"]:
        """Means on the segment between the codes of two examples."""
        first, last = torch.randint(len(self.latents), (2,), generator=generator).tolist()
        t = torch.linspace(0, 1, count).to(self.latents)[:, None]
        return self.decode((1 - t) * self.latents[first] + t * self.latents[last])

    def forward(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, "batch code"]:
        """The code of each row."""
        return self.encode(x)


def codes_by_descent(descend: GradientUpdate) -> Step:
    """Descent on minus the likelihood of all examples; the first step begins with their principal components.

    The loss is that of an example: the whole divided by their number.
    """

    def step(state: State, batch: Batch) -> Metrics:
        model: Any = state.core
        if not model.fitted:
            rows = batch_rows(state, batch, learner="a GPLVM", targets=False).double()
            _begin(model, rows.x, rows.weight)
        return descend(state, model.negative_log_likelihood() / len(model.rows))

    return step


@torch.no_grad()
def _begin(model: GPLVM, x: Tensor, weight: Tensor) -> None:
    if x.shape != model.rows.shape or not bool((weight == weight[0]).all()):
        raise ValueError(
            "a GPLVM gives each example a code, and each counts as one: got "
            f"{len(x)} examples for {len(model.rows)} codes, weights from {float(weight.min()):g} to "
            f"{float(weight.max()):g}"
        )
    model.rows.copy_(x)
    model.mean.copy_(x.mean(0))
    model.latents.copy_(principal_latents(x, model.latents.shape[1]))
    model.fitted.fill_(True)
